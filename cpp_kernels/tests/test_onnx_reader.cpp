#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory_resource>
#include <unordered_set>

#include "check.hpp"
#include "onnx/file.hpp"
#include "onnx/name_table.hpp"
#include "onnx/wire.hpp"
#include "onnx_message.hpp"
#include "perfpass/onnx_reader.hpp"
#include "support/text.hpp"

namespace {

using namespace perfpass;
using namespace perfpass::testing;

struct Parsed {
  std::pmr::monotonic_buffer_resource arena;
  std::string bytes;
  onnx::Model model;

  explicit Parsed(std::string serialized, const OnnxLimits& limits = {}) : bytes(std::move(serialized)) {
    model = onnx::read_model(as_bytes(bytes), limits, arena);
  }
};

std::string relu_graph(const std::string& more = "") {
  return bytes(1, node("Relu", {"x"}, {"y"})) + bytes(11, value("x", {2, 3})) + bytes(12, value("y", {2, 3})) + more;
}

TEST(lists_are_read_packed_and_unpacked_alike) {
  const std::string packed = bytes(1, "axes") + bytes(8, varint(3) + varint(300)) + number(20, 7);
  const std::string unpacked = bytes(1, "axes") + number(8, 3) + number(8, 300) + number(20, 7);
  for (const std::string& attribute : {packed, unpacked}) {
    const Parsed parsed(model(bytes(1, node("Relu", {"x"}, {"y"}, bytes(5, attribute)))));
    const onnx::Attribute& read = parsed.model.graph->nodes[0].attributes[0];
    CHECK(read.kind == onnx::Attribute::Kind::integers);
    CHECK_EQUAL(read.integers.size(), std::size_t{2});
    CHECK_EQUAL(read.integers[1], 300);
  }
}

TEST(a_node_is_read_alike_however_many_its_fields_are_and_in_whatever_order) {
  for (const int inputs : {1, 2, 20, 23, 24, 25, 200}) {
    std::string fields = bytes(2, "y0") + bytes(5, bytes(1, "axis") + number(3, -2)) + bytes(4, "Concat");
    for (int i = 0; i < inputs; ++i) fields += bytes(1, "x" + std::to_string(i));
    fields += bytes(3, "name") + bytes(2, "y1") + bytes(5, bytes(1, "more") + number(3, 7));
    const Parsed parsed(model(bytes(1, fields)));
    const onnx::Node& read = parsed.model.graph->nodes[0];
    CHECK_EQUAL(read.inputs.size(), static_cast<std::size_t>(inputs));
    for (int i = 0; i < inputs; ++i) CHECK_EQUAL(read.inputs[static_cast<std::size_t>(i)], "x" + std::to_string(i));
    CHECK_EQUAL(read.outputs.size(), std::size_t{2});
    CHECK_EQUAL(read.outputs[0], "y0");
    CHECK_EQUAL(read.outputs[1], "y1");
    CHECK_EQUAL(read.attributes.size(), std::size_t{2});
    CHECK_EQUAL(read.attributes[0].integer, -2);
    CHECK_EQUAL(read.attributes[1].integer, 7);
    CHECK_EQUAL(read.op_type, "Concat");
    CHECK_EQUAL(read.name, "name");
  }
}

TEST(a_byte_that_is_not_printable_is_escaped_wherever_it_stands_in_a_name) {
  for (std::size_t size = 1; size <= 40; ++size) {
    for (std::size_t at = 0; at <= size; ++at) {
      for (const char byte : {'\x1f', '\x7f', '\xc1'}) {
        std::string name(size, 'y');
        if (at < size) name[at] = byte;
        const OpGraph graph = read_onnx_bytes(as_bytes(
            model(bytes(1, node("Relu", {"x"}, {name})) + bytes(11, value("x", {2})) + bytes(12, value(name, {2})))));
        CHECK_EQUAL(graph.strings.at(graph.tensor_name[graph.graph_outputs[0]]), escaped(name));
      }
    }
  }
}

TEST(names_that_differ_in_one_byte_have_hashes_that_differ) {
  for (std::size_t size = 1; size <= 70; ++size) {
    const std::string name(size, 'a');
    CHECK(onnx::NameTable::hash(name) != onnx::NameTable::hash(name + 'a'));
    for (std::size_t at = 0; at < size; ++at) {
      std::string other = name;
      other[at] = 'b';
      CHECK(onnx::NameTable::hash(name) != onnx::NameTable::hash(other));
    }
  }
}

TEST(no_word_of_a_name_makes_the_rest_of_it_count_for_nothing) {
  // The constants of the hash, which stand in its source for all to read.
  for (const std::uint64_t word : {0xd6e8feb86659fd93ULL, 0xa3b195354a39b70dULL}) {
    std::string chosen(sizeof word, '\0');
    std::memcpy(chosen.data(), &word, sizeof word);
    for (const std::string& behind : {std::string(), std::string("tail"), std::string(40, 'a')}) {
      std::unordered_set<std::uint32_t> hashes;
      for (int i = 0; i < 100; ++i) {
        hashes.insert(onnx::NameTable::hash(std::to_string(10'000'000 + i) + chosen + behind));
      }
      CHECK_EQUAL(hashes.size(), std::size_t{100});
    }
  }
}

TEST(an_attribute_without_a_declared_type_is_what_it_stores) {
  const Parsed parsed(model(bytes(1, node("Gather", {"x"}, {"y"}, bytes(5, bytes(1, "axis") + number(3, -2))))));
  const onnx::Attribute& read = parsed.model.graph->nodes[0].attributes[0];
  CHECK(read.kind == onnx::Attribute::Kind::integer);
  CHECK_EQUAL(read.integer, -2);
}

TEST(small_integers_are_read_from_raw_and_typed_data) {
  const std::array<std::int64_t, 2> expected{-1, 7};
  std::string raw(16, '\0');
  std::memcpy(raw.data(), expected.data(), 16);
  const std::string head = number(1, 2) + number(2, 7) + bytes(8, "c");
  for (const std::string& data : {bytes(9, raw), number(7, -1) + number(7, 7), bytes(7, varint(~0ULL) + varint(7))}) {
    const Parsed parsed(model(relu_graph(bytes(5, head + data))));
    const onnx::Constant& constant = parsed.model.graph->initializers[0];
    CHECK(constant.has_values);
    CHECK_EQUAL(constant.integers[0], -1);
    CHECK_EQUAL(constant.integers[1], 7);
  }
}

TEST(half_precision_constants_have_their_values) {
  // 1.5 in float16 (0x3e00) and bfloat16 (0x3fc0)
  for (const auto& [type, bits] : {std::pair{10, "\x00\x3e"}, std::pair{16, "\xc0\x3f"}}) {
    const Parsed parsed(
        model(relu_graph(bytes(5, number(2, type) + bytes(8, "c") + bytes(9, std::string_view(bits, 2))))));
    CHECK_EQUAL(parsed.model.graph->initializers[0].reals[0], 1.5);
  }
}

TEST(large_and_external_constants_have_a_shape_and_no_values) {
  const std::string large =
      number(1, 100) + number(1, 100) + number(2, 7) + bytes(8, "l") + bytes(9, std::string(80'000, 'a'));
  const std::string external =
      number(1, 5) + number(2, 7) + bytes(8, "e") + bytes(13, bytes(1, "location")) + number(14, 1);
  const Parsed parsed(model(relu_graph(bytes(5, large) + bytes(5, external))));
  for (const onnx::Constant& constant : parsed.model.graph->initializers) CHECK(!constant.has_values);
  CHECK_EQUAL(parsed.model.graph->initializers[1].shape[0], 5);
}

TEST(names_in_messages_are_printable_and_short) {
  CHECK_EQUAL(quoted("conv"), "'conv'");
  CHECK_EQUAL(quoted("a\xff\n"), "'a\\xff\\x0a'");
  CHECK_EQUAL(quoted("\xc3\xa9"), "'\xc3\xa9'");             // a character of two bytes
  CHECK_EQUAL(quoted("\xc0\xaf"), "'\\xc0\\xaf'");           // an overlong form
  CHECK_EQUAL(quoted("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");  // a surrogate
  CHECK_EQUAL(quoted(std::string(500, 'n')).size(), std::size_t{85});
}

TEST(the_name_table_keeps_every_name_while_it_grows) {
  onnx::NameTable table(2);
  std::vector<std::string> names;
  for (int i = 0; i < 5000; ++i) names.push_back("tensor_" + std::to_string(i));
  for (std::uint32_t i = 0; i < names.size(); ++i) CHECK_EQUAL(table.insert(names[i]).first, i);
  for (std::uint32_t i = 0; i < names.size(); ++i) CHECK_EQUAL(table.find(names[i]), i);
  CHECK(!table.insert("tensor_7").second);
  CHECK_EQUAL(table.find("tensor_5000"), onnx::NameTable::kAbsent);
}

TEST(interned_strings_keep_their_ids) {
  StringPool pool;
  CHECK_EQUAL(pool.intern(""), 0);
  const std::int32_t first = pool.intern("a");
  for (int i = 0; i < 1000; ++i) pool.intern("name" + std::to_string(i));
  CHECK_EQUAL(pool.intern("a"), first);
  CHECK_EQUAL(pool.at(pool.intern("name77")), "name77");
  CHECK_EQUAL(pool.size(), std::size_t{1002});
}

TEST(a_symbolic_dimension_takes_its_value_or_is_named_in_the_error) {
  const std::string bytes_ = model(bytes(1, node("Relu", {"x"}, {"y"})) + bytes(11, value("x", {-1, 3}, "seq")) +
                                   bytes(12, value("y", {-1, 3}, "seq")));
  CHECK_ERROR(read_onnx_bytes(as_bytes(bytes_)), ErrorCode::shape, "--dim seq=N");
  OnnxOptions options;
  options.dims["seq"] = 5;
  const OpGraph graph = read_onnx_bytes(as_bytes(bytes_), options);
  CHECK_EQUAL(graph.shape(graph.graph_outputs[0])[0], 5);
  options.dims["sequence"] = 5;
  CHECK_ERROR(read_onnx_bytes(as_bytes(bytes_), options), ErrorCode::argument, "'sequence'");
  options.dims = {{"seq", 5}};
  options.batch = 6;
  CHECK_ERROR(read_onnx_bytes(as_bytes(bytes_), options), ErrorCode::shape, "give one value");
}

TEST(a_declared_shape_that_contradicts_the_operator_is_refused) {
  const auto relu = [](std::initializer_list<std::int64_t> declared) {
    return model(bytes(1, node("Relu", {"x"}, {"h"})) + bytes(1, node("Exp", {"h"}, {"y"})) +
                 bytes(11, value("x", {2, 3})) + bytes(12, value("y", {2, 3})) + bytes(13, value("h", declared)));
  };
  for (const auto& wrong : {relu({1, 1}), relu({2, 3, 1}), relu({-1, 4})}) {
    CHECK_ERROR(read_onnx_bytes(as_bytes(wrong)), ErrorCode::shape, "tensor 'h': the file declares [");
  }
  const std::string loose = relu({-1, 3});
  const OpGraph graph = read_onnx_bytes(as_bytes(loose));
  CHECK_EQUAL(graph.shape(graph.node_outputs(0)[0])[0], 2);
}

TEST(a_placeholder_is_no_symbol) {
  const std::string bytes_ = model(bytes(1, node("Relu", {"x"}, {"y"})) + bytes(11, value("x", {-1, -1}, "?")) +
                                   bytes(12, value("y", {-1, -1}, "?")));
  OnnxOptions options;
  options.dims = {{"x:0", 5}, {"x:1", 6}};
  const OpGraph graph = read_onnx_bytes(as_bytes(bytes_), options);
  CHECK_EQUAL(graph.shape(graph.graph_outputs[0])[1], 6);
  CHECK_ERROR(read_onnx_bytes(as_bytes(bytes_)), ErrorCode::shape, "--dim x:0=N --dim x:1=N");
}

TEST(nodes_in_the_wrong_order_are_sorted) {
  const std::string bytes_ = model(bytes(1, node("Exp", {"h"}, {"y"})) + bytes(1, node("Relu", {"x"}, {"h"})) +
                                   bytes(11, value("x", {4})) + bytes(12, value("y", {4})));
  const OpGraph graph = read_onnx_bytes(as_bytes(bytes_));
  CHECK(graph.op[0] == OpKind::relu);
  CHECK_EQUAL(graph.edge_count(), std::size_t{1});
}

TEST(other_formats_are_called_by_their_name) {
  CHECK_EQUAL(onnx::recognised_format(as_bytes(std::string("\xff\xd8\xff\xe0", 4))), "a JPEG image");
  CHECK_EQUAL(onnx::recognised_format(as_bytes(std::string("\x08\x07\x12\x07pytorch", 11))), "");
}

/// Bytes as an open file in memory.
class OpenFile {
 public:
  explicit OpenFile(const std::string& bytes) : descriptor_(::memfd_create("model", 0)) {
    CHECK_EQUAL(::pwrite(descriptor_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// 1 MiB of weights between two nodes' worth of structure, and a shape constant that must be kept.
std::string weighted_model() {
  const std::string weight =
      number(1, 512) + number(1, 512) + number(2, 1) + bytes(8, "w") + bytes(9, std::string(1 << 20, 'w'));
  const std::string target = number(1, 2) + number(2, 7) + bytes(8, "t") + number(7, 512) + number(7, -1);
  return model(bytes(1, node("MatMul", {"x", "w"}, {"h"})) + bytes(5, weight) + bytes(5, target) +
               bytes(1, node("Reshape", {"h", "t"}, {"y"})) + bytes(11, value("x", {8, 512})) +
               bytes(12, value("y", {})));
}

OnnxLimits skimming() {
  OnnxLimits limits;
  limits.whole_file = 0;
  return limits;
}

TEST(tensor_data_of_a_skimmed_file_is_not_copied) {
  const std::string serialized = weighted_model();
  const OpenFile open(serialized);
  const onnx::ModelFile file(open.descriptor(), serialized.size(), "model.onnx", skimming());
  CHECK(file.excerpt().has_gaps());
  CHECK_EQUAL(file.excerpt().bytes().size(), serialized.size() - (1 << 20));
  std::pmr::monotonic_buffer_resource arena;
  const onnx::Excerpt excerpt = file.excerpt();
  const onnx::Model read = onnx::read_model(excerpt, {}, arena);
  CHECK_EQUAL(read.graph->nodes.size(), std::size_t{2});
  CHECK(!read.graph->initializers[0].has_values);
  CHECK_EQUAL(read.graph->initializers[1].integers[0], 512);
}

TEST(errors_in_a_skimmed_file_tell_places_in_the_file) {
  std::string serialized = weighted_model();
  serialized += "\x0f";  // wire type 7 behind the weights
  const OpenFile open(serialized);
  const onnx::ModelFile file(open.descriptor(), serialized.size(), "model.onnx", skimming());
  std::pmr::monotonic_buffer_resource arena;
  CHECK_ERROR(onnx::read_model(file.excerpt(), {}, arena), ErrorCode::format,
              "wire type 7, which ONNX does not use (at byte " + std::to_string(serialized.size() - 1) + ")");
}

TEST(a_weight_cut_off_in_a_skimmed_file_is_a_format_error) {
  const std::string serialized = weighted_model().substr(0, 700'000);
  const OpenFile open(serialized);
  const onnx::ModelFile file(open.descriptor(), serialized.size(), "model.onnx", skimming());
  std::pmr::monotonic_buffer_resource arena;
  CHECK_ERROR(onnx::read_model(file.excerpt(), {}, arena), ErrorCode::format, "where 699");
}

TEST(a_file_that_shrinks_while_it_is_read_is_an_error) {
  const std::string serialized = weighted_model();
  const OpenFile open(serialized);
  CHECK(::ftruncate(open.descriptor(), 500'000) == 0);
  const auto read = [&](const OnnxLimits& limits) {
    const onnx::ModelFile file(open.descriptor(), serialized.size(), "model.onnx", limits);
  };
  CHECK_ERROR(read({}), ErrorCode::io, "ends now at byte 500000");
  CHECK_ERROR(read(skimming()), ErrorCode::io, "another program is writing it");
}

}  // namespace
