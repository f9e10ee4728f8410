"""The training step of a forward graph, derived from its operator table: backward pass and optimizer by stated rules.

Every operator that moves gradients gets rows for them: a product with a weight becomes two products, one of activations
two, attention four, a normalization or an activation one pass over its input and the gradient; a residual addition
stands for the sum of two gradients where its input was forked. The optimizer is one row over all parameters.
docs/predictors/training_step.md has the rules and how far they are from traced steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.graph import frozen
from perfpass.graph.opgraph import OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS
from perfpass.graph.optimizers import OPTIMIZERS, RECORDED
from perfpass.graph.table import COLUMNS, OperatorColumns, Tables
from perfpass.late import dataclass

# What a row of a training step does. DATA: gradients of activations, WEIGHT: of parameters.
PARTS: tuple[str, ...] = ("forward", "data", "weight", "optimizer")
FORWARD, DATA, WEIGHT, OPTIMIZER = range(len(PARTS))
PHASE_OF_PART = np.array([0, 1, 1, 2])

_OP = {name: i for i, name in enumerate(OPERATORS)}
_CLASS = {name: i for i, name in enumerate(OPERATOR_CLASSES)}


@dataclass(frozen=True)
class StepOptions:
    """How a step runs beyond its forward graph.

    ``optimizer``: a key of OPTIMIZERS or RECORDED. ``foreach``: tensors in few kernels (torch 2.0 and later on GPUs).
    ``cache_bytes``: of the cache in which a tensor with its gradient and states waits for the optimizer's next kernel
    where these go tensor by tensor (CPUs). ``autocast``: parameters of 4 bytes are cast to 2 each step and their
    gradients back. ``zero_fill``: gradients are filled with zeros and added to (torch before 2.0).
    ``separate_attention``: attention runs as products and softmax (before 2.0).
    """

    optimizer: str = "momentum"
    foreach: bool = True
    cache_bytes: float = 0.0
    autocast: bool = False
    zero_fill: bool = False
    separate_attention: bool = False

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS and self.optimizer not in RECORDED:
            raise ArgumentError(f"unknown optimizer {self.optimizer!r}; allowed are {', '.join(OPTIMIZERS)}")


@dataclass(frozen=True, eq=False)
class StepColumns(OperatorColumns):
    """Rows of training steps; ``part`` [R] indexes PARTS, ``source`` [R] is the forward row, -1 for none."""

    part: np.ndarray
    source: np.ndarray


@dataclass(frozen=True, eq=False)
class StepTable(StepColumns):
    """The rows of one training step.

    ``parameters`` counts the trained elements, ``tensors`` the parameter tensors that hold them.
    """

    parameters: float
    tensors: float

    @property
    def phase(self) -> np.ndarray:
        """[R] index into `perfpass.graph.traced_step.PHASES`."""
        return PHASE_OF_PART[self.part]


@dataclass(frozen=True, eq=False)
class Steps:
    """N training steps: their rows, and [N] trained elements and parameter tensors."""

    tables: Tables
    parameters: np.ndarray
    tensors: np.ndarray

    @classmethod
    def one(cls, step: StepTable) -> Steps:
        """A single step."""
        return cls(Tables.one(step), np.array([step.parameters]), np.array([step.tensors]))

    def first(self) -> StepTable:
        """The step, where there is but one."""
        columns = {f.name: getattr(self.columns, f.name) for f in fields(StepColumns)}
        return StepTable(**columns, parameters=float(self.parameters[0]), tensors=float(self.tensors[0]))

    @property
    def columns(self) -> StepColumns:
        """The rows of all steps."""
        assert isinstance(self.tables.table, StepColumns)
        return self.tables.table


def _is(table: dict[str, np.ndarray], *names: str) -> np.ndarray:
    return _operators(names)[table["op"].astype(np.intp)]


def _class(table: dict[str, np.ndarray], *names: str) -> np.ndarray:
    return _classes(names)[table["op_class"].astype(np.intp)]


@cache
def _operators(names: tuple[str, ...]) -> np.ndarray:
    """Which of OPERATORS are meant."""
    return np.isin(np.arange(len(OPERATORS)), [_OP[n] for n in names])


@cache
def _classes(names: tuple[str, ...]) -> np.ndarray:
    """Which of OPERATOR_CLASSES are meant."""
    return np.isin(np.arange(len(OPERATOR_CLASSES)), [_CLASS[n] for n in names])


class _Step:
    """A step being written: blocks of rows, each from a mask over the forward table with some columns changed."""

    def __init__(self, table: dict[str, np.ndarray], width: float, input_elements: np.ndarray) -> None:
        self.t = table
        self.width = width
        self.steps = len(input_elements)
        self.graph = table["graph"].astype(np.intp)  # [R]
        self.input_elements = input_elements[self.graph]  # [R] of each row's graph
        self.blocks: list[dict[str, np.ndarray]] = []
        self.x = table["input_elements"] * width  # first input
        self.y = table["output_elements"] * width  # first output
        self.read = table["bytes_read"]
        self.written = table["bytes_written"]
        self.weight = table["weight_bytes"]
        self.marks = table["constant"].astype(np.int64)
        self.passes = (self.marks & frozen.STILL) == 0
        self.learns = self.passes & ((self.marks & frozen.FROZEN) == 0)
        self.wants_data = (self.marks & frozen.NO_DATA) == 0
        # Where something is frozen, what reads the input is known by its mark.
        marked = np.bincount(self.graph, self.marks > 1, self.steps) > 0
        self.marked = marked[self.graph]

    def add(self, mask: np.ndarray, part: int, **changed: Any) -> None:
        """Rows of ``mask`` as ``part``; a changed column is an array over all rows, or a number."""
        rows = np.flatnonzero(mask)
        if not len(rows):
            return
        block = {}
        for name in COLUMNS:
            column = changed.get(name, self.t[name])
            block[name] = column[rows] if isinstance(column, np.ndarray) else np.full(len(rows), column)
        block["graph"] = self.graph[rows]
        block["part"] = np.full(len(rows), part)
        block["source"] = rows
        self.blocks.append(block)

    def moved(self, mask: np.ndarray, part: int, read: Any, written: Any, flops: Any = None, **changed: Any) -> None:
        """Rows that run no product: bytes, and one FLOP per element written unless stated."""
        flops = written / self.width if flops is None else flops
        self.add(
            mask,
            part,
            view=0,
            macs=0,
            flops=flops,
            bytes_read=read,
            bytes_written=written,
            weight_bytes=0,
            **changed,
        )


def _separated(t: dict[str, np.ndarray], width: float) -> dict[str, np.ndarray]:
    """The table with every fused attention as product, scaling, softmax, product."""
    fused = _is(t, "attention") & (t["view"] == 0) & (t["b"] > 0)
    if not fused.any():
        return t
    a = {name: column[fused] for name, column in t.items()}
    scores = a["b"] * a["m"] * a["n"]
    keys, out = a["b"] * a["n"] * a["k"], a["output_elements"]
    value = out / np.maximum(a["b"] * a["m"], 1)  # channels of a value per head
    zero = np.zeros_like(scores)

    def rows(op: str, **changed: Any) -> dict[str, np.ndarray]:
        given = {
            "op": np.full(len(scores), _OP[op]),
            "op_class": np.full(len(scores), OPERATOR_CLASS_OF[_OP[op]]),
            "weight_bytes": zero,
        }
        return a | given | changed

    first = a["macs"] * (a["k"] / np.maximum(a["k"] + value, 1))
    parts = [
        rows(
            "matmul",
            macs=first,
            flops=2 * first,
            bytes_read=(a["input_elements"] + keys) * width,
            bytes_written=scores * width,
            output_elements=scores,
        ),
        rows(
            "mul",
            macs=zero,
            flops=scores,
            bytes_read=scores * width,
            bytes_written=scores * width,
            input_elements=scores,
            output_elements=scores,
            b=zero, m=zero, n=zero, k=zero,
        ),
        rows(
            "softmax",
            macs=zero,
            flops=5 * scores,
            bytes_read=scores * width,
            bytes_written=scores * width,
            input_elements=scores,
            output_elements=scores,
            b=zero, m=zero, n=zero, k=zero,
        ),
        rows(
            "matmul",
            macs=a["macs"] - first,
            flops=2 * (a["macs"] - first),
            bytes_read=(scores + a["b"] * a["n"] * value) * width,
            bytes_written=out * width,
            input_elements=scores,
            n=value,
            k=a["n"],
        ),
    ]  # fmt: skip
    return {name: np.concatenate([t[name][~fused], *(p[name] for p in parts)]) for name in t}


def derive(table: OperatorColumns, options: StepOptions, *, input_elements: float, width: float) -> StepTable:
    """The rows of one training step of the network whose forward table is ``table``.

    ``input_elements``: elements of the graph's inputs at this batch (they need no gradient, so the product that reads
    them has one gradient product less); ``width``: bytes of a floating element as counted in the table. Raises
    ArgumentError for a width that is not positive.
    """
    steps = derive_many(Tables.one(table), options, input_elements=np.array([input_elements]), width=width)
    return steps.first()


def derive_many(tables: Tables, options: StepOptions, *, input_elements: np.ndarray, width: float) -> Steps:
    """The steps of N networks; ``input_elements`` [N]. Raises as `derive` does."""
    if not width > 0:
        raise ArgumentError(f"width must be above 0 bytes, got {width}")
    t = {name: np.asarray(getattr(tables.table, name), dtype=np.float64) for name in COLUMNS}
    t["graph"] = tables.graph.astype(np.float64)
    if options.separate_attention:
        t = _separated(t, width)
    step = _Step(t, width, input_elements)
    step.add(np.ones(len(t["op"]), dtype=bool), FORWARD)
    runs = t["view"] == 0
    done = np.zeros(len(runs), dtype=bool)
    for rule in _RULES:
        done |= rule(step, runs & ~done & step.passes)
    _views(step)
    parameters, tensors = _parameters(step)
    _loss(step)
    _optimizer(step, options, parameters, tensors)
    names = (*COLUMNS, "part", "source", "graph")
    columns = {name: np.concatenate([block[name] for block in step.blocks]) for name in names}
    graph = columns.pop("graph")
    order = np.argsort(graph, kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    for name in ("op", "op_class", "dtype", "view", "part", "source", "kernel_area", "stride", "groups"):
        columns[name] = columns[name].astype(np.int64)
    offset = np.concatenate([[0], np.cumsum(np.bincount(graph, minlength=len(tables)))])
    return Steps(Tables(StepColumns(**columns), offset), parameters, tensors)


def _products_with_weights(step: _Step, open_: np.ndarray) -> np.ndarray:
    t = step.t
    convolution = _class(t, "convolution")
    mask = open_ & ((step.weight > 0) | convolution) & (convolution | _is(t, "dense", "matmul", "einsum", "bilinear"))
    area = np.maximum(t["kernel_area"], 1.0)
    depthwise = convolution & (t["groups"] > 1) & (t["n"] <= 2)
    inner = np.maximum(t["k"] / area, 1.0)
    weight = np.maximum(step.weight, t["b"] * t["n"] * t["k"] * step.width)
    # The first product that reads the input needs no gradient of it (rows stand in the order of the forward pass).
    reading = np.flatnonzero(mask & ~step.marked & (np.abs(t["input_elements"] - step.input_elements) < 0.5))
    stem = reading[np.unique(step.graph[reading], return_index=True)[1]]
    needed = t["count"].copy()
    needed[stem] = np.maximum(needed[stem] - 1, 0)
    data = mask & (needed > 0) & step.wants_data
    step.add(
        data,
        DATA,
        count=needed,
        flops=2 * t["macs"],
        bytes_read=step.y + weight,
        bytes_written=step.x,
        weight_bytes=0,
        input_elements=t["output_elements"],
        output_elements=t["input_elements"],
        m=np.where(convolution, t["input_elements"] / np.maximum(t["b"] * inner, 1.0), t["m"]),
        n=inner,
        k=t["n"] * area,
    )
    step.add(
        mask & step.learns,
        WEIGHT,
        flops=2 * t["macs"],
        bytes_read=step.x + step.y,
        bytes_written=weight,
        weight_bytes=0,
        output_elements=weight / step.width,
        m=np.where(depthwise, t["m"], t["n"]),
        n=np.where(depthwise, t["n"], t["k"]),
        k=np.where(depthwise, t["k"], t["m"]),
    )
    # The gradient of a bias is a sum over all rows.
    biased = mask & step.learns & (step.weight > t["b"] * t["n"] * t["k"] * step.width + 0.5)
    step.moved(
        biased, WEIGHT, step.y, t["b"] * t["n"] * step.width, step.y / step.width,
        op=_OP["reduce_sum"], op_class=_CLASS["reduction"], b=0, m=0, n=0, k=0, kernel_area=0, stride=0, groups=0,
    )  # fmt: skip
    return mask


def _products_of_activations(step: _Step, open_: np.ndarray) -> np.ndarray:
    t = step.t
    mask = open_ & _class(t, "matmul")
    second = np.maximum(step.read - step.x, 0.0)
    shared = {"flops": 2 * t["macs"], "weight_bytes": 0.0, "input_elements": t["output_elements"]}
    step.add(
        mask, DATA, **shared, bytes_read=step.y + second, bytes_written=step.x,
        output_elements=t["input_elements"], n=t["k"], k=t["n"],
    )  # fmt: skip
    step.add(
        mask, DATA, **shared, bytes_read=step.y + step.x, bytes_written=second,
        output_elements=second / step.width, m=t["k"], k=t["m"],
    )  # fmt: skip
    return mask


def _attention(step: _Step, open_: np.ndarray) -> np.ndarray:
    mask = open_ & _class(step.t, "attention")
    # Four products for the two of the forward pass. The scores that fused kernels compute anew are not counted.
    step.add(
        mask, DATA, macs=2 * step.t["macs"], flops=2 * step.t["flops"], bytes_read=2 * (step.read + step.written),
        bytes_written=step.read,
    )  # fmt: skip
    return mask


def _recurrent(step: _Step, open_: np.ndarray) -> np.ndarray:
    mask = open_ & _class(step.t, "recurrent")
    step.add(mask & step.wants_data, DATA, bytes_read=step.read + step.y, bytes_written=step.x, weight_bytes=0)
    # The gradients of the weights are products over all steps at once.
    step.add(
        mask & step.learns, WEIGHT, bytes_read=step.read + step.y, bytes_written=step.weight, weight_bytes=0,
        b=0, m=0, n=0, k=0,
    )  # fmt: skip
    return mask


def _normalizations(step: _Step, open_: np.ndarray) -> np.ndarray:
    mask = open_ & _class(step.t, "normalization")
    step.moved(mask, DATA, step.x + step.y, step.x, step.t["flops"])
    # Batch normalization counts its batches, a kernel of eight bytes.
    counter = mask & _is(step.t, "batch_norm")
    step.moved(counter, FORWARD, 8.0, 8.0, 1.0, op=_OP["add"], op_class=_CLASS["elementwise"], input_elements=1.0)
    return mask


def _activations(step: _Step, open_: np.ndarray) -> np.ndarray:
    mask = open_ & (_class(step.t, "activation", "softmax") | _is(step.t, "exp", "sqrt", "rsqrt", "reciprocal", "abs"))
    mask |= open_ & _is(step.t, "trigonometric", "log", "erf", "neg", "cast")
    step.moved(mask, DATA, step.x + step.y, step.x, 3 * step.x / step.width)
    return mask


def _additions(step: _Step, open_: np.ndarray) -> np.ndarray:
    mask = open_ & _is(step.t, "add", "sub")
    second = np.maximum(step.read - step.x, 0.0)
    whole = np.abs(second - step.y) < 0.5 * step.width
    # Both operands of full size: the gradient passes through, and is summed where the skipped input was forked.
    step.moved(mask & whole & (step.weight == 0), DATA, 2 * step.y, step.y, op=_OP["add"])
    smaller = mask & ~whole & (second > 0)
    step.moved(smaller, DATA, step.y, second, step.y / step.width, op=_OP["reduce_sum"], op_class=_CLASS["reduction"])
    return mask


def _multiplications(step: _Step, open_: np.ndarray) -> np.ndarray:
    mask = open_ & _class(step.t, "elementwise") & ~_is(step.t, "compare", "logical", "bitwise", "sign", "is_special")
    mask &= ~_is(step.t, "round")
    second = np.maximum(step.read - step.x, 0.0)
    one = mask & (second < 0.5 * step.width)
    two = mask & ~one
    step.moved(one, DATA, step.y, step.x)
    larger = np.maximum(step.x, second)
    step.moved(two, DATA, 2 * step.y + step.read, step.y + larger, count=2 * step.t["count"] / 2)
    broadcast = two & (np.minimum(step.x, second) < 0.75 * step.y)
    step.moved(
        broadcast, DATA, step.y, np.minimum(step.x, second), step.y / step.width,
        op=_OP["reduce_sum"], op_class=_CLASS["reduction"],
    )  # fmt: skip
    # A gate is made of what it scales (squeeze and excitation): the two gradients of that are summed.
    step.moved(broadcast & (step.weight == 0), DATA, 2 * step.y, step.y, op=_OP["add"])
    return mask


def _pooling(step: _Step, open_: np.ndarray) -> np.ndarray:
    mask = open_ & _class(step.t, "pooling")
    # Maxima are found by their indices of 8 bytes, and the input is handed over too.
    more = np.where(_is(step.t, "max_pool"), 8.0 * step.t["output_elements"] + step.x, 0.0)
    step.moved(mask, DATA, step.y + more, step.x)
    return mask


def _movements(step: _Step, open_: np.ndarray) -> np.ndarray:
    """Reductions spread their gradient; copies, paddings and resizes move it back; gathers scatter it."""
    mask = open_ & _class(step.t, "reduction", "data_movement", "resize", "gather", "sort", "signal", "unknown")
    mask &= ~_is(step.t, "identity", "reduce_any", "arg_reduce", "dropout")
    # A gather of indices or constants has no gradient, but that cannot be seen here.
    moved = np.where(_is(step.t, "concat", "split"), step.written, step.x)
    # The gradient of an interpolation has a thread for each element, not for each pixel (UpSampleBilinear2d.cu).
    step.moved(mask, DATA, step.y, np.maximum(moved, step.weight), b=0, m=0)
    return mask


_RULES: tuple[Callable[[_Step, np.ndarray], np.ndarray], ...] = (
    _products_with_weights,
    _products_of_activations,
    _attention,
    _recurrent,
    _normalizations,
    _activations,
    _additions,
    _multiplications,
    _pooling,
    _movements,
)


def _views(step: _Step) -> None:
    """Views move nothing forward; backward, parts are put together again and what was expanded is summed.

    A weight that a product reads through views belongs to the product, whose own gradient is summed over all samples.
    """
    t = step.t
    view = (t["view"] != 0) & step.passes
    parts = view & _is(t, "split", "slice", "unfold", "gather")
    step.moved(parts, DATA, step.x, step.x, 0.0)
    of_product = ((step.marks & 1) != 0) & (step.weight == 0)
    expanded = view & _is(t, "expand", "tile") & (t["output_elements"] > t["input_elements"]) & ~of_product
    step.moved(expanded, DATA, step.y, step.x, step.y / step.width, op=_OP["reduce_sum"], op_class=_CLASS["reduction"])


def _parameters(step: _Step) -> tuple[np.ndarray, np.ndarray]:
    """[N] trained elements and their tensors. Half of a batch normalization's tensors are running statistics."""
    t, width = step.t, step.width
    norm = _is(t, "batch_norm")
    elements = t["weight_bytes"] / width * np.where(norm, 0.5, 1.0) * step.learns
    biased = t["weight_bytes"] > t["b"] * t["n"] * t["k"] * width + 0.5
    tensors = np.where(_class(t, "normalization"), 2.0, 1.0 + (biased & (t["k"] > 0)))
    held = (t["weight_bytes"] > 0) & step.learns
    return (
        np.bincount(step.graph, elements * t["count"], step.steps),
        np.bincount(step.graph, tensors * held * t["count"], step.steps),
    )


def _row(
    step: _Step, part: int, op: str, count: np.ndarray, read: np.ndarray, written: np.ndarray, flops: np.ndarray
) -> None:
    """A row without a forward operator for every step that runs it, from totals [N]."""
    graph = np.flatnonzero(count > 0)
    if not len(graph):
        return
    each = count[graph]
    block: dict[str, np.ndarray] = {name: np.zeros(len(graph)) for name in COLUMNS}
    block["op"][:], block["op_class"][:] = _OP[op], OPERATOR_CLASS_OF[_OP[op]]
    block |= {
        "count": each,
        "bytes_read": read[graph] / each,
        "bytes_written": written[graph] / each,
        "flops": flops[graph] / each,
        "input_elements": read[graph] / each / 4,
        "output_elements": written[graph] / each / 4,
        "graph": graph,
        "part": np.full(len(graph), part),
        "source": np.full(len(graph), -1),
    }
    step.blocks.append(block)


def _loss(step: _Step) -> None:
    """Cross entropy over the logits (the last product's output): log-softmax, selection, and back."""
    products = np.flatnonzero(_class(step.t, "matmul", "convolution"))
    logits, twice = np.full(step.steps, 4.0), np.full(step.steps, 2.0)
    logits[step.graph[products]] = step.y[products]  # of several, the last
    _row(step, FORWARD, "loss", twice, 2 * logits, logits, 6 * logits / step.width)
    _row(step, DATA, "loss", twice, 3 * logits, 2 * logits, 4 * logits / step.width)


def _optimizer(step: _Step, options: StepOptions, parameters: np.ndarray, tensors: np.ndarray) -> None:
    held, nothing = 4.0 * parameters, np.zeros(step.steps)
    optimizer = (OPTIMIZERS | RECORDED)[options.optimizer]
    if options.autocast:
        _row(step, FORWARD, "cast", tensors, held, held / 2, parameters)
        _row(step, WEIGHT, "cast", tensors, held / 2, held, parameters)
    if options.zero_fill:
        _row(step, OPTIMIZER, "fill", tensors, nothing, held, nothing)
        _row(step, WEIGHT, "add", tensors, 2 * held, held, parameters)
    if not optimizer.kernels:
        return
    # foreach kernels take some hundred tensors each.
    launches = optimizer.kernels * (np.ceil(tensors / 100) if options.foreach else tensors)
    read, written = np.float64(optimizer.read), np.float64(optimizer.written)
    if not options.foreach and options.cache_bytes:
        of_tensor = (2 + optimizer.states) * held / np.maximum(tensors, 1)
        missed = 1 - np.minimum(options.cache_bytes / np.maximum(of_tensor, 1), 1)
        read = optimizer.fused_read + missed * (read - optimizer.fused_read)
        written = optimizer.fused_written + missed * (written - optimizer.fused_written)
    _row(step, OPTIMIZER, "add", launches, read * held, written * held, optimizer.flops * parameters)
