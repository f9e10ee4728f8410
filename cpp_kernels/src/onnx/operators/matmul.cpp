// Matrix products: MatMul and its fused and quantized forms, Gemm, Einsum, weights of few bits, mixtures of experts.
#include <algorithm>
#include <array>

#include "onnx/operators/operators.hpp"
#include "support/text.hpp"

namespace perfpass::onnx {
namespace {

/// QLinearMatMul and QGemm: a, scale, zero point, b, scale, zero point, ...
std::size_t right_slot(const Operator& op) noexcept { return op.variant == Variant::quantized ? 3 : 1; }

DType product_type(const InferContext& c, const Operator& op) noexcept {
  if (op.variant == Variant::integer) return DType::int32;
  if (op.variant == Variant::to_float) return is_floating(dtype_of(c, 0)) ? dtype_of(c, 0) : dtype_of(c, 2);
  if (op.variant != Variant::quantized) return dtype_of(c, 0);
  if (c.node.op_type == "QGemm") return dtype_of(c, 8) != DType::undefined ? dtype_of(c, 8) : DType::float32;
  return dtype_of(c, 7) != DType::undefined ? dtype_of(c, 7) : dtype_of(c, 0);
}

[[noreturn]] void fail_product(const InferContext& c, Dims a, Dims b) {
  fail(c, "found operands of shape " + show(a) + " and " + show(b) + ", needs equal contracted dimensions");
}

/// Moves the batch axes transposed by transBatch back: [m, b..., k] to [b..., m, k].
Shape without_batch_transposition(Dims shape, bool transposed) {
  Shape out(shape);
  if (!transposed || shape.size() < 3) return out;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) out[i] = shape[i + 1];
  out[shape.size() - 2] = shape[0];
  return out;
}

}  // namespace

void lower_matmul(InferContext& c, const Operator&) {
  c.attributes.transpose_a = c.integer("transA", 0) != 0 ? 1 : 0;
  c.attributes.transpose_b = c.integer("transB", 0) != 0 ? 1 : 0;
}

bool infer_matmul(InferContext& c, const Operator& op) {
  const std::size_t right = right_slot(op);
  set_dtype(c, 0, product_type(c, op));
  if (!ready(c, {0, right})) return false;
  Shape a = without_batch_transposition(shape_of(c, 0), c.integer("transBatchA", 0) != 0);
  Shape b = without_batch_transposition(shape_of(c, right), c.integer("transBatchB", 0) != 0);
  if (a.size() == 0 || b.size() == 0) fail_product(c, a, b);
  const bool vector_a = a.size() == 1, vector_b = b.size() == 1;
  if (vector_a) a.insert(0, 1);
  if (vector_b) b.push(1);
  const std::size_t n = a.size(), m = b.size();
  if (c.attributes.transpose_a != 0 && !vector_a) std::swap(a[n - 2], a[n - 1]);
  if (c.attributes.transpose_b != 0 && !vector_b) std::swap(b[m - 2], b[m - 1]);
  if (a[n - 1] != b[m - 2]) fail_product(c, shape_of(c, 0), shape_of(c, right));
  Shape out = broadcast(c, Dims(a).first(n - 2), Dims(b).first(m - 2));
  if (!vector_a) out.push(a[n - 2]);
  if (!vector_b) out.push(b[m - 1]);
  set(c, 0, product_type(c, op), out);
  return true;
}

bool infer_gemm(InferContext& c, const Operator& op) {
  const std::size_t right = right_slot(op);
  set_dtype(c, 0, product_type(c, op));
  if (!ready(c, {0, right})) return false;
  const Dims a = shape_of(c, 0), b = shape_of(c, right);
  if (a.size() != 2 || b.size() != 2) {
    fail(c, "found operands of shape " + show(a) + " and " + show(b) + ", needs two matrices");
  }
  const bool ta = c.attributes.transpose_a != 0, tb = c.attributes.transpose_b != 0;
  if (a[ta ? 0 : 1] != b[tb ? 1 : 0]) fail_product(c, a, b);
  set(c, 0, product_type(c, op), Shape{a[ta ? 1 : 0], b[tb ? 0 : 1]});
  return true;
}

namespace {

/// The equation of an Einsum with the extents of its labels. Labels are letters; an ellipsis stands for the axes that
/// the letters of a term leave over, which broadcast.
class Equation {
 public:
  explicit Equation(const InferContext& c) : c_(c) {
    for (const char ch : c.text("equation", "")) {
      if (ch != ' ') text_.push_back(ch);
    }
    const std::size_t arrow = text_.find("->");
    inputs_ = Text(text_).substr(0, arrow);
    explicit_output_ = arrow != std::string::npos;
    if (explicit_output_) output_ = Text(text_).substr(arrow + 2);
    extent_.fill(-1);
  }

  void read() {
    std::size_t operand = 0;
    for (Text rest = inputs_;; ++operand) {
      const std::size_t comma = rest.find(',');
      if (operand >= c_.inputs.size()) malformed("more terms than inputs");
      read_term(rest.substr(0, comma), shape_of(c_, operand));
      if (comma == Text::npos) break;
      rest = rest.substr(comma + 1);
    }
    if (operand + 1 != c_.inputs.size()) malformed("fewer terms than inputs");
    if (!explicit_output_) derive_output();
  }

  Shape output_shape() {
    Shape out;
    for (std::size_t i = 0; i < output_.size(); ++i) {
      if (output_.substr(i, 3) == "...") {
        for (const std::int64_t d : ellipsis_) out.push(d);
        i += 2;
        continue;
      }
      const std::size_t label = label_of(output_[i]);
      if (extent_[label] < 0) malformed("a label of the output that no input has");
      out.push(extent_[label]);
      kept_[label] = true;
    }
    return out;
  }

  /// Products summed into one element of the output; after output_shape().
  std::int64_t contraction() const {
    std::int64_t length = 1;
    for (std::size_t label = 0; label < extent_.size(); ++label) {
      if (extent_[label] >= 0 && !kept_[label]) length = product(c_, length, extent_[label]);
    }
    return length;
  }

 private:
  [[noreturn]] void malformed(const char* what) const {
    fail(c_, "equation " + quoted(text_) + " has " + what + "; needs one term of letters per input");
  }

  std::size_t label_of(char ch) const {
    if (ch >= 'a' && ch <= 'z') return static_cast<std::size_t>(ch - 'a') + 26;
    if (ch >= 'A' && ch <= 'Z') return static_cast<std::size_t>(ch - 'A');
    malformed("a character that is not a letter");
  }

  void read_term(Text term, Dims shape) {
    std::size_t letters = 0;
    for (std::size_t i = 0; i < term.size(); ++i) {
      if (term.substr(i, 3) == "...") {
        i += 2;
      } else {
        ++letters;
      }
    }
    const bool dotted = term.find("...") != Text::npos;
    if (letters > shape.size() || (!dotted && letters != shape.size())) malformed("a term that does not fit its input");
    std::size_t axis = 0;
    for (std::size_t i = 0; i < term.size(); ++i) {
      if (term.substr(i, 3) == "...") {
        const std::size_t count = shape.size() - letters;
        if (axis + count > shape.size()) malformed("two ellipses in a term");
        ellipsis_ = broadcast(c_, ellipsis_, shape.subspan(axis, count));
        axis += count;
        i += 2;
        continue;
      }
      if (axis >= shape.size()) malformed("a term that does not fit its input");
      const std::size_t label = label_of(term[i]);
      const std::int64_t d = shape[axis++];
      ++uses_[label];
      std::int64_t& known = extent_[label];
      known = known < 0 || known == 1 ? d : d == 1 ? known : agree(c_, known, d, "a label of the equation");
    }
  }

  void derive_output() {  // implicit form: the ellipsis, then the labels used once, in alphabetical order
    derived_ = "...";
    for (std::size_t label = 0; label < extent_.size(); ++label) {
      if (uses_[label] == 1) derived_.push_back(static_cast<char>(label < 26 ? 'A' + label : 'a' + (label - 26)));
    }
    output_ = derived_;
  }

  const InferContext& c_;
  std::string text_, derived_;
  Text inputs_, output_;
  bool explicit_output_ = false;
  Shape ellipsis_;
  std::array<std::int64_t, 52> extent_;
  std::array<int, 52> uses_{};
  std::array<bool, 52> kept_{};
};

bool all_shaped(const InferContext& c) {
  return !c.inputs.empty() &&
         std::all_of(c.inputs.begin(), c.inputs.end(), [](const Value* v) { return v != nullptr && v->has_shape; });
}

}  // namespace

void lower_einsum(InferContext& c, const Operator&) {
  if (!all_shaped(c)) return;
  Equation equation(c);
  equation.read();
  equation.output_shape();
  c.attributes.contraction = clamped(equation.contraction());
}

bool infer_einsum(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!all_shaped(c)) return false;
  Equation equation(c);
  equation.read();
  set(c, 0, dtype_of(c, 0), equation.output_shape());
  return true;
}

void lower_matmul_nbits(InferContext& c, const Operator&) {
  c.attributes.weight_bits = clamped(c.integer("bits", 4));
  c.attributes.block_size = clamped(c.integer("block_size", 0));
  c.attributes.transpose_b = 1;
}

bool infer_matmul_nbits(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  const std::int64_t n = integer_attribute(c, "N", -1), k = integer_attribute(c, "K", -1);
  if (out.size() == 0 || n < 1 || k < 1 || out[out.size() - 1] != k) {
    fail(c, "found an input of shape " + show(out) + ", N = " + std::to_string(n) + " and K = " + std::to_string(k) +
                ", needs an input whose last dimension is K");
  }
  out[out.size() - 1] = n;
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_cdist(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims a = shape_of(c, 0), b = shape_of(c, 1);
  if (a.size() != 2 || b.size() != 2 || a[1] != b[1]) fail_product(c, a, b);
  set(c, 0, dtype_of(c, 0), Shape{a[0], b[0]});
  return true;
}

}  // namespace perfpass::onnx
