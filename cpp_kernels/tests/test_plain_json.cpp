#include <string>

#include "check.hpp"
#include "perfpass/plain_json.hpp"

namespace {

using perfpass::is_plain_json;

TEST(plain_json_is_told_from_what_a_parser_must_look_at) {
  CHECK(is_plain_json(R"({"a": [1, -2.5e3, "x\n\u00e9", true, null], "b": {"a": {}}})"));
  CHECK(is_plain_json(" 0 "));
  for (const char* text :
       {"", "{", "[1,]", "[1] 2", "{\"a\" 1}", "nul", "\"\n\"", "\"\\x\"", "\"\\u12\"", "01", "NaN"}) {
    CHECK(!is_plain_json(text));
  }
  for (const char* text :
       {R"({"a": 1, "a": 2})", R"({"\u0061": 1})", R"(["\ud83d\ude00"])", "1e999", "-1e-999", "1234567890123456789"}) {
    CHECK(!is_plain_json(text));
  }
}

TEST(plain_json_compares_all_keys_of_a_long_object_and_goes_no_deeper_than_32) {
  std::string keys = "{";
  for (int i = 0; i < 100; ++i) keys += "\"k" + std::to_string(i) + "\": 0, ";
  CHECK(is_plain_json(keys + "\"k100\": 0}"));
  CHECK(!is_plain_json(keys + "\"k57\": 0}"));
  CHECK(!is_plain_json("[" + keys + "\"k57\": 0}]"));
  CHECK(is_plain_json(std::string(32, '[') + std::string(32, ']')));
  CHECK(!is_plain_json(std::string(33, '[') + std::string(33, ']')));
  CHECK(!is_plain_json(std::string(1'000'000, '[')));
}

}  // namespace
