// Reading a node and writing its results: what every inference function uses.
#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/operators/operators.hpp"
#include "perfpass/error.hpp"
#include "support/text.hpp"

namespace perfpass::onnx {

const Attribute* InferContext::find(Text name) const noexcept {
  for (const Attribute& a : node.attributes) {
    if (a.name == name && a.kind != Attribute::Kind::none) return &a;
  }
  return nullptr;
}

std::int64_t InferContext::integer(Text name, std::int64_t fallback) const noexcept {
  const Attribute* a = find(name);
  return a != nullptr && a->kind == Attribute::Kind::integer ? a->integer : fallback;
}

double InferContext::real(Text name, double fallback) const noexcept {
  const Attribute* a = find(name);
  return a != nullptr && a->kind == Attribute::Kind::real ? a->real : fallback;
}

std::span<const std::int64_t> InferContext::integers(Text name) const noexcept {
  const Attribute* a = find(name);
  return a != nullptr && a->kind == Attribute::Kind::integers ? a->integers : std::span<const std::int64_t>();
}

Text InferContext::text(Text name, Text fallback) const noexcept {
  const Attribute* a = find(name);
  return a != nullptr && a->kind == Attribute::Kind::text ? a->text : fallback;
}

Shape::Shape(std::initializer_list<std::int64_t> dims) {
  for (const std::int64_t d : dims) push(d);
}

Shape::Shape(Dims dims) {
  for (const std::int64_t d : dims) push(d);
}

void Shape::push(std::int64_t dim) { insert(size_, dim); }

void Shape::insert(std::size_t at, std::int64_t dim) {
  if (size_ == kMaxRank) {
    throw Error(ErrorCode::limit,
                "a tensor of more than " + std::to_string(kMaxRank) + " dimensions; that many are allowed");
  }
  std::copy_backward(dims_ + at, dims_ + size_, dims_ + size_ + 1);
  dims_[at] = dim;
  ++size_;
}

void fail(const InferContext& c, const std::string& what) {
  const Text name = c.node.name.empty() && !c.node.outputs.empty() ? c.node.outputs[0] : c.node.name;
  throw Error(ErrorCode::shape, escaped(c.node.op_type.substr(0, 80)) + " " + quoted(name) + ": " + what);
}

std::string show(Dims dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < std::min<std::size_t>(dims.size(), kMaxRank); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  }
  return text + (dims.size() > kMaxRank ? ", ...]" : "]");
}

const Value* input(const InferContext& c, std::size_t i) noexcept {
  return i < c.inputs.size() ? c.inputs[i] : nullptr;
}

bool ready(const InferContext& c, std::initializer_list<std::size_t> inputs) {
  bool all = true;
  for (const std::size_t i : inputs) {
    const Value* value = input(c, i);
    if (value == nullptr) {
      fail(c, "input " + std::to_string(i) + " is absent, but this operator needs it");
    }
    all = all && value->has_shape;
  }
  return all;
}

Dims shape_of(const InferContext& c, std::size_t i) noexcept {
  const Value* value = input(c, i);
  return value != nullptr && value->has_shape ? value->shape : Dims();
}

DType dtype_of(const InferContext& c, std::size_t i) noexcept {
  const Value* value = input(c, i);
  return value != nullptr ? value->dtype : DType::undefined;
}

const Value* integers_of(const InferContext& c, std::size_t i) noexcept {
  const Value* value = input(c, i);
  if (value == nullptr || is_floating(value->dtype)) return nullptr;
  // Nothing has to be read of a tensor without elements.
  const bool empty = value->has_shape && std::find(value->shape.begin(), value->shape.end(), 0) != value->shape.end();
  return value->has_values || empty ? value : nullptr;
}

Dims integers_attribute(const InferContext& c, Text name) {
  const Attribute* a = c.find(name);
  if (a == nullptr) return {};
  if (a->kind != Attribute::Kind::integers) {
    fail(c, "attribute " + std::string(name) + " is not a list of integers; this operator needs one");
  }
  return a->integers;
}

std::int64_t integer_attribute(const InferContext& c, Text name, std::int64_t fallback) {
  const Attribute* a = c.find(name);
  if (a == nullptr) return fallback;
  if (a->kind != Attribute::Kind::integer) {
    fail(c, "attribute " + std::string(name) + " is not an integer; this operator needs one");
  }
  return a->integer;
}

std::size_t axis_of(const InferContext& c, std::int64_t axis, std::size_t rank) {
  const auto n = static_cast<std::int64_t>(rank);
  if (axis < -n || axis >= n) {
    fail(c, "axis " + std::to_string(axis) + " of a tensor of " + std::to_string(n) +
                " dimensions; needs an axis in [" + std::to_string(-n) + ", " + std::to_string(n) + ")");
  }
  return static_cast<std::size_t>(axis < 0 ? axis + n : axis);
}

std::int32_t soft_axis(std::int64_t axis, const Value* value, std::int64_t extra) noexcept {
  if (value == nullptr || !value->has_shape) return kNoAxis;
  const auto n = static_cast<std::int64_t>(value->shape.size()) + extra;
  if (axis < -n || axis >= n) return kNoAxis;
  return static_cast<std::int32_t>(axis < 0 ? axis + n : axis);
}

std::int32_t small(const InferContext& c, std::int64_t value, std::int64_t low, const char* what) {
  if (value < low || value > std::numeric_limits<std::int32_t>::max()) {
    fail(c, std::string(what) + " " + std::to_string(value) + "; needs a value from " + std::to_string(low) +
                " to 2^31 - 1");
  }
  return static_cast<std::int32_t>(value);
}

std::int32_t clamped(std::int64_t value) noexcept {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, 0, std::numeric_limits<std::int32_t>::max()));
}

DType data_type(std::int64_t number) noexcept {
  using enum DType;  // TensorProto.DataType, onnx.proto
  static constexpr DType kTypes[] = {undefined, float32,    uint8,    int8,    uint16,  int16,  int32,
                                     int64,     string,     boolean,  float16, float64, uint32, uint64,
                                     complex64, complex128, bfloat16, float8,  float8,  float8, float8,
                                     uint4,     int4,       float4,   float8,  uint4,   int4};
  return number >= 0 && number < static_cast<std::int64_t>(std::size(kTypes)) ? kTypes[number] : undefined;
}

void set_dtype(InferContext& c, std::size_t i, DType dtype) noexcept {
  if (i < c.outputs.size()) c.outputs[i].dtype = dtype;
}

void set(InferContext& c, std::size_t i, DType dtype, Dims shape) {
  if (i >= c.outputs.size()) return;
  try {
    checked_elements(shape);
  } catch (const Error& e) {
    throw Error(e.code(), escaped(c.node.op_type.substr(0, 80)) + " " + quoted(c.node.name) + " makes " + e.what());
  }
  Value& out = c.outputs[i];
  std::int64_t* copy = new_integers(c, shape.size());
  std::copy(shape.begin(), shape.end(), copy);
  out.dtype = dtype;
  out.has_shape = true;
  out.shape = {copy, shape.size()};
}

bool wants_values(const InferContext& c, std::size_t i) noexcept {
  if (i >= c.outputs.size() || !c.outputs[i].has_shape) return false;
  std::int64_t count = 1;
  for (const std::int64_t d : c.outputs[i].shape) count *= d;  // bounded by set()
  return static_cast<std::uint64_t>(count) <= c.max_values;
}

std::int64_t* new_integers(InferContext& c, std::size_t count) {
  return static_cast<std::int64_t*>(
      c.arena.allocate(std::max<std::size_t>(1, count) * sizeof(std::int64_t), alignof(std::int64_t)));
}

double* new_reals(InferContext& c, std::size_t count) {
  return static_cast<double*>(c.arena.allocate(std::max<std::size_t>(1, count) * sizeof(double), alignof(double)));
}

void set_integers(InferContext& c, std::size_t i, Dims values) {
  if (!wants_values(c, i)) return;
  std::int64_t* copy = new_integers(c, values.size());
  std::copy(values.begin(), values.end(), copy);
  c.outputs[i].has_values = true;
  c.outputs[i].integers = {copy, values.size()};
}

std::int64_t wrapped(DType dtype, std::int64_t value) noexcept {
  switch (dtype) {
    case DType::int32:
      return static_cast<std::int32_t>(static_cast<std::uint64_t>(value));
    case DType::int16:
      return static_cast<std::int16_t>(static_cast<std::uint64_t>(value));
    case DType::int8:
      return static_cast<std::int8_t>(static_cast<std::uint64_t>(value));
    case DType::uint32:
      return static_cast<std::uint32_t>(static_cast<std::uint64_t>(value));
    case DType::uint16:
      return static_cast<std::uint16_t>(static_cast<std::uint64_t>(value));
    case DType::uint8:
      return static_cast<std::uint8_t>(static_cast<std::uint64_t>(value));
    case DType::boolean:
      return value != 0 ? 1 : 0;
    default:
      return value;
  }
}

double rounded(DType dtype, double value) noexcept {
  return dtype == DType::float32 && std::abs(value) <= std::numeric_limits<float>::max()
             ? static_cast<double>(static_cast<float>(value))
             : value;
}

double round_half_even(double value) noexcept {  // independent of the floating-point environment
  const double low = std::floor(value);
  const double rest = value - low;
  if (rest != 0.5) return rest < 0.5 ? low : low + 1;
  return std::fmod(low, 2.0) == 0.0 ? low : low + 1;
}

bool rebinds(const InferContext& c) noexcept { return c.batch > 0 && c.file_batch > 0 && c.batch != c.file_batch; }

namespace {

/// One side carries the file's batch (perhaps times heads or windows), the other the batch asked for.
bool same_but_batch(const InferContext& c, std::int64_t file, std::int64_t asked) noexcept {
  return rebinds(c) && file % c.file_batch == 0 && asked % c.batch == 0 && file / c.file_batch == asked / c.batch;
}

}  // namespace

std::int64_t agree(const InferContext& c, std::int64_t a, std::int64_t b, const char* what) {
  if (a == b || same_but_batch(c, b, a)) return a;
  if (same_but_batch(c, a, b)) return b;
  fail(c,
       std::string(what) + ": found " + std::to_string(a) + " and " + std::to_string(b) + ", needs equal dimensions");
}

Shape operand(const InferContext& c, std::size_t i) {
  Shape shape(shape_of(c, i));
  if (!rebinds(c) || c.file_batch < 2 || shape.size() < 2 || shape[0] != c.file_batch || !c.inputs[i]->is_constant) {
    return shape;
  }
  for (const Value* other : c.inputs) {
    if (other != nullptr && !other->is_constant && other->has_shape && other->shape.size() == shape.size() &&
        other->shape[0] == c.batch) {
      shape[0] = c.batch;
    }
  }
  return shape;
}

Shape broadcast(const InferContext& c, Dims a, Dims b) {
  const Dims longer = a.size() >= b.size() ? a : b;
  const Dims shorter = a.size() >= b.size() ? b : a;
  Shape out(longer);
  const std::size_t offset = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) {
    const std::int64_t x = longer[offset + i];
    const std::int64_t y = shorter[i];
    if (x == y || y == 1) continue;
    if (x == 1 || same_but_batch(c, x, y)) {
      out[offset + i] = y;
    } else if (!same_but_batch(c, y, x)) {
      fail(c, "found inputs of shape " + show(a) + " and " + show(b) +
                  ", needs shapes that broadcast: equal dimensions, or 1, counted from the last");
    }
  }
  return out;
}

std::int64_t product(const InferContext& c, std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r) || r > kMaxElements || r < -kMaxElements) {
    throw Error(ErrorCode::limit, escaped(c.node.op_type.substr(0, 80)) + " " + quoted(c.node.name) +
                                      ": a dimension of " + std::to_string(a) + " x " + std::to_string(b) +
                                      " elements; at most 2^48 are allowed");
  }
  return r;
}

std::int64_t elements(Dims shape) { return checked_elements(shape); }

Strides::Strides(Dims shape) noexcept : of{} {
  std::int64_t step = 1;
  for (std::size_t i = std::min<std::size_t>(shape.size(), kMaxRank); i-- > 0;) {
    of[i] = step;
    step *= std::max<std::int64_t>(1, shape[i]);
  }
}

std::int64_t broadcast_position(std::int64_t k, Dims to, Dims from) noexcept {
  std::int64_t position = 0;
  std::int64_t step = 1;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::size_t axis = to.size() - 1 - i;
    const std::int64_t at = to[axis] > 0 ? k % to[axis] : 0;
    k = to[axis] > 0 ? k / to[axis] : 0;
    if (i >= from.size()) continue;
    const std::int64_t extent = from[from.size() - 1 - i];
    if (extent > 1) position += std::min(at, extent - 1) * step;
    step *= std::max<std::int64_t>(1, extent);
  }
  return position;
}

}  // namespace perfpass::onnx
