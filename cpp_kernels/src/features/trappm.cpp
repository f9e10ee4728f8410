// Schema `trappm`: 113 per node. Source and choices: docs/reference/schemas.md.
#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "features/published.hpp"
#include "features/rows.hpp"

namespace perfpass::detail {
namespace {

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

}  // namespace

std::span<const std::string_view> trappm_node_names() { return kTrappmNames; }
std::span<const std::string_view> trappm_static_names() { return kTrappmStatics; }

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

}  // namespace perfpass::detail
