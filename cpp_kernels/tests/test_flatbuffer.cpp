#include <array>
#include <filesystem>
#include <fstream>

#include "check.hpp"
#include "flatbuffer/table.hpp"
#include "flatbuffer_message.hpp"
#include "perfpass/cost.hpp"
#include "perfpass/flatbuffer_readers.hpp"
#include "tflite/operators.hpp"

namespace {

using namespace perfpass;
using namespace perfpass::testing;

OpGraph read(const std::string& bytes, FlatBufferFormat format = FlatBufferFormat::tflite, std::int64_t batch = 0) {
  OnnxOptions options;
  options.batch = batch;
  return read_flatbuffer_bytes(format, span_of(bytes), options);
}

// ---- TensorFlow Lite

Item tensor(std::string_view name, std::initializer_list<std::int32_t> shape, std::uint32_t buffer = 0,
            std::int8_t type = 0) {
  return table({{0, numbers(shape)}, {1, scalar(type)}, {2, scalar(buffer)}, {3, text(name)}});
}

Item buffer(std::string_view data) {
  Item bytes{Item::Kind::numbers, std::string(data), data.size(), {}, {}};
  return table({{0, bytes}});
}

Item op(std::uint32_t code, std::initializer_list<std::int32_t> inputs, std::initializer_list<std::int32_t> outputs,
        std::vector<Field> options = {}) {
  return table({{0, scalar(code)}, {1, numbers(inputs)}, {2, numbers(outputs)}, {4, table(std::move(options))}});
}

Item subgraph(std::vector<Item> tensors, std::initializer_list<std::int32_t> inputs,
              std::initializer_list<std::int32_t> outputs, std::vector<Item> operators) {
  return table(
      {{0, list(std::move(tensors))}, {1, numbers(inputs)}, {2, numbers(outputs)}, {3, list(std::move(operators))}});
}

std::string model(std::initializer_list<std::int32_t> builtins, std::vector<Item> subgraphs,
                  std::vector<Item> buffers = {}) {
  std::vector<Item> codes;
  for (const std::int32_t code : builtins) codes.push_back(table({{3, scalar(code)}}));
  buffers.insert(buffers.begin(), table({}));
  return file("TFL3", table({{1, list(codes)}, {2, list(std::move(subgraphs))}, {4, list(std::move(buffers))}}));
}

/// A convolution of 8 outputs, 3x3, strides of 2, with RELU6 behind.
std::string convolution() {
  return model({3},
               {subgraph({tensor("x", {1, 9, 9, 4}), tensor("w", {8, 3, 3, 4}, 1), tensor("y", {1, 5, 5, 8})}, {0}, {2},
                         {op(0, {0, 1, -1}, {2},
                             {{0, scalar<std::int8_t>(0)},
                              {1, scalar<std::int32_t>(2)},
                              {2, scalar<std::int32_t>(2)},
                              {3, scalar<std::int8_t>(3)}})})},
               {buffer(std::string(8 * 36 * 4, 'w'))});
}

TEST(a_convolution_of_channels_last_has_its_weight_outputs_first_and_its_activation_as_node) {
  for (const std::int64_t batch : {1, 4}) {
    const OpGraph graph = read(convolution(), FlatBufferFormat::tflite, batch);
    CHECK_EQUAL(graph.node_count(), std::size_t{2});
    CHECK(graph.op[0] == OpKind::conv && graph.op[1] == OpKind::clip);
    CHECK_EQUAL(graph.strings.at(graph.source_op[1]), "RELU6");
    CHECK_EQUAL(graph.attributes[0].channels_last, 1);
    CHECK_EQUAL(graph.attributes[0].kernel[1], 3);
    CHECK_EQUAL(graph.attributes[0].stride[0], 2);
    const auto weight = graph.shape(graph.node_inputs(0)[1]);
    CHECK_EQUAL(weight[0], 8);
    CHECK_EQUAL(weight[1], 4);
    CHECK_EQUAL(graph.shape(graph.node_outputs(1)[0])[0], batch);
    CHECK_EQUAL(count_costs(graph).macs[0], batch * 25 * 8 * 36);
  }
}

TEST(what_was_inferred_of_an_operator_does_not_hold_for_one_of_other_options) {
  const auto pool = [](std::int8_t padding, std::int32_t stride, std::int32_t kernel, std::int32_t output) {
    const auto side = scalar<std::int32_t>;
    return op(0, {0}, {output},
              {{0, scalar(padding)}, {1, side(stride)}, {2, side(stride)}, {3, side(kernel)}, {4, side(kernel)}});
  };
  constexpr std::int8_t kSame = 0, kValid = 1;
  const OpGraph graph =
      read(model({17}, {subgraph({tensor("x", {1, 9, 9, 4}), tensor("a", {1, 5, 5, 4}), tensor("b", {1, 9, 9, 4}),
                                  tensor("c", {1, 4, 4, 4}), tensor("d", {1, 5, 5, 4}), tensor("e", {1, 5, 5, 4})},
                                 {0}, {1, 2, 3, 4, 5},
                                 {pool(kSame, 2, 3, 1), pool(kSame, 1, 3, 2), pool(kValid, 2, 3, 3),
                                  pool(kValid, 2, 1, 4), pool(kSame, 2, 3, 5)})}));
  const std::array strides = {2, 1, 2, 2, 2}, kernels = {3, 3, 3, 1, 3}, pads = {1, 1, 0, 0, 1};
  const std::array<std::int64_t, 5> sides = {5, 9, 4, 5, 5};
  for (NodeId n = 0; n < 5; ++n) {
    CHECK_EQUAL(graph.attributes[n].stride[0], strides[n]);
    CHECK_EQUAL(graph.attributes[n].kernel[1], kernels[n]);
    CHECK_EQUAL(graph.attributes[n].pad_begin[0], pads[n]);
    CHECK_EQUAL(graph.shape(graph.node_outputs(n)[0])[1], sides[n]);
  }
}

TEST(every_builtin_has_a_canonical_operator_or_is_unknown_on_purpose) {
  using tflite::Form;
  CHECK_EQUAL(tflite::builtins().size(), std::size_t{210});
  std::size_t unknown = 0;
  for (const tflite::Builtin& builtin : tflite::builtins()) {
    const bool inlined = builtin.form == Form::call || builtin.form == Form::composite || builtin.form == Form::once ||
                         builtin.form == Form::custom;
    if (builtin.op.kind == OpKind::unknown && !inlined) {
      if (!builtin.is_unknown_on_purpose) testing::fail(__FILE__, __LINE__, std::string(builtin.op.name));
      ++unknown;
    }
  }
  CHECK_EQUAL(unknown, std::size_t{16});
}

TEST(a_constant_that_is_dequantized_when_the_model_is_loaded_is_no_node) {
  const std::string bytes =
      model({6, 9},
            {subgraph({tensor("x", {2, 4}), tensor("half", {3, 4}, 1, 1), tensor("w", {3, 4}), tensor("y", {2, 3})},
                      {0}, {3}, {op(0, {1}, {2}), op(1, {0, 2, -1}, {3})})},
            {buffer(std::string(24, 'h'))});
  const OpGraph graph = read(bytes);
  CHECK_EQUAL(graph.node_count(), std::size_t{1});
  CHECK(graph.op[0] == OpKind::dense);
  CHECK(graph.tensor_role[graph.node_inputs(0)[1]] == TensorRole::weight);
  CHECK_EQUAL(graph.notes.size(), std::size_t{1});
}

/// A WHILE that counts from 0 to 12 by 3 and multiplies a matrix each time.
std::string loop(std::int32_t body_of_loop = 2) {
  const auto number = [](std::int32_t value) { return buffer(raw(value)); };
  const Item main =
      subgraph({tensor("i", {}, 1, 2), tensor("x", {2, 2}), tensor("n", {}, 0, 2), tensor("y", {2, 2})}, {1}, {3},
               {op(0, {0, 1}, {2, 3}, {{0, scalar<std::int32_t>(1)}, {1, scalar<std::int32_t>(body_of_loop)}})});
  const Item condition =
      subgraph({tensor("i", {}, 0, 2), tensor("x", {2, 2}), tensor("end", {}, 2, 2), tensor("go", {}, 0, 6)}, {0, 1},
               {3}, {op(1, {0, 2}, {3})});
  const Item body = subgraph({tensor("i", {}, 0, 2), tensor("x", {2, 2}), tensor("step", {}, 3, 2),
                              tensor("next", {}, 0, 2), tensor("xx", {2, 2})},
                             {0, 1}, {3, 4}, {op(2, {0, 2}, {3}), op(3, {1, 1}, {4})});
  return model({119, 58, 0, 126}, {main, condition, body}, {number(0), number(12), number(3)});
}

TEST(a_loop_that_counts_to_a_constant_runs_so_often) {
  const OpGraph graph = read(loop());
  std::int64_t macs = 0;
  for (const std::int64_t m : count_costs(graph).macs) macs += m;
  CHECK_EQUAL(macs, 4 * 8);
  CHECK(graph.notes.empty());
}

TEST(a_subgraph_that_calls_itself_is_refused) {
  const Item forever =
      subgraph({tensor("x", {1}), tensor("y", {1})}, {0}, {1}, {op(0, {0}, {1}, {{0, scalar<std::uint32_t>(1)}})});
  CHECK_ERROR(read(model({31}, {forever, forever})), ErrorCode::graph, "calls itself");
  CHECK_ERROR(read(model({31}, {forever})), ErrorCode::format, "subgraph 1 of 1");
}

TEST(damaged_numbers_are_refused_by_name) {
  const auto one = [](Item node, Item x = tensor("x", {1, 4})) {
    return model({19}, {subgraph({std::move(x), tensor("y", {1, 4})}, {0}, {1}, {std::move(node)})});
  };
  CHECK_ERROR(read(one(op(0, {7}, {1}))), ErrorCode::format, "tensor 7 of 2");
  CHECK_ERROR(read(one(op(9, {0}, {1}))), ErrorCode::format, "kind 9 of 1");
  CHECK_ERROR(read(one(op(0, {0}, {1}), tensor("x", {1, 4}, 3))), ErrorCode::format, "buffer 3 of 1");
  CHECK_ERROR(read(one(op(0, {0}, {1}), tensor("x", {1, -4}))), ErrorCode::limit, "dimension of -4");
  CHECK_ERROR(read(one(op(0, {0}, {1}), tensor("x", {1, 4}, 0, 77))), ErrorCode::unsupported, "element type 77");
  CHECK_ERROR(read("TFL3"), ErrorCode::format, "too few");
  CHECK_ERROR(read(file("ORTM", table({}))), ErrorCode::format, "not a TensorFlow Lite model");
  CHECK_ERROR(read(model({}, {})), ErrorCode::format, "no subgraph");
}

TEST(an_operator_newer_than_the_schema_stays_with_its_declared_shape) {
  const OpGraph graph =
      read(model({999}, {subgraph({tensor("x", {1, 4}), tensor("y", {1, 6})}, {0}, {1}, {op(0, {0}, {1})})}));
  CHECK(graph.op[0] == OpKind::unknown);
  CHECK_EQUAL(graph.shape(graph.node_outputs(0)[0])[1], 6);
  CHECK_EQUAL(graph.notes.size(), std::size_t{2});
}

// ---- ONNX Runtime's format

Item ort_node(std::string_view type, std::vector<Item> inputs, std::vector<Item> outputs,
              std::vector<Item> attributes) {
  return table({{5, text(type)},
                {8, list(std::move(inputs))},
                {9, list(std::move(outputs))},
                {10, list(std::move(attributes))}});
}

Item ort_value(std::string_view name, std::initializer_list<std::int64_t> shape) {
  std::vector<Item> dims;
  for (const std::int64_t d : shape) {
    dims.push_back(table({{0, table({{0, scalar<std::int8_t>(1)}, {1, scalar(d)}})}}));
  }
  const Item type = table({{0, scalar<std::int32_t>(1)}, {1, table({{0, list(dims)}})}});
  return table({{0, text(name)}, {2, table({{1, scalar<std::uint8_t>(1)}, {2, type}})}});
}

std::string ort_model(const Item& graph) {
  const Item opset = table({{1, scalar<std::int64_t>(17)}});
  return file("ORTM", table({{1, table({{0, scalar<std::int64_t>(8)}, {1, list({opset})}, {7, graph}})}}));
}

TEST(a_session_of_onnx_runtime_is_read_as_its_model) {
  const Item graph = table({{1, list({ort_value("x", {2, 3})})},
                            {2, list({ort_node("Relu", {text("x")}, {text("y")}, {})})},
                            {5, list({text("x")})},
                            {6, list({text("y")})}});
  const OpGraph read_graph = read(ort_model(graph), FlatBufferFormat::ort);
  CHECK(read_graph.op[0] == OpKind::relu);
  CHECK_EQUAL(read_graph.shape(read_graph.node_outputs(0)[0])[1], 3);
  CHECK_ERROR(read(ort_model(table({{2, list({ort_node("", {}, {text("y")}, {})})}})), FlatBufferFormat::ort),
              ErrorCode::format, "names no operator");
  OnnxOptions one_node;
  one_node.limits.nodes = 1;
  const Item relu = ort_node("Relu", {text("x")}, {text("y")}, {});
  const std::string two = ort_model(table({{2, list({relu, relu})}}));
  CHECK_ERROR(read_flatbuffer_bytes(FlatBufferFormat::ort, span_of(two), one_node), ErrorCode::limit,
              "2 nodes or more");
}

TEST(attributes_whose_names_are_one_string_of_the_file_are_told_apart) {
  const auto flatten = [](std::string_view output, std::int64_t axis) {
    const Item attribute = table({{0, text("axis")}, {2, scalar<std::int32_t>(2)}, {4, scalar(axis)}});
    return ort_node("Flatten", {text("x")}, {text(output)}, {attribute});
  };
  std::string bytes = ort_model(table({{1, list({ort_value("x", {2, 3, 5})})},
                                       {2, list({flatten("y", 1), flatten("z", 2)})},
                                       {5, list({text("x")})},
                                       {6, list({text("y"), text("z")})}}));
  const std::size_t first = bytes.find("axis") - 4, second = bytes.find("axis", first + 8) - 4;
  bool is_shared = false;
  for (std::size_t at = 0; at < first; ++at) {
    std::uint32_t offset;
    std::memcpy(&offset, bytes.data() + at, sizeof offset);
    if (at + offset != first) continue;
    offset = static_cast<std::uint32_t>(second - at);
    std::memcpy(bytes.data() + at, &offset, sizeof offset);
    is_shared = true;
  }
  CHECK(is_shared);
  const OpGraph graph = read(bytes, FlatBufferFormat::ort);
  CHECK_EQUAL(graph.shape(graph.node_outputs(0)[0])[0], 2);
  CHECK_EQUAL(graph.shape(graph.node_outputs(1)[0])[0], 6);
}

TEST(subgraphs_within_subgraphs_end_at_a_bound) {
  Item graph = table({{2, list({ort_node("Relu", {text("x")}, {text("y")}, {})})}});
  for (int depth = 0; depth < 40; ++depth) {
    const Item attribute = table({{0, text("body")}, {2, scalar<std::int32_t>(5)}, {7, graph}});
    graph = table({{2, list({ort_node("Loop", {}, {text("y")}, {attribute})})}});
  }
  CHECK_ERROR(read(ort_model(graph), FlatBufferFormat::ort), ErrorCode::limit, "levels are allowed");
}

// ---- The walker

TEST(offsets_that_lead_nowhere_are_refused) {
  const std::string whole = convolution();
  for (std::size_t length = 0; length < whole.size() - 8 * 36 * 4; length += 3) {
    try {
      read(whole.substr(0, length));
      testing::fail(__FILE__, __LINE__, "read of " + std::to_string(length) + " bytes");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::format);
    }
  }
  std::string back = whole;
  const std::int32_t before = 1 << 20;  // the description of the root lies before the file
  std::uint32_t root = 0;
  std::memcpy(&root, back.data(), 4);
  std::memcpy(back.data() + root, &before, 4);
  CHECK_ERROR(read(back), ErrorCode::format, "before the file");
  CHECK_ERROR(read(std::string(4, '\0') + "TFL3"), ErrorCode::format, "offset of 0");
}

TEST(an_empty_list_at_the_very_end_of_a_file_is_within_it) {
  // Files are read by blocks of 16 KiB: behind 24 whole ones there is no further.
  const std::string path = (std::filesystem::temp_directory_path() / "perfpass_empty_list.tflite").string();
  std::ofstream(path, std::ios::binary) << std::string(24 << 14, '\0');
  {
    const flatbuffer::Source source(path, 1 << 20);
    CHECK_EQUAL(flatbuffer::Numbers<float>(source, (24 << 14) - 4).size(), 0U);
    CHECK_ERROR(source.at((24 << 14) + 1, 0), ErrorCode::format, "damaged or cut short");
  }
  std::filesystem::remove(path);
}

TEST(lists_that_are_shared_a_thousandfold_are_refused) {
  // A thousand tables that share one list of a million entries would cost a billion steps.
  std::string bytes = file("TFL3", table({{1, list({})}}));
  const flatbuffer::Source source(span_of(bytes));
  CHECK_ERROR(source.spend(1 << 20), ErrorCode::limit, "can hold");
  source.spend(60'000);
  CHECK_ERROR(source.spend(10'000), ErrorCode::limit, "can hold");
}

TEST(texts_have_a_bound) {
  const std::string name(70'000, 'n');
  CHECK_ERROR(read(model({19}, {subgraph({tensor(name, {1}), tensor("y", {1})}, {0}, {1}, {op(0, {0}, {1})})})),
              ErrorCode::limit, "at most 65536");
}

}  // namespace
