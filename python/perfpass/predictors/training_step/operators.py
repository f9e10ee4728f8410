"""Time of training steps by their operators: those of inference, and what backward, autocast and the optimizer add.

Every row of a derived step is priced as inference prices it (predictors/inference/operators.py, on CPUs
cpu_operators.py), at the same rates, shares of the roofs and levels. What a step does beyond that are the levels here:
the step as a whole, each kind of operator by part of the step, what autocast runs in single precision, and the host by
part (perfpass.training.training_step.operators). No level depends on a size, so the time never falls with the batch,
the sequence or a smaller slice. NumPy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArtefactError
from perfpass.graph import OPERATOR_CLASSES, OPERATORS
from perfpass.graph import step as backward
from perfpass.graph.step import PARTS, StepColumns, Steps
from perfpass.graph.table import Tables
from perfpass.predictors.inference import cpu_halves, cpu_operators, operators
from perfpass.predictors.inference.cpu import CpuPredictor
from perfpass.predictors.inference.cpu_operators import CpuTimes
from perfpass.predictors.inference.operators import CALL_S, GAP_S, ISSUE_S, ISSUED_AS, OperatorTimes
from perfpass.predictors.roofline import PAGEABLE_COPY_BYTES_S, issue_share, slower_host, smooth_maximum

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.way import Way

LARGE_DEPTHWISE = "conv_depthwise_large"
# Normalizations over the batch on AMD's boards: MIOpen's, in steps of a ResNet three times as long as their bytes say.
AMD_BATCH_NORM = "batch_norm_amd"
# Kinds of operators that share a level in each part of a step; those of large depthwise kernels that cuDNN runs, too.
KINDS: tuple[str, ...] = (
    "conv", "conv_grouped", "conv_depthwise", LARGE_DEPTHWISE, "dense", "attention", "batch_norm", AMD_BATCH_NORM,
    "norm", "softmax", "pointwise", "move",
)  # fmt: skip
_KIND_OF_FAMILY = {
    "conv1d": "conv", "conv3x3": "conv", "conv_transpose": "conv", "matmul": "dense", "recurrent": "dense",
    "vector": "dense", "attention_vector": "attention", "gather": "move", "other": "move", "function": "pointwise",
    "conv1d_ragged": "conv", "dense_8bit": "dense",
}  # fmt: skip
# The families of a CPU begin with those of GPUs.
_KIND = np.array([KINDS.index(_KIND_OF_FAMILY.get(name, name)) for name in cpu_operators.FAMILIES])
GROUPS: tuple[str, ...] = (*(f"{kind}, {part}" for part in PARTS[:3] for kind in KINDS), "optimizer")
# What autocast runs in single precision: normalizations but those over the batch, softmaxes, and what is added between.
WIDENED: tuple[str, ...] = ("norm", "softmax", "pointwise")
LEVELS: tuple[str, ...] = ("step", "group", "autocast", "host")
# The host's time for a kernel, by part of the step, over a bare dispatch (`operators.ISSUE_S`): forward through modules
# that record what autograd needs, backward in C++ without modules, the optimizer's loop in plain calls. Kinds of
# operators are alike: the levels by which inference tells them apart err more on steps (docs/decisions.md).
ISSUE_SHARE = np.array([3.0, 1.8, 1.8, 0.45])
# The host and the device of a step overlap less than those of a forward pass (`roofline.SMOOTHNESS`): it waits for the
# device at the loss, the scaler and the timer, and the queue is empty when the next one starts.
SMOOTHNESS = 2.0
# Of the peak, AMD's boards reach in products 45 % where NVIDIA's reach 93, and 81 % of the bandwidth where those reach
# 90 (MI300X beside H100 and B200: AMD MI300X GPU Performance Analysis, arXiv 2510.27583).
_AMD_PRODUCTS, _AMD_BANDWIDTH = 0.45 / 0.93, 0.81 / 0.9
_BATCH_NORM = OPERATORS.index("batch_norm")
_LAYER_NORM = OPERATORS.index("layer_norm")
_OWN_KERNEL = 25  # taps; larger depthwise kernels are generic, or cuDNN's
_NORMALIZATION = OPERATOR_CLASSES.index("normalization")
_CONVOLUTION = OPERATOR_CLASSES.index("convolution")
_MOVE = operators.FAMILIES.index("move")
# Of the time of turning every activation of a convolution there and back: what 376 networks without groups that timm
# trained on an RTX 3090 in both layouts differ by, in the middle (docs/research/training_step.md).
_TURNED = 0.83
_CUBES = (8, 27, 125)
# Gradients of weights have few tiles and a long inner dimension, which kernels split so that this many tiles are busy.
_SPLIT_TILE, _SPLIT_TILES, _MOST_SPLITS = 128.0**2, 256.0, 64.0


@dataclass(frozen=True, eq=False)
class Work:
    """What R rows of N steps have to do, executions included, before any level of steps.

    ``device_s`` and ``host_s`` [R] seconds, ``group`` [R] indexes GROUPS, ``widened`` [R] WIDENED (-1: autocast changes
    nothing). ``fixed_s`` [N] of the device beside them (launches, copies of the input), ``call_s`` of the host.
    """

    device_s: np.ndarray
    host_s: np.ndarray
    group: np.ndarray
    widened: np.ndarray
    fixed_s: np.ndarray
    call_s: float


@dataclass(frozen=True, eq=False)
class Seconds:
    """Seconds of N steps: ``total``, the ``device``'s and the ``host``'s part [N], and what each row has of it [R]."""

    total: np.ndarray
    device: np.ndarray
    host: np.ndarray
    row: np.ndarray


@dataclass(frozen=True)
class Base:
    """The levels of inference, which price every operator of a step."""

    gpu: OperatorTimes
    cpu: CpuTimes

    @classmethod
    def load(cls) -> Base:
        """Those that ship. Raises ArtefactError."""
        return cls(OperatorTimes.load(), CpuPredictor.load().times)

    def work(self, steps: Steps, batch: np.ndarray, way: Way, byte_scale: float = 1.0) -> Work:
        """What N steps at ``batch`` [N] have to do; ``byte_scale`` corrects tables counted at another width."""
        large = _large_in_cudnn(steps, way)
        table = _as_kernels_run(steps.columns, large, byte_scale)
        tables = Tables(table, steps.tables.offset)
        on = self._on_cpu if way.device.kind == "cpu" else self._on_gpu
        done = on(tables, table, batch, as_run(way))
        group = np.minimum(table.part, backward.WEIGHT) * len(KINDS) + KINDS.index(LARGE_DEPTHWISE)
        return replace(done, group=np.where(large, group, done.group))

    def _on_gpu(self, tables: Tables, table: StepColumns, batch: np.ndarray, way: Way) -> Work:
        done = operators.work(table, way, step=True)
        times = done.issued * tables.count
        gap = GAP_S * np.exp(self.gpu.levels.get("gap", {}).get("", 0.0))
        device_s = done.seconds * self.gpu.factors(way)[done.family]
        if (slower := _at_most(way)) is not None:
            other = operators.work(table, slower, step=True)
            device_s = np.minimum(device_s, other.seconds * self.gpu.factors(slower)[other.family])
        if _turns(way):
            device_s = device_s + _turning_s(table, way) * self.gpu.factors(way)[_MOVE]
        return Work(
            device_s * tables.count,
            times * ISSUE_S[ISSUED_AS[way.runtime]] * ISSUE_SHARE[table.part] * slower_host(way.device),
            _groups(table, done.family, way.device),
            _widened(tables, table, _KIND[done.family], way),
            gap * tables.sums(times) + way.copied_bytes / PAGEABLE_COPY_BYTES_S,
            CALL_S[ISSUED_AS[way.runtime]],
        )

    def _on_cpu(self, tables: Tables, table: StepColumns, batch: np.ndarray, way: Way) -> Work:
        # Every runtime's step is PyTorch's; states of the optimizer are as wide as they are.
        way, constants = replace(way, runtime="torch"), self.cpu.constants["torch"]
        narrow = cpu_halves.widened(way.precision)
        done = cpu_operators.work(
            tables, batch, way, np.where(np.asarray(table.part) == backward.OPTIMIZER, 1.0, narrow)
        )
        found = cpu_operators.parts(done, constants, way)
        return Work(
            found.row + found.packing,
            found.issue,
            _groups(table, done.family, way.device),
            np.full(len(found.row), -1),
            np.zeros(len(tables)),
            float(np.exp(constants[cpu_operators.TERM["call"]])),
        )


def as_run(way: Way) -> Way:
    """The same with the precision that products run in, and with the rates that they reach on AMD's boards.

    PyTorch on ROCm multiplies in fp32 where TF32 is asked, unless HIPBLASLT_ALLOW_TF32 is set (allowTF32CuBLAS).
    """
    if way.device.vendor != "AMD" or way.device.kind != "gpu":
        return way
    return replace(way, precision="fp32" if way.precision == "tf32" else way.precision, device=_reached(way.device))


def _turns(way: Way) -> bool:
    """Whether cuDNN turns what the convolutions of a backward pass read and write: its kernels for matrix units read
    channels-last. Of torch 1.12 and before; no record of today's releases in both layouts is known.
    """
    return way.device.vendor == "NVIDIA" and way.layout == "nchw" and way.runtime == "torch" and not way.present


def _turning_s(table: StepColumns, way: Way) -> np.ndarray:
    """[R] seconds, before any level. What forward convolutions turn is in the levels of inference."""
    turned = (np.asarray(table.op_class) == _CONVOLUTION) & (np.asarray(table.groups) <= 1)
    turned &= (np.asarray(table.part) != backward.FORWARD) & operators.on_matrix_units(table, way)
    moved = np.asarray(table.bytes_read) + table.bytes_written - table.weight_bytes
    return operators.moving_s(np.where(turned, 2.0 * _TURNED * np.maximum(moved, 0.0), 0.0), _MOVE, way.device)


def _at_most(way: Way) -> Way | None:
    """The way that no operator of a step on a GPU takes longer than in ``way``, whatever the levels of precisions say.

    TF32 is a leave that libraries may take in products, and that cuDNN takes in fp32 too; records of it are those of
    other frameworks and of networks with large depthwise kernels. Halves alone run autocast's kernels without its
    casts; steps in them were measured in releases of 2022 alone, under autocast in today's.
    """
    if way.precision == "tf32":
        return replace(way, precision="fp32")
    autocast = {"fp16": "amp", "bf16": "amp_bf16"}.get(way.precision)
    return replace(way, precision=autocast) if autocast and way.present else None


def _reached(device: Device) -> Device:
    peaks = {name: rate * _AMD_PRODUCTS for name, rate in device.peak_flops.items() if name != "tf32"}
    bandwidth = device.memory_bandwidth_bytes_s * _AMD_BANDWIDTH
    return replace(device, peak_flops=peaks, memory_bandwidth_bytes_s=bandwidth)


def _as_kernels_run(table: StepColumns, large: np.ndarray, byte_scale: float) -> StepColumns:
    """The rows with bytes at their width, products with a weight known as such in every part, kernels of three
    dimensions as convolutions of two, depthwise ones that are ``large`` [R] as those of 5 x 5, and gradients of weights
    split along their inner dimension.
    """  # fmt: skip
    part, source = np.asarray(table.part), np.asarray(table.source)
    forward = (part == backward.FORWARD) & (source >= 0)
    weights = np.zeros(int(source.max(initial=-1)) + 2)
    weights[source[forward]] = np.asarray(table.weight_bytes)[forward]
    scale = np.where(part == backward.OPTIMIZER, 1.0, byte_scale)
    m, n, b = (np.maximum(np.asarray(c, dtype=np.float64), 1.0) for c in (table.m, table.n, table.b))
    doublings = np.round(np.log2(_SPLIT_TILES / np.ceil(b * m * n / _SPLIT_TILE)))
    split = np.where(part == backward.WEIGHT, np.exp2(np.clip(doublings, 0.0, np.log2(_MOST_SPLITS))), 1.0)
    area = np.asarray(table.kernel_area)
    return replace(
        table,
        bytes_read=table.bytes_read * scale,
        bytes_written=table.bytes_written * scale,
        weight_bytes=np.where(np.asarray(table.macs) > 0, weights[source], 0.0),
        kernel_area=np.where(large, _OWN_KERNEL, np.where(np.isin(area, _CUBES), 4, area)),
        b=table.b * split,
        k=table.k / split,
    )


def _large_in_cudnn(steps: Steps, way: Way) -> np.ndarray:
    """[R] depthwise convolutions beyond 5 x 5 that cuDNN runs: in halves, where their input is channels-last
    (`use_cudnn_depthwise` of aten/src/ATen/native/Convolution.cpp).

    So it is in networks that normalize the channels of every place (ConvNeXt): permuted for it, they stay so. Of
    present releases: in the records of torch 1.12 and before such kernels take what the generic ones do.
    """
    table, tables = steps.columns, steps.tables
    if not way.present or way.device.vendor != "NVIDIA" or way.precision in ("fp32", "tf32", "fp64"):
        return np.zeros(len(table.op), dtype=bool)
    op = np.asarray(table.op)
    layer = tables.any(op == _LAYER_NORM) & ~tables.any(op == _BATCH_NORM)
    last = layer[tables.graph] | (way.layout == "nhwc")
    return np.asarray(last & (np.asarray(table.kernel_area) > _OWN_KERNEL) & (np.asarray(table.groups) > 1))


def _groups(table: StepColumns, family: np.ndarray, device: Device) -> np.ndarray:
    """[R] index into GROUPS."""
    part = np.asarray(table.part)
    over_batch = AMD_BATCH_NORM if device.vendor == "AMD" and device.kind == "gpu" else "batch_norm"
    kind = np.where(np.asarray(table.op) == _BATCH_NORM, KINDS.index(over_batch), _KIND[family])
    return np.where(part == backward.OPTIMIZER, len(GROUPS) - 1, np.minimum(part, backward.WEIGHT) * len(KINDS) + kind)


def _widened(tables: Tables, table: StepColumns, kind: np.ndarray, way: Way) -> np.ndarray:
    """[R] index into WIDENED: softmaxes, and in networks that normalize samples what lies between their products."""
    found = np.full(len(kind), -1)
    if not way.precision.startswith("amp"):
        return found
    over_batch = np.asarray(table.op) == _BATCH_NORM
    others = (np.asarray(table.op_class) == _NORMALIZATION) & ~over_batch
    single = (tables.any(others) & ~tables.any(over_batch))[tables.graph]
    for i, name in enumerate(WIDENED):
        own = (kind == KINDS.index(name)) & (np.asarray(table.part) != backward.OPTIMIZER)
        found = np.where(own & (single | (name == "softmax")), i, found)
    return found


@dataclass(frozen=True)
class StepTimes:
    """Time of steps by their operators; ``levels``: log factors over ``base`` by kind of device, level and name."""

    base: Base
    levels: Mapping[str, Mapping[str, Mapping[str, float]]]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StepTimes:
        """The inverse of `to_dict`, on what ships of inference. Raises ArtefactError for what is none."""
        try:
            found = {
                kind: {level: {str(k): float(v) for k, v in values[kind][level].items()} for level in LEVELS}
                for kind in ("gpu", "cpu")
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"an artefact's levels cannot be read ({error}); run `perfpass train` again") from None
        return cls(Base.load(), found)

    def to_dict(self) -> dict[str, dict[str, dict[str, float]]]:
        """Strict JSON, without ``base``."""
        return {
            kind: {level: {k: round(v, 5) for k, v in levels.get(level, {}).items()} for level in LEVELS}
            for kind, levels in self.levels.items()
        }

    def _of(self, kind: str, level: str, names: tuple[str, ...]) -> np.ndarray:
        values = self.levels.get(kind, {}).get(level, {})
        return np.array([values.get(name, 0.0) for name in names])

    def seconds(self, steps: Steps, batch: np.ndarray, way: Way, byte_scale: float = 1.0) -> Seconds:
        """The time of N steps at ``batch`` [N]."""
        tables, kind = steps.tables, way.device.kind
        done = self.base.work(steps, batch, way, byte_scale)
        widened = np.append(self._of(kind, "autocast", WIDENED), 0.0)[done.widened]
        level = self._of(kind, "group", GROUPS)[done.group] + widened + self._of(kind, "step", ("",))[0]
        row = done.device_s * np.exp(level)
        issued = done.host_s * np.exp(self._of(kind, "host", PARTS)[np.asarray(steps.columns.part)])
        device_s, host_s = tables.sums(row) + done.fixed_s, tables.sums(issued) + done.call_s
        if kind == "cpu":  # it issues to itself
            total, bound = device_s + host_s, host_s / (device_s + host_s)
        else:
            total = smooth_maximum(device_s, host_s, SMOOTHNESS)
            bound = issue_share(host_s / np.maximum(device_s, 1e-12), SMOOTHNESS)
        sums = tables.sums(row), tables.sums(issued)
        parts = [v / np.maximum(of, 1e-300)[tables.graph] for v, of in zip((row, issued), sums, strict=True)]
        share = (1.0 - bound)[tables.graph] * parts[0] + bound[tables.graph] * parts[1]
        return Seconds(total, device_s, host_s, share * total[tables.graph])
