// OpGraph: an immutable operator graph as a struct of arrays, and GraphBuilder, the only way to make one.
//
// N nodes, T tensors, E edges. Nodes stand in a valid execution (topological) order. An edge is true data flow: one per
// (producer node, consumer node, tensor), never a chain of neighbours. Constants are tensors with a shape and no data.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfpass/dtype.hpp"
#include "perfpass/export.hpp"
#include "perfpass/operators.hpp"

namespace perfpass {

using NodeId = std::int32_t;
using TensorId = std::int32_t;
constexpr std::int32_t kNone = -1;

/// Bounds that hold for every graph, whatever its source. A violation is Error(limit).
constexpr int kMaxRank = 16;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;  // of one tensor: 2^48 floats are a petabyte
constexpr std::size_t kMaxNodes = 4'000'000;
constexpr std::size_t kMaxTensors = 16'000'000;

enum class TensorRole : std::uint8_t {
  activation = 0,  // produced by a node
  input,           // fed by the caller (KV caches included)
  weight,          // a constant whose elements are parameters
  literal,         // a constant that is not a parameter: shapes, indices, scalars
};

/// Attributes that costs and features read, for every operator alike. Unset spatial entries are 0; `axis` unset is
/// kNoAxis. Spatial entries fill from index 0 in the order of the tensor's spatial axes (h, w or d, h, w).
struct NodeAttributes {
  std::int32_t kernel[3] = {0, 0, 0};
  std::int32_t stride[3] = {0, 0, 0};
  std::int32_t pad_begin[3] = {0, 0, 0};
  std::int32_t pad_end[3] = {0, 0, 0};
  std::int32_t dilation[3] = {0, 0, 0};
  std::int32_t spatial_rank = 0;
  std::int32_t groups = 0;  // convolutions; 0 elsewhere
  std::int32_t axis = std::numeric_limits<std::int32_t>::min();
  std::int32_t transpose_a = 0;
  std::int32_t transpose_b = 0;
  std::int32_t channels_last = 0;  // activations are N...C and the kernel's layout is in `weight_layout`
  std::int32_t weight_layout = 0;  // 0: O I spatial (ONNX, torch); 1: spatial I O (HWIO); 2: I O spatial (transposed)
  std::int32_t contraction = 0;    // einsum: reduced length per output element
  std::int32_t num_heads = 0;      // attention
  std::int32_t num_kv_heads = 0;
  std::int32_t causal = 0;
  std::int32_t weight_bits = 0;  // quantized weights (MatMulNBits: 4)
  std::int32_t block_size = 0;
  std::int32_t hidden_size = 0;  // recurrent
  std::int32_t directions = 0;   // recurrent
  std::int32_t view = 0;         // 1: outputs alias input 0 and nothing is moved in the source's runtime
  std::int32_t in_place = 0;     // 1: output 0 overwrites input 0 (torch's add_, relu_)
};
constexpr std::int32_t kNoAxis = std::numeric_limits<std::int32_t>::min();
/// Names of NodeAttributes' int32 columns in memory order ("kernel_0", "kernel_1", ... "in_place").
PERFPASS_API std::span<const std::string_view> attribute_names() noexcept;

/// What the user states that one execution of a node costs, in the types that its own tensors have; kUnstated: what the
/// canonical operator counts.
struct StatedCosts {
  std::int64_t macs = -1;
  std::int64_t flops = -1;
  std::int64_t bytes_read = -1;
  std::int64_t bytes_written = -1;
};
constexpr std::int64_t kUnstated = -1;

/// Strings by id; id 0 is the empty string. Operator names repeat and are interned; names of nodes and tensors are as
/// good as unique and only appended, because a hash look-up per name is the dearest part of reading a large file.
class PERFPASS_API StringPool {
 public:
  StringPool();
  /// The id of a string equal to `text`, a new one where there is none among the interned.
  std::int32_t intern(std::string_view text);
  /// A new id; 0 for the empty string.
  std::int32_t append(std::string_view text);
  void reserve(std::size_t strings, std::size_t bytes);
  std::string_view at(std::int32_t id) const;
  std::size_t size() const noexcept { return offsets_.size() - 1; }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = kNone;
  };
  /// What was interned last from this address, of those that share the place.
  struct Recent {
    const char* data = nullptr;
    std::int32_t id = 0;
  };
  std::int32_t look_up(std::string_view text);
  void grow();

  std::string bytes_;
  std::vector<std::size_t> offsets_;  // [size + 1]
  std::vector<Slot> table_;           // of the interned: open addressing, a power of two, at most half full
  std::size_t interned_ = 0;
  std::array<Recent, 16> recent_{};
};

/// What a reader must tell the user: unknown operators, a branch that was taken, ...
struct Note {
  std::string text;
  bool counted_once = false;  // of a body that runs as often as only a run knows: the figures are those of one pass
};

struct PERFPASS_API OpGraph {
  // Per node, [N]
  std::vector<OpKind> op;
  std::vector<std::int32_t> source_op;  // string id of the operator's name in its source ("Conv", "nn.conv2d")
  std::vector<std::int32_t> node_name;  // string id, may be the empty string
  std::vector<NodeAttributes> attributes;
  std::vector<double> repeat;              // executions per run: loop bodies > 1, the lighter branch of an If 0, else 1
  std::vector<std::int32_t> input_offset;  // [N + 1] into inputs
  std::vector<TensorId> inputs;            // kNone where an optional input is absent
  std::vector<std::int32_t> output_offset;  // [N + 1] into outputs
  std::vector<TensorId> outputs;            // kNone where an optional output is absent
  std::map<NodeId, StatedCosts> stated;     // of operators that the user describes; most graphs have none

  // Per tensor, [T]
  std::vector<DType> tensor_dtype;
  std::vector<TensorRole> tensor_role;
  std::vector<NodeId> producer;            // kNone for inputs and constants
  std::vector<std::int32_t> tensor_name;   // string id
  std::vector<std::int32_t> shape_offset;  // [T + 1] into dims
  std::vector<std::int64_t> dims;

  // Per edge, [E], sorted by consumer, then by input slot; one edge per (producer, consumer, tensor)
  std::vector<NodeId> edge_producer;
  std::vector<NodeId> edge_consumer;
  std::vector<TensorId> edge_tensor;

  std::vector<TensorId> graph_inputs;
  std::vector<TensorId> graph_outputs;
  std::vector<Note> notes;
  StringPool strings;

  std::size_t node_count() const noexcept { return op.size(); }
  std::size_t tensor_count() const noexcept { return tensor_dtype.size(); }
  std::size_t edge_count() const noexcept { return edge_producer.size(); }
  std::span<const TensorId> node_inputs(NodeId n) const noexcept {
    return {inputs.data() + input_offset[n], static_cast<std::size_t>(input_offset[n + 1] - input_offset[n])};
  }
  std::span<const TensorId> node_outputs(NodeId n) const noexcept {
    return {outputs.data() + output_offset[n], static_cast<std::size_t>(output_offset[n + 1] - output_offset[n])};
  }
  std::span<const std::int64_t> shape(TensorId t) const noexcept {
    return {dims.data() + shape_offset[t], static_cast<std::size_t>(shape_offset[t + 1] - shape_offset[t])};
  }
  bool is_constant(TensorId t) const noexcept {
    return tensor_role[t] == TensorRole::weight || tensor_role[t] == TensorRole::literal;
  }
  /// Whether some body runs as often as only a run knows.
  bool counts_once() const noexcept {
    return std::any_of(notes.begin(), notes.end(), [](const Note& note) { return note.counted_once; });
  }
  std::int64_t elements(TensorId t) const noexcept;  // 1 for a scalar, 0 if a dimension is 0
};

/// Product of non-negative dimensions; Error(limit) on a negative one, rank > kMaxRank or more than kMaxElements.
PERFPASS_API std::int64_t checked_elements(std::span<const std::int64_t> shape);

/// Collects tensors and nodes in any order; finish() checks, sorts topologically (stable: the given order is kept where
/// it is valid), derives the edges and gives the graph away.
class PERFPASS_API GraphBuilder {
 public:
  /// Error(limit) for a rank or size past the bounds above.
  TensorId add_tensor(std::string_view name, DType dtype, std::span<const std::int64_t> shape, TensorRole role);
  /// `inputs` and `outputs` may hold kNone. Error(graph) if an output already has a producer or is not an activation.
  NodeId add_node(OpKind op, std::string_view source_op, std::string_view name, const NodeAttributes& attributes,
                  std::span<const TensorId> inputs, std::span<const TensorId> outputs, double repeat = 1.0);
  /// The node's costs are what its user states.
  void state(NodeId node, const StatedCosts& costs) { g_.stated[node] = costs; }
  void add_note(std::string text, bool counted_once = false);
  /// The notes of a graph that this one is made of, but for those that it has.
  void add_notes(std::span<const Note> notes);
  void reserve(std::size_t nodes, std::size_t tensors);
  /// Error(graph) on a cycle (named), on an activation without producer that a node or an output reads, and on an empty
  /// graph (no node).
  OpGraph finish(std::span<const TensorId> graph_inputs, std::span<const TensorId> graph_outputs) &&;

 private:
  OpGraph g_;
};

}  // namespace perfpass
