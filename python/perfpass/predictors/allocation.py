"""Memory of an inference run: the plan of its graph, passed through the allocator of its runtime.

PyTorch on a GPU holds segments (`perfpass.allocators.caching`), onnxruntime an arena beside the initializers, TVM
shared storage; on a CPU, PyTorch asks the C library and gives back at once. What an allocator holds beyond live tensors
is the part "allocator".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass import allocators
from perfpass.allocators import FREE, USES, Events
from perfpass.predictors.memory import MemoryPredictor

if TYPE_CHECKING:
    from perfpass.predictors.estimate import Planned
    from perfpass.predictors.memory_model import MemoryModel

_WEIGHTS = USES.index("weights")
# Autocast keeps the fp32 weights and caches 16-bit copies: three times the 16-bit count.
_AUTOCAST_COPIES = 3


def parts(inputs: Planned, model: MemoryModel) -> dict[str, float]:
    """Bytes of "weights", "activations", "allocator", "workspace" and "runtime" of one run."""
    planned = model.parts(
        inputs.device, inputs.precision, float(inputs.plan.weight_bytes), float(inputs.plan.peak_activation_bytes)
    )
    if inputs.device.kind != "cpu":
        known = MemoryPredictor.load().manifest["runtime_bytes"]
        planned["runtime"] = float(known.get(inputs.device.id, planned["runtime"]))
    held = reserved(inputs)
    planned["allocator"] = max(0.0, held - planned["weights"] - planned["activations"])
    return planned


def reserved(inputs: Planned) -> float:
    """Bytes that the runtime's allocator takes from the device, weights included."""
    copies = _AUTOCAST_COPIES if inputs.precision in ("amp", "amp_bf16") else 1
    if inputs.runtime in ("torch", "torch.compile") and inputs.device.kind == "cpu":
        return 0.0
    events = Events.of(inputs.graph, inputs.float_as)
    if inputs.runtime == "onnxruntime":
        run = _without_weights(events)
        return float(copies * inputs.plan.weight_bytes + allocators.arena(run).peak_reserved)
    if inputs.runtime == "tvm":
        return float(allocators.storage_sharing(events)[0].peak_reserved)
    if copies > 1:
        weights = (events.use == _WEIGHTS) & (events.bytes != FREE)
        events = Events(events.block, np.where(weights, events.bytes * copies, events.bytes), events.use)
    return float(allocators.caching(events).peak_reserved)


def _without_weights(events: Events) -> Events:
    kept = events.use != _WEIGHTS
    return Events(*(np.ascontiguousarray(c[kept]) for c in (events.block, events.bytes, events.use)))
