"""What a model costs as formulas of its open sizes: exact polynomials, found by reading it at some sizes.

FLOPs, parameters and bytes enter a graph's counts as products of dimensions, so that they are polynomials of each size,
on all whole numbers or, where strides, patches or windows divide it, on every so many of them. Each is interpolated
exactly from as many readings as its degree needs, and checked at further ones, among them sizes far outside. Memory at
the peak is the largest of the polynomials that are live while one operator runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError, LimitError, PerfPassError, UnsupportedError
from perfpass.graph import OpGraph, at_batch, costs, liveness
from perfpass.graph.polynomial import Axis, Polynomial, degree, interpolated, upper
from perfpass.importers.choose import load
from perfpass.importers.model_argument import ModelArgument, understood
from perfpass.text import shown_value

COUNTS = ("macs", "flops", "parameters", "weight_bytes", "bytes_read", "bytes_written")
PEAK = "peak_activation_bytes"
BATCH = "batch"
_FROM_LIBRARIES = ("timm", "torchvision", "definitions")
# Readings along one axis: a polynomial of degree 4, as no operator's count passes it, and two more to check it.
_ALONG = 7
_SPARE = 2
# Of further readings, in steps; of a file, which is read in milliseconds: past what a frame of sound is made of.
_FAR, _FARTHER = (11, 23), (11, 23, 250, 1001, 4001)
# Strides of images and patches, and of samples of sound that one frame is made of (wav2vec 2.0's 320, Moonshine's 384).
_STEPS = (1, 32, 16, 8, 4, 2, 64, 14, 28, 7, 56, 24, 48, 12, 128, 256, 320, 384)
_MOST_READINGS = 400
_MOST_SYMBOLS = 4
_FIRST = 16  # of a size whose model states no other
_STARTS = (_FIRST, 64, 128, 224, 256, 512, 16000)  # the last: a second of sound
_TWO_BATCHES = (2, 3)
_LONGEST_RANGE = 4096  # sizes at which pieces are told apart
Point = Mapping[str, int]


@dataclass(frozen=True)
class Piece:
    """From ``first`` to ``last`` of the one symbol, memory peaks as the ``formula``-th polynomial says."""

    first: int
    last: int
    formula: int


@dataclass(frozen=True)
class Symbolic:
    """The formulas of a model. ``axes``: the sizes on which they hold; ``formulas`` by the names of `COUNTS`.

    ``peak``: bytes of activations at the peak are the largest of these, none where no formula was found; ``pieces``: of
    which one when, where there is one symbol. ``checked``: the readings behind them, up to the ``largest`` sizes.
    ``fixed``: sizes that were given. ``notes``: what is no symbol, and why.
    """

    axes: tuple[Axis, ...]
    formulas: Mapping[str, Polynomial]
    peak: tuple[Polynomial, ...]
    pieces: tuple[Piece, ...]
    checked: int
    largest: Mapping[str, int]
    fixed: Mapping[str, int]
    notes: tuple[str, ...]

    def at(self, sizes: Point) -> dict[str, int]:
        """All counts and the peak at ``sizes``. Raises ArgumentError for sizes on which the formulas do not hold."""
        for axis in self.axes:
            value = sizes.get(axis.symbol)
            if value is None or value < axis.first or (value - axis.first) % axis.step:
                raise ArgumentError(f"{axis.symbol} = {shown_value(value)}; the formulas hold for {held(axis)}")
        found = {name: int(formula.at(sizes)) for name, formula in self.formulas.items()}
        return found | ({PEAK: int(max(p.at(sizes) for p in self.peak))} if self.peak else {})

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "symbols": [{"name": a.symbol, "from": a.first, "step": a.step} for a in self.axes],
            "fixed": dict(self.fixed),
            "formulas": {name: formula.to_dict() for name, formula in self.formulas.items()},
            PEAK: {
                "largest_of": [formula.to_dict() for formula in self.peak],
                "pieces": [vars(piece) for piece in self.pieces],
            },
            "readings": self.checked,
            "read_up_to": dict(self.largest),
            "notes": list(self.notes),
        }


def held(axis: Axis) -> str:
    """The sizes of an axis in words."""
    if axis.step == 1:
        return f"{axis.symbol} from {axis.first} on"
    rest = axis.first % axis.step
    return f"{axis.symbol} = {axis.step}*k{f' + {rest}' if rest else ''}, from {axis.first} on"


def symbolic(
    model: Any,
    *,
    batch: int | None = None,
    input_shape: Any = None,
    dims: Mapping[str, int] | None = None,
    assume: Mapping[str, int] | None = None,
) -> Symbolic:
    """FLOPs, parameters, bytes and memory of a model as formulas of what ``batch`` and ``dims`` leave open.

    The arguments are those of `perfpass.load`. Open are the named dimensions of a file, the sequence length of a
    configuration, the image size of a network of timm or torchvision and the one size of a definition, and the batch.

    Raises ArgumentError where nothing is open, UnsupportedError where a size enters by no polynomial of degree 4 or
    less, LimitError over four symbols or 400 readings, and what reading the model raises.
    """
    given = {"input_shape": input_shape, "assume": assume}
    fixed = {**(dims or {}), **({} if batch is None else {BATCH: batch})}
    argument = understood(model) if isinstance(model, (str, os.PathLike)) else None
    opened, names = _open(argument, model, fixed)
    reader = _Reader(model, fixed, given, affine=opened)
    notes: list[str] = []
    axes: list[Axis] = []
    degrees: list[int] = []
    start = reader.reference(names)
    for name in names:
        found = _axis(reader, name, start)
        if found is None:
            if name == BATCH or not reader.reads({**start, name: start[name]}):
                raise UnsupportedError(
                    f"{name} enters by no polynomial of degree {_ALONG - _SPARE - 1} or less; fix it (--dim {name}=N)"
                )
            notes.append(f"{name} stays {start[name]}: other sizes are refused or are no polynomial")
            continue
        axes.append(found[0])
        degrees.append(found[1])
    if not axes:
        raise ArgumentError("nothing of this model is open: its file fixes every size, or --dim and --batch do")
    left = {name: size for name, size in start.items() if name not in {a.symbol for a in axes}}
    return _fitted(reader, tuple(axes), degrees, left, fixed | left, notes)


def _open(argument: ModelArgument | None, model: Any, fixed: Point) -> tuple[bool, dict[str, int]]:
    """Whether the batch enters every dimension as a factor or a sum alone, and the open sizes with one to begin at."""
    if argument is None:
        if isinstance(model, OpGraph):
            raise ArgumentError("an OpGraph's sizes are fixed; give the model that it was read from")
        names: dict[str, int] = {}
        traced = True
    elif argument.kind in _FROM_LIBRARIES:
        traced, names = True, _sizes_of(argument)
    elif argument.kind == "hf":
        traced, names = True, {"sequence_length": _FIRST} if "sequence" not in fixed else {}
    else:
        traced, names = False, _declared(argument, fixed)
    if BATCH not in names and (traced or not names):
        names = {BATCH: _TWO_BATCHES[0], **names}
    open_names = {name: size for name, size in names.items() if name not in fixed}
    if len(open_names) > _MOST_SYMBOLS:
        raise LimitError(
            f"{len(open_names)} open sizes ({', '.join(open_names)}); formulas are found for up to {_MOST_SYMBOLS}: "
            "give some of them (--dim NAME=N)"
        )
    return traced, open_names


def _sizes_of(argument: ModelArgument) -> dict[str, int]:
    if argument.kind == "definitions":
        from perfpass.importers import definitions

        own = definitions.definition(argument.name)
        return {own.sized_by: own.size[0]} if own.sized_by else {}
    from perfpass.importers import model_sources

    _, shape = getattr(model_sources, f"{argument.kind}_image_model")(argument.name, None)
    return {"image_size": int(shape[-1])}


def _declared(argument: ModelArgument, fixed: Point) -> dict[str, int]:
    """The symbols of a file's inputs. A file that leaves the first axis open has its batch among them, whatever the
    name; a batch that is ``fixed`` sets it.
    """
    from perfpass.importers import formats, onnx

    inputs = (
        formats.named(argument.format).inputs(Path(argument.name)) if argument.format else onnx.inputs(argument.name)
    )
    symbols = dict.fromkeys(d for i in inputs for d in i.shape or () if isinstance(d, str))
    first = {i.shape[0] for i in inputs if i.shape}
    names = {name: _TWO_BATCHES[0] if name in first else _FIRST for name in symbols}
    if BATCH in fixed:
        lead = next((i.shape[0] for i in inputs if i.shape), None)
        names = {name: size for name, size in names.items() if name != lead}
    return {BATCH: _TWO_BATCHES[0], **names} if first and not first & set(symbols) else names


class _Reader:
    """A model's counts at any sizes, each read once."""

    def __init__(self, model: Any, fixed: Point, given: Mapping[str, Any], *, affine: bool) -> None:
        self._model, self._fixed, self._given, self.affine = model, fixed, given, affine
        self._graphs: dict[tuple[tuple[str, int], ...], OpGraph] = {}
        self._found: dict[tuple[tuple[str, int], ...], tuple[tuple[int, ...], np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def reference(self, names: Mapping[str, int]) -> dict[str, int]:
        """Sizes at which the model can be read: those of ``names``, or larger ones of all that state none."""
        for first in _STARTS:
            start = {name: first if size == _FIRST else size for name, size in names.items()}
            try:
                self.counts(start)
            except PerfPassError:
                if first == _STARTS[-1] or _FIRST not in names.values():
                    raise
            else:
                return start
        raise AssertionError

    def reads(self, point: Point) -> bool:
        """Whether the model can be read there."""
        try:
            self.counts(point)
        except PerfPassError:
            return False
        return True

    def largest(self, symbol: str) -> int:
        """Of all sizes of a symbol that were read."""
        return max(dict(key)[symbol] for key in self._found)

    def counts(self, point: Point) -> tuple[int, ...]:
        """The values of `COUNTS`."""
        return self._at(point)[0]

    def live(self, point: Point) -> tuple[np.ndarray, np.ndarray]:
        """Bytes live while each node runs [N], and the operators [N]."""
        return self._at(point)[1:]

    def _at(self, point: Point) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
        key = tuple(sorted(point.items()))
        if key not in self._found:
            if len(self._found) >= _MOST_READINGS:
                raise LimitError(f"over {_MOST_READINGS} readings of the model; give some of its sizes (--dim NAME=N)")
            graph = self._graph({**self._fixed, **point})
            totals = costs.count(graph).totals
            self._found[key] = tuple(totals[n] for n in COUNTS), liveness.plan(graph).live_bytes.copy(), graph.op.copy()
        return self._found[key]

    def _graph(self, sizes: Point) -> OpGraph:
        batch = sizes.get(BATCH)
        rest = {name: size for name, size in sizes.items() if name != BATCH}
        if not self.affine or batch is None:
            return load(self._model, **self._sizes(batch, rest), **self._given)
        low, high = (self._traced(b, rest) for b in _TWO_BATCHES)
        if low.stated:  # formulas of a user's own need not be affine
            return self._traced(batch, rest)
        return at_batch(low, high, _TWO_BATCHES, batch)

    def _traced(self, batch: int, rest: Point) -> OpGraph:
        key = (*sorted(rest.items()), (BATCH, batch))
        if key not in self._graphs:
            self._graphs[key] = load(self._model, **self._sizes(batch, rest), **self._given)
        return self._graphs[key]

    def _sizes(self, batch: int | None, rest: Point) -> dict[str, Any]:
        """A file's symbol of the name "batch" is a dimension like any other."""
        return {"batch": batch, "dims": dict(rest) or None}


def _axis(reader: _Reader, name: str, start: Point) -> tuple[Axis, int] | None:
    """The densest sizes of one symbol, the others held, on which all counts are polynomials, and their degree."""
    best: tuple[Axis, int] | None = None
    for step in _STEPS:
        if best is not None and (best[0].step == 1 or best[0].step % step):
            continue
        axis = Axis(name, start[name], step)
        found = _degree(reader, axis, start)
        if found is not None:
            best = axis, found
        elif best is not None:
            break
    if best is None:
        return None
    axis = best[0]
    # Down to the smallest size on which the same formula holds.
    formulas = [
        interpolated([axis], [best[1]], lambda ks, i=i: reader.counts({**start, name: axis[ks[0]]})[i])  # type: ignore[misc]
        for i in range(len(COUNTS))
    ]
    first = axis.first
    for size in _below(axis):
        point = {**start, name: size}
        if not reader.reads(point) or any(
            formula.at({name: size}) != value for formula, value in zip(formulas, reader.counts(point), strict=True)
        ):
            break
        first = size
    return Axis(name, first, axis.step), best[1]


def _below(axis: Axis) -> Iterator[int]:
    """Sizes of the axis before its first, half as far each time."""
    least, size = axis.first % axis.step or axis.step, axis.first
    while size > least:
        size = least + (size - least) // 2 // axis.step * axis.step
        yield size


def _degree(reader: _Reader, axis: Axis, start: Point) -> int | None:
    """The degree in one symbol of all counts on an axis; None where one of them is none."""
    rows: list[tuple[int, ...]] = []
    found: int | None = None
    for k in range(_ALONG):
        point = {**start, axis.symbol: axis[k]}
        if not reader.reads(point):
            return None
        rows.append(reader.counts(point))
        degrees = [degree(column, _SPARE) for column in zip(*rows, strict=True)]
        if k >= _SPARE and None not in degrees:
            found = max(d for d in degrees if d is not None)
            break
    if found is None:
        return None
    formulas = [
        interpolated([axis], [found], lambda ks, i=i: rows[ks[0]][i])  # type: ignore[misc]
        for i in range(len(COUNTS))
    ]
    for k in _FAR if reader.affine else _FARTHER:
        point = {**start, axis.symbol: axis[k]}
        if reader.reads(point) and any(
            formula.at(point) != value for formula, value in zip(formulas, reader.counts(point), strict=True)
        ):
            return None
    return found


def _fitted(
    reader: _Reader, axes: tuple[Axis, ...], degrees: Sequence[int], left: Point, fixed: Point, notes: list[str]
) -> Symbolic:
    def point(ks: tuple[int, ...]) -> dict[str, int]:
        return {**left, **{axis.symbol: axis[k] for axis, k in zip(axes, ks, strict=True)}}

    readings = 1
    for d in degrees:
        readings *= d + 1
    if readings > _MOST_READINGS:
        raise LimitError(f"{readings} readings would be needed; give some of the sizes (--dim NAME=N)")
    formulas = {
        name: interpolated(axes, degrees, lambda ks, i=i: reader.counts(point(ks))[i])  # type: ignore[misc]
        for i, name in enumerate(COUNTS)
    }
    further = [tuple(d + 1 + (i + j) % 3 for j, d in enumerate(degrees)) for i in range(3)]
    further.append(tuple(_FAR[0] + j for j in range(len(axes))))
    for ks in further:
        if reader.reads(point(ks)) and reader.counts(point(ks)) != tuple(f.at(point(ks)) for f in formulas.values()):
            raise UnsupportedError(
                f"{' and '.join(a.symbol for a in axes)} together enter by no polynomial; fix one (--dim NAME=N)"
            )
    peak = _peak(reader, axes, degrees, point, further)
    if not peak:
        notes.append("memory at the peak follows no formula here: its operators or what they share change with a size")
    largest = {axis.symbol: reader.largest(axis.symbol) for axis in axes}
    return Symbolic(axes, formulas, peak, _pieces(axes, peak), len(reader), largest, fixed, tuple(notes))


def _peak(
    reader: _Reader,
    axes: Sequence[Axis],
    degrees: Sequence[int],
    point: Callable[[tuple[int, ...]], dict[str, int]],
    further: Sequence[tuple[int, ...]],
) -> tuple[Polynomial, ...]:
    """The polynomials of which the largest is the peak; none where the bytes live at a node follow none."""
    grid = list(np.ndindex(*(d + 1 for d in degrees)))
    checks = [ks for ks in further if reader.reads(point(ks))]
    found = [reader.live(point(tuple(ks))) for ks in (*grid, *checks)]
    if any(not np.array_equal(operators, found[0][1]) for _, operators in found):
        return ()
    columns = np.unique(np.array([live for live, _ in found]), axis=1).T
    polynomials = []
    for column in columns.tolist():
        value = dict(zip(grid, column, strict=False))
        formula = interpolated(axes, degrees, lambda ks, value=value: value[ks])  # type: ignore[misc]
        if any(formula.at(point(ks)) != v for ks, v in zip(checks, column[len(grid) :], strict=True)):
            return ()
        polynomials.append(formula)
    return tuple(upper(polynomials, axes))


def _pieces(axes: Sequence[Axis], peak: Sequence[Polynomial]) -> tuple[Piece, ...]:
    """Which polynomial is the largest at the first sizes of the one axis."""
    if len(axes) != 1 or not peak:
        return ()
    axis, found = axes[0], list[Piece]()
    for k in range(_LONGEST_RANGE):
        size = axis[k]
        values = [p.at({axis.symbol: size}) for p in peak]
        best = max(range(len(peak)), key=lambda i: values[i])
        if found and values[found[-1].formula] == values[best]:
            found[-1] = Piece(found[-1].first, size, found[-1].formula)
        else:
            found.append(Piece(size, size, best))
    return tuple(found)
