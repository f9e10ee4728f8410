// Operators that choose, place, count or order elements.
#include <algorithm>
#include <numeric>

#include "onnx/operators/operators.hpp"
#include "perfpass/onnx_reader.hpp"

namespace perfpass::onnx {

bool infer_gather(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), index = shape_of(c, 1);
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), x.size());
  Shape out;
  for (std::size_t d = 0; d < axis; ++d) out.push(x[d]);
  for (const std::int64_t d : index) out.push(d);
  for (std::size_t d = axis + 1; d < x.size(); ++d) out.push(x[d]);
  set(c, 0, dtype_of(c, 0), out);
  const Value* chosen = integers_of(c, 1);
  if (chosen == nullptr) return true;
  const std::int64_t inner = elements(x.subspan(axis + 1)), count = elements(index);
  if (inner == 0 || count == 0 || static_cast<std::int64_t>(chosen->integers.size()) != count) {
    select_values(c, 0, *c.inputs[0], [](std::int64_t) { return -1; });
    return true;
  }
  select_values(c, 0, *c.inputs[0], [&](std::int64_t k) -> std::int64_t {
    std::int64_t at = chosen->integers[static_cast<std::size_t>(k / inner % count)];
    if (at < 0) at += x[axis];
    if (at < 0 || at >= x[axis]) return -1;
    return (k / inner / count * x[axis] + at) * inner + k % inner;
  });
  return true;
}

bool infer_gather_elements(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), index = shape_of(c, 1);
  if (x.size() != index.size() || x.empty()) {
    fail(c, "found inputs of shape " + show(x) + " and " + show(index) + ", needs equal ranks of at least 1");
  }
  axis_of(c, integer_attribute(c, "axis", 0), x.size());
  set(c, 0, dtype_of(c, 0), index);
  return true;
}

bool infer_gather_nd(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), index = shape_of(c, 1);
  const std::int64_t batch = integer_attribute(c, "batch_dims", 0);
  if (batch < 0 || index.empty() || batch >= static_cast<std::int64_t>(std::min(x.size(), index.size())) ||
      index.back() < 0 || index.back() > static_cast<std::int64_t>(x.size()) - batch) {
    fail(c, "found data of shape " + show(x) + ", indices of shape " + show(index) + " and batch_dims " +
                std::to_string(batch) + ", needs a last index dimension of at most the rank left over");
  }
  Shape out(index.first(index.size() - 1));
  const auto used = static_cast<std::size_t>(batch + index.back());
  for (std::size_t d = used; d < x.size(); ++d) out.push(x[d]);
  set(c, 0, dtype_of(c, 0), out);
  const Value* chosen = integers_of(c, 1);
  if (chosen == nullptr || batch != 0 || static_cast<std::int64_t>(chosen->integers.size()) != elements(index))
    return true;
  const std::int64_t inner = elements(x.subspan(used));
  const Strides from(x);
  select_values(c, 0, *c.inputs[0], [&](std::int64_t k) -> std::int64_t {
    const std::int64_t row = k / std::max<std::int64_t>(1, inner) * index.back();
    std::int64_t position = k % std::max<std::int64_t>(1, inner);
    for (std::int64_t d = 0; d < index.back(); ++d) {
      std::int64_t at = chosen->integers[static_cast<std::size_t>(row + d)];
      const auto axis = static_cast<std::size_t>(d);
      if (at < 0) at += x[axis];
      if (at < 0 || at >= x[axis]) return -1;
      position += at * from.of[axis];
    }
    return position;
  });
  return true;
}

void lower_gather_block_quantized(InferContext& c, const Operator&) {
  c.attributes.axis = soft_axis(c.integer("gather_axis", 0), input(c, 0));
  c.attributes.weight_bits = clamped(c.integer("bits", 4));
  c.attributes.block_size = clamped(c.integer("block_size", 128));
}

bool infer_gather_block_quantized(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 2));
  if (!ready(c, {0, 1, 2})) return false;
  Shape x(shape_of(c, 0));
  const std::size_t axis = axis_of(c, integer_attribute(c, "gather_axis", 0), x.size());
  if (const std::int64_t bits = integer_attribute(c, "bits", 4);
      dtype_of(c, 0) == DType::uint8 && bits > 0 && bits < 8) {
    const std::size_t packed = axis_of(c, integer_attribute(c, "quantize_axis", -1), x.size());
    x[packed] = product(c, x[packed], 8 / bits);  // several elements in a byte, along the quantized axis
  }
  Shape out;
  for (std::size_t d = 0; d < axis; ++d) out.push(x[d]);
  for (const std::int64_t d : shape_of(c, 1)) out.push(d);
  for (std::size_t d = axis + 1; d < x.size(); ++d) out.push(x[d]);
  set(c, 0, dtype_of(c, 2), out);
  return true;
}

namespace {

std::int64_t* copied(InferContext& c, Dims values) {
  std::int64_t* copy = new_integers(c, values.size());
  std::copy(values.begin(), values.end(), copy);
  return copy;
}

bool whole(const Value* v, Dims shape) {
  return v != nullptr && static_cast<std::int64_t>(v->integers.size()) == elements(shape);
}

}  // namespace

bool infer_scatter(InferContext& c, const Operator& op) {
  if (!infer_same(c, op)) return false;
  const Value* data = integers_of(c, 0);
  const Value* index = integers_of(c, 1);
  const Value* update = integers_of(c, 2);
  const Dims x = shape_of(c, 0), chosen = shape_of(c, 1);
  if (!whole(data, x) || !whole(index, chosen) || !whole(update, shape_of(c, 2)) ||
      update->integers.size() != index->integers.size() || chosen.size() != x.size() || x.empty() ||
      c.text("reduction", "none") != "none" || !wants_values(c, 0)) {
    return true;
  }
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), x.size());
  std::int64_t* values = copied(c, data->integers);
  const Strides to(x), from(chosen);
  for (std::size_t k = 0; k < index->integers.size(); ++k) {
    auto rest = static_cast<std::int64_t>(k);
    std::int64_t position = 0;
    for (std::size_t d = 0; d < x.size(); ++d) {
      std::int64_t at = d == axis ? index->integers[k] : rest / from.of[d];
      rest %= from.of[d];
      if (at < 0) at += x[d];
      if (at < 0 || at >= x[d]) return true;
      position += at * to.of[d];
    }
    values[position] = update->integers[k];
  }
  c.outputs[0].integers = {values, data->integers.size()};
  c.outputs[0].has_values = true;
  return true;
}

bool infer_scatter_nd(InferContext& c, const Operator& op) {
  if (!infer_same(c, op)) return false;
  const Value* data = integers_of(c, 0);
  const Value* index = integers_of(c, 1);
  const Value* update = integers_of(c, 2);
  const Dims x = shape_of(c, 0), chosen = shape_of(c, 1);
  if (!whole(data, x) || !whole(index, chosen) || !whole(update, shape_of(c, 2)) || chosen.empty() ||
      chosen.back() < 1 || chosen.back() > static_cast<std::int64_t>(x.size()) ||
      c.text("reduction", "none") != "none" || !wants_values(c, 0)) {
    return true;
  }
  const std::int64_t depth = chosen.back();
  const std::int64_t inner = elements(x.subspan(static_cast<std::size_t>(depth)));
  const auto rows = static_cast<std::int64_t>(index->integers.size()) / depth;
  if (rows * inner != static_cast<std::int64_t>(update->integers.size())) return true;
  std::int64_t* values = copied(c, data->integers);
  const Strides to(x);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t position = 0;
    for (std::int64_t d = 0; d < depth; ++d) {
      std::int64_t at = index->integers[static_cast<std::size_t>(row * depth + d)];
      const std::int64_t extent = x[static_cast<std::size_t>(d)];
      if (at < 0) at += extent;
      if (at < 0 || at >= extent) return true;
      position += at * to.of[d];
    }
    for (std::int64_t k = 0; k < inner; ++k)
      values[position + k] = update->integers[static_cast<std::size_t>(row * inner + k)];
  }
  c.outputs[0].integers = {values, data->integers.size()};
  c.outputs[0].has_values = true;
  return true;
}

bool infer_one_hot(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 2));
  if (!ready(c, {0, 1, 2})) return false;
  const Value& depth = *c.inputs[1];
  std::int64_t count = -1;
  if (depth.has_values && depth.integers.size() == 1) count = depth.integers[0];
  if (depth.has_values && depth.reals.size() == 1 && depth.reals[0] >= 0 && depth.reals[0] < 0x1p48) {
    count = static_cast<std::int64_t>(depth.reals[0]);
  }
  if (!depth.has_values) return false;
  if (count < 0) fail(c, "found a depth that is no single number of 0 or more, needs one");
  Shape out(shape_of(c, 0));
  out.insert(axis_of(c, integer_attribute(c, "axis", -1), out.size() + 1), count);
  set(c, 0, dtype_of(c, 2), out);
  return true;
}

bool infer_compress(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Value* condition = integers_of(c, 1);
  if (condition == nullptr) return false;
  const std::int64_t kept =
      std::count_if(condition->integers.begin(), condition->integers.end(), [](auto v) { return v != 0; });
  const Dims x = shape_of(c, 0);
  if (c.find("axis") == nullptr) {
    set(c, 0, dtype_of(c, 0), Shape{kept});
    return true;
  }
  Shape out(x);
  out[axis_of(c, integer_attribute(c, "axis", 0), x.size())] = kept;
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_top_k(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  set_dtype(c, 1, DType::int64);
  if (!ready(c, {0})) return false;
  std::int64_t k = integer_attribute(c, "k", -1);
  if (c.opset >= 10 || c.find("k") == nullptr) {
    if (input(c, 1) == nullptr) fail(c, "found no K, needs it as second input");
    const Value* given = integers_of(c, 1);
    if (given == nullptr) return false;
    k = given->integers.size() == 1 ? given->integers[0] : -1;
  }
  Shape out(shape_of(c, 0));
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", -1), out.size());
  if (k < 0 || k > out[axis]) {
    fail(c,
         "found K = " + std::to_string(k) + " for an axis of " + std::to_string(out[axis]) + ", needs 0 to that many");
  }
  out[axis] = k;
  set(c, 0, dtype_of(c, 0), out);
  set(c, 1, DType::int64, out);
  const Value* data = integers_of(c, 0);
  if (out.size() != 1 || !whole(data, shape_of(c, 0)) || !wants_values(c, 0)) return true;
  std::vector<std::int64_t> order(data->integers.size());
  std::iota(order.begin(), order.end(), 0);
  const bool largest = integer_attribute(c, "largest", 1) != 0;
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const std::int64_t x = data->integers[static_cast<std::size_t>(a)], y = data->integers[static_cast<std::size_t>(b)];
    return largest ? x > y : x < y;
  });
  order.resize(static_cast<std::size_t>(k));
  std::vector<std::int64_t> values;
  for (const std::int64_t at : order) values.push_back(data->integers[static_cast<std::size_t>(at)]);
  set_integers(c, 0, values);
  set_integers(c, 1, order);
  return true;
}

bool infer_non_zero(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::int64);
  if (!ready(c, {0})) return false;
  const Value& x = *c.inputs[0];
  const bool real = is_floating(x.dtype);
  const auto count = elements(x.shape);
  if (!x.has_values && (x.selects == Selects::some || x.selects == Selects::all)) {
    c.assumed = x.selects == Selects::some;
    const std::int64_t most = c.assumed ? (c.detections > 0 ? c.detections : kUsualDetections) : count;
    set(c, 0, DType::int64, Shape{static_cast<std::int64_t>(x.shape.size()), std::min(most, count)});
    return true;
  }
  if (!x.has_values || static_cast<std::int64_t>(real ? x.reals.size() : x.integers.size()) != count) return false;
  std::vector<std::int64_t> found;
  for (std::int64_t k = 0; k < count; ++k) {
    const auto at = static_cast<std::size_t>(k);
    if (real ? x.reals[at] != 0.0 : x.integers[at] != 0) found.push_back(k);
  }
  const Strides from(x.shape);
  std::vector<std::int64_t> rows;
  const std::size_t rank = x.shape.size();
  for (std::size_t d = 0; d < rank; ++d) {
    for (const std::int64_t k : found) rows.push_back(k / from.of[d] % std::max<std::int64_t>(1, x.shape[d]));
  }
  set(c, 0, DType::int64, Shape{static_cast<std::int64_t>(rank), static_cast<std::int64_t>(found.size())});
  set_integers(c, 0, rows);
  return true;
}

bool infer_unique(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  for (std::size_t i = 1; i < c.outputs.size(); ++i) set_dtype(c, i, DType::int64);
  if (!ready(c, {0})) return false;
  const Value* x = integers_of(c, 0);
  if (c.find("axis") != nullptr || !whole(x, shape_of(c, 0))) return false;
  std::vector<std::int64_t> values(x->integers.begin(), x->integers.end());
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  const Shape found{static_cast<std::int64_t>(values.size())};
  set(c, 0, dtype_of(c, 0), found);
  const bool contrib = c.node.domain == "com.microsoft";  // y, index of every element, counts
  if (contrib) {
    set(c, 1, DType::int64, Shape{elements(x->shape)});
    set(c, 2, DType::int64, found);
  } else {
    set(c, 1, DType::int64, found);
    set(c, 2, DType::int64, Shape{elements(x->shape)});
    set(c, 3, DType::int64, found);
  }
  if (contrib || c.integer("sorted", 1) != 0) set_integers(c, 0, values);
  return true;
}

bool infer_non_max_suppression(InferContext& c, const Operator&) {
  // How many boxes survive depends on the scores. The result is the bound that the node itself states, which is what a
  // detector computes on in the worst case: max_output_boxes_per_class, at most all boxes, for every class and image.
  set_dtype(c, 0, DType::int64);
  if (!ready(c, {0, 1})) return false;
  const Dims boxes = shape_of(c, 0), scores = shape_of(c, 1);
  if (boxes.size() != 3 || scores.size() != 3) {
    fail(c, "found boxes of shape " + show(boxes) + " and scores of shape " + show(scores) +
                ", needs [batch, boxes, 4] and [batch, classes, boxes]");
  }
  std::int64_t most = 0;
  if (input(c, 2) != nullptr) {
    const Value* given = integers_of(c, 2);
    if (given == nullptr || given->integers.size() != 1) return false;
    most = std::clamp<std::int64_t>(given->integers[0], 0, boxes[1]);
  }
  std::int64_t kept = product(c, product(c, most, scores[1]), scores[0]);
  // A suppression without a limit keeps proposals, of which the model takes the first ones.
  if (c.detections > 0 && most < boxes[1]) {
    c.assumed = true;
    kept = std::min(kept, product(c, c.detections, scores[0]));
  }
  set(c, 0, DType::int64, Shape{kept, 3});
  return true;
}

}  // namespace perfpass::onnx
