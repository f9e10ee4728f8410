"""Readers: the tools that turn a model into a graph. Other packages bring theirs (entry points `perfpass.readers`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from perfpass import extensions
from perfpass.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

GROUP = "perfpass.readers"


class Reader(Protocol):
    """One tool. ``name`` is how `perfpass compare --readers` calls it."""

    name: str

    def owns(self, model: Any) -> bool:
        """Whether `load` takes this model in memory. Asked of every model that perfpass does not know itself."""
        return False

    def load(self, model: Any, dims: Mapping[str, int] | None) -> OpGraph:
        """The graph of a model in memory; ``dims`` are sizes of symbolic dimensions by name.

        Raises what `perfpass.load` does.
        """
        raise UnsupportedError(f"{self.name} reads files alone, not {type(model).__qualname__}")

    def read_file(self, path: str, sizes: Mapping[str, Any]) -> tuple[OpGraph, str]:
        """The graph of an ONNX file as the tool sees it, and the tool's version.

        ``sizes``: dims, input_shapes and batch as `perfpass.importers.onnx.read` takes them. Raises UnsupportedError
        where the tool is not there or refuses the model.
        """
        ...


class _File(Reader):
    """perfpass itself."""

    name = "file"

    def read_file(self, path: str, sizes: Mapping[str, Any]) -> tuple[OpGraph, str]:
        """The graph as the file has it. Raises what `perfpass.importers.onnx.read` does."""
        from perfpass import __version__
        from perfpass.importers import onnx

        return onnx.read(path, **sizes), __version__


_OWN = _File()


def register(reader: Reader) -> None:
    """Makes a reader known without an entry point; a later one of the same name takes its place."""
    extensions.register(GROUP, reader.name, reader)


def names() -> tuple[str, ...]:
    """Every reader by name: our own, then the others."""
    return (_OWN.name, *(name for name in extensions.names(GROUP) if name != _OWN.name))


def reader(name: str) -> Reader:
    """A reader by its name. Raises ArgumentError for an unknown one, UnsupportedError for one that is broken."""
    found: Reader | None = _OWN if name == _OWN.name else extensions.find(GROUP, name)
    if found is None:
        raise ArgumentError(f"unknown reader {name}; allowed are {', '.join(names())}")
    return found


def owner(model: Any) -> Reader | None:
    """The reader of a model in memory, if there is one."""
    return next((found for found in map(reader, names()) if found.owns(model)), None)


def home(found: Reader) -> tuple[str, Path]:
    """The module that registers a reader when it is imported, and the folder that holds its package."""
    module = type(found).__module__
    package = sys.modules[module.partition(".")[0]]
    assert package.__file__ is not None
    return module, Path(package.__file__).resolve().parent.parent
