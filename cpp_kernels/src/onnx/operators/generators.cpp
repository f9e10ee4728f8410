// Operators that make tensors: constants, ranges, shapes as data, random numbers.
#include <algorithm>
#include <cmath>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {
namespace {

void set_constant(InferContext& c, const Constant& constant) {
  set(c, 0, constant.dtype, constant.shape);
  if (!constant.has_values || !wants_values(c, 0)) return;
  c.outputs[0].has_values = true;
  c.outputs[0].integers = constant.integers;
  c.outputs[0].reals = constant.reals;
}

void set_reals(InferContext& c, std::span<const double> values) {
  if (!wants_values(c, 0)) return;
  c.outputs[0].has_values = true;
  c.outputs[0].reals = values;
}

}  // namespace

bool infer_constant(InferContext& c, const Operator&) {
  using Kind = Attribute::Kind;
  for (const Attribute& a : c.node.attributes) {
    const auto length = [](auto list) { return Shape{static_cast<std::int64_t>(list.size())}; };
    if (a.kind == Kind::tensor && a.tensor != nullptr) {
      set_constant(c, *a.tensor);
    } else if (a.kind == Kind::integer) {
      set(c, 0, DType::int64, Shape{});
      set_integers(c, 0, Shape{a.integer});
    } else if (a.kind == Kind::integers) {
      set(c, 0, DType::int64, length(a.integers));
      set_integers(c, 0, a.integers);
    } else if (a.kind == Kind::real) {
      set(c, 0, DType::float32, Shape{});
      double* value = new_reals(c, 1);
      *value = a.real;
      set_reals(c, {value, 1});
    } else if (a.kind == Kind::reals) {
      set(c, 0, DType::float32, length(a.reals));
      set_reals(c, a.reals);
    } else if (a.kind == Kind::text || a.kind == Kind::texts) {
      set(c, 0, DType::string, a.kind == Kind::text ? Shape{} : length(a.texts));
    } else {
      continue;
    }
    if (!c.outputs.empty()) c.outputs[0].is_constant = true;
    return true;
  }
  return false;  // a sparse tensor
}

bool infer_constant_of_shape(InferContext& c, const Operator&) {
  const Attribute* a = c.find("value");
  const Constant* value = a != nullptr && a->kind == Attribute::Kind::tensor ? a->tensor : nullptr;
  const DType type = value != nullptr ? value->dtype : DType::float32;
  set_dtype(c, 0, type);
  const Value* target = integers_of(c, 0);
  if (!ready(c, {0}) || target == nullptr) return false;
  Shape shape(target->integers);
  for (const std::int64_t d : shape) {
    if (d < 0) fail(c, "found a target of " + show(shape) + ", needs entries of 0 or more");
  }
  if (rebinds(c) && target->is_constant && c.file_batch > 1 && shape.size() > 1 && shape[0] == c.file_batch) {
    shape[0] = c.batch;
  }
  set(c, 0, type, shape);
  if (!wants_values(c, 0) || type == DType::string) return true;
  const auto count = static_cast<std::size_t>(elements(shape));
  if (value == nullptr || !value->reals.empty()) {
    double* reals = new_reals(c, count);
    std::fill_n(reals, count, value == nullptr ? 0.0 : value->reals[0]);
    c.outputs[0].reals = {reals, count};
    c.outputs[0].has_values = true;
  } else if (!value->integers.empty()) {
    std::int64_t* integers = new_integers(c, count);
    std::fill_n(integers, count, value->integers[0]);
    c.outputs[0].integers = {integers, count};
    c.outputs[0].has_values = true;
  }
  return true;
}

bool infer_range(InferContext& c, const Operator&) {
  const DType type = dtype_of(c, 0);
  set_dtype(c, 0, type);
  double reals[3] = {0, 0, 1};
  std::int64_t integers[3] = {0, 0, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    const Value* v = input(c, i);
    if (v == nullptr && i == 2) continue;  // com.microsoft Range counts by one
    if (v == nullptr) fail(c, "input " + std::to_string(i) + " is absent, but this operator needs it");
    if (!v->has_values) return false;
    if (is_floating(type) ? v->reals.empty() : v->integers.empty()) {
      fail(c, "found an input of shape " + show(v->shape) + ", needs single numbers of one type");
    }
    if (is_floating(type)) {
      reals[i] = v->reals[0];
    } else {
      integers[i] = v->integers[0];
      reals[i] = static_cast<double>(integers[i]);
    }
  }
  std::int64_t count = 0;
  if (is_floating(type)) {
    const double length = std::ceil((reals[1] - reals[0]) / reals[2]);
    if (!(std::abs(length) < 0x1p48)) {
      fail(c, "found a range of " + std::to_string(length) + " elements, needs a finite number of at most 2^48");
    }
    count = length > 0 ? static_cast<std::int64_t>(length) : 0;
  } else {
    if (integers[2] == 0) fail(c, "found a step of 0, needs a positive or negative one");
    const bool up = integers[2] > 0;
    const bool some = up ? integers[1] > integers[0] : integers[1] < integers[0];
    if (some) {
      const auto low = static_cast<std::uint64_t>(up ? integers[0] : integers[1]);
      const auto high = static_cast<std::uint64_t>(up ? integers[1] : integers[0]);
      const std::uint64_t by =
          up ? static_cast<std::uint64_t>(integers[2]) : 0 - static_cast<std::uint64_t>(integers[2]);
      const std::uint64_t steps = (high - low - 1) / by + 1;
      count = steps > static_cast<std::uint64_t>(kMaxElements) ? kMaxElements + 1 : static_cast<std::int64_t>(steps);
    }
  }
  set(c, 0, type, Shape{count});
  if (!wants_values(c, 0)) return true;
  const auto n = static_cast<std::size_t>(count);
  if (is_floating(type)) {
    double* values = new_reals(c, n);
    for (std::size_t k = 0; k < n; ++k) values[k] = rounded(type, reals[0] + static_cast<double>(k) * reals[2]);
    set_reals(c, {values, n});
  } else {
    std::int64_t* values = new_integers(c, n);
    std::int64_t at = integers[0];
    for (std::size_t k = 0; k < n; ++k) {
      values[k] = at;
      at = static_cast<std::int64_t>(static_cast<std::uint64_t>(at) + static_cast<std::uint64_t>(integers[2]));
    }
    c.outputs[0].integers = {values, n};
    c.outputs[0].has_values = true;
  }
  return true;
}

bool infer_shape(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::int64);
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  const auto rank = static_cast<std::int64_t>(x.size());
  const auto bound = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const std::int64_t start = bound(integer_attribute(c, "start", 0));
  const std::int64_t end = std::max(start, bound(integer_attribute(c, "end", rank)));
  const Dims part = x.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(end - start));
  set(c, 0, DType::int64, Shape{end - start});
  set_integers(c, 0, part);
  return true;
}

bool infer_size(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::int64);
  if (!ready(c, {0})) return false;
  set(c, 0, DType::int64, Shape{});
  set_integers(c, 0, Shape{elements(shape_of(c, 0))});
  return true;
}

bool infer_random(InferContext& c, const Operator&) {
  set(c, 0, data_type(integer_attribute(c, "dtype", 1)), Shape(integers_attribute(c, "shape")));
  return true;
}

bool infer_like(InferContext& c, const Operator&) {
  const DType type = c.find("dtype") != nullptr ? data_type(integer_attribute(c, "dtype", 1)) : dtype_of(c, 0);
  set_dtype(c, 0, type);
  if (!ready(c, {0})) return false;
  set(c, 0, type, shape_of(c, 0));
  return true;
}

bool infer_eye_like(InferContext& c, const Operator& op) {
  if (!infer_like(c, op)) return false;
  if (shape_of(c, 0).size() != 2) fail(c, "found an input of shape " + show(shape_of(c, 0)) + ", needs a matrix");
  return true;
}

bool infer_multinomial(InferContext& c, const Operator&) {
  const DType type = data_type(integer_attribute(c, "dtype", 6));
  set_dtype(c, 0, type);
  if (!ready(c, {0})) return false;
  const Dims x = shape_of(c, 0);
  if (x.size() != 2) fail(c, "found an input of shape " + show(x) + ", needs [batch, classes]");
  set(c, 0, type, Shape{x[0], integer_attribute(c, "sample_size", 1)});
  return true;
}

}  // namespace perfpass::onnx
