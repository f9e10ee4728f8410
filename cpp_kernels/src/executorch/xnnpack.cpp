// What ExecuTorch hands to XNNPACK: a header, then a FlatBuffer of values and nodes, channels last. Field numbers:
// https://github.com/pytorch/executorch/blob/main/backends/xnnpack/serialization/runtime_schema.fbs
#include <algorithm>
#include <map>

#include "executorch/nodes.hpp"
#include "perfpass/error.hpp"
#include "support/arena_list.hpp"

namespace perfpass::executorch {
namespace {

namespace header {
constexpr std::uint64_t kMagic = 4, kOffset = 10;  // "XH00" behind four zeros; where the FlatBuffer begins
}
namespace graph {
constexpr unsigned kNodes = 1, kValues = 2;
}
namespace node {
constexpr unsigned kKind = 0, kContent = 1, kClamp = 3;
}
namespace tensor {
constexpr unsigned kType = 0, kDims = 2, kBuffer = 3, kExternal = 4, kFlags = 5, kId = 6;
constexpr std::uint32_t kIsInput = 1, kIsOutput = 2;
constexpr std::uint8_t kPlain = 1;
}  // namespace tensor
namespace conv {
constexpr unsigned kTop = 0, kRight = 1, kBottom = 2, kLeft = 3, kStride = 6, kDilation = 8, kGroups = 12;
}
namespace pool {
constexpr unsigned kHeight = 4, kStride = 6, kDilation = 8;
}

/// How a node's fields name its operands.
enum class Form : std::uint8_t {
  one,  // input, output
  two,  // two inputs, output
  conv,
  pool,
  dense,
  concat,
  behind_one,    // one field before input and output
  behind_two,    // two
  behind_three,  // three
  attention,
};

struct Kind {
  Text name;
  OpKind op;
  Form form;
};

// XNodeUnion from 1 on.
constexpr std::array kKinds = {
    Kind{"XNNAdd", OpKind::add, Form::two},
    Kind{"XNNFullyConnected", OpKind::dense, Form::dense},
    Kind{"XNNSoftmax", OpKind::softmax, Form::one},
    Kind{"XNNSigmoid", OpKind::sigmoid, Form::one},
    Kind{"XNNStaticTranspose", OpKind::transpose, Form::behind_two},
    Kind{"XNNClamp", OpKind::clip, Form::one},
    Kind{"XNNConv2d", OpKind::conv, Form::conv},
    Kind{"XNNDiv", OpKind::div, Form::two},
    Kind{"XNNStaticResizeBilinear2D", OpKind::resize, Form::behind_two},
    Kind{"XNNStaticConstantPad", OpKind::pad, Form::behind_three},
    Kind{"XNNAvgPooling2d", OpKind::avg_pool, Form::pool},
    Kind{"XNNMinimum", OpKind::minimum, Form::two},
    Kind{"XNNDepthwiseConv2d", OpKind::conv, Form::conv},
    Kind{"XNNMaxPooling2d", OpKind::max_pool, Form::pool},
    Kind{"XNNMultiply", OpKind::mul, Form::two},
    Kind{"XNNSubtract", OpKind::sub, Form::two},
    Kind{"XNNFloor", OpKind::round, Form::one},
    Kind{"XNNConvert", OpKind::cast, Form::one},
    Kind{"XNNGlobalAvgPooling2d", OpKind::global_avg_pool, Form::one},
    Kind{"XNNStaticReshape", OpKind::reshape, Form::behind_two},
    Kind{"XNNArgMaxPooling2d", OpKind::max_pool, Form::pool},
    Kind{"XNNSquareRoot", OpKind::sqrt, Form::one},
    Kind{"XNNCeiling", OpKind::round, Form::one},
    Kind{"XNNHardswish", OpKind::hard_swish, Form::one},
    Kind{"XNNLeakyReLU", OpKind::leaky_relu, Form::behind_one},
    Kind{"XNNMaximum", OpKind::maximum, Form::two},
    Kind{"XNNNegate", OpKind::neg, Form::one},
    Kind{"XNNSquare", OpKind::mul, Form::one},
    Kind{"XNNELU", OpKind::elu, Form::behind_one},
    Kind{"XNNAbs", OpKind::abs, Form::one},
    Kind{"XNNPReLU", OpKind::prelu, Form::two},
    Kind{"XNNConcatenate2", OpKind::concat, Form::concat},
    Kind{"XNNConcatenate3", OpKind::concat, Form::concat},
    Kind{"XNNConcatenate4", OpKind::concat, Form::concat},
    Kind{"XNNStaticSlice", OpKind::slice, Form::behind_three},
    Kind{"XNNScaledDotProductAttention", OpKind::attention, Form::attention},
    Kind{"XNNBatchMatrixMultiply", OpKind::matmul, Form::two},
    Kind{"XNNConcatenate5", OpKind::concat, Form::concat},
    Kind{"XNNConvTranspose2d", OpKind::conv_transpose, Form::conv},
    Kind{"XNNReciprocalSquareRoot", OpKind::rsqrt, Form::one},
    Kind{"XNNLog", OpKind::log, Form::one},
    Kind{"XNNGelu", OpKind::gelu, Form::one},
    Kind{"XNNTanh", OpKind::tanh, Form::one},
    Kind{"XNNExp", OpKind::exp, Form::one},
    Kind{"XNNSin", OpKind::trigonometric, Form::one},
    Kind{"XNNCopy", OpKind::copy, Form::one},
    Kind{"XNNCos", OpKind::trigonometric, Form::one},
};

/// XNNDatatype by number.
DType type_of(std::int16_t number) {
  using enum DType;
  static constexpr std::array kTypes = {undefined, float32, float16, int8, uint8, int32,   int8,    int32,
                                        int4,      int8,    int4,    int8, int32, float32, bfloat16};
  return number >= 0 && static_cast<std::size_t>(number) < kTypes.size() ? kTypes[number] : undefined;
}

struct Value {
  Text name;
  DType dtype = DType::undefined;
  std::span<const std::int64_t> shape;
  bool is_constant = false, is_declared = false;
};

class Reader {
 public:
  Reader(const Table& root, Text prefix, std::span<const Text> externals, Nodes& out)
      : root_(root), prefix_(prefix), externals_(externals), out_(out) {}

  void read() {
    const References stored = root_.references(graph::kValues);
    for (std::size_t i = 0; i < stored.size(); ++i) read_value(stored.table(i));
    const References nodes = root_.references(graph::kNodes);
    for (std::size_t i = 0; i < nodes.size(); ++i) read_node(nodes.table(i));
    for (const auto& [inside, outside] : results_) add_view(inside, outside);
  }

 private:
  void read_value(const Table& stored) {
    Table content = stored.table(1);
    if (stored.scalar<std::uint8_t>(0) != tensor::kPlain) content = content.table(0);  // quantized: the tensor within
    const auto id = content.scalar<std::uint32_t>(tensor::kId);
    const auto flags = content.scalar<std::uint32_t>(tensor::kFlags);
    Value found;
    found.dtype = type_of(content.scalar<std::int16_t>(tensor::kType));
    const auto dims = content.numbers<std::uint32_t>(tensor::kDims);
    if (dims.size() > kMaxRank) {
      throw Error(ErrorCode::limit, "a value of XNNPACK has " + std::to_string(dims.size()) + " dimensions; at most " +
                                        std::to_string(kMaxRank) + " are allowed");
    }
    const auto shape = arena_list<std::int64_t>(out_.arena, dims.size());
    for (std::size_t d = 0; d < shape.size(); ++d) shape[d] = dims[d];
    found.shape = shape;
    found.is_constant = content.scalar<std::uint32_t>(tensor::kBuffer) > 0;
    found.name = arena_text(out_.arena, std::string(prefix_) + std::to_string(id));
    if (values_.contains(id)) throw Error(ErrorCode::graph, "two values of XNNPACK are number " + std::to_string(id));
    values_[id] = found;
    if (found.is_constant) return;  // declared where it is read, in the form of its reader
    out_.declare(found.name, found.dtype, found.shape);
    if ((flags & (tensor::kIsInput | tensor::kIsOutput)) == 0) return;
    const auto external = content.scalar<std::uint32_t>(tensor::kExternal);
    if (external >= externals_.size()) {
      throw Error(ErrorCode::format, "XNNPACK is called with " + std::to_string(externals_.size()) +
                                         " tensors and names number " + std::to_string(external) +
                                         "; the file is damaged");
    }
    if ((flags & tensor::kIsInput) != 0) {
      add_view(externals_[external], found.name);
    } else {
      results_.emplace_back(found.name, externals_[external]);
    }
  }

  /// The same elements, inside and outside: shapes differ where channels come last inside.
  void add_view(Text from, Text to) {
    Options options;
    options.integer("view", 1);
    out_.add(&entry_of(OpKind::identity), "external", {from}, {to}, options);
  }

  Text operand(std::uint32_t id, bool is_filter = false, bool is_depthwise = false) {
    const auto found = values_.find(id);
    if (found == values_.end()) return {};  // XNN_INVALID_VALUE_ID: absent
    Value& value = found->second;
    if (!value.is_constant || value.is_declared) return value.name;
    value.is_declared = true;
    std::span<const std::int64_t> shape = value.shape;
    if (is_filter && shape.size() == 4) {  // [outputs, height, width, inputs], depthwise [1, height, width, outputs]
      const auto turned = arena_list<std::int64_t>(out_.arena, 4);
      const std::array<std::size_t, 4> order =
          is_depthwise ? std::array<std::size_t, 4>{3, 0, 1, 2} : std::array<std::size_t, 4>{0, 3, 1, 2};
      for (std::size_t i = 0; i < 4; ++i) turned[i] = shape[order[i]];
      shape = turned;
    }
    out_.constant(value.name, value.dtype, shape, bits_of(value.dtype) <= 8 || value.dtype == DType::int32, false);
    return value.name;
  }

  bool is_quantized(std::uint32_t id) const {
    const auto found = values_.find(id);
    return found != values_.end() && !is_floating(found->second.dtype);
  }

  void read_node(const Table& stored) {
    const auto number = stored.scalar<std::uint8_t>(node::kKind);
    const Table content = stored.table(node::kContent);
    if (number < 1 || number > kKinds.size()) {
      throw Error(ErrorCode::unsupported, "XNNPACK runs a node of kind " + std::to_string(number) +
                                              "; known are 1 to " + std::to_string(kKinds.size()));
    }
    const Kind& kind = kKinds[number - 1];
    const auto id = [&](unsigned slot) { return content.scalar<std::uint32_t>(slot); };
    const auto pair = [&](unsigned slot, std::uint32_t fallback) {
      const auto list = arena_list<std::int64_t>(out_.arena, 2);
      for (unsigned i = 0; i < 2; ++i) list[i] = content.scalar<std::uint32_t>(slot + i, fallback);
      return list;
    };
    const auto padding = [&](unsigned first, unsigned second) {
      const auto list = arena_list<std::int64_t>(out_.arena, 2);
      list[0] = id(first);
      list[1] = id(second);
      return list;
    };
    OpKind op = kind.op;
    Options options;
    std::vector<Text> inputs;
    std::uint32_t output = 0;
    switch (kind.form) {
      case Form::one:
        inputs = {operand(id(0))};
        output = id(1);
        break;
      case Form::two:
        inputs = {operand(id(0)), operand(id(1))};
        output = id(2);
        break;
      case Form::dense:
        inputs = {operand(id(0)), operand(id(1)), operand(id(2))};
        output = id(3);
        options.integer("transpose_b", 1);
        if (is_quantized(id(1))) op = OpKind::quantized_matmul;
        break;
      case Form::conv: {
        constexpr unsigned kInput = 15;
        const bool depthwise = kind.name == "XNNDepthwiseConv2d";
        inputs = {operand(id(kInput)), operand(id(kInput + 1), true, depthwise), operand(id(kInput + 2))};
        output = id(kInput + 3);
        options.integer("channels_last", 1);
        options.integer("groups", content.scalar<std::uint32_t>(conv::kGroups, 1));
        options.integers("stride", pair(conv::kStride, 1));
        options.integers("dilation", pair(conv::kDilation, 1));
        options.integers("padding", padding(conv::kTop, conv::kLeft));
        options.integers("padding_end", padding(conv::kBottom, conv::kRight));
        if (is_quantized(id(kInput + 1)) && op == OpKind::conv) op = OpKind::quantized_conv;
        break;
      }
      case Form::pool: {
        const bool indexed = kind.name == "XNNArgMaxPooling2d";
        inputs = {operand(id(indexed ? 6 : 10))};
        output = id(indexed ? 7 : 11);
        options.integer("channels_last", 1);
        options.integers("kernel", pair(pool::kHeight, 1));
        options.integers("stride", indexed ? pair(pool::kHeight, 1) : pair(pool::kStride, 1));
        if (!indexed) options.integers("dilation", pair(pool::kDilation, 1));
        options.integers("padding", padding(conv::kTop, conv::kLeft));
        options.integers("padding_end", padding(conv::kBottom, conv::kRight));
        break;
      }
      case Form::concat: {
        const std::size_t count = static_cast<std::size_t>(kind.name.back() - '0');
        static constexpr std::array<unsigned, 5> kSlots = {1, 2, 3, 4, 7};
        for (std::size_t i = 0; i < count; ++i) inputs.push_back(operand(id(kSlots[i])));
        output = id(5);
        options.integer("axis", id(0));
        break;
      }
      case Form::behind_one:
      case Form::behind_two:
      case Form::behind_three: {
        const unsigned first = kind.form == Form::behind_one ? 1 : kind.form == Form::behind_two ? 2 : 3;
        inputs = {operand(id(first))};
        output = id(first + 1);
        if (op == OpKind::reshape) options.integer("view", 1);
        break;
      }
      case Form::attention:
        inputs = {operand(id(0)), operand(id(1)), operand(id(2)), operand(id(4)), operand(id(3))};
        output = id(5);
        break;
    }
    if (op == OpKind::cast) {
      const bool from = is_quantized(id(0)), to = is_quantized(output);
      op = to && !from ? OpKind::quantize : from && !to ? OpKind::dequantize : OpKind::cast;
    }
    if (op == OpKind::softmax) options.integer("axis", -1);
    const auto found = values_.find(output);
    if (found == values_.end() || found->second.is_constant) {
      throw Error(ErrorCode::format, "a node of XNNPACK writes value " + std::to_string(output) +
                                         ", which is none that can be written; the file is damaged");
    }
    const Text result = found->second.name;
    if (!stored.has(node::kClamp) || is_quantized(output) || op == OpKind::clip) {
      out_.add(&entry_of(op), kind.name, inputs, {result}, options);
      return;
    }
    const Text before = arena_text(out_.arena, std::string(result) + "/linear");
    out_.declare(before, found->second.dtype, found->second.shape);
    out_.add(&entry_of(op), kind.name, inputs, {before}, options);
    const Table clamp = stored.table(node::kClamp);
    const bool is_relu = clamp.scalar<float>(0) == 0.0F && !(clamp.scalar<float>(1) < 1e30F);
    out_.add(&entry_of(is_relu ? OpKind::relu : OpKind::clip), "XNNClamp", {before}, {result}, {});
  }

  Table root_;
  Text prefix_;
  std::span<const Text> externals_;
  Nodes& out_;
  std::map<std::uint32_t, Value> values_;
  std::vector<std::pair<Text, Text>> results_;
};

}  // namespace

bool read_xnnpack(const flatbuffer::Source& file, std::uint64_t begin, Text prefix, std::span<const Text> externals,
                  Nodes& nodes) {
  constexpr std::uint64_t kHeader = 30;
  const Text magic(reinterpret_cast<const char*>(file.at(begin, kHeader)) + header::kMagic, 4);
  if (magic != "XH00") return false;
  const std::uint64_t at = begin + flatbuffer::scalar_at<std::uint32_t>(file.at(begin + header::kOffset, 4));
  const Text identifier(reinterpret_cast<const char*>(file.at(at, 8)) + 4, 4);
  if (identifier != "XN00" && identifier != "XN01") return false;
  Reader(Table(file, flatbuffer::followed(file, at)), prefix, externals, nodes).read();
  return true;
}

}  // namespace perfpass::executorch
