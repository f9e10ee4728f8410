// From a parsed model to an OpGraph, node by node, and the three entry points of onnx_reader.hpp.
//
// What becomes a node: every node of the file except Constant, whose value is a tensor of role literal (weight where it
// is a floating tensor of several elements: old exporters keep parameters so) and calls of model-local functions, which
// are replaced by their bodies. Shape arithmetic (Shape, Gather, Concat of integers) stays: the file's runtime executes
// it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_set>

#include "onnx/file.hpp"
#include "onnx/lowering.hpp"
#include "onnx/operators/operators.hpp"
#include "onnx/selection.hpp"
#include "onnx/wire.hpp"
#include "perfpass/error.hpp"
#include "support/reading_arena.hpp"
#include "support/text.hpp"
#include "support/text_hash.hpp"
#include "support/text_word.hpp"

namespace perfpass::onnx {
namespace {

std::string source_label(const Node& node) {
  return node.domain.empty() ? escaped(node.op_type) : escaped(node.domain) + "::" + escaped(node.op_type);
}

std::string label(const Node& node) { return quoted(node.name) + " (" + source_label(node) + ")"; }

/// Printable ASCII alone, so that nothing must be escaped. Sixteen bytes at a time, then eight: every name passes here.
bool is_plain(Text text) {
  using Bytes [[gnu::vector_size(16)]] = signed char;
  constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
  constexpr std::uint64_t kHigh = 0x80 * kOnes;
  // A byte's high bit is set where it is past 0x7e (byte + 1), below 0x20 (byte + 0x60 stays below 0x80), or set
  // already.
  const auto special = [](std::uint64_t word) {
    return (word | ((word & ~kHigh) + kOnes) | ~((word & ~kHigh) + 0x60 * kOnes)) & kHigh;
  };
  const char* at = text.data();
  std::size_t left = text.size();
  Bytes found = {};
  for (; left >= 16; at += 16, left -= 16) {
    Bytes some;
    std::memcpy(&some, at, sizeof some);
    found |= (some < 0x20) | (some == 0x7f);  // bytes past 0x7f are negative
  }
  std::uint64_t halves[2];
  std::memcpy(halves, &found, sizeof found);
  std::uint64_t bad = halves[0] | halves[1];
  if (left >= 8) {
    bad |= special(text_word(at, 8));
    at += 8, left -= 8;
  }
  return (bad | special(text_word(at, left) | (0x20 * kOnes) << (8 * left))) == 0;
}

Value value_of(const Constant& constant) {
  return {constant.dtype, true, true, constant.shape, constant.has_values, constant.integers, constant.reals};
}

bool is_parameter(const Value& value) { return is_floating(value.dtype) && !value.shape.empty(); }

}  // namespace

OpGraph Lowering::run() {
  const Graph& graph = *model_.graph;
  extent(graph.nodes, 0);
  std::size_t names = graph.initializers.size() + graph.inputs.size();
  for (const Node& node : graph.nodes) names += node.outputs.size();
  Scope scope(nullptr, names, arena_);
  scope.opsets = model_.opsets;
  scope.default_opset = opset_of(scope, {});
  declare_constants(scope, graph.initializers);
  std::vector<TensorId> inputs;
  builder_.reserve(graph.nodes.size(), names);
  for (const InputShapes::Input& input : shapes_.inputs()) {
    Slot& slot = declare(scope, input.declared->name, "graph input");
    slot.value.dtype = input.declared->dtype;
    slot.value.has_shape = true;
    slot.value.shape = input.shape;
    slot.is_input = slot.ready = true;
    inputs.push_back(tensor_of(slot));
  }
  declare_nodes(scope, graph.nodes);
  declare_infos(scope, graph.value_info);
  declare_infos(scope, graph.outputs);
  mark_quantized_weights(scope);
  lower_nodes(scope);
  std::vector<TensorId> outputs;
  for (const ValueInfo& output : graph.outputs) {
    Slot* slot = find(scope, output.name);
    if (slot == nullptr) {
      throw Error(ErrorCode::graph, "graph output " + quoted(output.name) + " is produced by no node");
    }
    outputs.push_back(tensor_of(*slot));
  }
  finish_notes();
  return std::move(builder_).finish(inputs, outputs);
}

void Lowering::finish_notes() {
  for (const Note& note : model_.notes) builder_.add_note(std::string(note.text), note.counted_once);
  for (const std::string& note : shapes_.notes()) builder_.add_note(note);
  if (assumed_) {
    const std::int64_t count = options_.detections > 0 ? options_.detections : kUsualDetections;
    builder_.add_note(std::string(kAssumedDetections) + ": " + std::to_string(count) +
                      " boxes of an image pass a threshold");
  }
  if (!unknown_.empty()) {
    std::string names;
    for (const auto& [name, count] : unknown_) {
      if (names.size() > 400) {
        names += ", ...";
        break;
      }
      names += (names.empty() ? "" : ", ") + name + " (" + std::to_string(count) + ")";
    }
    builder_.add_note("operators without known costs, counted by their tensor sizes alone: " + names);
  }
  if (contradicted_ > 0) {
    builder_.add_note(std::to_string(contradicted_) +
                      " nodes keep the shapes that the file declares although inference contradicts them; the first: " +
                      first_contradiction_);
  }
}

void Lowering::lower_node(Scope& scope, std::size_t index, Inputs inputs) {
  const Node& node = resolved(scope, scope.nodes[index]);
  const std::uint32_t output = scope.first_output[index];
  if (const Function* function = function_of(node)) {
    lower_call(scope, node, *function, output, inputs);
  } else if (!lower_constant(scope, node, output) && !lower_control(scope, node, output, inputs)) {
    lower_operator(scope, node, output, inputs);
  }
}

/// In a function body, attributes that refer to the function's own get the caller's values, else the defaults.
const Node& Lowering::resolved(const Scope& scope, const Node& node) {
  const auto refers = [](const Attribute& a) { return !a.reference.empty(); };
  if (std::none_of(node.attributes.begin(), node.attributes.end(), refers)) return node;
  const auto lookup = [&](std::span<const Attribute> attributes, Text name) {
    const auto it = std::find_if(attributes.begin(), attributes.end(),
                                 [&](const Attribute& a) { return a.name == name && a.kind != Attribute::Kind::none; });
    return it == attributes.end() ? nullptr : &*it;
  };
  auto* list = static_cast<Attribute*>(arena_.allocate(node.attributes.size() * sizeof(Attribute), alignof(Attribute)));
  std::size_t n = 0;
  for (const Attribute& attribute : node.attributes) {
    if (!refers(attribute)) {
      std::construct_at(&list[n++], attribute);
      continue;
    }
    const Attribute* found = nullptr;
    if (scope.call != nullptr) {
      found = lookup(scope.call->node->attributes, attribute.reference);
      if (found == nullptr) found = lookup(scope.call->function->attributes, attribute.reference);
    }
    if (found == nullptr) continue;  // an optional attribute that the caller leaves out
    std::construct_at(&list[n], *found);
    list[n].name = attribute.name;
    list[n++].reference = {};
  }
  auto* copy = static_cast<Node*>(arena_.allocate(sizeof(Node), alignof(Node)));
  std::construct_at(copy, node);
  copy->attributes = {list, n};
  return *copy;
}

std::int64_t Lowering::opset_of(const Scope& scope, Text domain) const {
  for (const Opset& opset : scope.opsets) {
    if (opset.domain == domain || (domain.empty() && opset.domain == "ai.onnx")) return opset.version;
  }
  return 1;
}

bool Lowering::lower_constant(Scope& scope, const Node& node, std::uint32_t output) {
  if (!node.domain.empty() || node.op_type != "Constant" || node.outputs[0].empty()) return false;
  Slot& slot = scope.slots[output];
  for (const Attribute& attribute : node.attributes) {
    using Kind = Attribute::Kind;
    const auto scalar = [&](DType dtype) { slot.value = {dtype, true, true, {}, true, {}, {}}; };
    const auto vector = [&](DType dtype, std::size_t size, bool known) {
      const auto length = static_cast<std::int64_t>(size);
      slot.value = {dtype, true, true, keep_shape({&length, 1}, arena_), known, {}, {}};
    };
    if (attribute.kind == Kind::tensor && attribute.tensor != nullptr) {
      slot.value = value_of(*attribute.tensor);
    } else if (attribute.kind == Kind::integer) {
      scalar(DType::int64);
      slot.value.integers = keep_shape({&attribute.integer, 1}, arena_);
    } else if (attribute.kind == Kind::real) {
      scalar(DType::float32);
      slot.value.reals = {&attribute.real, 1};
    } else if (attribute.kind == Kind::integers) {
      const bool small = attribute.integers.size() <= options_.limits.shape_constant;
      vector(DType::int64, attribute.integers.size(), small);
      if (small) slot.value.integers = attribute.integers;
    } else if (attribute.kind == Kind::reals) {
      const bool small = attribute.reals.size() <= options_.limits.shape_constant;
      vector(DType::float32, attribute.reals.size(), small);
      if (small) slot.value.reals = attribute.reals;
    } else if (attribute.kind == Kind::text || attribute.kind == Kind::texts) {
      const bool is_scalar = attribute.kind == Kind::text;
      vector(DType::string, attribute.texts.size(), false);
      if (is_scalar) slot.value.shape = {};
    } else if (attribute.kind == Kind::other && attribute.name == "sparse_value") {
      throw Error(ErrorCode::unsupported, "node " + label(node) + " holds a sparse constant; store it dense");
    } else {
      continue;
    }
    slot.ready = true;
    return true;
  }
  throw Error(ErrorCode::format, "node " + label(node) + " has no value; a Constant must have one");
}

std::string_view Lowering::display_name(Text prefix, Text name) {
  if (prefix.empty()) {
    // Readers of other formats call a node by its output, whose name was looked at just before.
    const bool is_last = name.data() == plain_.data() && name.size() == plain_.size();
    if (is_last || is_plain(name)) return plain_ = name;
  }
  text_.assign(prefix);
  text_ += is_plain(name) ? std::string(name) : escaped(name);
  return text_;
}

/// The prefix of an inlined body. Long ways are cut: depth and names are bounded, their product is not small.
Text Lowering::join(Text prefix, Text name, std::string_view part) {
  constexpr std::size_t kLongest = 256;
  std::string text(prefix);
  text += escaped(name.substr(0, kLongest)) + "/";
  if (!part.empty()) (text += part) += "/";
  if (text.size() > kLongest) text = ".../" + text.substr(text.size() - kLongest);
  auto* copy = static_cast<char*>(arena_.allocate(text.size(), 1));
  std::copy(text.begin(), text.end(), copy);
  return {copy, text.size()};
}

TensorId Lowering::tensor_of(Slot& slot, bool may_be_weight) {
  if (slot.tensor != kNone) return slot.tensor;
  TensorRole role = TensorRole::activation;
  if (slot.is_input) {
    role = TensorRole::input;
  } else if (slot.writer == kNone || slot.value.is_constant) {
    // A Constant of one element is a scalar that the exporter wrote as [1] (attention's scale), not a parameter.
    const auto& shape = slot.value.shape;
    const bool is_scalar =
        slot.writer != kNone && std::all_of(shape.begin(), shape.end(), [](auto d) { return d == 1; });
    const bool is_weight =
        slot.is_weight || (!slot.is_literal && may_be_weight && !is_scalar && is_parameter(slot.value));
    role = is_weight ? TensorRole::weight : TensorRole::literal;
  }
  slot.tensor = builder_.add_tensor(display_name(slot.prefix, slot.name), slot.value.dtype, slot.value.shape, role);
  return slot.tensor;
}

TensorId Lowering::new_tensor(const Slot& slot) {
  return builder_.add_tensor(display_name(slot.prefix, slot.name), slot.value.dtype, slot.value.shape,
                             TensorRole::activation);
}

void Lowering::emit(OpKind op, const Scope& scope, const Node& node, const NodeAttributes& attributes,
                    std::span<const TensorId> inputs, std::span<const TensorId> outputs, std::string_view suffix,
                    const std::optional<StatedCosts>& stated) {
  std::string unknown;
  std::string_view source = node.op_type;
  const bool is_ours = node.entry != nullptr && source.data() == node.entry->name.data();
  if (op == OpKind::unknown || stated || (!is_ours && !is_plain(source))) {
    unknown = source_label(node);
    source = unknown;
    if (op == OpKind::unknown) ++unknown_[unknown];
  }
  std::string_view name = display_name(scope.prefix, node.name);
  if (!suffix.empty()) {
    text_ = std::string(name) + std::string(suffix);
    name = text_;
  }
  if (held_ == nullptr) {
    const NodeId id = builder_.add_node(op, source, name, attributes, inputs, outputs, scope.repeat);
    if (stated) builder_.state(id, *stated);
    return;
  }
  held_->push_back({op,
                    std::string(source),
                    std::string(name),
                    attributes,
                    {inputs.begin(), inputs.end()},
                    {outputs.begin(), outputs.end()},
                    scope.repeat,
                    stated});
}

void Lowering::lower_operator(Scope& scope, const Node& node, std::uint32_t output, Inputs inputs) {
  const Operator* entry = node.entry != nullptr ? node.entry : find_operator(node.domain, node.op_type);
  OpKind op = canonical_operator(entry);
  input_values_.clear();
  input_ids_.clear();
  output_ids_.clear();
  output_values_.assign(node.outputs.size(), Value{});
  bool constant = !inputs.empty();
  bool estimate = false;
  for (Slot* slot : inputs) {
    input_values_.push_back(slot == nullptr ? nullptr : &slot->value);
    // Floats behind the data of a resizing are its scales and region, no parameters.
    const bool may_be_weight = op != OpKind::resize || input_ids_.empty();
    input_ids_.push_back(slot == nullptr ? kNone : tensor_of(*slot, may_be_weight));
    constant = constant && (slot == nullptr || slot->value.is_constant);
    estimate = estimate || (slot != nullptr && slot->value.is_estimate);
  }
  NodeAttributes attributes;
  InferContext context{.node = node,
                       .opset = node.domain.empty() ? scope.default_opset : opset_of(scope, node.domain),
                       .inputs = input_values_,
                       .outputs = output_values_,
                       .attributes = attributes,
                       .arena = arena_,
                       // Ever less as the budget is used up, so that it is never exceeded.
                       .max_values = std::min(options_.limits.shape_constant, value_budget_ / 256),
                       .file_batch = shapes_.file_batch(),
                       .batch = shapes_.batch(),
                       .entry = entry,
                       .detections = options_.detections};
  infer_shapes(scope, context, op, scope.slots.data() + output, estimate);
  std::optional<StatedCosts> stated;
  if (op == OpKind::unknown && options_.stated != nullptr) {
    std::vector<TensorType> outputs;
    for (const Value& value : output_values_) {
      outputs.push_back({value.dtype, {value.shape.begin(), value.shape.end()}, value.has_shape});
    }
    if (const auto lowered = options_.stated->lowered(source_of(node, input_values_), outputs)) {
      op = lowered->op;
      attributes = lowered->attributes;
      stated = lowered->costs;
    }
  }
  const Selects selected = selects(op, context);
  for (Value& value : output_values_) value.selects = selected;
  Slot* slot = scope.slots.data() + output;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) {
      output_ids_.push_back(kNone);
      continue;
    }
    Value& value = output_values_[i];
    value_budget_ -= std::min(value_budget_, value.integers.size() + value.reals.size() + value.elements.size());
    slot->value = value;
    slot->tensor = new_tensor(*slot);
    slot->value.is_constant = constant;
    slot->ready = true;
    output_ids_.push_back(slot->tensor);
    ++slot;
  }
  if (held_ != nullptr) count_work(op, scope.repeat, input_values_, output_values_);
  emit(op, scope, node, attributes, input_ids_, output_ids_, {}, stated);
}

/// An unknown operator's node for the user's description of it; attributes that hold tensors or graphs are left out.
SourceNode Lowering::source_of(const Node& node, std::span<const Value* const> inputs) const {
  SourceNode found;
  found.name = source_label(node);
  for (const Value* value : inputs) {
    TensorType type;
    type.present = value != nullptr;
    if (value != nullptr) type = {value->dtype, {value->shape.begin(), value->shape.end()}, true};
    found.inputs.push_back(std::move(type));
  }
  found.outputs = node.outputs.size();
  for (const Attribute& attribute : node.attributes) {
    using Kind = Attribute::Kind;
    const std::string name = escaped(attribute.name);
    if (attribute.kind == Kind::integer) found.attributes[name] = attribute.integer;
    if (attribute.kind == Kind::real) found.attributes[name] = attribute.real;
    if (attribute.kind == Kind::text) found.attributes[name] = escaped(attribute.text);
    if (attribute.kind == Kind::integers) {
      found.attributes[name] = std::vector<std::int64_t>(attribute.integers.begin(), attribute.integers.end());
    }
  }
  return found;
}

/// A rough measure to tell the heavier branch of an If: multiplications of matrix products and convolutions, else
/// sizes.
void Lowering::count_work(OpKind op, double repeat, std::span<const Value* const> inputs,
                          std::span<const Value> outputs) {
  const auto elements = [](const Value& value) {
    double product = 1.0;
    for (const std::int64_t d : value.shape) product *= static_cast<double>(d);
    return product;
  };
  double written = 0.0;
  for (const Value& value : outputs) written += value.has_shape ? elements(value) : 0.0;
  work_.elements += written * repeat;
  if (inputs.size() < 2 || inputs[0] == nullptr || inputs[1] == nullptr || inputs[1]->shape.empty()) return;
  const Value& weight = *inputs[1];
  if (op_class(op) == OpClass::convolution) {
    work_.multiplications += repeat * written * elements(weight) / std::max(1.0, static_cast<double>(weight.shape[0]));
  } else if (op_class(op) == OpClass::matmul && !inputs[0]->shape.empty()) {
    work_.multiplications += repeat * written * static_cast<double>(inputs[0]->shape.back());
  }
}

void Lowering::lower_call(Scope& scope, const Node& node, const Function& function, std::uint32_t output,
                          Inputs inputs) {
  if (node.inputs.size() > function.inputs.size() || node.outputs.size() > function.outputs.size()) {
    throw Error(ErrorCode::graph, "node " + label(node) + " has " + std::to_string(node.inputs.size()) +
                                      " inputs and " + std::to_string(node.outputs.size()) +
                                      " outputs; its function takes " + std::to_string(function.inputs.size()) +
                                      " and gives " + std::to_string(function.outputs.size()));
  }
  std::size_t names = function.inputs.size() + function.initializers.size();
  for (const Node& inner : function.nodes) names += inner.outputs.size();
  const Call call{&node, &function};
  Scope body(nullptr, names, *std::pmr::get_default_resource());
  body.prefix = join(scope.prefix, node.name.empty() ? node.op_type : node.name, {});
  body.repeat = scope.repeat;
  body.call = &call;
  body.opsets = function.opsets.empty() ? scope.opsets : function.opsets;
  body.default_opset = opset_of(body, {});
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    Slot& slot = declare(body, function.inputs[i], "function input");
    slot.ready = true;
    slot.is_absent = i >= inputs.size() || inputs[i] == nullptr;
    if (slot.is_absent) continue;
    slot.value = inputs[i]->value;
    slot.tensor = tensor_of(*inputs[i]);
  }
  declare_constants(body, function.initializers);
  declare_nodes(body, function.nodes);
  if (model_.is_typed) declare_infos(body, function.value_info);
  lower_nodes(body);
  Slot* given = scope.slots.data() + output;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    Slot* result = find(body, function.outputs[i]);
    if (result == nullptr || result->is_absent) {
      throw Error(ErrorCode::graph,
                  "function " + quoted(function.name) + " does not produce its output " + quoted(function.outputs[i]));
    }
    given->value = result->value;
    given->tensor = tensor_of(*result);
    given->ready = true;
    ++given;
  }
}

std::vector<OnnxInput> declared_inputs(const Model& model) {
  std::unordered_set<std::string_view, TextHash> constants;
  for (const Constant& constant : model.graph->initializers) constants.insert(constant.name);
  std::vector<OnnxInput> inputs;
  for (const ValueInfo& info : model.graph->inputs) {
    if (constants.contains(info.name)) continue;
    OnnxInput& input = inputs.emplace_back();
    input.name = escaped(info.name);
    input.dtype = info.dtype;
    input.has_shape = info.has_shape;
    input.shape.assign(info.shape.begin(), info.shape.end());
    input.symbols.resize(info.shape.size());
    for (std::size_t axis = 0; axis < info.symbols.size(); ++axis) {
      input.symbols[axis] = escaped(info.symbols[axis]);
    }
  }
  return inputs;
}

namespace {

OpGraph lower(const Excerpt& file, ReadingArena& arena, const OnnxOptions& options) {
  const Model model = read_model(file, options.limits, arena.resource());
  return Lowering(model, options, arena.resource()).run();
}

}  // namespace
}  // namespace perfpass::onnx

namespace perfpass {

OpGraph read_onnx_file(const std::string& path, const OnnxOptions& options) {
  const onnx::ModelFile file(path, options.limits);
  ReadingArena arena(file.spare());
  return onnx::lower(file.excerpt(), arena, options);
}

OpGraph read_onnx_bytes(std::span<const std::uint8_t> bytes, const OnnxOptions& options) {
  if (bytes.size() > options.limits.file_bytes) {
    throw Error(ErrorCode::limit, "the model has " + std::to_string(bytes.size()) + " bytes; at most " +
                                      std::to_string(options.limits.file_bytes) + " are read");
  }
  ReadingArena arena(bytes.size());
  return onnx::lower(bytes, arena, options);
}

std::vector<OnnxInput> onnx_inputs_file(const std::string& path, const OnnxLimits& limits) {
  const onnx::ModelFile file(path, limits);
  const onnx::Excerpt excerpt = file.excerpt();
  ReadingArena arena(file.spare());
  return onnx::declared_inputs(onnx::read_model(excerpt, limits, arena.resource()));
}

}  // namespace perfpass
