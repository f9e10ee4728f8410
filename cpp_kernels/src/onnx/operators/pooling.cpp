// Poolings: sliding, global, over regions, and the inverse of max pooling.
#include <algorithm>

#include "onnx/operators/operators.hpp"
#include "onnx/operators/windows.hpp"

namespace perfpass::onnx {
namespace {

bool is_channels_last(const InferContext& c, const Operator& op) noexcept {
  return op.variant == Variant::nhwc || c.integer("channels_last", 0) != 0;
}

/// QLinear poolings: x, scale, zero point, y scale, y zero point.
DType pool_type(const InferContext& c, const Operator& op) noexcept {
  const DType zero_point = op.variant == Variant::quantized ? dtype_of(c, 4) : DType::undefined;
  return zero_point != DType::undefined ? zero_point : dtype_of(c, 0);
}

}  // namespace

void lower_pool(InferContext& c, const Operator& op) {
  const bool last = is_channels_last(c, op);
  Window w = window_of(c, integers_attribute(c, "kernel_shape"));
  const Dims x = shape_of(c, 0);
  for (std::size_t i = 0; i < w.rank && x.size() == w.rank + 2; ++i) resolve_padding(w, i, x[i + (last ? 1 : 2)]);
  write_window(c, w);
  c.attributes.channels_last = last ? 1 : 0;
}

bool infer_pool(InferContext& c, const Operator& op) {
  set_dtype(c, 0, pool_type(c, op));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  Window w = window_of(c, integers_attribute(c, "kernel_shape"));
  if (x.size() < 3 || w.rank + 2 != x.size()) {
    fail(c, "found an input of shape " + show(x) + " and kernel_shape " + show(integers_attribute(c, "kernel_shape")) +
                ", needs one entry per spatial axis");
  }
  const bool last = is_channels_last(c, op);
  const bool ceil_mode = integer_attribute(c, "ceil_mode", 0) != 0;
  Shape out{x[0]};
  if (!last) out.push(x[1]);
  for (std::size_t i = 0; i < w.rank; ++i) {
    const std::int64_t extent = x[i + (last ? 1 : 2)];
    resolve_padding(w, i, extent);
    if (w.padding == Padding::same_upper || w.padding == Padding::same_lower) {
      out.push((extent + w.stride[i] - 1) / w.stride[i]);
      continue;
    }
    const std::int64_t room = extent + w.begin[i] + w.end[i] - w.reach(i);
    if (room < 0 && !(ceil_mode && room + w.stride[i] > 0)) {
      fail(c, "found a window that reaches over " + std::to_string(w.reach(i)) + " positions of a padded axis of " +
                  std::to_string(room + w.reach(i)) + " (input " + show(x) + "), needs an input at least as large");
    }
    std::int64_t count = room / w.stride[i] + 1;
    if (ceil_mode) {
      count = (room + w.stride[i] - 1) / w.stride[i] + 1;
      // The last window must start inside the input or its leading padding.
      if ((count - 1) * w.stride[i] >= extent + w.begin[i]) --count;
    }
    out.push(count);
  }
  if (last) out.push(x.back());
  set(c, 0, pool_type(c, op), out);
  set(c, 1, DType::int64, out);
  return true;
}

void lower_global_pool(InferContext& c, const Operator& op) {
  const Dims x = shape_of(c, 0);
  const bool last = is_channels_last(c, op);
  c.attributes.channels_last = last ? 1 : 0;
  if (x.size() < 3) return;
  c.attributes.spatial_rank = static_cast<std::int32_t>(x.size() - 2);
  for (std::size_t i = 0; i < std::min<std::size_t>(3, x.size() - 2); ++i) {
    c.attributes.kernel[i] = clamped(x[i + (last ? 1 : 2)]);
    c.attributes.stride[i] = 1;
    c.attributes.dilation[i] = 1;
  }
}

bool infer_global_pool(InferContext& c, const Operator& op) {
  set_dtype(c, 0, pool_type(c, op));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  if (out.size() < 2) fail(c, "found an input of shape " + show(out) + ", needs [batch, channels, spatial]");
  const bool last = is_channels_last(c, op);
  for (std::size_t i = last ? 1 : 2; i < out.size() - (last ? 1 : 0); ++i) out[i] = 1;
  set(c, 0, pool_type(c, op), out);
  return true;
}

void lower_roi_pool(InferContext& c, const Operator&) {
  const Dims pooled = c.integers("pooled_shape");
  c.attributes.spatial_rank = 2;
  c.attributes.kernel[0] = clamped(pooled.size() == 2 ? pooled[0] : c.integer("output_height", 1));
  c.attributes.kernel[1] = clamped(pooled.size() == 2 ? pooled[1] : c.integer("output_width", 1));
}

bool infer_roi_pool(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), rois = shape_of(c, 1);
  if (x.size() != 4 || rois.size() != 2) {
    fail(c, "found inputs of shape " + show(x) + " and " + show(rois) +
                ", needs [batch, channels, height, width] and [regions, coordinates]");
  }
  const Dims pooled = integers_attribute(c, "pooled_shape");  // MaxRoiPool; RoiAlign has two attributes
  const std::int64_t height = pooled.size() == 2 ? pooled[0] : integer_attribute(c, "output_height", 1);
  const std::int64_t width = pooled.size() == 2 ? pooled[1] : integer_attribute(c, "output_width", 1);
  set(c, 0, dtype_of(c, 0), Shape{rois[0], x[1], height, width});
  return true;
}

bool infer_max_unpool(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  if (const Value* wanted = integers_of(c, 2); wanted != nullptr) {
    set(c, 0, dtype_of(c, 0), Shape(wanted->integers));
    return true;
  }
  if (input(c, 2) != nullptr) return false;
  const Window w = window_of(c, integers_attribute(c, "kernel_shape"));
  if (x.size() < 3 || w.rank + 2 != x.size()) {
    fail(c, "found an input of shape " + show(x) + " and kernel_shape " + show(integers_attribute(c, "kernel_shape")) +
                ", needs one entry per spatial axis");
  }
  Shape out{x[0], x[1]};
  for (std::size_t i = 0; i < w.rank; ++i) {
    out.push(product(c, x[i + 2] - 1, w.stride[i]) + w.kernel[i] - w.begin[i] - w.end[i]);
  }
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

}  // namespace perfpass::onnx
