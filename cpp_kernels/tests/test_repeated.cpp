// Readers that lower one operation of those that are alike: Core ML's programs and TensorRT's lists of layers.
#include "check.hpp"
#include "perfpass/engine_layers.hpp"
#include "perfpass/mil_program.hpp"

namespace {

using namespace perfpass;

std::string engine(int layers) {
  std::string text = R"({"Bindings": ["x\u001e", -1.5e+3, null, {}], "Layers": [)";
  for (int i = 0; i < layers; ++i) {
    const std::string read = i == 0 ? "x" : "t" + std::to_string(i - 1), written = "t" + std::to_string(i);
    const auto tensor = [](const std::string& name) {
      return R"({"Name": ")" + name + R"(", "Dimensions": [2, 3], "Format/Datatype": "FP16"})";
    };
    text += std::string(i == 0 ? "" : ",") + R"({"Name": "layer )" + std::to_string(i) + R"(", "LayerType": )" +
            (i % 2 == 0 ? R"("Even")" : R"("Odd")") + R"(, "Tactic": ")" + std::to_string(i) + R"(", "Inputs": [)" +
            tensor(read) + R"(], "Outputs": [)" + tensor(written) + "]}";
  }
  return text + "]}";
}

EngineMeaning meaning_of_engine(std::vector<std::string>* asked = nullptr) {
  EngineMeaning meaning;
  meaning.members = {"LayerType"};
  meaning.dtype = [](std::string_view format) { return format == "FP16" ? DType::float16 : DType::float32; };
  meaning.layer = [asked](const std::string& members, std::span<const EngineTensor> read,
                          std::span<const EngineTensor>) -> std::optional<EngineLayer> {
    if (asked != nullptr) asked->push_back(members);
    EngineLayer made;
    made.op = OpKind::relu;
    made.source = members.substr(0, 80);
    if (!read.empty()) made.weights.push_back({"weight", {DType::int8, {3, 3}}});
    return made;
  };
  return meaning;
}

TEST(engine_layers_are_lowered_once_for_every_signature) {
  std::vector<std::string> asked;
  const auto graph = read_engine_layers(engine(6), meaning_of_engine(&asked));
  CHECK(graph.has_value());
  if (!graph) return;
  CHECK(graph->node_count() == 6);
  CHECK(graph->tensor_count() == 13);
  CHECK(asked.size() == 2);
  CHECK(asked.front() == R"({"LayerType":"Even"})");
  CHECK(graph->strings.at(graph->tensor_name[2]) == "layer 0.weight");
}

TEST(engine_layers_that_are_cut_or_damaged_are_read_or_left) {
  const std::string whole = engine(2);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(!read_engine_layers(whole.substr(0, i), meaning_of_engine()).has_value());
    for (const char c : std::string("\"\\{}[],:0-e\x01\x7f\x80", 15)) {
      std::string damaged = whole;
      damaged[i] = c;
      try {
        read_engine_layers(damaged, meaning_of_engine());
      } catch (const Error& error) {
        CHECK(!std::string(error.what()).empty());
      }
    }
  }
}

std::string field(int number, const std::string& content) {
  std::string made(1, static_cast<char>(number << 3 | 2));
  std::size_t size = content.size();
  for (; size > 127; size >>= 7) made += static_cast<char>((size & 127) | 128);
  return made + static_cast<char>(size) + content;
}

std::string operation(const std::string& kind, const std::string& read, const std::string& written) {
  const std::string argument = field(1, "x") + field(2, field(1, field(1, read)) + field(1, field(2, "\x08\x01")));
  return field(3, field(1, kind) + field(2, argument) + field(3, field(1, written) + field(2, "t")));
}

std::string block(int operations) {
  std::string made = field(3, field(1, "const") + field(3, field(1, "c") + field(2, "t")) +
                                  field(5, field(1, "val") + field(2, field(3, "numbers"))));
  std::string last = "x";
  for (int i = 0; i < operations; ++i) {
    const std::string next = "y" + std::to_string(i);
    made += operation(i % 2 == 0 ? "relu" : "same", i == 2 ? "c" : last, next);
    last = next;
  }
  return made + field(2, last);
}

std::optional<OpGraph> read_block(const std::string& text, std::vector<std::size_t>* asked = nullptr) {
  MilMeaning meaning;
  meaning.value = [](MilSpan, bool is_constant, std::optional<MilSpan>) {
    return MilValue{DType::float32, {2}, is_constant ? TensorRole::weight : TensorRole::activation};
  };
  meaning.operation = [&](MilSpan span, std::span<const MilRead> read) -> std::optional<MilLowered> {
    if (asked != nullptr) asked->push_back(span.end - span.begin);
    MilLowered made;
    if (text.substr(span.begin, span.end - span.begin).find("same") != std::string::npos) {
      if (read.empty()) return std::nullopt;
      made.same_as = 0;
      return made;
    }
    made.op = OpKind::relu;
    if (!read.empty()) made.inputs.push_back(0);
    made.inputs.push_back(-2);
    made.constants.push_back({DType::float32, {2}, TensorRole::weight});
    return made;
  };
  FieldBudget budget(10'000, "program");
  const std::vector<MilInput> inputs = {{"x", {DType::float32, {2}, TensorRole::input}}};
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  return read_mil_block(bytes, {0, text.size()}, budget, inputs, meaning);
}

TEST(mil_operations_are_lowered_once_for_every_signature) {
  std::vector<std::size_t> asked;
  const auto graph = read_block(block(9), &asked);
  CHECK(graph.has_value());
  if (!graph) return;
  CHECK(graph->node_count() == 5);  // what only passes on is no operator
  CHECK(asked.size() == 4);         // of an input, of a constant, of what another wrote; one that passes on
}

TEST(mil_blocks_that_are_cut_or_damaged_are_read_or_left) {
  const std::string whole = block(4);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int value : {0, 1, 10, 18, 26, 127, 128, 255}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(value);
      for (const std::string& text : {damaged, whole.substr(0, i)}) {
        try {
          read_block(text);
        } catch (const Error& error) {
          CHECK(!std::string(error.what()).empty());
        }
      }
    }
  }
}

}  // namespace
