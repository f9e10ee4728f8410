#include "stablehlo/attributes.hpp"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "perfpass/error.hpp"
#include "stablehlo/text_cursor.hpp"
#include "support/decimal.hpp"

namespace perfpass::stablehlo {
namespace {

constexpr std::size_t kMostIntegers = 256;  // of an attribute: lists as long as a tensor has dimensions, or twice

std::string_view find_key(std::string_view text, std::string_view key) {
  // Both places only go forward: a text of many strings or many keys is gone through once.
  std::size_t at = text.find(key), quote = text.find('"');
  while (at != std::string_view::npos) {
    if (quote < at) {
      TextCursor skip(text, quote);
      skip.string();
      quote = text.find('"', skip.place());
      if (at < skip.place()) at = text.find(key, skip.place());
      continue;
    }
    TextCursor c(text, at + key.size());
    if ((at == 0 || !is_word(text[at - 1])) && c.eat("=")) {
      c.space();
      return text.substr(c.place());
    }
    at = text.find(key, at + key.size());
  }
  return {};
}

std::int64_t read_integer(std::string_view text, std::size_t& used) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return used = 0, 0;
  used = static_cast<std::size_t>(end - text.data());
  return value;
}

/// Integers up to the bracket that closes; `text` begins behind the one that opens.
Integers listed(std::string_view text, std::size_t most) {
  Integers values;
  int depth = 1;
  for (std::size_t p = 0; p < text.size() && depth > 0;) {
    const char c = text[p];
    if (c == '[' || c == '<') {
      ++depth;
    } else if (c == ']' || c == '>') {
      --depth;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      std::size_t used = 0;
      const std::int64_t value = read_integer(text.substr(p), used);
      if (used > 0) {
        if (values.size() >= most) {
          throw Error(ErrorCode::limit,
                      "an attribute of the module lists more than " + std::to_string(most) + " numbers");
        }
        values.push_back(value);
        p += used;
        continue;
      }
    } else if (c == 't' && text.substr(p).starts_with("true")) {
      values.push_back(1);
      p += 4;
      continue;
    } else if (c == 'f' && text.substr(p).starts_with("false")) {
      values.push_back(0);
      p += 5;
      continue;
    }
    ++p;
  }
  return values;
}

/// The text of a constant's value from behind dense< on.
std::string_view dense(const Operation& op) {
  for (const std::string_view source : {op.attributes, op.more_attributes}) {
    if (const std::size_t at = source.find("dense<"); at != std::string_view::npos) return source.substr(at + 6);
  }
  return {};
}

double from_bits(std::uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::float64:
      return std::bit_cast<double>(bits);
    case DType::float32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case DType::bfloat16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    case DType::float16: {
      const std::uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
      const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
      if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : NAN;
      return sign * std::ldexp(exponent == 0 ? fraction : 1024.0 + fraction,
                               static_cast<int>(exponent == 0 ? 1 : exponent) - 25);
    }
    default:
      return static_cast<double>(bits);
  }
}

}  // namespace

std::string_view attribute(const Operation& op, std::string_view key) {
  const std::string_view found = find_key(op.attributes, key);
  return found.empty() && !op.more_attributes.empty() ? find_key(op.more_attributes, key) : found;
}

Integers integers(const Operation& op, std::string_view key, std::size_t wanted) {
  std::string_view value = attribute(op, key);
  bool may_be_splat = false;
  if (value.starts_with("array<")) {
    const std::size_t close = value.find('>'), colon = value.find(':');
    if (colon > close) return {};  // array<i64>
    value.remove_prefix(colon + 1);
  } else if (value.starts_with("dense<")) {
    value.remove_prefix(6);
    may_be_splat = !value.starts_with("[");
  } else if (value.starts_with("[")) {
    value.remove_prefix(1);
  } else {
    return {};
  }
  Integers values = listed(value, kMostIntegers);
  if (may_be_splat && values.size() == 1 && wanted > 1 && wanted <= kMostIntegers) values.assign(wanted, values[0]);
  return values;
}

Integers integers(const Operation& op, std::string_view key, std::string_view or_key, std::size_t wanted) {
  return attribute(op, key).empty() ? integers(op, or_key, wanted) : integers(op, key, wanted);
}

std::optional<std::int64_t> integer(const Operation& op, std::string_view key) {
  std::size_t used = 0;
  const std::int64_t value = read_integer(attribute(op, key), used);
  return used > 0 ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> integer(const Operation& op, std::string_view key, std::string_view or_key) {
  const auto found = integer(op, key);
  return found ? found : integer(op, or_key);
}

namespace {

std::string_view unquoted(std::string_view value) {
  if (!value.starts_with('"')) return {};
  TextCursor c(value);
  return c.string();
}

}  // namespace

std::string_view text(const Operation& op, std::string_view key) { return unquoted(attribute(op, key)); }

std::string_view text_in(std::string_view attributes, std::string_view key) {
  return unquoted(find_key(attributes, key));
}

Integers integers_in(std::string_view list) {
  return list.starts_with('[') ? listed(list.substr(1), kMostIntegers) : Integers{};
}

std::optional<Integers> constant_integers(const Operation& op, std::size_t elements, std::size_t most) {
  const std::string_view value = dense(op);
  if (value.empty() || value.starts_with('"')) return std::nullopt;
  Integers values = listed(value, std::max(most, elements));
  if (values.size() == 1 && elements != 1) values.assign(elements, values[0]);
  return values.size() == elements ? std::optional(std::move(values)) : std::nullopt;
}

std::optional<double> constant_number(const Operation& op, DType dtype) {
  std::string_view value = dense(op);
  if (value.starts_with('"')) value.remove_prefix(1);
  if (value.starts_with("true")) return 1.0;
  if (value.starts_with("false")) return 0.0;
  if (value.starts_with("0x") || value.starts_with("0X")) {
    std::uint64_t bits = 0;
    const std::string_view digits = value.substr(2, 16);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
    if (error != std::errc{}) return std::nullopt;
    return from_bits(bits, dtype);
  }
  if (value.empty() || value.starts_with('[') || value.starts_with('(')) return std::nullopt;
  double number = 0.0;
  const auto [end, error] = read_decimal(value.data(), value.data() + value.size(), number);
  return error == std::errc{} ? std::optional(number) : std::nullopt;
}

DimensionNumbers dimension_numbers(const Operation& op) {
  std::string_view value = attribute(op, "dim_numbers");
  if (value.empty()) value = attribute(op, "dimension_numbers");
  std::string_view parts[3];
  for (std::string_view& part : parts) {
    const std::size_t open = value.find('['), close = value.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
      throw Error(ErrorCode::format, std::string(op.name) + " has no dimension numbers such as [b, 0, 1, f]");
    }
    part = value.substr(open + 1, close - open - 1);
    value.remove_prefix(close + 1);
  }
  return {parts[0], parts[1], parts[2]};
}

Code joins(const Module& module, const Operation& op) {
  if (op.region_count == 0) {
    const std::size_t found = op.attributes.find("applies ");
    if (found == std::string_view::npos) return Code::other;
    std::string_view name = op.attributes.substr(found + 8);
    name = name.substr(0, name.find(' '));
    return code_of(name.substr(name.find('.') + 1));
  }
  const Region& region = module.regions[op.region_begin];
  return region.operations.size() == 2 ? module.operations[region.operations[0]].code : Code::other;
}

std::vector<char> letters(std::string_view part) {
  std::vector<char> found;
  for (const char c : part) {
    if (is_word(c)) found.push_back(c);
  }
  return found;
}

}  // namespace perfpass::stablehlo
