"""Memory of a process on a device: the one model behind every prediction made from a graph.

Three figures (`perfpass.prediction.MemoryFigures`): tensors alive, what the allocator reserves, what is in use on the
device. Inference plans by liveness and passes the plan through the runtime's allocator (`allocation`); a training step
is planned from its forward graph (`step`). What lies beside the plan of inference is in `allowance`; what a module's
own recorded step takes is in `recorded`, what was learned from recorded steps in `predictor`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.estimate import Bounds, MemoryBounds
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.memory.allocation import packs, searches, weight_copies
from perfpass.predictors.memory.allowance import Allowance, allowance
from perfpass.predictors.memory.predictor import MemoryPredictor
from perfpass.predictors.way import Way

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.estimate import Columns
    from perfpass.predictors.memory.host import HostMemory

# cuBLAS keeps 8.1 MiB (32 MiB on Hopper; cuBLAS documentation, cublasSetWorkspace): told apart in the breakdown.
WORKSPACE_BYTES = {"gpu": float(32 << 20), "cpu": 0.0}
SOURCE = "planned by liveness through the runtime's allocator; what lies beside it is fitted on measured runs"
# Of live tensors, by hand: kernels that fuse save a part of the activations.
_ALIVE_LOW = 0.85
# TorchInductor's pointwise kernels write over inputs that die in them (torch._inductor.config.inplace_buffers). The
# plan is that of the eager program, where input and output of such an operator are both alive: half of it is left.
_IN_PLACE = 0.5


def inference_allowance(way: Way) -> Allowance:
    """What lies beside the planned tensors of a run of inference."""
    known = MemoryPredictor.load()
    return allowance(way, known.allowances, known.manifest["context_bytes"])


def beside_high_bytes(device: Device, runtime: str = "torch") -> float:
    """The most that lies beside the tensors of a process of inference: workspaces, modules, context."""
    return inference_allowance(Way(device, runtime=runtime)).beside_of(convolves=True)[2]


def _host(way: Way) -> HostMemory | None:
    """What was measured of processes of this runtime on CPUs, where the run is one."""
    if way.device.kind != "cpu":
        return None
    from perfpass.predictors.memory.host import HostMemory

    found = HostMemory.load()
    return found if found.knows(way.runtime) else None


def inference(columns: Columns, way: Way) -> tuple[dict[str, Any], MemoryBounds]:
    """Bytes of N runs by what holds them ("weights", "activations", "allocator", "workspace", "runtime"), and figures.

    ``columns``: "weight_bytes" and "activation_bytes" at the width of the precision, "reserved_bytes" of the allocator,
    "convolutional" (whether the network has convolutions, 0 or 1).
    The parts sum to the median of what is in use. Gradients are not kept (`torch.no_grad`).
    """
    way = way.as_measured
    weights = columns["weight_bytes"] * float(weight_copies(way.precision, way.runtime))
    activations = columns["activation_bytes"]
    if (host := _host(way)) is not None:
        parts, peak = host.inference(columns, way)
        planned = weights + activations
        alive = Bounds(planned, weights + _ALIVE_LOW * activations, planned)
        # Of an arena that was never touched nothing is resident.
        reserved = np.maximum(np.minimum(columns["reserved_bytes"], peak.median), planned)
        return parts, MemoryBounds(alive, Bounds(reserved, planned, reserved), peak)
    allowed = inference_allowance(way)
    held = np.maximum(columns["reserved_bytes"] - weights, activations)
    low, middle, high = allowed.share
    least = _IN_PLACE if way.runtime == "torch.compile" else _ALIVE_LOW
    alive = Bounds(weights + activations, weights + least * activations, weights + max(high, 1.0) * activations)
    reserved = Bounds(*(weights + np.maximum(share * held, activations) for share in (middle, low, high)))
    if way.runtime == "torch.compile":
        reserved = replace(reserved, low=alive.low)
    plain, convolving = (allowed.beside_of(convolves=kind) for kind in (False, True))
    beside = Bounds(*(np.where(columns["convolutional"] > 0, convolving[i], plain[i]) for i in (1, 0, 2)))
    return _figures(way.device, {"weights": weights, "activations": activations}, alive, reserved, beside)


def for_core(way: Way) -> dict[str, Any]:
    """What `inference` reads of ``way``, as numbers (cpp_kernels/src/prediction/predictor.cpp)."""
    if (host := _host(way)) is not None:
        return {"kind": "process", "least_alive": _ALIVE_LOW, "packs": packs(way), **host.for_core(way)}
    allowed = inference_allowance(way)
    return {
        "kind": "device",
        "share": allowed.share,
        "beside": allowed.beside,
        "least_alive": _ALIVE_LOW,
        "searches": searches(way),
    }


def step(columns: Columns, way: Way) -> tuple[dict[str, Any], MemoryBounds]:
    """Bytes of N training steps by what holds them, and the figures.

    ``columns``: what `perfpass.predictors.memory.step` reads of them. What the convolutions of a vendor leave in the
    allocator moves the median by what was measured of them; the bounds know no more than what they may leave.
    """
    device, known = way.device, MemoryPredictor.load()
    from perfpass.predictors.memory import step as steps

    found = steps.planned(columns, way)
    spread = Spread.from_dict(known.manifest["step"]["spread"])
    held = steps.lacks(columns, found, way)
    low_alive, high_alive = spread.bounds(held)
    alive = Bounds.around(found.alive, low_alive, steps.with_scores(columns, high_alive, found.alive))
    # What ran must fit: activations in place that the plan keeps beside their results, kernels that fuse.
    share = _IN_PLACE if way.runtime == "torch.compile" else _ALIVE_LOW
    least = np.minimum(alive.low, found.alive - (1.0 - share) * found.parts["activations"])
    alive = replace(alive, low=np.maximum(least, found.certain))
    reserved = alive
    if device.kind != "cpu":  # the allocator's holes differ as in what is in use, without its context
        _, holes = spread.bounds({**held, "allocator": np.ones(len(found.alive))})
        most = found.alive * np.exp(steps.with_scores(columns, holes, found.alive))
        reserved = replace(alive, high=most).scaled(steps.SLACK)
    low, middle, _ = inference_allowance(way).beside
    beside = known.runtime_bytes(device) if device.kind != "cpu" else middle
    of = reserved.median + beside
    middle = of + steps.left_by_workspaces(columns, way)
    low_used, high_used = spread.bounds(steps.lacks(columns, found, way, middle))
    in_use = Bounds.around(middle, low_used, steps.with_scores(columns, high_used, middle))
    left = columns["convolutional"] * known.workspace_share(device) * reserved.median
    # An allocator that runs out gives back what it holds beyond live tensors.
    least = np.minimum(in_use.low, alive.low + min(low, beside))
    least = np.maximum(least, found.certain + min(low, beside))
    in_use = Bounds(np.clip(of + left, least, in_use.high), least, in_use.high)
    parts: dict[str, Any] = dict(found.parts)
    workspace = min(WORKSPACE_BYTES[device.kind], beside)
    parts |= {"allocator": reserved.median - found.alive, "workspace": in_use.median - of + workspace}
    parts["runtime"] = beside - workspace
    return parts, MemoryBounds(alive, replace(reserved, low=alive.low), in_use)


def _figures(
    device: Device, parts: dict[str, Any], alive: Bounds, reserved: Bounds, beside: Bounds
) -> tuple[dict[str, Any], MemoryBounds]:
    """The parts with what lies beside the tensors, and the three figures; ``reserved`` is at least ``alive``."""
    workspace = np.minimum(WORKSPACE_BYTES[device.kind], beside.median)
    tensors = np.asarray(sum(parts.values()))
    parts |= {"allocator": np.maximum(reserved.median - tensors, 0.0), "workspace": workspace}
    parts["runtime"] = beside.median - workspace
    in_use = Bounds(*(getattr(reserved, n) + getattr(beside, n) for n in ("median", "low", "high")))
    return parts, MemoryBounds(alive, reserved, in_use)
