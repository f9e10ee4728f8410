"""Operators that a user describes: shapes, work and bytes of what no reader knows, as formulas of its inputs.

A description names a canonical operator that it resembles, whose kernels its time is predicted by; MACs, FLOPs and
bytes that it states take the place of what that operator would count. Descriptions come from a TOML file (`add_file`,
``--operators``), from Python (`declare_operator`) or from another package (entry points `perfpass.operators`), and hold
for every model that the process reads (docs/guides/operators.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass import extensions
from perfpass.declared import Choice, Items, Kind, Named, Table, Text
from perfpass.errors import ArgumentError, ShapeError, UnsupportedError, about
from perfpass.graph import ATTRIBUTES, DTYPES, OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS, OpGraph
from perfpass.graph.formula import LONGEST, Formula, Tensors, TensorType
from perfpass.text import shown_value, unknown
from perfpass.toml_table import read_toml

GROUP = "perfpass.operators"
FILES = "PERFPASS_OPERATORS"  # files of every process, with the separator of PATH between them
COSTS = ("macs", "flops", "bytes_read", "bytes_written")
_UNSTATED = -1
_MOST = 1000
_WITH_MACS = ("convolution", "matmul", "attention", "recurrent")
_LIKE = re.compile(r"x\[(\d{1,3})\]")
_MOST_PASSES = 4096  # over all its tensors in one execution: more bytes are those of a whole network


class _Expression(Kind):
    """A formula as text, or a whole number."""

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))

    def expected(self) -> str:
        return f"it is a whole number, or a formula of up to {LONGEST} characters"


_OUTPUT = Table({"like": Text(10), "shape": Items(_Expression(), 16), "dtype": Choice(tuple(DTYPES[1:]))})
_OPERATOR = Table(
    {
        "resembles": Choice(tuple(OPERATORS[1:])),
        "outputs": Items(_OUTPUT, 64, 1),
        **{name: _Expression() for name in COSTS},
        "attributes": Named(_Expression(), 40),
    },
    ("resembles",),
)
_FILE = Table({"operator": Named(_OPERATOR, _MOST, 1)}, ("operator",))


@dataclass(frozen=True)
class Output:
    """One output: the type and shape of input ``like``, or ``shape`` and ``dtype`` ("": that of the first input)."""

    like: int | None
    shape: tuple[Formula, ...]
    dtype: str

    def type(self, name: str, inputs: Tensors) -> tuple[str, tuple[int, ...]]:
        """Its type and shape, given the inputs of a node of operator ``name`` and its attributes."""
        first = inputs[self.like or 0] if len(inputs) > (self.like or 0) else None
        if first is None and (self.like is not None or not self.dtype):
            raise ArgumentError(f"{name}: an output is like x[{self.like or 0}], which this node leaves out")
        return (self.dtype or first.dtype, () if self.like is None or first is None else first.shape)  # type: ignore[union-attr]


@dataclass(frozen=True)
class Operator:
    """A described operator; ``name`` as `perfpass inspect` shows it ("com.example::Gated", "mine.gated").

    ``costs``: those of `COSTS` that are stated. ``attributes``: columns of the canonical operator it ``resembles``.
    """

    name: str
    resembles: str
    outputs: tuple[Output, ...] = ()
    costs: Mapping[str, Formula] = field(default_factory=dict)
    attributes: Mapping[str, Formula] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, name: str, values: Mapping[str, Any], where: str = "") -> Operator:
        """What a file or `declare_operator` states. Raises ArgumentError, LimitError."""
        if not isinstance(name, str) or not name.strip() or len(name) > 200:
            raise ArgumentError(
                f"{where}the name of an operator is a text of 1 to 200 characters, not {shown_value(name)}"
            )
        found = _OPERATOR.take(values, f"{where}operator {name}", ArgumentError)
        start = f"{where}operator {name}: "
        for column in found.get("attributes", {}):
            if column not in ATTRIBUTES:
                raise ArgumentError(start + unknown("attribute", column, ATTRIBUTES))
        return cls(
            name,
            found["resembles"],
            tuple(_output(one, f"{start}output {i}") for i, one in enumerate(found.get("outputs", ()))),
            {key: Formula(found[key], start + key) for key in COSTS if key in found},
            {key: Formula(value, start + key) for key, value in found.get("attributes", {}).items()},
        )

    def types(self, inputs: Tensors, attributes: Mapping[str, Any]) -> list[tuple[str, list[int]]]:
        """The types and shapes of a node's outputs, none where nothing is stated of them. Raises as `Formula.value`."""
        found = []
        for one in self.outputs:
            dtype, shape = one.type(self.name, inputs)
            found.append((dtype, list(shape) or [f.value(inputs, (), attributes) for f in one.shape]))
        return found

    def stated(
        self, inputs: Tensors, outputs: Tensors, attributes: Mapping[str, Any]
    ) -> tuple[dict[str, int], tuple[int, ...]]:
        """The canonical operator's attributes, and `COSTS` (-1: as it counts). Raises as `Formula.value`."""
        columns = {name: formula.value(inputs, outputs, attributes) for name, formula in self.attributes.items()}
        costs = {name: formula.value(inputs, outputs, attributes) for name, formula in self.costs.items()}
        product = OPERATOR_CLASSES[int(OPERATOR_CLASS_OF[OPERATORS.index(self.resembles)])] in _WITH_MACS
        if "macs" in costs:
            costs.setdefault("flops", 2 * costs["macs"])
        elif "flops" in costs:
            costs["macs"] = costs["flops"] // 2 if product else 0
        if costs.get("flops", 0) < 2 * costs.get("macs", 0):
            raise ArgumentError(
                f"operator {self.name}: {costs['flops']} FLOPs and {costs['macs']} MACs; a MAC is two FLOPs"
            )
        held = sum(t.bytes for t in (*inputs, *outputs) if t is not None)
        for name in ("bytes_read", "bytes_written"):
            if costs.get(name, 0) > _MOST_PASSES * (held + 1):
                raise ArgumentError(
                    f"operator {self.name}: {name} {costs[name]} is over {_MOST_PASSES} times the {held} bytes of its "
                    "tensors; state bytes, of one execution"
                )
        return columns, tuple(costs.get(name, _UNSTATED) for name in COSTS)


def _output(values: Mapping[str, Any], where: str) -> Output:
    if ("like" in values) == ("shape" in values):
        raise ArgumentError(f'{where} states neither or both of like and shape; write like = "x[0]", or a shape')
    if "like" not in values:
        return Output(None, tuple(Formula(d, f"{where}, shape") for d in values["shape"]), values.get("dtype", ""))
    if not (found := _LIKE.fullmatch(values["like"])):
        raise ArgumentError(f"{where} is like {shown_value(values['like'])}; it is like an input, as x[0]")
    return Output(int(found[1]), (), values.get("dtype", ""))


def declare_operator(
    name: str,
    *,
    resembles: str,
    outputs: Sequence[Mapping[str, Any]] = (),
    macs: str | int | None = None,
    flops: str | int | None = None,
    bytes_read: str | int | None = None,
    bytes_written: str | int | None = None,
    attributes: Mapping[str, str | int] | None = None,
) -> Operator:
    """Describes an operator that no reader knows, for every model that this process reads from now on.

    ``name``: as `perfpass inspect` shows it. ``resembles``: the canonical operator whose kernels it runs like.
    ``outputs``, where no reader knows them: ``{"like": "x[0]"}``, or ``{"shape": ["x[0].shape[0]", "heads * 64"]}``
    with a ``dtype`` if that is not the first input's. ``macs``, ``flops``, ``bytes_read``, ``bytes_written`` of one
    execution, in the types that its tensors have: formulas of `perfpass.graph.formula`. ``attributes``: columns of the
    canonical operator (``num_heads``, ``groups``, ...). What is not stated is counted as of the canonical operator.

    Raises ArgumentError and LimitError for what is no such description.
    """
    given = dict(zip(COSTS, (macs, flops, bytes_read, bytes_written), strict=True))
    values: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    values |= {"resembles": resembles, "attributes": dict(attributes or {})}
    found = Operator.from_dict(name, values | ({"outputs": list(outputs)} if outputs else {}))
    extensions.register(GROUP, name, found)
    return found


def add_file(path: str | os.PathLike[str]) -> tuple[Operator, ...]:
    """Describes the operators of a TOML file for this process, and returns them.

    Raises FileError, FormatError, ArgumentError, LimitError.
    """
    with about(path):
        content = _FILE.take(read_toml(Path(path), "a file of operators"), str(path))
        found = tuple(Operator.from_dict(name, one, f"{path}: ") for name, one in content["operator"].items())
    for one in found:
        extensions.register(GROUP, one.name, one)
    return found


def described() -> bool:
    """Whether any operator is; files that the environment names are read now. Raises what `add_file` does."""
    _of_environment(os.environ.get(FILES, ""))
    return bool(extensions.names(GROUP))


@cache
def _of_environment(files: str) -> None:
    for path in filter(None, files.split(os.pathsep)):
        add_file(Path(path).expanduser())


def _find(name: str) -> Operator | None:
    _of_environment(os.environ.get(FILES, ""))
    found = extensions.find(GROUP, name)
    if found is not None and not isinstance(found, Operator):
        raise UnsupportedError(f"operator {name}: what another package declares for it is no description (`Operator`)")
    return found


_Types = Sequence[tuple[str, Sequence[int]] | None]  # of tensors, with their shapes, as readers have them


def _types(tensors: _Types) -> list[TensorType | None]:
    return [None if t is None else TensorType(t[0], tuple(t[1])) for t in tensors]


def outputs_of(
    name: str, inputs: _Types, attributes: Mapping[str, Any], count: int
) -> list[tuple[str, list[int]]] | None:
    """Types and shapes of the ``count`` outputs of an operator that a reader does not know; None where none are
    described. Raises as `Formula.value`, and ShapeError for another number of outputs.
    """
    found = _find(name)
    if found is None or not found.outputs:
        return None
    if len(found.outputs) != count:
        raise ShapeError(f"operator {name}: {len(found.outputs)} outputs are described; a node of it has {count}")
    return found.types(_types(inputs), attributes)


def lowered(
    name: str, inputs: _Types, outputs: _Types, attributes: Mapping[str, Any]
) -> tuple[str, dict[str, int], tuple[int, ...]] | None:
    """The canonical operator of a node that a reader does not know, its attributes and `COSTS`; None where nothing
    describes it. Raises as `Formula.value`.
    """
    found = _find(name)
    if found is None:
        return None
    return (found.resembles, *found.stated(_types(inputs), _types(outputs), attributes))


def applied(graph: OpGraph) -> OpGraph:
    """``graph``, its unknown operators as they are described; those that nothing describes stay unknown.

    Attributes of the source are not known any more here. Raises as `Formula.value`.
    """
    found = []
    for node in np.flatnonzero(graph.op == 0).tolist():
        operator = _find(graph.source_op_name(node))
        if operator is not None:
            reads, writes = (_tensors(graph, ids) for ids in (graph.node_inputs(node), graph.node_outputs(node)))
            found.append((node, operator.resembles, *operator.stated(reads, writes, {})))
    return replace(graph, core=graph.core.with_stated(found)) if found else graph


def _tensors(graph: OpGraph, ids: np.ndarray) -> list[TensorType | None]:
    return [None if t < 0 else TensorType(DTYPES[int(graph.tensor_dtype[t])], graph.shape(t)) for t in ids.tolist()]
