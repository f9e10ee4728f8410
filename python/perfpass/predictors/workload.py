"""What is asked: the arguments of `predict`, checked, and what they mean for counting."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArgumentError, DeviceError, UnsupportedError
from perfpass.graph import DTYPES
from perfpass.graph.optimizers import OPTIMIZERS
from perfpass.late import dataclass
from perfpass.predictors import quantisation
from perfpass.predictors import sparsity as sparse
from perfpass.predictors.roofline import ISSUE_S, RATES
from perfpass.predictors.way import STANDING_IN, Way
from perfpass.text import shown_value, unknown

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph

# Precision: (type that floating tensors are counted as, rate of the device that must exist). "amp" is autocast: matrix
# products and convolutions in the 16-bit type, weights kept in fp32.
PRECISIONS: dict[str, tuple[str, str]] = {
    "fp64": ("float64", "fp64"),
    "fp32": ("float32", "fp32"),
    "tf32": ("float32", "tf32"),
    "fp16": ("float16", "fp16"),
    "bf16": ("bfloat16", "bf16"),
    "amp": ("float16", "fp16"),
    "amp_bf16": ("bfloat16", "bf16"),
    "int8": ("float8", "int8"),
    "fp8": ("float8", "fp8"),
    "w8a8": ("float16", "fp16"),  # on a GPU; see perfpass.predictors.quantisation
    "w8a16": ("float16", "fp16"),
    "w4a16": ("float16", "fp16"),
    "nf4": ("float16", "fp16"),
}
_WEIGHTS_ALONE = {"int8_wo": "w8a16", "fp8_wo": "w8a16", "int4_wo": "w4a16", "int4": "w4a16"}  # language models' names
_PRECISION_ALIASES = _WEIGHTS_ALONE | {
    "amp_fp16": "amp",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
}
_FLOATING = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
_MEASURED = ("torch", "torch.compile", "onnxruntime", "tensorrt", "tvm", "relax")
RUNTIMES = (*_MEASURED, *STANDING_IN)
LAYOUTS = ("nchw", "nhwc")
# What captures its kernels as a CUDA graph where it is asked to: engines, and torch.compile as mode="reduce-overhead".
_REPLAYED = ("tensorrt", "onnxruntime", "torch.compile")
MAX_BATCH = 1 << 20
DEFAULT_OPTIMIZER = "momentum"  # what the training records ran


@dataclass(frozen=True)
class Workload:
    """The checked arguments of a prediction; ``batch`` None: that of the graph."""

    batch: int | None
    precision: str
    mode: str
    runtime: str
    layout: str
    optimizer: str | None = None  # of a training step, else None
    sparsity: str | None = None  # of the weights (perfpass.predictors.sparsity)
    quantised: str | None = None  # as (perfpass.predictors.quantisation); ``precision`` is that of all else
    cuda_graph: bool = False  # kernels are captured once and replayed

    @property
    def float_as(self) -> str:
        """The type that floating tensors are counted as."""
        return PRECISIONS[self.precision][0]

    def on(self, device: Device) -> Way:
        """How it runs on a device."""
        return Way(device, self.precision, self.runtime, self.layout, self.optimizer, cuda_graph=self.cuda_graph)


def own_name(precision: Any) -> Any:
    """A precision by the name that PRECISIONS has for it; what is none of them, as it is."""
    return _PRECISION_ALIASES.get(precision, precision) if isinstance(precision, str) else precision


def check(
    device: Device,
    *,
    batch: int | None,
    precision: str,
    mode: str,
    runtime: str,
    layout: str,
    optimizer: str | None = None,
    sparsity: str | None = None,
    cuda_graph: bool = False,
) -> Workload:
    """The checked workload.

    Raises ArgumentError, DeviceError for a precision that the device lacks, UnsupportedError for one or a runtime of
    which no training is predicted, and for a runtime that the device does not have, and what
    `perfpass.predictors.sparsity.check` does.
    """
    _one_of("mode", mode, ("inference", "training"))
    if mode == "inference" and optimizer is not None:
        raise ArgumentError(f"optimizer {optimizer!r} needs mode='training'; inference has none")
    precision = own_name(precision)
    _one_of("precision", precision, tuple(PRECISIONS))
    _one_of("runtime", runtime, RUNTIMES)
    _one_of("layout", layout, LAYOUTS)
    scheme = precision if precision in quantisation.BITS else None
    if scheme is not None and mode == "training":
        raise UnsupportedError(f"training in {scheme} is not predicted; {', '.join(RATES)} are")
    precision = precision if scheme is None else quantisation.beside(scheme, device)
    rate = PRECISIONS[precision][1]
    if rate not in device.peak_flops:
        usable = [n for n, (_, need) in PRECISIONS.items() if need in device.peak_flops and n not in quantisation.BITS]
        raise DeviceError(
            f"{device.name} has no {rate} arithmetic, which precision {precision!r} needs; "
            f"it can run {', '.join(usable)}"
        )
    if runtime in STANDING_IN and (device.kind != "cpu" or precision not in ("fp32", "int8")):
        raise UnsupportedError(
            f"{runtime} is predicted on CPUs in fp32 and int8, not on {device.name} in {precision}; ask for a CPU in "
            f"one of these (a quantised file keeps its types), or for another runtime: {', '.join(_MEASURED)}"
        )
    if runtime == "tensorrt" and not (device.is_gpu and device.vendor == "NVIDIA"):
        raise UnsupportedError(
            f"TensorRT runs on NVIDIA's GPUs alone, not on {device.name}; ask for another runtime: "
            f"{', '.join(name for name in _MEASURED if name != 'tensorrt')}"
        )
    if mode == "training":
        optimizer = DEFAULT_OPTIMIZER if optimizer is None else optimizer
        _one_of("optimizer", optimizer, tuple(OPTIMIZERS))
        if precision not in RATES:
            raise UnsupportedError(f"training in {precision} is not predicted; {', '.join(RATES)} are")
        if runtime not in ISSUE_S:
            raise UnsupportedError(f"training with {runtime} is not predicted; {', '.join(ISSUE_S)} are")
    if sparsity is not None and scheme is not None:
        raise UnsupportedError(f"sparsity {sparsity} beside {scheme} is not predicted; leave one of them out")
    if sparsity is not None:
        sparse.check(sparsity, device, rate, precision, runtime, mode)
    if cuda_graph:
        _check_replayed(device, runtime, mode)
    size = None if batch is None else check_batch(batch)
    return Workload(size, precision, mode, runtime, layout, optimizer, sparsity, scheme, bool(cuda_graph))


def _check_replayed(device: Device, runtime: str, mode: str) -> None:
    if mode != "inference" or runtime not in _REPLAYED:
        raise UnsupportedError(
            f"{'training' if mode != 'inference' else runtime} is not predicted as a CUDA graph; inference in "
            f"{', '.join(_REPLAYED[:-1])} and {_REPLAYED[-1]} is"
        )
    if device.kind != "gpu" or device.vendor != "NVIDIA":
        raise DeviceError(f"{device.name} runs no CUDA graphs, as NVIDIA's GPUs do; leave cuda_graph out")


def check_batch(batch: Any) -> int:
    """``batch`` as an int of 1 to 2^20. Raises ArgumentError."""
    try:
        value = operator.index(batch)
    except TypeError:
        raise ArgumentError(f"batch must be a whole number, got {shown_value(batch)}") from None
    if isinstance(batch, bool) or not 1 <= value <= MAX_BATCH:
        raise ArgumentError(f"batch must be 1 to {MAX_BATCH}, got {shown_value(batch)}")
    return value


def precision_of(graph: OpGraph) -> str:
    """The precision in which most floating results of the graph are produced: fp64, fp32, fp16 or bf16."""
    produced = np.bincount(graph.tensor_dtype[graph.producer >= 0], minlength=len(DTYPES))
    counts = {name: int(produced[DTYPES.index(dtype)]) for name, dtype in _FLOATING.items()}
    found = max(counts, key=lambda name: counts[name])
    return found if counts[found] else "fp32"


def told_otherwise(graph: OpGraph, precision: str) -> tuple[str, ...]:
    """That a model of 16 bits is told in fp32, which is what is taken where nobody says: one sentence, or none."""
    own = precision_of(graph)
    if precision != "fp32" or own not in ("fp16", "bf16"):
        return ()
    return (f"the model computes in {own} and is told in fp32 here; ask for it as it is: precision {own}",)


def leading_dim(graph: OpGraph) -> int:
    """Leading dimension of the graph's first input that has one: the batch the graph was read with; else 1."""
    for tensor in graph.graph_inputs:
        shape = graph.shape(int(tensor))
        if shape:
            return max(1, shape[0])
    return 1


def _one_of(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ArgumentError(unknown(what, value, allowed))
