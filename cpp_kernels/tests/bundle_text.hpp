// Predictor bundles of round numbers, for the tests of what is predicted from them.
#pragma once

#include <string>

#include "perfpass/operators.hpp"

namespace perfpass::testing {

inline std::string list(std::size_t size, const std::string& value) {
  std::string out;
  for (std::size_t i = 0; i < size; ++i) out += (i == 0 ? "" : ",") + value;
  return "[" + out + "]";
}

/// An engine of 10 TFLOP/s and 1 TB/s whose bounds lie 10 % below and 20 % above. Products are of family 5 ("dense"),
/// all else of family 9.
inline std::string engine_bundle() {
  constexpr auto kOperators = static_cast<std::size_t>(OpKind::count_);
  std::string operators, family;
  for (std::size_t i = 0; i < kOperators; ++i) {
    const auto kind = static_cast<OpKind>(i);
    operators += (i == 0 ? "\"" : ",\"") + std::string(op_name(kind)) + "\"";
    family += (i == 0 ? "" : ",") + std::string(op_class(kind) == OpClass::matmul ? "5" : "9");
  }
  const std::string families =
      R"(["conv","conv1d","conv3x3","conv_grouped","conv_depthwise","dense","matmul","attention","attention_vector","other","softmax"])";
  const auto each = [](const char* name, const char* value) {
    return "\"" + std::string(name) + "\":" + list(11, value) + ",";
  };
  return R"({"format":"perfpass predictor bundle","version":1,"perfpass":"0.0.0",)"
         R"("device":{"id":"board","name":"Board","memory_bytes":1e9},"runtime":"tensorrt","precision":"fp32",)"
         R"("coverage":0.9,"counting":{"float_as":"float32","strided":false,"folds":false,"fuses":true,"alignment_bytes":64,"allocator":"none",)"
         R"("weight_copies":1},"operators":[)" +
         operators + R"(],"families":)" + families + R"(,"family_of_operator":[)" + family +
         R"(],"vector_attention":true,"time":{"kind":"engine",)" + each("speed", "1e13") + each("fed", "1e13") +
         each("bandwidth", "1e12") + each("kept", "1") + each("factor", "1") + each("launched", "1") +
         each("on_matrix", "0") + each("product", "0") + each("usual", "1") + "\"folded\":" + list(kOperators, "0") +
         ",\"joined\":" + list(kOperators, "0") +
         R"(,"tile_rows":[64],"tile_columns":[64],"splits":[1],"convolution_splits":1,"full_tile":4096,)"
         R"("joined_launches":1,"vector_exponent":0.2,"matrix_exponent":0.3,"prologue":32,"attention_keys":350,"generic_depthwise":1,)"
         R"("generic_area":25,"cache_bytes":0,"cache_speed":1,"least_s":1e-12,"step_s":1e-5,"step_bandwidth":1e12,"sms":1,"smoothness":4,)"
         R"("launch_s":0,"issue_s":0,"call_s":1e-9},"spread":{"causes":["measurement"],)"
         R"("low":[0.10536051565782628],"high":[0.1823215567939546],"lack":[1]},)"
         R"("power":{"peak_flops":1e13,"bandwidth":1e12,"compute_share":1,"memory_share":1,"idle_w":100,"limit_w":300},)"
         R"("memory":{"kind":"device","share":[1,1,1],"beside":[0,1e6,2e6],"least_alive":1,"searches":false},)"
         R"("support":{"level":0,"said":"round numbers","level_widths":[1.6,2.6]}})";
}

}  // namespace perfpass::testing
