// Operators that keep or broadcast the shapes of their inputs.
#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {

bool infer_same(InferContext& c, const Operator&) {
  if (!ready(c, {0})) return false;
  set(c, 0, dtype_of(c, 0), shape_of(c, 0));
  return true;
}

bool infer_unary(InferContext& c, const Operator& op) {
  if (!infer_same(c, op)) return false;
  unary_values(c, op);
  return true;
}

bool infer_clip(InferContext& c, const Operator& op) {
  if (!infer_same(c, op)) return false;
  clip_values(c);
  return true;
}

bool infer_predicate(InferContext& c, const Operator& op) {
  if (!ready(c, {0})) return false;
  set(c, 0, DType::boolean, shape_of(c, 0));
  if (op.variant == Variant::logical_not) unary_values(c, op);
  return true;
}

namespace {

/// Before opset 7 the second input was broadcast to the first, on request and from a chosen axis.
bool broadcasts_to_first(const InferContext& c) {
  return c.opset < 7 && (c.find("broadcast") != nullptr || c.find("axis") != nullptr);
}

bool broadcast_inputs(InferContext& c, DType dtype) {
  if (!ready(c, {0})) return false;
  Shape shape = operand(c, 0);
  for (std::size_t i = 1; i < c.inputs.size() && !broadcasts_to_first(c); ++i) {
    if (c.inputs[i] == nullptr) continue;
    if (!c.inputs[i]->has_shape) return false;
    shape = broadcast(c, shape, operand(c, i));
  }
  set(c, 0, dtype, shape);
  return true;
}

}  // namespace

bool infer_binary(InferContext& c, const Operator& op) {
  if (!broadcast_inputs(c, dtype_of(c, 0))) return false;
  binary_values(c, op);
  return true;
}

bool infer_compare(InferContext& c, const Operator& op) {
  if (!broadcast_inputs(c, DType::boolean)) return false;
  compare_values(c, op);
  return true;
}

bool infer_where(InferContext& c, const Operator&) {
  if (!ready(c, {0, 1, 2})) return false;
  set(c, 0, dtype_of(c, 1), broadcast(c, broadcast(c, operand(c, 0), operand(c, 1)), operand(c, 2)));
  where_values(c);
  return true;
}

bool infer_cast(InferContext& c, const Operator& op) {
  DType to = DType::undefined;
  if (const Attribute* a = c.find("to"); a != nullptr && a->kind == Attribute::Kind::text) {
    to = dtype_from_name(a->text == "BOOL" ? "bool" : a->text);  // opset 1 wrote the type's name
  } else if (a != nullptr) {
    to = data_type(a->integer);
  } else if (c.inputs.size() > 1 && c.inputs[1] != nullptr) {
    to = dtype_of(c, 1);  // CastLike
  }
  set_dtype(c, 0, to);
  if (!ready(c, {0})) return false;
  Shape shape(shape_of(c, 0));
  if (op.variant == Variant::inverse && shape.size() > 0) {  // BitCast keeps the bits, not the elements
    const int from_bits = bits_of(dtype_of(c, 0)), to_bits = bits_of(to);
    if (from_bits > 0 && to_bits > 0 && from_bits != to_bits) {
      shape[shape.size() - 1] = product(c, shape[shape.size() - 1], from_bits) / to_bits;
    }
  }
  set(c, 0, to, shape);
  if (op.variant != Variant::inverse) cast_values(c);
  return true;
}

bool infer_identity(InferContext& c, const Operator&) {
  if (!ready(c, {0})) return false;
  set(c, 0, dtype_of(c, 0), shape_of(c, 0));
  select_values(c, 0, *c.inputs[0], [](std::int64_t k) { return k; });
  return true;
}

bool infer_dropout(InferContext& c, const Operator& op) {
  if (!infer_identity(c, op)) return false;
  set(c, 1, c.opset >= 10 ? DType::boolean : dtype_of(c, 0), shape_of(c, 0));
  return true;
}

void lower_view(InferContext& c, const Operator&) { c.attributes.view = 1; }

void lower_dropout(InferContext& c, const Operator&) {
  const Value* training = integers_of(c, 2);
  const bool trains = training != nullptr && !training->integers.empty() && training->integers[0] != 0;
  c.attributes.view = trains ? 0 : 1;
}

}  // namespace perfpass::onnx
