"""Peak memory of a torch module's training step: its allocations, recorded, through the simulated allocator."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.allocators import Events
    from perfpass.predictors.memory.predictor import PeakMemory

_OPTIMIZERS = {"none": None, "sgd": "sgd", "momentum": "sgd_momentum", "adam": "adam", "adamw": "adamw"}


@dataclass(frozen=True)
class AllocatorView:
    """Bytes of two steps in PyTorch's caching allocator: the most alive, the most reserved, and the most reserved with
    ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``; context and workspaces come on top.
    """

    alive: int
    reserved: int
    reserved_expandable: int


def allocator_view(
    module: Any,
    input_shape: Any,
    *,
    batch: int = 1,
    precision: str = "fp32",
    optimizer: str = "adamw",
    frozen: Collection[str] = (),
) -> AllocatorView:
    """What the allocator makes of two steps of ``module``, a torch.nn.Module, which is copied without its weights.

    ``input_shape`` without the batch, as for `perfpass.predict`. Raises ArgumentError for what is unknown,
    UnsupportedError where values of tensors decide.
    """
    from perfpass.errors import ArgumentError
    from perfpass.graph import allocators
    from perfpass.importers.torch_memory import PARAMETERS
    from perfpass.text import unknown

    for what, value, allowed in (("precision", precision, PARAMETERS), ("optimizer", optimizer, _OPTIMIZERS)):
        if value not in allowed:
            raise ArgumentError(unknown(what, value, allowed))
    events = _events(module, input_shape, batch, precision, optimizer, frozen)
    plain = allocators.caching(events)
    expandable = allocators.caching(events, expandable_segments=True)
    return AllocatorView(plain.peak_requested, plain.peak_reserved, expandable.peak_reserved)


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
    from perfpass.importers.torch_memory import PARAMETERS
    from perfpass.predictors.memory.predictor import MemoryPredictor, convolves

    if device.kind == "cpu" or precision not in PARAMETERS:
        return None
    parts = list(module.modules())
    convolutions = sum(isinstance(part, torch.nn.modules.conv._ConvNd) for part in parts)
    products = sum(isinstance(part, torch.nn.Linear) for part in parts)
    try:
        events = _events(module, input_shape, batch, precision, optimizer, frozen)
    except (PerfPassError, RuntimeError, TypeError, ValueError):
        return None
    convolutional = convolves(device, convolutions, products)
    return MemoryPredictor.load().predict(allocators.caching(events), device, convolutional=convolutional)


def _events(
    module: Any, input_shape: Any, batch: int, precision: str, optimizer: str, frozen: Collection[str]
) -> Events:
    import torch

    from perfpass.importers.torch import make_inputs, weightless_copy
    from perfpass.importers.torch_memory import PARAMETERS, record
    from perfpass.importers.torch_training import usual_loss

    args, kwargs = make_inputs(input_shape, batch, str(PARAMETERS[precision]).removeprefix("torch."))
    copied = weightless_copy(module, torch.float32)
    for name, parameter in copied.named_parameters():
        parameter.requires_grad_(parameter.is_floating_point() and name not in frozen)

    def inputs() -> Any:
        if kwargs:
            return {name: torch.empty(t.shape, dtype=t.dtype) for name, t in kwargs.items()}
        return tuple(torch.empty(t.shape, dtype=t.dtype) for t in args)

    return record(copied, inputs, precision=precision, optimizer=_OPTIMIZERS[optimizer], loss=usual_loss).events
