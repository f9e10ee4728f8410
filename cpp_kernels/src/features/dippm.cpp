// Schema `dippm`: 32 per node. Source and choices: docs/reference/schemas.md.
#include <algorithm>
#include <array>

#include "features/published.hpp"
#include "features/rows.hpp"

namespace perfpass::detail {
namespace {

/// The output shape is the input shape with dimensions of 1 taken out.
bool is_squeeze(Shape in, Shape out) noexcept {
  if (out.size() >= in.size()) return false;
  std::size_t at = 0;
  for (const std::int64_t d : in) {
    if (at < out.size() && out[at] == d) {
      ++at;
    } else if (d != 1) {
      return false;
    }
  }
  return at == out.size();
}

/// An addition of a vector of weights.
bool is_bias_add(const NodeView& node) noexcept {
  return std::any_of(node.inputs().begin(), node.inputs().end(), [&](TensorId t) {
    return t != kNone && node.g.tensor_role[t] == TensorRole::weight && node.shape(t).size() == 1;
  });
}

std::int64_t output_channels(const NodeView& node) noexcept {
  const Shape out = node.shape(node.output(0));
  if (out.size() < 2) return 0;
  return node.attributes().channels_last ? out.back() : out[1];
}

constexpr std::array<std::string_view, 32> kDippmNames = {"conv2d",
                                                          "conv2d_transpose",
                                                          "dense",
                                                          "batch_matmul",
                                                          "bias_add",
                                                          "softmax",
                                                          "dropout",
                                                          "layer_norm",
                                                          "reshape",
                                                          "transpose",
                                                          "add",
                                                          "split",
                                                          "multiply",
                                                          "squeeze",
                                                          "adaptive_avg_pool2d",
                                                          "max_pool2d",
                                                          "stride_0",
                                                          "stride_1",
                                                          "pad_top",
                                                          "pad_left",
                                                          "pad_bottom",
                                                          "pad_right",
                                                          "dilation_0",
                                                          "dilation_1",
                                                          "groups",
                                                          "channels",
                                                          "kernel_0",
                                                          "kernel_1",
                                                          "output_0",
                                                          "output_1",
                                                          "output_2",
                                                          "output_3"};
constexpr std::array<std::string_view, 5> kDippmStatics = {"gmacs", "batch", "convolutions", "denses", "relus"};

/// Column of the one-hot part; kNone for an operator outside DIPPM's sixteen (all zeros there, as in its code).
int dippm_column(const NodeView& node) {
  switch (node.op()) {
    case OpKind::conv:
      return 0;
    case OpKind::conv_transpose:
      return 1;
    case OpKind::dense:
      return 2;
    case OpKind::matmul:
      return 3;
    case OpKind::add:
      return is_bias_add(node) ? 4 : 10;
    case OpKind::softmax:
      return 5;
    case OpKind::dropout:
      return 6;
    case OpKind::layer_norm:
      return 7;
    case OpKind::reshape:
      return is_squeeze(node.shape(node.input(0)), node.shape(node.output(0))) ? 13 : 8;
    case OpKind::transpose:
      return 9;
    case OpKind::split:
      return 11;
    case OpKind::mul:
      return 12;
    case OpKind::max_pool:
      return 15;
    default:
      return is_global_pool(node) ? 14 : kNone;
  }
}

}  // namespace

std::span<const std::string_view> dippm_node_names() { return kDippmNames; }
std::span<const std::string_view> dippm_static_names() { return kDippmStatics; }

void fill_dippm(const FeatureSource& source, FeatureMatrix& matrix) {
  std::int64_t convolutions = 0, denses = 0, relus = 0;
  for (NodeId id = 0; id < static_cast<NodeId>(matrix.rows); ++id) {
    const NodeView node = source.node(id);
    float* row = matrix.values.data() + id * matrix.columns;
    const int column = dippm_column(node);
    if (column != kNone) row[column] = 1.0F;
    if (column == 0 || column == 1) {
      const NodeAttributes& a = node.attributes();
      const std::array<std::int64_t, 12> values = {a.stride[0],  a.stride[1],           a.pad_begin[0], a.pad_begin[1],
                                                   a.pad_end[0], a.pad_end[1],          a.dilation[0],  a.dilation[1],
                                                   a.groups,     output_channels(node), a.kernel[0],    a.kernel[1]};
      std::transform(values.begin(), values.end(), row + 16, real);
    }
    write_shape(row + 28, node.shape(node.output(0)), 4);
    convolutions += node.op() == OpKind::conv;
    denses += node.op() == OpKind::dense;
    relus += node.op() == OpKind::relu;
  }
  const CostTotals sum = totals(source.costs);
  matrix.statics = {static_cast<float>(static_cast<double>(sum.macs) / 1e9), real(batch_of(source.graph)),
                    real(convolutions), real(denses), real(relus)};
}

}  // namespace perfpass::detail
