// Contents of small tensors through elementwise operators: the arithmetic by which exporters compute shapes.
// Integers wrap around at the width of their type and divide towards zero, as in ONNX Runtime; what has no defined
// result (a division by zero, a NaN cast to an integer) leaves the contents unknown.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "onnx/operators/operators.hpp"

namespace perfpass::onnx {
namespace {

using Integer = std::optional<std::int64_t>;

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

std::uint64_t bits(std::int64_t value) noexcept { return static_cast<std::uint64_t>(value); }

std::int64_t negated(std::int64_t value) noexcept { return static_cast<std::int64_t>(0 - bits(value)); }

Integer integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return std::nullopt;
  std::uint64_t result = 1;
  std::uint64_t factor = bits(base);
  for (auto e = bits(exponent); e != 0; e >>= 1) {
    if ((e & 1) != 0) result *= factor;
    factor *= factor;
  }
  return static_cast<std::int64_t>(result);
}

/// The remainder has the divisor's sign (Python) or, with fmod, the dividend's (C).
Integer modulo(std::int64_t a, std::int64_t b, bool fmod) {
  if (b == 0) return std::nullopt;
  if (b == -1) return 0;
  const std::int64_t r = a % b;
  return !fmod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

Integer apply(OpKind op, std::int64_t a, std::int64_t b, bool fmod) {
  switch (op) {
    case OpKind::add:
      return static_cast<std::int64_t>(bits(a) + bits(b));
    case OpKind::sub:
      return static_cast<std::int64_t>(bits(a) - bits(b));
    case OpKind::mul:
      return static_cast<std::int64_t>(bits(a) * bits(b));
    case OpKind::div:
      if (b == 0) return std::nullopt;
      return b == -1 ? negated(a) : a / b;
    case OpKind::mod:
      return modulo(a, b, fmod);
    case OpKind::pow:
      return integer_power(a, b);
    case OpKind::minimum:
      return std::min(a, b);
    case OpKind::maximum:
      return std::max(a, b);
    default:
      return std::nullopt;
  }
}

std::optional<double> apply(OpKind op, double a, double b, bool fmod) {
  switch (op) {
    case OpKind::add:
      return a + b;
    case OpKind::sub:
      return a - b;
    case OpKind::mul:
      return a * b;
    case OpKind::div:
      return a / b;
    case OpKind::mod: {
      const double r = std::fmod(a, b);
      return !fmod && r != 0.0 && (r < 0) != (b < 0) ? r + b : r;
    }
    case OpKind::pow:
      return std::pow(a, b);
    case OpKind::minimum:
      return std::min(a, b);
    case OpKind::maximum:
      return std::max(a, b);
    default:
      return std::nullopt;
  }
}

std::optional<double> apply(const Operator& op, double a) {
  switch (op.kind) {
    case OpKind::abs:
      return std::abs(a);
    case OpKind::neg:
      return -a;
    case OpKind::sqrt:
      return std::sqrt(a);
    case OpKind::exp:
      return std::exp(a);
    case OpKind::log:
      return std::log(a);
    case OpKind::reciprocal:
      return 1.0 / a;
    case OpKind::relu:
      return a > 0 ? a : 0.0;
    case OpKind::sign:
      return a > 0 ? 1.0 : a < 0 ? -1.0 : a;
    case OpKind::round:
      if (op.variant == Variant::floor) return std::floor(a);
      return op.variant == Variant::ceil ? std::ceil(a) : round_half_even(a);
    default:
      return std::nullopt;
  }
}

Integer apply(const Operator& op, std::int64_t a) {
  switch (op.kind) {
    case OpKind::abs:
      return a < 0 ? negated(a) : a;
    case OpKind::neg:
      return negated(a);
    case OpKind::relu:
      return std::max<std::int64_t>(a, 0);
    case OpKind::sign:
      return a > 0 ? 1 : a < 0 ? -1 : 0;
    case OpKind::round:
      return a;
    case OpKind::logical:
      return a == 0 ? 1 : 0;
    default:
      return std::nullopt;
  }
}

/// Fills output 0 with f(k), which gives an optional; an absent one leaves the contents unknown.
template <typename Function>
void fill_integers(InferContext& c, Function f) {
  Value& out = c.outputs[0];
  const auto count = static_cast<std::size_t>(elements(out.shape));
  std::int64_t* values = new_integers(c, count);
  for (std::size_t k = 0; k < count; ++k) {
    const Integer v = f(static_cast<std::int64_t>(k));
    if (!v) return;
    values[k] = wrapped(out.dtype, *v);
  }
  out.integers = {values, count};
  out.has_values = true;
}

template <typename Function>
void fill_reals(InferContext& c, Function f) {
  Value& out = c.outputs[0];
  const auto count = static_cast<std::size_t>(elements(out.shape));
  double* values = new_reals(c, count);
  for (std::size_t k = 0; k < count; ++k) {
    const std::optional<double> v = f(static_cast<std::int64_t>(k));
    if (!v) return;
    values[k] = rounded(out.dtype, *v);
  }
  out.reals = {values, count};
  out.has_values = true;
}

bool holds(const Value* v, bool real) noexcept {
  if (v == nullptr || !v->has_values || is_floating(v->dtype) != real) return false;
  std::size_t count = 1;
  for (const std::int64_t d : v->shape) count *= static_cast<std::size_t>(d);
  return (real ? v->reals.size() : v->integers.size()) == count;
}

std::int64_t integer_at(const InferContext& c, std::size_t i, std::int64_t k) {
  const Value& v = *c.inputs[i];
  return v.integers[static_cast<std::size_t>(broadcast_position(k, c.outputs[0].shape, v.shape))];
}

double real_at(const InferContext& c, std::size_t i, std::int64_t k) {
  const Value& v = *c.inputs[i];
  return v.reals[static_cast<std::size_t>(broadcast_position(k, c.outputs[0].shape, v.shape))];
}

bool plain(const InferContext& c) {  // no operand broadcast by the rules before opset 7
  return c.opset >= 7 || (c.find("broadcast") == nullptr && c.find("axis") == nullptr);
}

}  // namespace

void unary_values(InferContext& c, const Operator& op) {
  if (!wants_values(c, 0)) return;
  if (holds(c.inputs[0], false)) {
    fill_integers(c, [&](std::int64_t k) { return apply(op, c.inputs[0]->integers[static_cast<std::size_t>(k)]); });
  } else if (holds(c.inputs[0], true)) {
    fill_reals(c, [&](std::int64_t k) { return apply(op, c.inputs[0]->reals[static_cast<std::size_t>(k)]); });
  }
}

void binary_values(InferContext& c, const Operator& op) {
  if (!wants_values(c, 0) || !plain(c) || c.inputs.empty() || c.inputs.size() > 8) return;
  const bool real = is_floating(dtype_of(c, 0));
  // The exponent of Pow may have another type than its base.
  if (op.kind == OpKind::pow && real && holds(c.inputs[0], true) && c.inputs.size() == 2 && holds(c.inputs[1], false)) {
    fill_reals(c, [&](std::int64_t k) {
      return std::optional<double>(std::pow(real_at(c, 0, k), static_cast<double>(integer_at(c, 1, k))));
    });
    return;
  }
  if (op.kind == OpKind::pow && !real && holds(c.inputs[0], false) && c.inputs.size() == 2 &&
      holds(c.inputs[1], true)) {
    fill_integers(c, [&](std::int64_t k) -> Integer {
      const double v = std::pow(static_cast<double>(integer_at(c, 0, k)), real_at(c, 1, k));
      if (!(std::abs(v) < 0x1p62)) return std::nullopt;
      return static_cast<std::int64_t>(v);
    });
    return;
  }
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    if (!holds(c.inputs[i], real)) return;
  }
  const bool fmod = c.integer("fmod", 0) != 0;
  const auto folded = [&](auto first, auto at, std::int64_t k) {
    auto result = std::optional(first(k));
    for (std::size_t i = 1; i < c.inputs.size() && result; ++i) result = apply(op.kind, *result, at(i, k), fmod);
    return result;
  };
  if (real) {
    fill_reals(c, [&](std::int64_t k) {
      return folded([&](std::int64_t e) { return real_at(c, 0, e); },
                    [&](std::size_t i, std::int64_t e) { return real_at(c, i, e); }, k);
    });
  } else {
    fill_integers(c, [&](std::int64_t k) {
      return folded([&](std::int64_t e) { return integer_at(c, 0, e); },
                    [&](std::size_t i, std::int64_t e) { return integer_at(c, i, e); }, k);
    });
  }
}

void clip_values(InferContext& c) {
  if (!wants_values(c, 0)) return;
  // Bounds are attributes before opset 11, then scalar inputs.
  const auto bound = [&](std::size_t slot, Text name, double fallback) -> std::optional<double> {
    if (slot >= c.inputs.size() || c.inputs[slot] == nullptr) return c.real(name, fallback);
    const Value& v = *c.inputs[slot];
    if (holds(&v, true) && v.reals.size() == 1) return v.reals[0];
    if (holds(&v, false) && v.integers.size() == 1) return static_cast<double>(v.integers[0]);
    return std::nullopt;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::optional<double> low = bound(1, "min", -kInfinity), high = bound(2, "max", kInfinity);
  if (!low || !high) return;
  const auto at = [](std::int64_t k) { return static_cast<std::size_t>(k); };
  if (holds(c.inputs[0], true)) {
    fill_reals(
        c, [&](std::int64_t k) { return std::optional(std::min(std::max(c.inputs[0]->reals[at(k)], *low), *high)); });
  } else if (holds(c.inputs[0], false)) {
    fill_integers(c, [&](std::int64_t k) -> Integer {
      const std::int64_t v = c.inputs[0]->integers[at(k)];
      const auto approximate = static_cast<double>(v);
      if (approximate >= *low && approximate <= *high) return v;
      const double clipped = approximate < *low ? std::min(*low, *high) : *high;
      if (!(std::abs(clipped) < 0x1p62)) return std::nullopt;
      return static_cast<std::int64_t>(clipped);
    });
  }
}

namespace {

template <typename T>
bool compared(Variant v, T a, T b) {
  switch (v) {
    case Variant::equal:
      return a == b;
    case Variant::not_equal:
      return a != b;
    case Variant::less:
      return a < b;
    case Variant::greater:
      return a > b;
    case Variant::less_or_equal:
      return a <= b;
    case Variant::greater_or_equal:
      return a >= b;
    case Variant::logical_and:
      return a != T(0) && b != T(0);
    case Variant::logical_or:
      return a != T(0) || b != T(0);
    default:
      return (a != T(0)) != (b != T(0));
  }
}

}  // namespace

void compare_values(InferContext& c, const Operator& op) {
  if (!wants_values(c, 0) || !plain(c) || c.inputs.size() != 2) return;
  if (holds(c.inputs[0], false) && holds(c.inputs[1], false)) {
    fill_integers(c, [&](std::int64_t k) {
      return Integer(compared(op.variant, integer_at(c, 0, k), integer_at(c, 1, k)) ? 1 : 0);
    });
  } else if (holds(c.inputs[0], true) && holds(c.inputs[1], true)) {
    fill_integers(
        c, [&](std::int64_t k) { return Integer(compared(op.variant, real_at(c, 0, k), real_at(c, 1, k)) ? 1 : 0); });
  }
}

void where_values(InferContext& c) {
  if (!wants_values(c, 0) || !holds(c.inputs[0], false)) return;
  const bool real = is_floating(dtype_of(c, 1));
  // A branch that is never taken need not be known.
  const auto branch = [&](std::int64_t k) { return integer_at(c, 0, k) != 0 ? std::size_t{1} : std::size_t{2}; };
  if (real) {
    fill_reals(c, [&](std::int64_t k) -> std::optional<double> {
      const std::size_t i = branch(k);
      if (!holds(c.inputs[i], true)) return std::nullopt;
      return real_at(c, i, k);
    });
  } else {
    fill_integers(c, [&](std::int64_t k) -> Integer {
      const std::size_t i = branch(k);
      if (!holds(c.inputs[i], false)) return std::nullopt;
      return integer_at(c, i, k);
    });
  }
}

void cast_values(InferContext& c) {
  const DType to = c.outputs[0].dtype;
  if (!wants_values(c, 0) || to == DType::undefined || to == DType::string || to == DType::complex64 ||
      to == DType::complex128) {
    return;
  }
  const Value& in = *c.inputs[0];
  const auto at = [](std::int64_t k) { return static_cast<std::size_t>(k); };
  if (holds(&in, false)) {
    if (is_floating(to)) {
      fill_reals(c, [&](std::int64_t k) { return std::optional(static_cast<double>(in.integers[at(k)])); });
    } else {
      fill_integers(c, [&](std::int64_t k) { return Integer(in.integers[at(k)]); });
    }
  } else if (holds(&in, true)) {
    if (is_floating(to)) {
      fill_reals(c, [&](std::int64_t k) { return std::optional(in.reals[at(k)]); });
    } else {
      fill_integers(c, [&](std::int64_t k) -> Integer {
        const double v = in.reals[at(k)];
        if (to == DType::boolean) return v != 0.0 ? 1 : 0;
        if (v >= 0x1p63) return std::numeric_limits<std::int64_t>::max();  // torch slices up to infinity
        if (!(v >= -0x1p63)) return std::isnan(v) ? std::nullopt : Integer(kLowest);
        return static_cast<std::int64_t>(v);
      });
    }
  }
}

}  // namespace perfpass::onnx
