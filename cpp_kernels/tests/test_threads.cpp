// Threads that read, count and predict at once, and share what is immutable: the answers are those of one thread.
// ThreadSanitizer finds races here (bash bootstrap.sh threads).
#include <string>
#include <thread>
#include <vector>

#include "bundle_text.hpp"
#include "check.hpp"
#include "onnx_message.hpp"
#include "perfpass/counting.hpp"
#include "perfpass/features.hpp"
#include "perfpass/fusion.hpp"
#include "perfpass/memory.hpp"
#include "perfpass/onnx_reader.hpp"
#include "perfpass/predictor.hpp"
#include "perfpass/stablehlo_reader.hpp"
#include "perfpass/trees.hpp"

namespace {

namespace onnx = perfpass::testing;

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// z = softmax(relu(x)), x of 2 x 3 floats.
std::string model() {
  return onnx::model(onnx::bytes(1, onnx::node("Relu", {"x"}, {"y"})) +
                     onnx::bytes(1, onnx::node("Softmax", {"y"}, {"z"})) + onnx::bytes(11, onnx::value("x", {2, 3})) +
                     onnx::bytes(12, onnx::value("z", {2, 3})));
}

const std::string kModule = R"(module {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3x4xf32>) -> (tensor<2x4xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
})";

const std::string kForest = R"({"learner": {"gradient_booster": {"model": {"trees": [{
  "left_children": [1, -1, -1], "right_children": [2, -1, -1], "split_indices": [0, 0, 0],
  "split_conditions": [5E-1, 1E1, 2E1], "default_left": [1, 0, 0], "split_type": [0, 0, 0],
  "tree_param": {"size_leaf_vector": "1"}}]}, "name": "gbtree"},
  "learner_model_param": {"base_score": "[1E0]", "num_class": "0", "num_feature": "1", "num_target": "1"},
  "objective": {"name": "reg:squarederror"}}, "version": [3, 2, 0]})";

struct Shared {
  perfpass::OpGraph graph = perfpass::read_onnx_bytes(bytes_of(model()));
  perfpass::Predictor predictor = perfpass::Predictor::from_bytes(bytes_of(onnx::engine_bundle()));
  perfpass::TreeEnsemble forest = perfpass::TreeEnsemble::from_xgboost(bytes_of(kForest));
};

/// Every stage of the core once, on a graph of its own and on what is shared.
std::vector<double> answers(const Shared& shared) {
  std::vector<double> found;
  const auto count = [&](const perfpass::OpGraph& graph) {
    const perfpass::Costs costs = perfpass::count_costs(graph);
    found.push_back(static_cast<double>(perfpass::totals(costs).flops));
    for (const char* schema : {"operator", "dippm", "trappm", "nnlqp"}) {
      const auto features = perfpass::node_features(graph, costs, perfpass::schema_from_name(schema));
      found.insert(found.end(), features.values.begin(), features.values.end());
      found.insert(found.end(), features.statics.begin(), features.statics.end());
    }
    found.push_back(static_cast<double>(perfpass::table_as_run(graph, costs, true, true, true).op.size()));
    found.push_back(static_cast<double>(perfpass::plan_memory(graph).peak_activation_bytes));
    found.push_back(shared.predictor.predict(graph).latency_ms.high);
  };
  count(shared.graph);
  count(perfpass::read_onnx_bytes(bytes_of(model())));
  count(perfpass::read_stablehlo(kModule));
  const std::vector<float> x(5'000, 0.75F);
  for (const float y : shared.forest.predict(x, x.size(), 1, 2)) found.push_back(y);
  const std::vector<perfpass::CountingItem> items(6, {&shared.graph, {}, 0});
  perfpass::CountingOptions options;
  options.allocator = perfpass::Allocator::caching;
  const perfpass::CountedGraphs counted = perfpass::count_graphs(items, options, 2);
  for (const std::int64_t reserved : counted.reserved_bytes) found.push_back(static_cast<double>(reserved));
  return found;
}

}  // namespace

TEST(threads_that_share_what_is_immutable_answer_as_one_does) {
  const Shared shared;
  std::vector<std::vector<double>> found(6);
  {
    // Before anything was asked on this thread: what is made at the first use is made by several at once.
    std::vector<std::thread> threads;
    for (auto& own : found) {
      threads.emplace_back([&] {
        for (int round = 0; round < 3; ++round) own = answers(shared);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const std::vector<double> alone = answers(shared);
  CHECK(alone.size() > 5'000);
  for (const auto& own : found) CHECK(own == alone);
}
