// The operators of StableHLO, MHLO and CHLO by name, and what the reader makes of several of them.
#pragma once

#include <cstdint>
#include <string_view>

namespace perfpass::stablehlo {

// clang-format off: it moves these rows again at every call
// X(name of the operator without its dialect)
#define PERFPASS_STABLEHLO_OPERATORS(X) \
  X(abs) X(acos) X(acosh) X(add) X(add_dependency) X(after_all) X(all_gather) X(all_reduce) X(all_to_all) X(asin) \
  X(asin_acos_kernel) X(asinh) X(atan) X(atan2) X(atanh) X(batch_norm_grad) X(batch_norm_inference) \
  X(batch_norm_training) X(bessel_i1e) X(bitcast) X(bitcast_convert) X(broadcast) X(broadcast_add) X(broadcast_and) \
  X(broadcast_atan2) X(broadcast_compare) X(broadcast_complex) X(broadcast_divide) X(broadcast_in_dim) \
  X(broadcast_maximum) X(broadcast_minimum) X(broadcast_multiply) X(broadcast_next_after) X(broadcast_or) \
  X(broadcast_polygamma) X(broadcast_power) X(broadcast_remainder) X(broadcast_select) X(broadcast_shift_left) \
  X(broadcast_shift_right_arithmetic) X(broadcast_shift_right_logical) X(broadcast_subtract) X(broadcast_xor) \
  X(broadcast_zeta) X(call) X(case_) X(cbrt) X(ceil) X(cholesky) X(clamp) X(collective_broadcast) \
  X(collective_permute) X(compare) X(complex) X(composite) X(concatenate) X(conj) X(constant) X(constant_like) \
  X(convert) X(convolution) X(copy) X(cosh) X(cosine) X(count_leading_zeros) X(create_token) X(cross_replica_sum) \
  X(custom_call) X(digamma) X(divide) X(domain) X(dot) X(dot_general) X(dynamic_broadcast_in_dim) X(dynamic_conv) \
  X(dynamic_gather) X(dynamic_iota) X(dynamic_pad) X(dynamic_reshape) X(dynamic_slice) X(dynamic_update_slice) \
  X(einsum) X(erf) X(erf_inv) X(erfc) X(exponential) X(exponential_minus_one) X(fft) X(floor) X(func) X(gather) \
  X(get_dimension_size) X(get_tuple_element) X(if_) X(imag) X(infeed) X(iota) X(is_finite) X(is_inf) X(is_neg_inf) \
  X(is_pos_inf) X(lgamma) X(log) X(log_plus_one) X(logistic) X(map) X(maximum) X(mesh) X(minimum) X(multiply) \
  X(negate) X(next_after) X(not_) X(optimization_barrier) X(or_) X(outfeed) X(pad) X(partition_id) X(polygamma) \
  X(popcnt) X(power) X(ragged_dot) X(real) X(real_dynamic_slice) X(recv) X(reduce) X(reduce_precision) \
  X(reduce_scatter) X(reduce_window) X(remainder) X(replica_id) X(reshape) X(return_) X(reverse) X(rng) \
  X(rng_bit_generator) X(round_nearest_afz) X(round_nearest_even) X(rsqrt) X(scan) X(scatter) X(select) \
  X(select_and_scatter) X(send) X(set_dimension_size) X(sharding_constraint) X(shift_left) X(shift_right_arithmetic) \
  X(shift_right_logical) X(sign) X(sine) X(sinh) X(slice) X(sort) X(sqrt) X(square) X(subtract) X(tan) X(tanh) \
  X(top_k) X(torch_index_select) X(transpose) X(triangular_solve) X(tuple) X(unary_einsum) X(uniform_dequantize) \
  X(uniform_quantize) X(while_) X(xor_) X(zeta) X(and_)

/// What recognised groups of operators become (recompose.cpp).
#define PERFPASS_STABLEHLO_GROUPS(X) \
  X(softmax_) X(log_softmax_) X(mean_) X(layer_norm_) X(rms_norm_) X(group_norm_) X(batch_norm_) X(gelu_) X(silu_) \
  X(sigmoid_) X(relu_) X(leaky_relu_) X(hard_swish_) X(hard_sigmoid_) X(softplus_) X(elu_) X(average_pool_) \
  X(attention_) X(resize_)
// clang-format on

enum class Code : std::uint16_t {
#define X(name) name,
  PERFPASS_STABLEHLO_OPERATORS(X) PERFPASS_STABLEHLO_GROUPS(X)
#undef X
      other,
};

/// The code of an operator's name without its dialect ("dot_general"); `other` for what is not listed.
Code code_of(std::string_view name) noexcept;

}  // namespace perfpass::stablehlo
