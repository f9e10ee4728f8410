// The builtin operators of TensorFlow Lite by their number (tflite schema.fbs, BuiltinOperator), the canonical operator
// of each, its rule of shapes, and how its options and operands become those that the rule reads.
#pragma once

#include <span>

#include "onnx/operators/operators.hpp"

namespace perfpass::tflite {

enum class Form : std::uint8_t {
  plain,  // operands as they stand, no options
  conv,
  depthwise,
  conv_3d,
  transpose_conv,
  transpose_conv_3d,
  pool,
  dense,
  batch_matmul,
  axis_option,   // the axis is the options' first field
  axis_second,   // the axis is the options' second field
  axis_operand,  // the axis is operand 1
  block,         // block size
  gather,        // axis and batch dimensions
  lookup,        // indices before the table
  reduce,        // whether reduced axes stay; axes are operand 1
  squeeze,
  reshape,
  strided_slice,
  split,          // axis, data
  split_lengths,  // data, lengths, axis
  arg,            // positions of extrema along operand 1
  transpose,
  converted,  // to the type that the output declares
  cumulative,
  recurrent,       // data, weights, recurrent weights, bias, state
  recurrent_both,  // the same twice
  lstm,
  lstm_both,
  folded,  // of a constant, once when the model is loaded
  assign,  // writes a variable and nothing else
  once,
  call,
  conditional,
  loop,
  composite,
  dot_general,
  convolution,  // of StableHLO
  permuted,     // of StableHLO
  custom,
};

struct Builtin {
  onnx::Operator op;
  OpKind quantized = op.kind;  // of 8- and 16-bit operands
  Form form = Form::plain;
  std::int8_t activation = -1;  // the options' field of the fused activation; -1: none
  bool is_unknown_on_purpose = false;
};

/// By number.
std::span<const Builtin> builtins() noexcept;
/// The entry of a builtin for floating operands, and for quantized ones.
const onnx::Operator& operator_of(std::size_t code, bool quantized) noexcept;
/// Weights of 4 bits under a floating input.
const onnx::Operator& few_bits_product() noexcept;
/// A fused activation by its number (ActivationFunctionType); nullptr for none, and for one that is not known.
const onnx::Operator* activation(std::int8_t number) noexcept;
/// A custom operator by its name; an entry of kind unknown where there is none.
const onnx::Operator& custom(onnx::Text name) noexcept;

using onnx::InferContext;
using onnx::Operator;

// shapes.cpp
bool infer_dense(InferContext&, const Operator&);
bool infer_block(InferContext&, const Operator&);
bool infer_space_batch(InferContext&, const Operator&);
bool infer_resize(InferContext&, const Operator&);
bool infer_transpose_conv(InferContext&, const Operator&);
void lower_transpose_conv(InferContext&, const Operator&);
bool infer_recurrent(InferContext&, const Operator&);
void lower_recurrent(InferContext&, const Operator&);
bool infer_shaped(InferContext&, const Operator&);  // the shape is operand 0
bool infer_fill(InferContext&, const Operator&);
bool infer_rank(InferContext&, const Operator&);
bool infer_scatter(InferContext&, const Operator&);
bool infer_rfft(InferContext&, const Operator&);
bool infer_diagonal(InferContext&, const Operator&);
bool infer_suppression(InferContext&, const Operator&);
bool infer_where(InferContext&, const Operator&);
bool infer_dot_general(InferContext&, const Operator&);
void lower_dot_general(InferContext&, const Operator&);
void lower_few_bits(InferContext&, const Operator&);

// slices.cpp
bool infer_pad(InferContext&, const Operator&);
bool infer_strided_slice(InferContext&, const Operator&);
bool infer_slice(InferContext&, const Operator&);
bool infer_pack(InferContext&, const Operator&);
bool infer_unpack(InferContext&, const Operator&);
bool infer_gather(InferContext&, const Operator&);
bool infer_broadcast_arguments(InferContext&, const Operator&);

}  // namespace perfpass::tflite
