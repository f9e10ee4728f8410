// Shapes of operators that TensorFlow Lite has and ONNX has not, or has with other operands: channels last, targets as
// operands. Every rule follows the operator's kernel (tensorflow/lite/kernels).
#include <algorithm>

#include "onnx/operators/windows.hpp"
#include "tflite/operators.hpp"

namespace perfpass::tflite {

using onnx::Dims;
using onnx::dtype_of;
using onnx::elements;
using onnx::fail;
using onnx::input;
using onnx::integer_attribute;
using onnx::integers_of;
using onnx::product;
using onnx::ready;
using onnx::set;
using onnx::set_dtype;
using onnx::Shape;
using onnx::shape_of;
using onnx::show;
using onnx::Variant;

bool infer_dense(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims x = shape_of(c, 0), weight = shape_of(c, 1);
  if (weight.size() != 2 || weight[1] < 1 || elements(x) % weight[1] != 0) {
    fail(c, "found an input of shape " + show(x) + " and a weight of shape " + show(weight) +
                ", needs [outputs, inputs] and whole rows of inputs");
  }
  if (integer_attribute(c, "keep_num_dims", 0) == 0 || x.empty() || x.back() != weight[1]) {
    set(c, 0, dtype_of(c, 0), Shape{elements(x) / weight[1], weight[0]});
    return true;
  }
  Shape out(x);
  out[out.size() - 1] = weight[0];
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

void lower_few_bits(InferContext& c, const Operator&) {
  const Dims weight = shape_of(c, 1);
  c.attributes.weight_bits = 4;
  c.attributes.transpose_b = 1;
  c.attributes.block_size = weight.size() == 2 ? onnx::clamped(weight[1]) : 0;
}

bool infer_block(InferContext& c, const Operator& op) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  const std::int64_t block = onnx::small(c, integer_attribute(c, "blocksize", 0), 1, "block size");
  if (out.size() != 4) fail(c, "found an input of shape " + show(out) + ", needs [batch, height, width, channels]");
  const std::int64_t area = product(c, block, block);
  const bool deep = op.kind == OpKind::space_to_depth;
  if (deep ? out[1] % block != 0 || out[2] % block != 0 : out[3] % area != 0) {
    fail(c,
         "found an input of shape " + show(out) + " and blocks of " + std::to_string(block) + ", needs whole blocks");
  }
  for (const std::size_t axis : {std::size_t{1}, std::size_t{2}}) {
    out[axis] = deep ? out[axis] / block : product(c, out[axis], block);
  }
  out[3] = deep ? product(c, out[3], area) : out[3] / area;
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

/// Data, blocks of the spatial axes, and what is padded (or cropped) of each.
bool infer_space_batch(InferContext& c, const Operator& op) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1, 2})) return false;
  const onnx::Value* blocks = integers_of(c, 1);
  const onnx::Value* edges = integers_of(c, 2);
  if (blocks == nullptr || edges == nullptr) return false;
  Shape out(shape_of(c, 0));
  const std::size_t count = blocks->integers.size();
  if (count + 1 > out.size() || edges->integers.size() != 2 * count) {
    fail(c, "found an input of shape " + show(out) + " and blocks " + show(blocks->integers) +
                ", needs a block and two edges for every spatial axis");
  }
  std::int64_t area = 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t block = onnx::small(c, blocks->integers[i], 1, "block size");
    const std::int64_t edge = std::int64_t{onnx::small(c, edges->integers[2 * i], 0, "edge")} +
                              onnx::small(c, edges->integers[2 * i + 1], 0, "edge");
    area = product(c, area, block);
    const bool to_batch = op.variant != Variant::inverse;
    out[i + 1] =
        to_batch ? (out[i + 1] + edge) / block : std::max<std::int64_t>(0, product(c, out[i + 1], block) - edge);
  }
  out[0] = op.variant == Variant::inverse ? out[0] / area : product(c, out[0], area);
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

bool infer_resize(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const onnx::Value* size = integers_of(c, 1);
  if (size == nullptr) return false;
  Shape out(shape_of(c, 0));
  if (out.size() != 4 || size->integers.size() != 2) {
    fail(c, "found an input of shape " + show(out) + " and a size of " + show(size->integers) +
                ", needs [batch, height, width, channels] and two numbers");
  }
  out[1] = size->integers[0];
  out[2] = size->integers[1];
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

/// Data, weight [inputs, outputs, kernel], bias or nothing, and the output's shape.
void lower_transpose_conv(InferContext& c, const Operator&) {
  const Dims x = shape_of(c, 0);
  onnx::Window w = onnx::window_of(c, onnx::integers_attribute(c, "kernel_shape"));
  const onnx::Value* wanted = integers_of(c, 3);
  for (std::size_t i = 0; i < w.rank && x.size() == w.rank + 2; ++i) {
    if (wanted == nullptr || wanted->integers.size() != x.size()) break;
    const std::int64_t full = product(c, x[i + 1] - 1, w.stride[i]) + w.reach(i);
    const std::int64_t total = std::clamp<std::int64_t>(full - wanted->integers[i + 1], 0, INT32_MAX);
    w.begin[i] = total / 2;
    w.end[i] = total - total / 2;
  }
  onnx::write_window(c, w);
  c.attributes.groups = 1;
  c.attributes.channels_last = 1;
  c.attributes.weight_layout = 2;
}

bool infer_transpose_conv(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const onnx::Value* wanted = integers_of(c, 3);
  const Dims x = shape_of(c, 0);
  if (wanted == nullptr) return false;
  Shape out(wanted->integers);
  if (out.size() != x.size()) {
    fail(c, "found an input of shape " + show(x) + " and an output shape of " + show(out) + ", needs equal ranks");
  }
  // The batch that the file fixes stands in the constant too.
  if (x.size() > 0) out[0] = x[0];
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

void lower_recurrent(InferContext& c, const Operator&) {
  c.attributes.hidden_size = onnx::clamped(c.integer("hidden_size", 0));
  c.attributes.directions = static_cast<std::int32_t>(c.integer("directions", 1));
}

/// [batch, length, inputs] (or length first, or one step) to the same with "outputs" as last dimension.
bool infer_recurrent(InferContext& c, const Operator&) {
  for (std::size_t i = 0; i < c.outputs.size(); ++i) set_dtype(c, i, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  const std::int64_t last = c.integer("outputs", 0);
  if (out.size() < 2 || last < 1) return false;
  out[out.size() - 1] = last;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) set(c, i, dtype_of(c, 0), out);
  return true;
}

namespace {

/// The shape that the operand holds; false where it is not known. A constant that repeats the file's batch follows it.
bool shape_in(const InferContext& c, std::size_t operand, Shape& out) {
  const onnx::Value* wanted = integers_of(c, operand);
  if (wanted == nullptr) return false;
  out = Shape(wanted->integers);
  for (const std::int64_t d : out) {
    if (d < 0) fail(c, "found a target of " + show(out) + ", needs entries of 0 or more");
  }
  if (onnx::rebinds(c) && wanted->is_constant && c.file_batch > 1 && out.size() > 1 && out[0] == c.file_batch) {
    out[0] = c.batch;
  }
  return true;
}

}  // namespace

bool infer_shaped(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::float32);
  Shape out;
  if (!ready(c, {0}) || !shape_in(c, 0, out)) return false;
  set(c, 0, DType::float32, out);
  return true;
}

bool infer_fill(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 1));
  Shape out;
  if (!ready(c, {0, 1}) || !shape_in(c, 0, out)) return false;
  set(c, 0, dtype_of(c, 1), out);
  onnx::select_values(c, 0, *c.inputs[1], [](std::int64_t) { return 0; });
  return true;
}

bool infer_rank(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::int32);
  if (!ready(c, {0})) return false;
  set(c, 0, DType::int32, Shape{});
  onnx::set_integers(c, 0, Shape{static_cast<std::int64_t>(shape_of(c, 0).size())});
  return true;
}

/// Indices, updates, shape (SCATTER_ND); indices, shape, values (SPARSE_TO_DENSE).
bool infer_scatter(InferContext& c, const Operator& op) {
  const bool sparse = op.variant == Variant::inverse;
  const std::size_t values = sparse ? 2 : 1;
  set_dtype(c, 0, dtype_of(c, values));
  Shape out;
  if (!shape_in(c, sparse ? 1 : 2, out)) return false;
  set(c, 0, dtype_of(c, values), out);
  return true;
}

bool infer_rfft(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::complex64);
  if (!ready(c, {0})) return false;
  const onnx::Value* length = integers_of(c, 1);
  Shape out(shape_of(c, 0));
  if (length == nullptr || length->integers.size() != 2 || out.size() < 2) return false;
  out[out.size() - 2] = length->integers[0];
  out[out.size() - 1] = length->integers[1] / 2 + 1;
  set(c, 0, DType::complex64, out);
  return true;
}

bool infer_diagonal(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0})) return false;
  Shape out(shape_of(c, 0));
  if (out.size() == 0) fail(c, "found a scalar, needs a diagonal");
  out.push(out[out.size() - 1]);
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

/// Boxes, scores, the most boxes, thresholds. Outputs are padded to the most boxes; the second list of them (scores) is
/// version 5's.
bool infer_suppression(InferContext& c, const Operator& op) {
  if (!ready(c, {0, 1, 2})) return false;
  const onnx::Value* most = integers_of(c, 2);
  if (most == nullptr || most->integers.size() != 1) return false;
  const Shape boxes{std::max<std::int64_t>(0, most->integers[0])};
  set(c, 0, DType::int32, boxes);
  if (op.variant == Variant::product) set(c, 1, dtype_of(c, 1), boxes);
  set(c, op.variant == Variant::product ? 2 : 1, DType::int32, Shape{});
  return true;
}

/// A row of indices for every element that is not zero: as many as detections are assumed, where only contents tell.
bool infer_where(InferContext& c, const Operator&) {
  set_dtype(c, 0, DType::int64);
  if (!ready(c, {0})) return false;
  const onnx::Value& x = *c.inputs[0];
  const std::int64_t count = elements(x.shape);
  std::int64_t found = 0;
  if (x.has_values && static_cast<std::int64_t>(x.integers.size()) == count) {
    found = std::count_if(x.integers.begin(), x.integers.end(), [](auto v) { return v != 0; });
  } else {
    c.assumed = true;
    found = std::min(count, c.detections > 0 ? c.detections : kUsualDetections);
  }
  set(c, 0, DType::int64, Shape{found, static_cast<std::int64_t>(x.shape.size())});
  return true;
}

void lower_dot_general(InferContext& c, const Operator&) {
  const Dims x = shape_of(c, 0);
  std::int64_t length = 1;
  for (const std::int64_t axis : c.integers("lhs_contracting")) {
    if (axis >= 0 && axis < static_cast<std::int64_t>(x.size())) length = product(c, length, x[axis]);
  }
  c.attributes.contraction = onnx::clamped(length);
}

bool infer_dot_general(InferContext& c, const Operator&) {
  set_dtype(c, 0, dtype_of(c, 0));
  if (!ready(c, {0, 1})) return false;
  const Dims left = shape_of(c, 0), right = shape_of(c, 1);
  const Dims batch = c.integers("lhs_batch");
  Shape out;
  for (const std::int64_t axis : batch) out.push(left[onnx::axis_of(c, axis, left.size())]);
  const auto rest = [&](Dims shape, Dims taken, Dims contracted) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const auto is = [&](std::int64_t axis) { return axis == static_cast<std::int64_t>(i); };
      if (std::none_of(taken.begin(), taken.end(), is) && std::none_of(contracted.begin(), contracted.end(), is)) {
        out.push(shape[i]);
      }
    }
  };
  rest(left, batch, c.integers("lhs_contracting"));
  rest(right, c.integers("rhs_batch"), c.integers("rhs_contracting"));
  set(c, 0, dtype_of(c, 0), out);
  return true;
}

}  // namespace perfpass::tflite
