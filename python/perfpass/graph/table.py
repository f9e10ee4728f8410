"""The graph as a multiset of operators: equal nodes share one row (docs/reference/schemas.md)."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perfpass import _core
from perfpass.graph import costs as _costs
from perfpass.late import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfpass.graph.costs import Costs
    from perfpass.graph.opgraph import OpGraph


@dataclass(frozen=True, eq=False)
class OperatorColumns:
    """What predictors read of R different operators, as NumPy columns of length R; all but ``count`` are per execution.

    ``op`` and ``op_class`` index ``graph.OPERATORS`` and ``graph.OPERATOR_CLASSES``; ``dtype`` is that of output 0;
    ``count`` sums ``repeat``. ``b``, ``m``, ``n``, ``k`` are the sizes of the equivalent batch of matrix products
    [m, k] x [k, n] for convolutions, matrix products and attention; of an LSTM, GRU or RNN its b steps of m sequences
    by the recurrent weights of all gates and directions; of a resize b images' channels of m pixels each in the result;
    else 0. ``kernel_area``, ``stride`` (first spatial axis) and ``groups`` belong to convolution and pooling, else 0.
    ``constant``: its lowest bit says that no input of the graph is read, so that no batch size changes the row; the
    others what a step leaves out where weights are frozen
    (`perfpass.graph.frozen`).
    """

    op: np.ndarray
    op_class: np.ndarray
    dtype: np.ndarray
    view: np.ndarray
    count: np.ndarray
    macs: np.ndarray
    flops: np.ndarray
    bytes_read: np.ndarray
    bytes_written: np.ndarray
    weight_bytes: np.ndarray
    input_elements: np.ndarray
    output_elements: np.ndarray
    b: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    kernel_area: np.ndarray
    stride: np.ndarray
    groups: np.ndarray
    constant: np.ndarray

    def __len__(self) -> int:
        return len(self.op)


COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(OperatorColumns))


@dataclass(frozen=True, eq=False)
class OperatorTable(OperatorColumns):
    """The rows of one graph, in the order of first appearance; ``first_node`` [R] is an example node of each."""

    first_node: np.ndarray

    @classmethod
    def of_core(cls, table: _core.OperatorTable) -> OperatorTable:
        """What the core grouped."""
        return cls(*[getattr(table, name) for name in (*COLUMNS, "first_node")])


@dataclass(frozen=True, eq=False)
class Tables:
    """N operator tables as one: the rows ``offset[i]`` to ``offset[i + 1]`` of ``table`` [R] belong to graph i.

    Sums over the rows of a graph are made in the order of its rows, so they are the same for a graph alone and among
    others.
    """

    table: OperatorColumns
    offset: np.ndarray  # [N + 1]

    @classmethod
    def one(cls, table: OperatorColumns) -> Tables:
        """A single table."""
        return cls(table, np.array([0, len(table.op)]))

    @classmethod
    def joined(cls, tables: Sequence[OperatorColumns]) -> Tables:
        """Several tables in a row."""
        columns = {name: np.concatenate([np.asarray(getattr(table, name)) for table in tables]) for name in COLUMNS}
        return cls(OperatorColumns(**columns), np.concatenate([[0], np.cumsum([len(table.op) for table in tables])]))

    def __len__(self) -> int:
        return len(self.offset) - 1

    @cached_property
    def graph(self) -> np.ndarray:
        """[R] the graph of each row."""
        return np.arange(len(self)).repeat(self.offset[1:] - self.offset[:-1])

    @cached_property
    def count(self) -> np.ndarray:
        """[R] executions of each row, as float64."""
        return np.asarray(self.table.count, dtype=np.float64)

    def take(self, kept: np.ndarray) -> Tables:
        """The tables of some graphs, by their indices ``kept``."""
        size = np.diff(self.offset)[kept]
        offset = np.concatenate([[0], np.cumsum(size)])
        at = np.arange(offset[-1]) + np.repeat(self.offset[:-1][kept] - offset[:-1], size)
        columns = {name: np.asarray(getattr(self.table, name))[at] for name in COLUMNS}
        return Tables(OperatorColumns(**columns), offset)

    def without(self, rows: np.ndarray) -> Tables:
        """The same graphs without some of their rows [R]."""
        at = np.flatnonzero(~rows)
        columns = {name: np.asarray(getattr(self.table, name))[at] for name in COLUMNS}
        return Tables(OperatorColumns(**columns), np.searchsorted(at, self.offset))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """[N] sums of ``values`` [R]."""
        return np.bincount(self.graph, values, len(self.offset) - 1)

    def most(self, values: np.ndarray) -> np.ndarray:
        """[N] largest of ``values`` [R], and at least 0."""
        found = np.zeros(len(self))
        np.maximum.at(found, self.graph, values)
        return found

    def any(self, mask: np.ndarray) -> np.ndarray:
        """[N] whether ``mask`` [R] holds for a row."""
        if len(self) == 1:
            return np.array([np.logical_or.reduce(mask)])
        return np.bincount(self.graph[mask], minlength=len(self)) > 0

    def keys(self, group: np.ndarray, groups: int) -> np.ndarray:
        """[R] number of graph and ``group`` [R] together, of ``groups`` a graph: for several sums of the same rows."""
        return self.graph * groups + group

    def by_keys(self, values: np.ndarray, keys: np.ndarray, groups: int) -> np.ndarray:
        """[N, groups] sums of ``values`` [R] by `keys`."""
        number = len(self.offset) - 1
        return np.bincount(keys, values, number * groups).reshape(number, groups)

    def weighted_by_keys(self, values: np.ndarray, weights: np.ndarray, keys: np.ndarray, groups: int) -> np.ndarray:
        """[N, S, groups] sums of ``values`` [S, R] times ``weights`` [R] by `keys`."""
        found: np.ndarray = _core.weighted_sums(
            np.ascontiguousarray(values, dtype=np.float64), np.ascontiguousarray(weights), keys, len(self), groups
        )
        return found


def operator_table(graph: OpGraph, costs: Costs | None = None) -> OperatorTable:
    """Group the nodes of ``graph`` that run at least once; nodes of equal kind, types, sizes and costs share a row.

    ``costs`` are those of the same graph, counted if absent. Raises ArgumentError when they belong to another graph.
    """
    counted = _costs.count(graph) if costs is None else costs
    return OperatorTable.of_core(_core.operator_table(graph.core, counted.core))
