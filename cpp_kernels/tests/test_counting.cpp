// Many graphs counted on threads: a bad one has a problem, and the number of threads shows nowhere.
#include <cstdint>
#include <string>
#include <vector>

#include "check.hpp"
#include "graph_sketch.hpp"
#include "perfpass/counting.hpp"
#include "perfpass/neighbours.hpp"

namespace {

using perfpass::CountedGraphs;
using perfpass::CountingItem;

perfpass::OpGraph product(std::int64_t rows) {
  perfpass::GraphBuilder builder;
  const std::vector<std::int64_t> in = {rows, 8}, weight = {8, 4}, out = {rows, 4};
  const auto x = builder.add_tensor("x", perfpass::DType::float32, in, perfpass::TensorRole::input);
  const auto w = builder.add_tensor("w", perfpass::DType::float32, weight, perfpass::TensorRole::weight);
  const auto y = builder.add_tensor("y", perfpass::DType::float32, out, perfpass::TensorRole::activation);
  builder.add_node(perfpass::OpKind::matmul, "MatMul", "", {}, std::vector{x, w}, std::vector{y});
  return std::move(builder).finish(std::vector{x}, std::vector{y});
}

}  // namespace

TEST(counting_does_not_depend_on_threads_and_keeps_problems_apart) {
  std::vector<perfpass::OpGraph> graphs;
  for (std::int64_t rows = 1; rows <= 40; ++rows) graphs.push_back(product(rows));
  const std::string junk = "no model";
  std::vector<CountingItem> items;
  for (const auto& graph : graphs) {
    items.push_back({&graph, {}, 0});
    if (items.size() % 7 == 3) {
      items.push_back({std::span(reinterpret_cast<const std::uint8_t*>(junk.data()), junk.size()), {}, 0});
    }
  }
  perfpass::CountingOptions options;
  options.allocator = perfpass::Allocator::caching;
  const CountedGraphs alone = perfpass::count_graphs(items, options, 1);
  const CountedGraphs shared = perfpass::count_graphs(items, options, 5);
  CHECK(!alone.problems.empty());
  CHECK(alone.problems.size() == shared.problems.size());
  CHECK(alone.problems[0].item == 3 && alone.problems[0].code == perfpass::ErrorCode::format);
  CHECK(alone.offset == shared.offset && alone.table.macs == shared.table.macs);
  CHECK(alone.reserved_bytes == shared.reserved_bytes && alone.batch == shared.batch);
  CHECK(alone.table.macs[0] == 32 && alone.table.op[0] == static_cast<std::uint16_t>(perfpass::OpKind::dense));
  CHECK(alone.offset[4] == alone.offset[3]);  // the bad item has no rows
}

TEST(counting_survives_graphs_of_any_kind) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    perfpass::OpGraph graph;
    try {
      graph = perfpass::testing::hostile_graph(seed);
    } catch (const perfpass::Error&) {
      continue;
    }
    const std::vector<CountingItem> items{{&graph, {}, 0}};
    for (const bool training : {false, true}) {
      perfpass::CountingOptions options;
      options.training = training;
      options.narrows = seed % 3 == 0;
      options.allocator = seed % 2 == 0 ? perfpass::Allocator::caching : perfpass::Allocator::arena;
      const CountedGraphs found = perfpass::count_graphs(items, options, 1);
      CHECK(found.offset.size() == 2 && found.problems.size() <= 1);
    }
  }
}

TEST(counting_refuses_copies_of_weights_that_pass_the_bound) {
  const perfpass::OpGraph graph = product(1);
  const auto reserved = [&](int copies, std::int64_t bytes) {
    return perfpass::reserved_bytes(graph, perfpass::Allocator::arena, copies, perfpass::DType::undefined, bytes);
  };
  CHECK(reserved(3, 128) >= 3 * 128);
  CHECK_ERROR(reserved(3, std::int64_t{1} << 62), perfpass::ErrorCode::limit, "copies");
  CHECK_ERROR(perfpass::allocator_from_name("heap"), perfpass::ErrorCode::argument, "heap");
}

TEST(neighbours_are_found_by_any_number_of_threads) {
  const std::vector<float> points = {0, 0, 3, 4, 10, 0};
  const perfpass::Neighbours known(points, 3, 2);
  std::vector<float> queries;
  for (int i = 0; i < 200; ++i) queries.insert(queries.end(), {static_cast<float>(i), 0});
  const auto alone = known.distances(queries, 200, 2), shared = known.distances(queries, 200, 2, 4);
  CHECK(alone == shared);
  CHECK(alone[0] == 0.0 && alone[10] == 0.0 && alone[199] == 189.0);
  CHECK_ERROR(known.distances(queries, 100, 3), perfpass::ErrorCode::argument, "columns");
}
