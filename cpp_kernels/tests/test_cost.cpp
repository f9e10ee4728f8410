#include "check.hpp"
#include "graph_sketch.hpp"
#include "perfpass/cost.hpp"

namespace {

using namespace perfpass;
using perfpass::testing::Sketch;

CostTotals totals_of(Sketch& sketch) { return totals(count_costs(sketch.finish())); }

TEST(convolution_counts_macs_bias_and_bytes) {
  Sketch s;
  NodeAttributes a;
  a.spatial_rank = 2;
  a.groups = 1;
  s.node(OpKind::conv, {s.tensor({1, 3, 224, 224}), s.weight({64, 3, 7, 7}), s.weight({64})}, {1, 64, 112, 112}, a);
  const CostTotals sum = totals_of(s);
  CHECK_EQUAL(sum.macs, std::int64_t{112} * 112 * 64 * 7 * 7 * 3);
  CHECK_EQUAL(sum.flops, 2 * sum.macs + 112 * 112 * 64);
  CHECK_EQUAL(sum.parameters, std::int64_t{64 * 3 * 7 * 7 + 64});
  CHECK_EQUAL(sum.bytes_written, std::int64_t{4} * 64 * 112 * 112);
}

TEST(attention_counts_scores_and_values_of_every_head) {
  Sketch s;
  s.node(OpKind::attention, {s.tensor({2, 8, 10, 64}), s.tensor({2, 8, 20, 64}), s.tensor({2, 8, 20, 32})},
         {2, 8, 10, 32});
  CHECK_EQUAL(totals_of(s).macs, std::int64_t{2 * 8 * 10 * 20 * (64 + 32)});
}

TEST(lstm_counts_every_gate_of_every_step_and_direction) {
  Sketch s;
  NodeAttributes a;
  a.hidden_size = 16;
  a.directions = 2;
  s.node(OpKind::lstm, {s.tensor({5, 3, 8}), s.weight({2, 64, 8}), s.weight({2, 64, 16})}, {5, 2, 3, 16}, a);
  CHECK_EQUAL(totals_of(s).macs, std::int64_t{5 * 3 * 2 * 4 * 16 * (8 + 16)});
}

TEST(repeats_multiply_exactly) {
  Sketch s;
  s.node(OpKind::matmul, {s.tensor({1 << 20, 1 << 14}), s.tensor({1 << 14, 1 << 18})}, {1 << 20, 1 << 18}, {}, 3.0);
  CHECK_EQUAL(totals_of(s).macs, 3 * (std::int64_t{1} << 52));
}

TEST(counts_past_the_bound_are_errors_and_not_wraps) {
  Sketch s;
  s.node(OpKind::matmul, {s.tensor({1 << 24, 1 << 24}), s.tensor({1 << 24, 1 << 24})}, {1 << 24, 1 << 24});
  CHECK_ERROR(count_costs(s.finish()), ErrorCode::limit, "2^62 MACs");
  Sketch t;
  t.node(OpKind::relu, {t.tensor({4})}, {4}, {}, 1e30);
  CHECK_ERROR(count_costs(t.finish()), ErrorCode::limit, "2^62");
}

TEST(stated_costs_take_the_place_of_counted_ones) {
  Sketch s;
  s.node(OpKind::gelu, {s.tensor({4, 8})}, {4, 8}, {}, 2.0);
  s.builder().state(0, {.macs = kUnstated, .flops = 7, .bytes_read = 1000, .bytes_written = kUnstated});
  const OpGraph graph = s.finish();
  const Costs own = count_costs(graph), half = count_costs(graph, {DType::float16});
  CHECK_EQUAL(own.flops[0], std::int64_t{14});
  CHECK_EQUAL(own.bytes_read[0], std::int64_t{2000});
  CHECK_EQUAL(own.bytes_written[0], std::int64_t{2 * 4 * 4 * 8});
  CHECK_EQUAL(half.bytes_read[0], std::int64_t{1000});
}

TEST(precision_must_be_floating) {
  Sketch s;
  s.node(OpKind::relu, {s.tensor({4})}, {4});
  CHECK_ERROR(count_costs(s.finish(), {DType::int8}), ErrorCode::argument, "int8");
}

TEST(costs_of_hostile_graphs_are_counts_or_errors) {
  int counted = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    const OpGraph graph = perfpass::testing::hostile_graph(seed);
    try {
      const Costs costs = count_costs(graph);
      for (std::size_t n = 0; n < graph.node_count(); ++n) {
        CHECK(costs.macs[n] >= 0 && costs.flops[n] >= 0 && costs.bytes_read[n] >= 0 && costs.bytes_written[n] >= 0);
        CHECK(costs.parameters[n] >= 0 && costs.weight_bytes[n] >= 0);
      }
      ++counted;
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::limit || e.code() == ErrorCode::graph);
    }
  }
  CHECK(counted > 500);
}

}  // namespace
