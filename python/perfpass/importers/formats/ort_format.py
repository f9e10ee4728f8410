"""ONNX Runtime's own format (`.ort`): an ONNX model as a session saved it, often optimized."""

from __future__ import annotations

from pathlib import Path

from perfpass import _core
from perfpass.graph import OpGraph
from perfpass.importers.formats import flatbuffers
from perfpass.importers.formats.sizes import Sizes
from perfpass.importers.onnx import Input


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The graph at these sizes. Raises as `perfpass.load` does."""
    return flatbuffers.read(path, sizes, _core.FlatBufferFormat.ORT)


def inputs(path: Path) -> tuple[Input, ...]:
    """What the file says of its inputs. Raises as `read` does."""
    return flatbuffers.inputs(path, _core.FlatBufferFormat.ORT)
