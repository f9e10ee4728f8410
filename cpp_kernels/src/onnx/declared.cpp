// Shapes of a node's outputs. What its inputs give decides; what the file declares is compared with it, and taken where
// the inputs do not tell: a declaration that contradicts them is refused, a looser one (a symbol, an unknown dimension)
// is filled in.
#include <algorithm>

#include "onnx/lowering.hpp"
#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::onnx {
namespace {

std::string label(const Node& node) {
  return quoted(node.name) + " (" + (node.domain.empty() ? "" : escaped(node.domain) + "::") + escaped(node.op_type) +
         ")";
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + (shape[i] < 0 ? "?" : std::to_string(shape[i]));
  }
  return text + "]";
}

enum class Agreement : std::uint8_t { same, rounded, other };

/// Symbolic and unknown dimensions agree with every size.
Agreement compare(std::span<const std::int64_t> declared, std::span<const std::int64_t> found, std::int64_t slack) {
  if (declared.size() != found.size()) return Agreement::other;
  Agreement agreement = Agreement::same;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (declared[i] < 0 || declared[i] == found[i]) continue;
    const std::int64_t difference = declared[i] > found[i] ? declared[i] - found[i] : found[i] - declared[i];
    if (difference > slack) return Agreement::other;
    agreement = Agreement::rounded;
  }
  return agreement;
}

[[noreturn]] void refuse(const Node& node, Text tensor, const std::string& declared, const std::string& given) {
  throw Error(ErrorCode::shape,
              "tensor " + quoted(tensor) + ": the file declares " + declared + ", but node " + label(node) + " makes " +
                  given +
                  " from its inputs; correct the declaration, or remove the file's value_info and run "
                  "shape inference anew");
}

/// Why the shape of a node's output is not known, and what to do.
[[noreturn]] void refuse_unknown(const Node& node, OpKind op) {
  const std::string start = "node " + label(node) + ": ";
  const std::string output = node.outputs[0].empty() ? "its outputs" : "its output " + quoted(node.outputs[0]);
  if (node.domain == "ai.onnx.ml" &&
      (node.op_type == "ZipMap" || node.op_type == "CastMap" || node.op_type == "DictVectorizer")) {
    throw Error(ErrorCode::unsupported,
                start +
                    "it works on maps from keys to values, which are no tensors; export the model without it "
                    "(skl2onnx: options={'zipmap': False})");
  }
  if (node.domain == "ai.onnx.ml" && op == OpKind::unknown) {
    throw Error(ErrorCode::unsupported,
                start +
                    "an operator of classical machine learning (ai.onnx.ml) that is not known here, and the "
                    "file leaves the shape of " +
                    output + " open; predictions are for networks of tensors");
  }
  if (op == OpKind::sequence) {
    throw Error(
        ErrorCode::shape,
        start + output +
            " is part of a sequence: how many tensors it holds, and of what shapes, is known only when the model "
            "runs; export with the sequence unrolled (tensors that are stacked or concatenated at once), or add the "
            "shape as value_info");
  }
  if (op == OpKind::unknown) {
    throw Error(ErrorCode::shape, start + "the operator is not known here and the file gives no shape for " + output +
                                      "; run shape inference in the exporting tool, so that the file has one, or "
                                      "describe the operator in a file for --operators");
  }
  throw Error(ErrorCode::shape,
              start + "the shape of " + output +
                  " depends on data that is not in the file, and the file declares none; export with fixed "
                  "shapes, or add the shape as value_info");
}

}  // namespace

/// The shape that the file gives for a node's output, where it can be trusted. `rescale`: an operator that nothing is
/// known of, in a file whose batch is changed; a first dimension equal to the old batch then becomes the new one.
std::optional<std::span<const std::int64_t>> Lowering::declared_shape(const Slot& slot, bool rescale) {
  if (slot.info == nullptr || !slot.info->has_shape) return std::nullopt;
  if (const auto shape = shapes_.resolve(*slot.info)) return shape;
  const std::span<const std::int64_t> fixed = slot.info->shape;
  const bool known = std::all_of(fixed.begin(), fixed.end(), [](std::int64_t d) { return d >= 0; });
  if (!rescale || !known || shapes_.file_batch() == 0) return std::nullopt;
  auto* shape = const_cast<std::int64_t*>(keep_shape(fixed, arena_).data());
  if (!fixed.empty() && shape[0] == shapes_.file_batch()) shape[0] = shapes_.batch();
  return std::span<const std::int64_t>(shape, fixed.size());
}

/// Outputs from the file's own declarations; false, with nothing changed, where one is missing.
bool Lowering::use_declared(InferContext& context, const Slot* first_output, bool rescale) {
  const Slot* slot = first_output;
  for (const Text name : context.node.outputs) {
    if (!name.empty() && !declared_shape(*slot++, rescale)) return false;
  }
  slot = first_output;
  for (std::size_t i = 0; i < context.outputs.size(); ++i) {
    if (context.node.outputs[i].empty()) continue;
    context.outputs[i] = {};
    context.outputs[i].dtype = slot->info->dtype;
    context.outputs[i].has_shape = true;
    context.outputs[i].shape = *declared_shape(*slot++, rescale);
  }
  return true;
}

/// What the file declares of an output beside the `value` that its node's inputs give. `certain`: the rule that gave it
/// leaves no room. `is_body`: of a subgraph. Error(shape) where the two contradict each other.
void Lowering::merge_declared(const Node& node, const Slot& slot, Value& value, bool is_body, bool certain,
                              std::int64_t slack) {
  if (slot.info == nullptr) return;
  const ValueInfo& info = *slot.info;
  if (value.dtype == DType::undefined || (model_.is_typed && info.dtype != DType::undefined)) value.dtype = info.dtype;
  if (!info.has_shape || shapes_.stale()) return;
  Agreement agreement = Agreement::other;
  if (value.has_shape) {
    agreement = compare(info.shape, value.shape, slack);
    if (certain && !value.is_estimate && info.is_tensor) {
      if (agreement == Agreement::other) {
        // In a subgraph it is often the shape of the exporter's example; nothing but a first iteration is known there.
        if (is_body) return;
        refuse(node, slot.name, shape_text(info.shape), shape_text(value.shape));
      }
      if (agreement == Agreement::same) return;
    }
  }
  if (model_.is_typed && agreement == Agreement::other && value.has_shape && info.shape.size() == value.shape.size()) {
    // A size that the converter fixed is the one that runs.
    auto* shape = const_cast<std::int64_t*>(keep_shape(value.shape, arena_).data());
    for (std::size_t i = 0; i < info.shape.size(); ++i) shape[i] = info.shape[i] < 0 ? shape[i] : info.shape[i];
    value = {value.dtype, true, value.is_constant, {shape, info.shape.size()}, false, {}, {}, true};
    return;
  }
  // Names of dimensions are the exporter's word alone: against a shape they do not count.
  const auto declared = shapes_.resolve(info);
  if (!declared || agreement == Agreement::same) return;
  if (value.has_shape && declared->data() != info.shape.data()) return;
  value.has_shape = true;
  value.shape = *declared;
  value.has_values = false;
  value.integers = {};
  value.reals = {};
}

/// Outputs of an unknown operator as the user states them; false where nothing is.
bool Lowering::infer_stated(InferContext& context, OpKind op) {
  if (op != OpKind::unknown || options_.stated == nullptr) return false;
  const std::vector<TensorType> outputs = options_.stated->outputs(source_of(context.node, context.inputs));
  if (outputs.empty()) return false;
  for (std::size_t i = 0; i < std::min(outputs.size(), context.outputs.size()); ++i) {
    Value& value = context.outputs[i];
    value = {};
    value.dtype = outputs[i].dtype;
    value.has_shape = true;
    value.shape = keep_shape(outputs[i].shape, arena_);
  }
  return true;
}

/// As infer. In a function's body the caller's attributes stand under the body's names.
bool Lowering::infer_known(const Scope& scope, InferContext& context) {
  const Node& node = context.node;
  const bool plain = (node.domain.empty() || node.entry != nullptr) && scope.call == nullptr;
  return plain && node.outputs.size() == 1 && !node.outputs[0].empty() ? known_.infer(context) : infer(context);
}

/// Fills context.outputs and context.attributes, or throws: every tensor of a graph has a shape. `estimate`: the shape
/// of an input is one.
void Lowering::infer_shapes(const Scope& scope, InferContext& context, OpKind op, const Slot* first_output,
                            bool estimate) {
  const Node& node = context.node;
  bool certain = is_certain(context.entry) && !estimate;
  bool inferred = false;
  try {
    inferred = infer_stated(context, op) || infer_known(scope, context);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::shape && certain) throw Misfit(e.what());
    if (e.code() != ErrorCode::shape || !use_declared(context, first_output, false)) throw;
    if (contradicted_++ == 0) first_contradiction_ = e.what();
    context.attributes = {};
    lower_attributes(context);
    return;
  }
  const Slot* slot = first_output;
  if (context.assumed) {
    certain = false;
    assumed_ = assumed_ || !declared_shape(*slot, false);
  }
  const std::int64_t slack = rounding_slack(context);
  for (std::size_t i = 0; i < context.outputs.size() && inferred; ++i) {
    if (node.outputs[i].empty()) continue;
    Value& value = context.outputs[i];
    merge_declared(node, *slot, value, scope.parent != nullptr, certain, slack);
    value.is_estimate = estimate || (!certain && !declared_shape(*slot, false));
    inferred = value.has_shape && std::all_of(value.shape.begin(), value.shape.end(), [](auto d) { return d >= 0; });
    ++slot;
  }
  if (inferred) return;
  context.attributes = {};
  // Of another format's vocabulary some operators have no rule of shapes here, and all values a declared shape.
  if (use_declared(context, first_output, op == OpKind::unknown || node.entry != nullptr)) {
    // A view of data whose new shape is computed from contents still has all its elements.
    const Value* whole = op == OpKind::reshape && !context.inputs.empty() ? context.inputs[0] : nullptr;
    Value& view = context.outputs[0];
    if (certain && scope.parent == nullptr && whole != nullptr && whole->has_shape && view.has_shape &&
        !shapes_.stale() && checked_elements(whole->shape) != checked_elements(view.shape)) {
      refuse(node, node.outputs[0], shape_text(view.shape), "as many elements as " + shape_text(whole->shape) + " has");
    }
    for (Value& value : context.outputs) value.is_estimate = estimate;
    lower_attributes(context);
    return;
  }
  refuse_unknown(node, op);
}

}  // namespace perfpass::onnx
