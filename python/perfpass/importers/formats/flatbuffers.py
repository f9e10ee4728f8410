"""Files in FlatBuffers, read by the core as it reads ONNX files: sizes, limits and notes are the same."""

from __future__ import annotations

import os
from pathlib import Path

from perfpass import _core
from perfpass.graph import OpGraph
from perfpass.graph.assumed import DETECTIONS, checked
from perfpass.importers import onnx
from perfpass.importers.formats.sizes import Sizes


def read(path: Path, sizes: Sizes, layout: _core.FlatBufferFormat) -> OpGraph:
    """Raises what `perfpass.importers.onnx.read` does."""
    stated = checked(sizes.assume)
    arguments = onnx.reading(sizes.dims, sizes.input_shapes, sizes.batch) | {"detections": stated.get(DETECTIONS, 0)}
    return onnx.with_load(OpGraph(_core.read_flatbuffer_file(layout, os.fsencode(path), **arguments)), stated)


def inputs(path: Path, layout: _core.FlatBufferFormat) -> tuple[onnx.Input, ...]:
    """The inputs in the file's order. Raises as `read` does."""
    return onnx.listed(_core.flatbuffer_inputs_file(layout, os.fsencode(path)))
