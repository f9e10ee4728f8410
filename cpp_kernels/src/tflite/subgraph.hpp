// One subgraph of a file: its tensors, and its nodes as they are translated.
#pragma once

#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "flatbuffer/table.hpp"
#include "onnx/attribute_list.hpp"
#include "onnx/model.hpp"
#include "onnx/name_table.hpp"
#include "tflite/operators.hpp"

namespace perfpass::tflite {

using flatbuffer::Extent;
using flatbuffer::Numbers;
using flatbuffer::References;
using flatbuffer::Table;
using onnx::Text;

/// How a constant is shown.
enum class View : std::uint8_t { unused, as_stored, outputs_first, depthwise, spatial_first, transposed, kernel_last };

struct Tensor {
  Text name;
  DType dtype = DType::undefined;
  std::span<const std::int64_t> shape;  // kUnknownDim where the file leaves it open
  Extent data;
  bool has_shape = false, is_constant = false, is_quantized = false;
  bool is_fed = false;       // an input of the subgraph, or an operator's output
  bool is_output = false;    // of the subgraph
  View view = View::unused;  // as which the constant is declared
  std::int32_t source = -1;  // the constant that this one is made of when the model is loaded
};

/// What all subgraphs share.
struct File {
  const flatbuffer::Source& source;
  const OnnxLimits& limits;
  std::pmr::memory_resource& arena;
  References codes, subgraphs, buffers;
  std::vector<std::size_t> builtins;  // of every operator code: the number of its builtin
};

/// The table of a subgraph. Error(format) where there is none of this number.
Table subgraph_table(const File& file, std::int64_t index);
/// The number of every operator code's builtin; past the last known one for what is newer than this reader.
std::vector<std::size_t> builtins_of(const References& codes);
/// The number of an operator's builtin. Error(format) where the file has no such code.
std::size_t builtin_of(const File& file, const Table& node);
/// The contents of a constant of one integer element.
std::optional<std::int64_t> integer_of(const File& file, const Table& subgraph, std::int32_t tensor);
/// How often a WHILE runs, where its condition compares a counter with a constant (control.cpp).
std::optional<std::int64_t> trips_of(const File& file, const Table& outer, const Table& node, std::int64_t condition,
                                     std::int64_t body);

class Subgraph {
 public:
  Subgraph(const File& file, std::int64_t index);

  /// Names for inputs and outputs by their signature. Before translate().
  void rename(std::int32_t tensor, Text name);
  void translate();

  std::span<const onnx::Node> nodes() const noexcept { return nodes_; }
  std::span<const onnx::Constant> constants() const noexcept { return constants_; }
  std::span<const onnx::ValueInfo> infos() const noexcept { return infos_; }
  std::span<const onnx::ValueInfo> inputs();
  std::span<const onnx::ValueInfo> outputs();
  std::span<const Text> input_names();
  std::span<const Text> output_names();

  /// Subgraphs that a node calls.
  const std::vector<std::int64_t>& called() const noexcept { return called_; }
  std::size_t folded() const noexcept { return folded_; }
  bool calls_once() const noexcept { return calls_once_; }
  std::size_t newer() const noexcept { return newer_; }

 private:
  using Names = std::span<const Text>;  // in the arena
  using Options = onnx::AttributeList;

  struct Operation {
    Table table, options;
    std::vector<std::int32_t> inputs, outputs;
    std::size_t code = 0;
    const Operator* op = nullptr;
    bool quantized = false;
  };

  // subgraph.cpp
  void read_tensors();
  [[noreturn]] void fail_number(std::int32_t number) const;
  std::int32_t tensor_number(std::int32_t number, bool may_be_absent) const {
    const bool is_known = number >= 0 && static_cast<std::size_t>(number) < tensors_.size();
    if (!is_known && (number != -1 || !may_be_absent)) fail_number(number);
    return number;
  }
  onnx::ValueInfo info_of(std::int32_t tensor) const;
  Text operand(std::int32_t tensor, View view = View::as_stored);
  std::span<Text> operands(const Operation& operation, std::size_t first = 0);
  std::span<Text> written(const Operation& operation, std::size_t least = 0) const;
  Names kept(std::initializer_list<Text> names) const;
  Names kept(const std::vector<Text>& names) const;
  Text constant(Text name, DType dtype, std::span<const std::int64_t> shape, bool is_weight);
  Text scalar(Text name, DType dtype, std::int64_t value);
  Text joined(Text name, std::string_view part);
  std::span<const std::int64_t> viewed(std::span<const std::int64_t> shape, View view) const;
  std::optional<std::span<const std::int64_t>> contents(std::int32_t tensor) const;
  std::span<const std::uint8_t> bytes_of(const Tensor& tensor) const;
  void emit(const Operator* op, Names inputs, Names outputs, const Options& options);
  void finish(const Operation& operation, Names inputs, const Options& options);

  // translate.cpp
  void translate(Operation& operation);
  bool is_quantized(const Operation& operation) const;
  void convolution(const Operation& operation);
  void transposed_convolution(const Operation& operation);
  void padding(const Table& table, unsigned slot, Options& options) const;
  void integers(Options& options, Text name, std::initializer_list<std::int64_t> values) const;
  void pooling(const Operation& operation);
  void dense(Operation& operation);
  void sliced(const Operation& operation);
  void moved(Operation& operation);
  void recurrent(const Operation& operation);
  void lstm(const Operation& operation);
  void dot_general(const Operation& operation);
  void stablehlo_convolution(const Operation& operation);
  void fold(const Operation& operation);
  void custom_operator(Operation& operation);
  void call(const Operation& operation, std::int64_t subgraph, Text name);
  void conditional(const Operation& operation);
  void loop(const Operation& operation);
  onnx::Node call_node(std::int64_t subgraph, Text name, std::span<const Text> inputs, std::span<const Text> outputs);

  const File& file_;
  Table table_;
  std::vector<Tensor> tensors_;
  onnx::NameTable names_{0};         // of the tensors, those that they had before included; of constants in other forms
  std::vector<std::int32_t> named_;  // the tensor that had a name last
  std::vector<std::int32_t> inputs_, outputs_;
  std::pmr::vector<onnx::Node> nodes_{&file_.arena};  // in the arena, where they stay when the subgraph goes
  std::pmr::vector<onnx::Constant> constants_{&file_.arena};
  std::pmr::vector<onnx::ValueInfo> infos_{&file_.arena};
  std::vector<std::int64_t> called_;
  std::size_t folded_ = 0, newer_ = 0, made_ = 0;
  bool calls_once_ = false;
};

/// The name of a subgraph as a function.
Text function_name(const File& file, std::int64_t subgraph);
constexpr Text kDomain = "tflite";
constexpr Text kFunctions = "tflite.subgraph";

}  // namespace perfpass::tflite
