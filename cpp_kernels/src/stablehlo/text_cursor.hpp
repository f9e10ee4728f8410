// A place in MLIR text: blanks and comments skipped, brackets matched, every failure with its line.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::stablehlo {

inline bool is_word(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '.';
}

class TextCursor {
 public:
  explicit TextCursor(std::string_view text, std::size_t at = 0) : s_(text), p_(at) {}

  [[noreturn]] void fail(const std::string& expected) const {
    const auto line =
        1 + std::count(s_.begin(), s_.begin() + static_cast<std::ptrdiff_t>(std::min(p_, s_.size())), '\n');
    throw Error(ErrorCode::format, "line " + std::to_string(line) + " of the MLIR text: expected " + expected +
                                       ", found " + (p_ < s_.size() ? quoted(s_.substr(p_, 40)) : "the end") +
                                       "; the file is damaged or no MLIR text");
  }

  bool at_end() const noexcept { return p_ >= s_.size(); }
  char peek(std::size_t ahead = 0) const noexcept { return p_ + ahead < s_.size() ? s_[p_ + ahead] : '\0'; }
  std::size_t place() const noexcept { return p_; }
  void go(std::size_t to) noexcept { p_ = to; }
  void step(std::size_t by = 1) noexcept { p_ += by; }
  std::string_view from(std::size_t begin) const noexcept { return s_.substr(begin, p_ - begin); }

  void space() noexcept {
    for (; p_ < s_.size(); ++p_) {
      const char c = s_[p_];
      if (c == '/' && peek(1) == '/') {
        p_ = std::min(s_.find('\n', p_), s_.size());
        if (p_ >= s_.size()) return;
      } else if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
        return;
      }
    }
  }
  bool eat(std::string_view token) noexcept {
    space();
    if (s_.compare(p_, token.size(), token) != 0) return false;
    p_ += token.size();
    return true;
  }
  void need(std::string_view token) {
    if (!eat(token)) fail("'" + std::string(token) + "'");
  }
  /// A word that ends where no further letter follows.
  bool eat_word(std::string_view text) noexcept {
    space();
    if (s_.compare(p_, text.size(), text) != 0 || is_word(peek(text.size()))) return false;
    p_ += text.size();
    return true;
  }
  std::string_view word() noexcept {
    const std::size_t begin = p_;
    while (p_ < s_.size() && is_word(s_[p_])) ++p_;
    return from(begin);
  }
  /// What stands between quotes; the cursor is at the first of them.
  std::string_view string() {
    const std::size_t begin = ++p_;
    for (;;) {
      const std::size_t quote = s_.find('"', p_);
      if (quote == std::string_view::npos) fail("the end of a string");
      std::size_t slashes = 0;
      while (quote > begin + slashes && s_[quote - 1 - slashes] == '\\') ++slashes;
      p_ = quote + 1;
      if (slashes % 2 == 0) return s_.substr(begin, quote - begin);
    }
  }
  /// From an opening bracket to the one that closes it, both included.
  std::string_view balanced() {
    const std::size_t begin = p_;
    std::size_t depth = 0;
    while (p_ < s_.size()) {
      switch (s_[p_]) {
        case '"':
          string();
          continue;
        case '(':
        case '[':
        case '{':
        case '<':
          ++depth;
          break;
        case '-':
          if (peek(1) == '>') ++p_;
          break;
        case ')':
        case ']':
        case '}':
        case '>':
          if (--depth == 0) {
            ++p_;
            return from(begin);
          }
          break;
        default:
          break;
      }
      ++p_;
    }
    p_ = begin;
    fail("a closing bracket");
  }
  /// The name behind @, quoted or not; the cursor is behind the sign.
  std::string_view symbol() {
    if (peek() == '"') return string();
    const std::size_t begin = p_;
    while (is_word(peek()) || peek() == '-') ++p_;
    return from(begin);
  }

 private:
  std::string_view s_;
  std::size_t p_;
};

}  // namespace perfpass::stablehlo
