// Attributes of an operation, read from its text when they are asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "stablehlo/module.hpp"

namespace perfpass::stablehlo {

using Integers = std::vector<std::int64_t>;

inline std::int64_t at(const Integers& list, std::size_t i, std::int64_t otherwise) {
  return i < list.size() ? list[i] : otherwise;
}

/// The text behind `key =`, strings skipped; empty where the operation has no such attribute.
std::string_view attribute(const Operation& op, std::string_view key);
/// The integers of [1, 2], [[1, 2], [3, 4]], array<i64: 1, 2>, dense<[1, 2]> or dense<1> (repeated `wanted` times).
Integers integers(const Operation& op, std::string_view key, std::size_t wanted = 0);
/// The same under a second name, which the other form of the text has.
Integers integers(const Operation& op, std::string_view key, std::string_view or_key, std::size_t wanted = 0);
std::optional<std::int64_t> integer(const Operation& op, std::string_view key);
std::optional<std::int64_t> integer(const Operation& op, std::string_view key, std::string_view or_key);
/// The text of a string attribute.
std::string_view text(const Operation& op, std::string_view key);
/// The same of attributes that are no operation's.
std::string_view text_in(std::string_view attributes, std::string_view key);
/// The integers of a list as it stands in the text, [0:2, 4] or [1, 2].
Integers integers_in(std::string_view list);

/// All integers of a constant that is no splat, or its one; at most `most`; nothing for elided or hexadecimal data.
std::optional<Integers> constant_integers(const Operation& op, std::size_t elements, std::size_t most);
/// The one number of a constant scalar or splat: 1.5, -3, true, 0xFF800000 in the bits of its type.
std::optional<double> constant_number(const Operation& op, DType dtype);

/// How a reduction or a window joins its elements: the one operator of its region, or that the pretty form applies.
Code joins(const Module& module, const Operation& op);

/// [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]: the letters of each part, spatial dimensions by their digit.
struct DimensionNumbers {
  std::string_view input, kernel, output;
};
DimensionNumbers dimension_numbers(const Operation& op);
/// The letters and digits of one part, in order.
std::vector<char> letters(std::string_view part);

}  // namespace perfpass::stablehlo
