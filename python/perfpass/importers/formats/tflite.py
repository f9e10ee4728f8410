"""TensorFlow Lite and LiteRT models (`.tflite`), by the core's own reader of FlatBuffers."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from perfpass import _core
from perfpass.errors import ShapeError
from perfpass.graph import OpGraph, costs
from perfpass.importers.formats import flatbuffers
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.sizes import Sizes, fixed
from perfpass.importers.onnx import Input

_LAYOUT = _core.FlatBufferFormat.TFLITE


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The graph at these sizes. Raises as `perfpass.load` does."""
    declared = None if sizes.batch is None else fixed(inputs(path), sizes).declared_batch
    if declared is None or sizes.batch is None:
        return flatbuffers.read(path, sizes, _LAYOUT)
    stored = flatbuffers.read(path, replace(sizes, batch=None), _LAYOUT)
    wanted = _macs(stored) * sizes.batch
    with contextlib.suppress(ShapeError):
        found = flatbuffers.read(path, sizes, _LAYOUT)
        if _macs(found) * declared == wanted:
            return found
    # Converters write transpositions as reshapes where the batch is 1: then the shapes alone show which axis it is.
    found = scaled(stored, declared, sizes.batch)
    if _macs(found) * declared != wanted:
        raise ShapeError(
            f"the file fixes the batch to {declared}, also in constants that a loop begins with; convert the model "
            f"again for a batch of {sizes.batch}, or leave the batch out"
        )
    return found


def _macs(graph: OpGraph) -> int:
    return int(costs.count(graph).macs.sum())


def inputs(path: Path) -> tuple[Input, ...]:
    """What the file says of its inputs. Raises as `read` does."""
    return flatbuffers.inputs(path, _LAYOUT)
