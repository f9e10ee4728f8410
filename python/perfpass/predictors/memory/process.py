"""Memory of a process on a device: the one model behind every prediction made from a graph.

Three figures (`perfpass.prediction.MemoryFigures`): tensors alive, what the allocator reserves, what is in use on the
device. Inference plans by liveness and passes the plan through the runtime's allocator (`allocation`); a training step
plans what autograd saves of the forward graph, gradients and states. What lies beside the plan is in `allowance`; what
a module's own recorded step takes is in `recorded`, what was learned from recorded steps in `predictor`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.estimate import Bounds, MemoryBounds
from perfpass.predictors.memory.allocation import weight_copies
from perfpass.predictors.memory.allowance import Allowance, allowance
from perfpass.predictors.memory.host import HostMemory
from perfpass.predictors.memory.predictor import MemoryPredictor
from perfpass.predictors.way import Way

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.estimate import Columns

# cuBLAS keeps 8.1 MiB (32 MiB on Hopper; cuBLAS documentation, cublasSetWorkspace): told apart in the breakdown.
WORKSPACE_BYTES = {"gpu": float(32 << 20), "cpu": 0.0}
SOURCE = "planned by liveness through the runtime's allocator; what lies beside it is fitted on measured runs"
# Of live tensors, by hand: kernels that fuse save a part of the activations.
_ALIVE_LOW = 0.85
# TorchInductor's pointwise kernels write over inputs that die in them (torch._inductor.config.inplace_buffers). The
# plan is that of the eager program, where input and output of such an operator are both alive: half of it is left.
_IN_PLACE = 0.5
# Of a step: in backward, gradients of activations live beside what was saved (the two largest tensors).
_GRADIENT_TENSORS = 2
# A network exported for inference has its batch normalizations folded into convolutions. Trained, each saves its input
# beside the convolution's: twice the activations.
_FOLDED = 2.0
_FP32_BYTES = 4.0


def inference_allowance(way: Way) -> Allowance:
    """What lies beside the planned tensors of a run of inference."""
    manifest = MemoryPredictor.load().manifest
    return allowance(way, manifest["inference"], manifest["context_bytes"])


def beside_high_bytes(device: Device, runtime: str = "torch") -> float:
    """The most that lies beside the tensors of a process of inference: workspaces, modules, context."""
    return inference_allowance(Way(device, runtime=runtime)).beside[2]


def inference(columns: Columns, way: Way) -> tuple[dict[str, Any], MemoryBounds]:
    """Bytes of N runs by what holds them ("weights", "activations", "allocator", "workspace", "runtime"), and figures.

    ``columns``: "weight_bytes" and "activation_bytes" at the width of the precision, "reserved_bytes" of the allocator.
    The parts sum to the median of what is in use. Gradients are not kept (`torch.no_grad`).
    """
    weights = columns["weight_bytes"] * float(weight_copies(way.precision, way.runtime))
    activations = columns["activation_bytes"]
    if way.device.kind == "cpu" and HostMemory.load().knows(way.runtime):
        parts, peak = HostMemory.load().inference(columns, way)
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
    return _figures(way.device, {"weights": weights, "activations": activations}, alive, reserved, allowed.beside)


def step(columns: Columns, way: Way, states: np.ndarray, width: float) -> tuple[dict[str, Any], MemoryBounds]:
    """Bytes of N training steps by what holds them, and the figures.

    ``columns``: "parameters", "weight_bytes", "saved_bytes", "largest_bytes" and "folded" (the network has no
    normalization among its convolutions). ``states`` [N]: bytes of the optimizer's states in fp32. ``width``: bytes of
    a number at the precision of ``way``.
    """
    device, parameters = way.device, columns["parameters"]
    # Autocast keeps weights, gradients and states in fp32.
    held = _FP32_BYTES if weight_copies(way.precision) > 1 else width
    parts: dict[str, Any] = {
        "weights": columns["weight_bytes"] * float(weight_copies(way.precision)),
        "gradients": parameters * held,
        "optimizer": states * held / _FP32_BYTES,
        "activations": columns["saved_bytes"] + _GRADIENT_TENSORS * columns["largest_bytes"],
    }
    kept = parts["weights"] + parts["gradients"] + parts["optimizer"]
    low, middle, high = Allowance.from_dict(MemoryPredictor.load().manifest["step"]).share
    most = high * np.where(columns["folded"] > 0, _FOLDED, 1.0)
    alive = Bounds(*(kept + share * parts["activations"] for share in (middle, low, most)))
    # The allocator's slack is that of inference's middle: a step frees in the order in which it made.
    beside = inference_allowance(way).beside
    if device.kind != "cpu":
        more = MemoryPredictor.load().runtime_bytes(device) - beside[1]
        beside = (beside[0] + min(0.0, more), beside[1] + more, beside[2] + max(0.0, more))
    return _figures(device, parts, alive, alive, beside)


def _figures(
    device: Device, parts: dict[str, Any], alive: Bounds, reserved: Bounds, beside: tuple[float, float, float]
) -> tuple[dict[str, Any], MemoryBounds]:
    """The parts with what lies beside the tensors, and the three figures; ``reserved`` is at least ``alive``."""
    low, middle, high = beside
    workspace = min(WORKSPACE_BYTES[device.kind], middle)
    tensors = np.asarray(sum(parts.values()))
    parts |= {"allocator": np.maximum(reserved.median - tensors, 0.0), "workspace": workspace}
    parts["runtime"] = middle - workspace
    in_use = Bounds(reserved.median + middle, reserved.low + low, reserved.high + high)
    return parts, MemoryBounds(alive, reserved, in_use)
