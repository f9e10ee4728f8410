// FLOPs of one execution. One arithmetic operation, comparison or special function (exp, log, sqrt, tanh, erf, sin) is
// one FLOP, read off the operator's defining formula, as XLA's HloCostAnalysis counts them (its "flops" plus its
// "transcendentals"); a MAC is two. The table stands in docs/internals/costs.md.
#include <algorithm>
#include <bit>

#include "costs/node.hpp"

namespace perfpass::detail {
namespace {

enum class Per : std::uint8_t { nothing, output, input };
struct Rate {
  Per per;
  int flops;
};

/// FLOPs per element of output 0 or input 0.
constexpr Rate rate_of(OpKind op) noexcept {
  switch (op) {
    case OpKind::batch_norm:
      return {Per::output, 2};  // x * scale + shift, both folded from the statistics
    case OpKind::layer_norm:
    case OpKind::instance_norm:
    case OpKind::group_norm:
      return {Per::output, 7};  // mean, centre, square, sum, normalise, scale, shift
    case OpKind::rms_norm:
      return {Per::output, 4};  // square, sum, normalise, scale
    case OpKind::lrn:
      return {Per::output, 5};  // square, window sum, scale, power, divide
    case OpKind::l2_norm:
      return {Per::output, 3};  // square, sum, divide
    case OpKind::softmax:
    case OpKind::log_softmax:
      return {Per::output, 5};  // maximum, subtract, exp, sum, divide (or subtract the log)
    case OpKind::relu:
      return {Per::output, 1};
    case OpKind::leaky_relu:
    case OpKind::prelu:
    case OpKind::clip:
      return {Per::output, 2};
    case OpKind::elu:
    case OpKind::hard_sigmoid:
    case OpKind::sigmoid:
      return {Per::output, 4};
    case OpKind::selu:
    case OpKind::celu:
    case OpKind::gelu:
    case OpKind::hard_swish:
    case OpKind::silu:
    case OpKind::mish:
    case OpKind::glu:
      return {Per::output, 5};
    case OpKind::tanh:
      return {Per::output, 1};
    case OpKind::softplus:
    case OpKind::softsign:
      return {Per::output, 3};
    case OpKind::abs:
    case OpKind::neg:
    case OpKind::exp:
    case OpKind::log:
    case OpKind::sqrt:
    case OpKind::rsqrt:
    case OpKind::reciprocal:
    case OpKind::erf:
    case OpKind::trigonometric:
    case OpKind::round:
    case OpKind::sign:
    case OpKind::is_special:
    case OpKind::sub:
    case OpKind::div:
    case OpKind::pow:
    case OpKind::mod:
    case OpKind::compare:
    case OpKind::logical:
    case OpKind::bitwise:
    case OpKind::where:
      return {Per::output, 1};
    case OpKind::rotary_embedding:
      return {Per::output, 3};  // x cos + rotated x sin
    case OpKind::reduce_sum:
    case OpKind::reduce_mean:
    case OpKind::reduce_max:
    case OpKind::reduce_min:
    case OpKind::reduce_prod:
    case OpKind::reduce_any:
    case OpKind::arg_reduce:
    case OpKind::cumulative:
      return {Per::input, 1};
    case OpKind::reduce_norm:
      return {Per::input, 2};  // square (or absolute value), sum
    case OpKind::reduce_log_sum_exp:
      return {Per::input, 4};  // maximum, subtract, exp, sum
    case OpKind::reduce_variance:
      return {Per::input, 4};  // mean, centre, square, sum
    case OpKind::loss:
      return {Per::input, 3};  // difference or log, weight, sum
    case OpKind::global_avg_pool:
    case OpKind::global_max_pool:
      return {Per::input, 1};
    case OpKind::roi_pool:
      return {Per::output, 32};  // four bilinear samples of 7, their mean 4
    case OpKind::grid_sample:
      return {Per::output, 7};  // four neighbours weighted: 4 products, 3 sums
    case OpKind::affine_grid:
      return {Per::output, 5};  // a row of theta by (x, y, 1)
    case OpKind::fold:
      return {Per::input, 1};  // overlapping patches are added
    case OpKind::non_max_suppression:
      return {Per::input, 1};
    case OpKind::unique:
      return {Per::input, 1};
    case OpKind::quantize:
      return {Per::output, 5};  // divide, round, add the zero point, clamp both ways
    case OpKind::dequantize:
      return {Per::output, 2};  // subtract the zero point, multiply
    case OpKind::dynamic_quantize:
      return {Per::output, 7};  // minimum and maximum first
    case OpKind::quantized_elementwise:
      return {Per::output, 10};  // two dequantize, one operation, one quantize
    case OpKind::window:
      return {Per::output, 3};
    default:
      return {Per::nothing, 0};
  }
}

std::int64_t log2_ceil(std::int64_t n) noexcept {
  return n <= 1 ? 1 : static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

/// Length along the operator's axis; the last axis where none is given or the axis does not exist.
std::int64_t axis_length(const NodeView& node, TensorId t) noexcept {
  const auto shape = node.shape(t);
  if (shape.empty()) return 1;
  const auto rank = static_cast<std::int64_t>(shape.size());
  const std::int64_t axis = node.attributes().axis;
  if (axis >= 0 && axis < rank) return shape[axis];
  if (axis < 0 && axis >= -rank) return shape[axis + rank];
  return shape.back();
}

/// Complex numbers in a spectrum: its elements, or half of them where the last axis holds real and imaginary parts.
std::int64_t complex_elements(const NodeView& node, TensorId t) noexcept {
  const auto shape = node.shape(t);
  const bool pairs = t != kNone && is_floating(node.g.tensor_dtype[t]) && !shape.empty() && shape.back() == 2;
  return pairs ? node.elements(t) / 2 : node.elements(t);
}

bool has_bias(const NodeView& node) noexcept {
  switch (node.op()) {
    case OpKind::conv:
    case OpKind::conv_transpose:
    case OpKind::matmul:
    case OpKind::dense:
      return node.input(2) != kNone;
    case OpKind::bilinear:
      return node.input(3) != kNone;
    case OpKind::matmul_nbits:
      return node.input(5) != kNone;
    case OpKind::quantized_conv:
      return node.input(8) != kNone;
    case OpKind::deform_conv:  // bias and mask change places between ONNX and torchvision; the bias has rank 1
      return node.shape(node.input(3)).size() == 1 || node.shape(node.input(4)).size() == 1;
    default:
      return false;
  }
}

/// What multiply-accumulate operators do besides: bias, softmax, gates, sampling, rounding to the output type.
Count beyond_macs(const NodeView& node) {
  const std::int64_t out = node.elements(node.output(0));
  Count extra = has_bias(node) ? out : 0;
  switch (node.op()) {
    case OpKind::attention: {  // scale and softmax of every score
      const AttentionSizes s = attention_sizes(node);
      return Count(s.batch) * s.q_length * s.k_length * 6;
    }
    // Gates per step and hidden unit: biases (two each), activations (sigmoid 4, tanh 1), state update.
    case OpKind::lstm:
      return Count(out) * (8 + 4 + 3 * 4 + 2 + 4);
    case OpKind::gru:
      return Count(out) * (6 + 3 + 2 * 4 + 1 + 5);
    case OpKind::rnn:
      return Count(out) * (2 + 1 + 1);
    case OpKind::deform_conv: {  // every input value under the kernel is interpolated: 4 products, 3 sums
      const GemmSizes s = gemm_sizes(node);
      return extra + Count(s.b) * s.m * s.k * 7;
    }
    case OpKind::quantized_conv:
    case OpKind::quantized_matmul: {
      const TensorId t = node.output(0);
      const bool requantized = t != kNone && bits_of(node.g.tensor_dtype[t]) <= 8;
      return requantized ? extra + Count(out) * 5 : extra;
    }
    default:
      return extra;
  }
}

}  // namespace

int flops_per_output(OpKind op) noexcept {
  const Rate rate = rate_of(op);
  return rate.per == Per::output ? rate.flops : 0;
}

Count node_flops(const NodeView& node, Count macs) {
  const std::int64_t out = node.elements(node.output(0)), in = node.elements(node.input(0));
  if (node.op() == OpKind::state_space_scan) {
    // 9 B L D N is the count of VMamba's flops_selective_scan_fn; linear attention has its MACs and no more.
    return node.attributes().num_heads > 0 ? Count(2) * macs : Count(macs.value() / 2) * 9;
  }
  if (macs.value() > 0) return Count(2) * macs + beyond_macs(node);
  switch (node.op()) {
    case OpKind::add:
    case OpKind::mul:
    case OpKind::minimum:
    case OpKind::maximum: {  // ONNX Sum, Max and Min take any number of operands
      const auto operands = static_cast<std::int64_t>(node.inputs().size());
      return Count(out) * std::max<std::int64_t>(1, operands - 1);
    }
    case OpKind::max_pool:
    case OpKind::avg_pool: {
      const std::int64_t area = kernel_area(node);
      return area > 0 ? Count(out) * area : Count(in);  // adaptive pooling visits every input once
    }
    case OpKind::lp_pool:
      return Count(out) * kernel_area(node) * 2;
    case OpKind::resize: {
      const bool nearest = node.g.strings.at(node.g.source_op[node.id]).find("nearest") != std::string_view::npos;
      return nearest ? Count(0) : Count(out) * 7;
    }
    case OpKind::sort:
      return Count(in) * log2_ceil(axis_length(node, node.input(0)));
    case OpKind::top_k:
      return Count(in) * log2_ceil(axis_length(node, node.output(0)));
    case OpKind::einsum:
      return in;
    case OpKind::embedding:
      return is_fused_embedding(node) ? Count(out) * 9 : Count(0);  // two sums, layer norm 7
    case OpKind::dft: {  // 5 n log2 n per transform of length n, as FFTW's benchmarks count
      const TensorId t = node.output(0);
      return Count(5) * complex_elements(node, t) * log2_ceil(axis_length(node, t));
    }
    case OpKind::stft: {  // one-sided: bins stand before the last axis, a frame has twice as many samples
      const auto shape = node.shape(node.output(0));
      const std::int64_t bins = shape.size() >= 2 ? shape[shape.size() - 2] : 1;
      return Count(10) * complex_elements(node, node.output(0)) * log2_ceil((Count(2) * bins).value());
    }
    case OpKind::determinant: {  // LU: 2/3 n^3 per matrix of n x n
      const auto shape = node.shape(node.input(0));
      const std::int64_t n = shape.empty() ? 1 : shape.back();
      return (Count(in) * n * 2).value() / 3;
    }
    default:
      break;
  }
  const Rate rate = rate_of(node.op());
  switch (rate.per) {
    case Per::output:
      return Count(out) * rate.flops;
    case Per::input:
      return Count(in) * rate.flops;
    case Per::nothing:
      break;
  }
  return 0;
}

}  // namespace perfpass::detail
