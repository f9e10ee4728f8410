"""Relay operators and the canonical operator each becomes, with the attributes that costs and features read.

Operator names and attributes: TVM 0.19, ``include/tvm/relay/attrs/*.h`` and ``src/relay/op``.
"""

from __future__ import annotations

from tvm_perfpass.rules import AXIS, POOL, VIEW, WINDOW, Rule, elementwise, reductions

_CONV = (("kernel_size", "ints", "kernel"), *WINDOW, ("groups", "int", "groups"))
_GROUPED_NORM = (("axis", "axis", "axis"), ("num_groups", "int", "groups"))
_TRANSPOSES = (("transpose_a", "int", "transpose_a"), ("transpose_b", "int", "transpose_b"))


def _convolutions() -> dict[str, Rule]:
    conv = Rule("conv", _CONV, "conv")
    transposed = Rule("conv_transpose", _CONV, "conv_transpose")
    deformable = Rule("deform_conv", _CONV, "conv", inputs=(0, 2, 1))  # (data, offset, weight) in Relay
    quantized = Rule("quantized_conv", _CONV, "conv")
    table = {f"nn.conv{d}d": conv for d in (1, 2, 3)}
    table |= {f"nn.conv{d}d_transpose": transposed for d in (1, 2, 3)}
    table |= {
        "nn.contrib_conv2d_NCHWc": conv,
        "nn.contrib_depthwise_conv2d_NCHWc": conv,
        "nn.contrib_conv2d_winograd_without_weight_transform": conv,
        "nn.contrib_conv3d_winograd_without_weight_transform": conv,
        "nn.contrib_conv2d_gemm_without_weight_transform": conv,
        "nn.deformable_conv2d": deformable,
        "qnn.conv2d": quantized,
        "qnn.conv2d_transpose": Rule("quantized_conv", _CONV, "conv_transpose"),
    }
    return table


def _products() -> dict[str, Rule]:
    return {
        "nn.dense": Rule("dense", fixed=(("transpose_b", 1),)),
        "nn.contrib_dense_pack": Rule("dense", form="dense_pack", fixed=(("transpose_b", 1),)),
        "nn.matmul": Rule("matmul", _TRANSPOSES),
        "nn.batch_matmul": Rule("matmul", _TRANSPOSES),
        "einsum": Rule("einsum", (("equation", "equation", "contraction"),)),
        "qnn.dense": Rule("quantized_matmul", fixed=(("transpose_b", 1),)),
        "qnn.contrib_dense_pack": Rule("quantized_matmul", form="dense_pack", fixed=(("transpose_b", 1),)),
        "qnn.batch_matmul": Rule("quantized_matmul", fixed=(("transpose_b", 1),)),
    }


def _normalizations() -> dict[str, Rule]:
    softmax = Rule("softmax", AXIS)
    return {
        "nn.batch_norm": Rule("batch_norm", AXIS, "first_output"),
        "nn.layer_norm": Rule("layer_norm", AXIS),
        "nn.instance_norm": Rule("instance_norm", AXIS),
        "nn.group_norm": Rule("group_norm", _GROUPED_NORM),
        "nn.lrn": Rule("lrn", AXIS),
        "nn.l2_normalize": Rule("l2_norm", AXIS),
        "nn.softmax": softmax,
        "nn.fast_softmax": softmax,
        "nn.log_softmax": Rule("log_softmax", AXIS),
        "qnn.softmax": Rule("quantized_elementwise", AXIS),
    }


def _poolings() -> dict[str, Rule]:
    table: dict[str, Rule] = {}
    for kind in ("max", "avg"):
        table |= {f"nn.{kind}_pool{d}d": Rule(f"{kind}_pool", POOL, "pool") for d in (1, 2, 3)}
        table |= {f"nn.adaptive_{kind}_pool{d}d": Rule(f"{kind}_pool", form="adaptive_pool") for d in (1, 2, 3)}
        table[f"nn.global_{kind}_pool2d"] = Rule(f"global_{kind}_pool", form="global_pool")
    table["qnn.avg_pool2d"] = Rule("avg_pool", POOL, "pool")
    table["vision.roi_align"] = Rule("roi_pool", (("pooled_size", "ints", "kernel"),))
    table["vision.roi_pool"] = Rule("roi_pool", (("pooled_size", "ints", "kernel"),))
    return table


def _elementwise() -> dict[str, Rule]:
    same_name = "abs exp log sqrt rsqrt erf sign tanh sigmoid clip cast where maximum minimum"
    table = elementwise() | {name: Rule(name) for name in same_name.split()}
    renamed = {
        "nn.relu": "relu",
        "nn.leaky_relu": "leaky_relu",
        "hardswish": "hard_swish",
        "fast_exp": "exp",
        "fast_erf": "erf",
        "fast_tanh": "tanh",
        "log2": "log",
        "log10": "log",
        "nn.bias_add": "add",
        "reinterpret": "cast",
        "cast_like": "cast",
        "fixed_point_multiply": "quantized_elementwise",
        "fixed_point_multiply_per_axis": "quantized_elementwise",
        "relay.op.annotation.simulated_quantize": "quantized_elementwise",
        "annotation.cast_hint": "identity",
        "random.uniform": "random",
        "random.normal": "random",
        "random.multinomial": "random",
        "random.threefry_generate": "random",
        "random.threefry_split": "random",
        "nn.cross_entropy": "loss",
    }
    table |= {name: Rule(op) for name, op in renamed.items()}
    groups = {
        "add": "add",
        "div": "trunc_divide",
        "mod": "trunc_mod",
        "quantized_elementwise": "qnn.add qnn.subtract qnn.mul qnn.requantize qnn.abs qnn.erf qnn.exp qnn.hardswish "
        "qnn.leaky_relu qnn.log qnn.rsqrt qnn.sigmoid qnn.sqrt qnn.tanh qnn.simulated_quantize "
        "qnn.simulated_dequantize",
    }
    table |= {name: Rule(op) for op, names in groups.items() for name in names.split()}
    table["cast_like"] = Rule("cast", inputs=(0,))
    table["qnn.quantize"] = Rule("quantize", AXIS)
    table["qnn.dequantize"] = Rule("dequantize", AXIS)
    return table


def _reductions() -> dict[str, Rule]:
    return reductions() | {name: Rule("reduce_any", AXIS) for name in ("all", "any")}


def _data_movement() -> dict[str, Rule]:
    views = "reshape squeeze expand_dims nn.batch_flatten contrib_reverse_reshape vm.reshape_tensor"
    table = {name: Rule("reshape", fixed=VIEW, inputs=(0,)) for name in views.split()}
    table["reshape_like"] = Rule("reshape", fixed=VIEW, inputs=(0,))
    for name in ("dyn.reshape", "dyn.squeeze", "dyn.expand_dims"):
        table[name] = Rule("reshape", fixed=VIEW)
    identities = (
        "on_device annotation.stop_fusion annotation.checkpoint annotation.bitpack_start annotation.bitpack_end"
    )
    identities += " annotation.compiler_begin annotation.compiler_end annotation.with_funcid"
    table |= {name: Rule("identity", fixed=VIEW) for name in identities.split()}
    table["annotation.cast_hint"] = Rule("identity", fixed=VIEW)
    table["nn.dropout"] = Rule("dropout", form="first_output", fixed=VIEW)
    table |= {
        "transpose": Rule("transpose"),
        "layout_transform": Rule("transpose"),
        "auto_scheduler_layout_transform": Rule("transpose"),
        "meta_schedule_layout_transform": Rule("transpose"),
        "matrix_set_diag": Rule("scatter"),
        "concatenate": Rule("concat", AXIS),
        "qnn.concatenate": Rule("concat", AXIS),
        "stack": Rule("concat", AXIS),
        "split": Rule("split", AXIS),
        "strided_slice": Rule("slice"),
        "dyn.strided_slice": Rule("slice"),
        "slice_like": Rule("slice", inputs=(0,)),
        "sliding_window": Rule("unfold", AXIS),
        "nn.pad": Rule("pad"),
        "dyn.nn.pad": Rule("pad"),
        "nn.mirror_pad": Rule("pad"),
        "nn.dilate": Rule("pad"),
        "nn.space_to_batch_nd": Rule("space_to_depth"),
        "nn.batch_to_space_nd": Rule("depth_to_space"),
        "tile": Rule("tile"),
        "dyn.tile": Rule("tile"),
        "repeat": Rule("tile", AXIS),
        "broadcast_to": Rule("expand"),
        "dyn.broadcast_to": Rule("expand"),
        "broadcast_to_like": Rule("expand", inputs=(0,)),
        "nn.depth_to_space": Rule("depth_to_space", (("block_size", "int", "block_size"),)),
        "nn.space_to_depth": Rule("space_to_depth", (("block_size", "int", "block_size"),)),
        "reverse": Rule("reverse", AXIS),
        "reverse_sequence": Rule("reverse"),
        "copy": Rule("copy"),
        "device_copy": Rule("copy"),
        "trilu": Rule("triangular"),
        "meshgrid": Rule("expand"),
        "nn.fifo_buffer": Rule("concat", AXIS),
        "vision.yolo_reorg": Rule("space_to_depth"),
        "sequence_mask": Rule("where"),
        "nn.contrib_conv2d_winograd_weight_transform": Rule("transpose"),
        "nn.contrib_conv3d_winograd_weight_transform": Rule("transpose"),
        "nn.contrib_conv2d_winograd_nnpack_weight_transform": Rule("transpose"),
        "nn.contrib_conv2d_gemm_weight_transform": Rule("transpose"),
    }
    return table


def _gathers_and_sorts() -> dict[str, Rule]:
    return {
        "take": Rule("gather", AXIS),
        "gather": Rule("gather", AXIS),
        "gather_nd": Rule("gather"),
        "adv_index": Rule("gather"),
        "scatter": Rule("scatter", AXIS),
        "scatter_elements": Rule("scatter", AXIS),
        "scatter_nd": Rule("scatter"),
        "strided_set": Rule("scatter"),
        "sparse_to_dense": Rule("scatter"),
        "dyn.sparse_to_dense": Rule("scatter"),
        "one_hot": Rule("one_hot", AXIS),
        "dyn.one_hot": Rule("one_hot", AXIS),
        "topk": Rule("top_k", AXIS),
        "dyn.topk": Rule("top_k", AXIS),
        "sort": Rule("sort", AXIS),
        "argsort": Rule("sort", AXIS),
        "searchsorted": Rule("sort"),
        "argwhere": Rule("non_zero"),
        "unique": Rule("unique"),
        "unravel_index": Rule("mod"),
        "invert_permutation": Rule("scatter"),
        "vision.non_max_suppression": Rule("non_max_suppression"),
        "vision.all_class_non_max_suppression": Rule("non_max_suppression"),
        "vision.regular_non_max_suppression": Rule("non_max_suppression"),
        "vision.get_valid_counts": Rule("compress"),
        "vision.proposal": Rule("non_max_suppression"),
        "vision.multibox_transform_loc": Rule("non_max_suppression"),
    }


def _generators_and_images() -> dict[str, Rule]:
    generators = {
        "zeros": "fill",
        "ones": "fill",
        "full": "fill",
        "dyn.zeros": "fill",
        "dyn.ones": "fill",
        "dyn.full": "fill",
        "arange": "range",
        "vision.multibox_prior": "range",
    }
    table = {name: Rule(op) for name, op in generators.items()}
    table |= {name: Rule("fill", inputs=()) for name in ("zeros_like", "ones_like")}
    table["full_like"] = Rule("fill", inputs=(1,))
    table |= {name: Rule("shape_of") for name in ("shape_of", "vm.shape_of", "ndarray_size")}
    resizes = "image.resize1d image.resize2d image.resize3d dyn.image.resize2d nn.upsampling nn.upsampling3d"
    resizes += " dyn.nn.upsampling dyn.nn.upsampling3d"
    table |= {name: Rule("resize") for name in resizes.split()}
    table["image.crop_and_resize"] = Rule("roi_pool")
    table["image.grid_sample"] = Rule("grid_sample")
    table["image.affine_grid"] = Rule("affine_grid")
    table["dft"] = Rule("dft")
    table["stft"] = Rule("stft")
    return table


def _unsupported() -> dict[str, Rule]:
    names = (
        "call_lowered vm.invoke_tvm_op memory.alloc_storage memory.alloc_tensor memory.kill parser.MetaRef debug"
        " nn.max_pool2d_grad nn.avg_pool2d_grad nn.conv2d_backward_weight"
    )
    return {name: Rule("unknown", form="unsupported") for name in names.split()}


RULES: dict[str, Rule] = {
    **_convolutions(),
    **_products(),
    **_normalizations(),
    **_poolings(),
    **_elementwise(),
    **_reductions(),
    **_data_movement(),
    **_gathers_and_sorts(),
    **_generators_and_images(),
    **_unsupported(),
}
