// Tensors of a subgraph: their types, shapes and names, and which constants its nodes read in which form.
#include "tflite/subgraph.hpp"

#include <algorithm>
#include <numeric>

#include "onnx/contents.hpp"
#include "perfpass/error.hpp"
#include "support/arena_list.hpp"
#include "support/text.hpp"
#include "tflite/schema.hpp"

namespace perfpass::tflite {
namespace {

/// TensorType by number. Types of two bits count as the next wider type of the core.
constexpr std::array kTypes = {DType::float32, DType::float16,    DType::int32,  DType::uint8,     DType::int64,
                               DType::string,  DType::boolean,    DType::int16,  DType::complex64, DType::int8,
                               DType::float64, DType::complex128, DType::uint64, DType::undefined, DType::undefined,
                               DType::uint32,  DType::uint16,     DType::int4,   DType::bfloat16,  DType::int4,
                               DType::uint4,   DType::float8,     DType::float8};

DType type_of(std::int8_t number, Text tensor) {
  if (number >= 0 && static_cast<std::size_t>(number) < kTypes.size()) return kTypes[number];
  throw Error(ErrorCode::unsupported, "tensor " + quoted(tensor) + " has element type " + std::to_string(number) +
                                          "; known are 0 to " + std::to_string(kTypes.size() - 1));
}

/// Where the contents of a buffer are, and how long they are; nothing for an empty one.
Extent contents_of(const File& file, const Table& stored, bool& is_constant) {
  const auto number = stored.scalar<std::uint32_t>(tensor::kBuffer);
  is_constant = stored.scalar<std::uint32_t>(tensor::kExternalBuffer) > 0;
  if (number == 0) return {};
  if (number >= file.buffers.size()) {
    throw Error(ErrorCode::format, "tensor " + quoted(stored.text(tensor::kName)) + " is in buffer " +
                                       std::to_string(number) + " of " + std::to_string(file.buffers.size()) +
                                       "; the file is damaged");
  }
  const Table found = file.buffers.table(number);
  const Extent inside = found.bytes(buffer::kData);
  const Extent behind = {found.scalar<std::uint64_t>(buffer::kOffset), found.scalar<std::uint64_t>(buffer::kSize)};
  is_constant = is_constant || inside.length > 0 || (behind.at > 1 && behind.length > 0);
  return inside.length > 0 ? inside : behind.at > 1 ? behind : Extent{};
}

std::size_t width_of(DType dtype) { return static_cast<std::size_t>(bits_of(dtype)) / 8; }

/// Floating contents that may decide a shape: a range's ends, an extent for every axis. A bias of 64 does not.
constexpr std::int64_t kMostReals = kMaxRank;

bool is_integer(DType dtype) { return dtype == DType::boolean || (!is_floating(dtype) && bits_of(dtype) >= 8); }

}  // namespace

Table subgraph_table(const File& file, std::int64_t index) {
  if (index < 0 || index >= static_cast<std::int64_t>(file.subgraphs.size())) {
    throw Error(ErrorCode::format, "subgraph " + std::to_string(index) + " of " +
                                       std::to_string(file.subgraphs.size()) + " is called; the file is damaged");
  }
  return file.subgraphs.table(static_cast<std::size_t>(index));
}

std::vector<std::size_t> builtins_of(const References& codes) {
  std::vector<std::size_t> found(codes.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Table code = codes.table(i);
    const auto old = static_cast<std::int32_t>(code.scalar<std::int8_t>(operator_code::kOldBuiltin));
    const std::int32_t number = std::max(old, code.scalar<std::int32_t>(operator_code::kBuiltin));
    found[i] = number < 0 ? builtins().size() : static_cast<std::size_t>(number);
  }
  return found;
}

std::size_t builtin_of(const File& file, const Table& node) {
  const auto index = node.scalar<std::uint32_t>(node::kCode);
  if (index < file.builtins.size()) return file.builtins[index];
  throw Error(ErrorCode::format, "an operator is of kind " + std::to_string(index) + " of " +
                                     std::to_string(file.builtins.size()) + "; the file is damaged");
}

std::optional<std::int64_t> integer_of(const File& file, const Table& subgraph, std::int32_t tensor) {
  const References tensors = subgraph.references(subgraph::kTensors);
  if (tensor < 0 || static_cast<std::size_t>(tensor) >= tensors.size()) return std::nullopt;
  const Table stored = tensors.table(static_cast<std::size_t>(tensor));
  const DType dtype = type_of(stored.scalar<std::int8_t>(tensor::kType), stored.text(tensor::kName));
  bool is_constant = false;
  const Extent data = contents_of(file, stored, is_constant);
  if (!is_integer(dtype) || data.length != width_of(dtype)) return std::nullopt;
  return static_cast<std::int64_t>(onnx::element_bits(dtype, {file.source.at(data.at, data.length), data.length}));
}

Text function_name(const File& file, std::int64_t subgraph) {
  return arena_text(file.arena, "subgraph " + std::to_string(subgraph));
}

Subgraph::Subgraph(const File& file, std::int64_t index) : file_(file), table_(subgraph_table(file, index)) {
  read_tensors();
  const auto list = [&](unsigned slot, std::vector<std::int32_t>& numbers) {
    const auto stored = table_.numbers<std::int32_t>(slot);
    for (std::size_t i = 0; i < stored.size(); ++i) numbers.push_back(tensor_number(stored[i], false));
  };
  list(subgraph::kInputs, inputs_);
  list(subgraph::kOutputs, outputs_);
  for (const std::int32_t input : inputs_) tensors_[input].is_fed = true;
  for (const std::int32_t output : outputs_) tensors_[output].is_output = true;
  const References operators = table_.references(subgraph::kOperators);
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const auto written = operators.table(i).numbers<std::int32_t>(node::kOutputs);
    for (std::size_t k = 0; k < written.size(); ++k) {
      const std::int32_t number = tensor_number(written[k], true);
      if (number >= 0) tensors_[number].is_fed = true;
    }
  }
}

void Subgraph::read_tensors() {
  const References stored = table_.references(subgraph::kTensors);
  tensors_.resize(stored.size());
  names_ = onnx::NameTable(stored.size());
  named_.resize(stored.size());
  std::iota(named_.begin(), named_.end(), 0);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const Table table = stored.table(i);
    Tensor& tensor = tensors_[i];
    tensor.name = table.text(tensor::kName);
    if (tensor.name.empty() || !names_.insert(tensor.name).second) {
      tensor.name = joined(tensor.name, "#" + std::to_string(i));
      if (!names_.insert(tensor.name).second) {
        throw Error(ErrorCode::graph, "two tensors are named " + quoted(tensor.name) + "; names must be unique");
      }
    }
    tensor.dtype = type_of(table.scalar<std::int8_t>(tensor::kType), tensor.name);
    tensor.data = contents_of(file_, table, tensor.is_constant);
    tensor.is_quantized = table.has(tensor::kQuantization) &&
                          table.table(tensor::kQuantization).has(quantization::kScale) &&
                          table.table(tensor::kQuantization).numbers<float>(quantization::kScale).size() > 0;
    const auto shape = table.numbers<std::int32_t>(tensor::kShape);
    const auto open = table.numbers<std::int32_t>(tensor::kSignature);
    const auto& dims = open.size() > 0 ? open : shape;
    if (dims.size() > kMaxRank) {
      throw Error(ErrorCode::limit, "tensor " + quoted(tensor.name) + " has " + std::to_string(dims.size()) +
                                        " dimensions; at most " + std::to_string(kMaxRank) + " are allowed");
    }
    const auto list = arena_list<std::int64_t>(file_.arena, dims.size());
    for (std::size_t d = 0; d < list.size(); ++d) {
      list[d] = dims[d];
      if (list[d] >= kUnknownDim && (list[d] >= 0 || !tensor.is_constant)) continue;
      throw Error(ErrorCode::limit, "tensor " + quoted(tensor.name) + " has a dimension of " + std::to_string(list[d]) +
                                        "; dimensions must be 0 or more");
    }
    tensor.shape = list;
    // Without dimensions: a scalar, or a shape that the converter did not know.
    tensor.has_shape = !list.empty() || tensor.is_constant || table.scalar<std::uint8_t>(tensor::kHasRank) != 0;
    if (tensor.is_constant) checked_elements(list);
  }
}

void Subgraph::fail_number(std::int32_t number) const {
  throw Error(ErrorCode::format, "a node or subgraph names tensor " + std::to_string(number) + " of " +
                                     std::to_string(tensors_.size()) + "; the file is damaged");
}

void Subgraph::rename(std::int32_t tensor, Text name) {
  if (name.empty() || tensor < 0 || static_cast<std::size_t>(tensor) >= tensors_.size()) return;
  const auto [position, is_new] = names_.insert(name);
  if (is_new) {
    named_.push_back(tensor);
  } else if (tensors_[named_[position]].name == name) {
    return;
  }
  named_[position] = tensor;
  tensors_[tensor].name = name;
}

onnx::ValueInfo Subgraph::info_of(std::int32_t number) const {
  const Tensor& tensor = tensors_[number];
  onnx::ValueInfo info;
  info.name = tensor.name;
  info.dtype = tensor.dtype;
  info.has_shape = tensor.has_shape;
  info.shape = tensor.shape;
  return info;
}

std::span<const onnx::ValueInfo> Subgraph::inputs() {
  const auto list = arena_list<onnx::ValueInfo>(file_.arena, inputs_.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = info_of(inputs_[i]);
    list[i].has_shape = true;  // without dimensions: a scalar
  }
  return list;
}

std::span<const onnx::ValueInfo> Subgraph::outputs() {
  const auto list = arena_list<onnx::ValueInfo>(file_.arena, outputs_.size());
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = info_of(outputs_[i]);
  return list;
}

std::span<const Text> Subgraph::input_names() {
  const auto list = arena_list<Text>(file_.arena, inputs_.size());
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = tensors_[inputs_[i]].name;
  return list;
}

std::span<const Text> Subgraph::output_names() {
  const auto list = arena_list<Text>(file_.arena, outputs_.size());
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = tensors_[outputs_[i]].name;
  return list;
}

Text Subgraph::joined(Text name, std::string_view part) {
  return arena_text(file_.arena, std::string(name) + std::string(part));
}

std::span<const std::int64_t> Subgraph::viewed(std::span<const std::int64_t> shape, View view) const {
  const auto picked = [&](std::initializer_list<std::size_t> axes) {
    const auto list = arena_list<std::int64_t>(file_.arena, axes.size());
    std::transform(axes.begin(), axes.end(), list.begin(), [&](std::size_t axis) { return shape[axis]; });
    return std::span<const std::int64_t>(list);
  };
  switch (view) {
    case View::outputs_first:  // [outputs, height, width, inputs]
      return shape.size() == 4 ? picked({0, 3, 1, 2}) : shape;
    case View::depthwise:  // [1, height, width, outputs]
      return shape.size() == 4 && shape[0] == 1 ? picked({3, 0, 1, 2}) : shape;
    case View::spatial_first:  // [depth, height, width, inputs, outputs]
      return shape.size() == 5 ? picked({4, 3, 0, 1, 2}) : shape;
    case View::transposed:  // [outputs, height, width, inputs] to inputs first
      return shape.size() == 4 ? picked({3, 0, 1, 2}) : shape;
    case View::kernel_last:  // [depth, height, width, outputs, inputs] to inputs first
      return shape.size() == 5 ? picked({4, 3, 0, 1, 2}) : shape;
    case View::unused:
    case View::as_stored:
      break;
  }
  return shape;
}

/// The name under which a node reads a tensor. A constant is declared when a node first reads it, and once more for
/// every other form in which it is read.
Text Subgraph::operand(std::int32_t number, View view) {
  if (number < 0) return {};
  const std::int32_t stored = tensors_[number].source >= 0 ? tensors_[number].source : number;
  Tensor& tensor = tensors_[stored];
  if (tensor.is_fed) return tensor.name;
  if (tensor.view == view) return tensor.name;
  Text name = tensor.name;
  if (tensor.view != View::unused) {
    name = joined(name, "#" + std::to_string(static_cast<int>(view)));
    if (!names_.insert(name).second) return name;
  } else {
    tensor.view = view;
  }
  onnx::Constant& constant = constants_.emplace_back();
  constant.name = name;
  constant.dtype = tensors_[number].dtype;
  constant.shape = viewed(tensor.shape, view);
  constant.is_weight = tensor.is_constant && tensor.is_quantized && !tensor.shape.empty();
  constant.is_literal = !tensor.is_constant;  // a variable: its contents are what earlier runs left
  if (!tensor.is_constant && !tensor.has_shape) constant.shape = {};
  for (const std::int64_t d : constant.shape) {
    if (d < 0)
      throw Error(ErrorCode::shape, "tensor " + quoted(name) + " is written by no node and has no fixed shape");
  }
  if (view == View::as_stored && stored == number && !tensor.is_quantized) {
    const std::int64_t elements = checked_elements(constant.shape);
    std::int64_t most = onnx::most_contents(tensor.dtype, file_.limits);
    if (is_floating(tensor.dtype)) most = std::min(most, kMostReals);
    if (tensor.is_constant && elements <= most && elements > 0 &&
        tensor.data.length == static_cast<std::uint64_t>(elements) * width_of(tensor.dtype)) {
      onnx::set_contents(constant, bytes_of(tensor), static_cast<std::size_t>(elements), file_.arena);
    }
  }
  return name;
}

std::span<Text> Subgraph::operands(const Operation& operation, std::size_t first) {
  const std::size_t size = std::max(first, operation.inputs.size()) - first;
  const auto names = arena_list<Text>(file_.arena, size);
  for (std::size_t i = 0; i < size; ++i) names[i] = operand(operation.inputs[first + i]);
  return names;
}

/// The names of what an operation writes, empty where it leaves one out; of fewer than `least`, the rest are empty.
std::span<Text> Subgraph::written(const Operation& operation, std::size_t least) const {
  const auto names = arena_list<Text>(file_.arena, std::max(least, operation.outputs.size()));
  for (std::size_t i = 0; i < operation.outputs.size(); ++i) {
    if (operation.outputs[i] >= 0) names[i] = tensors_[operation.outputs[i]].name;
  }
  return names;
}

Subgraph::Names Subgraph::kept(std::initializer_list<Text> names) const {
  return arena_copy(file_.arena, std::span<const Text>(names.begin(), names.size()));
}

Subgraph::Names Subgraph::kept(const std::vector<Text>& names) const {
  return arena_copy(file_.arena, std::span<const Text>(names));
}

Text Subgraph::constant(Text name, DType dtype, std::span<const std::int64_t> shape, bool is_weight) {
  onnx::Constant& made = constants_.emplace_back();
  made.name = joined(name, "#made " + std::to_string(made_++));
  made.dtype = dtype;
  made.shape = arena_copy(file_.arena, shape);
  made.is_weight = is_weight;
  return made.name;
}

Text Subgraph::scalar(Text name, DType dtype, std::int64_t value) {
  const Text made = constant(name, dtype, {}, false);
  constants_.back().has_values = true;
  constants_.back().integers = arena_copy(file_.arena, std::span<const std::int64_t>(&value, 1));
  return made;
}

/// The integers of a small constant; nothing where the tensor is none.
std::optional<std::span<const std::int64_t>> Subgraph::contents(std::int32_t number) const {
  if (number < 0) return std::nullopt;
  const Tensor& tensor = tensors_[number];
  if (!tensor.is_constant || tensor.is_fed || !is_integer(tensor.dtype)) return std::nullopt;
  const std::int64_t elements = checked_elements(tensor.shape);
  if (elements > kMaxRank || tensor.data.length != static_cast<std::uint64_t>(elements) * width_of(tensor.dtype)) {
    return std::nullopt;
  }
  onnx::Constant read;
  read.dtype = tensor.dtype;
  onnx::set_contents(read, bytes_of(tensor), static_cast<std::size_t>(elements), file_.arena);
  return read.integers;
}

std::span<const std::uint8_t> Subgraph::bytes_of(const Tensor& tensor) const {
  return {file_.source.at(tensor.data.at, tensor.data.length), static_cast<std::size_t>(tensor.data.length)};
}

void Subgraph::emit(const Operator* op, Names inputs, Names outputs, const Options& options) {
  onnx::Node& node = nodes_.emplace_back();
  node.op_type = op->name;
  node.domain = kDomain;
  node.name = outputs.front();
  node.inputs = inputs;
  node.outputs = outputs;
  node.attributes = arena_copy(file_.arena, options.list());
  node.entry = op;
}

/// The node of an operation, and the node of its fused activation. Quantized kernels clamp what they write anyway.
void Subgraph::finish(const Operation& operation, Names inputs, const Options& options) {
  const std::span<Text> outputs = written(operation, 1);
  if (outputs.front().empty()) outputs.front() = joined({}, "#written " + std::to_string(made_++));
  const Builtin* builtin = operation.code < builtins().size() ? &builtins()[operation.code] : nullptr;
  const Operator* follows = nullptr;
  if (builtin != nullptr && builtin->activation >= 0 && !operation.quantized) {
    follows = activation(operation.options.scalar<std::int8_t>(static_cast<unsigned>(builtin->activation)));
  }
  if (follows == nullptr) {
    emit(operation.op, inputs, outputs, options);
    return;
  }
  const Text result = outputs.front();
  outputs.front() = joined(result, "/linear");
  if (!operation.outputs.empty() && operation.outputs.front() >= 0) {
    infos_.push_back(info_of(operation.outputs.front()));
    infos_.back().name = outputs.front();
  }
  emit(operation.op, inputs, outputs, options);
  emit(follows, kept({outputs.front()}), kept({result}), {});
}

}  // namespace perfpass::tflite
