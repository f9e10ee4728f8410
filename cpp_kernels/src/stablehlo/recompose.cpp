// Softmax, means, pooling, activations, biases.
#include "stablehlo/recomposer.hpp"

namespace perfpass::stablehlo {

void Recomposer::run() {
  for (std::size_t n = 0; n < g_.ops.size(); ++n) backward(g_.ops[n]);
  for (std::size_t n = 0; n < g_.ops.size(); ++n) forward(g_.ops[n]);
  for (std::size_t n = 0; n < g_.ops.size(); ++n) {
    FlatOp& op = g_.ops[n];
    if (op.code == Code::add && !batch_norm(op) && !interpolation(op)) bias(op);
    if (op.out_count != 1 || (op.code != Code::divide && op.code != Code::multiply)) continue;
    if (const auto x = hard_sigmoid_of(op.out_begin)) become(op, Code::hard_sigmoid_, *x);  // no part of a hard swish
  }
}

std::optional<double> Recomposer::number(Value v, int hops) const {
  v = strip(v);
  const FlatValue& value = g_.values[v];
  if (const Integers* known = g_.known_of(v)) {
    const bool splat =
        !known->empty() && std::all_of(known->begin(), known->end(), [&](auto k) { return k == (*known)[0]; });
    return splat ? std::optional(static_cast<double>((*known)[0])) : std::nullopt;
  }
  if (value.constant != nullptr) return g_.number_of(v);
  const FlatOp* op = g_.maker(v);  // how many elements a mean is of: convert(n), n - 0
  if (op == nullptr || hops > 2) return std::nullopt;
  if (op->code == Code::convert && op->in_count == 1) return number(in(*op, 0), hops + 1);
  if (op->code != Code::subtract || op->in_count != 2) return std::nullopt;
  const auto first = number(in(*op, 0), hops + 1), second = first ? number(in(*op, 1), hops + 1) : std::nullopt;
  return second ? std::optional(*first - *second) : std::nullopt;
}

void Recomposer::backward(FlatOp& op) {
  switch (op.code) {
    case Code::maximum:
      if (const auto x = beside_number(op, 0.0); x && is_floating(g_.type(*x).dtype) && !made(*x, Code::subtract)) {
        become(op, Code::relu_, *x);
      }
      return;
    case Code::multiply:
      multiplied(op);
      return;
    case Code::divide:
      divided(op);
      return;
    case Code::subtract:
      log_softmax(op);
      return;
    case Code::select:
      selected(op);
      return;
    default:
      return;
  }
}

void Recomposer::multiplied(FlatOp& op) {
  if (op.in_count != 2) return;
  for (const std::size_t i : {0U, 1U}) {
    const Value x = in(op, i), other = in(op, 1 - i);
    for (const Code code : {Code::logistic, Code::sigmoid_}) {
      const FlatOp* sigmoid = made(other, code);
      if (sigmoid != nullptr && strip(in(*sigmoid, 0)) == strip(x)) return become(op, Code::silu_, x);
    }
    if (const auto of = hard_sigmoid_of(other); of && *of == strip(x)) return become(op, Code::hard_swish_, x);
    if (const auto by = number(other); by && *by > 0 && *by < 1) {
      if (const FlatOp* sum = reduced(x, Code::add); sum != nullptr && reduces(*sum, 1.0 / *by)) return mean(op, *sum);
    }
  }
}

std::optional<Value> Recomposer::hard_sigmoid_of(Value v) const {
  const FlatOp* op = g_.maker(strip(v));
  if (op == nullptr || op->in_count != 2 || (op->code != Code::divide && op->code != Code::multiply))
    return std::nullopt;
  if (!is_number(in(*op, 1), op->code == Code::divide ? 6.0 : 1.0 / 6.0)) return std::nullopt;
  return clipped(in(*op, 0));
}

std::optional<Value> Recomposer::clipped(Value v) const {
  const FlatOp* clip = g_.maker(strip(v));
  if (clip == nullptr) return std::nullopt;
  std::optional<Value> inner;
  if (clip->code == Code::clamp && clip->in_count == 3 && is_number(in(*clip, 2), 6.0)) {
    inner = in(*clip, 1);
  } else if (clip->code == Code::minimum) {
    const auto low = beside_number(*clip, 6.0);
    if (const FlatOp* relu = low ? made(*low, Code::relu_) : nullptr) inner = in(*relu, 0);
  }
  const FlatOp* sum = inner ? made(*inner, Code::add) : nullptr;
  const auto x = sum != nullptr ? beside_number(*sum, 3.0) : std::nullopt;
  return x ? std::optional(strip(*x)) : std::nullopt;
}

bool Recomposer::reduces(const FlatOp& sum, double count) const {
  const double whole = static_cast<double>(elements_of(g_.type(in(sum, 0))));
  const double results = std::max(1.0, static_cast<double>(elements_of(g_.type(sum.out_begin))));
  return std::abs(whole / results - count) <= 2e-3 * count;
}

void Recomposer::divided(FlatOp& op) {
  if (op.in_count != 2) return;
  const Value above = in(op, 0), below = in(op, 1);
  if (const auto by = number(below)) {
    // x clip(x + 3, 0, 6) / 6, as PyTorch's decomposition writes it.
    if (const FlatOp* product = made(above, Code::multiply); product != nullptr && product->in_count == 2) {
      for (const std::size_t i : {0U, 1U}) {
        const auto of = is_number(below, 6.0) ? clipped(in(*product, i)) : std::nullopt;
        if (of && *of == strip(in(*product, 1 - i))) return become(op, Code::hard_swish_, *of);
      }
    }
    if (const FlatOp* sum = reduced(above, Code::add); sum != nullptr && reduces(*sum, *by)) return mean(op, *sum);
    if (const FlatOp* window = made(above, Code::reduce_window); window != nullptr && joins(*window) == Code::add) {
      pool(op, *window);
    }
    return;
  }
  if (is_number(above, 1.0)) {
    const FlatOp* sum = made(below, Code::add);
    const auto power = sum != nullptr ? beside_number(*sum, 1.0) : std::nullopt;
    const FlatOp* exponential = power ? made(*power, Code::exponential) : nullptr;
    const FlatOp* negated = exponential != nullptr ? made(in(*exponential, 0), Code::negate) : nullptr;
    if (negated != nullptr) become(op, Code::sigmoid_, in(*negated, 0));
    return;
  }
  if (const FlatOp* window = made(above, Code::reduce_window); window != nullptr && joins(*window) == Code::add) {
    const FlatOp* ones = made(below, Code::reduce_window);
    if (ones != nullptr && number(in(*ones, 0))) pool(op, *window);
    return;
  }
  const FlatOp* power = made(above, Code::exponential);
  const FlatOp* sum = reduced(below, Code::add);
  if (power == nullptr || sum == nullptr || strip(in(*sum, 0)) != power->out_begin) return;
  softmax(op, Code::softmax_, in(*power, 0), *sum);
}

void Recomposer::softmax(FlatOp& op, Code code, Value shifted, const FlatOp& sum) {
  Value x = shifted;
  if (const FlatOp* shift = made(shifted, Code::subtract); shift != nullptr && is_maximum(in(*shift, 1)))
    x = in(*shift, 0);
  const Integers axes = integers(*sum.at, "dimensions");
  op.axis = axes.empty() ? -1 : static_cast<std::int32_t>(std::clamp<std::int64_t>(axes[0], 0, kMaxRank));
  become(op, code, x);
}

bool Recomposer::is_maximum(Value v, int hops) const {
  const FlatOp* op = hops > 3 ? nullptr : g_.maker(strip(v));
  if (op != nullptr && op->code == Code::transpose) op = g_.maker(strip(in(*op, 0)));
  if (op != nullptr && op->code == Code::select) op = g_.maker(strip(in(*op, 1)));  // -inf becomes 0
  if (op == nullptr) return false;
  if (op->code == Code::maximum && op->in_count == 2)
    return is_maximum(in(*op, 0), hops + 1) || is_maximum(in(*op, 1), hops + 1);
  return op->code == Code::reduce && joins(*op) == Code::maximum;
}

void Recomposer::log_softmax(FlatOp& op) {
  if (op.in_count != 2) return;
  const FlatOp* log = made(in(op, 1), Code::log);
  const FlatOp* sum = log != nullptr ? reduced(in(*log, 0), Code::add) : nullptr;
  const FlatOp* power = sum != nullptr ? made(in(*sum, 0), Code::exponential) : nullptr;
  if (power != nullptr && strip(in(*power, 0)) == strip(in(op, 0))) softmax(op, Code::log_softmax_, in(op, 0), *sum);
}

void Recomposer::selected(FlatOp& op) {
  if (op.in_count != 3) return;
  const Value yes = in(op, 1), no = in(op, 2);
  // PyTorch's attention gives 0 for what is masked throughout.
  if (const FlatOp* weights = made(no, Code::softmax_);
      weights != nullptr && is_number(yes, 0.0) && asks_for_empty_rows(in(op, 0), in(*weights, 0))) {
    return become(op, Code::domain, no);
  }
  if (const FlatOp* test = made(in(op, 0), Code::compare);
      test != nullptr && test->in_count == 2 && is_number(in(*test, 1), 0.0)) {
    const Value x = strip(in(*test, 0));
    // index < 0 ? index + size : index, which jax.numpy writes before every gather.
    const FlatOp* wrapped = made(yes, Code::add);
    if (strip(no) == x && wrapped != nullptr && strip(in(*wrapped, 0)) == x && !is_floating(g_.type(no).dtype)) {
      return become(op, Code::domain, no);
    }
    const FlatOp* scaled = made(no, Code::multiply);
    if (strip(yes) == x && scaled != nullptr && is_floating(g_.type(yes).dtype) &&
        (strip(in(*scaled, 0)) == x || strip(in(*scaled, 1)) == x)) {
      return become(op, Code::leaky_relu_, yes);
    }
  }
  if (const FlatOp* test = made(in(op, 0), Code::compare); test != nullptr && test->in_count == 2) {
    // |x| < 1 ? 1 - p(x) : q(x): the polynomials that jax.export writes for erfc.
    const FlatOp *size = made(in(*test, 0), Code::abs), *centre = made(yes, Code::subtract),
                 *tail = made(no, Code::select);
    if (size != nullptr && is_number(in(*test, 1), 1.0) && centre != nullptr && is_number(in(*centre, 0), 1.0) &&
        tail != nullptr && tail->in_count == 3 && made(in(*tail, 1), Code::subtract)) {
      return become(op, Code::erfc, in(*size, 0));
    }
    // log(exp(x) + 1), a NaN kept; and x > 0 ? x : exp(x) - 1.
    const FlatOp* sum = made(no, Code::add);
    if (in(*test, 0) == in(*test, 1) && sum != nullptr && sum->in_count == 2) {
      const FlatOp *positive = made(in(*sum, 0), Code::relu_), *log = made(in(*sum, 1), Code::log_plus_one);
      if (positive != nullptr && log != nullptr) return become(op, Code::softplus_, in(*positive, 0));
    }
    const FlatOp* scaled = made(no, Code::multiply);
    const FlatOp* power = made(no, Code::exponential_minus_one);
    for (std::size_t i = 0; scaled != nullptr && power == nullptr && i < 2; ++i) {
      power = made(in(*scaled, i), Code::exponential_minus_one);
    }
    if (power != nullptr && is_number(in(*test, 1), 0.0) && strip(in(*test, 0)) == strip(yes))
      return become(op, Code::elu_, yes);
  }
  // Rows out of bounds are filled with NaN, of which a program that runs has none.
  const auto fill = number(no);
  const bool one = elements_of(g_.type(strip(in(op, 0)))) == 1;  // whether a mean is of any element at all
  if (fill && std::isnan(*fill) && (one || made(yes, Code::gather) != nullptr)) become(op, Code::domain, yes);
}

bool Recomposer::asks_for_empty_rows(Value condition, Value x) const {
  const FlatOp* op = g_.maker(strip(condition));
  for (int hop = 0; hop < kMostHops && op != nullptr; ++hop) {
    if (op->code == Code::compare) {
      const auto bound = op->in_count == 2 ? number(in(*op, 1)) : std::nullopt;
      return bound && std::isinf(*bound) && strip(in(*op, 0)) == strip(x);
    }
    if (op->code != Code::not_ && op->code != Code::reduce) return false;
    op = g_.maker(strip(in(*op, 0)));
  }
  return false;
}

void Recomposer::forward(FlatOp& op) {
  switch (op.code) {
    case Code::tanh:
    case Code::erf:
    case Code::erfc:
      gelu(op);
      return;
    case Code::rsqrt:
    case Code::sqrt:
      normalisation(op);
      return;
    default:
      return;
  }
}

void Recomposer::gelu(const FlatOp& op) {
  if (op.in_count != 1) return;
  const FlatOp* scaled = g_.maker(strip(in(op, 0)));
  if (scaled == nullptr || scaled->in_count != 2) return;
  std::optional<Value> x;
  if (op.code == Code::tanh) {
    const auto cubic = scaled->code == Code::multiply ? beside_number(*scaled, 0.797884583) : std::nullopt;
    const FlatOp* sum = cubic ? made(*cubic, Code::add) : nullptr;
    if (sum == nullptr || sum->in_count != 2) return;
    const FlatOp* cube = made(in(*sum, 1), Code::multiply);
    x = cube != nullptr && beside_number(*cube, 0.044715) ? in(*sum, 0) : in(*sum, 1);
  } else {
    x = scaled->code == Code::divide ? beside_number(*scaled, std::sqrt(2.0)) : beside_number(*scaled, std::sqrt(0.5));
    if (!x && op.code == Code::erfc) x = beside_number(*scaled, -std::sqrt(0.5));
    if (!x) return;
    if (const FlatOp* negated = made(*x, Code::negate)) x = in(*negated, 0);
  }
  bool plus_one = op.code == Code::erfc, half = false, times_x = false;
  Value at = op.out_begin, read = at;
  for (int step = 0; step < 4; ++step) {
    FlatOp* next = reader(at, read);
    if (next == nullptr || next->in_count != 2) return;
    const Value other = in(*next, in(*next, 0) == read ? 1 : 0);
    if (next->code == Code::add && !plus_one && is_number(other, 1.0)) {
      plus_one = true;
    } else if (next->code == Code::multiply && is_number(other, 0.5)) {
      half = true;
    } else if (next->code == Code::multiply && strip(other) == strip(*x)) {
      times_x = true;
    } else if (const FlatOp* part = made(other, Code::multiply); next->code == Code::multiply && part != nullptr &&
                                                                 beside_number(*part, 0.5) &&
                                                                 strip(*beside_number(*part, 0.5)) == strip(*x)) {
      half = times_x = true;
    } else {
      return;
    }
    at = next->out_begin;
    if (plus_one && half && times_x) return become(*next, Code::gelu_, *x);
  }
}

void Recomposer::bias(FlatOp& op) {
  if (op.in_count != 2) return;
  for (const std::size_t i : {0U, 1U}) {
    const Value product = in(op, i), added = strip(in(op, 1 - i));
    const FlatOp* maker = g_.maker(product);
    if (maker == nullptr || maker->in_count != 2 || user_[product] < 0 || !is_weight(added)) continue;
    if (maker->code != Code::convolution && maker->code != Code::dot_general && maker->code != Code::dot) continue;
    if (maker->code != Code::convolution && !is_weight(strip(before_transpose(in(*maker, 1))))) continue;
    if (g_.type(added).dims.size() > 1 && maker->code == Code::convolution) continue;
    const std::array<Value, 3> operands{in(*maker, 0), in(*maker, 1), added};
    op.at = maker->at;
    return become(op, maker->code, operands);
  }
}

void recompose(FlatGraph& graph) { Recomposer(graph).run(); }

}  // namespace perfpass::stablehlo
