"""The rewritten versions of one ONNX file, each made once, beside each other in a folder that goes when it is done."""

from __future__ import annotations

import os
import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

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
        self.usable = path is not None and sizes is not None
        self._made: dict[tuple[str, ...], Path | PerfPassError] = {} if path is None else {(): path}
        self._errors: dict[tuple[str, ...], float] = {}
        self._folder, self._sizes, self.path = folder, sizes, path
        if self.usable:
            try:
                assert path is not None
                rewrites.check_weights(path)
                assert self._original
            except (UnsupportedError, LimitError) as error:
                self.usable = False
                self.notes = (f"only settings were tried, no rewrites: {error}",)

    @cached_property
    def _given(self) -> dict[str, np.ndarray]:
        assert self.path is not None and self._sizes is not None
        return inputs(self.path, self._sizes)

    @cached_property
    def _original(self) -> list[np.ndarray]:
        assert self.path is not None
        return outputs(self.path, self._given)

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
        return self._folder / f"{'.'.join((self.path.stem, *names))}.onnx"

    def error(self, names: tuple[str, ...]) -> float:
        """What the outputs are off by (`perfpass.deploy.advise.outputs.error_of`). Raises UnsupportedError."""
        if names not in self._errors:
            self._errors[names] = error_of(outputs(self.of(names), self._given), self._original)
        return self._errors[names]

    def nodes(self, names: tuple[str, ...]) -> tuple[int, int]:
        """Of the original and after the rewrites. Raises UnsupportedError."""
        with needs(rewrites.EXTRA, "a rewrite of an ONNX file"):
            import onnx
        first, last = (len(onnx.load(str(self.of(one)), load_external_data=False).graph.node) for one in ((), names))
        return first, last

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


def _names(path: Path) -> list[str]:
    """Every file that may be written."""
    chains: list[tuple[str, ...]] = [()]
    for rewrite in REWRITES:
        chains += [(*chain, rewrite.name) for chain in chains]
    return [f"{'.'.join((path.stem, *chain))}.onnx" for chain in chains if chain]


def write(files: Files, names: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """The file after the rewrites ``names`` into ``folder``, whole or not at all; the path as `Advice` has it.

    Raises FileError.
    """
    if not names:
        return {"notes": (*files.notes, "no rewrite brings anything; nothing was written")}
    assert files.path is not None
    target = folder / f"{'.'.join((files.path.stem, *names))}.onnx"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"{shown(folder)}: cannot be made: {reason(error)}") from error
    if os.path.lexists(target):
        raise FileError(f"{shown(target)} is there already; name another folder, or remove it")
    made = open_regular(files.of(names), "a rewritten model")
    with os.fdopen(made, "rb") as source, replacing(target, "nothing was written") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    return {"file": str(target)}
