// The functions of a module inlined into one list of operators (flat.hpp).
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stablehlo/flat.hpp"
#include "stablehlo/text_cursor.hpp"

namespace perfpass::stablehlo {

inline bool is_open(const Type& type) {
  return std::find(type.dims.begin(), type.dims.end(), kOpen) != type.dims.end();
}

inline bool is_integer(DType dtype) { return dtype >= DType::int8 && dtype <= DType::boolean; }

class Flattener {
 public:
  Flattener(Module&& module, const std::map<std::string, std::vector<std::int64_t>>& shapes,
            const StablehloLimits& limits, bool lenient)
      : shapes_(shapes), limits_(limits), lenient_(lenient) {
    g_.module = std::move(module);
    g_.types = g_.module.types;
    g_.ops.reserve(g_.module.operations.size());
    g_.values.reserve(g_.module.value_type.size());
    g_.operands.reserve(g_.module.operands.size());
    env_.assign(g_.module.value_type.size(), kUnbound);
  }
  FlatGraph run();

 private:
  // -- arguments ------------------------------------------------------------------------------------------------------

  void declare(const Function& main);
  /// jax.export wraps a function of open sizes: the inner one has the names, and its first arguments are the sizes.
  void learn_names(const Region& region);
  /// What jax.export asserts of the shapes: "...specifications: args[1].shape = (b, s),args[2].shape = (b, s).
  /// Obtained".
  void learn_symbols(const Operation& assertion);
  void learn_name(const Region& region, ValueId given, const Argument& inner,
                  const std::unordered_map<ValueId, std::pair<ValueId, std::int64_t>>& sizes);
  void set_shape(const std::string& name, const std::vector<std::int64_t>& shape, Value value);

  // -- regions --------------------------------------------------------------------------------------------------------

  Value bound(ValueId v) const;
  std::vector<Value> operands_of(const Operation& op) const;
  void bind(const Operation& op, std::span<const Value> results);
  std::vector<Value> flatten_region(const Region& region, double repeat);
  static std::string_view callee(const Operation& op) {
    if (!op.symbol.empty()) return op.symbol;
    return symbol_of(op, "callee");
  }
  /// The name behind @ of an attribute.
  static std::string_view symbol_of(const Operation& op, std::string_view key) {
    const std::string_view value = attribute(op, key);
    return value.starts_with('@') ? TextCursor(value, 1).symbol() : std::string_view();
  }
  void flatten_operation(const Operation& op, double repeat);
  std::uint32_t result_type(const Operation& op, std::uint32_t i) const;
  void noted(const std::string& text, bool counted_once = false) { notes_.emplace(text, counted_once); }
  /// One operator with its results, of known sizes; nothing where its integers are known already.
  void append(const Operation& op, Code code, double repeat);
  /// Whether a value's integers are known now: it is a constant then.
  bool follow(Value v, Code code, const Operation& op, std::span<const Value> in);
  void call(const Operation& op, std::string_view name, double repeat);
  void composite(const Operation& op, double repeat);
  /// Whether a call moves nothing and was bound.
  bool custom_call(const Operation& op);
  static std::string_view target_of(const Operation& op) {
    return op.symbol.empty() ? text(op, "call_target_name") : op.symbol;
  }

  // -- control flow ---------------------------------------------------------------------------------------------------

  const Operation* maker_in(const Region& region, ValueId v) const;
  const Operation* returned_by(const Region& region) const;
  /// What an integer scalar of a region is: a constant inside it, or a value from outside that is known.
  std::optional<std::int64_t> scalar(const Region& region, ValueId v, std::span<const Value> inits,
                                     const std::vector<bool>& same) const;
  std::optional<std::int64_t> known_scalar(Value v) const {
    const Integers* values = g_.known_of(v);
    return values != nullptr && values->size() == 1 ? std::optional((*values)[0]) : std::nullopt;
  }
  /// Passes of a loop that counts: i = a; while (i < b) i += c.
  std::optional<double> passes(const Region& condition, const Region& body, std::span<const Value> inits,
                               const std::vector<bool>& same) const;
  void loop(const Operation& op, double repeat);
  /// Multiply-accumulates, then bytes written, of the operators from `begin` on.
  std::pair<double, double> work_from(std::size_t begin) const;
  void branch(const Operation& op, double repeat);

  FlatGraph g_;
  const std::map<std::string, std::vector<std::int64_t>>& shapes_;
  const StablehloLimits& limits_;
  const bool lenient_;
  std::vector<std::int32_t> env_;  // by ValueId
  std::vector<const Function*> calls_;
  std::unordered_map<Value, std::vector<Value>> tuples_;
  std::map<std::string, bool> notes_;  // and whether it is of a loop that is counted once
  int depth_ = 0;
  std::size_t visited_ = 0, carried_ = 0, letters_ = 0;  // operations, their operands and results, their text
  static constexpr std::int32_t kUnbound = -1;
};

}  // namespace perfpass::stablehlo
