// The parsed form of a model, between the reader of a file's format (wire.cpp; ort/, tflite/ for FlatBuffers) and the
// lowering to an OpGraph (lower.cpp), and the interface of shape inference (operators/). Internal to the core.
//
// Text is a view into the file's bytes. Lists live in the model's arena: a 10,000-node file must not cost 100,000
// allocations.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfpass/graph.hpp"
#include "perfpass/onnx_reader.hpp"

namespace perfpass::onnx {

using Text = std::string_view;

/// A TensorProto without its data, or with it where it is small enough to decide shapes.
struct Constant {
  Text name;
  DType dtype = DType::undefined;
  std::span<const std::int64_t> shape;
  bool has_values = false;                 // exactly one of the two lists below is then filled
  std::span<const std::int64_t> integers;  // integer and boolean types
  std::span<const double> reals;           // floating types
  // What the constant is, where its type does not tell: integers that are parameters, a state that is none.
  bool is_weight = false, is_literal = false;
};

struct Graph;
struct Operator;  // operators/operators.hpp

struct Attribute {
  enum class Kind : std::uint8_t { none, real, integer, text, tensor, graph, reals, integers, texts, other };
  Text name;
  Text reference;  // in a function body: the name of the function's attribute that supplies the value
  Kind kind = Kind::none;
  double real = 0.0;
  std::int64_t integer = 0;
  Text text;
  const Constant* tensor = nullptr;
  const Graph* graph = nullptr;
  std::span<const double> reals;
  std::span<const std::int64_t> integers;
  std::span<const Text> texts;
};

struct Node {
  Text op_type, domain, name;
  std::span<const Text> inputs, outputs;  // empty text: optional and absent
  std::span<const Attribute> attributes;
  Text overload;                    // which of several functions of one name
  const Operator* entry = nullptr;  // of another vocabulary than ONNX's, where the file is of another format
};

struct ValueInfo {
  Text name;
  DType dtype = DType::undefined;
  bool has_shape = false;
  std::span<const std::int64_t> shape;  // kUnknownDim where symbolic or absent
  std::span<const Text> symbols;        // [rank], empty text where fixed; no entries when no dimension is named
  bool is_tensor = true;                // false: a sequence or map; dtype and shape are then those of its elements
};

struct Graph {
  Text name;
  std::span<const Node> nodes;
  std::span<const ValueInfo> inputs, outputs, value_info;
  std::span<const Constant> initializers;
};

struct Opset {
  Text domain;
  std::int64_t version;
};

struct Function {
  Text domain, name;
  std::span<const Text> inputs, outputs;
  std::span<const Attribute> attributes;  // declared attributes; kind none where there is no default
  std::span<const Node> nodes;
  std::span<const ValueInfo> value_info;
  std::span<const Opset> opsets;
  Text overload;
  std::span<const Constant> initializers;  // not in ONNX, whose functions hold Constant nodes
};

struct Note {
  Text text;
  bool counted_once = false;  // as of OpGraph
};

struct Model {
  std::int64_t ir_version = 0;
  std::span<const Opset> opsets;
  const Graph* graph = nullptr;
  std::span<const Function> functions;
  bool is_typed = false;  // every value declares its type, and that counts
  std::span<const Note> notes;
};

/// What is known of contents that decide how much a selection leaves (selection.hpp): an extent of boxes, scores, a
/// mask that some of them pass, or all.
enum class Selects : std::uint8_t { unknown, extent, probability, some, all };

/// What is known of a tensor while shapes are inferred. `shape` entries are never negative once inference succeeded.
struct Value {
  DType dtype = DType::undefined;
  bool has_shape = false;
  bool is_constant = false;  // an initializer or derived from constants alone
  std::span<const std::int64_t> shape;
  bool has_values = false;  // as in Constant: known small contents, propagated through shape arithmetic
  std::span<const std::int64_t> integers;
  std::span<const double> reals;
  bool is_estimate = false;  // the shape is a bound, or that of a first iteration: a declared shape may differ from it
  Selects selects = Selects::unknown;
  bool has_elements = false;  // of a sequence: how many tensors it holds, each with its shape
  std::span<const std::span<const std::int64_t>> elements = {};
};

/// The vocabulary's entry for an ONNX operator; nullptr where there is none.
const Operator* find_operator(Text domain, Text op_type) noexcept;

/// One operator of the vocabulary: how a node of this type reads.
struct InferContext {
  const Node& node;                      // attributes already resolved (no references left)
  std::int64_t opset;                    // of the node's domain
  std::span<const Value* const> inputs;  // nullptr where absent
  std::span<Value> outputs;              // to fill: dtype, shape, and values where small and known
  NodeAttributes& attributes;            // to fill: kernel, stride, padding, heads, ...
  std::pmr::memory_resource& arena;      // for the spans in outputs
  std::size_t max_values;                // propagate contents of at most so many elements
  std::int64_t file_batch = 0;           // when a batch is rebound: the batch the file fixes, 0 otherwise
  std::int64_t batch = 0;                // and the one asked for
  const Operator* entry = nullptr;       // the vocabulary's for this node
  std::int64_t detections = 0;           // boxes of an image that pass a threshold, as stated; 0: not stated
  bool assumed = false;                  // to set: an output's size is that assumption

  const Attribute* find(Text name) const noexcept;
  std::int64_t integer(Text name, std::int64_t fallback) const noexcept;
  double real(Text name, double fallback) const noexcept;
  std::span<const std::int64_t> integers(Text name) const noexcept;  // empty when absent
  Text text(Text name, Text fallback) const noexcept;
};

/// The canonical operator of an entry; OpKind::unknown where there is none.
OpKind canonical_operator(const Operator* entry) noexcept;

/// Whether the shape that infer gives is the one that runs. Not where it is a bound (NonMaxSuppression) or where the
/// operator's document leaves room (com.microsoft's attention, mixtures of experts, blocked layouts).
bool is_certain(const Operator* entry) noexcept;

/// By how much one dimension may differ from inference: exporters and runtimes round resized and pooled extents apart.
std::int64_t rounding_slack(const InferContext& context) noexcept;

/// Fills the attributes of the node alone, from node attributes and input shapes: used where the shapes are those that
/// the file declares. Never throws for a missing shape.
void lower_attributes(InferContext& context);

/// Fills outputs and attributes. Returns false, leaving outputs without shape, when the operator is unknown here or the
/// shape depends on data that is not in the file (the caller then uses value_info, or reports). Error(shape) where the
/// inputs contradict the operator's definition; messages name operator, node and the shapes found.
bool infer(InferContext& context);

}  // namespace perfpass::onnx
