"""The same model through several readers: which features agree, and what every difference is.

Both graphs are put into one order (depth first from the outputs on, along the data flow), constant parts and views set
aside, and the rest is aligned: operators with MACs first, then the others between each two of them. What stays without
a partner forms blocks between two aligned operators, and a block is called explained only if its MACs are the same on
both sides and the tensor that leaves it has as many elements (docs/internals/readers.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from perfpass.declared import Exactly, Flag, Items, Number, Table, Text
from perfpass.errors import FormatError

if TYPE_CHECKING:
    from perfpass.graph.opgraph import OpGraph

SCHEMA_VERSION = 1
FEATURES = ("macs", "parameters", "weight_bytes", "flops", "bytes_read", "bytes_written", "nodes", "edges")
# Of one size before and after, and no arithmetic: what a compiler folds away or a frontend puts in.
_VIEWS = frozenset({"reshape", "transpose", "identity", "copy", "cast", "dropout"})
_FAMILY = {"dense": "matmul", "einsum": "matmul", "embedding": "gather", "split": "slice"}
# Linear in what flows through: with a constant operand, the weights or the bias of a neighbour can hold them.
_LINEAR = frozenset({"add", "sub", "mul", "div", "batch_norm", "quantize", "dequantize", "dynamic_quantize"})

# Runs of operators that a difference lists before it only counts them.
_LONGEST_PATTERN = 12


@dataclass(frozen=True)
class Node:
    """An operator: its counts, the elements of its first output and of its largest operand, and the nodes it reads.

    ``operands`` are those that are no constants.
    """

    op: str
    kind: str
    source_op: str
    name: str
    elements: int
    operands: int
    largest_operand: int
    macs: int
    flops: int
    moved_bytes: int
    parameters: int
    reads: tuple[int, ...]
    folds: bool
    view: bool


_MOST_NODES = 2**20
_LONGEST_NAME = 2**16
_COUNT = Number(0, 2**63, whole=True)
_INDEX = Number(0, _MOST_NODES, whole=True)
_NODE = Table(
    {
        **dict.fromkeys(("op", "kind", "source_op", "name"), Text(_LONGEST_NAME, empty=True, lines=True)),
        **dict.fromkeys(("elements", "operands", "largest_operand"), _COUNT),
        **dict.fromkeys(("macs", "flops", "moved_bytes", "parameters"), _COUNT),
        "reads": Items(_INDEX, _MOST_NODES),
        **dict.fromkeys(("folds", "view"), Flag()),
    },
    tuple(field.name for field in fields(Node)),
)
_SUMMARY = Table(
    {
        "schema_version": Exactly(SCHEMA_VERSION),
        **dict.fromkeys(("reader", "version"), Text(empty=True)),
        "totals": Table(dict.fromkeys(FEATURES, _COUNT), FEATURES),
        "nodes": Items(_NODE, _MOST_NODES),
        "outputs": Items(_INDEX, _MOST_NODES),
    },
    ("schema_version", "reader", "version", "totals", "nodes", "outputs"),
)


@dataclass(frozen=True)
class Summary:
    """A graph as one reader sees it; JSON by `to_dict`, so that readers may run in other environments."""

    reader: str
    version: str
    totals: dict[str, int]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, found: Any) -> Summary:
        """What `to_dict` gave. Raises FormatError."""
        _SUMMARY.check(found, "", "a graph summary", FormatError)
        nodes = tuple(Node(**{**node, "reads": tuple(node["reads"])}) for node in found["nodes"])
        made = cls(found["reader"], found["version"], found["totals"], nodes, tuple(found["outputs"]))
        # In the order of execution: a node reads what stands before it.
        valid = all(i < place for place, node in enumerate(nodes) for i in node.reads)
        if not valid or not all(i < len(nodes) for i in made.outputs):
            raise FormatError("a graph summary whose parts do not fit one another")
        return made


@dataclass
class Difference:
    """One kind of difference: what it is, how often it occurs, and which nodes it concerns."""

    kind: str
    what: str
    count: int = 0
    reference_nodes: list[str] = field(default_factory=list)
    other_nodes: list[str] = field(default_factory=list)
    flops: int = 0
    moved_bytes: int = 0
    parameters: int = 0


@dataclass(frozen=True)
class Comparison:
    """One reader against another: ``features`` as (reference, other), differences by kind, and what nothing explains.

    ``aligned`` operators have a partner; ``flops``, ``moved_bytes`` and
    ``parameters`` of a difference are other minus reference; over all differences they add up to that of the totals.
    """

    reference: str
    other: str
    features: dict[str, tuple[int, int]]
    aligned: int
    differences: tuple[Difference, ...]
    unexplained: tuple[Difference, ...]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return asdict(self)


def summarise(graph: OpGraph, reader: str, version: str = "") -> Summary:
    """A graph as `compare` needs it. Raises what counting its costs raises."""
    from perfpass import _core
    from perfpass.graph import OPERATOR_CLASS_OF, OPERATOR_CLASSES, ROLES, costs

    counted = costs.count(graph)
    constant = {ROLES.index("weight"), ROLES.index("literal")}
    producer, role = graph.producer.tolist(), graph.tensor_role.tolist()
    fixed = _core.fixed_nodes(graph.core).tolist()
    columns = [c.tolist() for c in (counted.macs, counted.flops, counted.bytes_read, counted.bytes_written)]
    parameters = counted.parameters.tolist()
    nodes: list[Node] = []
    for index in range(graph.node_count):
        inputs = [int(t) for t in graph.node_inputs(index) if t >= 0]
        outputs = [int(t) for t in graph.node_outputs(index) if t >= 0]
        reads = tuple(producer[t] for t in inputs if producer[t] >= 0)
        op = graph.op_name(index)
        varying = [role[t] not in constant if producer[t] < 0 else not fixed[producer[t]] for t in inputs]
        elements = _elements(graph, outputs)
        macs, flops, read, written = (column[index] for column in columns)
        nodes.append(
            Node(
                op=op,
                kind=OPERATOR_CLASSES[int(OPERATOR_CLASS_OF[graph.op[index]])],
                source_op=graph.source_op_name(index),
                name=graph.label(index),
                elements=elements,
                operands=sum(varying),
                largest_operand=max((_elements(graph, [t]) for t in inputs), default=0),
                macs=macs,
                flops=flops,
                moved_bytes=read + written,
                parameters=parameters[index],
                reads=reads,
                folds=bool(fixed[index]),
                view=op in _VIEWS and any(_elements(graph, [t]) == elements for t in inputs[:1]),
            )
        )
    totals = {name: int(counted.totals[name]) for name in FEATURES if name in counted.totals}
    totals |= {"nodes": int(graph.node_count), "edges": int(graph.edge_count)}
    ends = tuple(dict.fromkeys(producer[int(t)] for t in graph.graph_outputs if producer[int(t)] >= 0))
    return Summary(reader, version, totals, tuple(nodes), ends)


def _elements(graph: OpGraph, tensors: Sequence[int]) -> int:
    count = 1 if tensors else 0
    for size in graph.shape(tensors[0]) if tensors else ():
        count *= size
    return count


def compare(reference: Summary, other: Summary) -> Comparison:
    """What differs between two readings of the same model."""
    found = _Differences(reference, other)
    left, right = _order(reference), _order(other)
    for kind, a, b in _set_aside(reference, left, other, right):
        found.set_aside(kind, a, b)
    pairs = _aligned([reference.nodes[i] for i in left], [other.nodes[i] for i in right])
    for i, j in pairs:
        found.pair(left[i], right[j])
    at, beside = 0, 0
    for i, j in (*pairs, (len(left), len(right))):
        if at < i or beside < j:
            following = reference.nodes[left[i]].op if i < len(left) else ""
            found.block(left[at:i], right[beside:j], following)
        at, beside = i + 1, j + 1
    features = {name: (reference.totals[name], other.totals[name]) for name in FEATURES}
    return Comparison(
        reference.reader,
        other.reader,
        features,
        len(pairs),
        tuple(d for d in found.all() if d.kind != "unexplained"),
        tuple(d for d in found.all() if d.kind == "unexplained"),
    )


def _order(summary: Summary) -> list[int]:
    """Operators that compute something, each after what it reads, depth first from the outputs on."""
    seen: set[int] = set()
    order: list[int] = []
    stack = [(node, False) for node in reversed(summary.outputs)]
    while stack:
        index, done = stack.pop()
        node = summary.nodes[index]
        if done:
            if not node.view:
                order.append(index)
        elif index not in seen and not node.folds:
            seen.add(index)
            stack.append((index, True))
            stack.extend((read, False) for read in reversed(node.reads) if read not in seen)
    return order


def _set_aside(
    reference: Summary, left: Sequence[int], other: Summary, right: Sequence[int]
) -> Iterable[tuple[str, Node | None, Node | None]]:
    """What takes no part in the alignment (constants, views, what no output needs), with its like where it has one."""
    waiting: dict[tuple[str, str, int], list[Node]] = {}
    for kind, node in _beside(other, set(right)):
        waiting.setdefault((kind, node.op, node.elements), []).append(node)
    for kind, node in _beside(reference, set(left)):
        alike = waiting.get((kind, node.op, node.elements))
        yield kind, node, alike.pop(0) if alike else None
    for (kind, _, _), nodes in waiting.items():
        yield from ((kind, None, node) for node in nodes)


def _beside(summary: Summary, ordered: set[int]) -> Iterable[tuple[str, Node]]:
    needed = _needed(summary)
    for index, node in enumerate(summary.nodes):
        if index not in ordered:
            dead = "not needed for the outputs"
            yield "constant folding" if node.folds else "layout or identity" if index in needed else dead, node


def _needed(summary: Summary) -> set[int]:
    seen = set(summary.outputs)
    stack = list(seen)
    while stack:
        for read in summary.nodes[stack.pop()].reads:
            if read not in seen:
                seen.add(read)
                stack.append(read)
    return seen


def _aligned(left: Sequence[Node], right: Sequence[Node]) -> list[tuple[int, int]]:
    """Pairs of positions, rising: operators with MACs first, the others between each two of those."""

    def heavy(nodes: Sequence[Node]) -> list[int]:
        return [i for i, node in enumerate(nodes) if node.macs]

    def token(node: Node) -> Hashable:
        return _FAMILY.get(node.op, node.op), node.elements, node.macs or node.operands

    a, b = heavy(left), heavy(right)
    anchors = [(a[i], b[j]) for i, j in common_subsequence([token(left[i]) for i in a], [token(right[j]) for j in b])]
    pairs: list[tuple[int, int]] = []
    at, beside = 0, 0
    for i, j in (*anchors, (len(left), len(right))):
        light = common_subsequence([token(n) for n in left[at:i]], [token(n) for n in right[beside:j]])
        pairs.extend((at + x, beside + y) for x, y in light)
        if i < len(left):
            pairs.append((i, j))
        at, beside = i + 1, j + 1
    return pairs


def common_subsequence(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """A longest common subsequence as pairs of positions, by bit vectors (Hyyro 2004): a row per entry of ``a``.

    Read from the ends, so that of several partners the earliest is taken: what a decomposition ends with comes later.
    """
    a, b = a[::-1], b[::-1]
    where: dict[Hashable, int] = {}
    for j, entry in enumerate(b):
        where[entry] = where.get(entry, 0) | 1 << j
    row = everything = (1 << len(b)) - 1
    rows = [row]
    for entry in a:
        matches = row & where.get(entry, 0)
        row = ((row + matches) | (row - matches)) & everything
        rows.append(row)
    pairs = []
    i, j = len(a), len(b)
    while i and j:
        below = (1 << j) - 1
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            pairs.append((len(a) - 1 - i, len(b) - 1 - j))
        elif (rows[i - 1] & below).bit_count() == (rows[i] & below).bit_count():
            i -= 1
        else:
            j -= 1
    return pairs


class _Differences:
    """Collects differences by kind and pattern."""

    def __init__(self, reference: Summary, other: Summary) -> None:
        self._sides = (reference, other)
        self._found: dict[tuple[str, str], Difference] = {}
        self._twins = Counter((n.source_op, n.op, n.elements, n.reads) for n in reference.nodes)

    def all(self) -> list[Difference]:
        return sorted(self._found.values(), key=lambda d: (d.kind, -d.count, d.what))

    def set_aside(self, kind: str, a: Node | None, b: Node | None) -> None:
        """A constant part or view, with its like on the other side where it has one."""
        if a is None or b is None:
            one = [(node, side.reader) for node, side in zip((a, b), self._sides, strict=True) if node is not None]
            what = "".join(f"{node.source_op} in {reader} alone" for node, reader in one)
            self._add(kind, what, [a] if a else [], [b] if b else [])
        else:
            self._count_alike(a, b)

    def pair(self, left: int, right: int) -> None:
        """Partners: a difference only if they are counted differently."""
        self._count_alike(self._sides[0].nodes[left], self._sides[1].nodes[right])

    def _count_alike(self, a: Node, b: Node) -> None:
        if (a.flops, a.moved_bytes, a.parameters) != (b.flops, b.moved_bytes, b.parameters):
            self._add("same operator, counted otherwise", f"{a.source_op} -> {b.source_op}", [a], [b])

    def block(self, left: Sequence[int], right: Sequence[int], following: str) -> None:
        """Operators without a partner between two aligned ones; ``following`` is the operator of the second."""
        a = [self._sides[0].nodes[i] for i in left]
        b = [self._sides[1].nodes[i] for i in right]
        twins = [n for n in a if self._twins[n.source_op, n.op, n.elements, n.reads] > 1] if not b else []
        if twins and len(twins) == len(a):
            self._add("common subexpression", f"{_pattern(a)} computed once", a, b)
        else:
            self._add(self._kind(a, b, following), f"{_pattern(a) or 'nothing'} -> {_pattern(b) or 'nothing'}", a, b)

    def _kind(self, a: Sequence[Node], b: Sequence[Node], following: str) -> str:
        if sum(n.macs for n in a) != sum(n.macs for n in b):
            return "unexplained"
        if a and b:
            if a[-1].elements != b[-1].elements:
                return "unexplained"
            return "fusion" if len(a) > len(b) else "decomposition" if len(a) < len(b) else "rewriting"
        alone = a or b
        if all(n.op == "expand" for n in alone):
            return "broadcast"
        if all(n.op in _LINEAR and n.operands == 1 and n.elements == n.largest_operand for n in alone):
            return "fusion" if a else "decomposition"
        if following in ("gather", "embedding", "scatter") and all(n.kind == "elementwise" for n in alone):
            return "index arithmetic"
        return "unexplained"

    def _add(self, kind: str, what: str, a: Sequence[Node], b: Sequence[Node]) -> None:
        found = self._found.setdefault((kind, what), Difference(kind, what))
        found.count += 1
        found.reference_nodes += [n.name for n in a]
        found.other_nodes += [n.name for n in b]
        found.flops += _sum(b, lambda n: n.flops) - _sum(a, lambda n: n.flops)
        found.parameters += _sum(b, lambda n: n.parameters) - _sum(a, lambda n: n.parameters)
        found.moved_bytes += _sum(b, lambda n: n.moved_bytes) - _sum(a, lambda n: n.moved_bytes)


def _pattern(nodes: Iterable[Node]) -> str:
    """The operators as the source calls them, runs of one counted; of many the number of each, in no order."""
    nodes = list(nodes)
    parts: list[tuple[str, int]] = []
    for node in nodes:
        if parts and parts[-1][0] == node.source_op:
            parts[-1] = (node.source_op, parts[-1][1] + 1)
        else:
            parts.append((node.source_op, 1))
    if len(parts) > _LONGEST_PATTERN:
        counted = Counter(node.source_op for node in nodes).most_common()
        return f"{len(nodes)} operators ({', '.join(f'{number} {name}' for name, number in counted)})"
    return ", ".join(name if number == 1 else f"{number} {name}" for name, number in parts)


def _sum(nodes: Iterable[Node], value: Callable[[Node], int]) -> int:
    return sum(value(node) for node in nodes)
