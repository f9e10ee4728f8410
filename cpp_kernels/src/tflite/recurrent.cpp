// Recurrent operators. The file keeps a weight per gate; a node reads one matrix of all gates, as in ONNX, and no
// state: that is a variable of the interpreter.
#include "perfpass/error.hpp"
#include "tflite/schema.hpp"
#include "tflite/subgraph.hpp"

namespace perfpass::tflite {
namespace {

/// The operands of one direction of an LSTM: four gates each.
struct Direction {
  std::size_t inputs, recurrent, peephole, bias, projection;
};
constexpr std::array kDirections = {Direction{1, 5, 9, 12, 16}, Direction{18, 22, 26, 29, 33}};
constexpr std::size_t kLayerNorms = 20;  // of an LSTM in one direction

}  // namespace

void Subgraph::recurrent(const Operation& operation) {
  const bool both = builtins()[operation.code].form == Form::recurrent_both;
  const auto input = [&](std::size_t i) { return i < operation.inputs.size() ? operation.inputs[i] : -1; };
  const auto shape = [&](std::size_t i) {
    return input(i) < 0 ? std::span<const std::int64_t>() : tensors_[input(i)].shape;
  };
  Options options;
  const std::int64_t hidden = shape(1).size() == 2 ? shape(1)[0] : 0;
  const bool merged = both && operation.options.scalar<std::uint8_t>(rnn_both::kMerge) != 0;
  options.integer("hidden_size", hidden);
  options.integer("directions", both ? 2 : 1);
  options.integer("outputs", merged ? hidden * 2 : hidden);
  std::vector<Text> inputs;
  for (const std::size_t i : {0, 1, 2, 3}) inputs.push_back(operand(input(i)));
  if (both) {
    for (const std::size_t i : {5, 6, 7}) inputs.push_back(operand(input(i)));
  }
  finish(operation, kept(inputs), options);
}

void Subgraph::lstm(const Operation& operation) {
  const bool both = builtins()[operation.code].form == Form::lstm_both;
  const std::size_t directions = both ? 2 : 1;
  const auto input = [&](std::size_t i) { return i < operation.inputs.size() ? operation.inputs[i] : -1; };
  Options options;
  options.integer("directions", static_cast<std::int64_t>(directions));
  std::vector<Text> inputs{operand(input(0))};
  if (operation.inputs.size() < kLayerNorms) {  // the basic kernel: activation before, one matrix, bias, state before
    const std::int64_t last =
        operation.outputs.empty() || operation.outputs[0] < 0 || tensors_[operation.outputs[0]].shape.empty()
            ? 0
            : tensors_[operation.outputs[0]].shape.back();
    options.integer("hidden_size", last);
    options.integer("outputs", last);
    for (std::size_t i = 1; i < operation.inputs.size(); ++i) inputs.push_back(operand(input(i)));
    return finish(operation, kept(inputs), options);
  }
  std::int64_t cells = 0;
  // One constant of what four operands of every direction hold: [directions, gates x cells, columns].
  const auto gathered = [&](std::size_t first, bool is_matrix, std::int64_t& columns) -> Text {
    std::int64_t gates = 0;
    const Tensor* example = nullptr;
    for (std::size_t gate = 0; gate < 4; ++gate) {
      const std::int32_t number = input(first + gate);
      if (number < 0) continue;
      const Tensor& tensor = tensors_[tensors_[number].source >= 0 ? tensors_[number].source : number];
      if (!tensor.is_constant || tensor.shape.size() != (is_matrix ? 2U : 1U)) return {};
      example = &tensor;
      cells = tensor.shape[0];
      columns = is_matrix ? tensor.shape[1] : 0;
      ++gates;
    }
    if (example == nullptr) return {};
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(directions), gates * cells};
    if (is_matrix) shape.push_back(columns);
    return constant(example->name, example->dtype, shape, true);
  };
  std::int64_t fed = 0, outputs = 0, none = 0;
  const Text weights = gathered(kDirections[0].inputs, true, fed);
  const Text repeated = gathered(kDirections[0].recurrent, true, outputs);
  const Text bias = gathered(kDirections[0].bias, false, none);
  inputs.push_back(weights);
  inputs.push_back(repeated);
  inputs.push_back(bias);
  for (std::size_t direction = 0; direction < directions; ++direction) {
    const Direction& d = kDirections[direction];
    for (std::size_t i = d.peephole; i < d.peephole + 3; ++i) inputs.push_back(operand(input(i)));
    for (std::size_t i = d.projection; i < d.projection + 2; ++i) inputs.push_back(operand(input(i)));
  }
  if (!both) {
    for (std::size_t i = kLayerNorms; i < kLayerNorms + 4; ++i) inputs.push_back(operand(input(i)));
  }
  const bool merged = both && operation.options.scalar<std::uint8_t>(lstm_both::kMerge) != 0;
  options.integer("hidden_size", cells);
  options.integer("outputs", merged ? outputs * 2 : outputs);
  finish(operation, kept(inputs), options);
}

}  // namespace perfpass::tflite
