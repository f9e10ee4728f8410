// A walk through JSON that is read where it stands. Everything is checked that a parser checks; what is unusual (a
// number of a thousand digits, an escape for half a character, a key with escapes or one that occurs twice, depth) ends
// the walk, and a parser says what it is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace perfpass {

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  /// Whether nothing but space is left.
  bool at_end() {
    space();
    return at_ == text_.size();
  }

  /// A text without escapes.
  bool plain(std::string_view& found) {
    space();
    bool is_plain = true;
    return string(found, is_plain) && is_plain;
  }

  /// A whole number of at most 18 digits.
  bool integer(std::int64_t& found) {
    space();
    const std::size_t begin = at_;
    if (!number()) return false;
    const std::string_view digits = text_.substr(begin, at_ - begin);
    const bool negative = digits.front() == '-';
    if (digits.size() > 18 + (negative ? 1 : 0)) return false;
    found = 0;
    for (const char c : digits.substr(negative ? 1 : 0)) {
      if (!is_digit(c)) return false;
      found = 10 * found + (c - '0');
    }
    found = negative ? -found : found;
    return true;
  }

  /// The text of any value, which is checked.
  bool value(std::string_view& found) {
    space();
    const std::size_t begin = at_;
    if (!any()) return false;
    found = text_.substr(begin, at_ - begin);
    return true;
  }

  /// Calls `see` with every key, which must read its value; whether all was well.
  template <typename See>
  bool object(See see) {
    if (!open('{')) return false;
    const std::size_t first = keys_.size();
    bool well = true;
    if (!closes('}')) {
      do {
        std::string_view key;
        well = plain(key) && is_new(key, first) && skip(':') && see(key);
      } while (well && skip(','));
      well = well && closes('}') && all_differ(first);
    }
    keys_.resize(first);
    --depth_;
    return well;
  }

  /// Calls `see` for every entry, which it must read.
  template <typename See>
  bool array(See see) {
    if (!open('[')) return false;
    bool well = true;
    if (!closes(']')) {
      do {
        well = see();
      } while (well && skip(','));
      well = well && closes(']');
    }
    --depth_;
    return well;
  }

 private:
  static constexpr int kDeepest = 32;
  static constexpr std::size_t kKeysOneByOne = 16;
  static constexpr std::size_t kLongestWhole = 18;  // in 64 bits, with its sign
  static constexpr std::size_t kLongestReal = 64;   // with a power of ten of two digits, far from infinity
  static constexpr std::size_t kLongestPower = 2;

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (next() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  bool skip(char c) {
    space();
    return take(c);
  }
  bool open(char c) { return ++depth_ <= kDeepest && skip(c); }
  bool closes(char c) { return skip(c); }

  bool is_new(std::string_view key, std::size_t first) {
    for (std::size_t i = first; i < std::min(keys_.size(), first + kKeysOneByOne); ++i) {
      if (keys_[i] == key) return false;
    }
    keys_.push_back(key);
    return true;
  }

  /// Of an object with many keys, which were not compared one by one.
  bool all_differ(std::size_t first) {
    const auto begin = keys_.begin() + static_cast<std::ptrdiff_t>(first);
    if (keys_.size() - first <= kKeysOneByOne) return true;
    std::sort(begin, keys_.end());
    return std::adjacent_find(begin, keys_.end()) == keys_.end();
  }

  bool any() {
    switch (next()) {
      case '{':
        return object([&](std::string_view) { return space(), any(); });
      case '[':
        return array([&] { return space(), any(); });
      case '"': {
        std::string_view found;
        bool is_plain = true;
        return string(found, is_plain);
      }
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  bool word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  bool digits() {
    const std::size_t begin = at_;
    while (is_digit(next())) ++at_;
    return at_ > begin;
  }

  bool number() {
    const std::size_t begin = at_;
    take('-');
    if (!take('0') && !digits()) return false;
    const bool is_real = take('.');
    if (is_real && !digits()) return false;
    if (next() == 'e' || next() == 'E') {
      ++at_;
      if (!take('+')) take('-');
      const std::size_t power = at_;
      if (!digits() || at_ - power > kLongestPower) return false;
    }
    return at_ - begin <= (is_real ? kLongestReal : kLongestWhole);
  }

  bool string(std::string_view& found, bool& is_plain) {
    if (!take('"')) return false;
    const std::size_t begin = at_;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        found = text_.substr(begin, at_++ - begin);
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') continue;
      is_plain = false;
      ++at_;
      if (next() == 'u' ? !code_point() : std::string_view("\"\\/bfnrt").find(next()) == std::string_view::npos) {
        return false;
      }
    }
    return false;
  }

  /// The four digits behind \u, of no half of a character.
  bool code_point() {
    const std::string_view code = text_.substr(at_ + 1, 4);
    if (code.size() != 4 || code.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) return false;
    at_ += 4;
    return (code[0] != 'd' && code[0] != 'D') || code[1] < '8';
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::string_view> keys_;  // of all objects that are open
};

}  // namespace perfpass
