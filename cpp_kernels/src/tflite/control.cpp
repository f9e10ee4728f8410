// Subgraphs that nodes call. They become functions, and IF and WHILE become ONNX's If and Loop around calls of them, so
// that one lowering knows how branches and iterations count.
#include <algorithm>

#include "perfpass/error.hpp"
#include "support/arena_list.hpp"
#include "support/text.hpp"
#include "tflite/schema.hpp"
#include "tflite/subgraph.hpp"

namespace perfpass::tflite {
namespace {

// Numbers of builtins that conditions of loops are made of.
constexpr std::size_t kAdd = 0, kLess = 58, kLogicalAnd = 86;
constexpr std::int64_t kMostTrips = 1'000'000'000;

struct Producer {
  std::size_t code;
  Numbers<std::int32_t> inputs;
};

/// The operator that writes a tensor of a subgraph.
std::optional<Producer> producer_of(const File& file, const Table& subgraph, std::int32_t tensor) {
  const References operators = subgraph.references(subgraph::kOperators);
  for (std::size_t i = operators.size(); i > 0; --i) {
    const Table node = operators.table(i - 1);
    const auto outputs = node.numbers<std::int32_t>(node::kOutputs);
    if (outputs.size() != 1 || outputs[0] != tensor) continue;
    return Producer{builtin_of(file, node), node.numbers<std::int32_t>(node::kInputs)};
  }
  return std::nullopt;
}

std::optional<std::size_t> position_in(const Numbers<std::int32_t>& list, std::int32_t value) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == value) return i;
  }
  return std::nullopt;
}

/// A WHILE as three subgraphs see it.
struct Loop {
  const File& file;
  const Table &outer, node;
  Table condition, body;

  /// Trips until `counter < limit` fails, both tensors of the condition.
  std::optional<std::int64_t> trips(const Producer& less) const {
    if (less.inputs.size() != 2) return std::nullopt;
    const auto counter = position_in(condition.numbers<std::int32_t>(subgraph::kInputs), less.inputs[0]);
    if (!counter) return std::nullopt;
    const auto start = first_value(*counter), step = increment(*counter), limit = value(less.inputs[1]);
    if (!start || !step || !limit || *step < 1) return std::nullopt;
    std::int64_t room = 0;
    if (__builtin_sub_overflow(*limit, *start, &room)) return std::nullopt;
    const std::int64_t trips = room <= 0 ? 0 : (room - 1) / *step + 1;
    return trips > kMostTrips ? std::nullopt : std::optional(trips);
  }

 private:
  /// A constant of the condition, or a value that the body passes on as it was.
  std::optional<std::int64_t> value(std::int32_t tensor) const {
    const auto carried = position_in(condition.numbers<std::int32_t>(subgraph::kInputs), tensor);
    if (!carried) return integer_of(file, condition, tensor);
    const auto in = body.numbers<std::int32_t>(subgraph::kInputs), out = body.numbers<std::int32_t>(subgraph::kOutputs);
    if (*carried >= in.size() || *carried >= out.size() || in[*carried] != out[*carried]) return std::nullopt;
    return first_value(*carried);
  }

  std::optional<std::int64_t> first_value(std::size_t carried) const {
    const auto inputs = node.numbers<std::int32_t>(node::kInputs);
    if (carried >= inputs.size()) return std::nullopt;
    return integer_of(file, outer, inputs[carried]);
  }

  std::optional<std::int64_t> increment(std::size_t carried) const {
    const auto in = body.numbers<std::int32_t>(subgraph::kInputs), out = body.numbers<std::int32_t>(subgraph::kOutputs);
    if (carried >= in.size() || carried >= out.size()) return std::nullopt;
    const auto add = producer_of(file, body, out[carried]);
    if (!add || add->code != kAdd || add->inputs.size() != 2) return std::nullopt;
    const bool first = add->inputs[0] == in[carried];
    if (!first && add->inputs[1] != in[carried]) return std::nullopt;
    return integer_of(file, body, add->inputs[first ? 1 : 0]);
  }
};

}  // namespace

std::optional<std::int64_t> trips_of(const File& file, const Table& outer, const Table& node, std::int64_t condition,
                                     std::int64_t body) {
  const Loop loop{file, outer, node, subgraph_table(file, condition), subgraph_table(file, body)};
  const auto results = loop.condition.numbers<std::int32_t>(subgraph::kOutputs);
  if (results.size() != 1) return std::nullopt;
  const auto result = producer_of(file, loop.condition, results[0]);
  if (!result) return std::nullopt;
  if (result->code == kLess) return loop.trips(*result);
  if (result->code != kLogicalAnd || result->inputs.size() != 2) return std::nullopt;
  std::optional<std::int64_t> fewest;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto less = producer_of(file, loop.condition, result->inputs[i]);
    const auto trips = less && less->code == kLess ? loop.trips(*less) : std::nullopt;
    if (!trips) return std::nullopt;
    fewest = fewest ? std::min(*fewest, *trips) : trips;
  }
  return fewest;
}

onnx::Node Subgraph::call_node(std::int64_t subgraph, Text name, std::span<const Text> inputs,
                               std::span<const Text> outputs) {
  subgraph_table(file_, subgraph);
  called_.push_back(subgraph);
  onnx::Node node;
  node.op_type = function_name(file_, subgraph);
  node.domain = kFunctions;
  node.name = name.empty() ? node.op_type : name;
  node.inputs = inputs;
  node.outputs = outputs;
  return node;
}

void Subgraph::call(const Operation& operation, std::int64_t subgraph, Text name) {
  const Names outputs = written(operation, 1);
  const Names inputs = operands(operation);
  nodes_.push_back(call_node(subgraph, name, inputs, outputs));
}

namespace {

onnx::Attribute graph_attribute(Text name, const onnx::Graph& graph) {
  onnx::Attribute attribute;
  attribute.name = name;
  attribute.kind = onnx::Attribute::Kind::graph;
  attribute.graph = &graph;
  return attribute;
}

onnx::ValueInfo named(Text name) {
  onnx::ValueInfo info;
  info.name = name;
  return info;
}

}  // namespace

void Subgraph::conditional(const Operation& operation) {
  auto& arena = file_.arena;
  const Names inputs = operands(operation), outputs = written(operation);
  if (inputs.empty() || outputs.empty()) {
    throw Error(ErrorCode::format, "an IF has no condition or no outputs; the file is damaged");
  }
  const auto attributes = arena_list<onnx::Attribute>(arena, 2);
  for (const unsigned branch : {0U, 1U}) {
    auto& graph = arena_list<onnx::Graph>(arena, 1)[0];
    const auto results = arena_list<Text>(arena, outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) results[i] = joined("#result ", std::to_string(i));
    const auto nodes = arena_list<onnx::Node>(arena, 1);
    nodes[0] = call_node(operation.options.scalar<std::int32_t>(branch), {}, inputs.subspan(1), results);
    const auto infos = arena_list<onnx::ValueInfo>(arena, results.size());
    for (std::size_t i = 0; i < infos.size(); ++i) infos[i] = named(results[i]);
    graph.nodes = nodes;
    graph.outputs = infos;
    attributes[branch] = graph_attribute(branch == 0 ? "then_branch" : "else_branch", graph);
  }
  onnx::Node& node = nodes_.emplace_back();
  node.op_type = "If";
  node.name = outputs.front();
  node.inputs = inputs.first(1);
  node.outputs = outputs;
  node.attributes = attributes;
}

void Subgraph::loop(const Operation& operation) {
  auto& arena = file_.arena;
  const Table options =
      operation.table.has(node::kOptions) ? operation.options : operation.table.table(node::kOptions2);
  const std::int64_t condition = options.scalar<std::int32_t>(0), body = options.scalar<std::int32_t>(1);
  const Names carried = operands(operation), outputs = written(operation);
  if (outputs.empty() || outputs.size() != carried.size()) {
    throw Error(ErrorCode::format, "a WHILE has " + std::to_string(carried.size()) + " inputs and " +
                                       std::to_string(outputs.size()) + " outputs; it must have as many of each");
  }
  const auto trips = trips_of(file_, table_, operation.table, condition, body);

  auto& graph = arena_list<onnx::Graph>(arena, 1)[0];
  const std::size_t count = carried.size();
  const auto inside = arena_list<Text>(arena, count), results = arena_list<Text>(arena, count);
  for (std::size_t i = 0; i < count; ++i) {
    inside[i] = joined("#carried ", std::to_string(i));
    results[i] = joined("#result ", std::to_string(i));
  }
  const auto ins = arena_list<onnx::ValueInfo>(arena, count + 2), outs = arena_list<onnx::ValueInfo>(arena, count + 1);
  ins[0] = named("#iteration");
  ins[1] = named("#continues");
  // A loop whose trips are known runs all of them.
  outs[0] = named(trips ? Text("#continues") : Text("#condition"));
  for (std::size_t i = 0; i < count; ++i) {
    ins[i + 2] = named(inside[i]);
    outs[i + 1] = named(results[i]);
  }
  const auto nodes = arena_list<onnx::Node>(arena, 2);
  static constexpr std::array kCondition = {Text("#condition")};
  nodes[0] = call_node(body, {}, inside, results);
  nodes[1] = call_node(condition, {}, results, kCondition);
  graph.nodes = nodes;
  graph.inputs = ins;
  graph.outputs = outs;

  const auto inputs = arena_list<Text>(arena, count + 2);
  if (trips) inputs[0] = scalar("trips", DType::int64, *trips);
  std::copy(carried.begin(), carried.end(), inputs.begin() + 2);
  const auto attributes = arena_list<onnx::Attribute>(arena, 1);
  attributes[0] = graph_attribute("body", graph);
  onnx::Node& node = nodes_.emplace_back();
  node.op_type = "Loop";
  node.name = outputs.front();
  node.inputs = inputs;
  node.outputs = outputs;
  node.attributes = attributes;
}

}  // namespace perfpass::tflite
