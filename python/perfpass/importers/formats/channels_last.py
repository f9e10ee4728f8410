"""Programs of frameworks whose images are channels-last (TensorFlow, Keras), and how they are shown channels-first.

A reader records operators in the file's own layout: a `Program` of tensors and nodes, each node with a `layout` that
says what it does to images. `shown` then gives every image [N, spatial..., C] as [N, C, spatial...], the layout of the
other readers, and every kernel as [O, I, spatial...]. Where an operator works on the last axis of an image (a dense
layer, a layer norm), a transposed view that moves nothing stands between, as torch writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from perfpass import _core
from perfpass.errors import LimitError, ShapeError
from perfpass.graph import OpGraph
from perfpass.importers.formats.shapes import broadcast
from perfpass.text import shown_value

# What a node does to images.
IMAGE = "image"  # data and results are images: convolutions, pools, resizes
EACH = "each"  # element by element, with broadcasting
AXIS = "axis"  # along attribute `axis`; results of the same rank keep the layout of the data
FREE = "free"  # a new shape for the same elements
ROWS = "rows"  # takes the last axis as it is: products, norms over it

FOLDED = "folded"  # the role of what is computed from weights alone, until it is known who reads it
MOST_NODES = 400_000
_WIDEST = 2**48
_HIGHEST_RANK = 16


@dataclass(eq=False, slots=True)
class Tensor:
    """A tensor in the layout of its file. ``leaves``: of what is computed from constants alone, these constants."""

    shape: tuple[int, ...]
    dtype: str
    role: str = "activation"
    name: str = ""
    leaves: tuple[Tensor, ...] = ()
    shown: tuple[int, ...] | None = None  # of a constant, where it differs: a kernel as OIHW

    @property
    def constant(self) -> bool:
        return self.role in ("weight", "literal")


@dataclass(eq=False, slots=True)
class Node:
    """One operator."""

    kind: str
    source: str
    name: str
    layout: str
    attributes: dict[str, int]
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    repeat: float = 1.0


class _Scope:
    """A name on a stack of names while it is entered: of every node, where a generator would take as long as a node."""

    __slots__ = ("name", "names")

    def __init__(self, names: list[str], name: str) -> None:
        self.names, self.name = names, name

    def __enter__(self) -> None:
        self.names.append(self.name)

    def __exit__(self, *_: object) -> None:
        self.names.pop()


@lru_cache(maxsize=4096)  # a network has few shapes
def _may_exist(sizes: tuple[int, ...]) -> bool:
    return all(size >= 0 for size in sizes) and math.prod(sizes) <= _WIDEST


@dataclass
class Program:
    """What a reader records, in the order of execution."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    notes: dict[str, bool] = field(default_factory=dict)  # as of a draft
    _scopes: list[str] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _repeat: float = 1.0

    def scope(self, name: str) -> _Scope:
        """Inside, nodes are named after a layer."""
        return _Scope(self._scopes, name)

    @contextmanager
    def repeated(self, times: int) -> Iterator[None]:
        """Inside, nodes run ``times`` times: the body of a loop."""
        before = self._repeat
        self._repeat = before * times
        yield
        self._repeat = before

    def tensor(self, shape: Sequence[int], dtype: str, role: str = "activation", name: str = "") -> Tensor:
        """A tensor that may exist. Raises LimitError for one that may not."""
        sizes = tuple(shape)
        if len(sizes) > _HIGHEST_RANK or not _may_exist(sizes):
            where = name or (self._scopes[-1] if self._scopes else "the model")
            raise LimitError(
                f"{shown_value(where)} has a tensor of shape ({', '.join(map(shown_value, sizes[:20]))}); a tensor "
                f"has at most {_HIGHEST_RANK} axes and 2^48 elements, and no size below 0"
            )
        return Tensor(sizes, dtype, role, name)

    def input(self, name: str, shape: Sequence[int], dtype: str) -> Tensor:
        """A tensor that the caller feeds."""
        self.inputs.append(self.tensor(shape, dtype, "input", name))
        return self.inputs[-1]

    def weight(self, name: str, shape: Sequence[int], dtype: str) -> Tensor:
        """A constant: parameters are floating and have an axis, or are bytes of two axes and more."""
        floating = dtype.startswith(("float", "bfloat")) and len(shape) > 0
        packed = dtype in ("int8", "uint8", "int4", "uint4") and len(shape) > 1
        return self.tensor(shape, dtype, "weight" if floating or packed else "literal", name)

    def add(
        self,
        kind: str,
        source: str,
        inputs: Sequence[Tensor | None],
        shapes: Sequence[Sequence[int]],
        dtype: str,
        layout: str = ROWS,
        **attributes: int,
    ) -> list[Tensor]:
        """Records a node; its results have ``shapes``."""
        if len(self.nodes) >= MOST_NODES:
            raise LimitError(f"the model has more than {MOST_NODES} operators; read a part of it")
        scope = self._scopes[-1] if self._scopes else source
        count = self._names.get(scope, 0)
        self._names[scope] = count + 1
        outputs = [self.tensor(shape, dtype) for shape in shapes]
        name = f"{scope}_{count}" if count else scope
        self.nodes.append(Node(kind, source, name, layout, attributes, list(inputs), outputs, self._repeat))
        return outputs

    def one(
        self,
        kind: str,
        source: str,
        inputs: Sequence[Tensor | None],
        shape: Sequence[int],
        dtype: str | None = None,
        layout: str = ROWS,
        columns: Mapping[str, int] | None = None,
        **attributes: int,
    ) -> Tensor:
        """Records a node of one result, by default of the type of its first operand; ``columns`` are attributes too."""
        if dtype is None:
            dtype = next((t.dtype for t in inputs if t is not None), "float32")
        made = self.add(kind, source, inputs, [shape], dtype, layout)
        self.nodes[-1].attributes |= {**(columns or {}), **attributes}
        return made[0]

    def each(self, kind: str, source: str, *inputs: Tensor, dtype: str | None = None) -> Tensor:
        """An element-wise operator with NumPy's broadcasting."""
        shape = broadcast([t.shape for t in inputs], source)
        return self.one(kind, source, inputs, shape, dtype or _wider(inputs), EACH)

    def reshape(self, x: Tensor, shape: Sequence[int], source: str = "Reshape") -> Tensor:
        """The same elements in another shape; moves nothing. Raises ShapeError for another number of them."""
        if math.prod(shape) != math.prod(x.shape):
            raise ShapeError(f"{source} of {x.shape} to {tuple(shape)}, which holds another number of elements")
        if tuple(shape) == x.shape:
            return x
        return self.one("reshape", source, [x], shape, layout=FREE, view=1)

    def transpose(self, x: Tensor, order: Sequence[int], source: str = "Transpose", view: int = 0) -> Tensor:
        """Axes in another order. Raises ShapeError where ``order`` is none."""
        if sorted(order) != list(range(len(x.shape))):
            raise ShapeError(f"{source} of {x.shape} by {list(order)}, which does not name each axis once")
        return self.one("transpose", source, [x], [x.shape[a] for a in order], view=view)


def _wider(inputs: Sequence[Tensor]) -> str:
    """The type of the first operand with axes, floating before whole numbers."""
    ranked = sorted(inputs, key=lambda t: (not t.dtype.startswith(("float", "bfloat")), not t.shape))
    return ranked[0].dtype


def kernel_first(weight: Tensor, order: Sequence[int], groups: int = 1) -> Tensor:
    """Shows a kernel with its axes in ``order``; of a depthwise one [..., C, M] both channels are outputs."""
    shape = [weight.shape[a] for a in order]
    if groups > 1 and len(shape) > 1:
        shape = [math.prod(shape[:2]), 1, *shape[2:]]
    weight.shown = tuple(shape)
    return weight


class _Layouts:
    """Which tensors are images, and the views between them and the rows of their last axis."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.wanted = self._wanted()
        self.images = {t for t in program.inputs if t in self.wanted}
        self.nodes: list[Node] = []
        self._views: dict[tuple[Tensor, bool], Tensor] = {}

    def _wanted(self) -> set[Tensor]:
        """What images are made of, from the operators that need one backwards."""
        wanted: set[Tensor] = set()
        for node in reversed(self.program.nodes):
            if node.layout == IMAGE:
                wanted |= {t for t in node.inputs[:1] if t is not None}
            elif node.layout in (EACH, AXIS):
                ranks = {len(t.shape) for t in node.outputs if t in wanted}
                wanted |= {t for t in node.inputs if t is not None and not t.constant and len(t.shape) in ranks}
        return {t for t in wanted if len(t.shape) >= 3}

    def place(self, node: Node) -> None:
        """Puts a node, and the views that its operands need, in the new order."""
        same_rank = {len(t.shape) for t in node.outputs}
        data = [t for t in node.inputs if t is not None]
        if node.layout == IMAGE:
            node.inputs[:1] = [self._as(t, True) for t in node.inputs[:1]]
            self.images.update(t for t in node.outputs if len(t.shape) >= 3)
        elif node.layout == FREE:
            self.images.update(t for t in node.outputs if t in self.wanted)
        elif node.layout == AXIS:
            self._along(node, data)
        elif node.layout == EACH and any(t in self.images and len(t.shape) in same_rank for t in data):
            rank = max(same_rank)
            node.inputs = [self._operand(t, rank) for t in node.inputs]
            self.images.update(node.outputs)
        else:
            node.inputs = [self._as(t, False) for t in node.inputs]
        self.nodes.append(node)

    def _along(self, node: Node, data: list[Tensor]) -> None:
        ranks = {len(t.shape) for t in node.outputs}
        if not any(t in self.images for t in data):
            return
        rank = next(len(t.shape) for t in data if t in self.images)
        node.inputs = [self._as(t, True) if t is not None and len(t.shape) == rank else t for t in node.inputs]
        if "axis" in node.attributes:
            node.attributes["axis"] = _axis_first(node.attributes["axis"], rank)
        if ranks == {rank}:
            self.images.update(node.outputs)

    def _operand(self, tensor: Tensor | None, rank: int) -> Tensor | None:
        if tensor is None or len(tensor.shape) == rank:
            return self._as(tensor, True)
        if tensor.constant and tensor.shown is None and len(tensor.shape):
            whole = _first((1,) * (rank - len(tensor.shape)) + tensor.shape)
            while whole[0] == 1 and len(whole) > 1:
                whole = whole[1:]
            tensor.shown = whole
        return tensor

    def _as(self, tensor: Tensor | None, image: bool) -> Tensor | None:
        """The tensor as an image or as rows."""
        if tensor is None or len(tensor.shape) < 3 or (tensor in self.images) == image:
            return tensor
        if tensor.constant:
            if image:
                tensor.shown = _first(tensor.shape)
            return tensor
        found = self._views.get((tensor, image))
        if found is None:
            found = Tensor(tensor.shape, tensor.dtype)
            self.nodes.append(Node("transpose", "transpose", "", ROWS, {"view": 1}, [tensor], [found]))
            self._views[tensor, image] = found
            if image:
                self.images.add(found)
        return found

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        if tensor.shown is not None:
            return tensor.shown
        return _first(tensor.shape) if tensor in self.images else tensor.shape


def _first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) > 2 else shape


def _axis_first(axis: int, rank: int) -> int:
    axis = axis % rank
    return axis if axis == 0 else 1 if axis == rank - 1 else axis + 1


def shown(program: Program, outputs: Sequence[Tensor]) -> OpGraph:
    """The program as a graph, its images channels-first. Raises what the core's builder does."""
    layouts = _Layouts(program)
    for node in needed(program.nodes, outputs):
        layouts.place(node)
    builder = _core.GraphBuilder()
    ids: dict[Tensor | None, int] = {None: -1}

    def number(tensor: Tensor | None) -> int:
        if tensor not in ids:
            assert tensor is not None
            ids[tensor] = builder.add_tensor(tensor.name, tensor.dtype, layouts.shape(tensor), tensor.role)
        return ids[tensor]

    inputs = [number(t) for t in program.inputs]
    for node in layouts.nodes:
        builder.add_node(
            node.kind,
            node.source,
            node.name,
            node.attributes,
            [number(t) for t in node.inputs],
            [number(t) for t in node.outputs],
            node.repeat,
        )
    for note, counted_once in program.notes.items():
        builder.add_note(note, counted_once)
    results = list(dict.fromkeys(number(t) for t in outputs))
    return OpGraph(builder.finish(inputs, results))


def needed(nodes: Sequence[Node], outputs: Sequence[Tensor]) -> list[Node]:
    """The nodes whose results something reads."""
    read: set[Tensor | None] = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(t in read for t in node.outputs):
            read.update(node.inputs)
            kept.append(node)
    return kept[::-1]
