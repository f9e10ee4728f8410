// Schema `nnlqp`: 44 per node. Source and choices: docs/reference/schemas.md.
#include <algorithm>
#include <array>

#include "features/published.hpp"
#include "features/rows.hpp"

namespace perfpass::detail {
namespace {

/// All but the first axis become one.
bool is_flatten(Shape in, Shape out) noexcept { return out.size() == 2 && in.size() > 2 && in[0] == out[0]; }

constexpr std::array<std::string_view, 44> kNnlqpNames = {
    "Conv",        "Relu",        "Add",         "Sigmoid",
    "Reshape",     "MaxPool",     "Split",       "GlobalAveragePool",
    "Gemm",        "Transpose",   "Upsample",    "BatchNormalization",
    "Mul",         "Concat",      "Flatten",     "AveragePool",
    "Cast",        "MatMul",      "ReduceMean",  "Pow",
    "Slice",       "Div",         "Sub",         "Sqrt",
    "Clip",        "Softmax",     "Tanh",        "ConvTranspose",
    "spare_28",    "spare_29",    "spare_30",    "spare_31",
    "attribute_0", "attribute_1", "attribute_2", "attribute_3",
    "attribute_4", "attribute_5", "attribute_6", "attribute_7",
    "output_0",    "output_1",    "output_2",    "output_3"};
constexpr std::array<std::string_view, 4> kNnlqpStatics = {"batch", "gflops", "gparameters", "memory_access_gb"};
constexpr std::size_t kNnlqpAttributes = 32, kNnlqpOutput = 40;

int nnlqp_column(const NodeView& node) {
  switch (node.op()) {
    case OpKind::conv:
      return 0;
    case OpKind::relu:
      return 1;
    case OpKind::add:
      return 2;
    case OpKind::sigmoid:
      return 3;
    case OpKind::reshape:
      return is_flatten(node.shape(node.input(0)), node.shape(node.output(0))) ? 14 : 4;
    case OpKind::max_pool:
      return 5;
    case OpKind::split:
      return 6;
    case OpKind::dense:
      return 8;
    case OpKind::transpose:
      return 9;
    case OpKind::resize:
      return 10;
    case OpKind::batch_norm:
      return 11;
    case OpKind::mul:
      return 12;
    case OpKind::concat:
      return 13;
    case OpKind::cast:
      return 16;
    case OpKind::matmul:
      return 17;
    case OpKind::reduce_mean:
      return 18;
    case OpKind::pow:
      return 19;
    case OpKind::slice:
      return 20;
    case OpKind::div:
      return 21;
    case OpKind::sub:
      return 22;
    case OpKind::sqrt:
      return 23;
    case OpKind::clip:
      return 24;
    case OpKind::softmax:
      return 25;
    case OpKind::tanh:
      return 26;
    case OpKind::conv_transpose:
      return 27;
    case OpKind::avg_pool:
    case OpKind::global_avg_pool:
      return is_global_pool(node) ? 7 : 15;
    default:
      return kNone;
  }
}

/// (x - centre) / scale, with NNLQP's constants per attribute.
struct Normal {
  float centre, scale;
  float operator()(float x) const noexcept { return (x - centre) / scale; }
};
constexpr Normal kKernel{2.53F, 56.0F}, kStrides{1.16F, 56.0F}, kPads{0.75F, 6.0F}, kDilations{1.0F, 1.0F},
    kGroup{15.08F, 6144.0F}, kBias{0.77F, 1.0F}, kPermutation{1.78F, 4.0F}, kOutputPadding{0.0F, 1e-5F};
constexpr std::array<Normal, 4> kOutputDims = {
    {{12.25F, 1024.0F}, {286.96F, 2496.0F}, {32.62F, 256.0F}, {31.80F, 256.0F}}};

/// The permutation that turns the input's sizes into the output's; the lowest axis where sizes repeat.
void write_permutation(float* at, Shape in, Shape out) noexcept {
  std::array<bool, kMaxRank> used{};
  for (std::size_t i = 0; i < 8; ++i) {
    float axis = 0.0F;
    for (std::size_t j = 0; i < out.size() && j < in.size(); ++j) {
      if (used[j] || in[j] != out[i]) continue;
      used[j] = true;
      axis = static_cast<float>(j);
      break;
    }
    at[i] = kPermutation(axis);
  }
}

void write_nnlqp_attributes(const NodeView& node, int column, float* at) noexcept {
  const NodeAttributes& a = node.attributes();
  const bool bias = node.input(2) != kNone;
  const auto first = [](std::int32_t x) { return static_cast<float>(x); };
  switch (column) {
    case 0:
    case 27:
      at[0] = kKernel(first(a.kernel[0]));
      at[1] = kStrides(first(a.stride[0]));
      at[2] = kPads(first(a.pad_begin[0]));
      at[3] = kDilations(first(a.dilation[0]));
      at[4] = kGroup(first(a.groups));
      at[5] = kBias(bias ? 1.0F : 0.0F);
      if (column == 27) at[6] = kOutputPadding(0.0F);
      break;
    case 5:
    case 15:
      at[0] = kKernel(first(a.kernel[0]));
      at[1] = kStrides(first(a.stride[0]));
      at[2] = kPads(first(a.pad_begin[0]));
      break;
    case 8:
      at[0] = kBias(bias ? 1.0F : 0.0F);
      break;
    case 9:
      write_permutation(at, node.shape(node.input(0)), node.shape(node.output(0)));
      break;
    default:
      break;
  }
}

}  // namespace

std::span<const std::string_view> nnlqp_node_names() { return kNnlqpNames; }
std::span<const std::string_view> nnlqp_static_names() { return kNnlqpStatics; }

void fill_nnlqp(const FeatureSource& source, FeatureMatrix& matrix) {
  for (NodeId id = 0; id < static_cast<NodeId>(matrix.rows); ++id) {
    const NodeView node = source.node(id);
    float* row = matrix.values.data() + id * matrix.columns;
    const int column = nnlqp_column(node);
    if (column != kNone) {
      row[column] = 1.0F;
      write_nnlqp_attributes(node, column, row + kNnlqpAttributes);
    }
    const Shape out = node.shape(node.output(0));
    for (std::size_t i = 0; i < kOutputDims.size(); ++i) {
      row[kNnlqpOutput + i] = kOutputDims[i](i < out.size() ? real(out[i]) : 0.0F);
    }
  }
  const CostTotals sum = totals(source.costs);
  const double moved = static_cast<double>(sum.bytes_read) + static_cast<double>(sum.bytes_written);
  matrix.statics = {real(batch_of(source.graph)), static_cast<float>(static_cast<double>(sum.flops) / 1e9),
                    static_cast<float>(static_cast<double>(sum.parameters) / 1e9), static_cast<float>(moved / 1e9)};
}

}  // namespace perfpass::detail
