#include "check.hpp"
#include "perfpass/stablehlo_reader.hpp"

namespace {

using namespace perfpass;

std::string function(const std::string& name, const std::string& body) {
  return "func.func private @" + name + "(%a: tensor<f32>) -> tensor<f32> {\n" + body + "return %a : tensor<f32>\n}\n";
}

/// A main of one operator that calls a function whose results nobody reads.
std::string main_that_calls(const std::string& name, int times) {
  std::string lines;
  for (int i = 0; i < times; ++i) {
    lines += "%" + std::to_string(i) + " = call @" + name + "(%a) : (tensor<f32>) -> tensor<f32>\n";
  }
  return "func.func public @main(%a: tensor<f32>) -> tensor<f32> {\n" + lines +
         "%r = stablehlo.negate %a : tensor<f32>\nreturn %r : tensor<f32>\n}\n";
}

TEST(stablehlo_text_that_calls_repeat_is_bounded) {
  StablehloLimits limits;
  limits.text_bytes = 20'000;
  const std::string note = "%0 = stablehlo.abs %a {note = \"" + std::string(1000, 'x') + "\"} : tensor<f32>\n";
  const auto module = [&](int times) { return main_that_calls("f", times) + function("f", note); };
  CHECK(read_stablehlo(module(60), {}, limits).node_count() == 1);
  CHECK_ERROR(read_stablehlo(module(90), {}, limits), ErrorCode::limit, "repeat");
}

TEST(stablehlo_regions_of_loops_count_as_often_as_they_are_searched) {
  StablehloLimits limits;
  limits.nodes = 200;
  std::string tests;
  for (int i = 0; i < 100; ++i) tests += "%t" + std::to_string(i) + " = stablehlo.abs %k : tensor<f32>\n";
  const std::string loop = "%w = stablehlo.while(%k = %a) : tensor<f32> cond {\n" + tests +
                           "%c = stablehlo.compare LT, %k, %k, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
                           "stablehlo.return %c : tensor<i1>\n} do {\nstablehlo.return %k : tensor<f32>\n}\n";
  const auto module = [&](int times) { return main_that_calls("f", times) + function("f", loop); };
  CHECK(read_stablehlo(module(6), {}, limits).node_count() == 1);
  CHECK_ERROR(read_stablehlo(module(9), {}, limits), ErrorCode::limit, "inlined");
}

TEST(stablehlo_long_names_and_attributes_are_refused) {
  const std::string type = "tensor<4x8xf32>";
  const auto module = [&](const std::string& value, const std::string& attributes) {
    return "func.func public @main(%a: " + type + ") -> tensor<8x4xf32> {\n%" + value +
           " = \"stablehlo.transpose\"(%a) <{permutation = array<i64: 1, 0>" + attributes + "}> : (" + type +
           ") -> tensor<8x4xf32>\nreturn %" + value + " : tensor<8x4xf32>\n}\n";
  };
  CHECK(read_stablehlo(module(std::string(4096, 'v'), "")).node_count() == 1);
  CHECK_ERROR(read_stablehlo(module(std::string(4097, 'v'), "")), ErrorCode::format, "the name of a value");
  CHECK_ERROR(read_stablehlo(module("v", ", note = \"" + std::string(16'384, 'x') + "\"")), ErrorCode::limit,
              "attributes");
}

}  // namespace
