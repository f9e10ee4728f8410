#include "trees/document.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "perfpass/error.hpp"
#include "support/decimal.hpp"

namespace perfpass::document {
namespace {

[[noreturn]] void malformed(std::size_t position, const std::string& found) {
  throw Error(ErrorCode::format, "at byte " + std::to_string(position) + ": " + found);
}

void check_depth(int depth) {
  if (depth > kMaxDepth) {
    throw Error(ErrorCode::limit, "nested deeper than " + std::to_string(kMaxDepth) + " levels");
  }
}

/// Turns an array of values into an array of numbers where every value is one.
Value array_of(std::vector<Value>&& items, std::vector<double>&& numbers) {
  Value value;
  if (items.empty()) {
    value.kind = Value::Kind::numbers;
    value.numbers = std::move(numbers);
  } else {
    value.kind = Value::Kind::items;
    value.items = std::move(items);
  }
  return value;
}

/// Collects array elements: plain numbers until something else appears.
class ArrayCollector {
 public:
  void add(Value&& value) {
    if (value.kind == Value::Kind::number && items_.empty()) {
      numbers_.push_back(value.number);
      return;
    }
    for (const double number : numbers_) {
      Value boxed;
      boxed.kind = Value::Kind::number;
      boxed.number = number;
      items_.push_back(std::move(boxed));
    }
    numbers_.clear();
    items_.push_back(std::move(value));
  }
  Value finish() { return array_of(std::move(items_), std::move(numbers_)); }

 private:
  std::vector<Value> items_;
  std::vector<double> numbers_;
};

class JsonParser {
 public:
  explicit JsonParser(std::span<const std::uint8_t> bytes)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  Value document() {
    Value value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) malformed(at_, "more text after the value");
    return value;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  char peek() {
    skip_space();
    if (at_ >= text_.size()) malformed(at_, "the text ends inside a value");
    return text_[at_];
  }
  void expect(char c) {
    if (peek() != c) malformed(at_, std::string("expected '") + c + "'");
    ++at_;
  }
  bool literal(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Value parse_value(int depth) {
    check_depth(depth);
    Value value;
    switch (peek()) {
      case '{':
        return parse_object(depth);
      case '[':
        return parse_array(depth);
      case '"':
        value.kind = Value::Kind::string;
        value.string = parse_string();
        return value;
      case 't':
      case 'f':
        value.kind = Value::Kind::boolean;
        if (literal("true")) {
          value.number = 1.0;
        } else if (!literal("false")) {
          malformed(at_, "not a JSON value");
        }
        return value;
      case 'n':
        if (!literal("null")) malformed(at_, "not a JSON value");
        return value;
      default:
        return parse_number();
    }
  }

  Value parse_number() {
    Value value;
    value.kind = Value::Kind::number;
    // XGBoost writes these three words, which JSON proper does not know.
    if (literal("NaN")) {
      value.number = std::numeric_limits<double>::quiet_NaN();
    } else if (literal("Infinity")) {
      value.number = std::numeric_limits<double>::infinity();
    } else if (literal("-Infinity")) {
      value.number = -std::numeric_limits<double>::infinity();
    } else {
      const char* begin = text_.data() + at_;
      const auto [end, error] = read_decimal(begin, text_.data() + text_.size(), value.number);
      if (error != std::errc{} || end == begin) malformed(at_, "not a JSON value");
      at_ += static_cast<std::size_t>(end - begin);
    }
    return value;
  }

  Value parse_array(int depth) {
    expect('[');
    ArrayCollector array;
    if (peek() != ']') {
      for (;;) {
        array.add(parse_value(depth + 1));
        if (peek() != ',') break;
        ++at_;
      }
    }
    expect(']');
    return array.finish();
  }

  Value parse_object(int depth) {
    expect('{');
    Value value;
    value.kind = Value::Kind::object;
    if (peek() != '}') {
      for (;;) {
        if (peek() != '"') malformed(at_, "expected the name of a member");
        std::string name = parse_string();
        expect(':');
        value.members.push_back({std::move(name), parse_value(depth + 1)});
        if (peek() != ',') break;
        ++at_;
      }
    }
    expect('}');
    return value;
  }

  std::string parse_string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c == '\\') {
        if (at_ >= text_.size()) break;
        c = text_[at_++];
        switch (c) {
          case '"':
          case '\\':
          case '/':
            break;
          case 'n':
            c = '\n';
            break;
          case 't':
            c = '\t';
            break;
          case 'r':
            c = '\r';
            break;
          case 'b':
            c = '\b';
            break;
          case 'f':
            c = '\f';
            break;
          // Names that matter here are ASCII; other code points only need to be passed over.
          case 'u':
            if (text_.size() - at_ < 4) malformed(at_, "the text ends inside an escape");
            at_ += 4;
            c = '?';
            break;
          default:
            malformed(at_, "an unknown escape in a string");
        }
      }
      out.push_back(c);
    }
    if (at_ >= text_.size()) malformed(at_, "the text ends inside a string");
    ++at_;
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Bytes of a numeric UBJSON marker, 0 for any other marker.
std::size_t number_size(std::uint8_t marker) {
  switch (marker) {
    case 'i':
    case 'U':
      return 1;
    case 'I':
      return 2;
    case 'l':
    case 'd':
      return 4;
    case 'L':
    case 'D':
      return 8;
    default:
      return 0;
  }
}

class UbjsonParser {
 public:
  explicit UbjsonParser(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  Value document() {
    Value value = parse_value(next(), 0);
    if (at_ != bytes_.size()) malformed(at_, "more bytes after the value");
    return value;
  }

 private:
  std::size_t remaining() const { return bytes_.size() - at_; }
  void need(std::size_t count) const {
    if (remaining() < count) malformed(at_, "the bytes end inside a value");
  }
  std::uint8_t next() {
    need(1);
    return bytes_[at_++];
  }
  std::uint8_t peek() const {
    need(1);
    return bytes_[at_];
  }

  template <typename T>
  T big_endian() {
    T out = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) out = static_cast<T>((out << 8) | bytes_[at_ + i]);
    at_ += sizeof(T);
    return out;
  }

  double number(std::uint8_t marker) {
    need(number_size(marker));
    switch (marker) {
      case 'i':
        return static_cast<std::int8_t>(bytes_[at_++]);
      case 'U':
        return bytes_[at_++];
      case 'I':
        return static_cast<std::int16_t>(big_endian<std::uint16_t>());
      case 'l':
        return static_cast<std::int32_t>(big_endian<std::uint32_t>());
      case 'L':
        return static_cast<double>(static_cast<std::int64_t>(big_endian<std::uint64_t>()));
      case 'd':
        return std::bit_cast<float>(big_endian<std::uint32_t>());
      case 'D':
        return std::bit_cast<double>(big_endian<std::uint64_t>());
      default:
        malformed(at_ - 1, "marker " + std::to_string(marker) + " is not a number");
    }
  }

  /// A length that fits in what is left, so that no allocation exceeds the file.
  std::size_t length() {
    const std::uint8_t marker = next();
    if (number_size(marker) == 0 || marker == 'd' || marker == 'D') malformed(at_ - 1, "a length is not an integer");
    const double value = number(marker);
    if (value < 0 || value > static_cast<double>(remaining())) {
      malformed(at_,
                "a length of " + std::to_string(value) + " where " + std::to_string(remaining()) + " bytes are left");
    }
    return static_cast<std::size_t>(value);
  }

  std::string text() {
    const std::size_t size = length();
    std::string out(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return out;
  }

  Value parse_value(std::uint8_t marker, int depth) {
    check_depth(depth);
    while (marker == 'N') marker = next();  // no-op
    Value value;
    switch (marker) {
      case 'Z':
        return value;
      case 'T':
      case 'F':
        value.kind = Value::Kind::boolean;
        value.number = marker == 'T' ? 1.0 : 0.0;
        return value;
      case 'S':
        value.kind = Value::Kind::string;
        value.string = text();
        return value;
      case 'C':
        value.kind = Value::Kind::string;
        value.string.push_back(static_cast<char>(next()));
        return value;
      case '[':
        return parse_array(depth);
      case '{':
        return parse_object(depth);
      default:
        value.kind = Value::Kind::number;
        value.number = number(marker);
        return value;
    }
  }

  struct Container {
    std::uint8_t type = 0;
    bool counted = false;
    std::size_t count = 0;
  };

  Container container() {
    Container c;
    if (peek() == '$') {
      ++at_;
      c.type = next();
      if (peek() != '#') malformed(at_, "a typed container has no count");
    }
    if (peek() == '#') {
      ++at_;
      c.counted = true;
      c.count = length();
    }
    return c;
  }

  Value parse_array(int depth) {
    const Container c = container();
    if (const std::size_t size = number_size(c.type); size != 0) {
      if (c.count > remaining() / size) {
        malformed(at_, "an array of " + std::to_string(c.count) + " numbers does not fit in the bytes that are left");
      }
      Value value;
      value.kind = Value::Kind::numbers;
      value.numbers.reserve(c.count);
      for (std::size_t i = 0; i < c.count; ++i) value.numbers.push_back(number(c.type));
      return value;
    }
    // Elements without a payload would let a short file ask for a long array.
    if (c.type == 'Z' || c.type == 'N' || c.type == 'T' || c.type == 'F') {
      malformed(at_, "an array of elements without bytes");
    }
    ArrayCollector array;
    if (c.counted) {
      for (std::size_t i = 0; i < c.count; ++i) array.add(parse_value(c.type != 0 ? c.type : next(), depth + 1));
    } else {
      while (peek() != ']') array.add(parse_value(next(), depth + 1));
      ++at_;
    }
    return array.finish();
  }

  Value parse_object(int depth) {
    const Container c = container();
    if (c.type == 'Z' || c.type == 'N' || c.type == 'T' || c.type == 'F') {
      malformed(at_, "an object of members without bytes");
    }
    Value value;
    value.kind = Value::Kind::object;
    std::size_t left = c.count;
    while (c.counted ? left != 0 : peek() != '}') {
      std::string name = text();
      value.members.push_back({std::move(name), parse_value(c.type != 0 ? c.type : next(), depth + 1)});
      --left;
    }
    if (!c.counted) ++at_;
    return value;
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

}  // namespace

const Value* Value::find(std::string_view name) const noexcept {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

Value parse_json(std::span<const std::uint8_t> bytes) { return JsonParser(bytes).document(); }

Value parse_ubjson(std::span<const std::uint8_t> bytes) { return UbjsonParser(bytes).document(); }

Value parse(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < 2 || bytes[0] != '{') {
    throw Error(ErrorCode::format, "neither a JSON nor a UBJSON object (" + std::to_string(bytes.size()) +
                                       " bytes); expected a model saved by XGBoost as .json or .ubj");
  }
  const std::uint8_t second = bytes[1];
  const bool json =
      second == '"' || second == '}' || second == ' ' || second == '\n' || second == '\r' || second == '\t';
  return json ? parse_json(bytes) : parse_ubjson(bytes);
}

}  // namespace perfpass::document
