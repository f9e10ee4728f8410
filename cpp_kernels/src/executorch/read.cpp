// Tables and field numbers: https://github.com/pytorch/executorch/blob/main/schema/program.fbs
#include "executorch/read.hpp"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "executorch/nodes.hpp"
#include "perfpass/error.hpp"
#include "support/arena_list.hpp"
#include "support/text.hpp"

namespace perfpass::executorch {
namespace {

namespace program {
constexpr unsigned kPlans = 1, kInlineDelegates = 3, kSegments = 4;
constexpr unsigned kOffset = 0;  // of a segment
constexpr unsigned kData = 0;    // of an inline delegate
}  // namespace program
namespace plan {
constexpr unsigned kValues = 2, kInputs = 3, kOutputs = 4, kChains = 5, kOperators = 6, kDelegates = 7;
}
namespace value {
constexpr unsigned kKind = 0, kContent = 1;
constexpr std::uint8_t kInt = 2, kBool = 3, kTensor = 5, kIntList = 7, kTensorList = 10, kOptionalTensorList = 11;
}  // namespace value
namespace tensor {
constexpr unsigned kType = 0, kSizes = 2, kBuffer = 5, kAllocation = 6, kExtra = 9, kName = 1;
}
namespace instruction {
constexpr unsigned kKind = 0, kContent = 1, kIndex = 0, kArguments = 1;
constexpr std::uint8_t kKernel = 1, kDelegate = 2, kMove = 3, kJump = 4;
}  // namespace instruction
namespace delegate {
constexpr unsigned kId = 0, kData = 1, kLocation = 0, kIndex = 1;
}

/// ScalarType by number.
DType type_of(std::int8_t number, std::size_t index) {
  using enum DType;
  static constexpr std::array kTypes = {uint8,     int8,      int16,      int32,   int64,  float16, float32, float64,
                                        undefined, complex64, complex128, boolean, int8,   uint8,   int32,   bfloat16,
                                        uint4,     uint4,     uint8,      uint8,   uint8,  uint8,   uint16,  float8,
                                        float8,    float8,    float8,     uint16,  uint32, uint64};
  if (number >= 0 && static_cast<std::size_t>(number) < kTypes.size()) return kTypes[number];
  throw Error(ErrorCode::unsupported, "value " + std::to_string(index) + " has element type " + std::to_string(number) +
                                          ", which is not known");
}

struct Value {
  std::uint8_t kind = 0;
  Table content;
  Text name;  // of a tensor: under which it is read now; empty as long as nothing wrote it
  DType dtype = DType::undefined;
  std::span<const std::int64_t> shape;
};

class Reader {
 public:
  Reader(const flatbuffer::Source& file, const OnnxLimits& limits, std::pmr::memory_resource& arena)
      : file_(file), limits_(limits), arena_(arena), nodes_{arena, {}, {}, {}, {}} {}

  onnx::Model read() {
    root_ = flatbuffer::root(file_, "ET12", "an ExecuTorch program");
    const References plans = root_.references(program::kPlans);
    if (plans.size() == 0) throw Error(ErrorCode::format, "the program has no execution plan; it is damaged");
    plan_ = plans.table(0);
    if (plans.size() > 1) {
      nodes_.note("of " + std::to_string(plans.size()) + " methods " + quoted(plan_.text(0)) + " is read");
    }
    read_values();
    auto& graph = arena_list<onnx::Graph>(arena_, 1)[0];
    graph.inputs = inputs();
    const References chains = plan_.references(plan::kChains);
    operators_ = plan_.references(plan::kOperators);
    for (std::size_t i = 0; i < chains.size(); ++i) run(chains.table(i));
    graph.outputs = outputs();
    graph.nodes = arena_copy(arena_, std::span<const onnx::Node>(nodes_.nodes));
    graph.initializers = arena_copy(arena_, std::span<const onnx::Constant>(nodes_.constants));
    graph.value_info = arena_copy(arena_, std::span<const onnx::ValueInfo>(nodes_.infos));

    static constexpr std::array kOpsets = {onnx::Opset{"", 28}, onnx::Opset{kDomain, 28}};
    onnx::Model result;
    result.graph = &graph;
    result.ir_version = 10;
    result.opsets = kOpsets;
    result.is_typed = true;
    result.notes = arena_copy(arena_, std::span<const onnx::Note>(nodes_.notes));
    return result;
  }

 private:
  void read_values() {
    const References stored = plan_.references(plan::kValues);
    values_.resize(stored.size());
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const Table entry = stored.table(i);
      Value& found = values_[i];
      found.kind = entry.scalar<std::uint8_t>(value::kKind);
      found.content = entry.table(value::kContent);
      if (found.kind != value::kTensor) continue;
      found.dtype = type_of(found.content.scalar<std::int8_t>(tensor::kType), i);
      const auto sizes = found.content.numbers<std::int32_t>(tensor::kSizes);
      if (sizes.size() > kMaxRank) {
        throw Error(ErrorCode::limit, "value " + std::to_string(i) + " has " + std::to_string(sizes.size()) +
                                          " dimensions; at most " + std::to_string(kMaxRank) + " are allowed");
      }
      const auto shape = arena_list<std::int64_t>(arena_, sizes.size());
      for (std::size_t d = 0; d < shape.size(); ++d) {
        shape[d] = sizes[d];
        if (shape[d] < 0) {
          throw Error(ErrorCode::limit, "value " + std::to_string(i) + " has a dimension of " +
                                            std::to_string(shape[d]) + "; dimensions must be 0 or more");
        }
      }
      found.shape = shape;
    }
  }

  Value& value_of(std::int64_t index) {
    if (index >= 0 && index < static_cast<std::int64_t>(values_.size()))
      return values_[static_cast<std::size_t>(index)];
    throw Error(ErrorCode::format, "the plan names value " + std::to_string(index) + " of " +
                                       std::to_string(values_.size()) + "; the file is damaged");
  }

  Text fresh_name(const Value& of) {
    const auto index = static_cast<std::size_t>(&of - values_.data());
    return arena_text(arena_, "value " + std::to_string(index) + "#" + std::to_string(made_++));
  }

  std::span<const onnx::ValueInfo> inputs() {
    const auto numbers = plan_.numbers<std::int32_t>(plan::kInputs);
    std::vector<onnx::ValueInfo> list;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      Value& found = value_of(numbers[i]);
      if (found.kind != value::kTensor || !found.name.empty()) continue;
      found.name = arena_text(arena_, "input_" + std::to_string(i));
      onnx::ValueInfo& info = list.emplace_back();
      info.name = found.name;
      info.dtype = found.dtype;
      info.has_shape = true;
      info.shape = found.shape;
    }
    return arena_copy(arena_, std::span<const onnx::ValueInfo>(list));
  }

  std::span<const onnx::ValueInfo> outputs() {
    const auto numbers = plan_.numbers<std::int32_t>(plan::kOutputs);
    std::vector<onnx::ValueInfo> list;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (value_of(numbers[i]).kind != value::kTensor) continue;
      list.emplace_back().name = read_name(value_of(numbers[i]));
    }
    return arena_copy(arena_, std::span<const onnx::ValueInfo>(list));
  }

  /// A tensor as a node reads it. What nothing has written holds constants, or a state.
  Text read_name(Value& found) {
    if (!found.name.empty()) return found.name;
    const bool stored = found.content.scalar<std::uint32_t>(tensor::kBuffer) > 0 || found.content.has(tensor::kExtra);
    const Text given = found.content.table(tensor::kExtra).text(tensor::kName);
    found.name = fresh_name(found);
    if (!given.empty()) found.name = arena_text(arena_, std::string(given) + " (" + std::string(found.name) + ")");
    const bool is_weight = stored && !found.content.has(tensor::kAllocation);
    const bool quantized = found.dtype == DType::int8 || found.dtype == DType::uint8 || found.dtype == DType::uint4;
    nodes_.constant(found.name, found.dtype, found.shape, is_weight && quantized && !found.shape.empty(), !is_weight);
    return found.name;
  }

  Text written_name(Value& found) {
    found.name = fresh_name(found);
    nodes_.declare(found.name, found.dtype, found.shape);
    return found.name;
  }

  /// Tensors of an argument: itself, or those of its list.
  std::vector<Value*> tensors_of(std::int64_t index) {
    Value& found = value_of(index);
    if (found.kind == value::kTensor) return {&found};
    std::vector<Value*> list;
    if (found.kind != value::kTensorList && found.kind != value::kOptionalTensorList) return list;
    const auto items = found.content.numbers<std::int32_t>(0);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i] >= 0 && value_of(items[i]).kind == value::kTensor) list.push_back(&value_of(items[i]));
    }
    return list;
  }

  std::int64_t integer(std::span<const std::int32_t> arguments, std::size_t i, std::int64_t fallback) {
    if (i >= arguments.size()) return fallback;
    const Value& found = value_of(arguments[i]);
    if (found.kind == value::kInt) return found.content.scalar<std::int64_t>(0);
    return found.kind == value::kBool ? found.content.scalar<std::uint8_t>(0) : fallback;
  }

  std::span<const std::int64_t> integers(std::span<const std::int32_t> arguments, std::size_t i) {
    if (i >= arguments.size() || value_of(arguments[i]).kind != value::kIntList) return {};
    const auto items = value_of(arguments[i]).content.numbers<std::int64_t>(0);
    if (items.size() > kMaxRank) return {};
    const auto list = arena_list<std::int64_t>(arena_, items.size());
    for (std::size_t k = 0; k < list.size(); ++k) {
      const Value& item = value_of(items[k]);
      list[k] = item.kind == value::kInt ? item.content.scalar<std::int64_t>(0) : 0;
    }
    return list;
  }

  void run(const Table& chain) {
    const References instructions = chain.references(2);
    if (instructions.size() > limits_.nodes) {
      throw Error(ErrorCode::limit, "a plan of " + std::to_string(instructions.size()) + " instructions; at most " +
                                        std::to_string(limits_.nodes) + " are allowed");
    }
    bool jumps = false;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const Table entry = instructions.table(i);
      const Table content = entry.table(instruction::kContent);
      const auto kind = entry.scalar<std::uint8_t>(instruction::kKind);
      if (kind == instruction::kMove) {
        value_of(content.scalar<std::int32_t>(1)).name = value_of(content.scalar<std::int32_t>(0)).name;
      }
      jumps = jumps || kind == instruction::kJump;
      if (kind != instruction::kKernel && kind != instruction::kDelegate) continue;
      const auto stored = content.numbers<std::int32_t>(instruction::kArguments);
      std::vector<std::int32_t> arguments;
      for (std::size_t k = 0; k < stored.size(); ++k) arguments.push_back(stored[k]);
      const auto index = content.scalar<std::int32_t>(instruction::kIndex);
      if (kind == instruction::kKernel) {
        call(index, arguments);
      } else {
        delegate_call(index, arguments);
      }
    }
    if (jumps) nodes_.note("the plan has jumps: every instruction is counted once", true);
  }

  /// Arguments by the operator's schema, then what it writes: the outputs, and what it returns, which are the same.
  void call(std::int64_t index, std::span<const std::int32_t> arguments) {
    if (index < 0 || index >= static_cast<std::int64_t>(operators_.size()) || arguments.empty()) {
      throw Error(ErrorCode::format, "an instruction calls operator " + std::to_string(index) + " of " +
                                         std::to_string(operators_.size()) + "; the file is damaged");
    }
    const Text full = operators_.table(static_cast<std::size_t>(index)).text(0);
    const Text name = full.substr(full.rfind(':') == Text::npos ? 0 : full.rfind(':') + 1);
    const std::vector<Value*> results = tensors_of(arguments.back());
    const std::unordered_set<const Value*> among(results.begin(), results.end());
    const auto is_result = [&](std::int32_t argument) {
      const auto parts = tensors_of(argument);
      return argument == arguments.back() ||
             (!parts.empty() && std::all_of(parts.begin(), parts.end(), [&](Value* v) { return among.contains(v); }));
    };
    std::size_t given = arguments.size() - 1;
    while (given > 0 && is_result(arguments[given - 1])) --given;
    const auto read = arguments.first(given);
    std::vector<Text> inputs, outputs;
    for (const std::int32_t argument : read) {
      for (Value* part : tensors_of(argument)) inputs.push_back(read_name(*part));
    }
    const Operator* op = &aten_operator(name);
    const Options options = options_of(name, op, read, inputs);
    for (Value* part : results) outputs.push_back(written_name(*part));
    if (outputs.empty()) return;  // a size or a flag
    nodes_.add(op, name, inputs, outputs, options);
  }

  Options options_of(Text name, const Operator*& op, std::span<const std::int32_t> read, std::vector<Text>& inputs) {
    Options options;
    if (name == "convolution") {
      options.integers("stride", integers(read, 3));
      options.integers("padding", integers(read, 4));
      options.integers("dilation", integers(read, 5));
      if (integer(read, 6, 0) != 0) op = &entry_of(OpKind::conv_transpose);
      options.integer("groups", integer(read, 8, 1));
    } else if (op_class(op->kind) == OpClass::pooling) {
      options.integers("kernel", integers(read, 1));
      options.integers("stride", integers(read, 2).empty() ? integers(read, 1) : integers(read, 2));
      options.integers("padding", integers(read, 3));
      if (op->kind == OpKind::max_pool) options.integers("dilation", integers(read, 4));
    } else if (name == "addmm" && inputs.size() == 3) {
      std::rotate(inputs.begin(), inputs.begin() + 1, inputs.end());
    } else if (name == "linear") {
      options.integer("transpose_b", 1);
    } else if (name == "native_layer_norm") {
      options.integer("axis", -static_cast<std::int64_t>(std::max<std::size_t>(1, integers(read, 1).size())));
    } else if (const auto axes = integers(read, 1); !axes.empty() && op_class(op->kind) == OpClass::reduction) {
      options.integer("axis", axes.front());
    } else if (read.size() > 1 && value_of(read[1]).kind == value::kInt && op->kind != OpKind::reshape &&
               op_class(op->kind) != OpClass::elementwise) {
      options.integer("axis", integer(read, 1, 0));
    }
    return options;
  }

  void delegate_call(std::int64_t index, std::span<const std::int32_t> arguments) {
    const References delegates = plan_.references(plan::kDelegates);
    if (index < 0 || index >= static_cast<std::int64_t>(delegates.size())) {
      throw Error(ErrorCode::format, "an instruction calls delegate " + std::to_string(index) + " of " +
                                         std::to_string(delegates.size()) + "; the file is damaged");
    }
    const Table stored = delegates.table(static_cast<std::size_t>(index));
    const Text id = stored.text(delegate::kId);
    // What was written before, is fed or is constant is read; the rest is written.
    std::vector<Text> inputs, outputs, externals;
    for (const std::int32_t argument : arguments) {
      Value& found = value_of(argument);
      if (found.kind != value::kTensor) continue;
      const bool constant = found.content.scalar<std::uint32_t>(tensor::kBuffer) > 0;
      const bool is_read = !found.name.empty() || constant;
      externals.push_back(is_read ? read_name(found) : written_name(found));
      (is_read ? inputs : outputs).push_back(externals.back());
    }
    const Text prefix = arena_text(arena_, "delegate " + std::to_string(made_++) + "/");
    if (id == "XnnpackBackend" &&
        read_xnnpack(file_, data_of(stored.table(delegate::kData)), prefix, externals, nodes_)) {
      return;
    }
    if (outputs.empty()) return;
    nodes_.note("a part runs in the delegate " + quoted(id) + ", whose operators are not read");
    nodes_.add(&entry_of(OpKind::unknown), id.empty() ? Text("delegate") : id, inputs, outputs, {});
  }

  /// Where the bytes of a delegate begin: in a segment behind the program, or within it.
  std::uint64_t data_of(const Table& reference) {
    const auto index = reference.scalar<std::uint32_t>(delegate::kIndex);
    const bool in_segment = reference.scalar<std::int8_t>(delegate::kLocation) != 0;
    const References list = root_.references(in_segment ? program::kSegments : program::kInlineDelegates);
    if (index >= list.size()) {
      throw Error(ErrorCode::format, "a delegate's data is number " + std::to_string(index) + " of " +
                                         std::to_string(list.size()) + "; the file is damaged");
    }
    if (!in_segment) return list.table(index).bytes(program::kData).at;
    // Behind the first offset and the identifier: "eh00", its size, the program's size, where the segments begin.
    constexpr std::uint64_t kSegmentBase = 24;
    const auto base = flatbuffer::scalar_at<std::uint64_t>(file_.at(kSegmentBase, 8));
    const auto offset = list.table(index).scalar<std::uint64_t>(program::kOffset);
    if (base > file_.size() || offset > file_.size() - base) {
      throw Error(ErrorCode::format, "a segment lies behind the end of the file; it is cut short");
    }
    return base + offset;
  }

  const flatbuffer::Source& file_;
  const OnnxLimits& limits_;
  std::pmr::memory_resource& arena_;
  Nodes nodes_;
  Table root_, plan_;
  References operators_;
  std::vector<Value> values_;
  std::size_t made_ = 0;
};

}  // namespace

onnx::Model read_model(const flatbuffer::Source& file, const OnnxLimits& limits, std::pmr::memory_resource& arena) {
  return Reader(file, limits, arena).read();
}

}  // namespace perfpass::executorch
