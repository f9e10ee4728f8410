// MLIR text to a Module. Types are read once for each way of writing them; attributes stay text until they are asked
// for (attributes.hpp).
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stablehlo/module.hpp"
#include "stablehlo/text_cursor.hpp"

namespace perfpass::stablehlo {

/// tensor<2x?xf32> and what else stands for a type. Error(unsupported) for an unknown rank, Error(limit).
Type read_type(std::string_view text);

class Parser {
 public:
  Parser(std::string_view text, const StablehloLimits& limits) : c_(text), limits_(limits) {
    m_.operations.reserve(text.size() / 160);
    m_.value_type.reserve(text.size() / 140);
  }
  Module run();

 private:
  struct Pending {
    std::string_view name;
    std::uint32_t count;
  };

  // -- top level ------------------------------------------------------------------------------------------------------

  /// One thing of a module, or the end of one; false at the end of the text.
  bool top_level();
  bool generic_top_level();
  void alias();
  static std::string_view within(std::string_view brackets) { return brackets.substr(1, brackets.size() - 2); }
  /// `: () -> ()` and where it stands in the source.
  void empty_signature();
  std::string_view skip_location();

  // -- functions ------------------------------------------------------------------------------------------------------

  void begin_function() {
    named_ = {};  // clear() would go through the buckets of the largest function again for every other
    numbered_.clear();
  }
  void function();
  void generic_function();

  // -- regions --------------------------------------------------------------------------------------------------------

  std::uint32_t add_region(Region&& region) {
    m_.regions.push_back(std::move(region));
    return static_cast<std::uint32_t>(m_.regions.size() - 1);
  }
  [[noreturn]] void too_deep() const {
    throw Error(ErrorCode::limit, "the module nests regions more than " + std::to_string(limits_.nesting) +
                                      " deep; no exporter writes such a file");
  }
  /// { operations }; `with_header`: a ^bb0(...) line may come first.
  void body(std::uint32_t region, bool with_header);
  void block_header(Region* region);

  // -- values ---------------------------------------------------------------------------------------------------------

  ValueId next_value() const noexcept { return static_cast<ValueId>(m_.value_type.size()); }
  std::string_view value_name();
  /// The number of a name such as "123"; kUnset for another.
  static std::uint32_t number(std::string_view name) noexcept;
  void bind(std::string_view name, ValueId value);
  ValueId define(std::string_view name, std::uint32_t type);
  ValueId operand();

  // -- types ----------------------------------------------------------------------------------------------------------

  std::uint32_t type();

  // -- operations -----------------------------------------------------------------------------------------------------

  [[noreturn]] static void refuse(std::string_view name);
  static Code code_with_dialect(std::string_view name);
  std::uint32_t operation();
  void take_operands(Operation& op, std::size_t stack);
  void take_regions(Operation& op, const std::vector<std::uint32_t>& ids);
  void define_results(Operation& op, const std::vector<Pending>& pending, const std::vector<std::uint32_t>& types);
  /// What stands behind the colon; the types of the results.
  std::vector<std::uint32_t> result_types();
  std::vector<std::uint32_t> listed_types();
  void generic(Operation& op, const std::vector<Pending>& pending, std::size_t stack);
  void pretty(Operation& op, const std::vector<Pending>& pending, std::size_t stack);
  /// while(%name = %init, ...) : types cond {...} do {...}
  void pretty_while(Operation& op, const std::vector<Pending>& pending, std::size_t stack);

  TextCursor c_;
  const StablehloLimits& limits_;
  Module m_;
  std::unordered_map<std::string_view, std::uint32_t, TextHash> type_ids_;
  std::unordered_map<std::string_view, ValueId, TextHash> named_;
  std::vector<ValueId> numbered_;
  std::vector<ValueId> stack_;  // operands of the operations that are being read
  std::vector<Argument>* generic_arguments_ = nullptr;
  int depth_ = 0, open_modules_ = 0, generic_modules_ = 0;
  static constexpr std::uint32_t kUnset = std::numeric_limits<std::uint32_t>::max();
};

}  // namespace perfpass::stablehlo
