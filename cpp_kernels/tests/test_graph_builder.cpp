#include <array>

#include "check.hpp"
#include "perfpass/graph.hpp"

namespace {

using namespace perfpass;

TEST(builder_sorts_nodes_that_come_in_the_wrong_order) {
  GraphBuilder builder;
  const std::array<std::int64_t, 2> shape{2, 3};
  const TensorId x = builder.add_tensor("x", DType::float32, shape, TensorRole::input);
  const TensorId y = builder.add_tensor("y", DType::float32, shape, TensorRole::activation);
  const TensorId z = builder.add_tensor("z", DType::float32, shape, TensorRole::activation);
  builder.add_node(OpKind::exp, "Exp", "second", {}, std::array{y}, std::array{z});
  builder.add_node(OpKind::relu, "Relu", "first", {}, std::array{x}, std::array{y});
  const OpGraph graph = std::move(builder).finish(std::array{x}, std::array{z});
  CHECK_EQUAL(graph.strings.at(graph.node_name[0]), "first");
  CHECK_EQUAL(graph.edge_count(), std::size_t{1});
  CHECK_EQUAL(graph.producer[z], 1);
}

TEST(builder_refuses_a_cycle) {
  GraphBuilder builder;
  const std::array<std::int64_t, 1> shape{4};
  const TensorId a = builder.add_tensor("a", DType::float32, shape, TensorRole::activation);
  const TensorId b = builder.add_tensor("b", DType::float32, shape, TensorRole::activation);
  builder.add_node(OpKind::relu, "Relu", "r", {}, std::array{a}, std::array{b});
  builder.add_node(OpKind::exp, "Exp", "e", {}, std::array{b}, std::array{a});
  CHECK_ERROR(std::move(builder).finish({}, std::array{a}), ErrorCode::graph, "cycle");
}

TEST(sizes_past_the_bound_are_refused_before_they_overflow) {
  const std::array<std::int64_t, 3> giant{1 << 30, 1 << 30, 1 << 30};
  CHECK_ERROR(checked_elements(giant), ErrorCode::limit, "2^48");
  const std::array<std::int64_t, 2> negative{4, -2};
  CHECK_ERROR(checked_elements(negative), ErrorCode::limit, "-2");
}

}  // namespace
