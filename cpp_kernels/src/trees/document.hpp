// A small document tree for JSON and UBJSON, bounded in size and depth: what tree ensembles and
// predictor bundles are stored in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfpass/error.hpp"

namespace perfpass::document {

/// Deeper nesting than any model needs; recursion stays far from the end of the stack.
inline constexpr int kMaxDepth = 32;

/// One value. An array of numbers alone is kept in `numbers` (doubles hold every int32 and float32 exactly), any other
/// array in `items`.
struct Member;

struct Value {
  enum class Kind : std::uint8_t { null, boolean, number, string, numbers, items, object };
  Kind kind = Kind::null;
  double number = 0.0;  // also 0 or 1 of a boolean
  std::string string;
  std::vector<double> numbers;
  std::vector<Value> items;
  std::vector<Member> members;

  /// Member of an object, or nullptr.
  const Value* find(std::string_view name) const noexcept;
};

struct Member {
  std::string name;
  Value value;
};

/// Error(format) for bytes that are not one complete value, Error(limit) beyond kMaxDepth.
Value parse_json(std::span<const std::uint8_t> bytes);
Value parse_ubjson(std::span<const std::uint8_t> bytes);

/// UBJSON when the second byte cannot follow `{` in JSON text.
Value parse(std::span<const std::uint8_t> bytes);

/// What `read` gives; its errors begin with what the document is.
template <typename Read>
Value named(const std::string& what, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.code(), what + ": " + error.what());
  }
}

}  // namespace perfpass::document
