// Predictions from a bundle: what a product takes, by hand, and damaged bundles under the sanitizers.
#include <cmath>
#include <string>

#include "bundle_text.hpp"
#include "check.hpp"
#include "graph_sketch.hpp"
#include "perfpass/predictor.hpp"

namespace {

using perfpass::Error;
using perfpass::ErrorCode;
using perfpass::OpGraph;
using perfpass::OpKind;
using perfpass::Predictor;
using perfpass::testing::engine_bundle;
using perfpass::testing::Sketch;

Predictor load(const std::string& text) {
  return Predictor::from_bytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

/// 1024 x 1024 by 1024 x 1024: 2^31 FLOPs, 214.7 us at 10 TFLOP/s; 12.6 us of bytes.
OpGraph product() {
  Sketch sketch;
  const auto x = sketch.tensor({1024, 1024});
  return sketch.finish({sketch.node(OpKind::matmul, {x, sketch.weight({1024, 1024})}, {1024, 1024})});
}

std::string without(std::string text, const std::string& part, const std::string& instead) {
  text.replace(text.find(part), part.size(), instead);
  return text;
}

}  // namespace

TEST(predictor_prices_a_product_by_its_flops) {
  const auto found = load(engine_bundle()).predict(product());
  const double ms = 1e3 * std::exp2(31) / 1e13;
  CHECK(std::abs(found.latency_ms.median / ms - 1.0) < 1e-4);
  CHECK(std::abs(found.latency_ms.low / found.latency_ms.median - 0.9) < 1e-12);
  CHECK(std::abs(found.latency_ms.high / found.latency_ms.median - 1.2) < 1e-12);
  CHECK_EQUAL(found.batch, 1);  // the sketch names no inputs
  CHECK(std::abs(found.throughput_per_s.median - 1e3 / found.latency_ms.median) < 1e-6);
  CHECK(found.support == perfpass::Support::in_range);
  CHECK_EQUAL(found.reasons.front(), std::string("round numbers"));
  // Three matrices of 4 MiB, and 1 MB beside them.
  CHECK_EQUAL(found.peak_memory_bytes.median, 3.0 * (4 << 20) + 1e6);
}

TEST(predictor_says_what_it_does_not_know) {
  Sketch sketch;
  const auto x = sketch.tensor({4, 4});
  const auto found = load(engine_bundle()).predict(sketch.finish({sketch.node(OpKind::unknown, {x}, {4, 4})}));
  CHECK(found.support == perfpass::Support::near);
  CHECK(found.reasons.size() == 2);
}

TEST(predictor_says_of_what_is_counted_once) {
  OpGraph graph = product();
  graph.notes.push_back({"a branch is taken"});
  CHECK(load(engine_bundle()).predict(graph).support == perfpass::Support::in_range);
  graph.notes.push_back({"a loop is counted once", true});
  const auto found = load(engine_bundle()).predict(graph);
  CHECK(found.support == perfpass::Support::outside);
  CHECK_EQUAL(found.reasons.back(), std::string("a loop is counted once"));
}

TEST(predictor_refuses_bundles_that_are_none) {
  const std::string whole = engine_bundle();
  CHECK_ERROR(load("{}"), ErrorCode::format, "not a predictor bundle");
  CHECK_ERROR(load(whole + "1"), ErrorCode::format, "more text");
  CHECK_ERROR(load(without(whole, "\"version\":1", "\"version\":2")), ErrorCode::unsupported, "version");
  CHECK_ERROR(load(without(whole, "\"conv_transpose\"", "\"conv_other\"")), ErrorCode::unsupported, "operators");
  CHECK_ERROR(load(without(whole, "\"call_s\":1e-9", "\"call_s\":0")), ErrorCode::format, "time.call_s");
  CHECK_ERROR(load(without(whole, "\"sms\":1,", "")), ErrorCode::format, "time.sms: missing");
  CHECK_ERROR(load(without(whole, "\"kind\":\"engine\"", "\"kind\":\"abacus\"")), ErrorCode::format, "abacus");
  CHECK_ERROR(load(without(whole, "\"none\"", "\"some\"")), ErrorCode::argument, "allocator");
  CHECK_ERROR(Predictor::from_file("/no/such/bundle"), ErrorCode::io, "/no/such/bundle");
  CHECK_ERROR(load(std::string(1 << 21, ' ')), ErrorCode::limit, "1048576");
}

TEST(predictor_refuses_a_batch_out_of_range) {
  const Predictor predictor = load(engine_bundle());
  CHECK_ERROR(predictor.predict(product(), -1), ErrorCode::argument, "batch -1");
}

TEST(predictor_survives_any_damaged_bundle) {
  const std::string whole = engine_bundle();
  const OpGraph graph = product();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\0', '9', '-', '[', '"'}) {
      std::string damaged = whole;
      damaged[at] = value;
      try {
        load(damaged).predict(graph);
      } catch (const Error&) {
      }
    }
  }
}

TEST(predictor_answers_for_any_graph) {
  const Predictor predictor = load(engine_bundle());
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    try {
      predictor.predict(perfpass::testing::hostile_graph(seed));
    } catch (const Error&) {
    }
  }
}
