#include "tflite/read.hpp"

#include <array>
#include <deque>
#include <map>

#include "perfpass/error.hpp"
#include "support/arena_list.hpp"
#include "support/text.hpp"
#include "tflite/schema.hpp"
#include "tflite/subgraph.hpp"

namespace perfpass::tflite {
namespace {

constexpr std::string_view kUsualSignature = "serving_default";
constexpr std::int64_t kOpset = 28;  // whose meaning If, Loop and shared rules of shapes have here
constexpr std::array kOpsets = {onnx::Opset{"", kOpset}, onnx::Opset{kDomain, kOpset}, onnx::Opset{kFunctions, kOpset}};

class Reader {
 public:
  Reader(const flatbuffer::Source& source, const OnnxLimits& limits, std::pmr::memory_resource& arena)
      : file_{source, limits, arena, {}, {}, {}, {}} {}

  onnx::Model read() {
    const Table root = flatbuffer::root(file_.source, "TFL3", "a TensorFlow Lite model");
    file_.codes = root.references(model::kOperatorCodes);
    file_.builtins = builtins_of(file_.codes);
    file_.subgraphs = root.references(model::kSubgraphs);
    file_.buffers = root.references(model::kBuffers);
    if (file_.subgraphs.size() == 0) {
      throw Error(ErrorCode::format, "the file has no subgraph; it is damaged, or holds no model");
    }
    signatures_ = root.references(model::kSignatures);
    Subgraph& main = subgraph(entry());
    auto& graph = arena_list<onnx::Graph>(file_.arena, 1)[0];
    main.translate();
    graph.nodes = main.nodes();
    graph.initializers = main.constants();
    graph.value_info = main.infos();
    graph.inputs = main.inputs();
    graph.outputs = main.outputs();

    onnx::Model result;
    result.functions = functions(main);
    result.graph = &graph;
    result.ir_version = 10;
    result.opsets = kOpsets;
    result.is_typed = true;
    result.notes = notes();
    return result;
  }

 private:
  /// The subgraph to read: that of the usual signature, else the first.
  std::int64_t entry() {
    for (std::size_t i = 0; i < signatures_.size(); ++i) {
      const Table signature = signatures_.table(i);
      if (signature.text(signature::kKey) != kUsualSignature) continue;
      chosen_ = i;
      return signature.scalar<std::uint32_t>(signature::kSubgraph);
    }
    for (std::size_t i = 0; i < signatures_.size() && !chosen_; ++i) {
      if (signatures_.table(i).scalar<std::uint32_t>(signature::kSubgraph) == 0) chosen_ = i;
    }
    return 0;
  }

  Subgraph& subgraph(std::int64_t index) {
    Subgraph& made = subgraphs_.emplace_back(file_, index);
    if (!chosen_ || subgraphs_.size() > 1) return made;
    const Table signature = signatures_.table(*chosen_);
    for (const unsigned side : {signature::kInputs, signature::kOutputs}) {
      const References entries = signature.references(side);
      for (std::size_t i = 0; i < entries.size(); ++i) {
        const Table entry = entries.table(i);
        made.rename(static_cast<std::int32_t>(entry.scalar<std::uint32_t>(signature::kTensor)),
                    entry.text(signature::kName));
      }
    }
    return made;
  }

  /// Every subgraph that is called, directly or by another, once.
  std::span<const onnx::Function> functions(const Subgraph& main) {
    std::map<std::int64_t, Subgraph*> found;
    std::deque<std::int64_t> open(main.called().begin(), main.called().end());
    while (!open.empty()) {
      const std::int64_t index = open.front();
      open.pop_front();
      if (found.contains(index)) continue;
      Subgraph& made = subgraph(index);
      found[index] = &made;
      made.translate();
      open.insert(open.end(), made.called().begin(), made.called().end());
    }
    const auto list = arena_list<onnx::Function>(file_.arena, found.size());
    std::size_t i = 0;
    for (const auto& [index, made] : found) {
      onnx::Function& function = list[i++];
      function.domain = kFunctions;
      function.name = function_name(file_, index);
      function.inputs = made->input_names();
      function.outputs = made->output_names();
      function.nodes = made->nodes();
      function.value_info = made->infos();
      function.initializers = made->constants();
    }
    return list;
  }

  std::span<const onnx::Note> notes() {
    std::vector<onnx::Note> list;
    const auto add = [&](const std::string& note) { list.push_back({arena_text(file_.arena, note)}); };
    std::size_t folded = 0, newer = 0;
    bool once = false;
    for (const Subgraph& part : subgraphs_) {
      folded += part.folded();
      newer += part.newer();
      once = once || part.calls_once();
    }
    if (folded > 0) {
      add(std::to_string(folded) +
          " constants are dequantized when the model is loaded, not in a run: they are shown "
          "as they are then");
    }
    if (once) add("a subgraph that is called once, when the model is loaded, is not counted");
    if (newer > 0) add(std::to_string(newer) + " operators are newer than the schema that is known here");
    if (signatures_.size() > 1 && chosen_) {
      std::string others;
      for (std::size_t i = 0; i < signatures_.size() && others.size() < 400; ++i) {
        if (i != *chosen_) others += (others.empty() ? "" : ", ") + quoted(signatures_.table(i).text(signature::kKey));
      }
      add("of several signatures " + quoted(signatures_.table(*chosen_).text(signature::kKey)) +
          " is read; the others are " + others);
    }
    return arena_copy(file_.arena, std::span<const onnx::Note>(list));
  }

  File file_;
  References signatures_;
  std::optional<std::size_t> chosen_;
  std::deque<Subgraph> subgraphs_;
};

}  // namespace

onnx::Model read_model(const flatbuffer::Source& file, const OnnxLimits& limits, std::pmr::memory_resource& arena) {
  return Reader(file, limits, arena).read();
}

}  // namespace perfpass::tflite
