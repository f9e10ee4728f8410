// Messages and field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
#include "graph_writer.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

namespace perfpass::ort {
namespace {

// AttributeProto.type
enum AttributeType : std::uint64_t { kFloat = 1, kInt, kString, kTensor, kGraph, kFloats, kInts, kStrings };

/// TensorProto.data_type of an element type; the numbers part after 23.
/// https://github.com/microsoft/onnxruntime/blob/main/include/onnxruntime/core/session/onnxruntime_c_api.h
std::uint64_t data_type(ONNXTensorElementDataType type) {
  switch (static_cast<int>(type)) {
    case 24:
      return 25;  // uint2
    case 25:
      return 26;  // int2
    case 26:
      return 24;  // float8e8m0
    default:
      return static_cast<std::uint64_t>(type);
  }
}

/// Bytes of an element of the types whose small constants can decide a shape, and how many elements are small. The same
/// bounds as the reader's (docs/internals/onnx-reader.md): what it would not read is not copied.
struct Readable {
  std::size_t width = 0;
  std::int64_t most = -1;
};
Readable readable(ONNXTensorElementDataType type) {
  constexpr std::int64_t kMostIntegers = 4096;
  constexpr std::int64_t kMostReals = 64;
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64:
      return {8, kMostIntegers};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32:
      return {4, kMostIntegers};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
      return {1, kMostIntegers};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE:
      return {8, kMostReals};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return {4, kMostReals};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16:
      return {2, kMostReals};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
      return {1, kMostReals};
    default:
      return {};
  }
}

/// The number of elements, or one past every bound where it is larger.
std::int64_t elements(std::span<const std::int64_t> dims) {
  constexpr std::int64_t kMany = std::int64_t{1} << 31;
  std::int64_t product = 1;
  for (const std::int64_t d : dims) {
    if (d < 0) return kMany;
    product = d >= kMany ? kMany : std::min(product * d, kMany);
    if (d == 0) return 0;
  }
  return product;
}

/// Objects that the C API hands over and its caller releases.
template <typename T>
using Owned = std::unique_ptr<T, void(ORT_API_CALL*)(T*)>;

/// The first lines of an object that is read soon: right after optimisation little of the graph is in the cache.
void prefetch(const void* object) {
  const char* at = static_cast<const char*>(object);
  __builtin_prefetch(at);
  __builtin_prefetch(at + 64);
}

}  // namespace

WireWriter GraphWriter::model(const OrtGraph* graph) {
  std::size_t nodes = 0, initializers = 0, opsets = 0;
  runtime_.check(api_.Graph_GetNumNodes(graph, &nodes));
  runtime_.check(api_.Graph_GetNumInitializers(graph, &initializers));
  WireWriter out(4096 + 224 * nodes + 96 * initializers, kMostBytes);

  runtime_.check(api_.Graph_GetNumOperatorSets(graph, &opsets));
  std::vector<const char*> domains(opsets);
  std::vector<std::int64_t> versions(opsets);
  runtime_.check(api_.Graph_GetOperatorSets(graph, domains.data(), versions.data(), opsets));
  for (std::size_t i = opsets; i-- > 0;) {
    const std::size_t mark = out.mark();
    out.number(2, static_cast<std::uint64_t>(versions[i]));
    out.text(1, domains[i]);
    out.close(8, mark);
  }
  const std::size_t mark = out.mark();
  this->graph(out, graph, 0);
  out.close(7, mark);
  std::int64_t ir_version = 0;
  runtime_.check(api_.Graph_GetOnnxIRVersion(graph, &ir_version));
  out.number(1, static_cast<std::uint64_t>(ir_version));
  return out;
}

void GraphWriter::graph(WireWriter& out, const OrtGraph* graph, int depth) {
  if (depth > kDeepest) throw std::length_error("subgraphs nest more than " + std::to_string(kDeepest) + " deep");
  std::size_t count = 0;
  std::vector<const OrtValueInfo*> values;
  const auto each_reversed = [&](const auto& write) {
    for (std::size_t i = count; i-- > 0;) {
      if (values[i] != nullptr) write(values[i]);
    }
  };
  runtime_.check(api_.Graph_GetNumOutputs(graph, &count));
  values.resize(count);
  runtime_.check(api_.Graph_GetOutputs(graph, values.data(), count));
  each_reversed([&](const OrtValueInfo* info) { value(out, 12, info, name_of(info), false); });

  runtime_.check(api_.Graph_GetNumInputs(graph, &count));
  values.resize(count);
  runtime_.check(api_.Graph_GetInputs(graph, values.data(), count));
  each_reversed([&](const OrtValueInfo* info) { value(out, 11, info, name_of(info), true); });

  runtime_.check(api_.Graph_GetNumInitializers(graph, &count));
  values.resize(count);
  runtime_.check(api_.Graph_GetInitializers(graph, values.data(), count));
  each_reversed([&](const OrtValueInfo* info) { initializer(out, info); });

  const char* name = nullptr;
  runtime_.check(api_.Graph_GetName(graph, &name));
  out.text(2, name);

  runtime_.check(api_.Graph_GetNumNodes(graph, &count));
  std::vector<const OrtNode*> nodes(count);
  runtime_.check(api_.Graph_GetNodes(graph, nodes.data(), count));
  nodes_ += count;
  for (std::size_t i = count; i-- > 0;) {
    if (i > 3) prefetch(nodes[i - 3]);
    node(out, nodes[i], depth);
  }
}

void GraphWriter::node(WireWriter& out, const OrtNode* node, int depth) {
  const std::size_t mark = out.mark();
  const char* text = nullptr;
  runtime_.check(api_.Node_GetDomain(node, &text));
  if (*text != '\0') out.text(7, text);
  std::size_t count = 0;
  runtime_.check(api_.Node_GetNumSubgraphs(node, &count));
  if (count > 0) subgraphs(out, node, depth);
  runtime_.check(api_.Node_GetNumOutputs(node, &count));
  outputs_.resize(count);
  names_.resize(count);
  runtime_.check(api_.Node_GetOutputs(node, outputs_.data(), count));
  for (const OrtValueInfo* v : outputs_) prefetch(v);
  runtime_.check(api_.Node_GetNumInputs(node, &count));
  inputs_.resize(count);
  runtime_.check(api_.Node_GetInputs(node, inputs_.data(), count));
  for (const OrtValueInfo* v : inputs_) prefetch(v);
  attributes(out, node);
  runtime_.check(api_.Node_GetOperatorType(node, &text));
  out.text(4, text);
  runtime_.check(api_.Node_GetName(node, &text));
  if (*text != '\0') out.text(3, text);

  for (std::size_t i = outputs_.size(); i-- > 0;) {
    names_[i] = outputs_[i] == nullptr ? "" : name_of(outputs_[i]);
    out.text(2, names_[i]);
  }
  for (std::size_t i = inputs_.size(); i-- > 0;) out.text(1, inputs_[i] == nullptr ? "" : name_of(inputs_[i]));
  out.close(1, mark);
  for (std::size_t i = outputs_.size(); i-- > 0;) {
    if (outputs_[i] != nullptr) value(out, 13, outputs_[i], names_[i], false);
  }
}

void GraphWriter::subgraphs(WireWriter& out, const OrtNode* node, int depth) {
  std::size_t count = 0;
  runtime_.check(api_.Node_GetNumSubgraphs(node, &count));
  std::vector<const OrtGraph*> graphs(count);
  std::vector<const char*> names(count);
  runtime_.check(api_.Node_GetSubgraphs(node, graphs.data(), count, names.data()));
  for (std::size_t i = count; i-- > 0;) {
    const std::size_t mark = out.mark();
    out.number(20, kGraph);
    const std::size_t body = out.mark();
    graph(out, graphs[i], depth + 1);
    out.close(6, body);
    out.text(1, names[i]);
    out.close(5, mark);
  }
}

void GraphWriter::attributes(WireWriter& out, const OrtNode* node) {
  std::size_t count = 0;
  runtime_.check(api_.Node_GetNumAttributes(node, &count));
  if (count == 0) return;
  attributes_.resize(count);
  runtime_.check(api_.Node_GetAttributes(node, attributes_.data(), count));
  for (const OrtOpAttr* a : attributes_) prefetch(a);
  for (std::size_t i = count; i-- > 0;) {
    if (attributes_[i] != nullptr) attribute(out, attributes_[i]);
  }
}

void GraphWriter::attribute(WireWriter& out, const OrtOpAttr* attribute) {
  OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
  if (OrtStatus* status = api_.OpAttr_GetType(attribute, &type); status != nullptr) {
    api_.ReleaseStatus(status);  // a kind that has no number here (sparse tensors, types): nothing reads those
    return;
  }
  if (type == ORT_OP_ATTR_UNDEFINED || type == ORT_OP_ATTR_GRAPH) return;
  const std::size_t mark = out.mark();
  if (type == ORT_OP_ATTR_TENSOR) {
    OrtValue* made = nullptr;
    runtime_.check(api_.OpAttr_GetTensorAttributeAsOrtValue(attribute, &made));
    const Owned<OrtValue> contents(made, api_.ReleaseValue);
    if (contents == nullptr) return;
    OrtTensorTypeAndShapeInfo* described = nullptr;
    runtime_.check(api_.GetTensorTypeAndShape(contents.get(), &described));
    const Owned<OrtTensorTypeAndShapeInfo> info(described, api_.ReleaseTensorTypeAndShapeInfo);
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    runtime_.check(api_.GetTensorElementType(info.get(), &element));
    read_dims(info.get());
    out.number(20, kTensor);
    const std::size_t body = out.mark();
    tensor(out, element, contents.get());
    out.close(5, body);
  } else {
    std::size_t size = 0;
    OrtStatus* status = api_.ReadOpAttr(attribute, type, scratch_.data(), scratch_.size(), &size);
    if (status != nullptr && size > scratch_.size() && size <= kLongestAttribute) {
      api_.ReleaseStatus(status);
      scratch_.resize(size);
      status = api_.ReadOpAttr(attribute, type, scratch_.data(), scratch_.size(), &size);
    }
    if (status != nullptr) {
      api_.ReleaseStatus(status);
      size = 0;
      if (type == ORT_OP_ATTR_INT || type == ORT_OP_ATTR_FLOAT) return;
    }
    const char* data = scratch_.data();
    if (type == ORT_OP_ATTR_INT) {
      std::int64_t integer;
      std::memcpy(&integer, data, sizeof integer);
      out.number(20, kInt);
      out.number(3, static_cast<std::uint64_t>(integer));
    } else if (type == ORT_OP_ATTR_FLOAT) {
      float real;
      std::memcpy(&real, data, sizeof real);
      out.number(20, kFloat);
      out.real(2, real);
    } else if (type == ORT_OP_ATTR_STRING) {
      out.number(20, kString);
      if (size > 0 && data[size - 1] == '\0') --size;  // some releases count the terminator, others do not
      out.text(4, {data, size});
    } else if (type == ORT_OP_ATTR_INTS) {
      out.number(20, kInts);
      const std::size_t body = out.mark();
      for (std::size_t i = size / sizeof(std::int64_t); i-- > 0;) {
        std::int64_t integer;
        std::memcpy(&integer, data + i * sizeof integer, sizeof integer);
        out.packed(static_cast<std::uint64_t>(integer));
      }
      if (out.mark() > body) out.close(8, body);
    } else if (type == ORT_OP_ATTR_FLOATS) {
      out.number(20, kFloats);
      if (size > 0) out.text(7, {data, size});
    } else if (type == ORT_OP_ATTR_STRINGS) {
      out.number(20, kStrings);
      std::vector<std::string_view> texts;  // they lie one after the other, each with its terminator
      for (std::size_t at = 0; at < size; at += texts.back().size() + 1) {
        texts.emplace_back(data + at, ::strnlen(data + at, size - at));
      }
      for (std::size_t i = texts.size(); i-- > 0;) out.text(9, texts[i]);
    }
  }
  const char* name = nullptr;
  runtime_.check(api_.OpAttr_GetName(attribute, &name));
  out.text(1, name);
  out.close(5, mark);
}

void GraphWriter::value(WireWriter& out, std::uint32_t field, const OrtValueInfo* info, std::string_view name,
                        bool is_input) {
  const OrtTypeInfo* described = nullptr;
  runtime_.check(api_.GetValueInfoTypeInfo(info, &described));
  if (described == nullptr && field == 13) return;
  const std::size_t mark = out.mark();
  if (described != nullptr) {
    type(out, described, is_input, 0);
    out.close(2, mark);
  }
  out.text(1, name);
  out.close(field, mark);
}

/// The fields of a TypeProto.
void GraphWriter::type(WireWriter& out, const OrtTypeInfo* info, bool is_input, int depth) {
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  runtime_.check(api_.CastTypeInfoToTensorInfo(info, &tensor));
  if (tensor != nullptr) {
    const std::size_t mark = out.mark();
    tensor_type(out, tensor, is_input);
    out.close(1, mark);
    return;
  }
  if (depth > kDeepest) throw std::length_error("types nest more than " + std::to_string(kDeepest) + " deep");
  ONNXType kind = ONNX_TYPE_UNKNOWN;
  runtime_.check(api_.GetOnnxTypeFromTypeInfo(info, &kind));
  OrtTypeInfo* element = nullptr;
  if (kind == ONNX_TYPE_SEQUENCE) {
    const OrtSequenceTypeInfo* sequence = nullptr;
    runtime_.check(api_.CastTypeInfoToSequenceTypeInfo(info, &sequence));
    runtime_.check(api_.GetSequenceElementType(sequence, &element));
    contained_type(out, 4, element, is_input, depth);
  } else if (kind == ONNX_TYPE_MAP) {
    const OrtMapTypeInfo* map = nullptr;
    runtime_.check(api_.CastTypeInfoToMapTypeInfo(info, &map));
    runtime_.check(api_.GetMapValueType(map, &element));
    contained_type(out, 5, element, is_input, depth);
  } else if (kind == ONNX_TYPE_OPTIONAL) {
    const OrtOptionalTypeInfo* optional = nullptr;
    runtime_.check(api_.CastTypeInfoToOptionalTypeInfo(info, &optional));
    runtime_.check(api_.GetOptionalContainedTypeInfo(optional, &element));
    contained_type(out, 9, element, is_input, depth);
  }
}

/// A sequence (4), map (5) or optional (9) of what `owned` describes.
void GraphWriter::contained_type(WireWriter& out, std::uint32_t field, OrtTypeInfo* owned, bool is_input, int depth) {
  const Owned<OrtTypeInfo> info(owned, api_.ReleaseTypeInfo);
  const std::size_t mark = out.mark();
  type(out, info.get(), is_input, depth + 1);
  out.close(field == 5 ? 2 : 1, mark);
  out.close(field, mark);
}

void GraphWriter::read_dims(const OrtTensorTypeAndShapeInfo* info) {
  std::size_t rank = 0;
  runtime_.check(api_.GetDimensionsCount(info, &rank));
  dims_.resize(rank);
  if (rank > 0) runtime_.check(api_.GetDimensions(info, dims_.data(), rank));
}

/// The fields of a TypeProto.Tensor.
void GraphWriter::tensor_type(WireWriter& out, const OrtTensorTypeAndShapeInfo* info, bool is_input) {
  read_dims(info);
  const std::size_t rank = dims_.size();
  const bool open = std::any_of(dims_.begin(), dims_.end(), [](std::int64_t d) { return d < 0; });
  if (open) {
    symbols_.assign(rank, nullptr);
    runtime_.check(api_.GetSymbolicDimensions(info, symbols_.data(), rank));
  }
  const std::size_t mark = out.mark();
  for (std::size_t i = rank; i-- > 0;) {
    const std::size_t dim = out.mark();
    if (dims_[i] >= 0) {
      out.number(1, static_cast<std::uint64_t>(dims_[i]));
    } else if (symbols_[i] != nullptr && *symbols_[i] != '\0') {
      out.text(2, symbols_[i]);
    }
    out.close(1, dim);
  }
  // Where a scalar cannot be told from an unknown rank, an input is taken for a scalar and the shape of everything else
  // is left to inference.
  const bool known = rank > 0 || (runtime_.has_shape != nullptr ? runtime_.has_shape(info) : is_input);
  if (known) out.close(2, mark);
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  runtime_.check(api_.GetTensorElementType(info, &type));
  out.number(1, data_type(type));
}

void GraphWriter::initializer(WireWriter& out, const OrtValueInfo* info) {
  const OrtTypeInfo* described = nullptr;
  runtime_.check(api_.GetValueInfoTypeInfo(info, &described));
  const OrtTensorTypeAndShapeInfo* shaped = nullptr;
  if (described != nullptr) runtime_.check(api_.CastTypeInfoToTensorInfo(described, &shaped));
  if (shaped == nullptr) return;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  runtime_.check(api_.GetTensorElementType(shaped, &type));
  read_dims(shaped);
  const OrtValue* contents = nullptr;
  if (elements(dims_) <= readable(type).most) {
    OrtExternalInitializerInfo* place = nullptr;
    runtime_.check(api_.ValueInfo_GetExternalInitializerInfo(info, &place));
    const Owned<OrtExternalInitializerInfo> external(place, api_.ReleaseExternalInitializerInfo);
    if (external == nullptr) runtime_.check(api_.ValueInfo_GetInitializerValue(info, &contents));
  }
  const std::size_t mark = out.mark();
  out.text(8, name_of(info));
  tensor(out, type, contents);
  out.close(5, mark);
}

/// The fields of a TensorProto of the shape in dims_, but its name. `contents` is read where it is small enough to
/// decide a shape.
void GraphWriter::tensor(WireWriter& out, ONNXTensorElementDataType type, const OrtValue* contents) {
  const Readable kind = readable(type);
  if (const std::int64_t size = elements(dims_); contents != nullptr && size > 0 && size <= kind.most) {
    void* data = nullptr;
    runtime_.check(api_.GetTensorMutableData(const_cast<OrtValue*>(contents), &data));
    if (data != nullptr) out.text(9, {static_cast<const char*>(data), static_cast<std::size_t>(size) * kind.width});
  }
  out.number(2, data_type(type));
  const std::size_t mark = out.mark();
  for (std::size_t i = dims_.size(); i-- > 0;) out.packed(static_cast<std::uint64_t>(dims_[i]));
  if (out.mark() > mark) out.close(1, mark);
}

const char* GraphWriter::name_of(const OrtValueInfo* info) const {
  const char* name = nullptr;
  runtime_.check(api_.GetValueInfoName(info, &name));
  return name;
}

}  // namespace perfpass::ort
