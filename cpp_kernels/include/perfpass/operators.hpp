// The canonical operators, one vocabulary for every importer, and the coarse class each belongs to.
//
// X(name, class). The order is part of artefact schemas: append, never reorder (docs/reference/schemas.md).
#pragma once

#include <cstdint>
#include <string_view>

#include "perfpass/export.hpp"

#define PERFPASS_OP_CLASSES(X) \
  X(unknown)                   \
  X(convolution)               \
  X(matmul)                    \
  X(attention)                 \
  X(recurrent)                 \
  X(normalization)             \
  X(softmax)                   \
  X(activation)                \
  X(elementwise)               \
  X(reduction)                 \
  X(pooling)                   \
  X(data_movement)             \
  X(gather)                    \
  X(resize)                    \
  X(sort)                      \
  X(quantization)              \
  X(generator)                 \
  X(signal)                    \
  X(control)

#define PERFPASS_OPERATORS(X)            \
  X(unknown, unknown)                    \
  X(conv, convolution)                   \
  X(conv_transpose, convolution)         \
  X(deform_conv, convolution)            \
  X(matmul, matmul)                      \
  X(dense, matmul)                       \
  X(einsum, matmul)                      \
  X(attention, attention)                \
  X(lstm, recurrent)                     \
  X(gru, recurrent)                      \
  X(rnn, recurrent)                      \
  X(batch_norm, normalization)           \
  X(layer_norm, normalization)           \
  X(instance_norm, normalization)        \
  X(group_norm, normalization)           \
  X(rms_norm, normalization)             \
  X(lrn, normalization)                  \
  X(l2_norm, normalization)              \
  X(softmax, softmax)                    \
  X(log_softmax, softmax)                \
  X(relu, activation)                    \
  X(leaky_relu, activation)              \
  X(prelu, activation)                   \
  X(elu, activation)                     \
  X(selu, activation)                    \
  X(celu, activation)                    \
  X(gelu, activation)                    \
  X(sigmoid, activation)                 \
  X(hard_sigmoid, activation)            \
  X(hard_swish, activation)              \
  X(silu, activation)                    \
  X(mish, activation)                    \
  X(tanh, activation)                    \
  X(softplus, activation)                \
  X(softsign, activation)                \
  X(clip, activation)                    \
  X(glu, activation)                     \
  X(abs, elementwise)                    \
  X(neg, elementwise)                    \
  X(exp, elementwise)                    \
  X(log, elementwise)                    \
  X(sqrt, elementwise)                   \
  X(rsqrt, elementwise)                  \
  X(reciprocal, elementwise)             \
  X(erf, elementwise)                    \
  X(trigonometric, elementwise)          \
  X(round, elementwise)                  \
  X(sign, elementwise)                   \
  X(is_special, elementwise)             \
  X(add, elementwise)                    \
  X(sub, elementwise)                    \
  X(mul, elementwise)                    \
  X(div, elementwise)                    \
  X(pow, elementwise)                    \
  X(mod, elementwise)                    \
  X(minimum, elementwise)                \
  X(maximum, elementwise)                \
  X(compare, elementwise)                \
  X(logical, elementwise)                \
  X(bitwise, elementwise)                \
  X(where, elementwise)                  \
  X(cast, elementwise)                   \
  X(reduce_sum, reduction)               \
  X(reduce_mean, reduction)              \
  X(reduce_max, reduction)               \
  X(reduce_min, reduction)               \
  X(reduce_prod, reduction)              \
  X(reduce_norm, reduction)              \
  X(reduce_log_sum_exp, reduction)       \
  X(reduce_variance, reduction)          \
  X(reduce_any, reduction)               \
  X(arg_reduce, reduction)               \
  X(cumulative, reduction)               \
  X(max_pool, pooling)                   \
  X(avg_pool, pooling)                   \
  X(lp_pool, pooling)                    \
  X(global_avg_pool, pooling)            \
  X(global_max_pool, pooling)            \
  X(roi_pool, pooling)                   \
  X(max_unpool, pooling)                 \
  X(reshape, data_movement)              \
  X(transpose, data_movement)            \
  X(concat, data_movement)               \
  X(split, data_movement)                \
  X(slice, data_movement)                \
  X(pad, data_movement)                  \
  X(tile, data_movement)                 \
  X(expand, data_movement)               \
  X(depth_to_space, data_movement)       \
  X(space_to_depth, data_movement)       \
  X(unfold, data_movement)               \
  X(fold, data_movement)                 \
  X(roll, data_movement)                 \
  X(reverse, data_movement)              \
  X(copy, data_movement)                 \
  X(identity, data_movement)             \
  X(triangular, data_movement)           \
  X(gather, gather)                      \
  X(embedding, gather)                   \
  X(scatter, gather)                     \
  X(one_hot, gather)                     \
  X(compress, gather)                    \
  X(resize, resize)                      \
  X(grid_sample, resize)                 \
  X(affine_grid, resize)                 \
  X(top_k, sort)                         \
  X(sort, sort)                          \
  X(non_max_suppression, sort)           \
  X(non_zero, sort)                      \
  X(unique, sort)                        \
  X(quantize, quantization)              \
  X(dequantize, quantization)            \
  X(dynamic_quantize, quantization)      \
  X(quantized_conv, convolution)         \
  X(quantized_matmul, matmul)            \
  X(quantized_elementwise, quantization) \
  X(matmul_nbits, matmul)                \
  X(constant, generator)                 \
  X(fill, generator)                     \
  X(range, generator)                    \
  X(random, generator)                   \
  X(shape_of, generator)                 \
  X(eye, generator)                      \
  X(dft, signal)                         \
  X(stft, signal)                        \
  X(window, signal)                      \
  X(rotary_embedding, elementwise)       \
  X(moe, matmul)                         \
  X(state_space_scan, recurrent)         \
  X(determinant, reduction)              \
  X(bilinear, matmul)                    \
  X(conditional, control)                \
  X(loop, control)                       \
  X(scan, control)                       \
  X(sequence, control)                   \
  X(text, control)                       \
  X(loss, reduction)                     \
  X(dropout, data_movement)

namespace perfpass {

enum class OpClass : std::uint8_t {
#define X(name) name,
  PERFPASS_OP_CLASSES(X)
#undef X
      count_,
};

enum class OpKind : std::uint16_t {
#define X(name, cls) name,
  PERFPASS_OPERATORS(X)
#undef X
      count_,
};

PERFPASS_API std::string_view op_name(OpKind op) noexcept;
/// unknown for a name that is not canonical.
PERFPASS_API OpKind op_from_name(std::string_view name) noexcept;
PERFPASS_API OpClass op_class(OpKind op) noexcept;
PERFPASS_API std::string_view op_class_name(OpClass cls) noexcept;

}  // namespace perfpass
