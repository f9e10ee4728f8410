"""TorchScript archives (``torch.jit.save``): the program's text, followed without running any of it.

Sizes of parameters lie in a pickle, which is read as data (`script_pickle`); the text is parsed and followed
(`script_program`), and its operators run on tensors without memory (`torch_replay`).
"""

from __future__ import annotations

import ast
import struct
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass.errors import FormatError, PerfPassError, ShapeError, UnsupportedError
from perfpass.importers.formats import archive
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.script_pickle import Record, ScriptPickle, StoredTensor, check_size
from perfpass.importers.formats.sizes import fixed
from perfpass.importers.onnx import Input

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.importers.formats.script_program import Definitions
    from perfpass.importers.formats.sizes import Sizes

_MOST_PICKLE_BYTES = 1 << 28
_MOST_TEXT_BYTES = 1 << 22
_MOST_READ_ELEMENTS = 16  # of a constant of whole numbers, whose values may decide shapes
_INTEGERS = {"int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint8": "B", "bool": "?"}
_MOST_DEEP = 64


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The operators of forward. Raises as `perfpass.load` does; UnsupportedError without PyTorch."""
    with archive.Archive(path) as opened:
        found = _Archive(path, opened)
        declared = found.inputs()
        wanted = fixed(declared, sizes)
        try:
            graph = found.graph(wanted.shapes, {item.name: item.dtype for item in declared}, sizes.assume)
        except ShapeError as refused:
            # A scripted program does not say of which type its inputs are: an embedding takes whole numbers.
            if found.example is not None:
                raise
            try:
                graph = found.graph(wanted.shapes, dict.fromkeys(wanted.shapes, "int64"), sizes.assume)
            except PerfPassError:
                raise refused from None
        return scaled(graph, wanted.declared_batch, wanted.batch)


def inputs(path: Path) -> tuple[Input, ...]:
    """The tensors that forward takes, with the shapes that it was traced with, if it was."""
    with archive.Archive(path) as opened:
        return _Archive(path, opened).inputs()


class _Archive:
    """An archive, its entries by their path inside the one folder that it has."""

    def __init__(self, path: Path, opened: archive.Archive) -> None:
        self.path, self.opened = path, opened
        names = opened.entries()
        data = next((n for n in names if n == "data.pkl" or n.endswith("/data.pkl")), None)
        if data is None:
            raise FormatError("a TorchScript archive without data.pkl; save the model again (torch.jit.save)")
        self.folder = data.removesuffix("data.pkl")
        self.names = {n.removeprefix(self.folder) for n in names if n.startswith(self.folder)}
        if not any(n.startswith("code/") and n.endswith(".py") for n in self.names):
            raise UnsupportedError(
                "an archive of PyTorch's mobile interpreter holds byte code and no program; save the model with "
                "torch.jit.save or torch.export.save"
            )
        self.module = self._pickle("data.pkl")
        if not isinstance(self.module, Record):
            raise FormatError("the archive's data.pkl holds no module; save the model again (torch.jit.save)")
        self._unused: Any = self.module
        self.example = self._example()

    def _entry(self, name: str, what: str, most: int) -> bytes:
        return self.opened.member(self.folder + name, what, most)

    def _pickle(self, name: str) -> Any:
        return ScriptPickle(self._entry(name, name, _MOST_PICKLE_BYTES), name).value

    def _own_module(self) -> Any:
        """A module for one run, since a program may write its buffers; the one that was read is the first run's."""
        unused, self._unused = self._unused, None
        return self._pickle("data.pkl") if unused is None else unused

    def source(self, name: str) -> str | None:
        """The text of a file of the program."""
        if f"code/{name}" not in self.names:
            return None
        try:
            return self._entry(f"code/{name}", "a file of the program", _MOST_TEXT_BYTES).decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"{name} of the program is no text") from error

    def _example(self) -> list[StoredTensor] | None:
        """The tensors that the model was traced with."""
        if "traced_inputs.pkl" not in self.names:
            return None
        found = self._pickle("traced_inputs.pkl")
        given = found.get("forward") if isinstance(found, dict) else None
        flat: list[Any] = []
        _flatten(given, flat, 0)
        tensors = [t for t in flat if isinstance(t, StoredTensor)]
        return tensors or None

    @cached_property
    def definitions(self) -> Definitions:
        """What the program defines, each file of it parsed once."""
        from perfpass.importers.formats.script_program import Definitions

        return Definitions(self.source)

    def forward(self) -> ast.FunctionDef:
        """The module's forward."""
        found = self.definitions.method(self.module.kind, "forward")
        if found is None:
            raise UnsupportedError("the archive's module has no forward; save the one that is called")
        return found

    def inputs(self) -> tuple[Input, ...]:
        """As `inputs` of this module."""
        forward = _requires_torch(self.forward)
        names = [p.arg for p in forward.args.args[1:] if _is_tensor(p.annotation)]
        if self.example is not None and len(self.example) == len(names):
            return tuple(Input(n, t.dtype, t.shape) for n, t in zip(names, self.example, strict=True))
        return tuple(Input(name, "float32", None) for name in names)

    def graph(
        self, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str], assume: Mapping[str, int]
    ) -> OpGraph:
        """The operators of forward on inputs of these shapes and types."""
        try:
            return self._followed(shapes, dtypes, assume)
        except PerfPassError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"[:120]
            raise FormatError(
                f"the program of the archive is damaged ({what}); save it again (torch.jit.save)"
            ) from error

    def _followed(
        self, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str], assume: Mapping[str, int]
    ) -> OpGraph:
        import torch

        from perfpass.importers.formats.script_program import ScriptProgram
        from perfpass.importers.formats.torch_replay import Replay

        replay = Replay(assume)
        tensors = _Tensors(self, replay)
        module = tensors.declared(self._own_module(), "", 0)
        constants = (
            tensors.declared(self._pickle("constants.pkl"), "CONSTANTS", 0) if "constants.pkl" in self.names else ()
        )
        program = ScriptProgram(self.definitions, tuple(constants), replay)
        forward = self.forward()
        arguments: dict[str, Any] = {}
        given = []
        parameters = forward.args.args[1:]
        without = len(parameters) - len(forward.args.defaults)
        for place, parameter in enumerate(parameters):
            if parameter.arg in shapes:
                tensor = replay.tensor(list(shapes[parameter.arg]), getattr(torch, dtypes[parameter.arg]))
                arguments[parameter.arg] = tensor
                given.append(replay.input(tensor, parameter.arg))
            elif place < without:
                raise UnsupportedError(
                    f"forward takes {parameter.arg!r}, which is no tensor; wrap the model in a module that takes "
                    "tensors alone, and save that"
                )
        with replay.recording():
            outputs = program.call(forward, [module], arguments)
        check_size(outputs, "what the program returns")
        return replay.graph(given, _plain(outputs))


class _Tensors:
    """Tensors of the pickles on the meta device, each once."""

    def __init__(self, found: _Archive, replay: Any) -> None:
        self._archive, self._replay = found, replay
        self._made: dict[StoredTensor, Any] = {}

    def declared(self, value: Any, name: str, depth: int) -> Any:
        """``value`` with its tensors on the meta device; records are told their paths under ""."""
        if depth > _MOST_DEEP:
            raise FormatError(f"the archive's module nests over {_MOST_DEEP} deep")
        if isinstance(value, StoredTensor):
            return self._tensor(value, name)
        if isinstance(value, Record):
            prefix = f"{name}." if name else ""
            fields = {k: self.declared(v, f"{prefix}{k}", depth + 1) for k, v in value.fields.items()}
            value.fields = fields | {"": name}
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(self.declared(v, f"{name}.{i}", depth + 1) for i, v in enumerate(value))
        if isinstance(value, dict):
            return {k: self.declared(v, f"{name}.{k}", depth + 1) for k, v in value.items()}
        return value

    def _tensor(self, stored: StoredTensor, name: str) -> Any:
        import torch

        number = self._number(stored, name)
        if number is not None:
            return number
        if stored not in self._made:
            tensor = self._replay.tensor(stored.shape, getattr(torch, stored.dtype))
            self._replay.parameter(tensor, name)
            self._made[stored] = tensor
        return self._made[stored]

    def _number(self, stored: StoredTensor, name: str) -> int | bool | None:
        """The value of a constant scalar of whole numbers: sizes are counted with them."""
        form = _INTEGERS.get(stored.dtype)
        if form is None or stored.shape or not name.startswith("CONSTANTS"):
            return None
        size = struct.calcsize(form)
        content = self._archive.opened.member(f"{self._archive.folder}constants/{stored.key}", "a constant", 1 << 20)
        start = stored.offset * size
        if not 0 <= start <= len(content) - size:
            raise FormatError("a constant of the archive lies outside its entry; save the model again")
        found: int | bool = struct.unpack_from(f"<{form}", content, start)[0]
        return found


def _flatten(value: Any, into: list[Any], depth: int) -> None:
    if isinstance(value, (list, tuple)) and depth < _MOST_DEEP:
        for item in value:
            _flatten(item, into, depth + 1)
    elif value is not None:
        into.append(value)


def _plain(value: Any) -> Any:
    """Records among outputs as lists of their fields."""
    if isinstance(value, Record):
        return [_plain(v) for v in value.fields.values()]
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _is_tensor(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Tensor"


def _requires_torch(function: Any) -> Any:
    try:
        return function()
    except ImportError as error:
        raise UnsupportedError(
            "TorchScript is read with PyTorch's operators, and torch is not installed; install perfpass[torch], or "
            "export the model to ONNX (torch.onnx.export)"
        ) from error
