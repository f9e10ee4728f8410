"""The operator table as a runtime runs it, with NumPy: every pattern as array operations over all nodes."""

from __future__ import annotations

from dataclasses import fields
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from perfpass._core import DTYPE_BITS
from perfpass.graph import DTYPES, OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS
from twins import folding
from twins import table as table_twin
from twins.costs import FLOPS_PER_OUTPUT
from twins.fusion.activations import gelus, hard_activations, silus
from twins.fusion.attention import attention
from twins.fusion.links import LITERAL, WEIGHT, Fused, Links, joins_axes, operators
from twins.fusion.norms import layer_norms
from twins.fusion.products import around_kernels, linears, rolls
from twins.fusion.quantised import PRODUCTS, stored_elements, units

if TYPE_CHECKING:
    from collections.abc import Callable

    from perfpass.features import OperatorTable
    from perfpass.graph import OpGraph

MAX_RANK = 16  # of a tensor (cpp_kernels/include/perfpass/graph.hpp), so the most integers that a shape can have
_OP = {name: index for index, name in enumerate(OPERATORS)}
_INTEGER = np.array([name.startswith(("int", "uint", "bool")) for name in DTYPES])
# What torch does by changing strides, and a file by an operator of its own.
_STRIDED = operators("transpose", "split", "slice", "expand", "gather")
_NOTHING = operators("identity", "dropout", "constant")


def as_run(graph: OpGraph, costs: dict[str, list[int]], table: OperatorTable, runtime: str, kind: str) -> OperatorTable:
    """``table`` of the graph with written-out operators put together, without shape arithmetic and what does nothing.

    ``costs`` are those of the twin.
    """
    if not len(table):
        return table
    links = Links(graph)
    rows = _row_of_nodes(graph, costs)
    folds = runtime not in ("torch", "torch.compile")
    fuses = kind == "gpu" and runtime in ("torch.compile", "onnxruntime", "tensorrt", "tvm", "relax")
    strided = kind == "gpu" or not folds
    free = links.fixed & folds
    if fuses:
        free |= links.fixed & ~links.traced & np.array([_whole(table, row) for row in rows], dtype=bool)
    if folds and (fuses or not strided):
        free |= _copies_for_pytorch(links, strided)
    elif fuses:
        free |= folding.fixed(graph, on_load=True, weights=False)
    if strided:
        free |= np.array([_by_strides(links, n) for n in range(len(rows))], dtype=bool)
    views = np.asarray(table.view)[rows] != 0  # of nodes that run
    every, repeat = range(len(rows)), np.asarray(graph.core.repeat)
    split = np.zeros(len(rows), dtype=bool)
    moves = split
    if not strided:
        split, rest = _splits_in_parts(links)
        split &= ~links.fixed
        turned = np.array([_turns_for_free(links, n) for n in every], dtype=bool) | rest
        free |= turned
        moves = np.array([_shown_by_pytorch(links, n) for n in every], dtype=bool) & views & ~links.fixed & ~turned
    table, rows = _apart(free & ~views & ~split, table, rows, repeat, _shown)
    table, rows = _apart(moves & ~split, table, rows, repeat, _moved)
    table, rows = _apart(split, table, rows, repeat, _split)
    result = _Rows(table, rows, np.asarray(graph.core.repeat))
    activations = (gelus(links, fuses), silus(links, fuses), *hard_activations(links))
    patterns = (layer_norms(links), *activations, linears(links))
    for fused in (*patterns, around_kernels(links), rolls(links)):
        result.merge(fused)
    heads = attention(links, fuses, strided)
    if len(heads.anchor):
        result.merge_attention(heads)
    if folds:
        result.merge_quantised(links)
    result.drop(_is_shape_arithmetic(table) | _NOTHING[np.asarray(table.op)])
    return result.table()


def _whole(table: OperatorTable, row: int) -> bool:
    """Whether a row is of numbers that index and count."""
    return row >= 0 and bool(_INTEGER[np.asarray(table.dtype)[row]])


def _is_shape_arithmetic(table: OperatorTable) -> np.ndarray:
    """[R] rows that compute shapes or scalars, which runtimes fold or leave to the host."""
    outputs = np.asarray(table.output_elements)
    few = (outputs <= 1) | (_INTEGER[np.asarray(table.dtype)] & (outputs <= MAX_RANK))
    return few & (np.asarray(table.macs) == 0)


def _by_strides(links: Links, node: int) -> bool:
    """Whether a node shows what it reads by other strides; transposes whose axes are joined next are copied."""
    name = OPERATORS[links.op[node]]
    if name == "gather":
        index = links.tensor(np.array([node]), 1)[0]
        constant = index >= 0 and links.role[index] in (LITERAL, WEIGHT)
        if not links.traced[node]:
            constant = index >= 0 and not links.varies(np.array([index]))[0]
        return bool(constant and prod(links.whole.shape(int(index))) == 1)
    reshaped = links.after(np.array([node]), "reshape")[0] if name == "transpose" else -1
    if not _STRIDED[links.op[node]] or reshaped < 0 or not joins_axes(links, reshaped):
        return bool(_STRIDED[links.op[node]])
    made = links.maker(np.array([node]), 0)
    while links.is_op(made, "reshape")[0] and links.next[made[0]] >= 0:
        made = links.maker(made, 0)
    return bool(links.is_op(made, "attention")[0] and not links.traced[node])


def _turns_for_free(links: Links, node: int) -> bool:
    """Whether a transpose moves no number, or swaps two axes as a product reads them."""
    read, made = links.tensor(np.array([node]), 0)[0], int(links.whole.node_outputs(node)[0])
    if OPERATORS[links.op[node]] != "transpose" or read < 0 or made < 0:
        return False
    a, b = (tuple(links.whole.shape(int(t))) for t in (read, made))
    long = [d for d in a if d != 1]
    if long == [d for d in b if d != 1] and len(set(long)) == len(long):
        return True
    reader = int(links.next[node])
    while reader >= 0 and OPERATORS[links.op[reader]] in ("reshape", "expand", "copy"):
        reader = int(links.next[reader])
    if reader >= 0 and OPERATORS[links.op[reader]] in ("mul", "div") and links.by_number(np.array([reader]))[0]:
        reader = int(links.next[reader])
    swapped = len(a) >= 2 and b == (*a[:-2], a[-1], a[-2])
    return swapped and reader >= 0 and OPERATORS[links.op[reader]] == "matmul"


def _splits_in_parts(links: Links) -> tuple[np.ndarray, np.ndarray]:
    """[N] the first of the nodes that take one fixed index each of all of a tensor, and the rest of them."""
    parts: dict[int, list[int]] = {}
    for node in range(len(links.op)):
        name, of = OPERATORS[links.op[node]], np.array([node])
        read, made = int(links.tensor(of, 0)[0]), int(links.whole.node_outputs(node)[0])
        index = int(links.tensor(of, 1)[0])
        fixed = name == "gather" and index >= 0 and not links.varies(np.array([index]))[0]
        one = fixed and prod(links.whole.shape(index)) == 1
        one |= name == "slice" and links.whole.source_op_name(node) == "aten.select"
        if one and read >= 0 and made >= 0 and links.varies(np.array([read]))[0]:
            parts.setdefault(read, []).append(node)
    first, rest = np.zeros((2, len(links.op)), dtype=bool)
    for read, nodes in parts.items():
        sizes = {prod(links.whole.shape(int(links.whole.node_outputs(node)[0]))) for node in nodes}
        whole = prod(links.whole.shape(read))
        if len(nodes) > 1 and len(sizes) == 1 and whole // len(nodes) == sizes.pop():
            first[nodes[0]], rest[nodes[1:]] = True, True
    return first, rest


def _shown_by_pytorch(links: Links, node: int) -> bool:
    """Whether PyTorch recorded a node as other strides for which a file has an operator."""
    if not (links.traced[node] and _STRIDED[links.op[node]]):
        return False
    read, made = links.tensor(np.array([node]), 0)[0], int(links.whole.node_outputs(node)[0])
    if read < 0 or made < 0:
        return False
    elements = [prod(links.whole.shape(int(t))) for t in (read, made)]
    return OPERATORS[links.op[node]] == "transpose" or elements[0] != elements[1]


def _copies_for_pytorch(links: Links, strided: bool) -> np.ndarray:
    """[N] copies that PyTorch makes for itself: nothing is written into a part of them, and where transposes are
    ``strided`` no axes are joined next.
    """
    written = {
        int(links.maker(np.array([node]), 0)[0])
        for node in links.of("identity")
        if links.whole.source_op_name(int(node)) == "alias_after_write"
    }
    found = np.zeros(len(links.op), dtype=bool)
    for node in links.of("copy").tolist():
        reshaped = links.after(np.array([node]), "reshape")[0]
        for_itself = links.whole.source_op_name(node) in ("aten.clone", "aten.contiguous") and node not in written
        found[node] = for_itself and not (strided and reshaped >= 0 and joins_axes(links, reshaped))
    return found


def _shown(columns: dict[str, np.ndarray], row: int) -> None:
    columns["view"][row] = 1


def _moved(columns: dict[str, np.ndarray], row: int) -> None:
    """What PyTorch shows by strides moves the bytes of a file's operator."""
    bits = int(DTYPE_BITS[columns["dtype"][row]])
    read, written = (ceil(int(columns[name][row]) * bits / 8) for name in ("input_elements", "output_elements"))
    written = read if columns["op"][row] == _OP["split"] else written
    columns["bytes_read"][row], columns["bytes_written"][row] = min(read, written), written
    columns["view"][row] = 0


def _split(columns: dict[str, np.ndarray], row: int) -> None:
    columns["op"][row], columns["op_class"][row] = _OP["split"], OPERATOR_CLASS_OF[_OP["split"]]
    _moved(columns, row)


def _apart(
    chosen: np.ndarray,
    table: OperatorTable,
    rows: np.ndarray,
    repeat: np.ndarray,
    change: Callable[[dict[str, np.ndarray], int], None],
) -> tuple[OperatorTable, np.ndarray]:
    """The nodes ``chosen`` in changed rows: their own, or one like it behind all others."""
    columns = {f.name: np.array(getattr(table, f.name)) for f in fields(table)}
    rows = rows.copy()
    for row in range(len(table)):
        of_row = rows == row
        found = np.flatnonzero(of_row & chosen)
        if not len(found):
            continue
        into = row
        if len(found) < of_row.sum():
            into = rows[found] = len(columns["op"])
            columns = {name: np.append(column, column[row]) for name, column in columns.items()}
            columns["count"][-1] = sum(repeat[found].tolist())
            columns["count"][row] -= columns["count"][-1]
        change(columns, into)
    return type(table)(**columns), rows


def _row_of_nodes(graph: OpGraph, costs: dict[str, list[int]]) -> np.ndarray:
    """[N] the table row of each node; -1 for nodes that never run."""
    keys = table_twin.keys(graph, costs)
    order = {key: row for row, key in enumerate(dict.fromkeys(k for k in keys if k is not None))}
    return np.array([-1 if key is None else order[key] for key in keys])


class _Rows:
    """A table being edited: counts go down where nodes are merged, and merged rows are appended."""

    def __init__(self, table: OperatorTable, row_of: np.ndarray, repeat: np.ndarray) -> None:
        self._source = table
        self._row_of = row_of
        self._repeat = repeat
        self._count = np.array(table.count, dtype=np.float64)
        self._added: list[dict[str, float]] = []
        self._touched: set[int] = set()

    def _remove(self, nodes: np.ndarray) -> bool:
        """Takes the executions of nodes from their rows; False, and nothing taken, if a row is not known."""
        rows = self._row_of[nodes]
        if (rows < 0).any():
            return False
        np.subtract.at(self._count, rows, self._repeat[nodes])
        self._touched |= set(nodes.tolist())
        return True

    def drop(self, rows: np.ndarray) -> None:
        """Takes every execution from the rows, given as a mask."""
        self._count[rows] = 0.0

    def merge(self, fused: Fused) -> None:
        """Anchors change their operator and with it their FLOPs, parts go."""
        if not self._remove(np.concatenate([fused.anchor, fused.parts])):
            return
        anchors, inverse = np.unique(self._row_of[fused.anchor], return_inverse=True)
        counts = np.bincount(inverse, weights=self._repeat[fused.anchor], minlength=len(anchors))
        for row, count in zip(anchors.tolist(), counts.tolist(), strict=True):
            new = self._append(row, fused.op or OPERATORS[self._source.op[row]], count)
            each = 0 if new["macs"] else FLOPS_PER_OUTPUT.get(fused.op or "", 0)
            if each:
                new["flops"] = each * new["output_elements"]

    def merge_attention(self, fused: Fused) -> None:
        """Both products in one row of the first one's sizes; the scores between them never leave the chip."""
        if not self._remove(np.concatenate([fused.anchor, fused.parts[fused.parts >= 0]])):
            return
        pairs = np.stack([self._row_of[fused.parts[0]], self._row_of[fused.anchor]])
        pairs, inverse = np.unique(pairs, axis=1, return_inverse=True)
        counts = np.bincount(inverse.ravel(), weights=self._repeat[fused.anchor], minlength=pairs.shape[1])
        t = self._source
        for (first, second), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            row = self._append(first, "attention", count)
            row["macs"] = t.macs[first] + t.macs[second]
            row["flops"] = t.flops[first] + t.flops[second]
            row["bytes_read"] = max(t.bytes_read[first] + t.bytes_read[second] - t.bytes_written[first], 0)
            row["bytes_written"] = t.bytes_written[second]
            row["output_elements"] = t.output_elements[second]
            row["first_node"] = t.first_node[second]

    def merge_quantised(self, links: Links) -> None:
        """What runs in 8 bits moves a byte an element; what widens and narrows numbers around it goes."""
        nodes, parts = units(links)
        free = {n for n in (*nodes, *parts) if self._row_of[n] >= 0 and n not in self._touched}
        gone = np.array([n for n, into in parts.items() if n in free and into in free], dtype=int)
        by_row: dict[tuple[int, int], list[int]] = {}
        for node in (n for n in nodes if n in free):
            by_row.setdefault((int(self._row_of[node]), stored_elements(links, node)), []).append(node)
        for (row, weights), of in sorted(by_row.items()):
            op = OPERATORS[self._source.op[row]]
            name = OPERATOR_CLASSES[OPERATOR_CLASS_OF[_OP[op]]]
            known = {"conv": "quantized_conv"} | dict.fromkeys(PRODUCTS[1:], "quantized_matmul")
            pointwise = "quantized_elementwise" if name in ("elementwise", "activation") else op
            new = self._append(row, known.get(op, pointwise), float(sum(self._repeat[of].tolist())))
            wide = max(int(DTYPE_BITS[self._source.dtype[row]]) // 8, 1)
            new.update(bytes_read=new["bytes_read"] // wide, bytes_written=new["bytes_written"] // wide)
            new["weight_bytes"] = weights
            self._remove(np.array(of, dtype=int))
        self._remove(gone)

    def _append(self, row: int, op: str, count: float) -> dict[str, float]:
        new = {f.name: getattr(self._source, f.name)[row] for f in fields(self._source)}
        new.update(op=_OP[op], op_class=int(OPERATOR_CLASS_OF[_OP[op]]), count=count)
        self._added.append(new)
        return new

    def table(self) -> OperatorTable:
        """The edited table, without rows that no longer run."""
        kept = self._count > 1e-9  # what is left of a sum and its parts after rounding
        columns = {}
        for f in fields(self._source):
            column = np.asarray(self._count if f.name == "count" else getattr(self._source, f.name))
            added = np.array([row[f.name] for row in self._added]).astype(column.dtype)
            columns[f.name] = np.concatenate([column[kept], added])
        return type(self._source)(**columns)
