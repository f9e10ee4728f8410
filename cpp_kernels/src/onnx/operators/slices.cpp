// Operators that put tensors together, cut them, repeat them or add to their edges.
#include <algorithm>
#include <limits>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {

namespace {

/// Row by row of the axes before the concatenated one. Nothing where the contents do not fill the shape, as after a
/// rebound batch.
template <typename T, typename List>
std::span<const T> joined(InferContext& c, std::size_t axis, T* values, List list) {
  const Dims out = c.outputs[0].shape;
  const auto count = static_cast<std::size_t>(elements(out));
  const auto rows = static_cast<std::size_t>(elements(out.first(axis)));
  std::size_t at = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    for (const Value* v : c.inputs) {
      const std::span<const T> part = list(*v);
      const std::size_t length = part.size() / rows;
      for (std::size_t k = 0; k < length && at < count; ++k) values[at++] = part[row * length + k];
    }
  }
  return {values, at};
}

void concat_values(InferContext& c, std::size_t axis, bool real) {
  Value& out = c.outputs[0];
  const auto count = static_cast<std::size_t>(elements(out.shape));
  if (real) {
    out.reals = joined(c, axis, new_reals(c, count), [](const Value& v) { return v.reals; });
  } else {
    out.integers = joined(c, axis, new_integers(c, count), [](const Value& v) { return v.integers; });
  }
  out.has_values = (real ? out.reals.size() : out.integers.size()) == count;
}

}  // namespace

bool infer_concat(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (c.inputs.empty()) fail(c, "found no input, needs at least one");
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    if (!ready(c, {i})) return false;
  }
  Shape out(shape_of(c, 0));
  const std::int64_t fallback = c.opset < 4 ? 1 : 0;
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", fallback), out.size());
  bool known = true, real = false;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Dims x = shape_of(c, i);
    known = known && c.inputs[i]->has_values;
    real = real || is_floating(c.inputs[i]->dtype);
    if (i == 0) continue;
    if (x.size() != out.size()) {
      fail(c, "found inputs of shape " + show(shape_of(c, 0)) + " and " + show(x) + ", needs equal ranks");
    }
    for (std::size_t d = 0; d < x.size(); ++d) {
      out[d] = d == axis ? out[d] + x[d] : agree(c, out[d], x[d], "dimensions beside the axis");
    }
  }
  set(c, 0, dtype_of(c, 0), out);
  if (known && wants_values(c, 0)) concat_values(c, axis, real);
  return true;
}

bool infer_split(InferContext& c, const Operator&) {
  for (std::size_t i = 0; i < c.outputs.size(); ++i) set_dtype(c, i, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), x.size());
  Dims lengths = integers_attribute(c, "split");
  const bool listed = c.find("split") != nullptr || input(c, 1) != nullptr;
  if (c.find("split") == nullptr && input(c, 1) != nullptr) {
    const Value* given = integers_of(c, 1);
    if (given == nullptr) return false;
    lengths = given->integers;
  }
  const auto parts = static_cast<std::int64_t>(c.outputs.size());
  if (parts < 1 || (listed && static_cast<std::int64_t>(lengths.size()) != parts)) {
    fail(c, "found lengths " + show(lengths) + " for " + std::to_string(parts) + " outputs, needs one each");
  }
  const std::int64_t even = (x[axis] + parts - 1) / parts;
  const Strides from(x);
  std::int64_t start = 0;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    const std::int64_t left = x[axis] - start;
    std::int64_t length = listed ? lengths[i] : std::min(even, left);
    if (listed && rebinds(c) && length > 0 && length % c.file_batch == 0 && x[axis] % c.batch == 0 && parts == 1) {
      length = x[axis];
    }
    if (length < 0 || length > left || (i + 1 == c.outputs.size() && length != left)) {
      fail(c, "found lengths " + show(lengths) + " for an axis of " + std::to_string(x[axis]) +
                  ", needs lengths that add up to it");
    }
    Shape out(x);
    out[axis] = length;
    set(c, i, dtype_of(c, 0), out);
    const Strides to(out);
    select_values(c, i, *c.inputs[0], [&](std::int64_t k) {
      std::int64_t position = 0;
      for (std::size_t d = 0; d < out.size(); ++d) {
        position += (k / to.of[d] + (d == axis ? start : 0)) * from.of[d];
        k %= to.of[d];
      }
      return position;
    });
    start += length;
  }
  return true;
}

namespace {

/// One list of a Slice, as attribute before opset 10, else as input.
bool slice_list(const InferContext& c, Text attribute, std::size_t slot, Dims& list, bool& absent) {
  absent = false;
  if (c.opset < 10 && c.find("starts") != nullptr) {
    list = integers_attribute(c, attribute);
    absent = c.find(attribute) == nullptr;
    return true;
  }
  absent = input(c, slot) == nullptr;
  if (absent) return true;
  const Value* known = integers_of(c, slot);
  if (known != nullptr) list = known->integers;
  return known != nullptr;
}

}  // namespace

bool infer_slice(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Dims starts, ends, axes, steps;
  bool no_starts = false, no_ends = false, no_axes = false, no_steps = false;
  if (!slice_list(c, "starts", 1, starts, no_starts) || !slice_list(c, "ends", 2, ends, no_ends) ||
      !slice_list(c, "axes", 3, axes, no_axes) || !slice_list(c, "steps", 4, steps, no_steps)) {
    return false;
  }
  const Dims x = shape_of(c, 0);
  if (no_starts || no_ends || starts.size() != ends.size() || (!no_axes && axes.size() != starts.size()) ||
      (!no_steps && steps.size() != starts.size()) || starts.size() > x.size()) {
    fail(c, "found starts " + show(starts) + ", ends " + show(ends) + ", axes " + show(axes) + " and steps " +
                show(steps) + " for an input of shape " + show(x) + ", needs lists of one length, at most the rank");
  }
  Shape out(x);
  std::int64_t first[kMaxRank] = {}, step[kMaxRank];
  std::fill_n(step, kMaxRank, 1);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t axis = axis_of(c, no_axes ? static_cast<std::int64_t>(i) : axes[i], x.size());
    const std::int64_t extent = x[axis];
    const std::int64_t by = no_steps ? 1 : steps[i];
    if (by == 0) fail(c, "found a step of 0, needs a positive or negative one");
    std::int64_t start = starts[i], end = ends[i];
    // The largest integer means "to the end", whichever way that is.
    constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
    if (by < 0 && (end == kEnd || end == std::numeric_limits<std::int32_t>::max())) end = -1 - extent;
    if (start < 0) start += extent;
    if (end < 0) end += extent;
    if (by > 0) {
      start = std::clamp<std::int64_t>(start, 0, extent);
      end = std::clamp<std::int64_t>(end, 0, extent);
      out[axis] = end > start ? (end - start - 1) / by + 1 : 0;
    } else {
      start = std::clamp<std::int64_t>(start, extent > 0 ? 0 : -1, extent - 1);
      end = std::clamp<std::int64_t>(end, -1, extent);
      out[axis] = start > end ? (end - start + 1) / by + 1 : 0;
    }
    first[axis] = start;
    step[axis] = by;
  }
  set(c, 0, dtype_of(c, 0), out);
  const Strides from(x), to(out);
  select_values(c, 0, *c.inputs[0], [&](std::int64_t k) {
    std::int64_t position = 0;
    for (std::size_t d = 0; d < out.size(); ++d) {
      position += (first[d] + k / to.of[d] * step[d]) * from.of[d];
      k %= to.of[d];
    }
    return position;
  });
  return true;
}

bool infer_pad(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  Dims pads = integers_attribute(c, c.find("paddings") != nullptr ? "paddings" : "pads");
  if (c.find("pads") == nullptr && c.find("paddings") == nullptr) {
    if (input(c, 1) == nullptr) fail(c, "found no pads, needs them as second input");
    const Value* given = integers_of(c, 1);
    if (given == nullptr) return false;
    pads = given->integers;
  }
  Dims axes;
  if (input(c, 3) != nullptr) {
    const Value* given = integers_of(c, 3);
    if (given == nullptr) return false;
    axes = given->integers;
  }
  const bool chosen = input(c, 3) != nullptr;
  const std::size_t count = chosen ? axes.size() : x.size();
  if (pads.size() != 2 * count) {
    fail(c, "found pads " + show(pads) + " for an input of shape " + show(x) + ", needs two entries per axis");
  }
  Shape out(x);
  std::int64_t begin[kMaxRank] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t axis = chosen ? axis_of(c, axes[i], x.size()) : i;
    const std::int64_t limit = kMaxElements;
    if (pads[i] < -limit || pads[i] > limit || pads[i + count] < -limit || pads[i + count] > limit) {
      fail(c, "found pads " + show(pads) + ", needs entries within 2^48");
    }
    begin[axis] = pads[i];
    out[axis] += pads[i] + pads[i + count];
    if (out[axis] < 0)
      fail(c, "found pads " + show(pads) + " for an input of shape " + show(x) + ", needs dimensions of 0 or more");
  }
  set(c, 0, dtype_of(c, 0), out);
  if (!c.inputs[0]->has_values || is_floating(dtype_of(c, 0)) || c.text("mode", "constant") != "constant" ||
      !wants_values(c, 0)) {
    return true;
  }
  std::int64_t fill = 0;
  if (input(c, 2) != nullptr) {
    const Value* given = integers_of(c, 2);
    if (given == nullptr || given->integers.size() != 1) return true;
    fill = given->integers[0];
  }
  const Strides from(x), to(out);
  const auto total = static_cast<std::size_t>(elements(out));
  std::int64_t* values = new_integers(c, total);
  for (std::size_t k = 0; k < total; ++k) {
    auto rest = static_cast<std::int64_t>(k);
    std::int64_t position = 0;
    bool inside = true;
    for (std::size_t d = 0; d < out.size(); ++d) {
      const std::int64_t at = rest / to.of[d] - begin[d];
      rest %= to.of[d];
      inside = inside && at >= 0 && at < x[d];
      position += at * from.of[d];
    }
    values[k] = inside ? c.inputs[0]->integers[static_cast<std::size_t>(position)] : fill;
  }
  c.outputs[0].integers = {values, total};
  c.outputs[0].has_values = true;
  return true;
}

bool infer_tile(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  const Value* repeats = integers_of(c, 1);
  if (repeats == nullptr) return false;
  Shape out(x);
  if (c.opset < 6 && input(c, 2) != nullptr) {  // opset 1: tiles, axis
    const Value* given = integers_of(c, 2);
    if (given == nullptr || given->integers.empty() || repeats->integers.empty()) return false;
    const std::size_t axis = axis_of(c, given->integers[0], x.size());
    out[axis] = product(c, out[axis], repeats->integers[0]);
  } else {
    if (repeats->integers.size() != x.size()) {
      fail(c,
           "found repeats " + show(repeats->integers) + " for an input of shape " + show(x) + ", needs one per axis");
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (repeats->integers[i] < 0)
        fail(c, "found repeats " + show(repeats->integers) + ", needs entries of 0 or more");
      out[i] = product(c, out[i], repeats->integers[i]);
    }
    // A constant that repeats the file's batch, of something that is not batched itself.
    if (rebinds(c) && repeats->is_constant && c.file_batch > 1 && x.size() > 1 && x[0] == 1 && out[0] == c.file_batch) {
      out[0] = c.batch;
    }
  }
  set(c, 0, dtype_of(c, 0), out);
  const Strides from(x), to(out);
  select_values(c, 0, *c.inputs[0], [&](std::int64_t k) {
    std::int64_t position = 0;
    for (std::size_t d = 0; d < out.size(); ++d) {
      position += k / to.of[d] % std::max<std::int64_t>(1, x[d]) * from.of[d];
      k %= to.of[d];
    }
    return position;
  });
  return true;
}

bool infer_expand(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Value* target = integers_of(c, 1);
  if (target == nullptr) return false;
  Shape wanted(target->integers);
  for (const std::int64_t d : wanted) {
    if (d < 0) fail(c, "found a target of " + show(wanted) + ", needs entries of 0 or more");
  }
  if (rebinds(c) && target->is_constant && c.file_batch > 1 && wanted.size() > 1 && wanted[0] == c.file_batch) {
    wanted[0] = c.batch;
  }
  const Shape out = broadcast(c, shape_of(c, 0), wanted);
  set(c, 0, dtype_of(c, 0), out);
  const Dims x = shape_of(c, 0);
  select_values(c, 0, *c.inputs[0], [&](std::int64_t k) { return broadcast_position(k, out, x); });
  return true;
}

bool infer_center_crop_pad(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Value* wanted = integers_of(c, 1);
  if (wanted == nullptr) return false;
  const Dims axes = integers_attribute(c, "axes");
  Shape out(shape_of(c, 0));
  const bool chosen = c.find("axes") != nullptr;
  if (wanted->integers.size() != (chosen ? axes.size() : out.size())) {
    fail(c, "found a target of " + show(wanted->integers) + " for an input of shape " + show(out) +
                ", needs one per axis");
  }
  for (std::size_t i = 0; i < wanted->integers.size(); ++i) {
    out[chosen ? axis_of(c, axes[i], out.size()) : i] = wanted->integers[i];
  }
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_unfold_tensor(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  const std::size_t axis = axis_of(c, integer_attribute(c, "dim", -1), out.size());
  const std::int64_t size = small(c, integer_attribute(c, "size", 1), 1, "size");
  const std::int64_t step = small(c, integer_attribute(c, "step", 1), 1, "step");
  if (size > out[axis]) fail(c, "found an input of shape " + show(out) + " and windows of " + std::to_string(size));
  out[axis] = (out[axis] - size) / step + 1;
  out.push(size);
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

}  // namespace perfpass::onnx
