// Shape inference of ONNX operators: what the family files share. The table that binds names to the functions below
// stands in table.cpp; every function follows the operator's entry in the ONNX operator documentation
// (or ONNX Runtime's ContribOperators.md for com.microsoft), and ONNX Runtime where the two leave room.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "onnx/model.hpp"

namespace perfpass::onnx {

using Dims = std::span<const std::int64_t>;

/// The part of the operator's name that one inference function needs to tell its operators apart.
enum class Variant : std::uint8_t {
  none,
  floor,
  ceil,
  round,
  equal,
  not_equal,
  less,
  greater,
  less_or_equal,
  greater_or_equal,
  logical_and,
  logical_or,
  logical_xor,
  logical_not,
  last_axis,   // a normalization over the last axis only
  normalized,  // input 0 is the normalized tensor, a residual precedes the parameters
  quantized,   // inputs come as (tensor, scale, zero point), outputs with scale and zero point
  integer,     // 8-bit inputs, 32-bit accumulators as output
  to_float,    // 8-bit inputs, floating output
  nhwc,        // channels last
  transposed,  // recurrent weights as [directions, inputs, gates x hidden]
  packed,      // rows of several sequences one after the other, without padding
  grouped,     // fewer heads of keys and values than of queries
  self,        // query, key and value come from one input through one weight
  arg_max,
  arg_min,
  inverse,
  product,
};

struct Operator;
using Infer = bool (*)(InferContext&, const Operator&);
using Lower = void (*)(InferContext&, const Operator&);

/// nchwc is ONNX Runtime's blocked layout on CPUs: channels padded to the vector width, which files do not state.
enum class Domain : std::uint8_t { standard, microsoft, nchwc, ml, preview, other };

struct Operator {
  Text name;
  Domain domain;
  OpKind kind;
  Infer infer = nullptr;  // absent: the shape cannot be told from shapes (control flow, text, search)
  Lower lower = nullptr;  // attributes beyond the outputs; runs before infer
  Variant variant = Variant::none;
};

std::span<const Operator> operator_table() noexcept;

/// A shape under construction, at most kMaxRank long.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(Dims dims);  // Error(limit) past kMaxRank

  void push(std::int64_t dim);
  void insert(std::size_t at, std::int64_t dim);
  std::size_t size() const noexcept { return size_; }
  std::int64_t& operator[](std::size_t i) noexcept { return dims_[i]; }
  std::int64_t operator[](std::size_t i) const noexcept { return dims_[i]; }
  operator Dims() const noexcept { return {dims_, size_}; }  // NOLINT: a shape is its dimensions
  const std::int64_t* begin() const noexcept { return dims_; }
  const std::int64_t* end() const noexcept { return dims_ + size_; }

 private:
  std::int64_t dims_[kMaxRank] = {};
  std::size_t size_ = 0;
};

// --- reading a node (context.cpp) ---

/// Throws Error(shape) with the operator and the node in front.
[[noreturn]] void fail(const InferContext& c, const std::string& what);
std::string show(Dims dims);

/// Input i, or nullptr where it is absent.
const Value* input(const InferContext& c, std::size_t i) noexcept;
/// Input i has a shape. Error(shape) where it is absent though the operator needs it.
bool ready(const InferContext& c, std::initializer_list<std::size_t> inputs);
/// Shape of input i; only after ready().
Dims shape_of(const InferContext& c, std::size_t i) noexcept;
DType dtype_of(const InferContext& c, std::size_t i) noexcept;
/// Known integers of input i; nullptr where absent, unknown or not integers.
const Value* integers_of(const InferContext& c, std::size_t i) noexcept;

/// Attributes, with Error(shape) where the file gives another kind than the operator defines.
Dims integers_attribute(const InferContext& c, Text name);
std::int64_t integer_attribute(const InferContext& c, Text name, std::int64_t fallback);

/// An axis counted from 0. Error(shape) outside [-rank, rank).
std::size_t axis_of(const InferContext& c, std::int64_t axis, std::size_t rank);
/// The same, or kNoAxis where the rank is unknown or the axis is outside: for lowering, which never throws for it.
std::int32_t soft_axis(std::int64_t axis, const Value* value, std::int64_t extra = 0) noexcept;
/// The value as int32; Error(shape) outside [low, 2^31).
std::int32_t small(const InferContext& c, std::int64_t value, std::int64_t low, const char* what);
std::int32_t clamped(std::int64_t value) noexcept;

/// Element type of an ONNX TensorProto.DataType number; undefined for an unknown one.
DType data_type(std::int64_t number) noexcept;

// --- writing results ---

/// Output i gets type and shape, checked against the bounds of every tensor. An absent output is skipped.
void set(InferContext& c, std::size_t i, DType dtype, Dims shape);
void set_dtype(InferContext& c, std::size_t i, DType dtype) noexcept;
/// Output i has its shape and at most max_values elements: contents may follow.
bool wants_values(const InferContext& c, std::size_t i) noexcept;
void set_integers(InferContext& c, std::size_t i, Dims values);
/// Contents of output i: element k is element source(k) of `from`, which has values of the same kind.
template <typename Source>
void select_values(InferContext& c, std::size_t i, const Value& from, Source source);
std::int64_t* new_integers(InferContext& c, std::size_t count);
double* new_reals(InferContext& c, std::size_t count);
/// Reduces an integer to the width of its type, as the arithmetic of that type does.
std::int64_t wrapped(DType dtype, std::int64_t value) noexcept;
/// Rounds to the precision of the type (single where it is float32).
double rounded(DType dtype, double value) noexcept;
double round_half_even(double value) noexcept;

/// Numpy broadcasting; Error(shape) where it does not apply. A dimension that carries the file's batch on one side and
/// the batch asked for on the other counts as equal.
Shape broadcast(const InferContext& c, Dims a, Dims b);
/// Shape of input i. A constant that holds the file's batch beside an operand with the batch asked for follows it.
Shape operand(const InferContext& c, std::size_t i);
/// Two dimensions that must agree; the one with the batch asked for where they differ by the batch alone.
std::int64_t agree(const InferContext& c, std::int64_t a, std::int64_t b, const char* what);
bool rebinds(const InferContext& c) noexcept;
/// Error(limit) past kMaxElements, so that a few more terms may be added without wrapping around.
std::int64_t product(const InferContext& c, std::int64_t a, std::int64_t b);
std::int64_t elements(Dims shape);

/// Index arithmetic over the elements of a small tensor, row-major.
struct Strides {
  explicit Strides(Dims shape) noexcept;
  std::int64_t of[kMaxRank];
};
/// Position in a tensor of shape `from` of element k of a tensor of shape `to` that it is broadcast to.
std::int64_t broadcast_position(std::int64_t k, Dims to, Dims from) noexcept;

template <typename Source>
void select_values(InferContext& c, std::size_t i, const Value& from, Source source) {
  if (!from.has_values || !wants_values(c, i)) return;
  Value& out = c.outputs[i];
  const auto count = static_cast<std::size_t>(elements(out.shape));
  const bool real = is_floating(from.dtype);
  const std::size_t available = real ? from.reals.size() : from.integers.size();
  std::int64_t* integers = real ? nullptr : new_integers(c, count);
  double* reals = real ? new_reals(c, count) : nullptr;
  for (std::size_t k = 0; k < count; ++k) {
    const std::int64_t at = source(static_cast<std::int64_t>(k));
    if (at < 0 || static_cast<std::size_t>(at) >= available) return;
    if (real) {
      reals[k] = from.reals[static_cast<std::size_t>(at)];
    } else {
      integers[k] = from.integers[static_cast<std::size_t>(at)];
    }
  }
  out.has_values = true;
  out.integers = {integers, real ? 0 : count};
  out.reals = {reals, real ? count : 0};
}

// --- inference, one function per group of operators that share a rule ---

// elementwise.cpp
bool infer_same(InferContext&, const Operator&);   // outputs like input 0, no contents
bool infer_unary(InferContext&, const Operator&);  // the same, with contents
bool infer_clip(InferContext&, const Operator&);
bool infer_predicate(InferContext&, const Operator&);  // boolean, shape of input 0
bool infer_binary(InferContext&, const Operator&);     // broadcast of all inputs, type of input 0
bool infer_compare(InferContext&, const Operator&);    // broadcast, boolean
bool infer_where(InferContext&, const Operator&);
bool infer_cast(InferContext&, const Operator&);
bool infer_identity(InferContext&, const Operator&);
bool infer_dropout(InferContext&, const Operator&);
void lower_view(InferContext&, const Operator&);
void lower_dropout(InferContext&, const Operator&);

// values.cpp: contents of elementwise operators
void unary_values(InferContext&, const Operator&);
void clip_values(InferContext&);
void binary_values(InferContext&, const Operator&);
void compare_values(InferContext&, const Operator&);
void where_values(InferContext&);
void cast_values(InferContext&);

// convolution.cpp
bool infer_conv(InferContext&, const Operator&);
bool infer_conv_transpose(InferContext&, const Operator&);
bool infer_causal_conv(InferContext&, const Operator&);
bool infer_col2im(InferContext&, const Operator&);
void lower_conv(InferContext&, const Operator&);
void lower_conv_transpose(InferContext&, const Operator&);
void lower_causal_conv(InferContext&, const Operator&);
void lower_col2im(InferContext&, const Operator&);

// pooling.cpp
bool infer_pool(InferContext&, const Operator&);
bool infer_global_pool(InferContext&, const Operator&);
bool infer_roi_pool(InferContext&, const Operator&);
bool infer_max_unpool(InferContext&, const Operator&);
void lower_pool(InferContext&, const Operator&);
void lower_global_pool(InferContext&, const Operator&);
void lower_roi_pool(InferContext&, const Operator&);

// matmul.cpp
bool infer_matmul(InferContext&, const Operator&);
bool infer_gemm(InferContext&, const Operator&);
bool infer_einsum(InferContext&, const Operator&);
bool infer_matmul_nbits(InferContext&, const Operator&);
bool infer_cdist(InferContext&, const Operator&);
void lower_matmul(InferContext&, const Operator&);
void lower_einsum(InferContext&, const Operator&);
void lower_matmul_nbits(InferContext&, const Operator&);

// attention.cpp
bool infer_attention(InferContext&, const Operator&);          // ai.onnx
bool infer_packed_projection(InferContext&, const Operator&);  // com.microsoft Attention and its kin
bool infer_multi_head_attention(InferContext&, const Operator&);
bool infer_flex_attention(InferContext&, const Operator&);
bool infer_linear_attention(InferContext&, const Operator&);
bool infer_gemma_rotary(InferContext&, const Operator&);
bool infer_embed_layer_norm(InferContext&, const Operator&);
bool infer_remove_padding(InferContext&, const Operator&);
bool infer_restore_padding(InferContext&, const Operator&);
void lower_attention(InferContext&, const Operator&);
void lower_rotary(InferContext&, const Operator&);
void lower_moe(InferContext&, const Operator&);

// recurrent.cpp
bool infer_recurrent(InferContext&, const Operator&);
void lower_recurrent(InferContext&, const Operator&);

// movement.cpp
bool infer_reshape(InferContext&, const Operator&);
bool infer_flatten(InferContext&, const Operator&);
bool infer_squeeze(InferContext&, const Operator&);
bool infer_unsqueeze(InferContext&, const Operator&);
bool infer_transpose(InferContext&, const Operator&);
bool infer_depth_to_space(InferContext&, const Operator&);
bool infer_space_to_depth(InferContext&, const Operator&);
void lower_axis(InferContext&, const Operator&);
void lower_flatten(InferContext&, const Operator&);

// slices.cpp
bool infer_concat(InferContext&, const Operator&);
bool infer_split(InferContext&, const Operator&);
bool infer_slice(InferContext&, const Operator&);
bool infer_pad(InferContext&, const Operator&);
bool infer_tile(InferContext&, const Operator&);
bool infer_expand(InferContext&, const Operator&);
bool infer_reorder(InferContext&, const Operator&);
bool infer_center_crop_pad(InferContext&, const Operator&);
bool infer_unfold_tensor(InferContext&, const Operator&);

// gather.cpp
bool infer_gather(InferContext&, const Operator&);
bool infer_gather_elements(InferContext&, const Operator&);
bool infer_gather_nd(InferContext&, const Operator&);
bool infer_gather_block_quantized(InferContext&, const Operator&);
bool infer_scatter(InferContext&, const Operator&);
bool infer_scatter_nd(InferContext&, const Operator&);
bool infer_one_hot(InferContext&, const Operator&);
bool infer_compress(InferContext&, const Operator&);
bool infer_top_k(InferContext&, const Operator&);
bool infer_non_zero(InferContext&, const Operator&);
bool infer_unique(InferContext&, const Operator&);
bool infer_non_max_suppression(InferContext&, const Operator&);
void lower_gather_block_quantized(InferContext&, const Operator&);

// generators.cpp
bool infer_constant(InferContext&, const Operator&);
bool infer_constant_of_shape(InferContext&, const Operator&);
bool infer_range(InferContext&, const Operator&);
bool infer_shape(InferContext&, const Operator&);
bool infer_size(InferContext&, const Operator&);
bool infer_random(InferContext&, const Operator&);
bool infer_like(InferContext&, const Operator&);
bool infer_eye_like(InferContext&, const Operator&);
bool infer_multinomial(InferContext&, const Operator&);

// reduction.cpp
bool infer_reduce(InferContext&, const Operator&);
bool infer_arg_reduce(InferContext&, const Operator&);
bool infer_cumulative(InferContext&, const Operator&);
bool infer_determinant(InferContext&, const Operator&);
bool infer_loss(InferContext&, const Operator&);
void lower_reduce(InferContext&, const Operator&);

// normalization.cpp
bool infer_batch_norm(InferContext&, const Operator&);
bool infer_layer_norm(InferContext&, const Operator&);
bool infer_skip_layer_norm(InferContext&, const Operator&);
bool infer_skip_group_norm(InferContext&, const Operator&);
void lower_softmax(InferContext&, const Operator&);
void lower_layer_norm(InferContext&, const Operator&);
void lower_group_norm(InferContext&, const Operator&);

// quantization.cpp
bool infer_quantize(InferContext&, const Operator&);
bool infer_dequantize(InferContext&, const Operator&);
bool infer_dynamic_quantize(InferContext&, const Operator&);
bool infer_quantized_binary(InferContext&, const Operator&);
bool infer_quantized_where(InferContext&, const Operator&);
bool infer_quantized_concat(InferContext&, const Operator&);
bool infer_bias_split_gelu(InferContext&, const Operator&);

// resize.cpp
bool infer_resize(InferContext&, const Operator&);
bool infer_grid_sample(InferContext&, const Operator&);
bool infer_affine_grid(InferContext&, const Operator&);
bool infer_crop_and_resize(InferContext&, const Operator&);

// signal.cpp
bool infer_dft(InferContext&, const Operator&);
bool infer_rfft(InferContext&, const Operator&);
bool infer_stft(InferContext&, const Operator&);
bool infer_window(InferContext&, const Operator&);
bool infer_mel_weights(InferContext&, const Operator&);

// sequences.cpp: the Value of a sequence is its elements' type and common shape, and each one's where all are known
bool infer_sequence_construct(InferContext&, const Operator&);
bool infer_sequence_insert(InferContext&, const Operator&);
bool infer_sequence_element(InferContext&, const Operator&);
bool infer_sequence_empty(InferContext&, const Operator&);
bool infer_sequence_at(InferContext&, const Operator&);
bool infer_sequence_erase(InferContext&, const Operator&);
bool infer_sequence_joined(InferContext&, const Operator&);
bool infer_sequence_length(InferContext&, const Operator&);
bool infer_split_to_sequence(InferContext&, const Operator&);
bool infer_has_element(InferContext&, const Operator&);
bool infer_tf_idf(InferContext&, const Operator&);
bool infer_ngram(InferContext&, const Operator&);
bool infer_array_features(InferContext&, const Operator&);
bool infer_label_encoder(InferContext&, const Operator&);
bool infer_linear_classifier(InferContext&, const Operator&);
bool infer_linear_regressor(InferContext&, const Operator&);
bool infer_one_hot_encoder(InferContext&, const Operator&);
bool infer_tree_ensemble(InferContext&, const Operator&);

}  // namespace perfpass::onnx
