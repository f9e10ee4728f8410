"""What changed between two versions of a model: operators and named tensors, added, removed or changed.

Nodes are matched twice, by a longest common subsequence of what they are with their names, and of what they are alone:
exporters number nodes, so that one more shifts all names behind it. Of both the match with fewer differences counts.
What is left between two matched nodes is matched by name, then by operator; what stands elsewhere, by its name alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from perfpass.graph.difference import common_subsequence
from perfpass.graph.opgraph import ATTRIBUTES, DTYPES, ROLES, OpGraph

Kind = Literal["added", "removed", "changed"]
_UNSET = np.iinfo(np.int32).min


@dataclass(frozen=True)
class Change:
    """One operator or tensor: its name, what it is (operator, or role of the tensor), and what differs, in words.

    ``old`` and ``new``: its index in either graph (node or tensor), None where it is not there.
    """

    kind: Kind
    name: str
    what: str
    differences: tuple[str, ...]
    old: int | None
    new: int | None

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**asdict(self), "differences": list(self.differences)}


@dataclass(frozen=True)
class Changes:
    """Everything that differs between two graphs, and how many nodes are the same in both."""

    operators: tuple[Change, ...]
    tensors: tuple[Change, ...]
    same_operators: int

    def __bool__(self) -> bool:
        return bool(self.operators or self.tensors)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "same_operators": self.same_operators,
            "operators": [change.to_dict() for change in self.operators],
            "tensors": [change.to_dict() for change in self.tensors],
        }


def changes(old: OpGraph, new: OpGraph) -> Changes:
    """What changed from ``old`` to ``new``; nothing where both compute the same by the same operators."""
    sides = _Side(old), _Side(new)
    found = min((_matched(*sides, key) for key in (_with_name, _alone)), key=lambda pairs: _differences(*sides, pairs))
    operators = []
    partner = {j: i for i, j in found}
    kept = {i for i, _ in found}
    operators += [_lone("removed", sides[0], i) for i in range(len(sides[0])) if i not in kept]
    for j in range(len(sides[1])):
        if (i := partner.get(j)) is None:
            operators.append(_lone("added", sides[1], j))
        elif differs := sides[0].differences(i, sides[1], j):
            name, what = sides[1].names[j], sides[1].sources[j]
            operators.append(Change("changed", name, what, differs, i, j))
    same = len(found) - sum(change.kind == "changed" for change in operators)
    return Changes(tuple(operators), _tensors(old, new), same)


def _lone(kind: Kind, side: _Side, node: int) -> Change:
    old, new = (node, None) if kind == "removed" else (None, node)
    return Change(kind, side.names[node], side.sources[node], (), old, new)


class _Side:
    """One graph's nodes as what can be compared."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        nodes = range(graph.node_count)
        self.names = [graph.label(i) for i in nodes]
        self.sources = [graph.source_op_name(i) for i in nodes]
        self.operators = graph.op.tolist()
        self._types = [
            (DTYPES[d], graph.shape(t), ROLES[r] if p < 0 else "")
            for t, (d, r, p) in enumerate(
                zip(graph.tensor_dtype.tolist(), graph.tensor_role.tolist(), graph.producer.tolist(), strict=True)
            )
        ]
        self.reads = [tuple(self._type(t) for t in graph.node_inputs(i).tolist()) for i in nodes]
        self.writes = [tuple(self._type(t) for t in graph.node_outputs(i).tolist()) for i in nodes]
        attributes, repeats = np.asarray(graph.attributes), graph.repeat.tolist()
        self.what: list[Hashable] = [
            (self.operators[i], self.sources[i], attributes[i].tobytes(), repeats[i], self.reads[i], self.writes[i])
            for i in nodes
        ]

    def __len__(self) -> int:
        return len(self.names)

    def _type(self, tensor: int) -> tuple[str, tuple[int, ...], str] | None:
        return None if tensor < 0 else self._types[tensor]

    def differences(self, node: int, other: _Side, its: int) -> tuple[str, ...]:
        """What differs between a node and its partner, in words."""
        if self.what[node] == other.what[its]:
            return ()
        found = []
        if self.sources[node] != other.sources[its]:
            found.append(f"operator {self.sources[node]} -> {other.sources[its]}")
        mine, theirs = (np.asarray(s.graph.attributes)[i].tolist() for s, i in ((self, node), (other, its)))
        for name, a, b in zip(ATTRIBUTES, mine, theirs, strict=True):
            if a != b:
                found.append(f"{name} {_value(a)} -> {_value(b)}")
        times = [int(s.graph.repeat[i]) for s, i in ((self, node), (other, its))]
        if times[0] != times[1]:
            found.append(f"runs {times[0]} -> {times[1]}")
        for what, a_types, b_types in (
            ("input", self.reads[node], other.reads[its]), ("output", self.writes[node], other.writes[its])
        ):  # fmt: skip
            if len(a_types) != len(b_types):
                found.append(f"{what}s {len(a_types)} -> {len(b_types)}")
            pairs = zip(a_types, b_types, strict=False)
            found += [f"{what} {at} {_type(a)} -> {_type(b)}" for at, (a, b) in enumerate(pairs) if a != b]
        return tuple(found)


def _value(value: int) -> str:
    return "unset" if value == _UNSET else str(value)


def _type(found: tuple[str, tuple[int, ...], str] | None) -> str:
    if found is None:
        return "absent"
    dtype, shape, role = found
    text = f"{dtype} {'x'.join(map(str, shape)) or 'scalar'}"
    return f"{text} ({role})" if role else text


Key = Callable[[_Side, int], Hashable]


def _with_name(side: _Side, node: int) -> Hashable:
    return side.names[node], side.what[node]


def _alone(side: _Side, node: int) -> Hashable:
    return side.what[node]


def _differences(old: _Side, new: _Side, pairs: Sequence[tuple[int, int]]) -> int:
    changed = sum(old.what[i] != new.what[j] for i, j in pairs)
    return len(old) + len(new) - 2 * len(pairs) + changed


def _matched(old: _Side, new: _Side, first: Key) -> list[tuple[int, int]]:
    """Pairs of nodes; by ``first``, then between each two pairs by less and less, then wherever a name is found."""
    pairs: list[tuple[int, int]] = []
    for key in dict.fromkeys((first, _alone, _name, _operator)):
        pairs = _between(old, new, pairs, key)
    left, right = (set(range(len(side))) - {pair[at] for pair in pairs} for at, side in enumerate((old, new)))
    waiting = {_name(new, j): j for j in _once(new, right)}
    return [*pairs, *((i, waiting[_name(old, i)]) for i in _once(old, left) if _name(old, i) in waiting)]


def _name(side: _Side, node: int) -> Hashable:
    return side.names[node], side.operators[node]


def _operator(side: _Side, node: int) -> Hashable:
    return side.operators[node], side.sources[node]


def _once(side: _Side, nodes: set[int]) -> list[int]:
    """Those of ``nodes`` whose name no other one has."""
    count = Counter(_name(side, node) for node in nodes)
    return [node for node in sorted(nodes) if count[_name(side, node)] == 1]


def _between(old: _Side, new: _Side, pairs: list[tuple[int, int]], key: Key) -> list[tuple[int, int]]:
    """``pairs``, and those that ``key`` finds between each two of them."""
    found = []
    at, beside = 0, 0
    for i, j in (*pairs, (len(old), len(new))):
        if at < i and beside < j:
            a, b = [key(old, x) for x in range(at, i)], [key(new, y) for y in range(beside, j)]
            found += [(at + x, beside + y) for x, y in _common(a, b)]
        if i < len(old):
            found.append((i, j))
        at, beside = i + 1, j + 1
    return found


def _common(a: list[Hashable], b: list[Hashable]) -> list[tuple[int, int]]:
    """`common_subsequence`, what both begin and end with taken without a search."""
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    middle = common_subsequence(a[head : len(a) - tail], b[head : len(b) - tail])
    return [
        *((x, x) for x in range(head)),
        *((head + x, head + y) for x, y in middle),
        *((len(a) - tail + x, len(b) - tail + x) for x in range(tail)),
    ]


def _tensors(old: OpGraph, new: OpGraph) -> tuple[Change, ...]:
    """Inputs, outputs and weights by their names; literals and what flows between operators are the operators' own."""
    before, after = _named_tensors(old), _named_tensors(new)
    found: list[Change] = []
    for key, (tensor, kind) in before.items():
        if key not in after:
            found.append(Change("removed", key[1], key[0], (kind,), tensor, None))
        elif after[key][1] != kind:
            found.append(Change("changed", key[1], key[0], (f"{kind} -> {after[key][1]}",), tensor, after[key][0]))
    found += [
        Change("added", key[1], key[0], (kind,), None, tensor)
        for key, (tensor, kind) in after.items()
        if key not in before
    ]
    return tuple(found)


def _named_tensors(graph: OpGraph) -> dict[tuple[str, str], tuple[int, str]]:
    """By role and name: the tensor, and its type in words. Tensors without a name are called by their place."""
    weights = np.flatnonzero(graph.tensor_role == ROLES.index("weight")).tolist()
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for role, tensors in (
        ("input", graph.graph_inputs.tolist()), ("output", graph.graph_outputs.tolist()), ("weight", weights)
    ):  # fmt: skip
        for place, tensor in enumerate(tensors):
            name = graph.core.string(int(graph.core.tensor_name[tensor])) or f"{role} {place}"
            dtype = DTYPES[int(graph.tensor_dtype[tensor])]
            found[role, name] = tensor, _type((dtype, graph.shape(tensor), ""))
    return found
