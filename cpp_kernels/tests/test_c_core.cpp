// The plain C header: handles, sizes of structures, texts of errors.
#include <cstring>
#include <string>
#include <vector>

#include "bundle_text.hpp"
#include "check.hpp"
#include "onnx_message.hpp"
#include "perfpass/perfpass_core.h"

namespace {

namespace onnx = perfpass::testing;

/// y = relu(x), x of 2 x 3 floats.
std::string relu_model() {
  return onnx::model(onnx::bytes(1, onnx::node("Relu", {"x"}, {"y"})) + onnx::bytes(11, onnx::value("x", {2, 3})) +
                     onnx::bytes(12, onnx::value("y", {2, 3})));
}

perfpass_graph* read(const std::string& model) {
  perfpass_graph* graph = nullptr;
  CHECK(perfpass_read_onnx_bytes(model.data(), model.size(), nullptr, &graph, nullptr) == PERFPASS_OK);
  return graph;
}

}  // namespace

TEST(c_reads_and_counts_a_model) {
  perfpass_graph* graph = read(relu_model());
  perfpass_graph_size size = PERFPASS_INIT(perfpass_graph_size);
  CHECK(perfpass_graph_measure(graph, &size, nullptr) == PERFPASS_OK);
  CHECK_EQUAL(size.nodes, 1);
  CHECK_EQUAL(size.tensors, 2);
  perfpass_node node = PERFPASS_INIT(perfpass_node);
  CHECK(perfpass_graph_node(graph, 0, &node, nullptr) == PERFPASS_OK);
  CHECK_EQUAL(std::string(node.source_op.data, node.source_op.size), std::string("Relu"));
  perfpass_costs costs = PERFPASS_INIT(perfpass_costs);
  CHECK(perfpass_graph_costs(graph, "float16", &costs, nullptr) == PERFPASS_OK);
  CHECK_EQUAL(costs.bytes_read, 12);
  std::int64_t read = 0;
  CHECK(perfpass_graph_node_costs(graph, nullptr, 1, nullptr, nullptr, &read, nullptr, nullptr, nullptr) ==
        PERFPASS_OK);
  CHECK_EQUAL(read, 24);
  perfpass_memory memory = PERFPASS_INIT(perfpass_memory);
  CHECK(perfpass_graph_memory(graph, nullptr, 1, &memory, nullptr) == PERFPASS_OK);
  CHECK_EQUAL(memory.peak_activation_bytes, 48);
  std::size_t rows = 0, columns = 0;
  CHECK(perfpass_graph_features(graph, "operator", nullptr, 0, &rows, &columns, nullptr) == PERFPASS_OK);
  std::vector<float> values(rows * columns);
  CHECK_EQUAL(rows, 1u);
  CHECK(perfpass_graph_features(graph, "operator", values.data(), values.size(), &rows, &columns, nullptr) ==
        PERFPASS_OK);
  CHECK(perfpass_graph_features(graph, "operator", values.data(), values.size() - 1, &rows, &columns, nullptr) ==
        PERFPASS_ERROR_ARGUMENT);
  perfpass_graph_free(graph);
}

TEST(c_takes_sizes_of_dimensions_and_inputs) {
  const std::string model =
      onnx::model(onnx::bytes(1, onnx::node("Relu", {"x"}, {"y"})) + onnx::bytes(11, onnx::value("x", {-1, 3}, "n")) +
                  onnx::bytes(12, onnx::value("y", {-1, 3}, "n")));
  perfpass_graph* graph = nullptr;
  perfpass_error error = PERFPASS_INIT(perfpass_error);
  CHECK(perfpass_read_onnx_bytes(model.data(), model.size(), nullptr, &graph, &error) == PERFPASS_ERROR_SHAPE);
  CHECK(graph == nullptr);
  CHECK_EQUAL(error.status, static_cast<std::int32_t>(PERFPASS_ERROR_SHAPE));
  CHECK(std::strstr(error.message, "n") != nullptr);
  const perfpass_dim dim = {"n", 5};
  perfpass_read_options options = PERFPASS_INIT(perfpass_read_options);
  options.dims = &dim, options.dim_count = 1;
  CHECK(perfpass_read_onnx_bytes(model.data(), model.size(), &options, &graph, &error) == PERFPASS_OK);
  perfpass_graph_free(graph);
  const std::int64_t dims[] = {7, 3};
  const perfpass_input_shape shape = {"x", dims, 2};
  options.dim_count = 0, options.input_shapes = &shape, options.input_shape_count = 1;
  CHECK(perfpass_read_onnx_bytes(model.data(), model.size(), &options, &graph, &error) == PERFPASS_OK);
  perfpass_costs costs = PERFPASS_INIT(perfpass_costs);
  CHECK(perfpass_graph_costs(graph, nullptr, &costs, &error) == PERFPASS_OK);
  CHECK_EQUAL(costs.bytes_written, 84);
  perfpass_graph_free(graph);
}

TEST(c_predicts_from_a_bundle) {
  const std::string bundle = onnx::engine_bundle();
  perfpass_predictor* predictor = nullptr;
  CHECK(perfpass_predictor_read_bytes(bundle.data(), bundle.size(), &predictor, nullptr) == PERFPASS_OK);
  perfpass_predictor_about about = PERFPASS_INIT(perfpass_predictor_about);
  CHECK(perfpass_predictor_describe(predictor, &about, nullptr) == PERFPASS_OK);
  CHECK_EQUAL(std::string(about.device.data, about.device.size), std::string("board"));
  perfpass_graph* graph = read(relu_model());
  perfpass_prediction found = PERFPASS_INIT(perfpass_prediction);
  CHECK(perfpass_predict(predictor, graph, 0, &found, nullptr) == PERFPASS_OK);
  CHECK_EQUAL(found.batch, 2);
  CHECK(found.latency_ms.low < found.latency_ms.median && found.latency_ms.median < found.latency_ms.high);
  CHECK(std::strcmp(found.reasons, "round numbers") == 0);
  perfpass_graph_free(graph);
  perfpass_predictor_free(predictor);
}

TEST(c_writes_no_further_than_an_older_program_knows) {
  perfpass_graph* graph = read(relu_model());
  struct {
    perfpass_costs costs;
  } known;
  std::memset(&known, 0x55, sizeof(known));
  known.costs.struct_size = offsetof(perfpass_costs, bytes_read);
  CHECK(perfpass_graph_costs(graph, nullptr, &known.costs, nullptr) == PERFPASS_OK);
  CHECK_EQUAL(known.costs.struct_size, offsetof(perfpass_costs, bytes_read));
  CHECK_EQUAL(known.costs.macs, 0);
  CHECK_EQUAL(known.costs.bytes_read, std::int64_t{0x5555555555555555});
  known.costs.struct_size = 0;
  CHECK(perfpass_graph_costs(graph, nullptr, &known.costs, nullptr) == PERFPASS_ERROR_ARGUMENT);
  perfpass_graph_free(graph);
}

TEST(c_refuses_null_and_what_is_out_of_range) {
  perfpass_error error = PERFPASS_INIT(perfpass_error);
  perfpass_graph* graph = nullptr;
  CHECK(perfpass_read_onnx_file(nullptr, nullptr, &graph, &error) == PERFPASS_ERROR_ARGUMENT);
  CHECK(perfpass_read_onnx_file("x", nullptr, nullptr, &error) == PERFPASS_ERROR_ARGUMENT);
  CHECK(perfpass_read_onnx_file("/no/such/file", nullptr, &graph, &error) == PERFPASS_ERROR_IO);
  CHECK(perfpass_read_onnx_bytes("no model", 8, nullptr, &graph, &error) == PERFPASS_ERROR_FORMAT);
  CHECK(perfpass_graph_measure(nullptr, nullptr, &error) == PERFPASS_ERROR_ARGUMENT);
  perfpass_text text;
  graph = read(relu_model());
  CHECK(perfpass_graph_note(graph, 0, &text, &error) == PERFPASS_ERROR_ARGUMENT);
  perfpass_costs costs = PERFPASS_INIT(perfpass_costs);
  CHECK(perfpass_graph_costs(graph, "int8", &costs, &error) == PERFPASS_ERROR_ARGUMENT);
  CHECK(perfpass_predict(nullptr, graph, 0, nullptr, &error) == PERFPASS_ERROR_ARGUMENT);
  perfpass_graph_free(graph);
  perfpass_graph_free(nullptr);
  perfpass_predictor_free(nullptr);
}

TEST(c_cuts_a_long_message_at_a_whole_character) {
  std::string path;
  for (int i = 0; i < 2000; ++i) path += "\xc3\xa9";
  perfpass_error error = PERFPASS_INIT(perfpass_error);
  perfpass_graph* graph = nullptr;
  CHECK(perfpass_read_onnx_file(path.c_str(), nullptr, &graph, &error) == PERFPASS_ERROR_IO);
  const std::string message = error.message;
  CHECK(message.size() < sizeof(error.message));
  CHECK(static_cast<unsigned char>(message.back()) != 0xc3);
}
