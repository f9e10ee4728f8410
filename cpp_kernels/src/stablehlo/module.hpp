// A parsed module: operations, regions and values as they stand in the text, which outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perfpass/dtype.hpp"
#include "perfpass/stablehlo_reader.hpp"
#include "stablehlo/codes.hpp"
#include "support/text_hash.hpp"

namespace perfpass::stablehlo {

constexpr std::int64_t kOpen = -1;             // a dimension without a size
constexpr std::size_t kMostValuesOfNode = 16;  // on average: operands and results
constexpr std::size_t kLongestName = 4096;     // of a value or a place in the model

struct Type {
  DType dtype = DType::undefined;
  bool quantized = false;
  bool is_tensor = false;
  std::vector<std::int64_t> dims;
  bool operator==(const Type&) const = default;
};

using ValueId = std::uint32_t;

struct Operation {
  Code code = Code::other;
  std::string_view name;        // with its dialect
  std::string_view attributes;  // all text that may hold attributes, operands of the pretty form included
  std::string_view more_attributes;
  std::string_view location;
  std::uint32_t operand_begin = 0, operand_count = 0;
  ValueId result_begin = 0;
  std::uint32_t result_count = 0;
  std::uint32_t region_begin = 0, region_count = 0;
  std::string_view symbol;  // of a call, a custom_call, a composite
};

struct Region {
  ValueId arg_begin = 0;
  std::uint32_t arg_count = 0;
  std::vector<std::uint32_t> operations;
};

struct Argument {
  std::string_view name;        // without %
  std::string_view attributes;  // {...} or empty
  std::string_view location;
};

struct Function {
  std::string_view name;
  bool is_public = true;
  bool has_body = false;
  std::vector<Argument> arguments;
  std::uint32_t region = 0;
};

struct Module {
  std::vector<Type> types;
  std::vector<std::uint32_t> value_type;  // by ValueId
  std::vector<Operation> operations;
  std::vector<Region> regions;
  std::vector<ValueId> operands;
  std::vector<Function> functions;
  std::unordered_map<std::string_view, std::uint32_t, TextHash> function_by_name;
  std::unordered_map<std::string_view, std::string_view, TextHash>
      location_by_alias;  // "#loc12" -> what stands in loc(...)

  /// The name in a location: "jit(f)/Dense_0/dot_general" of `loc("jit(f)/Dense_0/dot_general"(#loc3))`; may be empty.
  std::string_view location_name(std::string_view location) const;
  const Function& main() const;
};

/// Error(format) for text that is no such module, Error(unsupported) for another dialect, Error(limit).
Module parse(std::string_view text, const StablehloLimits& limits);

}  // namespace perfpass::stablehlo
