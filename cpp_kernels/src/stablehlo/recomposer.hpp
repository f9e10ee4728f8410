// StableHLO writes a softmax as five operators and a layer norm as a dozen; its compilers run each as one kernel or
// fuse it into a neighbour. Groups that exporters are known to write become one operator again here. Nothing is
// removed: what nobody reads any more is left out when the graph is lowered.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "stablehlo/flat.hpp"

namespace perfpass::stablehlo {

class Recomposer {
 public:
  explicit Recomposer(FlatGraph& graph) : g_(graph), user_(graph.values.size(), kNobody) {
    for (std::size_t n = 0; n < g_.ops.size(); ++n) {
      for (const Value v : g_.in(g_.ops[n])) use(v, static_cast<std::int32_t>(n));
    }
    for (const Value v : g_.outputs) use(v, kMany);
  }
  void run();

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
  Value before_transpose(Value v) const {
    const FlatOp* op = g_.maker(v);
    return op != nullptr && op->code == Code::transpose && op->in_count == 1 ? g_.in(*op)[0] : v;
  }
  const FlatOp* made(Value v, Code code) const {
    const FlatOp* op = g_.maker(strip(v));
    return op != nullptr && op->code == code ? op : nullptr;
  }
  std::optional<double> number(Value v, int hops = 0) const;
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
  Code joins(const FlatOp& op) const { return stablehlo::joins(g_.module, *op.at); }
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

  // -- groups that end in one operator --------------------------------------------------------------------------------

  void backward(FlatOp& op);
  void multiplied(FlatOp& op);
  /// x of clip(x + 3, 0, 6).
  std::optional<Value> clipped(Value v) const;
  /// x of clip(x + 3, 0, 6) / 6.
  std::optional<Value> hard_sigmoid_of(Value v) const;
  /// Whether a sum is over `count` elements for each result.
  bool reduces(const FlatOp& sum, double count) const;
  void mean(FlatOp& op, const FlatOp& sum) {
    op.at = sum.at;
    become(op, Code::mean_, in(sum, 0));
  }
  void divided(FlatOp& op);
  void pool(FlatOp& op, const FlatOp& window) {
    op.at = window.at;
    become(op, Code::average_pool_, in(window, 0));
  }
  void softmax(FlatOp& op, Code code, Value shifted, const FlatOp& sum);
  bool is_maximum(Value v, int hops = 0) const;
  /// s - log(sum(exp(s))) with s = x - max(x).
  void log_softmax(FlatOp& op);
  void selected(FlatOp& op);
  /// Whether a condition asks only which rows of x are -inf throughout.
  bool asks_for_empty_rows(Value condition, Value x) const;

  // -- groups that begin with one operator ----------------------------------------------------------------------------

  void forward(FlatOp& op);
  /// x / 2 (1 + erf(x / sqrt 2)), and its form with tanh.
  void gelu(const FlatOp& op);
  struct Statistic {
    enum { none, layer, root, batch } kind = none;
    Value x = 0;                   // what it was taken of, behind views
    const FlatOp* mean = nullptr;  // that of the variance
  };
  /// The value whose square this is.
  std::optional<Value> square_of(Value v) const;
  Statistic statistic(Value v) const;
  void normalisation(const FlatOp& root);
  void normalise(FlatOp& op, const Statistic& found, Value x, std::optional<Value> scale, std::optional<Value> bias,
                 std::optional<Value> mean);
  /// x s + (shift - mean s) with s = scale / sqrt(variance + epsilon), as Keras writes it.
  bool batch_norm(FlatOp& op);
  struct Mix {
    Value first, second;
    std::int64_t weights;  // how many places have one
  };
  /// What a sum mixes, by one weight for every place of an axis.
  std::optional<Mix> mix(const FlatOp& sum) const;
  /// An image resized by interpolation between four pixels.
  bool interpolation(FlatOp& op);
  /// The addition of a parameter right after a product or a convolution.
  void bias(FlatOp& op);

  FlatGraph& g_;
  std::vector<std::int32_t> user_;  // the one operator that reads a value; kMany
  static constexpr std::int32_t kMany = -2;
  static constexpr int kMostHops = 16;  // of views between two operators of a group
};

}  // namespace perfpass::stablehlo
