"""From an ncnn file to its graph at the sizes that were asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.errors import FormatError, ShapeError
from perfpass.importers.formats.ncnn import lowering, param
from perfpass.importers.formats.ncnn.param import Layer
from perfpass.importers.formats.sizes import Sizes, fixed
from perfpass.importers.onnx import Input

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

_BATCH = "batch"


def inputs(path: Path) -> tuple[Input, ...]:
    """The blobs of Input layers, with the batch that ncnn runs one by one; most files hold no shape of them."""
    return _declared(param.read(path))


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The graph of a network; shapes begin with the batch, which is 1 where nothing says another.

    Raises FileError, FormatError, LimitError, ShapeError, ArgumentError, UnsupportedError, GraphError.
    """
    layers = param.read(path)
    declared = _declared(layers)
    if not declared:
        raise FormatError("an ncnn model without an Input layer; convert the model again")
    dims = dict(sizes.dims)
    if _BATCH not in dims and sizes.batch is None and any(i.shape is not None for i in declared):
        dims[_BATCH] = 1
    found = fixed(declared, Sizes(sizes.batch if _has_shapes(declared) else None, dims, sizes.input_shapes))
    shapes = {name: shape[1:] for name, shape in found.shapes.items()}
    batches = {shape[0] for shape in found.shapes.values() if shape}
    if any(not 2 <= len(shape) <= 5 for shape in found.shapes.values()) or len(batches) != 1:
        given = ", ".join(f"{name} {shape}" for name, shape in found.shapes.items())
        raise ShapeError(
            f"inputs of an ncnn model are a batch, the same for all, and one to four axes; given are {given}"
        )
    batch = sizes.batch if sizes.batch is not None else batches.pop()
    return lowering.lowered(layers, shapes, batch)


def _has_shapes(declared: tuple[Input, ...]) -> bool:
    return all(item.shape is not None for item in declared)


def _declared(layers: list[Layer]) -> tuple[Input, ...]:
    found = []
    for layer in layers:
        if layer.type != "Input":
            continue
        axes = tuple(size for number in (2, 11, 1, 0) if (size := layer.whole(number)) > 0)
        found += [Input(top, "float32", (_BATCH, *axes) if axes else None) for top in layer.tops]
    return tuple(found)
