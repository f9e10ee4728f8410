// The flat module in the canonical vocabulary. Broadcasts that an elementwise operator reads are left out, as every
// runtime reads the small tensor; products get the shapes [.., M, K] x [.., K, N] through views.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfpass/error.hpp"
#include "stablehlo/flat.hpp"
#include "stablehlo/operator_table.hpp"

namespace perfpass::stablehlo {

using Dims = std::vector<std::int64_t>;

inline std::int32_t small(std::int64_t value) {
  if (value > std::numeric_limits<std::int32_t>::max() || value < std::numeric_limits<std::int32_t>::min()) {
    throw Error(ErrorCode::limit,
                "an attribute of the module is " + std::to_string(value) + "; it must fit in 32 bits");
  }
  return static_cast<std::int32_t>(value);
}

inline std::int64_t product(const Dims& dims, const Integers& of) {
  std::int64_t result = 1;
  for (const std::int64_t d : of) {
    if (__builtin_mul_overflow(result, dims[static_cast<std::size_t>(d)], &result)) return kMaxElements + 1;
  }
  return result;
}

inline Dims pick(const Dims& dims, const Integers& of) {
  Dims result;
  for (const std::int64_t d : of) result.push_back(dims[static_cast<std::size_t>(d)]);
  return result;
}

inline Integers joined(std::initializer_list<const Integers*> parts) {
  Integers all;
  for (const Integers* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

inline bool in_order(const Integers& order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

class Lowerer {
 public:
  explicit Lowerer(const FlatGraph& graph)
      : g_(graph), tensor_(graph.values.size(), kNone), uses_(graph.values.size(), 0), live_(graph.ops.size(), false) {}
  OpGraph run();

 private:
  // -- what is read ---------------------------------------------------------------------------------------------------

  /// Behind operators that are another value's name.
  Value plain(Value v) const;
  /// Behind broadcasts too, and reshapes that only add dimensions of 1 to what is broadcast.
  Value before_broadcast(Value v) const;
  static Dims without_ones(const Dims& dims);
  Value read(const FlatOp& op, std::size_t i) const {
    const Value v = g_.in(op)[i];
    return meaning_of(op.code).elementwise ? before_broadcast(v) : plain(v);
  }
  /// How many operands count: initial values of reductions and indices that only say where a slice is do not.
  std::size_t operands_read(const FlatOp& op) const;
  void find_live();
  bool is_weight(Value v) const;
  TensorId tensor_of(Value v);

  // -- what is written ------------------------------------------------------------------------------------------------

  TensorId activation(DType dtype, const Dims& dims) { return b_.add_tensor({}, dtype, dims, TensorRole::activation); }
  std::string_view name_of(const FlatOp& op) const { return g_.module.location_name(op.at->location); }
  void node(const FlatOp& op, OpKind kind, const NodeAttributes& attributes, std::span<const TensorId> in,
            std::span<const TensorId> out, std::string_view source = {}) {
    b_.add_node(kind, source.empty() ? op.at->name : source, name_of(op), attributes, in, out, op.repeat);
  }
  void view(const FlatOp& op, OpKind kind, TensorId in, TensorId out);
  std::vector<TensorId> results(const FlatOp& op);
  std::vector<TensorId> reads(const FlatOp& op);
  void emit(const FlatOp& op);
  /// Groups are called by what they are.
  static std::string_view source_of(const FlatOp& op);
  std::int32_t axis_of(const FlatOp& op) const;

  // -- products -------------------------------------------------------------------------------------------------------

  /// One operand of a product while it gets its canonical shape.
  struct Side {
    Value value = 0;
    Dims dims;
    Integers batch, free, contracted;
    bool weight = false;
  };
  Side side(const FlatOp& op, const DotSides& sides, int i) const;
  /// A tensor in another order of its dimensions, or the tensor itself.
  TensorId ordered(const FlatOp& op, TensorId t, const Dims& dims, const Integers& order, DType dtype);
  TensorId reshaped(const FlatOp& op, TensorId t, const Dims& from, const Dims& to, DType dtype);
  /// [.., rows, columns] of an operand; `turned` where its memory has [.., columns, rows].
  TensorId matrix(const FlatOp& op, const Side& s, const Integers& rows, const Integers& columns, bool& turned);
  void emit_product(const FlatOp& op);
  /// A weight as [K, N], or [N, K] where `turned`; a weight of more dimensions is declared by its matrix.
  TensorId weight_matrix(const FlatOp& op, const Side& s, bool& turned);
  void emit_transpose(const FlatOp& op);
  bool feeds_product(const FlatOp& op);
  void emit_einsum(const FlatOp& op);
  /// Product of the sizes of the labels that an einsum's result does not have.
  std::int64_t contraction(const FlatOp& op) const;

  // -- convolutions and windows ---------------------------------------------------------------------------------------

  /// Dimensions of a part in the order of `wanted`: 'b', 'f', 's' for all spatial ones.
  static Integers order_of(const std::vector<char>& part, std::string_view wanted, std::size_t spatial);
  void emit_convolution(const FlatOp& op);
  void emit_window(const FlatOp& op);

  // -- reductions, gathers, calls -------------------------------------------------------------------------------------

  void emit_reduction(const FlatOp& op);
  void emit_mean(const FlatOp& op);
  void emit_gather(const FlatOp& op);
  /// Whether a value has a tensor, or will have one.
  bool available(Value v) const {
    const FlatValue& value = g_.values[v];
    return value.maker == kNobody || live_[static_cast<std::size_t>(value.maker)];
  }
  void emit_custom_call(const FlatOp& op);
  /// cuDNN's attention: query, key and value [batch, length, heads, dim], the result [batch, heads, length, dim].
  void emit_attention(const FlatOp& op, std::string_view target);

  const FlatGraph& g_;
  GraphBuilder b_;
  std::vector<TensorId> tensor_;
  std::vector<std::int32_t> uses_;
  std::vector<bool> live_, readers_;
  std::vector<TensorId> inputs_;
  std::unordered_map<Value, TensorId> matrices_;
  std::unordered_map<Value, std::pair<TensorId, Integers>> turned_;
  static constexpr int kMostHops = 64;
};

}  // namespace perfpass::stablehlo
