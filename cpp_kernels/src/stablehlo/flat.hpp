// The module as one list of operators: calls inlined, loops once with their passes, every size known.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "stablehlo/attributes.hpp"
#include "stablehlo/module.hpp"

namespace perfpass::stablehlo {

using Value = std::uint32_t;
constexpr std::int32_t kNobody = -1;

struct FlatValue {
  std::uint32_t type = 0;
  std::int32_t maker = kNobody;         // the operator; nobody makes arguments and constants
  std::int32_t argument = kNobody;      // of main
  std::int32_t known = kNobody;         // its integers
  const Operation* constant = nullptr;  // where it stands in the text
  bool is_constant = false;
  bool is_number = false;  // a constant whose elements are all `number`
  double number = 0.0;
};

struct FlatOp {
  Code code = Code::other;
  const Operation* at = nullptr;
  std::uint32_t in_begin = 0, in_count = 0;
  Value out_begin = 0;
  std::uint32_t out_count = 0;
  double repeat = 1.0;
  std::int32_t axis = 0;  // of what recompose.cpp recognises
  std::int32_t groups = 0;
};

struct MainArgument {
  std::string name;
  std::vector<std::string> symbols;  // per axis
  bool is_weight = false;
  Value value = 0;
};

struct FlatGraph {
  Module module;
  std::vector<Type> types;
  std::vector<FlatValue> values;
  std::vector<FlatOp> ops;
  std::vector<Value> operands;
  std::vector<Integers> known;
  std::vector<MainArgument> arguments;
  std::vector<Value> outputs;
  std::vector<Note> notes;

  const Type& type(Value v) const { return types[values[v].type]; }
  std::span<const Value> in(const FlatOp& op) const { return {operands.data() + op.in_begin, op.in_count}; }
  /// The operator that makes a value; null for arguments and constants.
  const FlatOp* maker(Value v) const {
    const std::int32_t n = values[v].maker;
    return n == kNobody ? nullptr : &ops[static_cast<std::size_t>(n)];
  }
  const Integers* known_of(Value v) const {
    const std::int32_t k = values[v].known;
    return k == kNobody ? nullptr : &known[static_cast<std::size_t>(k)];
  }
  /// The one number of a constant.
  std::optional<double> number_of(Value v) const {
    return values[v].is_number ? std::optional(values[v].number) : std::nullopt;
  }
  std::uint32_t add_type(Type type);
  Value add_value(std::uint32_t type) {
    values.push_back({.type = type});
    return static_cast<Value>(values.size() - 1);
  }
  void set_operands(FlatOp& op, std::span<const Value> in) {
    op.in_begin = static_cast<std::uint32_t>(operands.size());
    op.in_count = static_cast<std::uint32_t>(in.size());
    operands.insert(operands.end(), in.begin(), in.end());
  }
};

std::int64_t elements_of(const Type& type) noexcept;  // open dimensions count 1

/// `lenient`: open dimensions may stay (to list the inputs). Error(shape) for a size that is missing.
FlatGraph flatten(Module&& module, const std::map<std::string, std::vector<std::int64_t>>& input_shapes,
                  const StablehloLimits& limits, bool lenient);

/// The dimensions of an operator's results where the text leaves some open; kOpen where they do not follow.
void infer(const FlatGraph& graph, Code code, const Operation& at, std::span<const Value> in, std::span<Type> results);
/// The integers of a result that follow from those of the operands.
std::optional<Integers> evaluate(const FlatGraph& graph, Code code, const Operation& at, std::span<const Value> in,
                                 const Type& result, std::size_t most);

/// The dimensions of a product's two operands by what becomes of them.
struct DotSides {
  Integers batch[2], contracted[2], free[2];
};
/// Error(format) for dimensions that the operands do not have.
DotSides dot_sides(const FlatGraph& graph, const Operation& at, std::span<const Value> in);

/// Readers of a product with 1 or a sum with 0 read its other operand instead.
void drop_identities(FlatGraph& graph);
/// Sets MainArgument::is_weight.
void find_weights(FlatGraph& graph);
/// Groups of operators become one: softmax, normalisations, GELU, means, biases.
void recompose(FlatGraph& graph);
OpGraph lower(const FlatGraph& graph);

}  // namespace perfpass::stablehlo
