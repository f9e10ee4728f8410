"""Layers in the order of data flow, bodies of loops and branches within, into a draft."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError
from perfpass.importers.draft import Draft
from perfpass.importers.formats.openvino import contents, shapes
from perfpass.importers.formats.openvino.constants import Constants
from perfpass.importers.formats.openvino.document import Body, Layer, Port
from perfpass.importers.formats.openvino.lowering import Lowering, Operand, decompression
from perfpass.importers.formats.openvino.operators import DTYPES, KIND_OF
from perfpass.importers.formats.openvino.shapes import Known, Unresolved
from perfpass.importers.formats.shapes import Followed, Shape

_HIGHEST_RANK = 16
_MOST_TRIPS = 10**9
_BITS = {"64": 64, "32": 32, "16": 16, "8": 8}


@dataclass
class Scope:
    """One body: what its layers' outputs are, how often it runs, and what stands before its names."""

    body: Body
    prefix: str = ""
    repeat: float = 1.0
    values: dict[tuple[int, int], Operand] = field(default_factory=dict)
    results: dict[int, Operand] = field(default_factory=dict)


class Walk:
    """Reads a document into ``draft``; ``constants`` None: every size is in the document."""

    def __init__(self, draft: Draft, constants: Constants | None) -> None:
        self.draft = draft
        self.lowering = Lowering(draft)
        self.constants = constants
        self.followed = Followed()
        self.kept: list[int] = []  # what variables hold for the next run

    def run(self, scope: Scope, bound: dict[int, Operand]) -> None:
        """All layers of ``scope``; ``bound``: what its parameters are, by their layer."""
        for layer in scope.body.layers:
            if layer.kind in ("Parameter", "ReadValue"):
                if layer.number not in bound:
                    raise FormatError(f"{layer.label} of a body is bound to nothing; the file is damaged")
                self.write(scope, layer, [bound[layer.number]])
            elif layer.kind == "Const":
                self.write(scope, layer, [self.constant(layer)])
            elif layer.kind == "Result":
                scope.results[layer.number] = self.operands(scope, layer)[0]
            else:
                self.fitting(scope, layer)

    def fitting(self, scope: Scope, layer: Layer) -> None:
        """As `layer`. Raises FormatError for one whose inputs, outputs or attributes are not those of its kind."""
        try:
            self.layer(scope, layer)
        except PerfPassError:
            raise
        except (IndexError, KeyError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise FormatError(
                f"{layer.label} has {len(layer.inputs)} inputs, {len(layer.outputs)} outputs and attributes that do "
                "not fit one another; the file is damaged"
            ) from error

    def write(self, scope: Scope, layer: Layer, operands: list[Operand]) -> None:
        values, writer = scope.values, layer.number
        for port, operand in zip(layer.outputs, operands, strict=False):
            values[writer, port.number] = operand

    def operands(self, scope: Scope, layer: Layer) -> list[Operand]:
        """What the layer reads. Raises FormatError for an input without an edge."""
        sources, values, reader = scope.body.sources, scope.values, layer.number
        found = []
        for number in layer.inputs:
            source = sources.get((reader, number))
            operand = None if source is None else values.get(source)
            if operand is None:
                raise FormatError(f"{layer.label} reads at input {number} what no layer writes; the file is damaged")
            found.append(operand)
        if layer.kind == "Result" and not found:
            raise FormatError(f"{layer.label} reads nothing; the file is damaged")
        return found

    def constant(self, layer: Layer) -> Operand:
        if len(layer.outputs) != 1:
            raise FormatError(f"{layer.label} has {len(layer.outputs)} outputs; a constant has one")
        port = layer.outputs[0]
        try:
            shape = tuple(shapes.numbers(layer.data, "shape"))
        except Unresolved as error:
            raise FormatError(f"{layer.label}: {error}; the file is damaged") from None
        if len(shape) > _HIGHEST_RANK:
            raise LimitError(f"{layer.label} is of rank {len(shape)}; at most {_HIGHEST_RANK} is read")
        if any(size < 0 for size in shape) or (port.shape is not None and port.shape != shape):
            raise FormatError(f"{layer.label} has shape {shape} and {port.shape} at once; the file is damaged")
        dtype = DTYPES.get(layer.data.get("element_type", ""), "undefined")
        self.check_size(layer, dtype, shape)
        held = None if self.constants is None else partial(self.constants.read, layer.data, shape)
        return Operand(self.draft.constant(dtype, shape, layer.name), Known(dtype, shape, held))

    @staticmethod
    def check_size(layer: Layer, dtype: str, shape: Shape) -> None:
        """Raises FormatError where the bytes that the file states are too few for the elements."""
        bits = _BITS.get(layer.data.get("element_type", "")[1:])
        stated = layer.data.get("size", "")
        if bits and stated.isdecimal() and len(stated) < 20 and int(stated) * 8 != math.prod(shape) * bits:
            raise FormatError(
                f"{layer.label} states {stated} bytes for {math.prod(shape):,} elements of {dtype}; the file is damaged"
            )

    def layer(self, scope: Scope, layer: Layer) -> None:
        operands = self.operands(scope, layer)
        if layer.bodies:
            self.write(scope, layer, self.control(scope, layer, operands))
            return
        if layer.kind == "Assign":
            self.kept += [self.lowering.plain(o, scope.repeat) for o in operands]
            self.write(scope, layer, operands)
            return
        outputs = self.outputs(layer, operands)
        if self.constants is not None:
            contents.follow(layer, [o.known for o in operands], outputs)
            self.followed.take(sum(k.held.size for k in outputs if isinstance(k.held, np.ndarray)))
        packed = None
        if outputs and operands and (layer.kind == "Convert" or operands[0].compressed is not None):
            packed = decompression(layer, operands, self.draft, outputs[0])
        if packed is not None:
            self.write(scope, layer, [Operand(packed.weight, outputs[0], packed)])
        elif layer.kind == "Convert" and operands and self.draft.is_constant(operands[0].tensor):
            # Weights kept in half the bits, and numbers in another type: runtimes convert them as they load.
            self.write(scope, layer, [Operand(operands[0].tensor, outputs[0])])
        else:
            made = self.lowering.add(layer, scope.prefix + layer.name, operands, outputs, scope.repeat)
            self.write(scope, layer, [Operand(t, known) for t, known in zip(made, outputs, strict=True)])

    def outputs(self, layer: Layer, operands: list[Operand]) -> list[Known]:
        """Type and sizes of every output: those of the file where it fixes them, else inferred. Raises ShapeError."""
        inferred: list[Shape] | None = None
        found = []
        for i, port in enumerate(layer.outputs):
            shape = port.shape
            if shape is None or -1 in shape:
                if inferred is None:
                    inferred = self.inferred(layer, operands)
                shape = _agreed(layer, port, inferred[i] if i < len(inferred) else None)
            found.append(Known(DTYPES.get(port.dtype.lower(), "undefined"), shape))
        return found

    def inferred(self, layer: Layer, operands: list[Operand]) -> list[Shape]:
        try:
            return shapes.shapes(layer, [o.known for o in operands])
        except Unresolved as error:
            resolved = _by_elements(layer, operands)
            if resolved is not None:
                return resolved
            missing = self.constants is not None and not self.constants.path.is_file()
            raise ShapeError(
                f"{layer.label}: a size of its output is open in the file and does not follow from the inputs ({error})"
                + (f"; {self.constants.path.name} beside it would tell" if missing and self.constants else "")
                + "; fix the sizes before saving: model.reshape({name: shape}), then openvino.save_model"
            ) from None

    # -- bodies --------------------------------------------------------------------------------------------------------

    def control(self, scope: Scope, layer: Layer, operands: list[Operand]) -> list[Operand]:
        by_port = dict(zip(layer.inputs, operands, strict=True))
        if layer.kind == "If":
            return self.branches(scope, layer, operands, by_port)
        body = layer.bodies.get("body")
        if body is None:
            raise FormatError(f"{layer.label} has no body; the file is damaged")
        told, said = self.trips(layer, by_port)
        if said:
            self.draft.notes[said] = told is None
        trips = 1 if told is None else told
        inner = Scope(body, f"{scope.prefix}{layer.name}/", scope.repeat * trips)
        bound: dict[int, Operand] = {}
        for line in _lines(layer, "port_map", "input"):
            port, target = _numbered(layer, line, "external_port_id"), _numbered(layer, line, "internal_layer_id")
            parameter = next((one for one in body.layers if one.number == target), None)
            if parameter is None:
                raise FormatError(f"{layer.label} binds layer {target} of its body, which is not there")
            outer = by_port.get(port)
            if outer is None:  # the number of the iteration
                known = Known("int64", ())
                bound[target] = Operand(self.draft.tensor("int64", (), "literal", "iteration"), known)
            elif "axis" in line:
                bound[target] = self.part(inner, layer, outer, line)
            else:
                known = Known(outer.known.dtype, outer.known.shape)
                bound[target] = Operand(self.lowering.plain(outer, scope.repeat), known)
        self.run(inner, bound)
        outputs: dict[int, Known] = {}
        for line in _lines(layer, "port_map", "output"):
            port, target = _numbered(layer, line, "external_port_id"), _numbered(layer, line, "internal_layer_id")
            result = inner.results.get(target)
            if result is None:
                raise FormatError(f"{layer.label} gives away layer {target} of its body, which is no result")
            shape = list(result.known.shape)
            if "axis" in line and shape:
                axis = _numbered(layer, line, "axis") % len(shape)
                shape[axis] *= max(trips, 1)
            outputs[port] = Known(result.known.dtype, tuple(shape))
        made = []
        for one in layer.outputs:
            given = outputs.get(one.number)
            if one.shape is not None and -1 not in one.shape:
                given = Known(DTYPES.get(one.dtype.lower(), "undefined"), one.shape)
            if given is None:
                raise FormatError(f"{layer.label} does not say where output {one.number} comes from")
            made.append(given)
        read = [self.lowering.plain(o, scope.repeat) for o in inner.results.values()]
        return self.joined(scope, layer, read, made)

    def joined(self, scope: Scope, layer: Layer, read: list[int], made: list[Known]) -> list[Operand]:
        """The control operator itself, behind what its bodies produce."""
        tensors = [self.draft.tensor(k.dtype, k.shape) for k in made]
        self.draft.node(
            KIND_OF.get(layer.kind, "unknown"), layer.kind, scope.prefix + layer.name, {}, read, tensors, scope.repeat
        )
        return [Operand(t, k) for t, k in zip(tensors, made, strict=True)]

    def part(self, inner: Scope, layer: Layer, outer: Operand, line: dict[str, str]) -> Operand:
        """What one iteration reads of an input that is cut along an axis."""
        shape = list(outer.known.shape)
        axis = _numbered(layer, line, "axis") % max(len(shape), 1)
        if not shape:
            raise FormatError(f"{layer.label} cuts a number into parts; the file is damaged")
        shape[axis] = min(shape[axis], abs(_numbered(layer, line, "part_size", 1)))
        known = Known(outer.known.dtype, tuple(shape))
        made = self.draft.tensor(known.dtype, known.shape)
        read = [self.lowering.plain(outer)]
        self.draft.node("slice", layer.kind, f"{inner.prefix}part", {"axis": axis}, read, [made], inner.repeat)
        return Operand(made, known)

    def trips(self, layer: Layer, by_port: dict[int, Operand]) -> tuple[int | None, str]:
        """How often a body runs, None where only a run knows, and what must be said of it."""
        for line in _lines(layer, "port_map", "input"):
            outer = by_port.get(_numbered(layer, line, "external_port_id"))
            if outer is not None and "axis" in line and outer.known.shape:
                extent = outer.known.shape[_numbered(layer, line, "axis") % len(outer.known.shape)]
                return min(extent // max(abs(_numbered(layer, line, "part_size", 1)), 1), _MOST_TRIPS), ""
        if layer.kind == "Loop" and layer.inputs:
            count = by_port[layer.inputs[0]].known.values
            known = -1 if count is None or count.size != 1 else int(count.reshape(-1)[0])
            if 0 <= known <= _MOST_TRIPS:
                return known, f"{layer.label}: counted {known} times; it may end before"
        for line in _lines(layer, "port_map", "output"):
            port = next((p for p in layer.outputs if p.number == _numbered(layer, line, "external_port_id")), None)
            if port is not None and port.shape and "axis" in line:
                extent = port.shape[_numbered(layer, line, "axis") % len(port.shape)]
                if extent >= 0:
                    return min(extent // max(abs(_numbered(layer, line, "part_size", 1)), 1), _MOST_TRIPS), ""
        return None, f"{layer.label}: the file does not say how often it runs; its body is counted once"

    def branches(
        self, scope: Scope, layer: Layer, operands: list[Operand], by_port: dict[int, Operand]
    ) -> list[Operand]:
        """Both branches; the one with less to do counts 0 times (`Draft.graph`)."""
        read, made, branches = [self.lowering.plain(operands[0])], [], []
        for part in ("then", "else"):
            body = layer.bodies.get(f"{part}_body")
            if body is None:
                raise FormatError(f"{layer.label} has no {part} branch; the file is damaged")
            inner = Scope(body, f"{scope.prefix}{layer.name}/{part}/", scope.repeat)
            bound = {}
            for line in _lines(layer, f"{part}_port_map", "input"):
                outer = by_port.get(_numbered(layer, line, "external_port_id"))
                if outer is not None:
                    bound[_numbered(layer, line, "internal_layer_id")] = Operand(
                        self.lowering.plain(outer), outer.known
                    )
            first = len(self.draft.nodes)
            self.run(inner, bound)
            read += [self.lowering.plain(o) for o in inner.results.values()]
            branches.append(self.draft.nodes[first:])
            results = {
                _numbered(layer, line, "external_port_id"): inner.results.get(
                    _numbered(layer, line, "internal_layer_id")
                )
                for line in _lines(layer, f"{part}_port_map", "output")
            }
        self.draft.branches.append((branches[0], branches[1]))
        for port in layer.outputs:
            shape = port.shape
            result = results.get(port.number)
            if shape is None or -1 in shape:
                if result is None:
                    raise FormatError(f"{layer.label} does not say where output {port.number} comes from")
                shape = result.known.shape
            made.append(Known(DTYPES.get(port.dtype.lower(), "undefined"), shape))
        return self.joined(scope, layer, read, made)


def _agreed(layer: Layer, port: Port, found: Shape | None) -> Shape:
    """The inferred shape, which must have the sizes that the file fixes. Raises ShapeError."""
    if found is None:
        raise ShapeError(f"{layer.label}: output {port.number} has open sizes and no rule here tells them")
    fixed = port.shape
    if any(size < 0 for size in found):
        raise ShapeError(f"{layer.label} would write the shape {found}; its inputs are too small for it")
    if fixed is not None and (
        len(fixed) != len(found) or any(a not in (-1, b) for a, b in zip(fixed, found, strict=True))
    ):
        raise ShapeError(
            f"{layer.label}: the file says its output is {fixed}, and from the inputs follows {found}; the sizes given "
            "do not fit this model"
        )
    return found


def _by_elements(layer: Layer, operands: list[Operand]) -> list[Shape] | None:
    """The one open size of a layer that only shows its input anew, from the number of elements."""
    if layer.kind not in ("Reshape", "Squeeze", "Unsqueeze") or len(layer.outputs) != 1 or not operands:
        return None
    shape = layer.outputs[0].shape
    if shape is None or shape.count(-1) != 1:
        return None
    rest = math.prod(size for size in shape if size >= 0)
    total = math.prod(operands[0].known.shape)
    return [tuple(total // rest if size < 0 else size for size in shape)] if rest and total % rest == 0 else None


def _lines(layer: Layer, name: str, tag: str) -> list[dict[str, str]]:
    return [line for line in layer.maps.get(name, ()) if line["tag"] == tag]


def _numbered(layer: Layer, line: dict[str, str], name: str, default: int | None = None) -> int:
    text = line.get(name)
    try:
        if text is None and default is not None:
            return default
        if text is None or len(text) > 20:
            raise ValueError
        return int(text)
    except ValueError:
        raise FormatError(f"{layer.label}: {name} of its port map is no whole number; the file is damaged") from None
