"""Peak memory of a torch module's training step: its allocations, recorded, through the simulated allocator."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.memory.predictor import PeakMemory

_OPTIMIZERS = {"none": None, "sgd": "sgd", "momentum": "sgd_momentum", "adam": "adam", "adamw": "adamw"}


def recorded(
    module: Any,
    input_shape: Any,
    device: Device,
    *,
    batch: int,
    precision: str,
    optimizer: str,
    frozen: Collection[str] = (),
) -> PeakMemory | None:
    """The peak of a step of ``module`` (a torch.nn.Module, copied without its weights) in eager PyTorch on a GPU.

    None where a step cannot be recorded (values of tensors decide, a precision without a recording) or ``device`` is a
    CPU: the caller then plans from the forward graph. ``frozen``: names of parameters that are not trained.
    """
    import torch

    from perfpass.errors import PerfPassError
    from perfpass.graph import allocators
    from perfpass.importers.torch import make_inputs, weightless_copy
    from perfpass.importers.torch_memory import PARAMETERS, record
    from perfpass.importers.torch_training import usual_loss
    from perfpass.predictors.memory.predictor import MemoryPredictor

    if device.kind == "cpu" or precision not in PARAMETERS:
        return None
    kind = PARAMETERS[precision]
    args, kwargs = make_inputs(input_shape, batch, str(kind).removeprefix("torch."))
    copied = weightless_copy(module, torch.float32)
    for name, parameter in copied.named_parameters():
        parameter.requires_grad_(parameter.is_floating_point() and name not in frozen)
    convolutional = any(isinstance(part, torch.nn.modules.conv._ConvNd) for part in copied.modules())

    def inputs() -> Any:
        if kwargs:
            return {name: torch.empty(t.shape, dtype=t.dtype) for name, t in kwargs.items()}
        return tuple(torch.empty(t.shape, dtype=t.dtype) for t in args)

    try:
        found = record(copied, inputs, precision=precision, optimizer=_OPTIMIZERS[optimizer], loss=usual_loss)
    except (PerfPassError, RuntimeError, TypeError, ValueError):
        return None
    report = allocators.caching(found.events)
    return MemoryPredictor.load().predict(report, device, convolutional=convolutional)
