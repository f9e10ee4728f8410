// The published schemas: dippm (32 per node), trappm (113) and nnlqp (44). Sources and choices: docs/schemas.md.
#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "features_internal.hpp"

namespace perfpass::detail {
namespace {

using Shape = std::span<const std::int64_t>;

float real(std::int64_t value) noexcept { return static_cast<float>(value); }

/// `width` leading dimensions, zeros after the last.
void write_shape(float* at, Shape shape, std::size_t width) noexcept {
  for (std::size_t i = 0; i < std::min(width, shape.size()); ++i) at[i] = real(shape[i]);
}

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

/// All but the first axis become one.
bool is_flatten(Shape in, Shape out) noexcept { return out.size() == 2 && in.size() > 2 && in[0] == out[0]; }

bool is_global_pool(const NodeView& node) noexcept {
  return node.op() == OpKind::global_avg_pool ||
         (node.op() == OpKind::avg_pool && node.attributes().kernel[0] == 0);  // adaptive pooling has no kernel
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

// ---- dippm
// -------------------------------------------------------------------------------------------------------------

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

// ---- trappm
// ------------------------------------------------------------------------------------------------------------

constexpr std::size_t kTrappmOps = 98;
constexpr std::array<std::string_view, 113> kTrappmNames = {"Sub",
                                                            "Add",
                                                            "Min",
                                                            "Max",
                                                            "Neg",
                                                            "Div",
                                                            "Mul",
                                                            "Abs",
                                                            "Ceil",
                                                            "Exp",
                                                            "Softmax",
                                                            "Log",
                                                            "ImageScaler",
                                                            "InstanceNormalization",
                                                            "Sqrt",
                                                            "Pow",
                                                            "Sin",
                                                            "Cos",
                                                            "Range",
                                                            "Sigmoid",
                                                            "Tanh",
                                                            "HardSigmoid",
                                                            "Relu",
                                                            "PRelu",
                                                            "LeakyRelu",
                                                            "Sum",
                                                            "NonMaxSuppression",
                                                            "LRN",
                                                            "Less",
                                                            "LessOrEqual",
                                                            "Not",
                                                            "And",
                                                            "Where",
                                                            "Transpose",
                                                            "Gemm",
                                                            "MatMul",
                                                            "Tile",
                                                            "Gather",
                                                            "Clip",
                                                            "Reciprocal",
                                                            "Relu6",
                                                            "Constant",
                                                            "Concat",
                                                            "OneHot",
                                                            "Einsum",
                                                            "Unsqueeze",
                                                            "Squeeze",
                                                            "Shape",
                                                            "Resize",
                                                            "Upsample",
                                                            "PoolBase",
                                                            "AveragePool",
                                                            "MaxPool",
                                                            "Dropout",
                                                            "GlobalAveragePool",
                                                            "Expand",
                                                            "Pad",
                                                            "Identity",
                                                            "Erf",
                                                            "BatchNormalization",
                                                            "Flatten",
                                                            "ArgMax",
                                                            "ArrayFeatureExtractor",
                                                            "ZipMap",
                                                            "Slice",
                                                            "ReduceMean",
                                                            "ReduceProd",
                                                            "ReduceSum",
                                                            "ReduceMin",
                                                            "ReduceMax",
                                                            "TopK",
                                                            "Scan",
                                                            "Compress",
                                                            "Hardmax",
                                                            "CategoryMapper",
                                                            "LSTM",
                                                            "Conv",
                                                            "ReduceL2",
                                                            "CumSum",
                                                            "NonZero",
                                                            "Equal",
                                                            "Floor",
                                                            "RoiAlign",
                                                            "ScatterElements",
                                                            "ScatterND",
                                                            "Greater",
                                                            "DequantizeLinear",
                                                            "QuantizeLinear",
                                                            "MatMulInteger",
                                                            "QLinearMatMul",
                                                            "QLinearConv",
                                                            "ConvTranspose",
                                                            "Reshape",
                                                            "GRU",
                                                            "ConstantOfShape",
                                                            "Cast",
                                                            "Split",
                                                            "None",
                                                            "input_0",
                                                            "input_1",
                                                            "input_2",
                                                            "input_3",
                                                            "input_4",
                                                            "input_5",
                                                            "output_0",
                                                            "output_1",
                                                            "output_2",
                                                            "output_3",
                                                            "output_4",
                                                            "output_5",
                                                            "macs",
                                                            "parameters",
                                                            "memory_bytes"};
constexpr std::array<std::string_view, 6> kTrappmStatics = {"batch", "nodes",      "edges",
                                                            "macs",  "parameters", "memory_bytes"};

/// The name in TraPPM's list that stands for a canonical operator whose source name is not in it.
std::string_view trappm_name(OpKind op) noexcept {
  switch (op) {
    case OpKind::conv:
    case OpKind::deform_conv:
      return "Conv";
    case OpKind::conv_transpose:
      return "ConvTranspose";
    case OpKind::matmul:
      return "MatMul";
    case OpKind::dense:
      return "Gemm";
    case OpKind::einsum:
      return "Einsum";
    case OpKind::lstm:
      return "LSTM";
    case OpKind::gru:
      return "GRU";
    case OpKind::batch_norm:
      return "BatchNormalization";
    case OpKind::instance_norm:
      return "InstanceNormalization";
    case OpKind::lrn:
      return "LRN";
    case OpKind::softmax:
      return "Softmax";
    case OpKind::relu:
      return "Relu";
    case OpKind::leaky_relu:
      return "LeakyRelu";
    case OpKind::prelu:
      return "PRelu";
    case OpKind::sigmoid:
      return "Sigmoid";
    case OpKind::hard_sigmoid:
      return "HardSigmoid";
    case OpKind::tanh:
      return "Tanh";
    case OpKind::clip:
      return "Clip";
    case OpKind::abs:
      return "Abs";
    case OpKind::neg:
      return "Neg";
    case OpKind::exp:
      return "Exp";
    case OpKind::log:
      return "Log";
    case OpKind::sqrt:
      return "Sqrt";
    case OpKind::reciprocal:
      return "Reciprocal";
    case OpKind::erf:
      return "Erf";
    case OpKind::add:
      return "Add";
    case OpKind::sub:
      return "Sub";
    case OpKind::mul:
      return "Mul";
    case OpKind::div:
      return "Div";
    case OpKind::pow:
      return "Pow";
    case OpKind::minimum:
      return "Min";
    case OpKind::maximum:
      return "Max";
    case OpKind::where:
      return "Where";
    case OpKind::cast:
      return "Cast";
    case OpKind::reduce_sum:
      return "ReduceSum";
    case OpKind::reduce_mean:
      return "ReduceMean";
    case OpKind::reduce_max:
      return "ReduceMax";
    case OpKind::reduce_min:
      return "ReduceMin";
    case OpKind::reduce_prod:
      return "ReduceProd";
    case OpKind::reduce_norm:
      return "ReduceL2";
    case OpKind::arg_reduce:
      return "ArgMax";
    case OpKind::cumulative:
      return "CumSum";
    case OpKind::max_pool:
      return "MaxPool";
    case OpKind::avg_pool:
      return "AveragePool";
    case OpKind::global_avg_pool:
      return "GlobalAveragePool";
    case OpKind::roi_pool:
      return "RoiAlign";
    case OpKind::reshape:
      return "Reshape";
    case OpKind::transpose:
      return "Transpose";
    case OpKind::concat:
      return "Concat";
    case OpKind::split:
      return "Split";
    case OpKind::slice:
      return "Slice";
    case OpKind::pad:
      return "Pad";
    case OpKind::tile:
      return "Tile";
    case OpKind::expand:
      return "Expand";
    case OpKind::identity:
    case OpKind::copy:
      return "Identity";
    case OpKind::gather:
    case OpKind::embedding:
      return "Gather";
    case OpKind::scatter:
      return "ScatterND";
    case OpKind::one_hot:
      return "OneHot";
    case OpKind::compress:
      return "Compress";
    case OpKind::resize:
      return "Resize";
    case OpKind::top_k:
      return "TopK";
    case OpKind::non_max_suppression:
      return "NonMaxSuppression";
    case OpKind::non_zero:
      return "NonZero";
    case OpKind::quantize:
    case OpKind::dynamic_quantize:
      return "QuantizeLinear";
    case OpKind::dequantize:
      return "DequantizeLinear";
    case OpKind::quantized_conv:
      return "QLinearConv";
    case OpKind::quantized_matmul:
      return "QLinearMatMul";
    case OpKind::constant:
      return "Constant";
    case OpKind::fill:
      return "ConstantOfShape";
    case OpKind::range:
      return "Range";
    case OpKind::shape_of:
      return "Shape";
    case OpKind::scan:
      return "Scan";
    case OpKind::dropout:
      return "Dropout";
    default:
      return "None";
  }
}

double stored_bytes(const NodeView& node, TensorId t) noexcept {
  return static_cast<double>(bytes_for(node.elements(t), bits_of(node.g.tensor_dtype[t])));
}

/// Columns by name; built once.
class TrappmColumns {
 public:
  TrappmColumns() {
    for (std::size_t i = 0; i < kTrappmOps; ++i) by_name_.emplace(kTrappmNames[i], static_cast<std::int32_t>(i));
    for (std::size_t op = 0; op < by_op_.size(); ++op) by_op_[op] = by_name_.at(trappm_name(static_cast<OpKind>(op)));
  }
  /// kNone where the name is not in the list; "None" itself is no operator's name.
  std::int32_t of_name(std::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() || name == "None" ? kNone : it->second;
  }
  std::int32_t of_op(OpKind op) const noexcept { return by_op_[static_cast<std::size_t>(op)]; }

 private:
  std::unordered_map<std::string_view, std::int32_t> by_name_;
  std::array<std::int32_t, static_cast<std::size_t>(OpKind::count_)> by_op_{};
};

// ---- nnlqp
// -------------------------------------------------------------------------------------------------------------

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

std::span<const std::string_view> dippm_node_names() { return kDippmNames; }
std::span<const std::string_view> dippm_static_names() { return kDippmStatics; }
std::span<const std::string_view> trappm_node_names() { return kTrappmNames; }
std::span<const std::string_view> trappm_static_names() { return kTrappmStatics; }
std::span<const std::string_view> nnlqp_node_names() { return kNnlqpNames; }
std::span<const std::string_view> nnlqp_static_names() { return kNnlqpStatics; }

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

void fill_trappm(const FeatureSource& source, FeatureMatrix& matrix) {
  static const TrappmColumns columns;
  constexpr std::int32_t kNotLookedUp = -2;
  std::vector<std::int32_t> of_string(source.graph.strings.size(), kNotLookedUp);  // by string id
  std::vector<std::uint8_t> counted(source.graph.tensor_count(), 0);
  double memory = 0.0;
  for (NodeId id = 0; id < static_cast<NodeId>(matrix.rows); ++id) {
    const NodeView node = source.node(id);
    float* row = matrix.values.data() + id * matrix.columns;
    std::int32_t& named = of_string[source.graph.source_op[id]];
    if (named == kNotLookedUp) named = columns.of_name(source.graph.strings.at(source.graph.source_op[id]));
    row[named != kNone ? named : columns.of_op(node.op())] = 1.0F;
    write_shape(row + kTrappmOps, node.shape(node.input(0)), 6);
    write_shape(row + kTrappmOps + 6, node.shape(node.output(0)), 6);
    // onnx-tool's memory, which TraPPM uses: the node's outputs and the weights it is the first to read, as stored.
    double bytes = 0.0;
    for (const TensorId t : node.outputs()) {
      if (t != kNone) bytes += stored_bytes(node, t);
    }
    for (const TensorId t : node.inputs()) {
      if (t == kNone || source.graph.tensor_role[t] != TensorRole::weight || counted[t]) continue;
      counted[t] = 1;
      bytes += stored_bytes(node, t);
    }
    row[kTrappmOps + 12] = real(source.costs.macs[id]);
    row[kTrappmOps + 13] = real(source.costs.parameters[id]);
    row[kTrappmOps + 14] = static_cast<float>(bytes);
    memory += bytes;
  }
  const CostTotals sum = totals(source.costs);
  matrix.statics = {real(batch_of(source.graph)),
                    real(matrix.rows),
                    real(static_cast<std::int64_t>(source.graph.edge_count())),
                    real(sum.macs),
                    real(sum.parameters),
                    static_cast<float>(memory)};
}

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
