// Shared by the cost, feature and memory files: one node with its shapes, and arithmetic that cannot wrap around.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "perfpass/cost.hpp"
#include "perfpass/graph.hpp"

namespace perfpass::detail {

/// A non-negative count that sticks at the top instead of wrapping; count_costs refuses whatever passes 2^62.
class Count {
 public:
  constexpr Count(std::int64_t value = 0) noexcept : value_(value) {}  // NOLINT: implicit by intent, it is a number
  constexpr std::int64_t value() const noexcept { return value_; }
  friend constexpr Count operator*(Count a, Count b) noexcept {
    std::int64_t r = 0;
    return __builtin_mul_overflow(a.value_, b.value_, &r) ? Count(kTop) : Count(r);
  }
  friend constexpr Count operator+(Count a, Count b) noexcept {
    std::int64_t r = 0;
    return __builtin_add_overflow(a.value_, b.value_, &r) ? Count(kTop) : Count(r);
  }
  constexpr Count& operator+=(Count other) noexcept { return *this = *this + other; }

 private:
  static constexpr std::int64_t kTop = std::numeric_limits<std::int64_t>::max();
  std::int64_t value_;
};
constexpr std::int64_t kMaxCount = std::int64_t{1} << 62;

/// Width of a tensor's elements once CostOptions::float_as is applied.
inline int effective_bits(DType dtype, DType float_as) noexcept {
  const int bits = bits_of(dtype);
  return float_as != DType::undefined && is_floating(dtype) && bits >= 16 ? bits_of(float_as) : bits;
}

/// Elements of every tensor, [T]; computed once because costs, features and the planner all ask for them.
std::vector<std::int64_t> tensor_elements(const OpGraph& graph);

/// Error(argument) unless the costs have one entry per node of this graph.
void require_costs(const OpGraph& graph, const Costs& costs);

/// The weight that a tensor shows through views (transposed, broadcast over the batch); kNone where it shows none.
TensorId weight_behind(const OpGraph& graph, TensorId t) noexcept;

/// One node with its tensors. Slots past the end and absent optional tensors read as kNone.
struct NodeView {
  const OpGraph& g;
  const std::vector<std::int64_t>& elements_of;  // [T]
  NodeId id;

  OpKind op() const noexcept { return g.op[id]; }
  const NodeAttributes& attributes() const noexcept { return g.attributes[id]; }
  std::span<const TensorId> inputs() const noexcept { return g.node_inputs(id); }
  std::span<const TensorId> outputs() const noexcept { return g.node_outputs(id); }
  TensorId input(std::size_t i) const noexcept { return i < inputs().size() ? inputs()[i] : kNone; }
  TensorId output(std::size_t i) const noexcept { return i < outputs().size() ? outputs()[i] : kNone; }
  /// 0 for an absent tensor.
  std::int64_t elements(TensorId t) const noexcept { return t == kNone ? 0 : elements_of[t]; }
  std::span<const std::int64_t> shape(TensorId t) const noexcept {
    return t == kNone ? std::span<const std::int64_t>() : g.shape(t);
  }
  /// The node's name for messages.
  std::string label() const;
};

/// Sizes of an operator as a batch of b products of [m, k] by [k, n]; all 0 where it is none.
struct GemmSizes {
  std::int64_t b = 0, m = 0, n = 0, k = 0;
};

/// Sizes of an attention operator, whatever layout its inputs have.
struct AttentionSizes {
  std::int64_t batch = 0;     // batch x heads
  std::int64_t q_length = 0;  // rows of the score matrix
  std::int64_t k_length = 0;  // columns of it, past included
  std::int64_t qk_dim = 0;    // per head
  std::int64_t v_dim = 0;     // per head
  Count projection_macs = 0;  // of the packed input projection of com.microsoft Attention, else 0
};

/// MACs of one execution; 0 for operators without multiply-accumulates. Error(graph) when a needed input is absent.
Count node_macs(const NodeView& node);
GemmSizes gemm_sizes(const NodeView& node);
/// Of an LSTM, GRU or RNN: b steps, one after the other, of m sequences by the recurrent weights [k, n] of all gates
/// and directions. Zeros elsewhere.
GemmSizes step_sizes(const NodeView& node);
AttentionSizes attention_sizes(const NodeView& node);
/// FLOPs of one execution, given its MACs (docs/internals/costs.md).
Count node_flops(const NodeView& node, Count macs);
/// Of an operator whose FLOPs follow from the elements of its first output alone, those of one element; 0 of any other.
int flops_per_output(OpKind op) noexcept;
/// ONNX Runtime's EmbedLayerNormalization: ids come first, and every constant of rank 2 is a table that they index.
bool is_fused_embedding(const NodeView& node) noexcept;
/// Kernel elements per spatial position (9 for 3x3) of a convolution or pooling; 0 elsewhere.
std::int64_t kernel_area(const NodeView& node);

}  // namespace perfpass::detail
