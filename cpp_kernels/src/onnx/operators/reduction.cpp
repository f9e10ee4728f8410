// Reductions over axes, positions of extrema, running sums, determinants and losses.
#include <algorithm>
#include <cmath>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {
namespace {

/// Axes of a reduction; false where they come from an input that is not known.
bool reduced_axes(const InferContext& c, Dims& axes, bool& all) {
  all = false;
  if (c.find("axes") != nullptr) {
    axes = integers_attribute(c, "axes");
  } else if (input(c, 1) != nullptr && c.node.op_type != "QLinearReduceMean") {
    const Value* given = integers_of(c, 1);
    if (given == nullptr) return false;
    axes = given->integers;
  }
  all = axes.empty() && c.integer("noop_with_empty_axes", 0) == 0;
  return true;
}

struct Reduction {
  bool over[kMaxRank] = {};
  Shape out;
};

Reduction reduction_of(const InferContext& c, Dims x, Dims axes, bool all) {
  Reduction r;
  for (std::size_t i = 0; i < x.size(); ++i) r.over[i] = all;
  for (const std::int64_t axis : axes) r.over[axis_of(c, axis, x.size())] = true;
  const bool keep = integer_attribute(c, "keepdims", 1) != 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!r.over[i]) r.out.push(x[i]);
    if (r.over[i] && keep) r.out.push(1);
  }
  return r;
}

/// Position in the output of element k of the input.
std::int64_t reduced_position(std::int64_t k, Dims x, const Strides& from, const Reduction& r) {
  std::int64_t position = 0;
  for (std::size_t d = 0; d < x.size(); ++d) {
    const std::int64_t at = k / from.of[d];
    k %= from.of[d];
    if (!r.over[d]) position = position * x[d] + at;
  }
  return position;
}

void reduce_integers(InferContext& c, const Operator& op, const Value& x, const Reduction& r) {
  const auto count = static_cast<std::size_t>(elements(r.out));
  if (static_cast<std::int64_t>(x.integers.size()) != elements(x.shape) || (x.integers.empty() && count > 0)) return;
  std::int64_t* values = new_integers(c, count);
  std::fill_n(values, count, op.kind == OpKind::reduce_prod ? 1 : 0);
  std::vector<bool> seen(count, false);
  const Strides from(x.shape);
  for (std::size_t k = 0; k < x.integers.size(); ++k) {
    const auto at = static_cast<std::size_t>(reduced_position(static_cast<std::int64_t>(k), x.shape, from, r));
    const auto a = static_cast<std::uint64_t>(values[at]), b = static_cast<std::uint64_t>(x.integers[k]);
    switch (op.kind) {
      case OpKind::reduce_sum:
        values[at] = static_cast<std::int64_t>(a + b);
        break;
      case OpKind::reduce_prod:
        values[at] = static_cast<std::int64_t>(a * b);
        break;
      case OpKind::reduce_max:
        values[at] = seen[at] ? std::max(values[at], x.integers[k]) : x.integers[k];
        break;
      case OpKind::reduce_min:
        values[at] = seen[at] ? std::min(values[at], x.integers[k]) : x.integers[k];
        break;
      default:
        return;
    }
    seen[at] = true;
  }
  c.outputs[0].integers = {values, count};
  c.outputs[0].has_values = true;
}

void reduce_reals(InferContext& c, const Operator& op, const Value& x, const Reduction& r) {
  const auto count = static_cast<std::size_t>(elements(r.out));
  if (static_cast<std::int64_t>(x.reals.size()) != elements(x.shape) || (x.reals.empty() && count > 0)) return;
  double* values = new_reals(c, count);
  std::fill_n(values, count, op.kind == OpKind::reduce_prod ? 1.0 : 0.0);
  std::vector<bool> seen(count, false);
  const Strides from(x.shape);
  for (std::size_t k = 0; k < x.reals.size(); ++k) {
    const auto at = static_cast<std::size_t>(reduced_position(static_cast<std::int64_t>(k), x.shape, from, r));
    switch (op.kind) {
      case OpKind::reduce_sum:
        values[at] += x.reals[k];
        break;
      case OpKind::reduce_prod:
        values[at] *= x.reals[k];
        break;
      case OpKind::reduce_max:
        values[at] = seen[at] ? std::max(values[at], x.reals[k]) : x.reals[k];
        break;
      case OpKind::reduce_min:
        values[at] = seen[at] ? std::min(values[at], x.reals[k]) : x.reals[k];
        break;
      default:
        return;
    }
    seen[at] = true;
  }
  c.outputs[0].reals = {values, count};
  c.outputs[0].has_values = true;
}

}  // namespace

void lower_reduce(InferContext& c, const Operator&) {
  Dims axes;
  bool all = false;
  if (c.inputs.empty() || !reduced_axes(c, axes, all)) return;
  // The axis column holds one axis: the first of a list. A reduction over everything has none.
  if (!axes.empty()) c.attributes.axis = soft_axis(axes[0], input(c, 0));
}

bool infer_reduce(InferContext& c, const Operator& op) {
  const DType type = op.variant == Variant::quantized && dtype_of(c, 4) != DType::undefined ? dtype_of(c, 4)
                     : op.variant == Variant::integer                                       ? DType::int32
                                                                                            : dtype_of(c, 0);
  set_dtype(c, 0, type);
  Dims axes;
  bool all = false;
  if (!ready(c, {0}) || !reduced_axes(c, axes, all)) return false;
  const Dims x = shape_of(c, 0);
  const Reduction r = reduction_of(c, x, axes, all);
  set(c, 0, type, r.out);
  if (!c.inputs[0]->has_values || type != dtype_of(c, 0) || !wants_values(c, 0)) {
    return true;
  }
  if (is_floating(type)) {
    reduce_reals(c, op, *c.inputs[0], r);
  } else {
    reduce_integers(c, op, *c.inputs[0], r);
  }
  return true;
}

bool infer_arg_reduce(InferContext& c, const Operator& op) {
  set_dtype(c, 0, DType::int64);
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  const std::size_t axis = axis_of(c, integer_attribute(c, "axis", 0), x.size());
  const std::int64_t axes[] = {static_cast<std::int64_t>(axis)};
  const Reduction r = reduction_of(c, x, axes, false);
  set(c, 0, DType::int64, r.out);
  const Value* data = integers_of(c, 0);
  if (data == nullptr || x.size() != 1 || data->integers.empty()) return true;
  const bool last = integer_attribute(c, "select_last_index", 0) != 0;
  std::size_t best = 0;
  for (std::size_t k = 1; k < data->integers.size(); ++k) {
    const std::int64_t a = data->integers[k], b = data->integers[best];
    if ((op.variant == Variant::arg_max ? a > b : a < b) || (last && a == b)) best = k;
  }
  set_integers(c, 0, Shape{static_cast<std::int64_t>(best)});
  return true;
}

bool infer_cumulative(InferContext& c, const Operator& op) {
  if (!infer_same(c, op)) return false;
  const Value* data = integers_of(c, 0);
  if (data == nullptr || shape_of(c, 0).size() != 1 || !wants_values(c, 0)) return true;
  const bool reverse = integer_attribute(c, "reverse", 0) != 0, exclusive = integer_attribute(c, "exclusive", 0) != 0;
  const std::size_t n = data->integers.size();
  if (static_cast<std::int64_t>(n) != shape_of(c, 0)[0]) return true;
  std::int64_t* values = new_integers(c, n);
  const bool multiplies = op.variant == Variant::product;
  std::uint64_t running = multiplies ? 1 : 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t k = reverse ? n - 1 - i : i;
    const auto term = static_cast<std::uint64_t>(data->integers[k]);
    const std::uint64_t next = multiplies ? running * term : running + term;
    values[k] = static_cast<std::int64_t>(exclusive ? running : next);
    running = next;
  }
  c.outputs[0].integers = {values, n};
  c.outputs[0].has_values = true;
  return true;
}

bool infer_determinant(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  if (x.size() < 2 || x[x.size() - 1] != x[x.size() - 2]) {
    fail(c, "found an input of shape " + show(x) + ", needs square matrices");
  }
  set(c, 0, dtype_of(c, 0), x.first(x.size() - 2));
  return true;
}

bool infer_loss(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  set(c, 0, dtype_of(c, 0), c.text("reduction", "mean") == "none" ? shape_of(c, 1) : Dims());
  set(c, 1, dtype_of(c, 0), shape_of(c, 0));  // SoftmaxCrossEntropyLoss: log probabilities
  return true;
}

}  // namespace perfpass::onnx
