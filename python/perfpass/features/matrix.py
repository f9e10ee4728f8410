"""Node-feature matrix, edges and static vector of a graph, in a named and versioned schema.

The schemas: docs/reference/schemas.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass import _core
from perfpass.errors import ArgumentError, needs
from perfpass.graph import costs as _costs
from perfpass.late import dataclass

if TYPE_CHECKING:
    import scipy.sparse
    import torch_geometric.data

    from perfpass.graph import OpGraph
    from perfpass.graph.costs import Costs

SCHEMAS: tuple[str, ...] = ("operator", "dippm", "trappm", "nnlqp")


@dataclass(frozen=True, eq=False)
class Features:
    """What a graph network reads.

    ``nodes`` [N, F] float32, rows in execution order; ``edge_index`` [2, E] int32, producer over consumer; ``statics``
    [S] float32; ``node_names`` [F] and ``static_names`` [S] name the columns. A schema's ``version`` changes whenever a
    column does.
    """

    nodes: np.ndarray
    edge_index: np.ndarray
    statics: np.ndarray
    node_names: tuple[str, ...]
    static_names: tuple[str, ...]
    schema: str
    version: int

    def adjacency(self) -> scipy.sparse.csr_matrix:
        """[N, N] sparse; entry (p, c) counts the tensors that node c reads from node p."""
        with needs("graphs", "Features.adjacency"):
            import scipy.sparse

        producer, consumer = self.edge_index
        count = len(self.nodes)
        ones = np.ones(len(producer), dtype=np.float32)
        return scipy.sparse.csr_matrix((ones, (producer, consumer)), shape=(count, count))

    def to_pyg(self) -> torch_geometric.data.Data:
        """A PyTorch Geometric ``Data``: ``x`` [N, F], ``edge_index`` [2, E], ``statics`` [1, S]."""
        with needs("pyg", "Features.to_pyg"):
            import torch
            from torch_geometric.data import Data

        return Data(
            x=torch.from_numpy(self.nodes),
            edge_index=torch.from_numpy(self.edge_index.astype(np.int64)),
            statics=torch.from_numpy(self.statics)[None, :],
        )


def names(schema: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The node and static column names of a schema. Raises ArgumentError for an unknown one."""
    if not isinstance(schema, str):
        raise ArgumentError(f"feature schema {schema!r}; there are {', '.join(SCHEMAS)}")
    return _core.node_feature_names(schema), _core.static_feature_names(schema)


def extract(graph: OpGraph, schema: str = "operator", costs: Costs | None = None) -> Features:
    """The features of ``graph`` in ``schema``: "operator", "dippm", "trappm" or "nnlqp".

    ``costs`` are those of the same graph, counted if absent. Raises ArgumentError for an unknown schema or costs of
    another graph.
    """
    node_names, static_names = names(schema)
    counted = _costs.count(graph) if costs is None else costs
    nodes, statics = _core.node_features(graph.core, counted.core, schema)
    return Features(nodes, graph.edge_index, statics, node_names, static_names, schema, _core.schema_version(schema))
