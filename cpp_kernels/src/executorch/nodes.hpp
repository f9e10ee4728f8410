// What the plan and its delegates are made of: tensors that are declared, and nodes that read and write them.
#pragma once

#include <memory_resource>
#include <string>
#include <vector>

#include "flatbuffer/table.hpp"
#include "onnx/attribute_list.hpp"
#include "onnx/model.hpp"
#include "onnx/operators/operators.hpp"
#include "support/arena_list.hpp"

namespace perfpass::executorch {

using flatbuffer::Numbers;
using flatbuffer::References;
using flatbuffer::Table;
using onnx::Operator;
using onnx::Text;

constexpr Text kDomain = "executorch";

using Options = onnx::AttributeList;

struct Nodes {
  std::pmr::memory_resource& arena;
  std::vector<onnx::Node> nodes;
  std::vector<onnx::Constant> constants;
  std::vector<onnx::ValueInfo> infos;
  std::vector<onnx::Note> notes;

  void note(std::string_view text, bool counted_once = false) {
    notes.push_back({arena_text(arena, text), counted_once});
  }

  void add(const Operator* op, Text name, const std::vector<Text>& inputs, const std::vector<Text>& outputs,
           const Options& options);
  void declare(Text name, DType dtype, std::span<const std::int64_t> shape);
  void constant(Text name, DType dtype, std::span<const std::int64_t> shape, bool is_weight, bool is_literal);
};

/// The entry of an ATen operator by its name without namespace and overload; of kind unknown where there is none.
const Operator& aten_operator(Text name);
/// An entry of a kind, whose shapes are the declared ones.
const Operator& entry_of(OpKind kind);

/// One graph that XNNPACK runs: `header` is where it lies in the file, `externals` the tensors that it is called with.
/// False where the bytes are of another version.
bool read_xnnpack(const flatbuffer::Source& file, std::uint64_t header, Text prefix, std::span<const Text> externals,
                  Nodes& nodes);

}  // namespace perfpass::executorch
