// The test runner of the C++ core: TEST(name) { ... } registers itself, CHECK macros record failures and go on.
#pragma once

#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "perfpass/error.hpp"

namespace perfpass::testing {

struct Test {
  const char* name;
  void (*run)();
};

/// Every TEST of the executable, in no particular order.
inline std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

struct Registration {
  Registration(const char* name, void (*run)()) { registry().push_back({name, run}); }
};

inline int& failures() {
  static int count = 0;
  return count;
}

inline void fail(const char* file, int line, const std::string& message) {
  ++failures();
  std::cerr << file << ":" << line << ": " << message << "\n";
}

template <typename T>
std::string show(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    out << '"' << std::string_view(value) << '"';
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else {
    out << "(value)";
  }
  return out.str();
}

template <typename A, typename B>
void check_equal(const A& found, const B& expected, const char* text, const char* file, int line) {
  if (!(found == expected))
    fail(file, line, std::string(text) + ": found " + show(found) + ", expected " + show(expected));
}

}  // namespace perfpass::testing

#define TEST(name)                                                                       \
  static void test_##name();                                                             \
  static const perfpass::testing::Registration registration_##name(#name, &test_##name); \
  static void test_##name()

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) perfpass::testing::fail(__FILE__, __LINE__, "not true: " #condition); \
  } while (false)

#define CHECK_EQUAL(found, expected) perfpass::testing::check_equal((found), (expected), #found, __FILE__, __LINE__)

/// `expression` must throw perfpass::Error with this code and a message that contains `fragment`.
#define CHECK_ERROR(expression, expected_code, fragment)                                                   \
  do {                                                                                                     \
    try {                                                                                                  \
      (void)(expression);                                                                                  \
      perfpass::testing::fail(__FILE__, __LINE__, "no error from " #expression);                           \
    } catch (const perfpass::Error& error_) {                                                              \
      if (error_.code() != (expected_code)) {                                                              \
        perfpass::testing::fail(__FILE__, __LINE__, std::string("wrong kind of error: ") + error_.what()); \
      }                                                                                                    \
      if (std::string_view(error_.what()).find(fragment) == std::string_view::npos) {                      \
        perfpass::testing::fail(__FILE__, __LINE__,                                                        \
                                std::string("message lacks '") + (fragment) + "': " + error_.what());      \
      }                                                                                                    \
    }                                                                                                      \
  } while (false)
