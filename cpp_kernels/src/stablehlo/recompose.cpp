// StableHLO writes a softmax as five operators and a layer norm as a dozen; its compilers run each as one kernel or
// fuse it into a neighbour. Groups that exporters are known to write become one operator again here. Nothing is
// removed: what nobody reads any more is left out when the graph is lowered.
#include <algorithm>
#include <cmath>

#include "stablehlo/flat.hpp"

namespace perfpass::stablehlo {
namespace {

constexpr std::int32_t kMany = -2;
constexpr int kMostHops = 16;  // of views between two operators of a group

class Recomposer {
 public:
  explicit Recomposer(FlatGraph& graph) : g_(graph), user_(graph.values.size(), kNobody) {
    for (std::size_t n = 0; n < g_.ops.size(); ++n) {
      for (const Value v : g_.in(g_.ops[n])) use(v, static_cast<std::int32_t>(n));
    }
    for (const Value v : g_.outputs) use(v, kMany);
  }

  void run() {
    for (std::size_t n = 0; n < g_.ops.size(); ++n) backward(g_.ops[n]);
    for (std::size_t n = 0; n < g_.ops.size(); ++n) forward(g_.ops[n]);
    for (std::size_t n = 0; n < g_.ops.size(); ++n) {
      if (g_.ops[n].code == Code::add && !batch_norm(g_.ops[n])) bias(g_.ops[n]);
    }
  }

 private:
  void use(Value v, std::int32_t n) { user_[v] = user_[v] == kNobody || user_[v] == n ? n : kMany; }

  // -- looking --------------------------------------------------------------------------------------------------------

  static bool is_view(Code code) {
    return code == Code::broadcast_in_dim || code == Code::dynamic_broadcast_in_dim || code == Code::reshape ||
           code == Code::dynamic_reshape || code == Code::domain || code == Code::broadcast;
  }
  /// A value behind views and changes between floating types.
  Value strip(Value v) const {
    for (int hop = 0; hop < kMostHops; ++hop) {
      const FlatOp* op = g_.maker(v);
      if (op == nullptr || op->in_count == 0) return v;
      const Value before = g_.in(*op)[0];
      const bool cast =
          op->code == Code::convert && is_floating(g_.type(before).dtype) && is_floating(g_.type(v).dtype);
      if (!cast && !is_view(op->code)) return v;
      v = before;
    }
    return v;
  }
  const FlatOp* made(Value v, Code code) const {
    const FlatOp* op = g_.maker(strip(v));
    return op != nullptr && op->code == code ? op : nullptr;
  }
  std::optional<double> number(Value v, int hops = 0) const {
    v = strip(v);
    const FlatValue& value = g_.values[v];
    if (const Integers* known = g_.known_of(v)) {
      const bool splat =
          !known->empty() && std::all_of(known->begin(), known->end(), [&](auto k) { return k == (*known)[0]; });
      return splat ? std::optional(static_cast<double>((*known)[0])) : std::nullopt;
    }
    if (value.constant != nullptr) return constant_number(*value.constant, g_.type(v).dtype);
    const FlatOp* op = g_.maker(v);  // how many elements a mean is of: convert(n), n - 0
    if (op == nullptr || hops > 2) return std::nullopt;
    if (op->code == Code::convert && op->in_count == 1) return number(in(*op, 0), hops + 1);
    if (op->code != Code::subtract || op->in_count != 2) return std::nullopt;
    const auto first = number(in(*op, 0), hops + 1), second = first ? number(in(*op, 1), hops + 1) : std::nullopt;
    return second ? std::optional(*first - *second) : std::nullopt;
  }
  bool is_number(Value v, double wanted) const {
    const auto found = number(v);
    return found && std::abs(*found - wanted) <= 2e-3 * std::abs(wanted);  // bfloat16 keeps 8 bits
  }
  bool is_weight(Value v) const {
    const FlatValue& value = g_.values[v];
    if (value.argument != kNobody) return g_.arguments[static_cast<std::size_t>(value.argument)].is_weight;
    return value.constant != nullptr && is_floating(g_.type(v).dtype) && !g_.type(v).dims.empty();
  }
  Value in(const FlatOp& op, std::size_t i) const { return i < op.in_count ? g_.in(op)[i] : op.out_begin; }
  /// The other operand of a product or sum where one of the two is the number.
  std::optional<Value> beside_number(const FlatOp& op, double wanted) const {
    if (op.in_count != 2) return std::nullopt;
    for (const std::size_t i : {0U, 1U}) {
      if (is_number(in(op, i), wanted)) return in(op, 1 - i);
    }
    return std::nullopt;
  }
  /// How a reduction or a window joins its elements: the one operator of its region, or that the pretty form applies.
  Code joins(const FlatOp& op) const {
    const Operation& at = *op.at;
    if (at.region_count == 0) {
      const std::size_t found = at.attributes.find("applies ");
      if (found == std::string_view::npos) return Code::other;
      std::string_view name = at.attributes.substr(found + 8);
      name = name.substr(0, name.find(' '));
      return code_of(name.substr(name.find('.') + 1));
    }
    const Region& region = g_.module.regions[at.region_begin];
    if (region.operations.size() != 2) return Code::other;
    return g_.module.operations[region.operations[0]].code;
  }
  const FlatOp* reduced(Value v, Code by) const {
    const FlatOp* op = made(v, Code::reduce);
    return op != nullptr && op->out_count == 1 && joins(*op) == by ? op : nullptr;
  }

  /// The one operator that reads a value, through views that nothing else reads; `last`: the value that it reads.
  FlatOp* reader(Value v, Value& last) {
    for (int hop = 0; hop < kMostHops; ++hop) {
      last = v;
      if (user_[v] < 0) return nullptr;
      FlatOp& op = g_.ops[static_cast<std::size_t>(user_[v])];
      const bool cast = op.code == Code::convert && is_floating(g_.type(op.out_begin).dtype);
      if (!cast && !is_view(op.code)) return &op;
      v = op.out_begin;
    }
    return nullptr;
  }

  void become(FlatOp& op, Code code, std::span<const Value> operands) {
    op.code = code;
    g_.set_operands(op, operands);
  }
  void become(FlatOp& op, Code code, Value operand) { become(op, code, std::array{operand}); }

  // -- groups that end in one operator -------------------------------------------------------------------------------

  void backward(FlatOp& op) {
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

  void multiplied(FlatOp& op) {
    if (op.in_count != 2) return;
    for (const std::size_t i : {0U, 1U}) {
      const Value x = in(op, i), other = in(op, 1 - i);
      for (const Code code : {Code::logistic, Code::sigmoid_}) {
        const FlatOp* sigmoid = made(other, code);
        if (sigmoid != nullptr && strip(in(*sigmoid, 0)) == strip(x)) return become(op, Code::silu_, x);
      }
      if (const auto of = hard_sigmoid_of(other); of && *of == strip(x)) return become(op, Code::hard_swish_, x);
      if (const auto by = number(other); by && *by > 0 && *by < 1) {
        if (const FlatOp* sum = reduced(x, Code::add); sum != nullptr && reduces(*sum, 1.0 / *by))
          return mean(op, *sum);
      }
    }
  }

  /// x of clip(x + 3, 0, 6) / 6.
  std::optional<Value> hard_sigmoid_of(Value v) const {
    const FlatOp* op = g_.maker(strip(v));
    if (op == nullptr || op->in_count != 2 || (op->code != Code::divide && op->code != Code::multiply))
      return std::nullopt;
    if (!is_number(in(*op, 1), op->code == Code::divide ? 6.0 : 1.0 / 6.0)) return std::nullopt;
    const FlatOp* clip = g_.maker(strip(in(*op, 0)));
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

  /// Whether a sum is over `count` elements for each result.
  bool reduces(const FlatOp& sum, double count) const {
    const double whole = static_cast<double>(elements_of(g_.type(in(sum, 0))));
    const double results = std::max(1.0, static_cast<double>(elements_of(g_.type(sum.out_begin))));
    return std::abs(whole / results - count) <= 2e-3 * count;
  }

  void mean(FlatOp& op, const FlatOp& sum) {
    op.at = sum.at;
    become(op, Code::mean_, in(sum, 0));
  }

  void divided(FlatOp& op) {
    if (op.in_count != 2) return;
    const Value above = in(op, 0), below = in(op, 1);
    if (const auto by = number(below)) {
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

  void pool(FlatOp& op, const FlatOp& window) {
    op.at = window.at;
    become(op, Code::average_pool_, in(window, 0));
  }

  void softmax(FlatOp& op, Code code, Value shifted, const FlatOp& sum) {
    Value x = shifted;
    if (const FlatOp* shift = made(shifted, Code::subtract); shift != nullptr && is_maximum(in(*shift, 1)))
      x = in(*shift, 0);
    const Integers axes = integers(*sum.at, "dimensions");
    op.axis = axes.empty() ? -1 : static_cast<std::int32_t>(std::clamp<std::int64_t>(axes[0], 0, kMaxRank));
    become(op, code, x);
  }

  bool is_maximum(Value v) const {
    const FlatOp* op = g_.maker(strip(v));
    if (op != nullptr && op->code == Code::transpose) op = g_.maker(strip(in(*op, 0)));
    if (op != nullptr && op->code == Code::select) op = g_.maker(strip(in(*op, 1)));  // -inf becomes 0
    if (op == nullptr) return false;
    if (op->code == Code::maximum && op->in_count == 2) return is_maximum(in(*op, 0)) || is_maximum(in(*op, 1));
    return op->code == Code::reduce && joins(*op) == Code::maximum;
  }

  /// s - log(sum(exp(s))) with s = x - max(x).
  void log_softmax(FlatOp& op) {
    if (op.in_count != 2) return;
    const FlatOp* log = made(in(op, 1), Code::log);
    const FlatOp* sum = log != nullptr ? reduced(in(*log, 0), Code::add) : nullptr;
    const FlatOp* power = sum != nullptr ? made(in(*sum, 0), Code::exponential) : nullptr;
    if (power != nullptr && strip(in(*power, 0)) == strip(in(op, 0))) softmax(op, Code::log_softmax_, in(op, 0), *sum);
  }

  void selected(FlatOp& op) {
    if (op.in_count != 3) return;
    const Value yes = in(op, 1), no = in(op, 2);
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

  // -- groups that begin with one operator ---------------------------------------------------------------------------

  void forward(FlatOp& op) {
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

  /// x / 2 (1 + erf(x / sqrt 2)), and its form with tanh.
  void gelu(const FlatOp& op) {
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
      x = scaled->code == Code::divide ? beside_number(*scaled, std::sqrt(2.0))
                                       : beside_number(*scaled, std::sqrt(0.5));
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

  struct Statistic {
    enum { none, layer, root, batch } kind = none;
    Value x = 0;                   // what it was taken of, behind views
    const FlatOp* mean = nullptr;  // that of the variance
  };

  /// The value whose square this is.
  std::optional<Value> square_of(Value v) const {
    const FlatOp* op = g_.maker(strip(v));
    if (op == nullptr) return std::nullopt;
    if (op->code == Code::square && op->in_count == 1) return strip(in(*op, 0));
    if (op->code == Code::multiply && op->in_count == 2 && strip(in(*op, 0)) == strip(in(*op, 1)))
      return strip(in(*op, 0));
    return std::nullopt;
  }

  Statistic statistic(Value v) const {
    v = strip(v);
    if (is_weight(v)) return {Statistic::batch, v, nullptr};
    const FlatOp* op = g_.maker(v);
    if (op == nullptr) return {};
    if (op->code == Code::relu_ || (op->code == Code::maximum && beside_number(*op, 0.0))) {
      return statistic(op->code == Code::relu_ ? in(*op, 0) : *beside_number(*op, 0.0));
    }
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

  void normalisation(const FlatOp& root) {
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

  void normalise(FlatOp& op, const Statistic& found, Value x, std::optional<Value> scale, std::optional<Value> bias,
                 std::optional<Value> mean) {
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
      if (std::find(axes.begin(), axes.end(), d) == axes.end())
        groups = std::min<std::int64_t>(groups * of[d], 1 << 24);
    }
    op.groups = static_cast<std::int32_t>(groups);
    become(op, Code::group_norm_, operands);
  }

  /// x s + (shift - mean s) with s = scale / sqrt(variance + epsilon), as Keras writes it.
  bool batch_norm(FlatOp& op) {
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

  /// The addition of a parameter right after a product or a convolution.
  void bias(FlatOp& op) {
    if (op.in_count != 2) return;
    for (const std::size_t i : {0U, 1U}) {
      const Value product = in(op, i), added = strip(in(op, 1 - i));
      const FlatOp* maker = g_.maker(product);
      if (maker == nullptr || maker->in_count != 2 || user_[product] < 0 || !is_weight(added)) continue;
      if (maker->code != Code::convolution && maker->code != Code::dot_general && maker->code != Code::dot) continue;
      if (maker->code != Code::convolution && !is_weight(strip(in(*maker, 1)))) continue;
      if (g_.type(added).dims.size() > 1 && maker->code == Code::convolution) continue;
      const std::array<Value, 3> operands{in(*maker, 0), in(*maker, 1), added};
      op.at = maker->at;
      return become(op, maker->code, operands);
    }
  }

  FlatGraph& g_;
  std::vector<std::int32_t> user_;  // the one operator that reads a value; kMany
};

}  // namespace

void recompose(FlatGraph& graph) { Recomposer(graph).run(); }

}  // namespace perfpass::stablehlo
