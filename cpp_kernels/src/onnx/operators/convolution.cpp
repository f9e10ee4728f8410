// Convolutions: kernels, strides, padding (automatic padding resolved) and output shapes.
#include <algorithm>

#include "onnx/operators/operators.hpp"
#include "onnx/operators/windows.hpp"

namespace perfpass::onnx {

// --- windows: shared with pooling ---

std::int64_t window_entry(const InferContext& c, Text name, std::size_t i, std::int64_t fallback, std::int64_t low) {
  const Dims values = integers_attribute(c, name);
  if (values.empty()) return fallback;
  if (i >= values.size()) {
    fail(c, "attribute " + std::string(name) + " = " + show(values) + "; needs one entry per spatial axis");
  }
  return small(c, values[i], low, name.data());
}

Window window_of(const InferContext& c, Dims kernel) {
  if (kernel.size() + 2 > kMaxRank)
    fail(c, "a window over " + std::to_string(kernel.size()) + " axes; at most 14 are allowed");
  Window w;
  w.rank = kernel.size();
  const Text automatic = c.text("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER") w.padding = Padding::same_upper;
  if (automatic == "SAME_LOWER") w.padding = Padding::same_lower;
  if (automatic == "VALID") w.padding = Padding::valid;
  const Dims pads = integers_attribute(c, "pads");
  for (std::size_t i = 0; i < w.rank; ++i) {
    w.kernel[i] = small(c, kernel[i], 1, "kernel size");
    w.stride[i] = window_entry(c, "strides", i, 1, 1);
    w.dilation[i] = window_entry(c, "dilations", i, 1, 1);
    if (w.padding != Padding::given || pads.empty()) continue;
    if (pads.size() != 2 * w.rank) {
      fail(c, "attribute pads = " + show(pads) + "; needs " + std::to_string(2 * w.rank) + " entries");
    }
    w.begin[i] = small(c, pads[i], -(std::int64_t{1} << 31), "padding");
    w.end[i] = small(c, pads[i + w.rank], -(std::int64_t{1} << 31), "padding");
  }
  return w;
}

void resolve_padding(Window& w, std::size_t i, std::int64_t extent) noexcept {
  if (w.padding != Padding::same_upper && w.padding != Padding::same_lower) return;
  const std::int64_t out = (extent + w.stride[i] - 1) / w.stride[i];
  const std::int64_t total = std::max<std::int64_t>(0, (out - 1) * w.stride[i] + w.reach(i) - extent);
  w.begin[i] = w.padding == Padding::same_upper ? total / 2 : total - total / 2;
  w.end[i] = total - w.begin[i];
}

void write_window(InferContext& c, const Window& w) noexcept {
  NodeAttributes& a = c.attributes;
  a.spatial_rank = static_cast<std::int32_t>(w.rank);
  for (std::size_t i = 0; i < std::min<std::size_t>(3, w.rank); ++i) {
    a.kernel[i] = static_cast<std::int32_t>(w.kernel[i]);
    a.stride[i] = static_cast<std::int32_t>(w.stride[i]);
    a.dilation[i] = static_cast<std::int32_t>(w.dilation[i]);
    a.pad_begin[i] = static_cast<std::int32_t>(std::clamp<std::int64_t>(w.begin[i], INT32_MIN, INT32_MAX));
    a.pad_end[i] = static_cast<std::int32_t>(std::clamp<std::int64_t>(w.end[i], INT32_MIN, INT32_MAX));
  }
}

namespace {

/// QLinearConv: x, scale, zero point, w, scale, zero point, y scale, y zero point, bias.
std::size_t weight_slot(const Operator& op) noexcept { return op.variant == Variant::quantized ? 3 : 1; }

bool is_channels_last(const InferContext& c, const Operator& op) noexcept {
  return op.variant == Variant::nhwc || c.integer("channels_last", 0) != 0;
}

/// Spatial kernel extents: the attribute, else what the weight's shape leaves.
Shape kernel_of(const InferContext& c, Dims weight, bool last) {
  const Dims given = integers_attribute(c, "kernel_shape");
  if (!given.empty() || weight.size() < 3) return Shape(given);
  // NHWC operators keep the weight as O I spatial or O spatial I; without kernel_shape the input decides.
  const Dims x = shape_of(c, 0);
  const std::int64_t group = std::max<std::int64_t>(1, c.integer("group", 1));
  const bool inputs_last = last && !x.empty() && weight.back() * group == x.back() && weight[1] * group != x.back();
  return Shape(inputs_last ? weight.subspan(1, weight.size() - 2) : weight.subspan(2));
}

std::int64_t spatial_extent(Dims x, std::size_t i, bool last) noexcept { return x[i + (last ? 1 : 2)]; }

DType conv_type(const InferContext& c, const Operator& op) noexcept {
  if (op.variant == Variant::integer) return DType::int32;
  if (op.variant != Variant::quantized) return dtype_of(c, 0);
  const DType zero_point = dtype_of(c, 7);
  return zero_point != DType::undefined ? zero_point : dtype_of(c, 0);
}

}  // namespace

void lower_conv(InferContext& c, const Operator& op) {
  const bool last = is_channels_last(c, op);
  const Dims weight = shape_of(c, weight_slot(op));
  Window w = window_of(c, kernel_of(c, weight, last));
  const Dims x = shape_of(c, 0);
  for (std::size_t i = 0; i < w.rank && x.size() == w.rank + 2; ++i) resolve_padding(w, i, spatial_extent(x, i, last));
  write_window(c, w);
  c.attributes.groups = small(c, integer_attribute(c, "group", 1), 1, "group");
  c.attributes.channels_last = last ? 1 : 0;
}

bool infer_conv(InferContext& c, const Operator& op) {
  const std::size_t slot = weight_slot(op);
  set_dtype(c, 0, conv_type(c, op));
  if (!ready(c, {0, slot})) return false;
  const Dims x = shape_of(c, 0), weight = shape_of(c, slot);
  const bool last = is_channels_last(c, op);
  if (x.size() < 3 || weight.size() != x.size()) {
    fail(c, "found an input of shape " + show(x) + " and a weight of shape " + show(weight) +
                ", needs equal ranks of at least 3");
  }
  Window w = window_of(c, kernel_of(c, weight, last));
  if (w.rank + 2 != x.size()) {
    fail(c, "found a kernel over " + std::to_string(w.rank) + " axes for an input of shape " + show(x) +
                ", needs one entry per spatial axis");
  }
  const std::int64_t group = small(c, integer_attribute(c, "group", 1), 1, "group");
  const std::int64_t channels = last ? x.back() : x[1];
  const bool fits = product(c, weight[1], group) == channels || (last && product(c, weight.back(), group) == channels);
  if (op.domain != Domain::nchwc && (!fits || weight[0] % group != 0)) {
    fail(c, "found " + std::to_string(channels) + " input channels, a weight of shape " + show(weight) + " and " +
                std::to_string(group) +
                " groups, needs a weight of [outputs, input channels / groups, kernel] and outputs "
                "divisible by the groups");
  }
  Shape out{x[0]};
  if (!last) out.push(weight[0]);
  for (std::size_t i = 0; i < w.rank; ++i) {
    const std::int64_t extent = spatial_extent(x, i, last);
    resolve_padding(w, i, extent);
    const std::int64_t room = extent + w.begin[i] + w.end[i] - w.reach(i);
    if (room < 0) {
      fail(c, "found a kernel that reaches over " + std::to_string(w.reach(i)) + " positions of a padded axis of " +
                  std::to_string(room + w.reach(i)) + " (input " + show(x) + "), needs an input at least as large");
    }
    out.push(room / w.stride[i] + 1);
  }
  if (last) out.push(weight[0]);
  set(c, 0, conv_type(c, op), out);
  return true;
}

void lower_conv_transpose(InferContext& c, const Operator&) {
  const Dims weight = shape_of(c, 1), x = shape_of(c, 0);
  const Dims given = integers_attribute(c, "kernel_shape");
  Window w = window_of(c, given.empty() && weight.size() > 2 ? weight.subspan(2) : given);
  const Dims wanted = integers_attribute(c, "output_shape");
  for (std::size_t i = 0; i < w.rank && x.size() == w.rank + 2; ++i) {
    if (w.padding == Padding::given && wanted.empty()) continue;
    const std::int64_t extra = window_entry(c, "output_padding", i, 0, 0);
    const std::int64_t full = product(c, x[i + 2] - 1, w.stride[i]) + extra + w.reach(i);
    std::int64_t out = w.padding == Padding::valid ? full : product(c, x[i + 2], w.stride[i]);
    if (wanted.size() == w.rank) out = wanted[i];
    if (wanted.size() == x.size()) out = wanted[i + 2];
    const std::int64_t total = std::clamp<std::int64_t>(full - std::max<std::int64_t>(out, 0), 0, INT32_MAX);
    w.begin[i] = w.padding == Padding::same_upper ? total / 2 : total - total / 2;
    w.end[i] = total - w.begin[i];
  }
  write_window(c, w);
  c.attributes.groups = small(c, integer_attribute(c, "group", 1), 1, "group");
  c.attributes.weight_layout = 2;
}

bool infer_conv_transpose(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), weight = shape_of(c, 1);
  if (x.size() < 3 || weight.size() != x.size() || x[1] != weight[0]) {
    fail(c, "found an input of shape " + show(x) + " and a weight of shape " + show(weight) +
                ", needs a weight of [input channels, outputs / groups, kernel]");
  }
  const Dims given = integers_attribute(c, "kernel_shape");
  Window w = window_of(c, given.empty() ? weight.subspan(2) : given);
  if (w.rank + 2 != x.size()) fail(c, "found a kernel_shape of " + show(given) + " for an input of shape " + show(x));
  const std::int64_t group = small(c, integer_attribute(c, "group", 1), 1, "group");
  const Dims wanted = integers_attribute(c, "output_shape");
  Shape out{x[0], product(c, weight[1], group)};
  for (std::size_t i = 0; i < w.rank; ++i) {
    const std::int64_t extra = window_entry(c, "output_padding", i, 0, 0);
    const bool same = w.padding == Padding::same_upper || w.padding == Padding::same_lower;
    const std::int64_t full = product(c, x[i + 2] - 1, w.stride[i]) + extra + w.reach(i);
    // Padding is never negative: a kernel shorter than the stride leaves less than input x stride.
    std::int64_t extent = same ? std::min(full, product(c, x[i + 2], w.stride[i])) : full - w.begin[i] - w.end[i];
    if (wanted.size() == w.rank) extent = wanted[i];
    if (wanted.size() == x.size()) extent = wanted[i + 2];
    if (extent < 0) fail(c, "makes a dimension of " + std::to_string(extent) + " from an input of shape " + show(x));
    out.push(extent);
  }
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

void lower_causal_conv(InferContext& c, const Operator&) {
  const Dims weight = shape_of(c, 1);
  c.attributes.spatial_rank = 1;
  c.attributes.stride[0] = 1;
  c.attributes.dilation[0] = clamped(c.integer("dilation", 1));
  c.attributes.channels_last = c.integer("channels_last", 0) != 0 ? 1 : 0;
  if (weight.size() < 2) return;
  c.attributes.kernel[0] = clamped(weight.back());
  c.attributes.groups = clamped(weight[0]);
  c.attributes.pad_begin[0] = clamped(weight.back() - 1);
}

bool infer_causal_conv(InferContext& c, const Operator&) {
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), weight = shape_of(c, 1);
  if (x.size() < 3 || weight.size() < 2 || weight.back() < 1) {
    fail(c, "found an input of shape " + show(x) + " and a weight of shape " + show(weight) +
                ", needs [batch, channels, length] and [channels, 1, kernel]");
  }
  set(c, 0, dtype_of(c, 0), x);
  if (x.size() != 3) return c.outputs.size() < 2;  // the state of wider inputs has no documented layout
  const std::int64_t reach = product(c, weight.back() - 1, std::max<std::int64_t>(1, c.integer("dilation", 1)));
  const bool last = c.integer("channels_last", 0) != 0;
  set(c, 1, dtype_of(c, 0),
      input(c, 3) != nullptr && input(c, 3)->has_shape ? Shape(shape_of(c, 3))
                                                       : Shape{x[0], last ? x[2] : x[1], reach});
  return true;
}

void lower_col2im(InferContext& c, const Operator&) {
  const Value* block = integers_of(c, 2);
  if (block == nullptr) return;
  write_window(c, window_of(c, block->integers));
}

bool infer_col2im(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1, 2})) return false;
  const Value* image = integers_of(c, 1);
  const Value* block = integers_of(c, 2);
  if (image == nullptr || block == nullptr) return false;
  const Dims x = shape_of(c, 0);
  std::int64_t area = 1;
  for (const std::int64_t b : block->integers) area = product(c, area, b);
  if (x.size() != 3 || area < 1 || x[1] % area != 0) {
    fail(c, "found an input of shape " + show(x) + " and a block of " + show(block->integers) +
                ", needs [batch, channels x block, positions]");
  }
  Shape out{x[0], x[1] / area};
  for (const std::int64_t d : image->integers) out.push(d);
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

}  // namespace perfpass::onnx
