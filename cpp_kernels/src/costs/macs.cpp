// Multiply-accumulates, from shapes and attributes. Formulas and input orders: docs/internals/costs.md.
#include <algorithm>
#include <array>
#include <string>

#include "costs/node.hpp"
#include "perfpass/error.hpp"

namespace perfpass::detail {
namespace {

using Shape = std::span<const std::int64_t>;

std::int64_t at(Shape shape, int axis) noexcept {  // negative axes count from the end; 1 where there is no such axis
  const int i = axis < 0 ? axis + static_cast<int>(shape.size()) : axis;
  return i >= 0 && i < static_cast<int>(shape.size()) ? shape[i] : 1;
}

std::int64_t divide(std::int64_t a, std::int64_t b) noexcept { return b > 0 ? a / b : 0; }
std::int64_t product(std::int64_t a, std::int64_t b) noexcept { return (Count(a) * b).value(); }

TensorId require(const NodeView& node, TensorId t, const char* what) {
  if (t != kNone) return t;
  throw Error(ErrorCode::graph, "node " + node.label() + " has no " + what + " among its " +
                                    std::to_string(node.inputs().size()) + " inputs; its cost cannot be counted");
}

TensorId data_of(const NodeView& node) { return require(node, node.input(0), "data"); }
TensorId result_of(const NodeView& node) { return require(node, node.output(0), "output"); }

/// Channels of an activation: the last axis, axis 1, or both in the blocked layout N C/c spatial c.
std::int64_t channels(const NodeView& node, TensorId t) {
  const Shape shape = node.shape(t);
  const int rank = static_cast<int>(shape.size());
  const int spatial = node.attributes().spatial_rank;
  if (spatial > 0 && rank - 3 == spatial) return product(at(shape, 1), at(shape, -1));
  return node.attributes().channels_last ? at(shape, -1) : at(shape, 1);
}

/// Convolution weights: input 1, or input 3 where scales and zero points come first (QLinearConv).
TensorId convolution_weight(const NodeView& node) {
  TensorId weight = node.input(1);
  if (node.op() == OpKind::quantized_conv && node.shape(weight).size() < 3) weight = node.input(3);
  return require(node, weight, "weight");
}

/// The right operand of a matrix product: input 1, or input 3 where scales and zero points come first (QLinearMatMul).
TensorId right_operand(const NodeView& node) {
  const TensorId second = node.input(1);
  if (node.op() == OpKind::quantized_matmul && node.shape(second).size() < 2 && node.shape(node.input(3)).size() >= 2) {
    return node.input(3);
  }
  return require(node, second, "right operand");
}

std::int64_t contracted_length(const NodeView& node) {
  const Shape a = node.shape(data_of(node));
  return a.size() >= 2 && node.attributes().transpose_a ? at(a, -2) : at(a, -1);
}

/// One weight tensor of a recurrent operator: rows or columns are gates x hidden.
bool is_recurrent_weight(Shape shape, std::int64_t gate_rows) {
  if (shape.size() == 2) return shape[0] == gate_rows;
  return shape.size() == 3 && (shape[1] == gate_rows || shape[2] == gate_rows);
}

Count recurrent_macs(const NodeView& node) {
  const Shape x = node.shape(data_of(node));
  const std::int64_t gates = node.op() == OpKind::lstm ? 4 : node.op() == OpKind::gru ? 3 : 1;
  std::int64_t hidden = node.attributes().hidden_size;
  if (hidden <= 0) hidden = at(node.shape(require(node, node.input(2), "recurrence weight")), -1);
  Count weights = 0;  // every weight of every gate meets every time step of every sequence once
  // A state [directions, sequences, hidden] has the sizes of weights where there is one gate: in the layout of ONNX the
  // two weights are what comes first, in that of PyTorch they are matrices.
  const std::size_t rank = node.shape(node.input(1)).size();
  std::size_t stacked = 0;
  for (std::size_t i = 1; i < node.inputs().size(); ++i) {
    const TensorId t = node.input(i);
    if (t == kNone || !is_recurrent_weight(node.shape(t), gates * hidden)) continue;
    if (node.shape(t).size() == 3 && (rank != 3 || ++stacked > 2)) continue;
    weights += node.elements(t);
  }
  return Count(divide(node.elements(node.input(0)), at(x, -1))) * weights;
}

/// The batch of the sequences that a recurrent operator runs over: what its state has where it reads one, else by the
/// layout of its weights, [directions, gates x hidden, inputs] with time first (ONNX) or of rank 2 with the batch
/// first.
std::int64_t sequences(const NodeView& node, std::int64_t gates, std::int64_t hidden) {
  const Shape x = node.shape(node.input(0));
  const std::int64_t directions = std::max(1, node.attributes().directions);
  const bool stacked = node.shape(node.input(1)).size() == 3;
  for (std::size_t i = node.inputs().size() - 1; i >= 3; --i) {
    const TensorId t = node.input(i);
    if (t == kNone || x.size() < 3) continue;
    const Shape state = node.shape(t);
    if (state.size() < 2 || at(state, -1) != hidden) continue;
    if (!stacked && state.size() == 2 && state[0] == gates * hidden) continue;  // the other direction's weights
    if (stacked) return divide(node.elements(t), hidden * directions);
    return state.size() == 3 ? state[1] : state[0];
  }
  if (x.size() < 3) return 1;
  return stacked ? at(x, 1) : at(x, 0);
}

/// Experts per token stand in `contraction` (ONNX attribute k); every weight of rank 3 holds one matrix per expert.
Count moe_macs(const NodeView& node) {
  const Shape x = node.shape(data_of(node));
  const std::int64_t tokens = divide(node.elements(node.input(0)), at(x, -1));
  const std::int64_t per_token = std::max<std::int64_t>(1, node.attributes().contraction);
  Count macs = 0;
  for (std::size_t i = 1; i < node.inputs().size(); ++i) {
    const TensorId t = node.input(i);
    const Shape shape = node.shape(t);
    if (shape.size() != 3 || is_floating(node.g.tensor_dtype[t]) != (node.attributes().weight_bits == 0)) continue;
    std::int64_t matrix = divide(node.elements(t), shape[0]);
    const int bits = bits_of(node.g.tensor_dtype[t]);
    if (node.attributes().weight_bits > 0) matrix = matrix * bits / node.attributes().weight_bits;
    macs += Count(tokens) * per_token * matrix;
  }
  return macs;
}

/// State update and read-out, two MACs per channel, step and state. Mamba: h = exp(dt A) h + dt B x, y = C h with
/// x [B, D, L] and A [D, N]. Linear attention (num_heads is set): S = S + k v, y = q S with a state of Dk x Dv per
/// head.
Count scan_macs(const NodeView& node) {
  const std::int64_t heads = node.attributes().num_heads;
  const Shape third = node.shape(require(node, node.input(2), "state matrix or value"));
  if (heads <= 0) return Count(2) * node.elements(data_of(node)) * at(third, -1);
  const std::int64_t kv_heads = node.attributes().num_kv_heads > 0 ? node.attributes().num_kv_heads : heads;
  const Shape q = node.shape(data_of(node));
  const std::int64_t tokens = divide(node.elements(node.input(0)), at(q, -1));
  const Count state = Count(at(q, -1) / heads) * (at(third, -1) / kv_heads);
  return Count(tokens) * state * (heads + kv_heads);
}

/// Keys and values so far, where the operator returns them: rank 4 is [batch, heads, length, dim], rank 5 has both.
std::int64_t length_with_past(const NodeView& node, std::int64_t length, std::int64_t head_dim) {
  const Shape present = node.shape(node.output(1));
  if (present.size() == 4 && present[3] == head_dim) return std::max(length, present[2]);
  if (present.size() == 5 && present[0] == 2) return std::max(length, present[3]);
  return length;
}

/// Queries of shape [batch, length, hidden] by a weight of shape [hidden, query + key + value].
AttentionSizes packed_projection(const NodeView& node, Shape q, Shape weight) {
  AttentionSizes s;
  const std::int64_t heads = std::max<std::int64_t>(1, node.attributes().num_heads);
  const std::int64_t v_hidden = at(node.shape(node.output(0)), -1);
  s.batch = product(q[0], heads);
  s.q_length = q[1];
  s.v_dim = v_hidden / heads;
  s.qk_dim = std::max<std::int64_t>(0, (weight[1] - v_hidden) / 2) / heads;
  s.k_length = length_with_past(node, q[1], s.qk_dim);
  s.projection_macs = Count(q[0]) * q[1] * weight[0] * weight[1];
  return s;
}

AttentionSizes hidden_layout(const NodeView& node, Shape q, Shape k, Shape v) {  // q is [batch, length, heads x dim]
  AttentionSizes s;
  const std::int64_t heads = node.attributes().num_heads;
  const std::int64_t kv_heads = node.attributes().num_kv_heads > 0 ? node.attributes().num_kv_heads : heads;
  s.batch = product(q[0], heads);
  s.q_length = q[1];
  if (k.empty()) {  // query, key and value packed along the hidden axis
    s.qk_dim = q[2] / (heads + 2 * kv_heads);
    s.v_dim = s.qk_dim;
    s.k_length = q[1];
  } else if (k.size() == 5) {  // [batch, length, heads, 2, dim]
    s.qk_dim = k[4];
    s.v_dim = k[4];
    s.k_length = k[1];
  } else {
    s.qk_dim = q[2] / heads;
    s.k_length = k.size() == 4 ? k[2] : at(k, 1);
    s.v_dim = v.size() == 4 ? v[3] : v.empty() ? s.qk_dim : at(v, -1) / kv_heads;
  }
  s.k_length = length_with_past(node, s.k_length, s.qk_dim);
  return s;
}

AttentionSizes head_layout(const NodeView& node, Shape q, Shape k, Shape v) {  // [..., heads, length, dim]
  AttentionSizes s;
  const int heads = node.attributes().num_heads;
  const bool length_first = q.size() == 4 && heads > 0 && q[1] != heads && q[2] == heads;
  const int length_axis = length_first ? -3 : -2;
  s.q_length = at(q, length_axis);
  s.qk_dim = at(q, -1);
  s.k_length = k.empty() ? s.q_length : at(k, length_axis);
  s.v_dim = v.empty() ? s.qk_dim : at(v, -1);
  s.batch = divide(node.elements(node.input(0)), product(s.q_length, s.qk_dim));
  s.k_length = length_with_past(node, s.k_length, s.qk_dim);
  return s;
}

Count conv_macs(const NodeView& node) {
  const TensorId out = result_of(node);
  const std::int64_t weight = node.elements(convolution_weight(node));
  data_of(node);
  return Count(node.elements(out)) * divide(weight, channels(node, out));
}

Count conv_transpose_macs(const NodeView& node) {
  const TensorId in = data_of(node);
  return Count(node.elements(in)) * divide(node.elements(convolution_weight(node)), channels(node, in));
}

Count einsum_macs(const NodeView& node) {
  const auto operands =
      std::count_if(node.inputs().begin(), node.inputs().end(), [](TensorId t) { return t != kNone; });
  if (operands < 2) return 0;  // a sum, a transpose or a diagonal
  const std::int64_t contraction = std::max<std::int64_t>(1, node.attributes().contraction);
  return Count(node.elements(result_of(node))) * contraction * (operands - 1);
}

/// The weight [O, I, J] of a bilinear form: input 2 as in ONNX-like sources, input 1 in torch's _trilinear.
Shape bilinear_weight(const NodeView& node) {
  const Shape second = node.shape(node.input(1));
  return second.size() == 3 && node.shape(node.input(2)).size() < 3
             ? second
             : node.shape(require(node, node.input(2), "weight"));
}

Count bilinear_macs(const NodeView& node) {  // x1^T W x2: J dot products of length I, then one of length J
  const Shape weight = bilinear_weight(node);
  const std::int64_t i = at(weight, -2), j = at(weight, -1);
  return Count(node.elements(result_of(node))) * (Count(i) * j + j);
}

Count attention_macs(const NodeView& node) {
  const AttentionSizes s = attention_sizes(node);
  return Count(s.batch) * s.q_length * s.k_length * (Count(s.qk_dim) + s.v_dim) + s.projection_macs;
}

GemmSizes conv_sizes(const NodeView& node, bool transposed) {
  const std::int64_t groups = std::max<std::int32_t>(1, node.attributes().groups);
  const std::int64_t in = channels(node, data_of(node)), out = channels(node, result_of(node));
  const std::int64_t area = kernel_area(node);
  if (transposed) {
    return {groups, divide(node.elements(node.input(0)), in), product(out / groups, area), in / groups};
  }
  return {groups, divide(node.elements(node.output(0)), out), out / groups, product(in / groups, area)};
}

GemmSizes matmul_sizes(const NodeView& node) {
  const Shape b = node.op() == OpKind::dense ? node.shape(node.input(1)) : node.shape(right_operand(node));
  const std::int64_t k = contracted_length(node);
  const std::int64_t out = node.elements(result_of(node));
  if (node.op() == OpKind::dense || node.op() == OpKind::matmul_nbits || b.size() <= 2) {
    const std::int64_t n = b.size() == 1 ? 1 : at(node.shape(node.output(0)), -1);
    return {1, divide(out, n), n, k};
  }
  const Shape a = node.shape(node.input(0));
  const std::int64_t m = a.size() < 2 ? 1 : node.attributes().transpose_a ? at(a, -1) : at(a, -2);
  const std::int64_t n = node.attributes().transpose_b ? at(b, -2) : at(b, -1);
  const TensorId weight = weight_behind(node.g, right_operand(node));
  if (weight != kNone && node.elements(weight) == product(n, k)) return {1, divide(out, n), n, k};  // for all samples
  return {divide(out, product(m, n)), m, n, k};
}

}  // namespace

AttentionSizes attention_sizes(const NodeView& node) {
  const Shape q = node.shape(require(node, node.input(0), "query"));
  const Shape k = node.shape(node.input(1));
  const Shape v = node.shape(node.input(2));
  if (q.size() == 2 && node.attributes().num_heads > 0) {  // tokens of all sequences in a row: one long sequence
    const std::array<std::int64_t, 3> rows = {1, q[0], q[1]};
    if (k.size() == 2 && node.g.is_constant(node.input(1))) return packed_projection(node, rows, k);
    const std::array<std::int64_t, 3> keys = {1, at(k, 0), at(k, 1)}, values = {1, at(v, 0), at(v, 1)};
    return hidden_layout(node, rows, k.empty() ? k : Shape(keys), v.empty() ? v : Shape(values));
  }
  if (q.size() == 3 && k.size() == 2) return packed_projection(node, q, k);
  if (q.size() == 5 && q[3] == 3 && node.attributes().num_heads > 0) {  // [batch, length, heads, 3, dim]
    return {product(q[0], q[2]), q[1], length_with_past(node, q[1], q[4]), q[4], q[4], 0};
  }
  if (q.size() == 3 && node.attributes().num_heads > 0) return hidden_layout(node, q, k, v);
  return head_layout(node, q, k, v);
}

Count node_macs(const NodeView& node) {
  switch (node.op()) {
    case OpKind::conv:
    case OpKind::deform_conv:
    case OpKind::quantized_conv:
      return conv_macs(node);
    case OpKind::conv_transpose:
      return conv_transpose_macs(node);
    case OpKind::matmul:
    case OpKind::quantized_matmul:
    case OpKind::matmul_nbits:
      right_operand(node);
      [[fallthrough]];
    case OpKind::dense:  // ONNX's LinearClassifier holds its weights in an attribute
      return Count(node.elements(result_of(node))) * contracted_length(node);
    case OpKind::einsum:
      return einsum_macs(node);
    case OpKind::bilinear:
      return bilinear_macs(node);
    case OpKind::attention:
      return attention_macs(node);
    case OpKind::lstm:
    case OpKind::gru:
    case OpKind::rnn:
      return recurrent_macs(node);
    case OpKind::moe:
      return moe_macs(node);
    case OpKind::state_space_scan:
      return scan_macs(node);
    default:
      return 0;
  }
}

GemmSizes step_sizes(const NodeView& node) {
  if (node.op() != OpKind::lstm && node.op() != OpKind::gru && node.op() != OpKind::rnn) return {};
  const Shape x = node.shape(data_of(node));
  const std::int64_t gates = node.op() == OpKind::lstm ? 4 : node.op() == OpKind::gru ? 3 : 1;
  std::int64_t hidden = node.attributes().hidden_size;
  if (hidden <= 0) hidden = at(node.shape(require(node, node.input(2), "recurrence weight")), -1);
  const std::int64_t batch = std::max<std::int64_t>(1, sequences(node, gates, hidden));
  const std::int64_t steps = divide(divide(node.elements(node.input(0)), at(x, -1)), batch);
  if (steps < 1 || hidden < 1) return {};
  return {steps, batch, product(gates * std::max(1, node.attributes().directions), hidden), hidden};
}

GemmSizes gemm_sizes(const NodeView& node) {
  switch (node.op()) {
    case OpKind::conv:
    case OpKind::deform_conv:
    case OpKind::quantized_conv:
      return conv_sizes(node, false);
    case OpKind::conv_transpose:
      return conv_sizes(node, true);
    case OpKind::matmul:
    case OpKind::dense:
    case OpKind::quantized_matmul:
    case OpKind::matmul_nbits:
      return matmul_sizes(node);
    case OpKind::einsum: {
      const std::int64_t n = at(node.shape(result_of(node)), -1);
      return {1, divide(node.elements(node.output(0)), n), n, std::max(1, node.attributes().contraction)};
    }
    case OpKind::bilinear: {
      const Shape weight = bilinear_weight(node);
      const std::int64_t n = at(weight, 0);
      return {1, divide(node.elements(result_of(node)), n), n, product(at(weight, -2), at(weight, -1))};
    }
    case OpKind::attention: {
      const AttentionSizes s = attention_sizes(node);
      return {s.batch, s.q_length, s.k_length, s.qk_dim};
    }
    case OpKind::moe: {  // the first product: tokens x experts per token, by one expert's matrix
      const std::int64_t k = at(node.shape(data_of(node)), -1);
      for (std::size_t i = 1; i < node.inputs().size(); ++i) {
        if (node.shape(node.input(i)).size() != 3) continue;
        const Shape w = node.shape(node.input(i));
        const std::int64_t tokens = divide(node.elements(node.input(0)), k);
        return {1, product(tokens, std::max(1, node.attributes().contraction)), divide(product(w[1], w[2]), k), k};
      }
      return {};
    }
    default:
      return {};
  }
}

std::int64_t kernel_area(const NodeView& node) {
  const NodeAttributes& a = node.attributes();
  const OpClass cls = op_class(node.op());
  if (cls != OpClass::convolution && cls != OpClass::pooling) return 0;
  if (cls == OpClass::convolution) {  // weights decide: every layout holds area x in/groups x out elements
    const std::int64_t groups = std::max<std::int32_t>(1, a.groups);
    const std::int64_t in = channels(node, data_of(node)), out = channels(node, result_of(node));
    return divide(node.elements(convolution_weight(node)), product(in / groups, out));
  }
  std::int64_t area = a.spatial_rank > 0 ? 1 : 0;
  for (int i = 0; i < std::min(a.spatial_rank, 3); ++i) area = product(area, std::max(0, a.kernel[i]));
  return area;
}

}  // namespace perfpass::detail
