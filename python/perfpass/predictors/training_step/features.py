"""The features of a training step on a device: what its time is made of, at the roofline's scale.

As for inference, with groups of operators by what they do in a step: forward, gradients of activations ("data"),
gradients of parameters ("weight"), optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph import step as backward
from perfpass.graph.step import StepColumns, Steps
from perfpass.predictors import roofline
from perfpass.predictors.learned.ratios import PRODUCTS, RatioFeatures, Sums, Vectors
from perfpass.predictors.roofline import GROUPS

if TYPE_CHECKING:
    from perfpass.predictors.way import Way

SCHEMA_VERSION = 2
# Order is part of the artefact.
STEP_GROUPS: tuple[str, ...] = (
    *GROUPS, *(f"{g}:data" for g in GROUPS), *(f"{g}:weight" for g in (*PRODUCTS, "elementwise", "reduction")),
    "optimizer",
)  # fmt: skip
_G = {name: i for i, name in enumerate(STEP_GROUPS)}
_BASE = np.array([GROUPS.index(name.partition(":")[0]) if name != "optimizer" else -1 for name in STEP_GROUPS])
_PART = np.array(
    [3 if n == "optimizer" else 2 if n.endswith(":weight") else 1 if n.endswith(":data") else 0 for n in STEP_GROUPS]
)
_TO_BASE = np.array([[b == g for g in range(len(GROUPS))] for b in _BASE], dtype=np.float64)
# Time of the host to issue a kernel, by part of the step, over that of a forward operator (roofline.ISSUE_S): backward
# runs in C++ without modules; the optimizer's loop without foreach issues plain calls.
ISSUE_SHARE = np.array([1.0, 0.6, 0.6, 0.4])
# Sets of groups over which sizes are averaged, weighted by time, in each part of a step; and the sizes.
_AVERAGED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "products": (
        ("conv1x1", "conv3x3", "conv_large", "conv_grouped", "dense", "matmul", "attention"),
        ("m", "n", "k", "b", "waves", "wave_fill", "n_by_8", "k_by_8", "n_by_64", "k_by_64", "balance", "cache"),
    ),
    "grouped": (("conv_grouped",), ("n", "k", "groups", "b")),
    "depthwise": (
        ("conv_depthwise3", "conv_depthwise", "conv_depthwise_large"),
        ("area", "stride", "groups", "output", "cache"),
    ),
    "streams": (
        (
            "relu", "activation", "add", "elementwise", "reduction", "pooling", "copy", "concat", "gather", "resize",
            "batch_norm", "layer_norm", "other_norm", "softmax",
        ),
        ("cache", "output"),
    ),
}  # fmt: skip
_SUFFIX = {"forward": "", "data": ":data", "weight": ":weight"}
SOFTWARE_FEATURES: tuple[str, ...] = (
    "nhwc", "compiled", "autocast", "bfloat16", "fp16", "fp32", "fp64", "cpu", "copies_input", "optimizes",
)  # fmt: skip


def _own(sums: Sums, share: np.ndarray, device_s: np.ndarray, kernels: np.ndarray) -> list[np.ndarray]:
    """Shares of time by part of the step; by group of the forward operator, forward and backward; launches by group."""
    forward, back = share * (_PART == backward.FORWARD), share * (_PART > backward.FORWARD)
    return [
        forward.sum(axis=1),
        (share * (_PART == backward.WEIGHT)).sum(axis=1),
        share[:, _G["optimizer"]],
        sums.own,
        _by_base(forward),
        _by_base(back),
        _by_base(sums.kernels) / kernels[:, None],
    ]


def _by_base(values: np.ndarray) -> np.ndarray:
    """[N, len(GROUPS)] sums of [N, len(STEP_GROUPS)] over the parts of a step."""
    found: np.ndarray = (values[:, None, :] @ _TO_BASE)[:, 0, :]
    return found


RATIOS = RatioFeatures(
    groups=STEP_GROUPS,
    weights="log_parameters",
    own=(
        "forward_share", "weight_share", "optimizer_share", "log_macs_per_byte",
        *(f"{part}_{g}" for part in ("forward", "backward", "kernels") for g in GROUPS),
    ),
    own_of=_own,
    averaged={
        f"{part}_{name}": (tuple(g + suffix for g in groups), sizes)
        for part, suffix in _SUFFIX.items()
        for name, (groups, sizes) in _AVERAGED.items()
    },
    binned={},
    software=SOFTWARE_FEATURES,
)  # fmt: skip
FEATURES: tuple[str, ...] = RATIOS.names


def step_groups(table: StepColumns) -> np.ndarray:
    """[R] index into STEP_GROUPS."""
    base = roofline.operator_groups(table)
    names = [GROUPS[g] for g in range(len(GROUPS))]
    lookup = np.array(
        [
            [_G[name] for name in names],
            [_G[f"{name}:data"] for name in names],
            [_G.get(f"{name}:weight", _G["elementwise:weight"]) for name in names],
            [_G["optimizer"]] * len(names),
        ]
    )
    return lookup[table.part, base]


def _software(way: Way, optimizes: bool) -> list[float]:
    precision = way.precision
    return [
        way.layout == "nhwc",
        way.runtime == "torch.compile",
        precision in ("amp", "amp_bf16"),
        precision in ("bf16", "amp_bf16"),
        precision == "fp16",
        precision == "fp32",
        precision == "fp64",
        way.device.kind == "cpu",
        way.copied_bytes > 0,
        optimizes,
    ]


def bound(table: StepColumns, way: Way, byte_scale: float = 1.0) -> roofline.Bound:
    """The roofline of every row of a step; ``byte_scale`` corrects a table that was counted at another width.

    Unlike inference, no row finds its input in the cache: what backward reads was written a whole pass before, and
    with the rule for the forward pass alone our steps on a CPU are off by 30.3 % instead of 28.1.
    """
    # Parameters, their gradients and states are of 4 bytes at every precision.
    scale = np.where(table.part == backward.OPTIMIZER, 1.0, byte_scale)
    return roofline.bound(table, way, scale, group=step_groups(table), cached=False)


def step_sums(steps: Steps, batch: np.ndarray, way: Way, byte_scale: float = 1.0) -> Sums:
    """The sums of N steps that run in one way, stacked, which no efficiency changes; ``batch`` [N]."""
    return _sums(steps, batch, way, bound(steps.columns, way, byte_scale))


def _sums(steps: Steps, batch: np.ndarray, way: Way, roof: roofline.Bound) -> Sums:
    """The sums of N steps, stacked."""
    tables, table = steps.tables, steps.columns
    macs, moved = (tables.sums(np.asarray(v) * tables.count) for v in (table.macs, roof.bytes))
    optimizes = tables.any(np.asarray(table.part) == backward.OPTIMIZER)
    software = np.array([_software(way, known) for known in (False, True)], dtype=np.float64)
    return RATIOS.sums(
        tables, batch, way, roof,
        log_weights=np.log(np.maximum(steps.parameters, 1.0)),
        software=software[optimizes.astype(np.intp)],
        own=np.log(np.maximum(macs, 1.0) / np.maximum(moved, 1.0))[:, None],
        issued=ISSUE_SHARE[table.part],
    )  # fmt: skip


def step_vectors(steps: Steps, batch: np.ndarray, way: Way, efficiency: np.ndarray, byte_scale: float = 1.0) -> Vectors:
    """All features of N steps that run in one way; ``batch`` [N].

    ``efficiency`` [len(SOFTWARE), len(STEP_GROUPS)].
    """
    roof = bound(steps.columns, way, byte_scale)
    sums = _sums(steps, batch, way, roof)
    return RATIOS.vectors(sums, roof, steps.tables, efficiency[roofline.software_index(way)])
