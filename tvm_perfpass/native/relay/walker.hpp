// One walk over a module. Its parts by topic: walk.cpp (the stack and the plain expressions), walk_calls.cpp (operators
// and functions), walk_branches.cpp (If), walk_values.cpp (tensors); ../shared/assemble.cpp makes the graph.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "../shared/memo.hpp"
#include "../shared/values.hpp"
#include "perfpass/error.hpp"
#include "walk.hpp"

namespace perfpass::relay {

using ir::Branches;
using ir::Form;
using ir::Memo;
using ir::Records;
using ir::Rule;
using ir::TensorRecord;
using ir::Value;

struct Task {
  Handle expression;
  std::int32_t frame;
  std::int32_t state;  // 0 first visit; then what the class of the expression makes of it
};

struct Workspace::Contents {
  Records records;
  Memo memo;
  std::vector<Task> stack;
};

struct Frame {
  Handle function = nullptr;     // null for main's own frame
  std::int32_t lexical = kNone;  // where free variables are looked up
  std::int32_t caller = kNone;
  std::int32_t depth = 0;
  std::int32_t group = kNone;  // of the fused function this frame is in
};

struct Closure {
  Handle function;
  std::int32_t frame;
};

struct Operator {
  std::string name;
  const Rule* rule;
  std::int32_t source;
};

/// Expressions between fetching one into the cache and reading it.
constexpr std::size_t kAhead = 16;

class Walker {
 public:
  Walker(Tvm& tvm, const RuleTable& rules, const Module& module, Workspace::Contents& workspace)
      : tvm_(tvm),
        rules_(rules),
        module_(module),
        records_(workspace.records),
        memo_(workspace.memo),
        stack_(workspace.stack) {
    records_.clear();
    memo_.clear();
    stack_.clear();
  }
  WalkResult run();

 private:
  void bind_main();
  void fetch_ahead() const noexcept;
  void step(Task task);
  void visit_call(const Task& task);
  void enter_function(const Task& task, Handle function, std::int32_t lexical, bool literal);
  void lower_call(const Task& task, Handle op);
  void visit_tuple(const Task& task);
  void visit_get_item(const Task& task);
  void visit_let(const Task& task);
  void visit_if(const Task& task);
  Value variable(Handle var, std::int32_t frame);
  Value constant(Handle expression);
  void merge_branches(const Task& task, Value condition, Value then_value, Value else_value);

  TensorId add_tensor(Handle type, TensorRole role, std::int32_t name, const char* what, const std::string& whose);
  Value value_of_type(Handle type, TensorRole role, const std::string& whose, int depth);
  const Operator& operator_of(Handle op);
  std::int32_t source_id(const std::string& name);
  Value tuple_of(std::span<const Value> fields);
  const Value* known(Handle expression, std::int32_t frame) const { return memo_.find(expression, frame); }
  void set(const Task& task, Value value) { memo_.put(task.expression, task.frame, value); }
  void push(Handle expression, std::int32_t frame, std::int32_t state = 0) {
    if (state != 0 || known(expression, frame) == nullptr) stack_.push_back({expression, frame, state});
  }
  /// A value that a child left behind.
  Value value(Handle expression, std::int32_t frame) const {
    const Value* found = known(expression, frame);
    if (found == nullptr) throw Error(ErrorCode::graph, "an expression of the module depends on itself");
    return *found;
  }

  Tvm& tvm_;
  const RuleTable& rules_;
  const Module& module_;
  Records& records_;
  Memo& memo_;
  std::vector<Task>& stack_;
  std::vector<Frame> frames_;
  std::vector<Closure> closures_;
  std::vector<TensorId> graph_inputs_;
  std::unordered_map<Handle, Value> constants_;
  std::unordered_map<Handle, Operator> operators_;
  std::unordered_map<std::string, std::int32_t> source_ids_;
  std::unordered_map<std::int64_t, Branches> open_branches_;
  std::vector<Branches> branches_;
  std::int32_t groups_ = 0;
  std::vector<Value> values_;      // scratch
  std::vector<TensorId> inputs_;   // scratch
  std::vector<TensorId> outputs_;  // scratch
};

}  // namespace perfpass::relay
