// Shape inference of single ONNX operators on hand-built nodes: table, attributes, contents, limits, rebound batches.
#include <limits>
#include <memory_resource>
#include <vector>

#include "check.hpp"
#include "onnx/operators/operators.hpp"

namespace {

using namespace perfpass;
using namespace perfpass::onnx;
using Integers = std::vector<std::int64_t>;

/// A node with its inputs; texts and lists live as long as the object.
class Case {
 public:
  explicit Case(Text op_type, std::int64_t opset = 21, Text domain = "") : opset_(opset) {
    node_.op_type = op_type;
    node_.domain = domain;
    node_.name = "n";
  }

  Case& with(Text name, std::int64_t value) {
    Attribute a;
    a.name = name;
    a.kind = Attribute::Kind::integer;
    a.integer = value;
    attributes_.push_back(a);
    return *this;
  }

  Case& with(Text name, Integers values) {
    Attribute a;
    a.name = name;
    a.kind = Attribute::Kind::integers;
    a.integers = keep(std::move(values));
    attributes_.push_back(a);
    return *this;
  }

  Case& with(Text name, Text value) {
    Attribute a;
    a.name = name;
    a.kind = Attribute::Kind::text;
    a.text = value;
    attributes_.push_back(a);
    return *this;
  }

  Case& tensor(Integers shape, DType dtype = DType::float32) {
    Value v;
    v.dtype = dtype;
    v.has_shape = true;
    v.shape = keep(std::move(shape));
    values_.push_back(v);
    return *this;
  }

  Case& known(Integers contents) {
    const auto count = static_cast<std::int64_t>(contents.size());
    tensor({count}, DType::int64);
    values_.back().has_values = values_.back().is_constant = true;
    values_.back().integers = keep(std::move(contents));
    return *this;
  }

  Case& scalar(std::int64_t value) {
    known({value});
    values_.back().shape = {};
    return *this;
  }

  Case& batch(std::int64_t file, std::int64_t asked) {
    file_batch_ = file;
    batch_ = asked;
    return *this;
  }

  bool run(std::size_t outputs = 1) {
    std::vector<const Value*> inputs;
    for (const Value& v : values_) inputs.push_back(&v);
    outputs_.assign(outputs, Value());
    node_.attributes = attributes_;
    attributes_found = NodeAttributes();
    InferContext context{node_,  opset_, inputs,      outputs_, attributes_found,
                         arena_, 4096,   file_batch_, batch_,   find_operator(node_.domain, node_.op_type)};
    return infer(context);
  }

  Integers shape(std::size_t i = 0) const { return Integers(outputs_[i].shape.begin(), outputs_[i].shape.end()); }
  Integers contents(std::size_t i = 0) const {
    return Integers(outputs_[i].integers.begin(), outputs_[i].integers.end());
  }
  const Value& output(std::size_t i = 0) const { return outputs_[i]; }

  NodeAttributes attributes_found;

 private:
  std::span<const std::int64_t> keep(Integers values) {
    auto* copy = static_cast<std::int64_t*>(arena_.allocate(8 * (values.size() + 1), 8));
    std::copy(values.begin(), values.end(), copy);
    return {copy, values.size()};
  }

  std::pmr::monotonic_buffer_resource arena_;
  Node node_;
  std::int64_t opset_;
  std::int64_t file_batch_ = 0, batch_ = 0;
  std::vector<Attribute> attributes_;
  std::vector<Value> values_, outputs_;
};

constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

}  // namespace

namespace perfpass::testing {
template <>
std::string show(const Integers& value) {
  return perfpass::onnx::show(value);
}
}  // namespace perfpass::testing

TEST(onnx_operator_names_lead_to_canonical_operators) {
  CHECK_EQUAL(canonical_operator(find_operator("", "Gemm")), OpKind::dense);
  CHECK_EQUAL(canonical_operator(find_operator("ai.onnx", "MatMul")), OpKind::matmul);
  CHECK_EQUAL(canonical_operator(find_operator("com.microsoft", "MatMulNBits")), OpKind::matmul_nbits);
  CHECK_EQUAL(canonical_operator(find_operator("", "MatMulNBits")), OpKind::unknown);
  CHECK_EQUAL(canonical_operator(find_operator("my.domain", "Conv")), OpKind::unknown);
  CHECK_EQUAL(canonical_operator(find_operator("", "")), OpKind::unknown);
  for (const Operator& op : operator_table()) {
    // Trees and support vector machines have shapes, and no work that the shapes tell.
    CHECK(op.kind != OpKind::unknown || op.infer == nullptr || op.domain == Domain::ml);
    const Text domain = op.domain == Domain::standard    ? ""
                        : op.domain == Domain::microsoft ? "com.microsoft"
                        : op.domain == Domain::nchwc     ? "com.microsoft.nchwc"
                        : op.domain == Domain::ml        ? "ai.onnx.ml"
                                                         : "ai.onnx.preview";
    CHECK_EQUAL(find_operator(domain, op.name), &op);  // no name stands twice
  }
}

TEST(onnx_automatic_padding_is_resolved) {
  Case conv("Conv");
  conv.with("auto_pad", "SAME_UPPER").with("strides", Integers{2, 2}).tensor({1, 3, 224, 225}).tensor({8, 3, 3, 3});
  CHECK(conv.run());
  CHECK_EQUAL(conv.shape(), (Integers{1, 8, 112, 113}));
  CHECK_EQUAL(conv.attributes_found.pad_begin[0], 0);
  CHECK_EQUAL(conv.attributes_found.pad_end[0], 1);
  CHECK_EQUAL(conv.attributes_found.pad_begin[1], 1);
  CHECK_EQUAL(conv.attributes_found.pad_end[1], 1);
  CHECK_EQUAL(conv.attributes_found.kernel[0], 3);
  CHECK_EQUAL(conv.attributes_found.groups, 1);
}

TEST(onnx_contents_pass_through_shape_arithmetic) {
  Case shape("Shape");
  shape.with("start", 1).with("end", -1).tensor({2, 3, 4, 5});
  CHECK(shape.run());
  CHECK_EQUAL(shape.contents(), (Integers{3, 4}));
  Case divide("Div");
  divide.known({-7, 7, kLowest}).known({2, -2, -1});
  CHECK(divide.run());
  CHECK_EQUAL(divide.contents(), (Integers{-3, -3, kLowest}));
  Case by_zero("Div");
  by_zero.known({1}).known({0});
  CHECK(by_zero.run());
  CHECK(!by_zero.output().has_values);
  Case slice("Slice");
  slice.known({1, 2, 3, 4}).known({-1}).known({kLowest}).known({0}).known({-1});
  CHECK(slice.run());
  CHECK_EQUAL(slice.contents(), (Integers{4, 3, 2, 1}));
  Case range("Range");
  range.scalar(10).scalar(0).scalar(-3);
  CHECK(range.run());
  CHECK_EQUAL(range.contents(), (Integers{10, 7, 4, 1}));
  Case transposed("Transpose");
  transposed.with("perm", Integers{1, 0}).tensor({2, 3}, DType::int64);
  CHECK(transposed.run());
  CHECK(!transposed.output().has_values);
  CHECK_EQUAL(transposed.shape(), (Integers{3, 2}));
}

TEST(onnx_shapes_that_depend_on_unknown_data_are_not_guessed) {
  Case reshape("Reshape");
  reshape.tensor({2, 3}).tensor({2}, DType::int64);
  CHECK(!reshape.run());
  CHECK(!reshape.output().has_shape);
  Case non_zero("NonZero");
  non_zero.tensor({4});
  CHECK(!non_zero.run());
  Case unknown("Conv", 1, "my.domain");
  unknown.tensor({1, 3, 8, 8});
  CHECK(!unknown.run());
  Case suppression("NonMaxSuppression");  // a documented bound: boxes per class x classes x images
  suppression.tensor({2, 100, 4}).tensor({2, 5, 100}).scalar(30);
  CHECK(suppression.run());
  CHECK_EQUAL(suppression.shape(), (Integers{300, 3}));
}

TEST(onnx_contradictions_are_shape_errors) {
  CHECK_ERROR(Case("Conv").tensor({1, 4, 8, 8}).tensor({8, 3, 3, 3}).run(), ErrorCode::shape, "Conv 'n'");
  CHECK_ERROR(Case("Conv").tensor({1, 3, 8, 8}).run(), ErrorCode::shape, "input 1 is absent");
  CHECK_ERROR(Case("MatMul").tensor({2, 3}).tensor({4, 5}).run(), ErrorCode::shape, "[2, 3] and [4, 5]");
  CHECK_ERROR(Case("Add").tensor({2, 3}).tensor({2, 4}).run(), ErrorCode::shape, "broadcast");
  CHECK_ERROR(Case("Reshape").tensor({2, 3}).known({4, -1}).run(), ErrorCode::shape, "same number of elements");
  CHECK_ERROR(Case("Reshape").tensor({2, 3}).known({-1, -1}).run(), ErrorCode::shape, "at most one");
  CHECK_ERROR(Case("Transpose").with("perm", Integers{0, 0}).tensor({2, 3}).run(), ErrorCode::shape, "every axis once");
  CHECK_ERROR(Case("Concat").with("axis", 5).tensor({2}).run(), ErrorCode::shape, "axis 5");
  CHECK_ERROR(Case("Einsum").with("equation", "ij,jk->i1").tensor({2, 3}).tensor({3, 4}).run(), ErrorCode::shape,
              "letter");
  CHECK_ERROR(Case("Conv").with("strides", "two").tensor({1, 3, 8, 8}).tensor({8, 3, 3, 3}).run(), ErrorCode::shape,
              "strides");
}

TEST(onnx_hostile_numbers_end_in_one_error) {
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, kLowest, kHighest}) {
    CHECK_ERROR(Case("Conv").with("strides", Integers{bad, 1}).tensor({1, 3, 8, 8}).tensor({8, 3, 3, 3}).run(),
                ErrorCode::shape, "stride");
    CHECK_ERROR(Case("MaxPool").with("kernel_shape", Integers{bad, 1}).tensor({1, 3, 8, 8}).run(), ErrorCode::shape,
                "needs");
    CHECK_ERROR(Case("DepthToSpace").with("blocksize", bad).tensor({1, 3, 8, 8}).run(), ErrorCode::shape, "needs");
  }
  for (const std::int64_t bad : {kLowest, kHighest, kLowest + 1, kHighest / 2}) {
    CHECK_ERROR(Case("Pad").with("pads", Integers{bad, bad}).tensor({4}).run(), ErrorCode::shape, "pads");
    CHECK_ERROR(Case("Concat").with("axis", bad).tensor({4}).run(), ErrorCode::shape, "axis");
    CHECK_ERROR(Case("Gather").with("axis", bad).tensor({4}).known({0}).run(), ErrorCode::shape, "axis");
    Case slice("Slice");
    slice.tensor({4}).known({bad}).known({bad}).known({0}).known({bad});
    CHECK(slice.run());
    Case range("Range");
    range.scalar(bad).scalar(bad / 2).scalar(1);
    try {
      range.run();
    } catch (const Error& e) {
      CHECK_EQUAL(e.code(), ErrorCode::limit);
    }
  }
  CHECK_ERROR(Case("Tile").tensor({kHighest / 3}).known({4}).run(), ErrorCode::limit, "2^48");
  CHECK_ERROR(Case("Tile").tensor({1 << 30, 1 << 10}).known({4, 1 << 20}).run(), ErrorCode::limit, "2^48");
  CHECK_ERROR(Case("Relu").tensor({-4}).run(), ErrorCode::limit, "-4");
  CHECK_ERROR(Case("ConstantOfShape").known({1 << 30, 1 << 30}).run(), ErrorCode::limit, "2^48");
  CHECK_ERROR(Case("Unsqueeze").tensor({1, 1}).known(Integers(15, 0)).run(), ErrorCode::shape, "16");
  CHECK_ERROR(Case("Expand").tensor({1}).known(Integers(40, 1)).run(), ErrorCode::limit, "16");
}

TEST(onnx_old_operator_sets_keep_their_forms) {
  Case squeeze("Squeeze", 11);
  squeeze.with("axes", Integers{0, -1}).tensor({1, 3, 1});
  CHECK(squeeze.run());
  CHECK_EQUAL(squeeze.shape(), (Integers{3}));
  CHECK_EQUAL(squeeze.attributes_found.view, 1);
  Case slice("Slice", 1);
  slice.with("starts", Integers{1}).with("ends", Integers{kHighest}).with("axes", Integers{1}).tensor({2, 5});
  CHECK(slice.run());
  CHECK_EQUAL(slice.shape(), (Integers{2, 4}));
  Case add("Add", 6);
  add.with("broadcast", 1).with("axis", 1).tensor({2, 3, 4}).tensor({3});
  CHECK(add.run());
  CHECK_EQUAL(add.shape(), (Integers{2, 3, 4}));
  Case top("TopK", 1);
  top.with("k", 2).with("axis", 0).tensor({5, 3});
  CHECK(top.run(2));
  CHECK_EQUAL(top.shape(1), (Integers{2, 3}));
  CHECK_EQUAL(top.output(1).dtype, DType::int64);
  Case softmax("Softmax", 11);
  softmax.tensor({2, 3, 4});
  CHECK(softmax.run());
  CHECK_EQUAL(softmax.attributes_found.axis, 1);
}

TEST(onnx_constant_targets_follow_a_rebound_batch) {
  const auto reshaped = [](Integers shape, Integers target, std::int64_t file, std::int64_t asked) {
    Case c("Reshape");
    c.batch(file, asked).tensor(std::move(shape)).known(std::move(target));
    CHECK(c.run());
    return c.shape();
  };
  CHECK_EQUAL(reshaped({4, 197, 768}, {1, 197, 12, 64}, 1, 4), (Integers{4, 197, 12, 64}));
  CHECK_EQUAL(reshaped({4, 197, 768}, {1, -1, 12, 64}, 1, 4), (Integers{4, 197, 12, 64}));
  CHECK_EQUAL(reshaped({4, 12, 197, 64}, {12, 197, 64}, 1, 4), (Integers{48, 197, 64}));
  CHECK_EQUAL(reshaped({4, 12, 197, 64}, {12, -1, 64}, 1, 4), (Integers{48, 197, 64}));
  CHECK_EQUAL(reshaped({12, 197, 12, 64}, {2, 197, 768}, 2, 12), (Integers{12, 197, 768}));
  CHECK_EQUAL(reshaped({256, 49, 96}, {1, 8, 8, 7, 7, 96}, 1, 4), (Integers{4, 8, 8, 7, 7, 96}));  // windows back
  CHECK_EQUAL(reshaped({4, 8, 7, 8, 7, 96}, {1, 8, 7, 8, 7, 96}, 1, 4), (Integers{4, 8, 7, 8, 7, 96}));
  CHECK_EQUAL(reshaped({50, 4, 256}, {50, 8, 32}, 1, 4), (Integers{50, 32, 32}));  // length first
  CHECK_EQUAL(reshaped({4, 256, 7, 7}, {0, -1}, 1, 4), (Integers{4, 12544}));
  CHECK_EQUAL(reshaped({49, 49}, {2401}, 1, 4), (Integers{2401}));
  Case concat("Concat");  // a class token folded to the file's batch
  concat.batch(2, 6).with("axis", 1).tensor({2, 1, 768}).tensor({6, 196, 768});
  CHECK(concat.run());
  CHECK_EQUAL(concat.shape(), (Integers{6, 197, 768}));
  Case expand("Expand");
  expand.batch(2, 6).tensor({1, 1, 768}).known({2, 1, 768});
  CHECK(expand.run());
  CHECK_EQUAL(expand.shape(), (Integers{6, 1, 768}));
}

TEST(onnx_attention_attributes_and_caches) {
  Case attention("GroupQueryAttention", 1, "com.microsoft");
  attention.with("num_heads", 8).with("kv_num_heads", 2).tensor({1, 1, 512}).tensor({1, 1, 128}).tensor({1, 1, 128});
  attention.tensor({1, 2, 100, 64}).tensor({1, 2, 100, 64}).tensor({1}, DType::int32).scalar(60);
  CHECK(attention.run(3));
  CHECK_EQUAL(attention.shape(0), (Integers{1, 1, 512}));
  CHECK_EQUAL(attention.shape(1), (Integers{1, 2, 100, 64}));  // the buffer that keys are appended to
  CHECK_EQUAL(attention.attributes_found.num_heads, 8);
  CHECK_EQUAL(attention.attributes_found.num_kv_heads, 2);
  CHECK_EQUAL(attention.attributes_found.causal, 1);
  Case recurrent("LSTM");
  recurrent.with("hidden_size", 16)
      .with("direction", "bidirectional")
      .tensor({7, 3, 5})
      .tensor({2, 64, 5})
      .tensor({2, 64, 16});
  CHECK(recurrent.run(3));
  CHECK_EQUAL(recurrent.shape(0), (Integers{7, 2, 3, 16}));
  CHECK_EQUAL(recurrent.shape(2), (Integers{2, 3, 16}));
  CHECK_EQUAL(recurrent.attributes_found.directions, 2);
}
