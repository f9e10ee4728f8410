// Resizing and sampling of images.
#include <algorithm>
#include <cmath>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {
namespace {

/// The list of numbers at input i; absent where the input is missing or holds nothing.
struct Numbers {
  bool absent = false, known = false;
  std::span<const double> reals;
  Dims integers;
};

Numbers numbers_of(const InferContext& c, std::size_t i) {
  const Value* v = input(c, i);
  Numbers n;
  n.absent = v == nullptr || (v->has_shape && v->shape.size() == 1 && v->shape[0] == 0);
  if (n.absent) return n;
  n.known = v->has_values;
  n.reals = v->reals;
  n.integers = v->integers;
  return n;
}

/// floor(extent x scale) in single precision, as ONNX Runtime computes it.
std::int64_t scaled(const InferContext& c, std::int64_t extent, double scale) {
  const float out = std::floor(static_cast<float>(extent) * static_cast<float>(scale));
  if (!(scale > 0) || !(out < 0x1p48F)) {
    fail(c, "found a scale of " + std::to_string(scale) + " for a dimension of " + std::to_string(extent) +
                ", needs a positive, finite one");
  }
  return static_cast<std::int64_t>(out);
}

std::size_t resized_axis(const InferContext& c, Dims axes, std::size_t i, std::size_t rank) {
  return axes.empty() ? i : axis_of(c, axes[i], rank);
}

/// Sizes that keep the aspect ratio take the smallest (or largest) of the factors for every axis, rounded to nearest.
void keep_aspect_ratio(const InferContext& c, Dims sizes, Dims axes, Text policy, Dims x, Shape& out) {
  double factor = 0.0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t extent = x[resized_axis(c, axes, i, x.size())];
    if (extent == 0) return;
    const auto f = static_cast<double>(static_cast<float>(sizes[i]) / static_cast<float>(extent));
    factor = i == 0 ? f : policy == "not_larger" ? std::min(factor, f) : std::max(factor, f);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t axis = resized_axis(c, axes, i, x.size());
    const double extent = std::floor(factor * static_cast<double>(x[axis]) + 0.5);
    if (!(extent >= 0 && extent < 0x1p48))
      fail(c, "found sizes of " + show(sizes) + ", needs positive ones of at most 2^48");
    out[axis] = static_cast<std::int64_t>(extent);
  }
}

}  // namespace

bool infer_resize(InferContext& c, const Operator& op) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  Shape out(x);
  const bool upsample = op.variant == Variant::inverse;
  if (upsample && c.find("height_scale") != nullptr) {  // opset 1
    if (x.size() != 4) fail(c, "found an input of shape " + show(x) + ", needs [batch, channels, height, width]");
    out[2] = scaled(c, x[2], c.real("height_scale", 1.0));
    out[3] = scaled(c, x[3], c.real("width_scale", 1.0));
    set(c, 0, dtype_of(c, 0), out);
    return true;
  }
  const Dims axes = integers_attribute(c, "axes");
  const std::size_t count = axes.empty() ? x.size() : axes.size();
  Numbers scales, sizes;
  if (const Attribute* a = c.find("scales"); a != nullptr) {  // Upsample before opset 9
    scales.known = true;
    scales.reals = a->reals;
    if (a->kind == Attribute::Kind::integers) {  // com.microsoft.nchwc
      double* copy = new_reals(c, a->integers.size());
      std::copy(a->integers.begin(), a->integers.end(), copy);
      scales.reals = {copy, a->integers.size()};
    }
  } else {
    const bool simple = upsample || c.opset < 11;  // X, scales; later X, roi, scales, sizes
    scales = numbers_of(c, simple ? 1 : 2);
    sizes = numbers_of(c, simple ? c.inputs.size() : 3);
    if (!sizes.absent) {
      if (!sizes.known) return false;
      if (sizes.integers.size() != count) {
        fail(c, "found sizes " + show(sizes.integers) + " for an input of shape " + show(x) + ", needs one per axis");
      }
      const Text policy = c.text("keep_aspect_ratio_policy", "stretch");
      for (std::size_t i = 0; i < count; ++i) {
        if (sizes.integers[i] < 0) fail(c, "found sizes " + show(sizes.integers) + ", needs 0 or more");
        out[resized_axis(c, axes, i, x.size())] = sizes.integers[i];
      }
      if (policy != "stretch") keep_aspect_ratio(c, sizes.integers, axes, policy, x, out);
      // Sizes that repeat the batch the file fixes mean whatever batch there is.
      if (rebinds(c) && axes.empty() && out.size() > 0 && out[0] == c.file_batch && x[0] == c.batch) out[0] = c.batch;
      set(c, 0, dtype_of(c, 0), out);
      return true;
    }
  }
  if (scales.absent) fail(c, "found neither scales nor sizes, needs one of them");
  if (!scales.known) return false;
  if (scales.reals.size() != count) {
    fail(c, "found " + std::to_string(scales.reals.size()) + " scales for an input of shape " + show(x) +
                ", needs one per axis");
  }
  const bool crops = c.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";
  const Numbers region = crops ? numbers_of(c, 1) : Numbers{};
  if (crops && (!region.known || region.reals.size() != 2 * count)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t axis = resized_axis(c, axes, i, x.size());
    const double kept = crops ? region.reals[i + count] - region.reals[i] : 1.0;
    out[axis] = scaled(c, x[axis], scales.reals[i] * kept);
  }
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_grid_sample(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), grid = shape_of(c, 1);
  if (x.size() < 3 || grid.size() != x.size() || grid.back() != static_cast<std::int64_t>(x.size()) - 2) {
    fail(c, "found an input of shape " + show(x) + " and a grid of shape " + show(grid) +
                ", needs [batch, channels, spatial] and [batch, spatial, axes]");
  }
  Shape out{x[0], x[1]};
  for (std::size_t d = 1; d + 1 < grid.size(); ++d) out.push(grid[d]);
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_affine_grid(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  const Value* size = integers_of(c, 1);
  if (size == nullptr) return false;
  const Dims wanted = size->integers;
  if (wanted.size() != 4 && wanted.size() != 5) fail(c, "found a size of " + show(wanted) + ", needs 4 or 5 entries");
  Shape out{wanted[0]};
  for (const std::int64_t d : wanted.subspan(2)) out.push(d);
  out.push(static_cast<std::int64_t>(wanted.size()) - 2);
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_crop_and_resize(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Value* size = integers_of(c, 3);
  if (size == nullptr) return false;
  const Dims x = shape_of(c, 0), rois = shape_of(c, 1);
  if (x.size() != 4 || rois.empty() || size->integers.size() != 2) {
    fail(c, "found an input of shape " + show(x) + " and a size of " + show(size->integers) +
                ", needs [batch, channels, height, width] and two numbers");
  }
  set(c, 0, dtype_of(c, 0), Shape{rois[0], x[1], size->integers[0], size->integers[1]});
  return true;
}

}  // namespace perfpass::onnx
