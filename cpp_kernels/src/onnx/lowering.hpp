// A parsed ONNX model to an OpGraph: scopes of names, one pass over the nodes, functions and subgraphs inlined.
#pragma once

#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "onnx/inputs.hpp"
#include "onnx/known_nodes.hpp"
#include "onnx/model.hpp"
#include "onnx/name_table.hpp"
#include "perfpass/error.hpp"
#include "perfpass/graph.hpp"
#include "support/text_hash.hpp"

namespace perfpass::onnx {

/// A tensor name of one graph.
struct Slot {
  Text name;
  Value value;
  const ValueInfo* info = nullptr;
  TensorId tensor = kNone;      // made when a node first reads it
  std::int32_t writer = kNone;  // index of the node in its graph that writes it
  bool ready = false;           // false: its writer was not lowered yet
  bool is_input = false;
  bool is_weight = false;   // integers that are parameters: an operand of a quantized operator
  bool is_literal = false;  // floating numbers that are none
  bool is_absent = false;   // an optional input of a function that its caller does not give
  Text prefix;              // of the scope it belongs to
};

/// A call of a model-local function: where references in its body find the caller's attributes.
struct Call {
  const Node* node;
  const Function* function;
};

/// One graph, subgraph or function body being lowered.
struct Scope {
  /// `memory`: the arena for the main graph; the heap for bodies, which come and go by the thousand.
  Scope(const Scope* outer, std::size_t names, std::pmr::memory_resource& memory)
      : parent(outer), table(names, memory), slots(&memory), first_output(&memory) {
    slots.reserve(names);
  }

  const Scope* parent;           // whose names this one sees; none for the main graph and for function bodies
  NameTable table;               // in the order of slots
  std::pmr::vector<Slot> slots;  // never grows past the reserved size: pointers to slots stay valid
  std::span<const Node> nodes;
  std::pmr::vector<std::uint32_t> first_output;  // [nodes + 1]: slots of a node's named outputs lie one after the other
  Text prefix;                                   // of tensor and node names: the way through calls and subgraphs
  double repeat = 1.0;
  const Call* call = nullptr;
  std::span<const Opset> opsets;
  std::int64_t default_opset = 0;
};

/// The operands contradict the operator: no run can pass here. Other errors of shape tell of what is not known.
class Misfit : public Error {
 public:
  explicit Misfit(const std::string& message) : Error(ErrorCode::shape, message) {}
};

/// Elements that shape arithmetic may keep in all: 32 MiB. Exports of large models keep some ten thousand.
constexpr std::size_t kValueBudget = std::size_t{1} << 22;

class Lowering {
 public:
  Lowering(const Model& model, const OnnxOptions& options, std::pmr::memory_resource& arena);
  OpGraph run();

 private:
  /// A node held back while the branches of an If are weighed against one another.
  struct HeldNode {
    OpKind op;
    std::string source, name;
    NodeAttributes attributes;
    std::vector<TensorId> inputs, outputs;
    double repeat;
    std::optional<StatedCosts> stated;
  };
  struct Work {
    double multiplications = 0.0;
    double elements = 0.0;
  };

  /// Nodes after inlining, and how deep functions and subgraphs nest.
  struct Extent {
    std::size_t nodes = 0;
    int depth = 0;
  };

  // scope.cpp: names and order
  void check_opsets();
  Extent extent(std::span<const Node> nodes, int depth);
  Extent extent_of_function(std::size_t index, int depth);
  const Function* function_of(const Node& node) const;
  Slot& declare(Scope& scope, Text name, const char* what);
  void declare_constants(Scope& scope, std::span<const Constant> constants);
  void declare_nodes(Scope& scope, std::span<const Node> nodes);
  void declare_infos(Scope& scope, std::span<const ValueInfo> infos);
  void mark_quantized_weights(Scope& scope);
  Slot* find(const Scope& scope, Text name) const;
  Slot* find(const Scope& scope, Text name, std::uint32_t hash) const;
  bool resolve_inputs(const Scope& scope, const Node& node, std::span<const std::uint32_t> hashes,
                      std::vector<Slot*>& inputs) const;
  bool captures_ready(const Scope& scope, const Node& node) const;
  void lower_nodes(Scope& scope);
  std::vector<std::uint32_t> order_from(const Scope& scope, std::size_t first) const;

  // lower.cpp: one node
  using Inputs = std::span<Slot* const>;
  void lower_node(Scope& scope, std::size_t index, Inputs inputs);
  bool lower_constant(Scope& scope, const Node& node, std::uint32_t output);
  void lower_operator(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs);
  void lower_call(Scope& scope, const Node& node, const Function& function, std::uint32_t output, Inputs inputs);
  const Node& resolved(const Scope& scope, const Node& node);
  std::int64_t opset_of(const Scope& scope, Text domain) const;
  TensorId tensor_of(Slot& slot, bool may_be_weight = true);
  TensorId new_tensor(const Slot& slot);
  std::string_view display_name(Text prefix, Text name);
  Text join(Text prefix, Text name, std::string_view part);
  void emit(OpKind op, const Scope& scope, const Node& node, const NodeAttributes& attributes,
            std::span<const TensorId> inputs, std::span<const TensorId> outputs, std::string_view suffix = {},
            const std::optional<StatedCosts>& stated = {});
  SourceNode source_of(const Node& node, std::span<const Value* const> inputs) const;
  bool infer_stated(InferContext& context, OpKind op);
  bool infer_known(const Scope& scope, InferContext& context);
  void count_work(OpKind op, double repeat, std::span<const Value* const> inputs, std::span<const Value> outputs);
  void finish_notes();

  // declared.cpp: what the file declares of a node's outputs beside what its inputs give
  void infer_shapes(const Scope& scope, InferContext& context, OpKind op, const Slot* first_output, bool estimate);
  std::optional<std::span<const std::int64_t>> declared_shape(const Slot& slot, bool rescale);
  bool use_declared(InferContext& context, const Slot* first_output, bool rescale);
  void merge_declared(const Node& node, const Slot& slot, Value& value, bool is_body, bool certain,
                      std::int64_t slack = 0);

  // control.cpp
  bool lower_control(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs);
  void lower_if(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs);
  void lower_loop(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs);
  void lower_scan(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs);
  /// A subgraph's scope with all its names declared; inputs are not bound yet.
  Scope body_scope(const Scope& scope, const Node& node, const Graph& graph, std::string_view part, double repeat);
  void bind_input(Scope& body, const Graph& graph, std::size_t index, const Value& value, TensorId tensor);
  std::vector<Slot*> lower_body(Scope& body, const Graph& graph);
  void emit_control(OpKind op, Scope& scope, const Node& node, std::uint32_t output, std::span<const TensorId> inputs,
                    std::span<const Value> results);

  const Model& model_;
  const OnnxOptions& options_;
  std::pmr::memory_resource& arena_;
  InputShapes shapes_;
  GraphBuilder builder_;
  std::unordered_map<std::string, std::size_t, TextHash> function_index_;  // by domain, name and overload
  std::vector<Extent> function_extents_;                                   // nodes 0: not counted yet
  bool has_bytes_ = false;                                                 // constants of 8 bits or less exist
  KnownNodes known_;
  std::vector<const Value*> input_values_;  // buffers of lower_operator
  std::vector<Value> output_values_;
  std::vector<TensorId> input_ids_, output_ids_;
  std::string text_;          // buffer of display_name
  Text plain_;                // the name that it found plain last
  std::size_t value_budget_;  // elements that shape arithmetic may still keep
  std::vector<HeldNode>* held_ = nullptr;
  Work work_;
  std::map<std::string, std::size_t> unknown_;  // operators without canonical counterpart
  bool assumed_ = false;                        // a size is that of assumed detections
  std::size_t contradicted_ = 0;  // nodes of uncertain rules that kept their declared shapes against inference
  std::string first_contradiction_;
};

/// The inputs of a model, initializers excluded.
std::vector<OnnxInput> declared_inputs(const Model& model);

inline std::span<const std::int64_t> keep_shape(std::span<const std::int64_t> shape, std::pmr::memory_resource& arena) {
  if (shape.empty()) return {};
  auto* copy = static_cast<std::int64_t*>(arena.allocate(shape.size() * sizeof(std::int64_t), alignof(std::int64_t)));
  std::copy(shape.begin(), shape.end(), copy);
  return {copy, shape.size()};
}

}  // namespace perfpass::onnx
