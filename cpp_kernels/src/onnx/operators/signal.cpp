// Fourier transforms and the windows and filters that go with them.
#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {
namespace {

/// The single integer at input i; false where it is not known.
bool one_integer(const InferContext& c, std::size_t i, std::int64_t& value) {
  const Value* v = integers_of(c, i);
  if (v == nullptr || v->integers.size() != 1) return false;
  value = v->integers[0];
  return true;
}

}  // namespace

bool infer_dft(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  if (out.size() < 2) fail(c, "found an input of shape " + show(out) + ", needs [batch, signal, 1 or 2]");
  std::int64_t axis = c.opset < 20 ? integer_attribute(c, "axis", 1) : -2;
  if (c.opset >= 20 && input(c, 2) != nullptr && !one_integer(c, 2, axis)) return false;
  const std::size_t at = axis_of(c, axis, out.size());
  std::int64_t length = out[at];
  const bool inverse = integer_attribute(c, "inverse", 0) != 0, onesided = integer_attribute(c, "onesided", 0) != 0;
  if (inverse && onesided) length = 2 * (out[at] - 1);  // the full signal from its half spectrum
  if (input(c, 1) != nullptr && !one_integer(c, 1, length)) return false;
  if (length < 0) fail(c, "found a length of " + std::to_string(length) + ", needs 0 or more");
  out[at] = onesided && !inverse ? length / 2 + 1 : length;
  out[out.size() - 1] = inverse && onesided ? 1 : 2;
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_rfft(InferContext& c, const Operator& op) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  const std::int64_t axes = integer_attribute(c, "signal_ndim", 1);
  if (axes < 1 || static_cast<std::int64_t>(out.size()) < axes + (op.variant == Variant::inverse ? 1 : 0)) {
    fail(c,
         "found an input of shape " + show(out) + ", needs at least the " + std::to_string(axes) + " transformed axes");
  }
  const bool onesided = integer_attribute(c, "onesided", 1) != 0;
  if (op.variant == Variant::inverse) {  // real and imaginary parts stand last
    const Dims spectrum = shape_of(c, 0);
    Shape real(spectrum.first(spectrum.size() - 1));
    if (onesided) real[real.size() - 1] = 2 * (real[real.size() - 1] - 1);
    if (real[real.size() - 1] < 0)
      fail(c, "found an input of shape " + show(spectrum) + ", needs at least one frequency");
    set(c, 0, dtype_of(c, 0), real);
    return true;
  }
  if (onesided) out[out.size() - 1] = out[out.size() - 1] / 2 + 1;
  out.push(2);
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_stft(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  std::int64_t step = 0, length = 0;
  if (!one_integer(c, 1, step)) return false;
  if (input(c, 3) != nullptr) {
    if (!one_integer(c, 3, length)) return false;
  } else if (input(c, 2) != nullptr && input(c, 2)->has_shape && input(c, 2)->shape.size() == 1) {
    length = shape_of(c, 2)[0];
  } else {
    return false;
  }
  if (x.size() < 2 || step < 1 || length < 1 || length > x[1]) {
    fail(c, "found a signal of shape " + show(x) + ", frames of " + std::to_string(length) + " every " +
                std::to_string(step) + ", needs positive ones within the signal");
  }
  const bool onesided = integer_attribute(c, "onesided", 1) != 0;
  set(c, 0, dtype_of(c, 0), Shape{x[0], (x[1] - length) / step + 1, onesided ? length / 2 + 1 : length, 2});
  return true;
}

bool infer_window(InferContext& c, const Operator&) {
  const DType type = data_type(integer_attribute(c, "output_datatype", 1));
  set_dtype(c, 0, type);
  std::int64_t size = 0;
  if (!one_integer(c, 0, size)) return false;
  set(c, 0, type, Shape{size});
  return true;
}

bool infer_mel_weights(InferContext& c, const Operator&) {
  const DType type = data_type(integer_attribute(c, "output_datatype", 1));
  set_dtype(c, 0, type);
  std::int64_t bins = 0, length = 0;
  if (!one_integer(c, 0, bins) || !one_integer(c, 1, length)) return false;
  set(c, 0, type, Shape{length / 2 + 1, bins});
  return true;
}

}  // namespace perfpass::onnx
