// Decimal numbers of a text, whatever the locale.
#pragma once

#include <charconv>
#include <version>

#if !defined(__cpp_lib_to_chars)
#include <cerrno>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#if defined(__APPLE__)
#include <xlocale.h>
#endif
#endif

namespace perfpass {

#if defined(__cpp_lib_to_chars)

inline std::from_chars_result read_decimal(const char* begin, const char* end, double& value) {
  return std::from_chars(begin, end, value);
}

#else

/// As std::from_chars, which libc++ has for floating types since version 20 only; without its "inf" and "nan".
inline std::from_chars_result read_decimal(const char* begin, const char* end, double& value) {
  const std::string_view text(begin, static_cast<std::size_t>(end - begin));
  const std::string number(text.substr(0, text.find_first_not_of("0123456789+-.eE")));
  if (number.empty() || number.front() == '+') return {begin, std::errc::invalid_argument};
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  char* stop = nullptr;
  errno = 0;
  const double read = ::strtod_l(number.c_str(), &stop, plain);
  if (stop == number.c_str()) return {begin, std::errc::invalid_argument};
  const char* reached = begin + (stop - number.c_str());
  // strtod also says ERANGE of numbers that are merely subnormal.
  if (errno == ERANGE && (read == 0.0 || std::isinf(read))) return {reached, std::errc::result_out_of_range};
  value = read;
  return {reached, std::errc{}};
}

#endif

}  // namespace perfpass
