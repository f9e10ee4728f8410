"""ATen operators in perfpass's vocabulary: canonical kind, attributes, and which arguments are inputs.

`describe` is called once per recorded operator. What is not listed here becomes `unknown`, with its shapes kept.
Operator semantics: the schemas of `torch.ops` (native_functions.yaml of PyTorch).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

# Canonical kind -> ATen names without namespace, overload and the in-place underscore.
_KINDS: dict[str, str] = {
    "relu": "relu threshold",
    "leaky_relu": "leaky_relu rrelu rrelu_with_noise",
    "prelu": "prelu _prelu_kernel",
    "elu": "elu",
    "selu": "selu",
    "celu": "celu",
    "gelu": "gelu",
    "sigmoid": "sigmoid log_sigmoid_forward",
    "hard_sigmoid": "hardsigmoid",
    "hard_swish": "hardswish",
    "silu": "silu",
    "mish": "mish",
    "tanh": "tanh",
    "softplus": "softplus",
    "softsign": "softsign",
    "clip": "clamp clamp_min clamp_max hardtanh hardshrink softshrink nan_to_num",
    "glu": "glu",
    "abs": "abs",
    "neg": "neg negative",
    "exp": "exp exp2 expm1",
    "log": "log log2 log10 log1p logit xlogy",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "reciprocal",
    "erf": "erf erfc erfinv",
    "trigonometric": "sin cos tan asin acos atan atan2 sinh cosh asinh acosh atanh sinc polar angle",
    "round": "round floor ceil trunc frac",
    "sign": "sign sgn copysign",
    "is_special": "isnan isinf isfinite isposinf isneginf",
    "add": "add lerp",
    "sub": "sub rsub",
    "mul": "mul square addcmul",
    "div": "div floor_divide true_divide addcdiv",
    "pow": "pow float_power",
    "mod": "fmod remainder",
    "minimum": "minimum fmin",
    "maximum": "maximum fmax",
    "compare": "eq ne lt le gt ge isclose",
    "logical": "logical_and logical_or logical_not logical_xor",
    "bitwise": "bitwise_and bitwise_or bitwise_not bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ "
    "__xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__",
    "where": "where masked_fill",
    "reduce_sum": "sum nansum",
    "reduce_mean": "mean nanmean",
    "reduce_max": "amax max aminmax",
    "reduce_min": "amin min",
    "reduce_prod": "prod",
    "reduce_norm": "norm linalg_vector_norm",
    "reduce_log_sum_exp": "logsumexp",
    "reduce_variance": "var std var_mean std_mean",
    "reduce_any": "any all _is_any_true _is_all_true",
    "arg_reduce": "argmax argmin",
    "cumulative": "cumsum cumprod cummax cummin logcumsumexp _cummax_helper _cummin_helper",
    "softmax": "_softmax _safe_softmax softmax",
    "log_softmax": "_log_softmax log_softmax",
    "batch_norm": "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "miopen_batch_norm batch_norm_with_update",
    "layer_norm": "native_layer_norm",
    "group_norm": "native_group_norm",
    "rms_norm": "rms_norm _fused_rms_norm",
    "max_unpool": "max_unpool2d max_unpool3d",
    "reshape": "view _unsafe_view reshape _reshape_alias squeeze unsqueeze flatten unflatten view_as_real "
    "view_as_complex real imag",
    "transpose": "t transpose permute movedim swapaxes channel_shuffle native_channel_shuffle",
    "concat": "cat stack concat",
    "split": "split split_with_sizes unbind unsafe_split unsafe_split_with_sizes chunk unsafe_chunk tensor_split "
    "split_copy split_with_sizes_copy unbind_copy",
    "slice": "slice select narrow as_strided diagonal slice_copy select_copy",
    "pad": "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
    "replication_pad3d _pad_circular",
    "tile": "repeat tile repeat_interleave",
    "expand": "expand expand_as",
    "depth_to_space": "pixel_shuffle",
    "space_to_depth": "pixel_unshuffle",
    "unfold": "im2col unfold",
    "fold": "col2im",
    "roll": "roll",
    "reverse": "flip rot90",
    "copy": "clone contiguous copy lift_fresh_copy",
    "identity": "conj _conj resolve_conj resolve_neg",
    "triangular": "tril triu",
    "gather": "index index_select gather take take_along_dim",
    "embedding": "embedding _embedding_bag embedding_bag",
    "scatter": "scatter scatter_add scatter_reduce index_put _unsafe_index_put index_add index_copy index_fill "
    "slice_scatter select_scatter diagonal_scatter masked_scatter put index_reduce histc bincount",
    "l2_norm": "_weight_norm_interface",
    "compress": "masked_select",
    "grid_sample": "grid_sampler_2d grid_sampler_3d grid_sampler",
    "affine_grid": "affine_grid_generator",
    "top_k": "topk kthvalue",
    "sort": "sort argsort msort median searchsorted bucketize",
    "non_zero": "nonzero nonzero_static",
    "unique": "_unique2 unique_dim unique_consecutive",
    "quantize": "quantize_per_tensor quantize_per_channel fake_quantize_per_tensor_affine_cachemask",
    "dequantize": "dequantize",
    # Allocation runs no kernel.
    "constant": "empty empty_like new_empty empty_strided new_empty_strided empty_permuted scalar_tensor",
    "fill": "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill zero",
    "range": "arange linspace logspace tril_indices triu_indices",
    "random": "rand randn randint rand_like randn_like randint_like bernoulli normal uniform randperm multinomial "
    "exponential",
    "eye": "eye",
    "dft": "_fft_r2c _fft_c2r _fft_c2c",
    "window": "hann_window hamming_window blackman_window bartlett_window kaiser_window",
    "determinant": "_linalg_det _linalg_slogdet",
    "loss": "nll_loss_forward nll_loss2d_forward mse_loss smooth_l1_loss huber_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits",
    "dropout": "native_dropout",
    "non_max_suppression": "nms",
    "bilinear": "_trilinear",
}
KIND_OF: dict[str, str] = {name: kind for kind, names in _KINDS.items() for name in names.split()}

_REDUCTIONS = frozenset(kind for kind in _KINDS if kind.startswith("reduce_") or kind == "arg_reduce")
_WITH_AXIS = frozenset(
    [
        "softmax",
        "log_softmax",
        "concat",
        "split",
        "slice",
        "cumulative",
        "gather",
        "scatter",
        "top_k",
        "sort",
        "glu",
        "roll",
        "tile",
        "reverse",
    ]
)


@dataclass
class Call:
    """One operator call: arguments by schema name, output tensors in order."""

    name: str  # ATen name without namespace, overload and in-place underscore
    arguments: dict[str, Any]
    outputs: list[torch.Tensor]

    def __getitem__(self, key: str) -> Any:
        return self.arguments.get(key)


@dataclass
class Description:
    """What a call becomes: canonical kind, NodeAttributes by name, input tensors (None: absent)."""

    kind: str
    inputs: list[torch.Tensor | None]
    attributes: dict[str, int] = field(default_factory=dict)


_SCALARS = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device))


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested lists, tuples and dicts, in order."""
    found: list[torch.Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[torch.Tensor]) -> None:
    if type(value) in _SCALARS:  # most arguments, and quicker told than that a value is no tensor
        return
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)


@cache
def written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Positions and names of the arguments that an operator writes."""
    schema = func._schema.arguments
    return tuple((i, a.name) for i, a in enumerate(schema) if a.alias_info is not None and a.alias_info.is_write)


def _spatial(attributes: dict[str, int], **columns: Any) -> dict[str, int]:
    """Write lists such as kernel=[3, 3] as kernel_0, kernel_1."""
    for name, values in columns.items():
        for axis, value in enumerate(values[:3]):
            attributes[f"{name}_{axis}"] = int(value)
    return attributes


def _per_axis(value: Any, rank: int) -> list[int]:
    """One value per spatial axis from ATen's int lists, which may hold a single value for all axes."""
    values = [value] if isinstance(value, int) else list(value)
    return [int(v) for v in (values * rank if len(values) == 1 else values)]


def _convolution(call: Call) -> Description:
    weight, transposed = call["weight"], bool(call["transposed"])
    rank = weight.dim() - 2
    padding = _per_axis(call["padding"], rank)
    attributes = {"spatial_rank": rank, "groups": int(call["groups"]), "weight_layout": 2 if transposed else 0}
    _spatial(
        attributes,
        kernel=weight.shape[2:],
        stride=_per_axis(call["stride"], rank),
        pad_begin=padding,
        pad_end=padding,
        dilation=_per_axis(call["dilation"], rank),
    )
    kind = "conv_transpose" if transposed else "conv"
    return Description(kind, [call["input"], weight, call["bias"]], attributes)


def _deform_convolution(call: Call) -> Description:
    weight = call["weight"]
    attributes = {"spatial_rank": 2, "groups": int(call["groups"])}
    padding = [call["pad_h"], call["pad_w"]]
    _spatial(
        attributes,
        kernel=weight.shape[2:],
        stride=[call["stride_h"], call["stride_w"]],
        pad_begin=padding,
        pad_end=padding,
        dilation=[call["dilation_h"], call["dilation_w"]],
    )
    mask = call["mask"] if call["use_mask"] else None
    return Description("deform_conv", [call["input"], weight, call["offset"], call["bias"], mask], attributes)


def _matrix_product(first: str, second: str, bias: str | None = None) -> Callable[[Call], Description]:
    def describe_product(call: Call) -> Description:
        inputs = [call[first], call[second]]
        if bias is not None and call[bias] is not None:
            inputs.append(call[bias])
        return Description("matmul", inputs)

    return describe_product


def _distance(call: Call) -> Description:
    """All distances between rows of [..., N, D] and of [..., M, D], by one product, or a difference for each number."""
    return Description("matmul", [call["x1"], call["x2"]], {"transpose_b": 1})


def _triangular_solve(call: Call) -> Description:
    """N unknowns a column: N (N + 1) / 2 products and nearly as many sums (LAPACK Working Note 41, xTRSM)."""
    return Description("einsum", [call["self"], call["B"]], {"contraction": (int(call["self"].shape[-1]) + 1) // 2})


def _linear(call: Call) -> Description:
    return Description("dense", [call["input"], call["weight"], call["bias"]], {"transpose_b": 1})


def _attention(call: Call) -> Description:
    query, key = call["query"], call["key"]
    # [batch, heads, length, channels]; with three axes every batch entry is one head.
    heads, kv_heads = (int(query.shape[-3]), int(key.shape[-3])) if query.dim() >= 4 else (1, 1)
    attributes = {"causal": int(bool(call["is_causal"])), "num_heads": heads, "num_kv_heads": kv_heads}
    mask = call["attn_mask"] if call["attn_mask"] is not None else call["attn_bias"]
    return Description("attention", [query, key, call["value"], mask], attributes)


def _pool(kind: str) -> Callable[[Call], Description]:
    def describe_pool(call: Call) -> Description:
        rank = 3 if "3d" in call.name else 1 if "1d" in call.name else 2
        kernel = _per_axis(call["kernel_size"], rank)
        padding = _per_axis(call["padding"] or 0, rank)
        attributes = {"spatial_rank": rank}
        _spatial(
            attributes,
            kernel=kernel,
            stride=_per_axis(call["stride"] or kernel, rank),
            pad_begin=padding,
            pad_end=padding,
            dilation=_per_axis(call["dilation"] or 1, rank),
        )
        return Description(kind, [call["self"]], attributes)

    return describe_pool


def _adaptive_pool(kind: str) -> Callable[[Call], Description]:
    def describe_pool(call: Call) -> Description:
        source, target = call["self"], call.outputs[0]
        rank = 3 if "3d" in call.name else 1 if "1d" in call.name else 2
        sizes, wanted = source.shape[-rank:], target.shape[-rank:]
        attributes = {"spatial_rank": rank}
        if all(w == 1 for w in wanted):
            return Description(f"global_{kind}", [source], _spatial(attributes, kernel=sizes))
        # An output cell averages ceil(in / out) or one more inputs per axis (torch's start_index and end_index).
        kernel = [-(-s // max(w, 1)) for s, w in zip(sizes, wanted, strict=True)]
        stride = [max(s // max(w, 1), 1) for s, w in zip(sizes, wanted, strict=True)]
        return Description(kind, [source], _spatial(attributes, kernel=kernel, stride=stride))

    return describe_pool


def _roi_pool(call: Call) -> Description:
    attributes = _spatial({"spatial_rank": 2}, kernel=[call["pooled_height"], call["pooled_width"]])
    return Description("roi_pool", [call["input"], call["rois"]], attributes)


def _mean(call: Call) -> Description:
    source, dims = call["self"], call["dim"]
    rank = source.dim()
    spatial = dims is not None and rank in (4, 5) and sorted(d % rank for d in dims) == list(range(2, rank))
    if spatial and call["keepdim"]:
        # torch's adaptive_avg_pool to one cell is this mean.
        return Description("global_avg_pool", [source], _spatial({"spatial_rank": rank - 2}, kernel=source.shape[2:]))
    return _listed(call)


def _cast_or_copy(call: Call) -> Description:
    source = call["self"]
    return Description("copy" if call.outputs[0].dtype == source.dtype else "cast", [source])


def _resize(call: Call) -> Description:
    source = call["self"] if call["self"] is not None else call["input"]
    rank = source.dim() - 2
    return Description("resize", [source], {"spatial_rank": rank})


def _listed(call: Call) -> Description:
    kind = KIND_OF.get(call.name, "unknown")
    description = Description(kind, list(tensors_in(list(call.arguments.values()))))
    dim = call["dim"]
    if kind in _REDUCTIONS or kind in _WITH_AXIS:
        if isinstance(dim, (list, tuple)):
            dim = dim[-1] if len(dim) else None
        if isinstance(dim, int) and description.inputs and description.inputs[0] is not None:
            rank = max(description.inputs[0].dim(), 1)
            description.attributes["axis"] = dim % (rank + 1 if call.name == "stack" else rank)
    elif kind == "group_norm":
        description.attributes["groups"] = int(call["group"])
    elif kind == "layer_norm":
        description.attributes["axis"] = call["input"].dim() - len(call["normalized_shape"])
    elif kind == "unfold" and call.name == "im2col":
        description.attributes["spatial_rank"] = 2
        _spatial(description.attributes, kernel=call["kernel_size"], stride=call["stride"])
    return description


_HANDLERS: dict[str, Callable[[Call], Description]] = {
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "deform_conv2d": _deform_convolution,
    "mm": _matrix_product("self", "mat2"),
    "addmm": _matrix_product("mat1", "mat2", "self"),
    "bmm": _matrix_product("self", "mat2"),
    "baddbmm": _matrix_product("batch1", "batch2", "self"),
    "addbmm": _matrix_product("batch1", "batch2", "self"),
    "matmul": _matrix_product("self", "other"),
    "mv": _matrix_product("self", "vec"),
    "addmv": _matrix_product("mat", "vec", "self"),
    "dot": _matrix_product("self", "tensor"),
    "_grouped_mm": _matrix_product("self", "mat2"),
    "_scaled_mm": _matrix_product("self", "mat2", "bias"),
    "_euclidean_dist": _distance,
    "_cdist_forward": _distance,
    "linalg_solve_triangular": _triangular_solve,
    "linear": _linear,
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "max_pool1d": _pool("max_pool"),
    "max_pool2d": _pool("max_pool"),
    "max_pool3d": _pool("max_pool"),
    "max_pool2d_with_indices": _pool("max_pool"),
    "max_pool3d_with_indices": _pool("max_pool"),
    "avg_pool1d": _pool("avg_pool"),
    "avg_pool2d": _pool("avg_pool"),
    "avg_pool3d": _pool("avg_pool"),
    "_adaptive_avg_pool2d": _adaptive_pool("avg_pool"),
    "_adaptive_avg_pool3d": _adaptive_pool("avg_pool"),
    "adaptive_max_pool2d": _adaptive_pool("max_pool"),
    "adaptive_max_pool3d": _adaptive_pool("max_pool"),
    "roi_align": _roi_pool,
    "roi_pool": _roi_pool,
    "ps_roi_align": _roi_pool,
    "ps_roi_pool": _roi_pool,
    "mean": _mean,
    "_to_copy": _cast_or_copy,
}


def describe(call: Call) -> Description:
    """The canonical form of one call."""
    if "upsample" in call.name:
        return _resize(call)
    return _HANDLERS.get(call.name, _listed)(call)
