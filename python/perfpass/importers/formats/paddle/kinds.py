"""Paddle's operators in perfpass's vocabulary. What is not listed becomes `unknown`, with its shapes kept.

Source of the names and operands: paddle/phi/ops/yaml of PaddlePaddle 3.3 (Apache-2.0).
"""

from __future__ import annotations

# Canonical kind -> PIR names without dialect and the in-place underscore.
_KINDS: dict[str, str] = {
    "conv": "conv2d conv3d depthwise_conv2d conv2d_bias depthwise_conv2d_bias depthwise_conv3d_bias conv3d_bias "
    "fused_conv2d_add_act fused_conv3d conv2d_xpu conv1d_xpu fused_scale_bias_relu_conv_bn",
    "conv_transpose": "conv2d_transpose conv3d_transpose depthwise_conv2d_transpose conv2d_transpose_bias "
    "conv2d_transpose_xpu",
    "deform_conv": "deformable_conv",
    "matmul": "matmul legacy_matmul matmul_with_flatten bmm mv dot addmm baddbmm multi_dot fused_matmul "
    "fused_gemm_epilogue gemm_epilogue batched_gemm fp8_fp8_half_gemm_fused weight_only_linear llm_int8_linear fc "
    "fc_xpu fused_fc_elementwise_layernorm batch_fc fusion_repeated_fc_relu fusion_squared_mat_sub",
    "einsum": "einsum",
    "bilinear": "bilinear",
    "attention": "flash_attn flash_attn_qkvpacked flash_attn_unpadded flash_attn_v3 flash_attn_varlen_qkvpacked "
    "flash_attn_v3_varlen flashmask_attention flashmask_attention_v2 memory_efficient_attention "
    "variable_length_memory_efficient_attention fused_dot_product_attention self_dp_attention multihead_matmul "
    "block_multihead_attention masked_multihead_attention sparse_attention qkv_unpack_mha qkv_attention_xpu "
    "cross_attention_xpu fused_attention fused_gate_attention",
    "lstm": "lstm cudnn_lstm fusion_lstm attention_lstm fused_embedding_fc_lstm",
    "gru": "gru fusion_gru gru_unit",
    "rnn": "rnn",
    "batch_norm": "batch_norm fused_batch_norm_act fused_bn_add_activation affine_channel bn_act_xpu",
    "layer_norm": "layer_norm fast_ln fused_bias_dropout_residual_layer_norm fused_bias_residual_layernorm "
    "skip_layernorm add_layernorm_xpu layer_norm_act_xpu layer_norm_relu_xpu fast_layernorm_xpu",
    "instance_norm": "instance_norm data_norm",
    "group_norm": "group_norm add_group_norm_silu group_norm_silu_xpu",
    "rms_norm": "rms_norm fast_rms_norm fused_rms_norm_ext fused_rms_norm_quant",
    "lrn": "lrn",
    "l2_norm": "norm renorm clip_by_norm spectral_norm",
    "softmax": "softmax fused_softmax_mask fused_softmax_mask_upper_triangle gumbel_softmax sequence_softmax",
    "log_softmax": "log_softmax",
    "relu": "relu thresholded_relu",
    "leaky_relu": "leaky_relu rrelu",
    "prelu": "prelu",
    "elu": "elu",
    "selu": "selu",
    "celu": "celu",
    "gelu": "gelu",
    "sigmoid": "sigmoid logsigmoid logit",
    "hard_sigmoid": "hardsigmoid",
    "hard_swish": "hardswish",
    "silu": "silu swish",
    "mish": "mish",
    "tanh": "tanh stanh tanh_shrink",
    "softplus": "softplus soft_relu",
    "softsign": "softsign",
    "clip": "clip relu6 hardtanh hardshrink softshrink",
    "glu": "swiglu fused_bias_act fused_weighted_swiglu_act_quant fused_act_dequant maxout",
    "abs": "abs",
    "exp": "exp expm1",
    "log": "log log2 log10 log1p lgamma gammaln digamma",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "reciprocal",
    "erf": "erf erfinv",
    "trigonometric": "sin cos tan asin acos atan atan2 sinh cosh asinh acosh atanh angle i0 i0e i1 i1e polygamma",
    "round": "round floor ceil trunc rint",
    "sign": "sign copysign heaviside nextafter",
    "is_special": "isnan isinf isfinite",
    "add": "add add_n fused_elementwise_add lerp increment fused_elemwise_add_activation fused_elemwise_activation "
    "fused_scale_bias_add_relu fused_dropout_add add_act_xpu add_position_encoding",
    "sub": "subtract fused_elementwise_sub",
    "mul": "multiply scale square fused_elementwise_mul addcmul kron apply_per_channel_scale",
    "div": "divide floor_divide trunc_divide fused_elementwise_div",
    "pow": "pow elementwise_pow",
    "mod": "remainder fmod",
    "minimum": "minimum fmin",
    "maximum": "maximum fmax",
    "compare": "equal not_equal less_than less_equal greater_than greater_equal isclose allclose equal_all",
    "logical": "logical_and logical_or logical_not logical_xor",
    "bitwise": "bitwise_and bitwise_or bitwise_not bitwise_xor bitwise_left_shift bitwise_right_shift",
    "where": "where masked_fill fast_where_xpu",
    "cast": "cast view_dtype",
    "reduce_sum": "sum nansum reduce_as squared_l2_norm",
    "reduce_mean": "mean mean_all",
    "reduce_max": "max amax max_with_index",
    "reduce_min": "min amin min_with_index",
    "reduce_prod": "prod",
    "reduce_norm": "p_norm frobenius_norm l1_norm dist",
    "reduce_log_sum_exp": "logsumexp",
    "reduce_variance": "var std variance",
    "reduce_any": "any all is_empty",
    "arg_reduce": "argmax argmin",
    "cumulative": "cumsum cumprod cummax cummin logcumsumexp",
    "max_pool": "max_pool2d_with_index max_pool3d_with_index max_pool2d_v2 fractional_max_pool2d fractional_max_pool3d",
    "avg_pool": "pool2d pool3d",
    "lp_pool": "lp_pool2d",
    "roi_pool": "roi_align roi_pool psroi_pool prroi_pool",
    "max_unpool": "unpool unpool3d",
    "reshape": "reshape legacy_reshape squeeze unsqueeze flatten flatten_to_matrix as_complex as_real real imag "
    "view_shape tensor_unfold",
    "transpose": "transpose channel_shuffle trans_layout temporal_shift fusion_transpose_flatten_concat",
    "concat": "concat stack partial_concat broadcast_tensors meshgrid",
    "split": "split split_with_num unbind unstack",
    "slice": "slice strided_slice crop diagonal as_strided index_select_strided view_slice set_value_slice",
    "pad": "pad pad3d pad2d_xpu",
    "tile": "tile repeat_interleave repeat_interleave_with_tensor_index sequence_expand",
    "expand": "expand expand_as",
    "depth_to_space": "pixel_shuffle",
    "space_to_depth": "pixel_unshuffle space_to_depth",
    "unfold": "unfold im2sequence frame",
    "fold": "fold overlap_add",
    "roll": "roll",
    "reverse": "flip reverse",
    "copy": "assign copy_to memcpy memcpy_d2h memcpy_h2d share_data share_var npu_identity",
    "identity": "conj complex print assert nop depend",
    "triangular": "tril triu",
    "gather": "gather gather_nd index_select index_sample take_along_axis index_elementwise_get gather_tree multiplex",
    "embedding": "embedding c_embedding sparse_weight_embedding embedding_with_scaled_gradient",
    "scatter": "scatter scatter_nd_add put_along_axis index_add index_put set_value set_value_with_tensor "
    "index_elementwise_put index_elementwise_put_with_tensor fill_diagonal fill_diagonal_tensor bincount histogram "
    "send_u_recv send_ue_recv send_uv segment_pool",
    "one_hot": "one_hot sequence_mask",
    "compress": "masked_select",
    "resize": "nearest_interp bilinear_interp bicubic_interp trilinear_interp linear_interp interp_antialias",
    "grid_sample": "grid_sample",
    "affine_grid": "affine_grid",
    "top_k": "topk kthvalue mode top_p_sampling",
    "sort": "argsort median nanmedian searchsorted",
    "non_max_suppression": "nms multiclass_nms3 matrix_nms locality_aware_nms",
    "non_zero": "nonzero",
    "unique": "unique unique_consecutive",
    "quantize": "quantize_linear fake_quantize_abs_max fake_quantize_range_abs_max "
    "fake_quantize_moving_average_abs_max fake_channel_wise_quantize_abs_max fake_quantize_dequantize_abs_max "
    "fake_quantize_dequantize_moving_average_abs_max fake_channel_wise_quantize_dequantize_abs_max quantize_xpu "
    "weight_quantize fp8_quant_blockwise",
    "dequantize": "dequantize_linear dequantize_abs_max dequantize_log fake_dequantize_max_abs "
    "fake_channel_wise_dequantize_max_abs dequantize_xpu weight_dequantize",
    "constant": "empty empty_like data",
    "fill": "full full_like full_with_tensor full_batch_size_like full_int_array zeros ones zeros_like ones_like fill "
    "assign_value prior_box anchor_generator density_prior_box",
    "range": "arange linspace logspace tril_indices triu_indices range_v2",
    "random": "gaussian uniform randint randperm bernoulli multinomial poisson truncated_gaussian_random binomial "
    "dirichlet standard_gamma",
    "shape_of": "shape shape64 numel",
    "eye": "eye diag diag_embed",
    "dft": "fft_c2c fft_r2c fft_c2r",
    "stft": "stft",
    "rotary_embedding": "fused_rotary_position_embedding fused_partial_rope",
    "moe": "fused_moe moe",
    "state_space_scan": "selective_scan",
    "determinant": "det slogdet",
    "conditional": "if select_input select_output pylayer",
    "loop": "while",
    "sequence": "array_length array_read array_write array_pop write_to_array create_array create_array_like "
    "array_to_tensor tensor_to_array slice_array slice_array_dense add_n_array assign_array",
    "text": "faster_tokenizer",
    "loss": "cross_entropy_with_softmax bce_loss nll_loss huber_loss kldiv_loss log_loss hinge_loss warpctc "
    "sigmoid_cross_entropy_with_logits identity_loss",
    "dropout": "dropout",
}
KIND_OF: dict[str, str] = {name: kind for kind, names in _KINDS.items() for name in names.split()}

_ELEMENTWISE = (
    "relu leaky_relu prelu elu selu celu gelu sigmoid hard_sigmoid hard_swish silu mish tanh softplus softsign clip "
    "abs neg exp log sqrt rsqrt reciprocal erf trigonometric round sign is_special add sub mul div pow mod minimum "
    "maximum compare logical bitwise where cast quantize dequantize"
)
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
# One result of the shape of the first operand.
_SAME = (
    "batch_norm layer_norm instance_norm group_norm rms_norm lrn l2_norm softmax log_softmax cumulative roll reverse "
    "copy identity triangular dropout rotary_embedding scatter sort"
)
SAME = frozenset(_SAME.split())
REDUCTIONS = frozenset(kind for kind in _KINDS if kind.startswith("reduce_"))
