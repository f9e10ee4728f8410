// Quantization and the operators of com.microsoft on quantized tensors, which take scales and zero points between.
#include <algorithm>
#include <cmath>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {

namespace {

/// Scale and zero point of one number each; exporters that quantize shape arithmetic use no others.
struct Scaling {
  double scale = 0.0;
  std::int64_t zero_point = 0;
};

bool scaling_of(const InferContext& c, Scaling& s) {
  const Value* scale = input(c, 1);
  if (scale == nullptr || !scale->has_values || scale->reals.size() != 1 || !(std::abs(scale->reals[0]) > 0))
    return false;
  s.scale = scale->reals[0];
  if (input(c, 2) == nullptr) return true;
  const Value* zero_point = integers_of(c, 2);
  if (zero_point == nullptr || zero_point->integers.size() != 1) return false;
  s.zero_point = zero_point->integers[0];
  return true;
}

void quantize_values(InferContext& c) {
  const Value& x = *c.inputs[0];
  const DType type = c.outputs[0].dtype;
  Scaling s;
  if (!x.has_values || !wants_values(c, 0) || (type != DType::uint8 && type != DType::int8) || !scaling_of(c, s))
    return;
  if (static_cast<std::int64_t>(x.reals.size()) != elements(c.outputs[0].shape)) return;
  const double low = type == DType::uint8 ? 0.0 : -128.0, high = type == DType::uint8 ? 255.0 : 127.0;
  std::int64_t* values = new_integers(c, x.reals.size());
  for (std::size_t k = 0; k < x.reals.size(); ++k) {
    const double q = round_half_even(rounded(DType::float32, x.reals[k] / s.scale)) + static_cast<double>(s.zero_point);
    if (std::isnan(q)) return;
    values[k] = static_cast<std::int64_t>(std::clamp(q, low, high));
  }
  c.outputs[0].integers = {values, x.reals.size()};
  c.outputs[0].has_values = true;
}

void dequantize_values(InferContext& c) {
  const Value* x = integers_of(c, 0);
  Scaling s;
  if (x == nullptr || !wants_values(c, 0) || !is_floating(c.outputs[0].dtype) || !scaling_of(c, s)) return;
  if (static_cast<std::int64_t>(x->integers.size()) != elements(c.outputs[0].shape)) return;
  double* values = new_reals(c, x->integers.size());
  for (std::size_t k = 0; k < x->integers.size(); ++k) {
    const double steps = static_cast<double>(x->integers[k]) - static_cast<double>(s.zero_point);
    values[k] = rounded(c.outputs[0].dtype, steps * s.scale);
  }
  c.outputs[0].reals = {values, x->integers.size()};
  c.outputs[0].has_values = true;
}

}  // namespace

bool infer_quantize(InferContext& c, const Operator&) {
  DType type = dtype_of(c, 2);
  if (type == DType::undefined) type = data_type(integer_attribute(c, "output_dtype", 2));
  if (type == DType::undefined) type = DType::uint8;
  set_dtype(c, 0, type);
  if (!ready(c, {0})) return false;
  set(c, 0, type, shape_of(c, 0));
  quantize_values(c);
  return true;
}

bool infer_dequantize(InferContext& c, const Operator&) {
  DType type = data_type(integer_attribute(c, "output_dtype", 0));
  if (type == DType::undefined) type = dtype_of(c, 1) != DType::undefined ? dtype_of(c, 1) : DType::float32;
  set_dtype(c, 0, type);
  if (!ready(c, {0})) return false;
  set(c, 0, type, shape_of(c, 0));
  dequantize_values(c);
  return true;
}

bool infer_dynamic_quantize(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::uint8);
  if (!ready(c, {0})) return false;
  set(c, 0, DType::uint8, shape_of(c, 0));
  set(c, 1, DType::float32, Shape{});
  set(c, 2, DType::uint8, Shape{});
  return true;
}

bool infer_quantized_binary(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 3})) return false;
  set(c, 0, dtype_of(c, 0), broadcast(c, shape_of(c, 0), shape_of(c, 3)));
  return true;
}

bool infer_quantized_where(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 1));
  if (!ready(c, {0, 1, 4})) return false;
  set(c, 0, dtype_of(c, 1), broadcast(c, broadcast(c, shape_of(c, 0), shape_of(c, 1)), shape_of(c, 4)));
  return true;
}

bool infer_quantized_concat(InferContext& c, const Operator&) {
  // y scale, y zero point, then (tensor, scale, zero point) for every input
  set_dtype(c, 0, dtype_of(c, 1));
  if (!ready(c, {2})) return false;
  Shape out(shape_of(c, 2));
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), out.size());
  for (std::size_t i = 5; i < c.inputs.size(); i += 3) {
    if (!ready(c, {i})) return false;
    const Dims x = shape_of(c, i);
    if (x.size() != out.size())
      fail(c, "found inputs of shape " + show(out) + " and " + show(x) + ", needs equal ranks");
    for (std::size_t d = 0; d < x.size(); ++d) {
      out[d] = d == axis ? out[d] + x[d] : agree(c, out[d], x[d], "dimensions beside the axis");
    }
  }
  set(c, 0, dtype_of(c, 1), out);
  return true;
}

bool infer_bias_split_gelu(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  if (out.size() == 0) fail(c, "found a scalar, needs an even last dimension");
  out[out.size() - 1] /= 2;
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

}  // namespace perfpass::onnx
