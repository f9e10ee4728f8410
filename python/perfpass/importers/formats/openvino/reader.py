"""OpenVINO's intermediate representation (`.xml`, versions 10 and 11) to operator graphs, without its weights.

The document is read by a parser of XML that follows no entity and no reference. Where it fixes every size, the file of
weights beside it is never opened; where sizes are open, small whole numbers that decide shapes are read of it.
"""

from __future__ import annotations

from pathlib import Path

from perfpass.errors import FormatError, about
from perfpass.graph import OpGraph
from perfpass.importers.draft import Draft
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.openvino import document
from perfpass.importers.formats.openvino.constants import Constants
from perfpass.importers.formats.openvino.document import Body, Layer
from perfpass.importers.formats.openvino.lowering import Operand
from perfpass.importers.formats.openvino.operators import DTYPES
from perfpass.importers.formats.openvino.shapes import Known
from perfpass.importers.formats.openvino.walk import Scope, Walk
from perfpass.importers.formats.sizes import Sizes, fixed
from perfpass.importers.onnx import Input


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The model at ``path``.

    Raises FileError, FormatError, LimitError, GraphError, ShapeError for a size that stays open, UnsupportedError for
    another version of the format.
    """
    with about(path):
        body = document.read(path)
        fed = _fed(body)
        found = fixed([_input(layer) for layer in fed], sizes)
        draft = Draft()
        walk = Walk(draft, Constants(path) if any(_open(layer) for layer in fed) else None)
        scope, bound = Scope(body), {}
        for layer in fed:
            one = _input(layer)
            shape = found.shapes[one.name]
            draft.inputs.append(draft.tensor(one.dtype, shape, "input", one.name))
            bound[layer.number] = Operand(draft.inputs[-1], Known(one.dtype, shape))
        try:
            walk.run(scope, bound)
        finally:
            if walk.constants is not None:
                walk.constants.close()
        draft.outputs = list(dict.fromkeys([*map(walk.lowering.plain, scope.results.values()), *walk.kept]))
        draft.fold()
        return scaled(draft.graph(), found.declared_batch, found.batch)


def inputs(path: Path) -> tuple[Input, ...]:
    """The inputs as the file declares them, caches that a stateful model keeps included. Raises as `read`."""
    with about(path):
        return tuple(_input(layer) for layer in _fed(document.read(path)))


def _fed(body: Body) -> list[Layer]:
    """Layers whose output comes from outside: inputs, and variables that outlive a run (a decoder's cache)."""
    found = [layer for layer in body.layers if layer.kind in ("Parameter", "ReadValue")]
    for layer in found:
        if len(layer.outputs) != 1:
            raise FormatError(f"{layer.label} has {len(layer.outputs)} outputs; it has one")
    return sorted(found, key=lambda layer: layer.kind == "ReadValue")


def _input(layer: Layer) -> Input:
    port = layer.outputs[0]
    name = layer.data.get("variable_id") or (port.names[0] if port.names else layer.name)
    shape = port.shape
    axes = None if shape is None else tuple(n if n >= 0 else f"{name}:{axis}" for axis, n in enumerate(shape))
    return Input(name, DTYPES.get(port.dtype.lower(), "undefined"), axes)


def _open(layer: Layer) -> bool:
    shape = layer.outputs[0].shape
    return shape is None or -1 in shape
