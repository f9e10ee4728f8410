// Normalizations and softmaxes.
#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {

void lower_softmax(InferContext& c, const Operator&) {
  c.attributes.axis = soft_axis(c.integer("axis", c.node.domain.empty() && c.opset < 13 ? 1 : -1), input(c, 0));
}

bool infer_batch_norm(InferContext& c, const Operator& op) {
  for (std::size_t i = 0; i < c.outputs.size(); ++i) set_dtype(c, i, dtype_of(c, i == 0 ? 0 : 3));
  if (!infer_same(c, op)) return false;
  const Dims x = shape_of(c, 0);
  const std::int64_t channels = x.size() > 1 ? x[1] : 1;
  const Value* scale = input(c, 1);
  if (scale != nullptr && scale->has_shape && (scale->shape.size() != 1 || scale->shape[0] != channels)) {
    fail(c, "found an input of shape " + show(x) + " and a scale of shape " + show(scale->shape) +
                ", needs one scale per channel");
  }
  for (std::size_t i = 1; i < c.outputs.size(); ++i) set(c, i, dtype_of(c, 3), Shape{channels});
  return true;
}

namespace {

std::int64_t norm_axis(const InferContext& c, const Operator& op) {
  return op.variant == Variant::last_axis || op.variant == Variant::normalized ? -1 : c.integer("axis", -1);
}

/// Statistics have the input's shape with 1 for every normalized axis.
Shape statistics(const InferContext& c, Dims x, std::int64_t axis) {
  Shape out(x);
  for (std::size_t i = axis_of(c, axis, x.size()); i < x.size(); ++i) out[i] = 1;
  return out;
}

}  // namespace

void lower_layer_norm(InferContext& c, const Operator& op) {
  c.attributes.axis = soft_axis(norm_axis(c, op), input(c, 0));
}

bool infer_layer_norm(InferContext& c, const Operator& op) {
  set_dtype(c, 0, dtype_of(c, 0));
  for (std::size_t i = 1; i < c.outputs.size(); ++i) set_dtype(c, i, DType::float32);
  if (!infer_same(c, op)) return false;
  const Shape stats = statistics(c, shape_of(c, 0), norm_axis(c, op));
  set(c, 1, DType::float32, stats);
  set(c, 2, DType::float32, stats);
  return true;
}

bool infer_skip_layer_norm(InferContext& c, const Operator& op) {
  // input, skip, gamma, ...; outputs: normalized, mean, inverse deviation, sum of input, skip and bias
  if (!infer_same(c, op)) return false;
  const Dims x = shape_of(c, 0);
  if (x.empty()) fail(c, "found a scalar, needs [batch, length, hidden]");
  const Shape stats = statistics(c, x, -1);
  set(c, 1, DType::float32, stats);
  set(c, 2, DType::float32, stats);
  set(c, 3, dtype_of(c, 0), x);
  return true;
}

bool infer_skip_group_norm(InferContext& c, const Operator& op) {
  if (!infer_same(c, op)) return false;
  set(c, 1, dtype_of(c, 0), shape_of(c, 0));  // the sum that was normalized
  return true;
}

void lower_group_norm(InferContext& c, const Operator&) {
  // com.microsoft GroupNorm is channels-last unless it says otherwise
  c.attributes.channels_last = c.integer("channels_last", c.node.domain == "com.microsoft" ? 1 : 0) != 0 ? 1 : 0;
}

}  // namespace perfpass::onnx
