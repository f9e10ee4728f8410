// Convolutions and pooling.
#include <numeric>

#include "stablehlo/lowerer.hpp"

namespace perfpass::stablehlo {

Integers Lowerer::order_of(const std::vector<char>& part, std::string_view wanted, std::size_t spatial) {
  Integers order;
  for (const char c : wanted) {
    for (std::size_t k = 0; k < (c == 's' ? spatial : 1); ++k) {
      const char name = c == 's' ? static_cast<char>('0' + k) : c;
      const auto found = std::find(part.begin(), part.end(), name);
      if (found == part.end()) throw Error(ErrorCode::format, "a convolution does not name all its dimensions");
      order.push_back(found - part.begin());
    }
  }
  return order;
}

void Lowerer::emit_convolution(const FlatOp& op) {
  const DimensionNumbers numbers = dimension_numbers(*op.at);
  const auto input = letters(numbers.input), kernel = letters(numbers.kernel), output = letters(numbers.output);
  const Value x = plain(g_.in(op)[0]), w = plain(g_.in(op)[1]);
  const Dims &x_dims = g_.type(x).dims, &w_dims = g_.type(w).dims, &y_dims = g_.type(op.out_begin).dims;
  if (x_dims.size() < 2 || input.size() != x_dims.size() || kernel.size() != w_dims.size() ||
      output.size() != y_dims.size() || input.size() != kernel.size() || input.size() != output.size()) {
    throw Error(ErrorCode::format, "the dimension numbers of a convolution do not fit its operands");
  }
  const std::size_t rank = x_dims.size() - 2;
  NodeAttributes a;
  a.spatial_rank = static_cast<std::int32_t>(std::min<std::size_t>(rank, 3));
  const bool last = in_order(order_of(input, "bsf", rank)) && in_order(order_of(output, "bsf", rank));
  a.channels_last = last && rank > 0;
  const std::string_view wanted = last ? "bsf" : "bfs";
  Integers kernel_order = order_of(kernel, "ois", rank);
  if (in_order(order_of(kernel, "sio", rank))) {
    a.weight_layout = 1;
    std::iota(kernel_order.begin(), kernel_order.end(), 0);
  } else if (in_order(order_of(kernel, "ios", rank)) && !in_order(kernel_order)) {
    a.weight_layout = 2;
    std::iota(kernel_order.begin(), kernel_order.end(), 0);
  }
  const Integers stride = integers(*op.at, "stride", "window_strides", rank),
                 pad = integers(*op.at, "pad", "padding", 2 * rank),
                 base = integers(*op.at, "lhs_dilate", "lhs_dilation", rank),
                 dilation = integers(*op.at, "rhs_dilate", "rhs_dilation", rank);
  const bool transposed = std::any_of(base.begin(), base.end(), [](std::int64_t d) { return d > 1; });
  const Integers sizes = order_of(kernel, "s", rank);
  for (std::size_t i = 0; i < static_cast<std::size_t>(a.spatial_rank); ++i) {
    const std::int64_t k = w_dims[static_cast<std::size_t>(sizes[i])];
    a.kernel[i] = small(k);
    a.dilation[i] = small(at(dilation, i, 1));
    a.stride[i] = small(transposed ? at(base, i, 1) : at(stride, i, 1));
    const std::int64_t reach = std::int64_t{a.dilation[i]} * (k - 1);
    const std::int64_t begin = small(at(pad, 2 * i, 0)), end = small(at(pad, 2 * i + 1, 0));
    a.pad_begin[i] = small(transposed ? reach - begin : begin);
    a.pad_end[i] = small(transposed ? reach - end : end);
  }
  const std::int64_t groups = integer(*op.at, "feature_group_count").value_or(1);
  a.groups = small(std::max<std::int64_t>(1, std::max(groups, integer(*op.at, "batch_group_count").value_or(1))));
  const DType x_type = g_.type(x).dtype, w_type = g_.type(w).dtype, y_type = g_.type(op.out_begin).dtype;
  std::vector<TensorId> in{ordered(op, tensor_of(x), x_dims, order_of(input, wanted, rank), x_type),
                           ordered(op, tensor_of(w), w_dims, kernel_order, w_type)};
  for (std::size_t i = 2; i < op.in_count; ++i) in.push_back(tensor_of(plain(g_.in(op)[i])));
  const Integers out_order = order_of(output, wanted, rank);
  const bool quantized = g_.type(x).quantized || g_.type(w).quantized;
  const OpKind kind = quantized ? OpKind::quantized_conv : transposed ? OpKind::conv_transpose : OpKind::conv;
  if (in_order(out_order)) {
    node(op, kind, a, in, results(op));
    return;
  }
  const TensorId turned = activation(y_type, pick(y_dims, out_order));
  node(op, kind, a, in, std::array{turned});
  view(op, OpKind::transpose, turned, tensor_of(op.out_begin));
}

void Lowerer::emit_window(const FlatOp& op) {
  if (op.in_count == 0 || op.out_count == 0) throw Error(ErrorCode::format, "a reduce_window without operands");
  const Dims& dims = g_.type(plain(g_.in(op)[0])).dims;
  const std::size_t rank = dims.size();
  const Integers window = integers(*op.at, "window_dimensions", rank),
                 stride = integers(*op.at, "window_strides", rank), pad = integers(*op.at, "padding", 2 * rank),
                 dilation = integers(*op.at, "window_dilations", rank);
  const Code how = op.code == Code::average_pool_ ? Code::add : joins(g_.module, *op.at);
  OpKind kind = how == Code::maximum || how == Code::minimum ? OpKind::max_pool
                : how == Code::add                           ? OpKind::avg_pool
                                                             : OpKind::unknown;
  NodeAttributes a;
  Integers axes;
  for (std::size_t i = 0; i < rank; ++i) {
    if (at(window, i, 1) != 1) axes.push_back(static_cast<std::int64_t>(i));
  }
  if (axes.size() == 1 && op.code == Code::reduce_window) {
    const auto d = static_cast<std::size_t>(axes[0]);
    const bool whole = at(window, d, 1) == dims[d] && at(stride, d, 1) == 1;
    if (whole && std::int64_t{small(at(pad, 2 * d, 0))} + small(at(pad, 2 * d + 1, 0)) == dims[d] - 1) {
      kind = OpKind::cumulative;
      a.axis = static_cast<std::int32_t>(d);
    }
  }
  if (kind != OpKind::cumulative && rank >= 3) {
    a.channels_last = at(window, rank - 1, 1) == 1 && at(stride, rank - 1, 1) == 1 &&
                      (at(window, 1, 1) != 1 || at(stride, 1, 1) != 1);
    const std::size_t first = a.channels_last ? 1 : 2;
    a.spatial_rank = static_cast<std::int32_t>(std::min<std::size_t>(rank - 2, 3));
    for (std::size_t i = 0; i < static_cast<std::size_t>(a.spatial_rank); ++i) {
      a.kernel[i] = small(at(window, first + i, 1));
      a.stride[i] = small(at(stride, first + i, 1));
      a.dilation[i] = small(at(dilation, first + i, 1));
      a.pad_begin[i] = small(at(pad, 2 * (first + i), 0));
      a.pad_end[i] = small(at(pad, 2 * (first + i) + 1, 0));
    }
  }
  std::vector<TensorId> in{tensor_of(plain(g_.in(op)[0]))};
  node(op, kind, a, in, results(op));
}

}  // namespace perfpass::stablehlo
