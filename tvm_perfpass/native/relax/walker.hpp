// One walk over a module. Its parts by topic: walk.cpp (bindings and Ifs), walk_calls.cpp (operators and functions),
// walk_kernels.cpp (lowered functions), walk_values.cpp (tensors), walk_sizes.cpp (symbolic sizes).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../shared/memo.hpp"
#include "../shared/values.hpp"
#include "perfpass/error.hpp"
#include "walk.hpp"

namespace perfpass::relax {

using ir::Branches;
using ir::Form;
using ir::Memo;
using ir::Records;
using ir::Rule;
using ir::TensorRecord;
using ir::Value;

struct Workspace::Contents {
  Records records;
  Memo memo;
};

using Sizes = std::vector<std::pair<Handle, std::int64_t>>;

/// One run of a function.
struct Frame {
  Handle function = nullptr;
  std::int32_t lexical = kNone;  // where free variables are looked up
  std::int32_t caller = kNone;
  std::int32_t depth = 0;
  std::int32_t group = kNone;  // of the fused function this frame is in
  Sizes sizes;
};

struct Closure {
  Handle function;
  std::int32_t frame;
};

/// A sequence of bindings under way, and what its value is for.
struct Level {
  enum class Use : std::uint8_t { main, call, then_branch, else_branch } use = Use::main;
  Handle body = nullptr;  // relax.SeqExpr, or a leaf
  std::int32_t frame = 0;
  Handle target = nullptr;  // the variable that gets the value
  std::int32_t outer = 0;   // and its frame
  Handle branch = nullptr;  // the If
  Branches marks{0, 0, 0};
  Value then_value;
  std::int64_t block = 0, binding = 0;  // where it stands
};

struct Operator {
  std::string name;
  const Rule* rule;
  std::int32_t source;
};

class Walker {
 public:
  Walker(Reflection& tvm, const ir::RuleTable& rules, const Module& module, Workspace::Contents& workspace)
      : tvm_(tvm), rules_(rules), module_(module), records_(workspace.records), memo_(workspace.memo) {
    records_.clear();
    memo_.clear();
  }
  ir::WalkResult run();

 private:
  void bind_main();
  void advance(std::size_t level);
  void fetch_ahead(Handle bindings, std::int64_t at, std::int64_t count) const noexcept;
  void bind(Handle binding, std::int32_t frame);
  void leave(const Level& level, Value value);
  void merge_branches(const Level& level, Value else_value);

  void visit_call(Handle call, Handle target, std::int32_t frame);
  void enter_function(Handle call, const Closure& callee, Handle target, std::int32_t frame);
  void lower_call(Handle call, const Operator& called, Handle target, std::int32_t frame);
  void lowered_function(Handle call, Handle target, std::int32_t frame);
  void packed_function(Handle call, Handle function, std::int64_t first_argument, const std::string& name,
                       Handle target, std::int32_t frame);
  const Operator& operator_of(Handle op);
  std::int32_t source_id(const std::string& name);

  Value value_of(Handle expression, std::int32_t frame, int depth = 0);
  Value variable(Handle var, std::int32_t frame);
  Value constant(Handle expression, std::int32_t frame);
  Value function_value(Handle function, std::int32_t frame);
  Handle global_function(Handle var) const;
  TensorId add_tensor(Handle type, std::int32_t frame, TensorRole role, const std::string& whose);
  Value value_of_type(Handle type, std::int32_t frame, TensorRole role, const std::string& whose, int depth = 0);
  Value tuple_of(std::span<const Value> fields);
  Value none() { return tuple_of({}); }
  std::string name_of(Handle var) const { return tvm_.text(var, Field::var_name); }

  /// The symbolic variable's value, null where it has none.
  const std::int64_t* size_of(Handle var, std::int32_t frame) const;
  std::int64_t evaluate(Handle size, std::int32_t frame, std::string& unknown, int depth = 0) const;
  void match(Handle type, Value value, std::int32_t frame);
  void match_sizes(Handle names, TensorId tensor, std::int32_t frame);

  Reflection& tvm_;
  const ir::RuleTable& rules_;
  const Module& module_;
  Records& records_;
  Memo& memo_;
  std::vector<Level> levels_;
  std::vector<Frame> frames_;
  std::vector<Closure> closures_;
  std::vector<TensorId> graph_inputs_;
  std::unordered_map<Handle, Value> constants_;
  std::unordered_map<Handle, Operator> operators_;
  std::unordered_map<std::string, std::int32_t> source_ids_;
  std::vector<Branches> branches_;
  std::int32_t groups_ = 0;
  std::size_t inlined_ = 0;
  Value result_;
  std::vector<Value> values_;      // scratch
  std::vector<TensorId> inputs_;   // scratch
  std::vector<TensorId> outputs_;  // scratch
};

/// Levels within one another: of tuples, and of the arithmetic of one size.
constexpr int kMaxNesting = 16;

/// What a kernel is shown as, from the shapes of its tensors in canonical order (kernels.py: kernel_attributes).
std::pair<OpKind, NodeAttributes> kernel_attributes(OpKind op, std::span<const TensorId> inputs, const Records& records,
                                                    std::int64_t contraction);

}  // namespace perfpass::relax
