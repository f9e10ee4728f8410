"""Programs of ATen operators that a file holds, run once on the meta device under our recorder.

Nothing of the file is Python code: it names operators of PyTorch, their arguments and the order. Only operators of the
namespaces below are called, and only on tensors without memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError, UnsupportedError, shown
from perfpass.graph import OpGraph
from perfpass.graph.assumed import checked
from perfpass.importers import torchvision_schemas
from perfpass.importers.torch_fused import FusedCalls, native_attention
from perfpass.importers.torch_recorder import Recorder, build
from perfpass.importers.torch_repeated import RepeatedCalls

_NAMESPACES = frozenset({"aten", "prims", "torchvision", "quantized_decomposed"})
# It reads a file.
_NEVER = frozenset({"from_file"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FUSED = frozenset(
    {"scaled_dot_product_attention", "_native_multi_head_attention", "lstm", "gru", "rnn_tanh", "rnn_relu"}
)
_CHECKS = frozenset(
    {
        "_assert_async",
        "_assert_scalar",
        "_assert_tensor_metadata",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
        "warn",
    }
)
_SPLITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("unbind", "unbind_copy"), ("self", "dim")),
    **dict.fromkeys(("split", "split_copy"), ("self", "split_size", "dim")),
    **dict.fromkeys(("hsplit", "vsplit", "dsplit"), ("self", "sections")),
    "unsafe_split": ("self", "split_size", "dim"),
    "chunk": ("self", "chunks", "dim"),
    "unsafe_chunk": ("self", "chunks", "dim"),
    "tensor_split": ("self", "sections", "dim"),
}
_MOST_CALLS = 200_000
_MOST_PARTS = 1 << 16  # of a tensor that one operator splits
_MOST_ELEMENTS = 1 << 48
_META = torch.device("meta")


class Replay:
    """A recording of a program that a file holds; tensors are declared first, then operators called in order."""

    def __init__(self, assume: Mapping[str, int]) -> None:
        torchvision_schemas.define()
        self.recorder = Recorder(checked(assume))
        self._repeated = RepeatedCalls(self.recorder)
        self._calls = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within it, calls are recorded."""
        with torch.no_grad(), FusedCalls(self.recorder), self.recorder:
            yield

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor without memory. Raises LimitError over 2^48 elements, FormatError for a negative size."""
        elements = 1
        for size in shape:
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise FormatError(f"a tensor of the file has a dimension of size {size!r}")
            elements *= size
        if elements > _MOST_ELEMENTS or len(shape) > 16:
            raise LimitError(f"a tensor of the file has {len(shape)} dimensions and {elements} elements; over 2^48")
        self.recorder.paused = True
        try:
            return torch.empty(tuple(shape), dtype=dtype, device=_META)
        finally:
            self.recorder.paused = False

    def parameter(self, tensor: torch.Tensor, name: str) -> None:
        """Declares a tensor that the file stores."""
        role = "weight" if tensor.is_floating_point() and tensor.dim() > 0 else "literal"
        self.recorder.declare(tensor, role, name)

    def input(self, tensor: torch.Tensor, name: str) -> int:
        """Declares a tensor that the caller feeds; its index for `graph`."""
        return self.recorder.declare(tensor, "input", name)

    def call(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any], module: str) -> Any:
        """Runs ``aten.add.Tensor`` or, by the types of its arguments, ``aten.add``; ``module`` is where it stands.

        Raises UnsupportedError where it depends on values, ShapeError where it refuses its arguments.
        """
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise LimitError(f"a program of over {_MOST_CALLS} operators; predict a part of the model")
        function, name = operator(target)
        if name in _CHECKS:
            return None
        if name in _SPLITS:
            _check_parts(dict(zip(_SPLITS[name], args, strict=False)) | dict(kwargs))
        self.recorder.modules = [module] if module else []
        args = tuple(args)
        return self._repeated.call(function, args, kwargs, lambda: self._run(target, function, name, args, kwargs))

    def _run(self, target: str, function: Any, name: str, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        """The call by PyTorch, recorded."""
        args, given = self._on_meta(function, args, dict(kwargs))
        if name in _FUSED:
            function = _fused(function, name)
        try:
            return function(*args, **given)
        except PerfPassError:
            raise
        except Exception as error:
            shapes = ", ".join(str(tuple(t.shape)) for t in pytree.tree_leaves((args, given)) if _is_tensor(t))
            module = self.recorder.modules[-1] if self.recorder.modules else ""
            raise ShapeError(
                f"{target} in module {module!r} refuses tensors of shape {shapes}: {' '.join(str(error).split())[:300]}"
            ) from error

    def unknown(self, target: str, args: Any, outputs: Sequence[torch.Tensor], module: str) -> None:
        """Records an operator that PyTorch does not have, with the shapes that the file gives its results."""
        self.recorder.modules = [module] if module else []
        given = [t for t in pytree.tree_leaves(args) if _is_tensor(t)]
        self.recorder.record("unknown", target, {}, given, list(outputs))

    def graph(self, inputs: list[int], outputs: Any) -> OpGraph:
        """What was recorded."""
        found = [t for t in pytree.tree_leaves(outputs) if _is_tensor(t)]
        if not self.recorder.tape.nodes:
            raise FormatError("the file's program runs no operator; there is nothing to predict")
        return build(self.recorder, inputs, found)

    @staticmethod
    def _on_meta(function: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Devices become meta, also where a tensor is made without one: no memory is ever taken."""
        if _holds_device((args, kwargs)):
            args, kwargs = pytree.tree_map(lambda v: _META if isinstance(v, torch.device) else v, (args, kwargs))
        for place, copies in _device_places(function):
            if place >= len(args) and kwargs.get("device") is None:
                makes = not any(_is_tensor(t) for t in pytree.tree_leaves((args, kwargs)))
                if makes or copies:
                    kwargs["device"] = _META
        return args, kwargs


def _holds_device(value: Any) -> bool:
    """Whether a device stands among arguments: most have none, and `pytree` looks at every leaf in twenty calls."""
    if isinstance(value, (tuple, list)):
        return any(map(_holds_device, value))
    if isinstance(value, dict):
        return any(map(_holds_device, value.values()))
    return isinstance(value, torch.device)


@lru_cache(maxsize=4096)
def _device_places(function: Any) -> tuple[tuple[int, bool], ...]:
    """Where an operator takes a device in each of its forms, and whether the form copies a tensor to it."""
    if isinstance(function, torch._ops.OpOverload):
        schemas = [function._schema]
    else:
        schemas = [getattr(function, overload)._schema for overload in function.overloads()]
    return tuple(
        (place, schema.name.endswith("_to_copy"))
        for schema in schemas
        for place, argument in enumerate(schema.arguments)
        if argument.name == "device"
    )


def _check_parts(given: Mapping[str, Any]) -> None:
    """Raises LimitError for more parts of a tensor than are made; what else is wrong the operator itself refuses."""
    tensor: Any = given.get("self")
    dim, step = given.get("dim", 0), given.get("split_size", 1)
    parts = given.get("chunks", given.get("sections"))
    if parts is None and _is_tensor(tensor) and isinstance(dim, int) and -tensor.dim() <= dim < tensor.dim():
        parts = tensor.shape[dim] // step if isinstance(step, int) and step > 0 else 0
    if isinstance(parts, int) and parts > _MOST_PARTS:
        raise LimitError(f"the program splits a tensor into {parts} parts; at most {_MOST_PARTS} are made")


@lru_cache(maxsize=4096)
def operator(target: str) -> tuple[Any, str]:
    """An operator of PyTorch by its name. Raises UnsupportedError for one that is not there or is never called."""
    parts = target.split(".")
    if not 2 <= len(parts) <= 3 or not all(_NAME.fullmatch(part) for part in parts):
        raise UnsupportedError(f"the program calls {shown(target[:80])}, which is no operator of PyTorch")
    namespace, name = parts[:2]
    if namespace not in _NAMESPACES or name in _NEVER or (name.startswith("__") and not name.endswith("__")):
        raise UnsupportedError(f"the program calls {shown(target[:80])}, which is not called here")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise UnsupportedError(f"the installed PyTorch {torch.__version__} has no operator {shown(target[:80])}")
    if len(parts) == 2:
        return packet, name
    if parts[2] not in packet.overloads():
        raise UnsupportedError(f"the installed PyTorch {torch.__version__} has no operator {shown(target[:80])}")
    return getattr(packet, parts[2]), name


def is_known(target: str) -> bool:
    """Whether `Replay.call` takes it."""
    try:
        operator(target)
    except UnsupportedError:
        return False
    return True


def _fused(function: Any, name: str) -> Callable[..., Any]:
    """The public function that `FusedCalls` keeps whole; the operator itself where it has another form."""
    if name == "scaled_dot_product_attention":
        return torch.nn.functional.scaled_dot_product_attention
    if name == "_native_multi_head_attention":
        return _native
    overload = function._overloadname if isinstance(function, torch._ops.OpOverload) else "input"
    return getattr(torch, name) if overload == "input" else function


def _native(query: Any, key: Any, value: Any, width: int, heads: int, *given: Any) -> Any:
    """torch.nn.MultiheadAttention in inference, as a script chooses it: of one tensor, without a mask."""
    if not (query is key is value) or (len(given) > 4 and given[4] is not None):
        return torch._native_multi_head_attention(query, key, value, width, heads, *given)
    return native_attention(query, heads, given[:4]), None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
