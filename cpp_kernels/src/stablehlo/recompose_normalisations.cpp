// Layer, group, root-mean-square and batch normalisation.
#include "stablehlo/recomposer.hpp"

namespace perfpass::stablehlo {

std::optional<Value> Recomposer::square_of(Value v) const {
  const FlatOp* op = g_.maker(strip(v));
  if (op == nullptr) return std::nullopt;
  if (op->code == Code::square && op->in_count == 1) return strip(in(*op, 0));
  if (op->code == Code::multiply && op->in_count == 2 && strip(in(*op, 0)) == strip(in(*op, 1)))
    return strip(in(*op, 0));
  return std::nullopt;
}

Recomposer::Statistic Recomposer::statistic(Value v) const {
  v = strip(v);
  for (int hop = 0; hop < kMostHops; ++hop) {  // what rounding makes negative is 0
    const FlatOp* clip = g_.maker(v);
    const auto clipped = clip == nullptr               ? std::nullopt
                         : clip->code == Code::relu_   ? std::optional(in(*clip, 0))
                         : clip->code == Code::maximum ? beside_number(*clip, 0.0)
                                                       : std::nullopt;
    if (!clipped) break;
    v = strip(*clipped);
  }
  if (is_weight(v)) return {Statistic::batch, v, nullptr};
  const FlatOp* op = g_.maker(v);
  if (op == nullptr) return {};
  if (op->code == Code::mean_) {
    const auto base = square_of(in(*op, 0));
    if (!base) return {};
    const FlatOp* centred = g_.maker(*base);
    if (centred != nullptr && centred->code == Code::subtract && made(in(*centred, 1), Code::mean_)) {
      return {Statistic::layer, strip(in(*centred, 0)), op};
    }
    return {Statistic::root, *base, op};
  }
  if (op->code == Code::subtract && op->in_count == 2) {  // mean(x^2) - mean(x)^2
    const FlatOp* squares = made(in(*op, 0), Code::mean_);
    const auto mean = square_of(in(*op, 1));
    const auto x = squares != nullptr ? square_of(in(*squares, 0)) : std::nullopt;
    if (x && mean && made(*mean, Code::mean_)) return {Statistic::layer, *x, squares};
  }
  return {};
}

void Recomposer::normalisation(const FlatOp& root) {
  const FlatOp* shifted = made(in(root, 0), Code::add);
  if (shifted == nullptr || shifted->in_count != 2) return;
  std::size_t slot = 0;
  if (number(in(*shifted, 0))) slot = 1;
  if (!number(in(*shifted, 1 - slot))) return;
  const Statistic found = statistic(in(*shifted, slot));
  if (found.kind == Statistic::none) return;
  Value at = root.out_begin, read = at;
  std::optional<Value> x, scale, bias, mean;
  FlatOp* anchor = nullptr;
  for (int step = 0; step < 4; ++step) {
    FlatOp* next = reader(at, read);
    if (next == nullptr || next->in_count != 2) break;
    const bool second = in(*next, 1) == read;
    const Value other = in(*next, second ? 0 : 1);
    const bool product =
        next->code == Code::multiply || (next->code == Code::divide && second && root.code == Code::sqrt);
    if (product && !x) {
      const FlatOp* centred = made(other, Code::subtract);
      if (found.kind != Statistic::root && centred != nullptr && centred->in_count == 2 &&
          (found.kind == Statistic::batch ? is_weight(strip(in(*centred, 1))) : strip(in(*centred, 0)) == found.x)) {
        x = in(*centred, 0);
        mean = strip(in(*centred, 1));
      } else if (found.kind == Statistic::root && strip(other) == found.x) {
        x = other;
      } else if (next->code == Code::multiply && !scale && is_weight(strip(other))) {
        scale = strip(other);
      } else {
        break;
      }
    } else if (next->code == Code::multiply && !scale && is_weight(strip(other))) {
      scale = strip(other);
    } else if (next->code == Code::add && x && is_weight(strip(other))) {
      bias = strip(other);
      anchor = next;
      break;
    } else {
      break;
    }
    if (x) anchor = next;
    at = next->out_begin;
  }
  if (anchor != nullptr) normalise(*anchor, found, *x, scale, bias, mean);
}

void Recomposer::normalise(FlatOp& op, const Statistic& found, Value x, std::optional<Value> scale,
                           std::optional<Value> bias, std::optional<Value> mean) {
  std::vector<Value> operands{x};
  if (scale) operands.push_back(*scale);
  if (bias) operands.push_back(*bias);
  if (found.kind == Statistic::batch) {
    operands.push_back(*mean);
    operands.push_back(found.x);
    op.axis = static_cast<std::int32_t>(g_.type(x).dims.size()) - 1;
    return become(op, Code::batch_norm_, operands);
  }
  const std::vector<std::int64_t>& of = g_.type(in(*found.mean, 0)).dims;
  Integers axes = integers(*found.mean->at, "dimensions");
  std::sort(axes.begin(), axes.end());
  const auto rank = static_cast<std::int64_t>(of.size()), count = static_cast<std::int64_t>(axes.size());
  const bool trailing = count > 0 && axes.front() == rank - count && of.size() == g_.type(x).dims.size();
  op.axis = static_cast<std::int32_t>(trailing ? axes.front() : 0);
  if (trailing || found.kind == Statistic::root) {
    return become(op, found.kind == Statistic::root ? Code::rms_norm_ : Code::layer_norm_, operands);
  }
  std::int64_t groups = 1;
  for (std::int64_t d = 1; d < rank; ++d) {
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) groups = std::min<std::int64_t>(groups * of[d], 1 << 24);
  }
  op.groups = static_cast<std::int32_t>(groups);
  become(op, Code::group_norm_, operands);
}

bool Recomposer::batch_norm(FlatOp& op) {
  if (op.in_count != 2) return false;
  for (const std::size_t i : {0U, 1U}) {
    const FlatOp* scaled = made(in(op, i), Code::multiply);
    for (const std::size_t k : {0U, 1U}) {
      if (scaled == nullptr || scaled->in_count != 2) continue;
      const Value s = strip(in(*scaled, k));
      std::optional<Value> scale, shift;
      const FlatOp* root = made(s, Code::rsqrt);
      if (const FlatOp* both = made(s, Code::multiply); root == nullptr && both != nullptr && both->in_count == 2) {
        const std::size_t at = made(in(*both, 0), Code::rsqrt) != nullptr ? 0 : 1;
        root = made(in(*both, at), Code::rsqrt);
        scale = strip(in(*both, 1 - at));
      }
      const FlatOp* epsilon = root != nullptr ? made(in(*root, 0), Code::add) : nullptr;
      if (epsilon == nullptr || epsilon->in_count != 2) continue;
      const Value variance = strip(in(*epsilon, number(in(*epsilon, 0)) ? 1 : 0));
      Value rest = in(op, 1 - i);
      if (const FlatOp* sum = made(rest, Code::add); sum != nullptr && sum->in_count == 2) {
        const std::size_t at = is_weight(strip(in(*sum, 0))) ? 0 : 1;
        shift = strip(in(*sum, at));
        rest = in(*sum, 1 - at);
      }
      const FlatOp* centre = made(rest, Code::multiply);
      if (centre == nullptr || centre->in_count != 2) continue;
      const std::size_t at = strip(in(*centre, 0)) == s ? 1 : 0;
      const FlatOp* negated = made(in(*centre, at), Code::negate);
      if (negated == nullptr || strip(in(*centre, 1 - at)) != s) continue;
      const Value mean = strip(in(*negated, 0));
      std::vector<Value> operands{in(*scaled, 1 - k)};
      for (const std::optional<Value>& one : {scale, shift, std::optional(mean), std::optional(variance)}) {
        if (one && !is_weight(*one)) return false;
        if (one) operands.push_back(*one);
      }
      become(op, Code::batch_norm_, operands);
      return true;
    }
  }
  return false;
}

}  // namespace perfpass::stablehlo
