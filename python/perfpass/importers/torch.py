"""torch.nn.Module -> OpGraph: the ATen operators that a forward pass runs, recorded on the meta device.

Nothing is computed and no weight is read: the module's parameters are replaced by meta tensors in a copy, its forward
runs once, and what it runs is recorded (torch_recorder), in perfpass's vocabulary (torch_operators).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from perfpass.declared import shown_value
from perfpass.errors import ArgumentError, LimitError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import ROLES, OpGraph
from perfpass.graph.assumed import checked
from perfpass.importers.torch_autocast import take_regions
from perfpass.importers.torch_fused import FusedCalls
from perfpass.importers.torch_operators import tensors_in
from perfpass.importers.torch_outputs import output_tensors
from perfpass.importers.torch_recorder import Recorder, build

# A tensor attribute that is no parameter or buffer keeps its values up to this size, since forward passes read small
# tables (anchor sizes, relative positions) with tolist(); larger ones become meta tensors.
_KEPT_CONSTANT_ELEMENTS = 65_536
_MOST_ELEMENTS = 2**48  # of a tensor, as in the core
# Layers that transformers writes out in PyTorch where the package with their kernel is missing, as it is on the meta
# device: by the ends of their classes' names.
_KERNELS = {
    **dict.fromkeys(("MambaMixer", "Mamba2Mixer", "MambaLayer", "ZambaMixer"), "mamba_ssm"),
    **dict.fromkeys(("GatedDeltaNet", "KimiDeltaAttention"), "fla"),
}


def trace(
    module: torch.nn.Module,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | Mapping[str, Any],
    *,
    batch: int = 1,
    dtype: str = "float32",
    assume: Mapping[str, int] | None = None,
) -> OpGraph:
    """The operator graph of ``module``'s forward pass (inference) on inputs of ``input_shape`` at ``batch``.

    ``input_shape`` is without the batch: ``(3, 224, 224)``; several positional inputs: ``((3, 224, 224), (77,))``;
    inputs by keyword: ``{"input_ids": (128,)}``. Where a shape stands, ``(shape, "int64")`` gives that input's type;
    else it is ``dtype``, the type of the floating parameters too. The module may live on any device, ``meta`` included;
    it is copied without its weights, and is left as it was (training flag, buffers, hooks, device). Parameters that do
    not require a gradient are the graph's ``frozen`` ones. ``assume``: what values decide (`perfpass.graph.assumed`),
    such as ``{"experts": 4, "detections": 20}``.

    Raises ArgumentError for bad arguments, UnsupportedError where the forward pass depends on values (the operator and
    the module that runs it are named), ShapeError where the forward pass refuses the input.
    """
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(f"trace takes a torch.nn.Module, got {type(module).__name__}")
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ArgumentError(f"batch must be a whole number of at least 1, got {batch!r}")
    held = frozen_names(module)
    owned = weightless_copy(module, torch_dtype(dtype))
    graph = trace_owned(owned, input_shape, batch=batch, dtype=dtype, assume=assume)
    return with_frozen(graph, held)


def trace_owned(
    module: torch.nn.Module,
    input_shape: Any,
    *,
    batch: int = 1,
    dtype: str = "float32",
    given: Mapping[str, Any] | None = None,
    given_tensors: Mapping[str, torch.Tensor] | None = None,
    assume: Mapping[str, int] | None = None,
) -> OpGraph:
    """As `trace`, for a module on the meta device that the caller gives away: not copied, left in eval mode.

    ``given`` are further keyword arguments of the forward pass; the meta tensors inside them that count as inputs of
    the graph (a cache of keys and values) are ``given_tensors``, by name.
    """
    args, kwargs = make_inputs(input_shape, batch, dtype)
    module.eval()
    take_regions(module)
    recorder = Recorder(checked(assume))
    recorder.notes |= dict.fromkeys(_written_out(module), True)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        recorder.declare(tensor, "weight" if tensor.is_floating_point() and tensor.dim() > 0 else "literal", name)
    inputs = [recorder.declare(t, "input", f"input_{i}" if len(args) > 1 else "input") for i, t in enumerate(args)]
    inputs += [recorder.declare(t, "input", name) for name, t in kwargs.items()]
    inputs += [recorder.declare(t, "input", name) for name, t in (given_tensors or {}).items()]
    out = run(module, recorder, *args, **kwargs, **(given or {}))
    if not recorder.tape.nodes:
        raise ArgumentError(f"{type(module).__name__} ran no operator on its input; there is nothing to predict")
    # A cache that was given is alive as an input already, and its layers are replaced one by one.
    return build(recorder, inputs, output_tensors(out, recorder, module, cache=not given_tensors))


def _written_out(module: torch.nn.Module) -> list[str]:
    """What is to be said of layers of transformers whose kernels are not what is recorded."""
    names = {type(part).__name__ for part in module.modules() if type(part).__module__.startswith("transformers.")}
    packages = sorted({package for end, package in _KERNELS.items() if any(name.endswith(end) for name in names)})
    return [
        f"recurrences as transformers writes them out in PyTorch; with {package} installed kernels run them, in less "
        "time, and a training step keeps far less of them: time and memory are upper figures"
        for package in packages
    ]


def frozen_names(module: torch.nn.Module) -> frozenset[str]:
    """Floating parameters that do not require a gradient, by name; where there are some, buffers too."""
    held = [n for n, p in module.named_parameters() if p.is_floating_point() and not p.requires_grad]
    return frozenset([*held, *(n for n, _ in module.named_buffers())]) if held else frozenset()


def with_frozen(graph: OpGraph, names: Collection[str]) -> OpGraph:
    """``graph`` whose weights of these names are frozen."""
    if not names:
        return graph
    found = (t for t in range(graph.tensor_count) if graph.string(int(graph.tensor_name[t])) in names)
    return replace(graph, frozen=frozenset(t for t in found if ROLES[int(graph.tensor_role[t])] == "weight"))


def run(module: torch.nn.Module, recorder: Recorder, *args: Any, **kwargs: Any) -> Any:
    """The module's output (meta tensors), everything that it runs recorded. Raises as `trace`."""
    try:
        with torch.no_grad(), recorder.naming(module), FusedCalls(recorder), recorder:
            return module(*args, **kwargs)
    except PerfPassError:
        raise
    except Exception as error:
        shapes = [tuple(t.shape) for t in tensors_in([args, kwargs])]
        text = " ".join(str(error).split()) or type(error).__name__
        raise ShapeError(
            f"{type(module).__name__} refused inputs of shape {', '.join(map(str, shapes))} in {recorder.place()}: "
            f"{text[:300]}; check input_shape (given without the batch) and dtype"
        ) from error


def torch_dtype(name: str) -> torch.dtype:
    value = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(value, torch.dtype):
        raise ArgumentError(f"dtype {name!r} is no torch type; give a name such as 'float32', 'float16' or 'int64'")
    return value


def meta_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of shapes alone. Raises LimitError above 2^48 elements, the core's limit."""
    if math.prod(shape) > _MOST_ELEMENTS:
        raise LimitError(f"an input of {' x '.join(map(shown_value, shape))} elements; at most 2^48 are allowed")
    return torch.empty(tuple(shape), dtype=dtype, device="meta")


def make_inputs(input_shape: Any, batch: int, dtype: str) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Meta tensors for every way of writing input_shape that `trace` documents."""

    def is_shape(value: Any) -> bool:
        return isinstance(value, list | tuple) and all(isinstance(d, int) and not isinstance(d, bool) for d in value)

    def make(value: Any) -> torch.Tensor:
        kind = dtype
        if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[1], str):
            value, kind = value
        if not is_shape(value) or any(d < 0 for d in value):
            raise ArgumentError(
                f"input shape {value!r} is no sequence of whole numbers; write (3, 224, 224), or "
                "((shape, dtype), ...) or {name: (shape, dtype)} for several inputs, without the batch"
            )
        return meta_tensor((batch, *value), torch_dtype(kind))

    if isinstance(input_shape, Mapping):
        if not input_shape:
            raise ArgumentError("input_shape is an empty mapping; name at least one input")
        return [], {str(name): make(value) for name, value in input_shape.items()}
    if is_shape(input_shape) or (
        isinstance(input_shape, list | tuple) and len(input_shape) == 2 and isinstance(input_shape[1], str)
    ):
        return [make(input_shape)], {}
    if isinstance(input_shape, list | tuple):
        return [make(value) for value in input_shape], {}
    raise ArgumentError(f"input_shape must be a shape, a sequence of shapes or a mapping, got {input_shape!r}")


def weightless_copy(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """A deep copy whose parameters, buffers and large tensors are on the meta device; no weight is read or copied.

    A whole number among the buffers (a stride, a padding) keeps its value: shapes follow it.
    """
    memo: dict[int, Any] = {}

    def replace(tensor: torch.Tensor, parameter: bool) -> None:
        if torch.nn.parameter.is_lazy(tensor):
            raise UnsupportedError(
                "the module has lazy parameters whose shapes are not known yet; run it once on real data first"
            )
        kind = dtype if tensor.is_floating_point() else tensor.dtype
        twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device="meta")
        memo[id(tensor)] = torch.nn.Parameter(twin, requires_grad=False) if parameter else twin

    for part in module.modules():
        for name, tensor in [*part._parameters.items(), *part._buffers.items()]:
            if tensor is None or id(tensor) in memo:
                continue
            if name in part._buffers and _is_size(part, tensor):
                memo[id(tensor)] = tensor.detach().to("cpu", copy=True)
            else:
                replace(tensor, parameter=name in part._parameters)
        for value in vars(part).values():
            if not isinstance(value, torch.Tensor) or id(value) in memo:
                continue
            if value.numel() > _KEPT_CONSTANT_ELEMENTS or value.grad_fn is not None:
                replace(value, parameter=False)
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise UnsupportedError(
            f"{type(module).__name__} cannot be copied without its weights ({type(error).__name__}: {error}); build it "
            "under `with torch.device('meta')` and remove attributes that cannot be copied"
        ) from error


def _is_size(part: torch.nn.Module, buffer: torch.Tensor) -> bool:
    whole = not (buffer.is_floating_point() or buffer.is_complex() or buffer.dtype == torch.bool)
    counts_batches = isinstance(part, torch.nn.modules.batchnorm._NormBase)  # which training writes
    return whole and buffer.dim() == 0 and buffer.device.type != "meta" and not counts_batches
