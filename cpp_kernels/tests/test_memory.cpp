#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>

#include "check.hpp"
#include "graph_sketch.hpp"
#include "perfpass/allocators.hpp"
#include "perfpass/memory.hpp"

namespace {

std::atomic<std::size_t> allocations = 0;  // of the whole executable

}  // namespace

// Not inlined: the compiler would see memory of `new` freed by `free`.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* made = std::malloc(size)) return made;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

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

TEST(requests_of_memory_are_listed_without_an_allocation_for_every_node) {
  constexpr std::size_t kNodes = 2000;
  Sketch s;
  TensorId last = s.tensor({8});
  for (std::size_t n = 0; n < kNodes; ++n) last = s.node(OpKind::relu, {last}, {8});
  const OpGraph graph = s.finish({last});
  const std::size_t before = allocations;
  const MemoryEvents events = memory_events(graph, DType::undefined);
  CHECK(allocations - before < 32);
  CHECK_EQUAL(events.block.size(), 1 + 2 * kNodes);  // the input, and every node's output twice
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
