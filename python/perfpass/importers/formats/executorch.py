"""ExecuTorch programs (`.pte`): the plan's operators, and those that XNNPACK runs for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfpass import _core
from perfpass.graph import OpGraph
from perfpass.importers.formats import flatbuffers
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.sizes import Sizes, fixed
from perfpass.importers.onnx import Input

_LAYOUT = _core.FlatBufferFormat.EXECUTORCH


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The graph at these sizes; a program has the shapes that it was exported with. Raises as `perfpass.load` does."""
    found = fixed(inputs(path), sizes)
    stored = flatbuffers.read(path, replace(sizes, batch=None), _LAYOUT)
    return scaled(stored, found.declared_batch, found.batch)


def inputs(path: Path) -> tuple[Input, ...]:
    """What the file says of its inputs. Raises as `read` does."""
    return flatbuffers.inputs(path, _LAYOUT)
