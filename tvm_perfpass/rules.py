"""How an operator of TVM becomes a canonical one: what the operator tables of Relay and Relax are made of.

Both walks of each (native and plain) read the same table: what an operator *means* is said once, how it is read is
written twice.
"""

from __future__ import annotations

from dataclasses import dataclass

# How an attribute of the source becomes columns of the node's attributes:
#   ints   an array, or a scalar, into <column>_0, <column>_1, ...
#   pads   1, r or 2r entries into pad_begin_* and pad_end_* (r spatial axes)
#   int    a scalar; absent (None) leaves the column unset
#   axis   a scalar, or an array of exactly one entry; several axes leave the column unset
#   equation  of an einsum: the product of the sizes of the labels that its result does not have
READS = ("ints", "pads", "int", "axis", "equation")

# What is special in an operator's lowering beyond reading attributes:
#   conv, conv_transpose   data and kernel layouts; blocked layouts (NCHW8c, OIHW8i8o) are shown by their logical shape
#   pool, global_pool, adaptive_pool   layout; the adaptive ones get the window that their sizes imply
#   first_output           a tuple of which only field 0 is computed in inference (batch_norm, dropout)
#   dense_pack             a packed weight [N/n, K, n] is shown as [N, K]
#   attention              numbers of heads come from query and key, [batch, length, heads, dim]
#   no_node                yields a shape, an object or nothing: no operator of the graph
#   call_tir               runs a lowered function of the module
#   packed                 runs a function outside of the module
#   unsupported            belongs to a later stage of TVM's lowering, or has no meaning as an operator graph
FORMS = (
    "",
    "conv",
    "conv_transpose",
    "pool",
    "global_pool",
    "adaptive_pool",
    "first_output",
    "dense_pack",
    "attention",
    "no_node",
    "call_tir",
    "packed",
    "unsupported",
)


@dataclass(frozen=True)
class Rule:
    """One operator: canonical name, attribute reads (source attribute, how, column), constants, special form.

    ``inputs``: the arguments that are read, in canonical order; None for all. ``fixed``: columns with a constant value.
    """

    op: str
    reads: tuple[tuple[str, str, str], ...] = ()
    form: str = ""
    inputs: tuple[int, ...] | None = None
    fixed: tuple[tuple[str, int], ...] = ()


# Attributes that both dialects name alike: the axis, the window of convolutions and poolings.
VIEW = (("view", 1),)
AXIS = (("axis", "axis", "axis"),)
WINDOW = (("strides", "ints", "stride"), ("padding", "pads", "pad"), ("dilation", "ints", "dilation"))
POOL = (("pool_size", "ints", "kernel"), *WINDOW)


def elementwise() -> dict[str, Rule]:
    """Elementwise operators that both dialects name alike."""
    groups = {
        "trigonometric": "sin cos tan sinh cosh asin acos atan asinh acosh atanh",
        "round": "round floor ceil trunc",
        "is_special": "isnan isinf isfinite",
        "div": "divide floor_divide",
        "mod": "mod floor_mod",
        "compare": "equal not_equal less less_equal greater greater_equal",
        "logical": "logical_and logical_or logical_xor logical_not",
        "bitwise": "bitwise_and bitwise_or bitwise_xor bitwise_not left_shift right_shift",
        "sub": "subtract",
        "mul": "multiply",
        "pow": "power",
        "neg": "negative",
        "loss": "nn.cross_entropy_with_logits nn.nll_loss",
    }
    return {name: Rule(op) for op, names in groups.items() for name in names.split()} | {
        "nn.prelu": Rule("prelu", AXIS)
    }


def reductions() -> dict[str, Rule]:
    """Reductions and scans that both dialects name alike."""
    names = {
        "sum": "reduce_sum",
        "mean": "reduce_mean",
        "max": "reduce_max",
        "min": "reduce_min",
        "prod": "reduce_prod",
        "variance": "reduce_variance",
        "argmax": "arg_reduce",
        "argmin": "arg_reduce",
        "cumsum": "cumulative",
        "cumprod": "cumulative",
    }
    table = {name: Rule(op, AXIS) for name, op in names.items()}
    return table | {name: Rule("reduce_sum", inputs=(0,)) for name in ("collapse_sum_to", "collapse_sum_like")}


# An operator outside the table is kept as "unknown": shapes, bytes and edges are right, its arithmetic is not counted.
UNKNOWN = Rule("unknown")
