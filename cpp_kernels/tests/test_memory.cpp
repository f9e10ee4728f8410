#include <numeric>

#include "check.hpp"
#include "graph_sketch.hpp"
#include "perfpass/memory.hpp"

namespace {

using namespace perfpass;
using perfpass::testing::Sketch;

TEST(views_share_the_buffer_of_their_source) {
  Sketch s;
  NodeAttributes view;
  view.view = 1;
  const TensorId x = s.tensor({10});
  const TensorId a = s.node(OpKind::relu, {x}, {10});
  const TensorId b = s.node(OpKind::reshape, {a}, {2, 5}, view);
  const TensorId c = s.node(OpKind::relu, {b}, {2, 5});
  const MemoryPlan plan = plan_memory(s.finish({c}));
  CHECK_EQUAL(plan.live_bytes[1], 80);
  CHECK_EQUAL(plan.peak_activation_bytes, 120);
  CHECK_EQUAL(plan.peak_node, 2);
  CHECK_EQUAL(plan.peak_tensors.size(), std::size_t{3});
}

TEST(buffers_are_rounded_up_to_the_alignment) {
  Sketch s;
  s.node(OpKind::relu, {s.tensor({1})}, {1});
  const OpGraph graph = s.finish();
  CHECK_EQUAL(plan_memory(graph, {DType::undefined, 512}).peak_activation_bytes, 1024);
  CHECK_ERROR(plan_memory(graph, {DType::undefined, 0}), ErrorCode::argument, "alignment_bytes is 0");
}

TEST(plans_of_hostile_graphs_are_sums_or_errors) {
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    const OpGraph graph = perfpass::testing::hostile_graph(seed);
    try {
      const MemoryPlan plan = plan_memory(graph, {DType::undefined, 1 + seed % 600});
      const auto sum = std::accumulate(plan.peak_bytes.begin(), plan.peak_bytes.end(), std::int64_t{0});
      CHECK_EQUAL(sum, plan.peak_activation_bytes);
      for (const std::int64_t live : plan.live_bytes) CHECK(live >= 0 && live <= plan.peak_activation_bytes);
    } catch (const Error& e) {
      CHECK_EQUAL(e.code(), ErrorCode::limit);
    }
  }
}

}  // namespace
