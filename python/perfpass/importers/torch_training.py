"""torch.nn.Module -> TrainingGraph: forward in training mode, loss, backward and optimizer step, on the meta device.

The same recorder as for inference sees the ATen operators that autograd and the optimizer run; nothing is computed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from perfpass.errors import ArgumentError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph.assumed import checked
from perfpass.graph.optimizers import OPTIMIZERS
from perfpass.graph.traced_step import PHASES, TrainingGraph
from perfpass.importers.torch import frozen_names, make_inputs, torch_dtype, weightless_copy
from perfpass.importers.torch_backward import TrainingCalls, TrainingRecorder
from perfpass.importers.torch_operators import tensors_in
from perfpass.importers.torch_recorder import assemble

_FORWARD, _BACKWARD, _OPTIMIZER = range(len(PHASES))
Loss = Callable[[Any], torch.Tensor]


def trace_training(
    module: torch.nn.Module,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | Mapping[str, Any],
    *,
    batch: int = 1,
    dtype: str = "float32",
    optimizer: str = "sgd",
    foreach: bool = False,
    loss: Loss | None = None,
    frozen: Collection[str] = (),
    assume: Mapping[str, int] | None = None,
) -> TrainingGraph:
    """The operator graph of one training step of ``module`` on inputs of ``input_shape`` at ``batch``.

    ``input_shape`` and ``dtype`` as for `perfpass.importers.torch.trace`. ``optimizer``: none, sgd, momentum, adam or
    adamw (torch.optim, later steps than the first, whose states exist); ``foreach``: its list version. ``loss`` makes a
    scalar of the module's output; without it a ``loss`` attribute of the output is taken, cross entropy where the
    output is logits [batch, classes] or [batch, length, classes], else the mean of all floating outputs. The
    floating parameters that require a gradient are trained, without those whose names are ``frozen``; ``assume`` is
    what values decide, as `trace` takes it. The module is copied without its weights.

    Raises ArgumentError for bad arguments, UnsupportedError where a pass depends on values or has no gradient,
    ShapeError where the forward pass refuses the input.
    """
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"trace_training takes a torch.nn.Module, got {type(module).__name__}")
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ArgumentError(f"batch must be a whole number of at least 1, got {batch!r}")
    held = frozen_names(module) | frozenset(frozen)
    owned = weightless_copy(module, torch_dtype(dtype))
    how: dict[str, Any] = {"optimizer": optimizer, "foreach": foreach, "loss": loss, "frozen": held, "assume": assume}
    return trace_training_owned(owned, input_shape, batch=batch, dtype=dtype, **how)


def trace_training_owned(
    module: torch.nn.Module,
    input_shape: Any,
    *,
    batch: int = 1,
    dtype: str = "float32",
    optimizer: str = "sgd",
    foreach: bool = False,
    loss: Loss | None = None,
    given: Mapping[str, Any] | None = None,
    frozen: Collection[str] = (),
    assume: Mapping[str, int] | None = None,
) -> TrainingGraph:
    """As `trace_training`, for a module on the meta device that the caller gives away: not copied, left as it ends."""
    if optimizer not in OPTIMIZERS:
        raise ArgumentError(f"unknown optimizer {optimizer!r}; allowed are {', '.join(OPTIMIZERS)}")
    args, kwargs = make_inputs(input_shape, batch, dtype)
    module.train()
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(parameter.is_floating_point() and name not in frozen)
    recorder = TrainingRecorder(checked(assume))
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        raise UnsupportedError(
            f"{type(module).__name__} has no floating parameter that is not frozen; nothing to train"
        )
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        recorder.declare(tensor, "weight" if tensor.is_floating_point() and tensor.dim() > 0 else "literal", name)
    inputs = [recorder.declare(t, "input", f"input_{i}" if len(args) > 1 else "input") for i, t in enumerate(args)]
    inputs += [recorder.declare(t, "input", name) for name, t in kwargs.items()]
    step, states = _optimizer(optimizer, list(parameters.values()), foreach)
    held = [recorder.declare(t, "literal", f"{optimizer}_state") for t in states]
    _run(module, recorder, args, {**kwargs, **(given or {})}, loss or usual_loss, step)
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    graph, kept = assemble(recorder, inputs, gradients)
    # Tensors are numbered anew: names of gradients are those of the outputs, states those of their role and name.
    phase = np.array(recorder.phases(kept), dtype=np.int8)
    names = [graph.string(int(i)) for i in np.asarray(graph.tensor_name)]
    state_ids = [t for t, name in enumerate(names) if held and name == f"{optimizer}_state"]
    held_states = np.array(state_ids, dtype=np.int64)
    outputs = np.asarray(graph.graph_outputs)
    return TrainingGraph(
        graph.core, phase, outputs, held_states, optimizer, assumed=graph.assumed, unasked=graph.unasked
    )


def _run(
    module: torch.nn.Module,
    recorder: TrainingRecorder,
    args: list[torch.Tensor],
    kwargs: dict[str, Any],
    loss: Loss,
    step: Callable[[], None],
) -> None:
    trained = [p for p in module.parameters() if p.requires_grad]
    try:
        with torch.enable_grad(), warnings.catch_warnings(), recorder.naming(module), TrainingCalls(recorder), recorder:
            warnings.simplefilter("ignore")
            value = loss(module(*args, **kwargs))
            if not value.requires_grad:
                raise UnsupportedError(f"{type(module).__name__} has no parameter with a gradient; nothing to train")
            recorder.modules, recorder.phase = ["backward"], _BACKWARD
            # As backward() gives them: it would copy every gradient here, since the recorder holds them too.
            found = torch.autograd.grad(value, trained, allow_unused=True)
            for parameter, gradient in zip(trained, found, strict=True):
                parameter.grad = gradient
            recorder.modules, recorder.phase = ["optimizer"], _OPTIMIZER
            step()
    except PerfPassError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        if recorder.phase == _FORWARD:
            shapes = [tuple(t.shape) for t in tensors_in([args, kwargs])]
            raise ShapeError(
                f"{type(module).__name__} refused inputs of shape {', '.join(map(str, shapes))} in {recorder.place()}: "
                f"{text[:300]}; check input_shape (given without the batch) and dtype"
            ) from error
        raise UnsupportedError(
            f"the {PHASES[recorder.phase]} pass of {type(module).__name__} cannot be traced: {text[:300]}; the step "
            "can be derived from the forward graph instead (perfpass.graph.step.derive)"
        ) from error


def _optimizer(
    name: str, parameters: list[torch.nn.Parameter], foreach: bool
) -> tuple[Callable[[], None], list[torch.Tensor]]:
    """The step, and its states on the meta device as an earlier step would have left them."""
    if name == "none":
        return (lambda: None), []
    optimizer: torch.optim.Optimizer
    if name in ("sgd", "momentum"):
        momentum = 0.9 if name == "momentum" else 0.0
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=momentum, foreach=foreach)
    else:
        kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
        optimizer = kind(parameters, lr=0.1, foreach=foreach)
    for p in parameters:
        p.grad = torch.empty_like(p, requires_grad=False)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    found = [t for state in optimizer.state.values() for t in tensors_in(dict(state)) if t.device.type == "meta"]
    return optimizer.step, found


def usual_loss(out: Any) -> torch.Tensor:
    """See `trace_training`."""
    found = getattr(out, "loss", None)
    if isinstance(found, torch.Tensor):
        return found
    logits = getattr(out, "logits", out)
    logits = logits[0] if isinstance(logits, list | tuple) and logits else logits
    if isinstance(logits, torch.Tensor) and logits.dim() in (2, 3) and logits.is_floating_point():
        rows = logits.reshape(-1, logits.shape[-1])
        target = torch.zeros(rows.shape[0], dtype=torch.int64, device=rows.device)
        return torch.nn.functional.cross_entropy(rows, target)
    tensors = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    if not tensors and hasattr(out, "__dict__"):
        tensors = tensors_in(vars(out))
    means = [t.float().mean() for t in tensors if t.is_floating_point()]
    if not means:
        raise UnsupportedError("the model gives no floating tensor, so there is nothing to train on")
    return torch.stack(means).sum()
