"""Relax operators and the canonical operator each becomes, with the attributes that costs and features read.

Every operator of apache-tvm 0.27 stands here (a test enumerates them); those without a canonical counterpart are
"unknown" on purpose: their shapes, bytes and edges are right, their arithmetic is not counted, and the graph lists
them. Names and attributes: ``tvm.ir.Op.list_op_names`` and the fields of each operator's attributes in TVM's
reflection.
"""

from __future__ import annotations

from tvm_perfpass.rules import AXIS, POOL, VIEW, WINDOW, Rule, elementwise, reductions

_CONV = (*WINDOW, ("groups", "int", "groups"))


def _convolutions_and_products() -> dict[str, Rule]:
    table = {f"nn.conv{d}d": Rule("conv", _CONV, "conv") for d in (1, 2, 3)}
    table |= {f"nn.conv{d}d_transpose": Rule("conv_transpose", _CONV, "conv_transpose") for d in (1, 2, 3)}
    table |= {
        "matmul": Rule("matmul"),
        "einsum": Rule("einsum", (("subscripts", "equation", "contraction"),)),
        "nn.attention": Rule("attention", form="attention"),
        "nn.attention_bias": Rule("attention", form="attention"),
        "nn.attention_var_len": Rule("attention", form="attention"),
    }
    return table


def _normalizations_and_poolings() -> dict[str, Rule]:
    over_axes, over_channels = (("axes", "axis", "axis"),), (("channel_axis", "axis", "axis"),)
    table = {
        "nn.batch_norm": Rule("batch_norm", AXIS, "first_output"),
        "nn.layer_norm": Rule("layer_norm", over_axes),
        "nn.rms_norm": Rule("rms_norm", over_axes),
        "nn.instance_norm": Rule("instance_norm", over_channels),
        "nn.group_norm": Rule("group_norm", (*over_channels, ("num_groups", "int", "groups"))),
        "nn.softmax": Rule("softmax", AXIS),
        "nn.log_softmax": Rule("log_softmax", AXIS),
        "vision.roi_align": Rule("roi_pool", (("pooled_size", "ints", "kernel"),)),
        "vision.roi_pool": Rule("roi_pool", (("pooled_size", "ints", "kernel"),)),
    }
    for kind in ("max", "avg"):
        table |= {f"nn.{kind}_pool{d}d": Rule(f"{kind}_pool", POOL, "pool") for d in (1, 2, 3)}
    table |= {f"nn.adaptive_avg_pool{d}d": Rule("avg_pool", form="adaptive_pool") for d in (1, 2, 3)}
    return table


def _elementwise() -> dict[str, Rule]:
    groups = {
        "trigonometric": "atan2",
        "mul": "square outer ewise_fma",
        "cast": "astype",
        "exp": "exp log_add_exp",
        "relu": "nn.relu",
        "leaky_relu": "nn.leakyrelu",
        "gelu": "nn.gelu nn.gelu_tanh",
        "silu": "nn.silu",
        "selu": "nn.selu",
        "softplus": "nn.softplus",
        "random": "multinomial_from_uniform",
    }
    table = elementwise() | {name: Rule(op) for op, names in groups.items() for name in names.split()}
    same = "abs log sqrt rsqrt erf sign tanh sigmoid clip where maximum minimum add"
    table |= {name: Rule(name) for name in same.split()}
    table["quantize"] = Rule("quantize", AXIS)
    table["dequantize"] = Rule("dequantize", AXIS)
    return table


def _reductions_and_sorts() -> dict[str, Rule]:
    names = {
        "std": "reduce_variance",
        "median": "sort",
        "sort": "sort",
        "argsort": "sort",
        "topk": "top_k",
        "one_hot": "one_hot",
    }
    table = reductions() | {name: Rule(op, AXIS) for name, op in names.items()}
    table |= {
        "bucketize": Rule("sort"),
        "nonzero": Rule("non_zero"),
        "unique": Rule("unique"),
        "vision.non_max_suppression": Rule("non_max_suppression"),
        "vision.all_class_non_max_suppression": Rule("non_max_suppression"),
        "vision.multibox_transform_loc": Rule("non_max_suppression"),
        "vision.get_valid_counts": Rule("compress"),
    }
    return table


def _data_movement() -> dict[str, Rule]:
    views = "reshape squeeze expand_dims flatten nn.batch_flatten memory.view"
    table = {name: Rule("reshape", fixed=VIEW, inputs=(0,)) for name in views.split()}
    identities = "hint_on_device builtin.stop_lift_params memory.ensure_zero_offset dist.annotate_sharding"
    identities += " grad.no_grad grad.start_checkpoint grad.end_checkpoint"
    table |= {name: Rule("identity", fixed=VIEW) for name in identities.split()}
    table |= {
        "nn.dropout": Rule("dropout", form="first_output", fixed=VIEW),
        "wrap_param": Rule("cast"),
        "to_vdevice": Rule("copy"),
        "permute_dims": Rule("transpose"),
        "layout_transform": Rule("transpose"),
        "concat": Rule("concat", AXIS),
        "stack": Rule("concat", AXIS),
        "split": Rule("split", AXIS),
        "strided_slice": Rule("slice", inputs=(0,)),
        "dynamic_strided_slice": Rule("slice"),
        "nn.pad": Rule("pad", inputs=(0,)),
        "tile": Rule("tile"),
        "repeat": Rule("tile", AXIS),
        "broadcast_to": Rule("expand", inputs=(0,)),
        "meshgrid": Rule("expand"),
        "nn.pixel_shuffle": Rule("depth_to_space", (("upscale_factor", "int", "block_size"),)),
        "flip": Rule("reverse", AXIS),
        "reverse_sequence": Rule("reverse"),
        "tril": Rule("triangular", inputs=(0,)),
        "triu": Rule("triangular", inputs=(0,)),
        "take": Rule("gather", AXIS),
        "gather_elements": Rule("gather", AXIS),
        "gather_nd": Rule("gather"),
        "index_tensor": Rule("gather"),
        "scatter_elements": Rule("scatter", AXIS),
        "scatter_nd": Rule("scatter"),
        "slice_scatter": Rule("scatter", AXIS, inputs=(0, 1)),
        "index_put": Rule("scatter"),
        "dist.redistribute_replica_to_shard": Rule("slice", AXIS),
    }
    return table


def _generators_and_images() -> dict[str, Rule]:
    table = {name: Rule("fill") for name in ("full", "ones", "zeros")}
    table |= {name: Rule("fill", inputs=()) for name in ("ones_like", "zeros_like")}
    table |= {
        "full_like": Rule("fill", inputs=(1,)),
        "arange": Rule("range"),
        "eye": Rule("eye", inputs=()),
        "eye_like": Rule("eye", inputs=()),
        "hamming_window": Rule("window", inputs=()),
        "shape_to_tensor": Rule("shape_of", inputs=()),
        "size": Rule("shape_of", inputs=()),
        "image.resize2d": Rule("resize", inputs=(0,)),
        "image.resize3d": Rule("resize", inputs=(0,)),
        "image.grid_sample": Rule("grid_sample"),
        "image.affine_grid": Rule("affine_grid", inputs=(0,)),
    }
    return table


def _without_a_node() -> dict[str, Rule]:
    names = "null_value shape_of tensor_to_shape assert_op print inspect.tensor_byte_offset inspect.tensor_dtype_bits"
    names += " inspect.tensor_dtype_code inspect.tensor_dtype_lanes inspect.tensor_elem_offset inspect.tensor_ndim"
    names += " inspect.tensor_shape_i inspect.tensor_stride_i"
    return {name: Rule("unknown", form="no_node") for name in names.split()}


def _calls() -> dict[str, Rule]:
    table = {
        name: Rule("unknown", form="call_tir")
        for name in ("call_tir", "call_tir_inplace", "call_tir_with_grad", "dist.call_tir_local_view")
    }
    packed = "call_dps_packed call_pure_packed call_inplace_packed call_py_func"
    return table | {name: Rule("unknown", form="packed") for name in packed.split()}


def _unknown_on_purpose() -> dict[str, Rule]:
    names = "ccl.allgather ccl.allreduce ccl.broadcast_from_worker0 ccl.scatter_from_worker0 dist.redistribute"
    return {name: Rule("unknown") for name in names.split()}


def _unsupported() -> dict[str, Rule]:
    names = "builtin.alloc_tensor call_builtin_with_ctx make_closure invoke_closure invoke_pure_closure"
    names += " memory.alloc_storage memory.alloc_tensor memory.kill_storage memory.kill_tensor vm.alloc_storage"
    names += " vm.alloc_tensor vm.call_tir_dyn vm.kill_object grad.avg_pool2d_backward grad.max_pool2d_backward"
    names += " grad.nll_loss_backward grad.take_backward"
    return {name: Rule("unknown", form="unsupported") for name in names.split()}


RULES: dict[str, Rule] = {
    f"relax.{name}": rule
    for name, rule in {
        **_convolutions_and_products(),
        **_normalizations_and_poolings(),
        **_elementwise(),
        **_reductions_and_sorts(),
        **_data_movement(),
        **_generators_and_images(),
        **_without_a_node(),
        **_calls(),
        **_unknown_on_purpose(),
        **_unsupported(),
    }.items()
}
