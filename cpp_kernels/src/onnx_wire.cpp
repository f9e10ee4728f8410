// Messages and field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
//
// Every message is walked twice: once to count its repeated fields, once to fill lists of exactly that size. Lists are
// then never grown in the arena, and a bound is checked before anything is allocated for what it bounds.
#include "onnx_wire.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>

#include "onnx_file.hpp"
#include "perfpass/error.hpp"
#include "protobuf_fields.hpp"

namespace perfpass::onnx {
namespace {

using Bytes = std::span<const std::uint8_t>;

// Lists of one node. The longest in real files are the inputs of a Concat or Loop (some thousands).
constexpr std::size_t kMaxNodeNames = 65'536;
constexpr std::size_t kMaxNodeAttributes = 1'024;
constexpr std::size_t kMaxFunctions = 65'536;
constexpr std::size_t kMaxOpsets = 1'024;
// Elements of an attribute's list (a Constant's value_ints, Pad's pads, tree ensembles with a number per leaf).
constexpr std::size_t kMaxAttributeList = 1 << 20;
// Floating and 8-bit constants decide shapes only as scales of Resize or bounds of Range; larger ones are weights.
constexpr std::int64_t kMaxRealConstant = 64;

/// TensorProto.DataType by number. Two- and six-bit types count as the next wider type of the core.
constexpr std::array kDataTypes = {DType::undefined,  DType::float32,  DType::uint8,  DType::int8,   DType::uint16,
                                   DType::int16,      DType::int32,    DType::int64,  DType::string, DType::boolean,
                                   DType::float16,    DType::float64,  DType::uint32, DType::uint64, DType::complex64,
                                   DType::complex128, DType::bfloat16, DType::float8, DType::float8, DType::float8,
                                   DType::float8,     DType::uint4,    DType::int4,   DType::float4, DType::float8,
                                   DType::uint4,      DType::int4,     DType::float8, DType::float8};

double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double value = 0.0;
  if (exponent == 31) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double bfloat_to_double(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// Bytes of the printable UTF-8 character that `text` begins with; 0 where it begins with none.
std::size_t utf8_length(Text text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead >= 0x20 && lead < 0x7f) return 1;
  const std::size_t length = lead >= 0xf0 && lead <= 0xf4 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Second bytes that would make an overlong form, a surrogate or a code point past U+10FFFF; C1 controls.
  const unsigned char second = byte(1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
      (lead == 0xf4 && second > 0x8f) || (lead == 0xc2 && second < 0xa0)) {
    return 0;
  }
  return length;
}

std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

/// Numbers of a repeated scalar field, packed or not, in order of appearance.
template <typename Visit>
void each_number(const Field& field, const std::uint8_t* origin, Wire element, Visit visit) {
  if (field.wire == element) {
    visit(field.value);
    return;
  }
  FieldReader reader(field.payload, origin);
  if (element == Wire::varint) {
    for (std::uint64_t value = 0; reader.next_packed_varint(value);) visit(value);
  } else if (element == Wire::fixed32) {
    for (std::uint64_t value = 0; reader.next_packed<std::uint32_t>(value);) visit(value);
  } else {
    for (std::uint64_t value = 0; reader.next_packed<std::uint64_t>(value);) visit(value);
  }
}

class ModelReader {
 public:
  ModelReader(Bytes bytes, const OnnxLimits& limits, std::pmr::memory_resource& arena)
      : bytes_(bytes), origin_(bytes.data()), limits_(limits), arena_(arena) {}

  Model read() {
    Model model;
    std::size_t functions = 0;
    std::size_t opsets = 0;
    Bytes graph;
    bool has_graph = false;
    FieldReader count(bytes_, origin_);
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
    if (bytes_.empty()) throw Error(ErrorCode::format, "the file is empty; an ONNX model was expected");
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
    FieldReader fill(bytes_, origin_);
    for (Field f; fill.next(f);) {
      if (f.number == 8) fresh(opset_list, o) = opset(f.payload);
      if (f.number == 25) fresh(function_list, n) = function(f.payload);
    }
    model.graph = this->graph(graph, 0);
    return model;
  }

 private:
  /// Room for n elements, not yet initialised: a file that claims a million nodes and fails at the first must not make
  /// a million nodes' memory resident.
  template <typename T>
  std::span<T> make(std::size_t n) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (n == 0) return {};
    return {static_cast<T*>(arena_.allocate(n * sizeof(T), alignof(T))), n};
  }

  template <typename T>
  T& make_one() {
    return *std::construct_at(make<T>(1).data());
  }

  /// The next element of a list from make, initialised.
  template <typename T>
  static T& fresh(std::span<T> list, std::size_t& i) {
    return *std::construct_at(&list[i++]);
  }

  static void require_name(Text name, const char* what) {
    if (name.empty()) throw Error(ErrorCode::format, std::string(what) + " has no name; the file is damaged");
  }

  static void expect(const FieldReader& reader, const Field& field, Wire wire, const char* name) {
    if (field.wire == wire) return;
    static constexpr std::array<const char*, 6> kNames = {"a varint", "a fixed64", "bytes", "", "", "a fixed32"};
    reader.fail(std::string("stores ") + name + " as " + kNames[static_cast<std::size_t>(field.wire)] + ", not as " +
                kNames[static_cast<std::size_t>(wire)]);
  }

  /// A repeated scalar: its own wire type, or packed bytes.
  static void expect_list(const FieldReader& reader, const Field& field, Wire wire, const char* name) {
    if (field.wire != Wire::bytes) expect(reader, field, wire, name);
  }

  static void bound(std::size_t found, std::size_t allowed, const std::string& what) {
    if (found <= allowed) return;
    throw Error(ErrorCode::limit,
                std::to_string(found) + " " + what + "; at most " + std::to_string(allowed) + " are allowed");
  }

  Text text(const FieldReader& reader, const Field& field, const char* name) const {
    expect(reader, field, Wire::bytes, name);
    if (field.payload.size() > limits_.string_bytes) {
      throw Error(ErrorCode::limit, std::string(name) + " of " + std::to_string(field.payload.size()) +
                                        " bytes; at most " + std::to_string(limits_.string_bytes) + " are allowed");
    }
    return view(field.payload);
  }

  static Text view(Bytes payload) { return {reinterpret_cast<const char*>(payload.data()), payload.size()}; }

  void check_depth(int depth) const {
    if (depth <= limits_.nesting) return;
    throw Error(ErrorCode::limit, "subgraphs or types nested more than " + std::to_string(limits_.nesting) +
                                      " deep; at most " + std::to_string(limits_.nesting) + " levels are allowed");
  }

  Opset opset(Bytes message) const {
    Opset result{{}, 0};
    FieldReader reader(message, origin_);
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
    FieldReader count(message, origin_);
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
    FieldReader fill(message, origin_);
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
    std::size_t inputs = 0, outputs = 0, attributes = 0;
    FieldReader count(message, origin_);
    for (Field f; count.next(f);) {
      if (f.number == 1) ++inputs;
      if (f.number == 2) ++outputs;
      if (f.number == 5) {
        expect(count, f, Wire::bytes, "NodeProto.attribute");
        ++attributes;
      }
    }
    bound(inputs, kMaxNodeNames, "inputs of one node");
    bound(outputs, kMaxNodeNames, "outputs of one node");
    bound(attributes, kMaxNodeAttributes, "attributes of one node");
    auto input_list = make<Text>(inputs);
    auto output_list = make<Text>(outputs);
    auto attribute_list = make<Attribute>(attributes);
    result.inputs = input_list;
    result.outputs = output_list;
    result.attributes = attribute_list;
    std::size_t i = 0, o = 0, a = 0;
    FieldReader fill(message, origin_);
    for (Field f; fill.next(f);) {
      switch (f.number) {
        case 1:
          fresh(input_list, i) = text(fill, f, "NodeProto.input");
          break;
        case 2:
          fresh(output_list, o) = text(fill, f, "NodeProto.output");
          break;
        case 3:
          result.name = text(fill, f, "NodeProto.name");
          break;
        case 4:
          result.op_type = text(fill, f, "NodeProto.op_type");
          break;
        case 5:
          attribute(f.payload, fresh(attribute_list, a), depth);
          break;
        case 7:
          result.domain = domain(text(fill, f, "NodeProto.domain"));
          break;
        case 8:
          result.overload = text(fill, f, "NodeProto.overload");
          break;
        default:
          break;
      }
    }
    if (result.op_type.empty()) {
      throw Error(ErrorCode::format, "node " + quoted(result.name) + " has no op_type; the file is damaged");
    }
    if (result.outputs.empty()) {
      throw Error(ErrorCode::format, "node " + quoted(result.name) + " (" + quoted(result.op_type) +
                                         ") has no output; every ONNX node has one");
    }
  }

  /// "" and "ai.onnx" are one domain.
  static Text domain(Text name) { return name == "ai.onnx" ? Text{} : name; }

  Function function(Bytes message) {
    Function result;
    std::size_t inputs = 0, outputs = 0, attributes = 0, nodes = 0, infos = 0, opsets = 0;
    FieldReader count(message, origin_);
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
    FieldReader fill(message, origin_);
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
    using Kind = Attribute::Kind;
    std::int64_t declared = 0;
    Kind stored = Kind::none;
    std::size_t reals = 0, integers = 0, texts = 0;
    FieldReader count(message, origin_);
    for (Field f; count.next(f);) {
      switch (f.number) {
        case 7:
          expect_list(count, f, Wire::fixed32, "AttributeProto.floats");
          each_number(f, origin_, Wire::fixed32, [&](std::uint64_t) { ++reals; });
          break;
        case 8:
          expect_list(count, f, Wire::varint, "AttributeProto.ints");
          each_number(f, origin_, Wire::varint, [&](std::uint64_t) { ++integers; });
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
    FieldReader fill(message, origin_);
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
          if (f.payload.size() <= limits_.string_bytes) result.text = view(f.payload);
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
          each_number(f, origin_, Wire::fixed32, [&](std::uint64_t bits) {
            real_list[r++] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
          });
          stored = Kind::reals;
          break;
        case 8:
          each_number(f, origin_, Wire::varint, [&](std::uint64_t value) { integer_list[n++] = as_signed(value); });
          stored = Kind::integers;
          break;
        case 9:
          expect(fill, f, Wire::bytes, "AttributeProto.strings");
          fresh(text_list, t) = f.payload.size() <= limits_.string_bytes ? view(f.payload) : Text{};
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

  // ---- Tensors

  const Constant* tensor_attribute(Bytes message) {
    Constant& made = make_one<Constant>();
    constant(message, made);
    return &made;
  }

  static DType data_type(std::uint64_t number, Text tensor) {
    if (number < kDataTypes.size()) return kDataTypes[static_cast<std::size_t>(number)];
    throw Error(ErrorCode::unsupported, "tensor " + quoted(tensor) + " has element type " + std::to_string(number) +
                                            "; known are 1 to " + std::to_string(kDataTypes.size() - 1));
  }

  std::span<const std::int64_t> dims(Bytes message, std::uint32_t number, const char* name) {
    std::array<std::int64_t, kMaxRank> found{};
    std::size_t rank = 0;
    FieldReader reader(message, origin_);
    for (Field f; reader.next(f);) {
      if (f.number != number) continue;
      expect_list(reader, f, Wire::varint, name);
      each_number(f, origin_, Wire::varint, [&](std::uint64_t value) {
        if (rank == kMaxRank) {
          throw Error(ErrorCode::limit, "a constant of rank " + std::to_string(rank + 1) + " or more; at most " +
                                            std::to_string(kMaxRank) + " dimensions are allowed");
        }
        found[rank++] = as_signed(value);
      });
    }
    auto list = make<std::int64_t>(rank);
    std::copy_n(found.begin(), rank, list.begin());
    return list;
  }

  void constant(Bytes message, Constant& result) {
    std::uint64_t type = 0;
    bool external = false;
    bool has_raw = false;
    Bytes raw;
    std::size_t typed = 0;  // fields of typed data lists
    std::array<std::int64_t, kMaxRank> shape{};
    std::size_t rank = 0;
    FieldReader reader(message, origin_);
    for (Field f; reader.next(f);) {
      switch (f.number) {
        case 1:
          expect_list(reader, f, Wire::varint, "TensorProto.dims");
          each_number(f, origin_, Wire::varint, [&](std::uint64_t value) {
            if (rank == kMaxRank) {
              throw Error(ErrorCode::limit, "a constant of more than " + std::to_string(kMaxRank) +
                                                " dimensions; at most " + std::to_string(kMaxRank) + " are allowed");
            }
            shape[rank++] = as_signed(value);
          });
          break;
        case 2:
          expect(reader, f, Wire::varint, "TensorProto.data_type");
          type = f.value;
          break;
        case 4:
        case 10:
          expect_list(reader, f, f.number == 4 ? Wire::fixed32 : Wire::fixed64, "TensorProto data");
          ++typed;
          break;
        case 5:
        case 7:
        case 11:
          expect_list(reader, f, Wire::varint, "TensorProto data");
          ++typed;
          break;
        case 8:
          result.name = text(reader, f, "TensorProto.name");
          break;
        case 9:
          expect(reader, f, Wire::bytes, "TensorProto.raw_data");
          raw = f.payload;
          has_raw = !raw.empty();
          break;
        case 14:
          expect(reader, f, Wire::varint, "TensorProto.data_location");
          external = f.value == 1;
          break;
        default:
          break;
      }
    }
    result.dtype = data_type(type, result.name);
    auto list = make<std::int64_t>(rank);
    std::copy_n(shape.begin(), rank, list.begin());
    result.shape = list;
    const std::int64_t elements = checked(result);
    if (external) return;  // where the data lies is nobody's business here
    if (has_raw) check_raw_size(result, elements, type, raw.size());
    if (typed + (has_raw ? 1 : 0) == 0 || elements > value_limit(result.dtype)) return;
    read_values(message, result, elements, type, raw);
  }

  static std::int64_t checked(const Constant& constant) {
    try {
      return checked_elements(constant.shape);
    } catch (const Error& e) {
      throw Error(e.code(), "constant " + quoted(constant.name) + ": " + e.what());
    }
  }

  /// A stored length that contradicts the shape betrays damage without a look at the data.
  static void check_raw_size(const Constant& constant, std::int64_t elements, std::uint64_t type, std::size_t found) {
    const bool narrow = type >= 25;  // two- and six-bit types are widened in kDataTypes
    if (constant.dtype == DType::string || constant.dtype == DType::undefined || narrow) return;
    const std::int64_t wanted = bytes_for(elements, bits_of(constant.dtype));
    if (wanted == static_cast<std::int64_t>(found)) return;
    throw Error(ErrorCode::format, "constant " + quoted(constant.name) + " needs " + std::to_string(wanted) +
                                       " bytes for its shape and stores " + std::to_string(found) +
                                       "; the file is damaged");
  }

  std::int64_t value_limit(DType dtype) const {
    const auto most = static_cast<std::int64_t>(limits_.shape_constant);
    switch (dtype) {
      case DType::int64:
      case DType::int32:
      case DType::uint32:
      case DType::uint64:
      case DType::boolean:
        return most;
      case DType::float32:
      case DType::float64:
      case DType::float16:
      case DType::bfloat16:
      case DType::int16:
      case DType::uint16:
      case DType::int8:
      case DType::uint8:
        return std::min(most, kMaxRealConstant);
      default:
        return -1;
    }
  }

  void read_values(Bytes message, Constant& constant, std::int64_t elements, std::uint64_t type, Bytes raw) {
    const auto n = static_cast<std::size_t>(elements);
    const bool real = is_floating(constant.dtype);
    auto reals = make<double>(real ? n : 0);
    auto integers = make<std::int64_t>(real ? 0 : n);
    std::size_t found = 0;
    const auto put_bits = [&](std::uint64_t bits, Wire wire) {
      if (found < n) {
        if (real) {
          reals[found] = real_value(constant.dtype, bits, wire);
        } else {
          integers[found] = as_signed(bits);
        }
      }
      ++found;
    };
    if (!raw.empty()) {
      const std::size_t width = static_cast<std::size_t>(bits_of(constant.dtype)) / 8;
      for (; found < n;) put_bits(raw_bits(constant.dtype, raw.subspan(found * width, width)), Wire::bytes);
    } else {
      FieldReader reader(message, origin_);
      for (Field f; reader.next(f);) {
        const Wire wire = f.number == 4 ? Wire::fixed32 : f.number == 10 ? Wire::fixed64 : Wire::varint;
        const bool is_data = f.number == 4 || f.number == 5 || f.number == 7 || f.number == 10 || f.number == 11;
        if (is_data) each_number(f, origin_, wire, [&](std::uint64_t bits) { put_bits(bits, wire); });
      }
    }
    if (found != n) {
      throw Error(ErrorCode::format, "constant " + quoted(constant.name) + " needs " + std::to_string(n) +
                                         " elements of type " + std::to_string(type) + " for its shape and stores " +
                                         std::to_string(found) + "; the file is damaged");
    }
    constant.has_values = true;
    constant.reals = reals;
    constant.integers = integers;
  }

  static std::uint64_t raw_bits(DType dtype, Bytes element) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, element.data(), element.size());
    const auto extend = [&](int width) {
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << (64 - width)) >> (64 - width));
    };
    if (dtype == DType::int32) return extend(32);
    if (dtype == DType::int16) return extend(16);
    if (dtype == DType::int8) return extend(8);
    return bits;
  }

  static double real_value(DType dtype, std::uint64_t bits, Wire wire) {
    if (wire == Wire::fixed32) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    switch (dtype) {
      case DType::float64:
        return std::bit_cast<double>(bits);
      case DType::float16:
        return half_to_double(static_cast<std::uint16_t>(bits));
      case DType::bfloat16:
        return bfloat_to_double(static_cast<std::uint16_t>(bits));
      default:
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    }
  }

  /// A sparse tensor counts as a dense constant of its full shape: that is how runtimes hold it.
  void sparse_constant(Bytes message, Constant& result) {
    FieldReader reader(message, origin_);
    for (Field f; reader.next(f);) {
      if (f.number != 1) continue;
      expect(reader, f, Wire::bytes, "SparseTensorProto.values");
      Constant values;
      constant(f.payload, values);
      result.name = values.name;
      result.dtype = values.dtype;
    }
    result.shape = dims(message, 3, "SparseTensorProto.dims");
    checked(result);
  }

  // ---- Declared values

  void value_info(Bytes message, ValueInfo& result) {
    FieldReader reader(message, origin_);
    Bytes type;
    for (Field f; reader.next(f);) {
      if (f.number == 1) result.name = text(reader, f, "ValueInfoProto.name");
      if (f.number == 2) {
        expect(reader, f, Wire::bytes, "ValueInfoProto.type");
        type = f.payload;
      }
    }
    require_name(result.name, "a graph input, output or declared value");
    this->type(type, result, 0);
  }

  void type(Bytes message, ValueInfo& result, int depth) {
    check_depth(depth);
    FieldReader reader(message, origin_);
    for (Field f; reader.next(f);) {
      switch (f.number) {
        case 1:
        case 8:  // tensor, sparse tensor
          expect(reader, f, Wire::bytes, "TypeProto.tensor_type");
          tensor_type(f.payload, result);
          break;
        case 4:
        case 5:  // sequence, map
          result.is_tensor = false;
          [[fallthrough]];
        case 9:  // an optional counts as present
          expect(reader, f, Wire::bytes, "TypeProto");
          element_type(f.payload, f.number == 5 ? 2 : 1, result, depth);
          break;
        default:
          break;
      }
    }
  }

  void element_type(Bytes message, std::uint32_t number, ValueInfo& result, int depth) {
    FieldReader reader(message, origin_);
    for (Field f; reader.next(f);) {
      if (f.number != number) continue;
      expect(reader, f, Wire::bytes, "TypeProto.elem_type");
      type(f.payload, result, depth + 1);
    }
  }

  void tensor_type(Bytes message, ValueInfo& result) {
    FieldReader reader(message, origin_);
    for (Field f; reader.next(f);) {
      if (f.number == 1) {
        expect(reader, f, Wire::varint, "TypeProto.Tensor.elem_type");
        result.dtype = data_type(f.value, result.name);
      }
      if (f.number == 2) {
        expect(reader, f, Wire::bytes, "TypeProto.Tensor.shape");
        shape(f.payload, result);
      }
    }
  }

  void shape(Bytes message, ValueInfo& result) {
    std::array<std::int64_t, kMaxRank> found{};
    std::array<Text, kMaxRank> symbols{};
    std::size_t rank = 0;
    bool named = false;
    FieldReader reader(message, origin_);
    for (Field f; reader.next(f);) {
      if (f.number != 1) continue;
      expect(reader, f, Wire::bytes, "TensorShapeProto.dim");
      if (rank == kMaxRank) {
        throw Error(ErrorCode::limit, "value " + quoted(result.name) + " has more than " + std::to_string(kMaxRank) +
                                          " dimensions; at most " + std::to_string(kMaxRank) + " are allowed");
      }
      found[rank] = kUnknownDim;
      FieldReader dim(f.payload, origin_);
      for (Field d; dim.next(d);) {
        if (d.number == 1) {
          expect(dim, d, Wire::varint, "TensorShapeProto.Dimension.dim_value");
          found[rank] = as_signed(d.value);
        }
        if (d.number == 2) {
          symbols[rank] = text(dim, d, "TensorShapeProto.Dimension.dim_param");
          named = named || !symbols[rank].empty();
          if (!symbols[rank].empty()) found[rank] = kUnknownDim;
        }
      }
      if (found[rank] < kUnknownDim) {  // some exporters write -1 for "unknown"
        throw Error(ErrorCode::limit, "value " + quoted(result.name) + " has a dimension of " +
                                          std::to_string(found[rank]) + "; dimensions must be 0 or more");
      }
      ++rank;
    }
    auto list = make<std::int64_t>(rank);
    std::copy_n(found.begin(), rank, list.begin());
    result.shape = list;
    result.has_shape = true;
    if (named) {
      auto names = make<Text>(rank);
      std::copy_n(symbols.begin(), rank, names.begin());
      result.symbols = names;
    }
  }

  Bytes bytes_;
  const std::uint8_t* origin_;
  const OnnxLimits& limits_;
  std::pmr::memory_resource& arena_;
  std::size_t nodes_ = 0;
};

}  // namespace

Model read_model(Bytes bytes, const OnnxLimits& limits, std::pmr::memory_resource& arena) {
  try {
    return ModelReader(bytes, limits, arena).read();
  } catch (const Error& e) {
    const std::string format = bytes.empty() ? "" : recognised_format(bytes);
    if (e.code() != ErrorCode::format || format.empty()) throw;
    throw Error(ErrorCode::format, "found " + format + ", expected an ONNX model");
  }
}

std::string escaped(Text text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) {
      const auto byte = static_cast<unsigned char>(text[i]);
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      result += text.substr(i, length);
    }
    i += std::max<std::size_t>(length, 1);
  }
  return result;
}

std::string quoted(Text text) {
  constexpr std::size_t kShown = 80;
  std::string result(1, '\'');
  result += escaped(text.substr(0, kShown));
  result += text.size() > kShown ? "...'" : "'";
  return result;
}

}  // namespace perfpass::onnx
