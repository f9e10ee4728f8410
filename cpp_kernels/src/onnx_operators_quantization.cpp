// Quantization and the operators of com.microsoft on quantized tensors, which take scales and zero points between.
#include <algorithm>

#include "onnx_operators.hpp"

namespace perfpass::onnx {

bool infer_quantize(InferContext& c, const Operator&) {
  DType type = dtype_of(c, 2);
  if (type == DType::undefined) type = data_type(integer_attribute(c, "output_dtype", 2));
  if (type == DType::undefined) type = DType::uint8;
  set_dtype(c, 0, type);
  if (!ready(c, {0})) return false;
  set(c, 0, type, shape_of(c, 0));
  return true;
}

bool infer_dequantize(InferContext& c, const Operator&) {
  DType type = data_type(integer_attribute(c, "output_dtype", 0));
  if (type == DType::undefined) type = dtype_of(c, 1) != DType::undefined ? dtype_of(c, 1) : DType::float32;
  set_dtype(c, 0, type);
  if (!ready(c, {0})) return false;
  set(c, 0, type, shape_of(c, 0));
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
