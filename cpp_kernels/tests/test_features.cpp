#include <cmath>

#include "check.hpp"
#include "graph_sketch.hpp"
#include "perfpass/features.hpp"

namespace {

using namespace perfpass;
using perfpass::testing::Sketch;

TEST(schemas_have_their_published_widths) {
  CHECK_EQUAL(node_feature_names(Schema::dippm).size(), std::size_t{32});
  CHECK_EQUAL(static_feature_names(Schema::dippm).size(), std::size_t{5});
  CHECK_EQUAL(node_feature_names(Schema::trappm).size(), std::size_t{113});
  CHECK_EQUAL(static_feature_names(Schema::trappm).size(), std::size_t{6});
  CHECK_EQUAL(node_feature_names(Schema::nnlqp).size(), std::size_t{44});
  CHECK_ERROR(schema_from_name("dipm"), ErrorCode::argument, "'dipm'");
}

TEST(equal_nodes_share_a_row_of_the_operator_table) {
  Sketch s;
  TensorId t = s.tensor({2, 8});
  for (int i = 0; i < 3; ++i) t = s.node(OpKind::relu, {t}, {2, 8}, {}, i == 2 ? 5.0 : 1.0);
  s.node(OpKind::dense, {t, s.weight({8, 4})}, {2, 4});
  s.node(OpKind::relu, {t}, {2, 8}, {}, 0.0);  // never runs
  const OpGraph graph = s.finish();
  const OperatorTable table = operator_table(graph, count_costs(graph));
  CHECK_EQUAL(table.op.size(), std::size_t{2});
  CHECK_EQUAL(table.count[0], 7.0);
  CHECK_EQUAL(table.flops[0], 16);
  CHECK_EQUAL(table.m[1], 2);
  CHECK_EQUAL(table.n[1], 4);
  CHECK_EQUAL(table.k[1], 8);
  CHECK_EQUAL(table.first_node[1], 3);
  CHECK_EQUAL(table.constant[1], 0);
}

TEST(rows_that_read_no_input_are_constant) {
  Sketch s;
  const TensorId input = s.tensor({2, 8});
  const TensorId scaled = s.node(OpKind::relu, {s.weight({2, 8})}, {2, 8});
  s.node(OpKind::add, {s.node(OpKind::relu, {input}, {2, 8}), scaled}, {2, 8});
  const OpGraph graph = s.finish();
  const OperatorTable table = operator_table(graph, count_costs(graph));
  int constant = 0;
  for (std::size_t row = 0; row < table.op.size(); ++row) constant += table.constant[row];
  CHECK_EQUAL(table.op.size(), std::size_t{3});
  CHECK_EQUAL(constant, 1);
}

TEST(features_of_hostile_graphs_are_finite_or_errors) {
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    const OpGraph graph = perfpass::testing::hostile_graph(seed);
    try {
      const Costs costs = count_costs(graph);
      const OperatorTable table = operator_table(graph, costs);
      CHECK(table.op.size() <= graph.node_count());
      for (const Schema schema : {Schema::operator_, Schema::dippm, Schema::trappm, Schema::nnlqp}) {
        const FeatureMatrix x = node_features(graph, costs, schema);
        CHECK_EQUAL(x.values.size(), graph.node_count() * node_feature_names(schema).size());
        CHECK_EQUAL(x.statics.size(), static_feature_names(schema).size());
        for (const float value : x.values) CHECK(std::isfinite(value));
        for (const float value : x.statics) CHECK(std::isfinite(value));
      }
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::limit || e.code() == ErrorCode::graph);
    }
  }
}

}  // namespace
