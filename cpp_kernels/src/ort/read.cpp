// Tables and field numbers:
// https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/flatbuffers/schema/ort.fbs
#include "ort/read.hpp"

#include <array>
#include <unordered_map>

#include "flatbuffer/table.hpp"
#include "onnx/contents.hpp"
#include "onnx/operators/operators.hpp"
#include "perfpass/error.hpp"
#include "support/arena_list.hpp"
#include "support/text.hpp"
#include "support/text_hash.hpp"

namespace perfpass::ort {
namespace {

using flatbuffer::Extent;
using flatbuffer::Numbers;
using flatbuffer::References;
using flatbuffer::Table;
using onnx::Text;

namespace session {
constexpr unsigned kModel = 1;
}
namespace model {
constexpr unsigned kIrVersion = 0, kOpsets = 1, kGraph = 7;
}
namespace opset {
constexpr unsigned kDomain = 0, kVersion = 1;
}
namespace graph {
constexpr unsigned kInitializers = 0, kValues = 1, kNodes = 2, kInputs = 5, kOutputs = 6, kSparse = 7;
}
namespace node {
constexpr unsigned kName = 0, kDomain = 2, kOperator = 5, kInputs = 8, kOutputs = 9, kAttributes = 10;
}
namespace tensor {
constexpr unsigned kName = 0, kDims = 2, kType = 3, kData = 4;
}
namespace sparse {
constexpr unsigned kValues = 0, kDims = 2;
}
namespace value {
constexpr unsigned kName = 0, kType = 2;
}
namespace type {
constexpr unsigned kKind = 1, kValue = 2;
constexpr std::uint8_t kTensor = 1, kSequence = 2, kMap = 3;
constexpr unsigned kElement = 0, kShape = 1;  // of a tensor
constexpr unsigned kMapValue = 1;
}  // namespace type
namespace dimension {
constexpr unsigned kValue = 0;  // of Dimension, and of Shape its list
constexpr unsigned kKind = 0, kNumber = 1, kName = 2;
constexpr std::int8_t kFixed = 1, kNamed = 2;
}  // namespace dimension
namespace attribute {
constexpr unsigned kName = 0, kType = 2, kReal = 3, kInteger = 4, kText = 5, kTensor = 6, kGraph = 7, kReals = 8,
                   kIntegers = 9, kTexts = 10;
}

class Reader {
 public:
  Reader(const flatbuffer::Source& file, const OnnxLimits& limits, std::pmr::memory_resource& arena)
      : file_(file), limits_(limits), arena_(arena) {}

  onnx::Model read() {
    const Table root = flatbuffer::root(file_, "ORTM", "a model in ONNX Runtime's format (.ort)");
    const Table stored = root.table(session::kModel);
    if (!stored.has(model::kGraph)) {
      throw Error(ErrorCode::format,
                  "the file holds no model (InferenceSession.model.graph is missing); save it again");
    }
    onnx::Model result;
    result.ir_version = stored.scalar<std::int64_t>(model::kIrVersion);
    const References opsets = stored.references(model::kOpsets);
    const auto list = arena_list<onnx::Opset>(arena_, opsets.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Table entry = opsets.table(i);
      list[i] = {entry.text(opset::kDomain), entry.scalar<std::int64_t>(opset::kVersion)};
    }
    result.opsets = list;
    result.graph = graph_of(stored.table(model::kGraph), 0);
    return result;
  }

 private:
  const onnx::Graph* graph_of(const Table& stored, int depth) {
    check_depth(depth);
    auto& result = arena_list<onnx::Graph>(arena_, 1)[0];
    const References tensors = stored.references(graph::kInitializers), sparse = stored.references(graph::kSparse);
    const auto constants = arena_list<onnx::Constant>(arena_, tensors.size() + sparse.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) constants[i] = constant(tensors.table(i));
    for (std::size_t i = 0; i < sparse.size(); ++i) constants[tensors.size() + i] = sparse_constant(sparse.table(i));
    result.initializers = constants;

    const References values = stored.references(graph::kValues);
    const auto infos = arena_list<onnx::ValueInfo>(arena_, values.size());
    std::unordered_map<Text, const onnx::ValueInfo*, TextHash> by_name(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      infos[i] = value_info(values.table(i));
      by_name.emplace(infos[i].name, &infos[i]);
    }
    result.value_info = infos;
    const auto named = [&](const References& names) {
      const auto list = arena_list<onnx::ValueInfo>(arena_, names.size());
      for (std::size_t i = 0; i < names.size(); ++i) {
        const auto found = by_name.find(names.text(i));
        if (found != by_name.end()) list[i] = *found->second;
        list[i].name = names.text(i);
      }
      return list;
    };
    result.inputs = named(stored.references(graph::kInputs));
    result.outputs = named(stored.references(graph::kOutputs));

    const References nodes = stored.references(graph::kNodes);
    count_nodes(nodes.size());
    const auto list = arena_list<onnx::Node>(arena_, nodes.size());
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = node_of(nodes.table(i), depth);
    result.nodes = list;
    return &result;
  }

  onnx::Node node_of(const Table& stored, int depth) {
    onnx::Node result;
    result.name = stored.text(node::kName);
    result.domain = stored.text(node::kDomain);
    result.op_type = stored.text(node::kOperator);
    if (result.op_type.empty()) {
      throw Error(ErrorCode::format, "node " + quoted(result.name) + " names no operator; the file is damaged");
    }
    result.inputs = texts(stored.references(node::kInputs));
    result.outputs = texts(stored.references(node::kOutputs));
    if (result.outputs.empty()) {
      throw Error(ErrorCode::format, "node " + quoted(result.name) + " has no outputs; the file is damaged");
    }
    const References attributes = stored.references(node::kAttributes);
    const auto list = arena_list<onnx::Attribute>(arena_, attributes.size());
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = attribute_of(attributes.table(i), depth);
    result.attributes = list;
    return result;
  }

  onnx::Attribute attribute_of(const Table& stored, int depth) {
    using Kind = onnx::Attribute::Kind;
    // AttributeProto.AttributeType, in its order.
    static constexpr std::array kKinds = {Kind::none,  Kind::real,  Kind::integer,  Kind::text,  Kind::tensor,
                                          Kind::graph, Kind::reals, Kind::integers, Kind::texts, Kind::other,
                                          Kind::other, Kind::other, Kind::other};
    onnx::Attribute result;
    // A place of its own tells an attribute from others (KnownNodes); in the file several may share one string.
    result.name = arena_text(arena_, stored.text(attribute::kName));
    const auto type = stored.scalar<std::int32_t>(attribute::kType);
    result.kind = type >= 0 && type < static_cast<std::int32_t>(kKinds.size()) ? kKinds[type] : Kind::other;
    switch (result.kind) {
      case Kind::real:
        result.real = stored.scalar<float>(attribute::kReal);
        break;
      case Kind::integer:
        result.integer = stored.scalar<std::int64_t>(attribute::kInteger);
        break;
      case Kind::text:
        result.text = stored.text(attribute::kText);
        break;
      case Kind::tensor: {
        auto& copy = arena_list<onnx::Constant>(arena_, 1)[0];
        copy = constant(stored.table(attribute::kTensor));
        result.tensor = &copy;
        break;
      }
      case Kind::graph:
        result.graph = graph_of(stored.table(attribute::kGraph), depth + 1);
        break;
      case Kind::reals: {
        const auto numbers = stored.numbers<float>(attribute::kReals);
        const auto list = arena_list<double>(arena_, numbers.size());
        for (std::size_t i = 0; i < list.size(); ++i) list[i] = numbers[i];
        result.reals = list;
        break;
      }
      case Kind::integers:
        result.integers = integers(stored.numbers<std::int64_t>(attribute::kIntegers));
        break;
      case Kind::texts:
        result.texts = texts(stored.references(attribute::kTexts));
        break;
      default:
        break;
    }
    return result;
  }

  onnx::Constant constant(const Table& stored) {
    onnx::Constant result;
    result.name = stored.text(tensor::kName);
    result.dtype = element_type(stored.scalar<std::int32_t>(tensor::kType), result.name);
    result.shape = dims(stored.numbers<std::int64_t>(tensor::kDims), result.name);
    const std::int64_t elements = checked(result);
    const Extent data = stored.bytes(tensor::kData);
    if (data.length == 0 || result.dtype == DType::string || bits_of(result.dtype) < 8) return result;
    const auto wanted = static_cast<std::uint64_t>(bytes_for(elements, bits_of(result.dtype)));
    if (data.length != wanted) {
      throw Error(ErrorCode::format, "constant " + quoted(result.name) + " needs " + std::to_string(wanted) +
                                         " bytes for its shape and stores " + std::to_string(data.length) +
                                         "; the file is damaged");
    }
    if (elements <= onnx::most_contents(result.dtype, limits_)) {
      onnx::set_contents(result, {file_.at(data.at, data.length), static_cast<std::size_t>(data.length)},
                         static_cast<std::size_t>(elements), arena_);
    }
    return result;
  }

  /// Counts as a dense constant of its full shape: that is how runtimes hold it.
  onnx::Constant sparse_constant(const Table& stored) {
    onnx::Constant result;
    const Table values = stored.table(sparse::kValues);
    result.name = values.text(tensor::kName);
    result.dtype = element_type(values.scalar<std::int32_t>(tensor::kType), result.name);
    result.shape = dims(stored.numbers<std::int64_t>(sparse::kDims), result.name);
    checked(result);
    return result;
  }

  onnx::ValueInfo value_info(const Table& stored) {
    onnx::ValueInfo result;
    result.name = stored.text(value::kName);
    if (stored.has(value::kType)) type_of(stored.table(value::kType), result, 0);
    return result;
  }

  void type_of(const Table& stored, onnx::ValueInfo& result, int depth) {
    check_depth(depth);
    const Table kind = stored.table(type::kValue);
    switch (stored.scalar<std::uint8_t>(type::kKind)) {
      case type::kTensor:
        result.dtype = element_type(kind.scalar<std::int32_t>(type::kElement), result.name);
        if (kind.has(type::kShape)) shape_of(kind.table(type::kShape), result);
        break;
      case type::kSequence:
        result.is_tensor = false;
        type_of(kind.table(0), result, depth + 1);
        break;
      case type::kMap:
        result.is_tensor = false;
        type_of(kind.table(type::kMapValue), result, depth + 1);
        break;
      default:
        break;
    }
  }

  void shape_of(const Table& stored, onnx::ValueInfo& result) {
    const References axes = stored.references(dimension::kValue);
    check_rank(axes.size(), result.name);
    const auto shape = arena_list<std::int64_t>(arena_, axes.size());
    std::array<Text, kMaxRank> symbols{};
    bool named = false;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const Table dim = axes.table(i).table(dimension::kValue);
      const auto kind = dim.scalar<std::int8_t>(dimension::kKind);
      shape[i] = kind == dimension::kFixed ? dim.scalar<std::int64_t>(dimension::kNumber) : kUnknownDim;
      if (shape[i] < kUnknownDim) fail_dimension(result.name, shape[i]);
      if (kind != dimension::kNamed || onnx::is_placeholder(dim.text(dimension::kName))) continue;
      symbols[i] = dim.text(dimension::kName);
      named = true;
    }
    result.has_shape = true;
    result.shape = shape;
    if (named) result.symbols = arena_copy(arena_, std::span<const Text>(symbols).first(shape.size()));
  }

  // ---- Lists and bounds

  std::span<const Text> texts(const References& stored) {
    const auto list = arena_list<Text>(arena_, stored.size());
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = stored.text(i);
    return list;
  }

  std::span<const std::int64_t> integers(const Numbers<std::int64_t>& stored) {
    const auto list = arena_list<std::int64_t>(arena_, stored.size());
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = stored[i];
    return list;
  }

  std::span<const std::int64_t> dims(const Numbers<std::int64_t>& stored, Text name) {
    check_rank(stored.size(), name);
    return integers(stored);
  }

  void check_rank(std::size_t rank, Text name) const {
    if (rank <= kMaxRank) return;
    throw Error(ErrorCode::limit, "value " + quoted(name) + " has " + std::to_string(rank) + " dimensions; at most " +
                                      std::to_string(kMaxRank) + " are allowed");
  }

  [[noreturn]] static void fail_dimension(Text name, std::int64_t size) {
    throw Error(ErrorCode::limit, "value " + quoted(name) + " has a dimension of " + std::to_string(size) +
                                      "; dimensions must be 0 or more");
  }

  void count_nodes(std::size_t more) {
    nodes_ += more;
    if (nodes_ <= limits_.nodes) return;
    throw Error(ErrorCode::limit, "the model has " + std::to_string(nodes_) + " nodes or more; at most " +
                                      std::to_string(limits_.nodes) + " are allowed");
  }

  void check_depth(int depth) const {
    if (depth <= limits_.nesting) return;
    throw Error(ErrorCode::limit, "subgraphs or types nested more than " + std::to_string(limits_.nesting) +
                                      " deep; at most " + std::to_string(limits_.nesting) + " levels are allowed");
  }

  /// Of a TensorProto.DataType number, which the format shares.
  static DType element_type(std::int32_t number, Text name) {
    const DType found = onnx::data_type(number);
    if (found != DType::undefined || number == 0) return found;
    throw Error(ErrorCode::unsupported,
                "value " + quoted(name) + " has element type " + std::to_string(number) + ", which is not known");
  }

  static std::int64_t checked(const onnx::Constant& constant) {
    try {
      return checked_elements(constant.shape);
    } catch (const Error& e) {
      throw Error(e.code(), "constant " + quoted(constant.name) + ": " + e.what());
    }
  }

  const flatbuffer::Source& file_;
  const OnnxLimits& limits_;
  std::pmr::memory_resource& arena_;
  std::size_t nodes_ = 0;
};

}  // namespace

onnx::Model read_model(const flatbuffer::Source& file, const OnnxLimits& limits, std::pmr::memory_resource& arena) {
  return Reader(file, limits, arena).read();
}

}  // namespace perfpass::ort
