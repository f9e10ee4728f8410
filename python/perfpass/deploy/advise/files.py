"""The rewritten versions of one ONNX file, each made once, beside each other in a folder that goes when it is done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.bounded_file import open_regular, reason
from perfpass.deploy.advise import rewrites
from perfpass.deploy.advise.outputs import Sizes, error_of, inputs, outputs
from perfpass.deploy.advise.rewrites import REWRITES
from perfpass.errors import ArgumentError, FileError, LimitError, PerfPassError, UnsupportedError, needs, shown
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    from perfpass.deploy.advise.state import State

_BY_NAME = {rewrite.name: rewrite for rewrite in REWRITES}


class Files:
    """Versions of a file by the names of their rewrites, in order. ``usable``: whether there are any.

    ``sizes``: of its inputs, None where it is not to be rewritten. ``notes``: why it cannot be.
    """

    def __init__(self, path: Path | None, folder: Path, sizes: Sizes | None) -> None:
        """Runs nothing but the file itself, to see that it runs."""
        self.notes: tuple[str, ...] = ()
        self.usable = False
        self._made: dict[tuple[str, ...], Path | PerfPassError] = {} if path is None else {(): path}
        self._errors: dict[tuple[str, ...], float] = {}
        self._counts: dict[tuple[str, ...], int] = {}
        self._folder, self.path = folder, path
        if path is not None and sizes is not None:
            try:
                rewrites.check_weights(path)
                self._given = inputs(path, sizes)
                self._original = outputs(path, self._given)
                self.usable = True
            except (UnsupportedError, LimitError) as error:
                self.notes = (f"only settings were tried, no rewrites: {error}",)

    def of(self, names: tuple[str, ...]) -> Path:
        """The file after some rewrites. Raises UnsupportedError where one of them cannot be made."""
        if names not in self._made:
            self._made[names] = self._make(names)
        found = self._made[names]
        if isinstance(found, PerfPassError):
            raise found
        return found

    def _make(self, names: tuple[str, ...]) -> Path | PerfPassError:
        try:
            return rewrites.rewritten(_BY_NAME[names[-1]], self.of(names[:-1]), self._place(*names))
        except UnsupportedError as error:
            return error

    def _place(self, *names: str) -> Path:
        assert self.path is not None
        return self._folder / _named(self.path, names)

    def error(self, names: tuple[str, ...]) -> float:
        """What the outputs are off by (`perfpass.deploy.advise.outputs.error_of`). Raises UnsupportedError."""
        if names not in self._errors:
            self._errors[names] = error_of(outputs(self.of(names), self._given), self._original)
        return self._errors[names]

    def nodes(self, names: tuple[str, ...]) -> tuple[int, int]:
        """Of the original and after the rewrites. Raises UnsupportedError."""
        return self._count(()), self._count(names)

    def _count(self, names: tuple[str, ...]) -> int:
        if names not in self._counts:
            with needs(rewrites.EXTRA, "a rewrite of an ONNX file"):
                import onnx
            self._counts[names] = len(onnx.load(str(self.of(names)), load_external_data=False).graph.node)
        return self._counts[names]

    def loaded(self, state: State) -> Path:
        """The file as the state's runtime runs it, where that is known here, else as it is. Raises UnsupportedError."""
        # Sessions here cast around what a CPU does not have; of a GPU's 16 bits the wide file tells.
        names = tuple(n for n in state.rewrites if n != "fp16") if state.device.is_gpu else state.rewrites
        if state.runtime not in ("onnxruntime", "tensorrt"):
            return self.of(names)
        key = ("loaded", state.device.kind, state.runtime, *names)
        if key not in self._made:
            target = self._place(*key)
            rewrites.as_loaded(self.of(names), target, state.device.kind, state.runtime)
            self._made[key] = target
        found = self._made[key]
        assert isinstance(found, Path)
        return found


def check_folder(path: Path, folder: Path) -> None:
    """Raises ArgumentError where ``folder`` is no folder, or has a file that a rewrite of ``path`` would replace."""
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"{shown(folder)} is no folder; name one for the rewritten file")
    there = [name for name in _names(path) if os.path.lexists(folder / name)]
    if there:
        raise ArgumentError(f"{shown(folder / there[0])} is there already; name another folder, or remove it")


def _named(path: Path, names: Sequence[str]) -> str:
    return f"{'.'.join((path.stem, *names))}.onnx"


def _names(path: Path) -> list[str]:
    """Every file that may be written."""
    each = [rewrite.name for rewrite in REWRITES]
    return [_named(path, chain) for count in range(1, len(each) + 1) for chain in permutations(each, count)]


def write(files: Files, names: tuple[str, ...], folder: Path) -> str:
    """The file after the rewrites ``names`` into ``folder``, whole or not at all; its path.

    Raises FileError.
    """
    assert files.path is not None
    target = folder / _named(files.path, names)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"{shown(folder)}: cannot be made: {reason(error)}") from error
    if os.path.lexists(target):
        raise FileError(f"{shown(target)} is there already; name another folder, or remove it")
    made = open_regular(files.of(names), "a rewritten model")
    with os.fdopen(made, "rb") as source, replacing(target, "nothing was written") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    return str(target)
