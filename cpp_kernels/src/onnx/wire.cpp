// Messages and field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
//
// Every message is walked twice: once to count its repeated fields, once to fill lists of exactly that size (of a node,
// whose fields are few, they are kept from the first walk). Lists are then never grown in the arena, and a bound is
// checked before anything is allocated for what it bounds.
#include "onnx/wire.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>

#include "onnx/file.hpp"
#include "onnx/wire_tensor.hpp"
#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::onnx {
namespace {

// Lists of one node. The longest in real files are the inputs of a Concat or Loop (some thousands).
constexpr std::size_t kMaxNodeNames = 65'536;
constexpr std::size_t kMaxNodeAttributes = 1'024;
constexpr std::size_t kMaxFunctions = 65'536;
constexpr std::size_t kMaxOpsets = 64;
// Elements of an attribute's list (a Constant's value_ints, Pad's pads, tree ensembles with a number per leaf).
constexpr std::size_t kMaxAttributeList = 1 << 20;

std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

class ModelReader : TensorReader {
 public:
  ModelReader(const Excerpt& file, const OnnxLimits& limits, std::pmr::memory_resource& arena)
      : TensorReader(file, limits, arena) {}

  Model read() {
    Model model;
    std::size_t functions = 0;
    std::size_t opsets = 0;
    Bytes graph;
    bool has_graph = false;
    FieldReader count(file_.bytes(), file_);
    for (Field f; count.next(f);) {
      switch (f.number) {
        case 1:
          expect(count, f, Wire::varint, "ModelProto.ir_version");
          model.ir_version = as_signed(f.value);
          break;
        case 7:
          expect(count, f, Wire::bytes, "ModelProto.graph");
          if (has_graph) count.fail("has two graphs");
          has_graph = true;
          graph = f.payload;
          break;
        case 8:
          expect(count, f, Wire::bytes, "ModelProto.opset_import");
          ++opsets;
          break;
        case 25:
          expect(count, f, Wire::bytes, "ModelProto.functions");
          ++functions;
          break;
        default:
          break;
      }
    }
    if (file_.bytes().empty()) throw Error(ErrorCode::format, "the file is empty; an ONNX model was expected");
    if (!has_graph) {
      throw Error(ErrorCode::format,
                  "the file has no graph (ModelProto.graph is missing): it is not an ONNX model, or "
                  "was cut off before the graph");
    }
    bound(functions, kMaxFunctions, "functions in the model");
    bound(opsets, kMaxOpsets, "opset imports");
    auto opset_list = make<Opset>(opsets);
    auto function_list = make<Function>(functions);
    model.opsets = opset_list;
    model.functions = function_list;
    std::size_t o = 0;
    std::size_t n = 0;
    FieldReader fill(file_.bytes(), file_);
    for (Field f; fill.next(f);) {
      if (f.number == 8) fresh(opset_list, o) = opset(f.payload);
      if (f.number == 25) fresh(function_list, n) = function(f.payload);
    }
    model.graph = this->graph(graph, 0);
    return model;
  }

 private:
  Opset opset(Bytes message) const {
    Opset result{{}, 0};
    FieldReader reader(message, file_);
    for (Field f; reader.next(f);) {
      if (f.number == 1) result.domain = text(reader, f, "OperatorSetIdProto.domain");
      if (f.number == 2) {
        expect(reader, f, Wire::varint, "OperatorSetIdProto.version");
        result.version = as_signed(f.value);
      }
    }
    return result;
  }

  // ---- Graphs, nodes, functions

  const Graph* graph(Bytes message, int depth) {
    check_depth(depth);
    std::size_t nodes = 0, inputs = 0, outputs = 0, infos = 0, constants = 0;
    FieldReader count(message, file_);
    for (Field f; count.next(f);) {
      switch (f.number) {
        case 1:
          expect(count, f, Wire::bytes, "GraphProto.node");
          ++nodes;
          break;
        case 5:
          expect(count, f, Wire::bytes, "GraphProto.initializer");
          ++constants;
          break;
        case 11:
          expect(count, f, Wire::bytes, "GraphProto.input");
          ++inputs;
          break;
        case 12:
          expect(count, f, Wire::bytes, "GraphProto.output");
          ++outputs;
          break;
        case 13:
          expect(count, f, Wire::bytes, "GraphProto.value_info");
          ++infos;
          break;
        case 15:
          expect(count, f, Wire::bytes, "GraphProto.sparse_initializer");
          ++constants;
          break;
        default:
          break;
      }
    }
    count_nodes(nodes);
    // Names without nodes cost memory as well: graphs have about one declared value per node output.
    bound(constants, 2 * limits_.nodes, "initializers");
    bound(infos + inputs + outputs, 4 * limits_.nodes, "declared values");

    auto* result = &make_one<Graph>();
    auto node_list = make<Node>(nodes);
    auto input_list = make<ValueInfo>(inputs);
    auto output_list = make<ValueInfo>(outputs);
    auto info_list = make<ValueInfo>(infos);
    auto constant_list = make<Constant>(constants);
    result->nodes = node_list;
    result->inputs = input_list;
    result->outputs = output_list;
    result->value_info = info_list;
    result->initializers = constant_list;
    std::size_t n = 0, i = 0, o = 0, v = 0, c = 0;
    FieldReader fill(message, file_);
    for (Field f; fill.next(f);) {
      switch (f.number) {
        case 1:
          node(f.payload, fresh(node_list, n), depth);
          break;
        case 2:
          result->name = text(fill, f, "GraphProto.name");
          break;
        case 5: {
          Constant& made = fresh(constant_list, c);
          constant(f.payload, made);
          require_name(made.name, "an initializer");
          break;
        }
        case 11:
          value_info(f.payload, fresh(input_list, i));
          break;
        case 12:
          value_info(f.payload, fresh(output_list, o));
          break;
        case 13:
          value_info(f.payload, fresh(info_list, v));
          break;
        case 15: {
          Constant& made = fresh(constant_list, c);
          sparse_constant(f.payload, made);
          require_name(made.name, "a sparse initializer");
          break;
        }
        default:
          break;
      }
    }
    return result;
  }

  void count_nodes(std::size_t more) {
    nodes_ += more;
    if (nodes_ <= limits_.nodes) return;
    throw Error(ErrorCode::limit, "the model has " + std::to_string(nodes_) + " nodes or more; at most " +
                                      std::to_string(limits_.nodes) + " are allowed");
  }

  void node(Bytes message, Node& result, int depth) {
    constexpr std::size_t kKept = 24;  // a longer node is walked a second time
    struct Part {
      std::uint32_t number;
      Bytes::pointer at;
      std::size_t size;
    };
    Part kept[kKept];  // NOLINT: not initialised, since every node passes here
    std::size_t parts = 0, inputs = 0, outputs = 0, attributes = 0;
    FieldReader reader(message, file_);
    for (Field f; reader.next(f);) {
      switch (f.number) {
        case 1:
          text(reader, f, "NodeProto.input");
          ++inputs;
          break;
        case 2:
          text(reader, f, "NodeProto.output");
          ++outputs;
          break;
        case 3:
          result.name = text(reader, f, "NodeProto.name");
          continue;
        case 4:
          result.op_type = text(reader, f, "NodeProto.op_type");
          continue;
        case 5:
          expect(reader, f, Wire::bytes, "NodeProto.attribute");
          ++attributes;
          break;
        case 7:
          result.domain = domain(text(reader, f, "NodeProto.domain"));
          continue;
        case 8:
          result.overload = text(reader, f, "NodeProto.overload");
          continue;
        default:
          continue;
      }
      if (parts < kKept) kept[parts] = {f.number, f.payload.data(), f.payload.size()};
      ++parts;
    }
    bound(inputs, kMaxNodeNames, "inputs of one node");
    bound(outputs, kMaxNodeNames, "outputs of one node");
    bound(attributes, kMaxNodeAttributes, "attributes of one node");
    const std::span<Text> names = make<Text>(inputs + outputs);
    const auto attribute_list = make<Attribute>(attributes);
    result.inputs = names.first(inputs);
    result.outputs = names.subspan(inputs);
    result.attributes = attribute_list;
    std::size_t i = 0, o = inputs, a = 0;
    const auto place = [&](std::uint32_t number, Bytes payload) {
      if (number == 1) fresh(names, i) = view(payload);
      if (number == 2) fresh(names, o) = view(payload);
      if (number == 5) attribute(payload, fresh(attribute_list, a), depth);
    };
    if (parts <= kKept) {
      for (const Part& part : std::span(kept, parts)) place(part.number, {part.at, part.size});
    } else {
      FieldReader again(message, file_);
      for (Field f; again.next(f);) place(f.number, f.payload);
    }
    if (result.op_type.empty()) {
      throw Error(ErrorCode::format, "node " + quoted(result.name) + " has no op_type; the file is damaged");
    }
    if (result.outputs.empty()) {
      throw Error(ErrorCode::format, "node " + quoted(result.name) + " (" + escaped(result.op_type) +
                                         ") has no output; every ONNX node has one");
    }
  }

  /// "" and "ai.onnx" are one domain.
  static Text domain(Text name) { return name == "ai.onnx" ? Text{} : name; }

  Function function(Bytes message) {
    Function result;
    std::size_t inputs = 0, outputs = 0, attributes = 0, nodes = 0, infos = 0, opsets = 0;
    FieldReader count(message, file_);
    for (Field f; count.next(f);) {
      switch (f.number) {
        case 4:
          ++inputs;
          break;
        case 5:
          ++outputs;
          break;
        case 6:
          ++attributes;
          break;
        case 7:
          expect(count, f, Wire::bytes, "FunctionProto.node");
          ++nodes;
          break;
        case 9:
          expect(count, f, Wire::bytes, "FunctionProto.opset_import");
          ++opsets;
          break;
        case 11:
          expect(count, f, Wire::bytes, "FunctionProto.attribute_proto");
          ++attributes;
          break;
        case 12:
          expect(count, f, Wire::bytes, "FunctionProto.value_info");
          ++infos;
          break;
        default:
          break;
      }
    }
    bound(inputs, kMaxNodeNames, "inputs of one function");
    bound(outputs, kMaxNodeNames, "outputs of one function");
    bound(attributes, kMaxNodeAttributes, "attributes of one function");
    bound(opsets, kMaxOpsets, "opset imports");
    bound(infos, 4 * limits_.nodes, "declared values");
    count_nodes(nodes);
    auto input_list = make<Text>(inputs);
    auto output_list = make<Text>(outputs);
    auto attribute_list = make<Attribute>(attributes);
    auto node_list = make<Node>(nodes);
    auto info_list = make<ValueInfo>(infos);
    auto opset_list = make<Opset>(opsets);
    std::size_t i = 0, o = 0, a = 0, n = 0, v = 0, s = 0;
    FieldReader fill(message, file_);
    for (Field f; fill.next(f);) {
      switch (f.number) {
        case 1:
          result.name = text(fill, f, "FunctionProto.name");
          break;
        case 4:
          fresh(input_list, i) = text(fill, f, "FunctionProto.input");
          break;
        case 5:
          fresh(output_list, o) = text(fill, f, "FunctionProto.output");
          break;
        case 6:
          fresh(attribute_list, a).name = text(fill, f, "FunctionProto.attribute");
          break;
        case 7:
          node(f.payload, fresh(node_list, n), 0);
          break;
        case 9:
          fresh(opset_list, s) = opset(f.payload);
          break;
        case 10:
          result.domain = domain(text(fill, f, "FunctionProto.domain"));
          break;
        case 11:
          attribute(f.payload, fresh(attribute_list, a), 0);
          break;
        case 12:
          value_info(f.payload, fresh(info_list, v));
          break;
        case 13:
          result.overload = text(fill, f, "FunctionProto.overload");
          break;
        default:
          break;
      }
    }
    result.inputs = input_list;
    result.outputs = output_list;
    result.attributes = attribute_list;
    result.nodes = node_list;
    result.value_info = info_list;
    result.opsets = opset_list;
    return result;
  }

  // ---- Attributes

  void attribute(Bytes message, Attribute& result, int depth) {
    auto* known = known_attributes_.place(view(message));
    if (known != nullptr && known->message == view(message)) {
      result = known->value;
      return;
    }
    read_attribute(message, result, depth);
    // A graph is read each time: its nodes and its depth count.
    if (known != nullptr && result.graph == nullptr) *known = {view(message), result};
  }

  void read_attribute(Bytes message, Attribute& result, int depth) {
    using Kind = Attribute::Kind;
    std::int64_t declared = 0;
    Kind stored = Kind::none;
    std::size_t reals = 0, integers = 0, texts = 0;
    FieldReader count(message, file_);
    for (Field f; count.next(f);) {
      switch (f.number) {
        case 7:
          expect_list(count, f, Wire::fixed32, "AttributeProto.floats");
          each_number(f, file_, Wire::fixed32, [&](std::uint64_t) { ++reals; });
          break;
        case 8:
          expect_list(count, f, Wire::varint, "AttributeProto.ints");
          each_number(f, file_, Wire::varint, [&](std::uint64_t) { ++integers; });
          break;
        case 9:
          expect(count, f, Wire::bytes, "AttributeProto.strings");
          ++texts;
          break;
        case 20:
          expect(count, f, Wire::varint, "AttributeProto.type");
          declared = as_signed(f.value);
          break;
        default:
          break;
      }
    }
    bound(std::max({reals, integers, texts}), kMaxAttributeList, "elements in an attribute");
    auto real_list = make<double>(reals);
    auto integer_list = make<std::int64_t>(integers);
    auto text_list = make<Text>(texts);
    std::size_t r = 0, n = 0, t = 0;
    FieldReader fill(message, file_);
    for (Field f; fill.next(f);) {
      switch (f.number) {
        case 1:
          result.name = text(fill, f, "AttributeProto.name");
          break;
        case 21:
          result.reference = text(fill, f, "AttributeProto.ref_attr_name");
          break;
        case 2:
          expect(fill, f, Wire::fixed32, "AttributeProto.f");
          result.real = std::bit_cast<float>(static_cast<std::uint32_t>(f.value));
          stored = Kind::real;
          break;
        case 3:
          expect(fill, f, Wire::varint, "AttributeProto.i");
          result.integer = as_signed(f.value);
          stored = Kind::integer;
          break;
        case 4:
          expect(fill, f, Wire::bytes, "AttributeProto.s");
          // Compiled blobs and tokenizers are kept in such attributes: no operator's sizes depend on one that long.
          if (f.value <= limits_.string_bytes) result.text = view(f.payload);
          stored = Kind::text;
          break;
        case 5:
          expect(fill, f, Wire::bytes, "AttributeProto.t");
          if (stored != Kind::none) fill.fail("has an attribute with two values");
          result.tensor = tensor_attribute(f.payload);
          stored = Kind::tensor;
          break;
        case 6:
          expect(fill, f, Wire::bytes, "AttributeProto.g");
          if (stored != Kind::none) fill.fail("has an attribute with two values");
          result.graph = graph(f.payload, depth + 1);
          stored = Kind::graph;
          break;
        case 7:
          each_number(f, file_, Wire::fixed32, [&](std::uint64_t bits) {
            real_list[r++] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
          });
          stored = Kind::reals;
          break;
        case 8:
          each_number(f, file_, Wire::varint, [&](std::uint64_t value) { integer_list[n++] = as_signed(value); });
          stored = Kind::integers;
          break;
        case 9:
          expect(fill, f, Wire::bytes, "AttributeProto.strings");
          fresh(text_list, t) = f.value <= limits_.string_bytes ? view(f.payload) : Text{};
          stored = Kind::texts;
          break;
        case 10:
        case 11:
        case 14:
        case 15:
        case 22:
        case 23:
          stored = Kind::other;
          break;
        default:
          break;
      }
    }
    result.reals = real_list;
    result.integers = integer_list;
    result.texts = text_list;
    result.kind = kind(result.name, declared, stored);
    if (result.name.empty()) throw Error(ErrorCode::format, "an attribute has no name; the file is damaged");
  }

  /// The declared type where there is one (an empty list or a zero may be stored as nothing), else what is stored.
  static Attribute::Kind kind(Text name, std::int64_t declared, Attribute::Kind stored) {
    using Kind = Attribute::Kind;
    static constexpr std::array kKinds = {Kind::none,  Kind::real,  Kind::integer,  Kind::text, Kind::tensor,
                                          Kind::graph, Kind::reals, Kind::integers, Kind::texts};
    static constexpr std::array<const char*, 10> kNames = {"nothing", "FLOAT",  "INT",  "STRING",  "TENSOR",
                                                           "GRAPH",   "FLOATS", "INTS", "STRINGS", "another type"};
    if (declared <= 0) return stored;
    if (static_cast<std::size_t>(declared) >= kKinds.size()) return Kind::other;
    const Kind wanted = kKinds[static_cast<std::size_t>(declared)];
    if (stored != Kind::none && stored != wanted) {
      throw Error(ErrorCode::format, "attribute " + quoted(name) + " is declared as " +
                                         kNames[static_cast<std::size_t>(wanted)] + " and stores " +
                                         kNames[static_cast<std::size_t>(stored)] + "; the file is damaged");
    }
    return wanted;
  }

  const Constant* tensor_attribute(Bytes message) {
    Constant& made = make_one<Constant>();
    constant(message, made);
    return &made;
  }

  std::size_t nodes_ = 0;
  KnownMessages<Attribute> known_attributes_;
};

}  // namespace

Model read_model(const Excerpt& file, const OnnxLimits& limits, std::pmr::memory_resource& arena) {
  try {
    return ModelReader(file, limits, arena).read();
  } catch (const Error& e) {
    const std::string format = file.head().empty() ? "" : recognised_format(file.head());
    if (e.code() != ErrorCode::format || format.empty()) throw;
    throw Error(ErrorCode::format, "found " + format +
                                       ", expected an ONNX model or a file of another framework "
                                       "(docs/reference/formats.md lists what is read)");
  }
}

}  // namespace perfpass::onnx
