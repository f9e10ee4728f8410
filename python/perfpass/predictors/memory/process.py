"""Peak memory of a process on a device: the one model behind every prediction made from a graph.

peak = tensors that are planned + what the allocator holds beside them (`allocation`) + workspace of libraries + runtime
(context and loaded libraries). Inference plans by liveness; a training step by what autograd saves of the forward
graph, gradients and states. What a module's own recorded step takes is in `recorded`, what was learned from
measurements in `predictor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.estimate import Bounds
from perfpass.predictors.memory.allocation import held_beside, weight_copies
from perfpass.predictors.memory.host import HostMemory
from perfpass.predictors.memory.predictor import MemoryPredictor

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.estimate import Columns
    from perfpass.predictors.way import Way

# CUDA context and loaded libraries of one process of PyTorch 2.x where none was measured on the device: 300 to 550 MiB
# by nvidia-smi on Volta to Hopper (driver 5xx). On a CPU: interpreter and libraries.
RUNTIME_BYTES = {"gpu": float(450 << 20), "cpu": float(200 << 20)}
# The most that the careful bound allows for it.
RUNTIME_HIGH_BYTES = {"gpu": float(800 << 20), "cpu": float(500 << 20)}
# cuBLAS keeps 8.1 MiB (32 MiB on Hopper; cuBLAS documentation, cublasSetWorkspace), cuDNN what its algorithm asks for.
WORKSPACE_BYTES = {"gpu": float(32 << 20), "cpu": 0.0}
SOURCE = "planned by liveness; context and workspace by NVIDIA's and PyTorch's documentation"
# Bounds of planned tensors. By hand: kernels that fuse save a part of the activations; freed blocks of other sizes stay
# with the allocator.
_LOW, _HIGH = 0.85, 1.25
# Of a step: in backward, gradients of activations live beside what was saved (the two largest tensors).
_GRADIENT_TENSORS = 2
_STEP_LOW, _STEP_HIGH = 0.8, 1.3
# A network exported for inference has its batch normalizations folded into convolutions. Trained, each saves its input
# beside the convolution's: twice the activations.
_FOLDED = 2.0
_RUNTIME_LOW, _RUNTIME_HIGH, _WORKSPACES = 0.7, 1.1, 4.0  # shares of runtime and workspace in the bounds; by hand
_FP32_BYTES = 4.0


def runtime_bytes(device: Device, *, training: bool = False) -> float:
    """Context and libraries of a process: measured on the device, else `RUNTIME_BYTES`.

    A training step on a GPU without a measurement takes the median of its vendor's devices, all measured in training.
    """
    if device.kind == "cpu":
        return RUNTIME_BYTES["cpu"]
    learned = MemoryPredictor.load()
    if training:
        return learned.runtime_bytes(device)
    return float(learned.manifest["runtime_bytes"].get(device.parent or device.id, RUNTIME_BYTES[device.kind]))


def beside_high_bytes(device: Device) -> float:
    """The most that lies beside the tensors of an inference process: workspaces and runtime."""
    return _WORKSPACES * WORKSPACE_BYTES[device.kind] + _runtime_high_bytes(device, runtime_bytes(device))


def _runtime_high_bytes(device: Device, runtime: float) -> float:
    return max(RUNTIME_HIGH_BYTES[device.kind], _RUNTIME_HIGH * runtime)


def inference(columns: Columns, way: Way) -> tuple[dict[str, Any], Bounds]:
    """Bytes of N runs by what holds them ("weights", "activations", "allocator", "workspace", "runtime"), and the peak.

    ``columns``: "weight_bytes" and "activation_bytes" at the width of the precision, "reserved_bytes" of the allocator.
    """
    if way.device.kind == "cpu" and HostMemory.load().knows(way.runtime):
        return HostMemory.load().inference(columns, way)
    parts: dict[str, Any] = {
        "weights": columns["weight_bytes"] * float(weight_copies(way.precision)),
        "activations": columns["activation_bytes"],
        "workspace": WORKSPACE_BYTES[way.device.kind],
        "runtime": runtime_bytes(way.device),
    }
    parts["allocator"] = held_beside(columns["reserved_bytes"], parts)
    planned = parts["weights"] + parts["activations"]
    least = parts["weights"] + parts["activations"] * _LOW
    return parts, _peak(way.device, parts, least, planned * _HIGH + parts["allocator"])


def step(columns: Columns, way: Way, states: np.ndarray, width: float) -> tuple[dict[str, Any], Bounds]:
    """Bytes of N training steps by what holds them, and the peak.

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
        "workspace": WORKSPACE_BYTES[device.kind],
        "runtime": runtime_bytes(device, training=True),
    }
    kept = parts["weights"] + parts["gradients"] + parts["optimizer"]
    more = np.where(columns["folded"] > 0, _FOLDED, 1.0)
    least = kept + parts["activations"] * _STEP_LOW
    return parts, _peak(device, parts, least, kept + parts["activations"] * _STEP_HIGH * more)


def _peak(device: Device, parts: dict[str, Any], least: np.ndarray, most: np.ndarray) -> Bounds:
    """The sum of all parts [N]. The upper bound is the careful one: too little memory is a crash, too much is money."""
    median = np.asarray(sum(parts.values()))
    low = least + _RUNTIME_LOW * parts["runtime"]
    high = most + _WORKSPACES * parts["workspace"] + _runtime_high_bytes(device, parts["runtime"])
    return Bounds(median, np.minimum(low, median), np.maximum(high, median))
