// Operators of TensorFlow Lite that cut tensors and put them together. Converters compute shapes with them, so that
// their small integer contents are followed.
#include <algorithm>

#include "tflite/operators.hpp"

namespace perfpass::tflite {

using onnx::axis_of;
using onnx::Dims;
using onnx::dtype_of;
using onnx::elements;
using onnx::fail;
using onnx::integer_attribute;
using onnx::integers_of;
using onnx::ready;
using onnx::set;
using onnx::set_dtype;
using onnx::Shape;
using onnx::shape_of;
using onnx::show;
using onnx::Strides;

/// Data and [rank, 2] elements before and behind every axis.
bool infer_pad(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const onnx::Value* edges = integers_of(c, 1);
  if (edges == nullptr) return false;
  Shape out(shape_of(c, 0));
  if (edges->integers.size() != 2 * out.size()) {
    fail(c, "found edges " + show(edges->integers) + " for an input of shape " + show(out) + ", needs two per axis");
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (const std::int64_t edge : edges->integers.subspan(2 * i, 2)) {
      if (edge < 0 || edge > kMaxElements) fail(c, "found an edge of " + std::to_string(edge) + ", needs 0 to 2^48");
      out[i] += edge;
    }
  }
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

namespace {

/// A slice: for every axis of the input the first element and the step, and whether the result keeps the axis.
struct Cut {
  std::int64_t first[kMaxRank] = {}, step[kMaxRank] = {}, count[kMaxRank] = {};
  bool dropped[kMaxRank] = {};
  std::size_t added_before[kMaxRank + 1] = {};  // new axes before an axis, and behind the last
};

void write_cut(InferContext& c, const Cut& cut) {
  const Dims x = shape_of(c, 0);
  Shape out, kept;
  std::size_t axis[kMaxRank] = {};
  for (std::size_t i = 0; i <= x.size(); ++i) {
    for (std::size_t k = 0; k < cut.added_before[i]; ++k) out.push(1);
    if (i == x.size() || cut.dropped[i]) continue;
    axis[kept.size()] = i;
    kept.push(cut.count[i]);
    out.push(cut.count[i]);
  }
  set(c, 0, dtype_of(c, 0), out);
  const Strides from(x), to(kept);
  std::int64_t start = 0;
  for (std::size_t i = 0; i < x.size(); ++i) start += cut.first[i] * from.of[i];
  onnx::select_values(c, 0, *c.inputs[0], [&](std::int64_t k) {
    std::int64_t position = start;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      position += k / to.of[i] * cut.step[axis[i]] * from.of[axis[i]];
      k %= to.of[i];
    }
    return position;
  });
}

bool has(std::int64_t mask, std::size_t i) noexcept { return i < 32 && (mask >> i & 1) != 0; }

}  // namespace

/// Data, begin, end, strides; the masks are TensorFlow's (strided_slice_op.cc).
bool infer_strided_slice(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1, 2, 3})) return false;
  const onnx::Value* begins = integers_of(c, 1);
  const onnx::Value* ends = integers_of(c, 2);
  const onnx::Value* strides = integers_of(c, 3);
  if (strides == nullptr) return false;
  const Dims x = shape_of(c, 0);
  const std::int64_t begin_mask = c.integer("begin_mask", 0), end_mask = c.integer("end_mask", 0),
                     ellipsis_mask = c.integer("ellipsis_mask", 0), new_mask = c.integer("new_axis_mask", 0),
                     shrink_mask = c.integer("shrink_axis_mask", 0);
  const bool offsets = c.integer("offset", 0) != 0;  // ends count from the begins
  const std::size_t given = strides->integers.size();
  if ((begins != nullptr && begins->integers.size() != given) || (ends != nullptr && ends->integers.size() != given)) {
    fail(c, "found " + std::to_string(given) + " strides and other numbers of begins or ends, needs as many of each");
  }
  std::size_t named = 0;  // axes of the input that an entry names
  bool dotted = false;
  for (std::size_t i = 0; i < given; ++i) {
    if (has(ellipsis_mask, i)) {
      if (dotted) fail(c, "found two ellipses, needs one at most");
      dotted = true;
    } else if (!has(new_mask, i)) {
      ++named;
    }
  }
  if (named > x.size()) fail(c, "cuts " + std::to_string(named) + " axes of an input of shape " + show(x));
  Cut cut;
  std::size_t axis = 0;
  const auto whole = [&] {
    cut.step[axis] = 1;
    cut.count[axis] = x[axis];
    ++axis;
  };
  for (std::size_t i = 0; i < given; ++i) {
    if (has(ellipsis_mask, i)) {
      for (std::size_t k = x.size() - named; k > 0; --k) whole();
      continue;
    }
    if (has(new_mask, i)) {
      if (++cut.added_before[axis] > kMaxRank) fail(c, "adds too many axes; at most 16 are allowed");
      continue;
    }
    const std::int64_t extent = x[axis], step = strides->integers[i];
    const bool from_start = has(begin_mask, i), to_end = has(end_mask, i), shrinks = has(shrink_mask, i);
    if ((!from_start && begins == nullptr) || (!to_end && !shrinks && ends == nullptr)) return false;
    if (step == 0 || step > kMaxElements || step < -kMaxElements) fail(c, "found a stride of 0 or past 2^48");
    const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
    const auto placed = [&](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 && at >= -extent ? at + extent : at < 0 ? low : at, low, high);
    };
    const std::int64_t first = from_start ? (step > 0 ? 0 : extent - 1) : placed(begins->integers[i]);
    if (shrinks) {
      cut.dropped[axis] = true;
      cut.first[axis] = std::clamp<std::int64_t>(first, 0, std::max<std::int64_t>(0, extent - 1));
      cut.step[axis] = 1;
      cut.count[axis] = 1;
      ++axis;
      continue;
    }
    std::int64_t last = to_end ? (step > 0 ? extent : -1) : 0;
    if (!to_end) {
      const std::int64_t end = std::clamp(ends->integers[i], -kMaxElements, kMaxElements);
      last = offsets ? std::clamp<std::int64_t>(first + end, low, high) : placed(end);
    }
    const std::int64_t room = step > 0 ? last - first : first - last;
    const std::int64_t stride = step > 0 ? step : -step;
    cut.first[axis] = first;
    cut.step[axis] = step;
    cut.count[axis] = room <= 0 ? 0 : (room - 1) / stride + 1;
    ++axis;
  }
  while (axis < x.size()) whole();
  write_cut(c, cut);
  return true;
}

/// Data, begin, size; -1 is the rest of the axis.
bool infer_slice(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1, 2})) return false;
  const onnx::Value* begins = integers_of(c, 1);
  const onnx::Value* sizes = integers_of(c, 2);
  const Dims x = shape_of(c, 0);
  // A loop cuts the list of its results at the element that it writes: on average it takes half of it.
  const auto part = [&](std::size_t axis) { return axis == 0 ? (x[axis] + 1) / 2 : x[axis]; };
  if (sizes == nullptr) {
    Shape out;
    for (std::size_t i = 0; i < x.size(); ++i) out.push(part(i));
    set(c, 0, dtype_of(c, 0), out);
    return true;
  }
  if (sizes->integers.size() != x.size() || (begins != nullptr && begins->integers.size() != x.size())) {
    fail(c, "found sizes " + show(sizes->integers) + " for an input of shape " + show(x) + ", needs one per axis");
  }
  Cut cut;
  for (std::size_t i = 0; i < x.size(); ++i) {
    // A cache is cut where the position says: of given sizes, the place does not matter.
    const std::int64_t first = begins == nullptr ? 0 : begins->integers[i];
    std::int64_t count = sizes->integers[i];
    if (count == -1 && begins == nullptr) count = part(i);
    if (first < 0 || first > x[i]) fail(c, "begins at " + std::to_string(first) + " of an input of shape " + show(x));
    if (count == -1) count = x[i] - first;
    // The batch that the file fixes stands in the constant too.
    if (onnx::rebinds(c) && i == 0 && first == 0 && count == c.file_batch && x[0] == c.batch) count = c.batch;
    if (count < 0 || count > x[i] - first) {
      fail(c, "takes " + std::to_string(count) + " from " + std::to_string(first) + " on of an input of shape " +
                  show(x) + ", needs parts of it");
    }
    cut.first[i] = first;
    cut.step[i] = 1;
    cut.count[i] = count;
  }
  write_cut(c, cut);
  if (begins == nullptr) c.outputs[0].has_values = false;
  return true;
}

bool infer_pack(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (c.inputs.empty()) fail(c, "found no input, needs at least one");
  bool known = true;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    if (!ready(c, {i})) return false;
    known = known && c.inputs[i]->has_values;
  }
  Shape out(shape_of(c, 0));
  for (std::size_t i = 1; i < c.inputs.size(); ++i) {
    const Dims other = shape_of(c, i);
    if (!std::equal(other.begin(), other.end(), out.begin(), out.end())) {
      fail(c, "found inputs of shape " + show(out) + " and " + show(other) + ", needs equal shapes");
    }
  }
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), out.size() + 1);
  const std::int64_t inner = elements(Dims(out).subspan(axis));
  const auto parts = static_cast<std::int64_t>(c.inputs.size());
  out.insert(axis, parts);
  set(c, 0, dtype_of(c, 0), out);
  if (!known || !onnx::wants_values(c, 0)) return true;
  const auto count = static_cast<std::size_t>(elements(out));
  const auto fill = [&](auto* values, auto list) {
    for (std::size_t k = 0; k < count; ++k) {
      const auto at = static_cast<std::int64_t>(k);
      const auto from = list(*c.inputs[static_cast<std::size_t>(at / inner % parts)]);
      const auto place = static_cast<std::size_t>(at / inner / parts * inner + at % inner);
      if (place >= from.size()) return std::span(values, 0);
      values[k] = from[place];
    }
    return std::span(values, count);
  };
  onnx::Value& result = c.outputs[0];
  if (is_floating(dtype_of(c, 0))) {
    result.reals = fill(onnx::new_reals(c, count), [](const onnx::Value& v) { return v.reals; });
  } else {
    result.integers = fill(onnx::new_integers(c, count), [](const onnx::Value& v) { return v.integers; });
  }
  result.has_values = result.reals.size() + result.integers.size() == count;
  return true;
}

bool infer_unpack(InferContext& c, const Operator&) {
  for (std::size_t i = 0; i < c.outputs.size(); ++i) set_dtype(c, i, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), x.size());
  const std::int64_t extent = x[axis];
  if (extent != static_cast<std::int64_t>(c.outputs.size())) {
    fail(c, "found " + std::to_string(c.outputs.size()) + " outputs for an axis of " + std::to_string(extent) +
                ", needs one each");
  }
  Shape out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i != axis) out.push(x[i]);
  }
  const std::int64_t inner = elements(x.subspan(axis + 1));
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    set(c, i, dtype_of(c, 0), out);
    onnx::select_values(c, i, *c.inputs[0], [&](std::int64_t k) {
      return (k / inner * extent + static_cast<std::int64_t>(i)) * inner + k % inner;
    });
  }
  return true;
}

/// As ONNX's Gather, with leading axes that data and indices share.
bool infer_gather(InferContext& c, const Operator& op) {
  const std::int64_t shared = integer_attribute(c, "batch_dims", 0);
  if (shared == 0) return onnx::infer_gather(c, op);
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), index = shape_of(c, 1);
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), x.size());
  const std::size_t batch = axis_of(c, shared, index.size() + 1);
  if (batch > axis) fail(c, "shares " + std::to_string(batch) + " axes before axis " + std::to_string(axis));
  Shape out(x.first(axis));
  for (const std::int64_t d : index.subspan(batch)) out.push(d);
  for (const std::int64_t d : x.subspan(axis + 1)) out.push(d);
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

/// Two shapes to the one that they broadcast to.
bool infer_broadcast_arguments(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const std::int64_t rank = std::max(elements(shape_of(c, 0)), elements(shape_of(c, 1)));
  set(c, 0, dtype_of(c, 0), Shape{rank});
  const onnx::Value* left = integers_of(c, 0);
  const onnx::Value* right = integers_of(c, 1);
  if (left == nullptr || right == nullptr || rank > kMaxRank) return true;
  onnx::set_integers(c, 0, onnx::broadcast(c, left->integers, right->integers));
  return true;
}

}  // namespace perfpass::tflite
