"""Traced graphs on disk: one .npz per (source, model, image size), holding the graph at every batch size.

A cache is a convenience, kept outside the repository (`$XDG_CACHE_HOME/perfpass/graphs`); deleting it costs minutes.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfpass import _core
from perfpass.errors import ArgumentError
from perfpass.graph import ATTRIBUTES, DTYPES, OPERATORS, ROLES, OpGraph
from perfpass.whole_file import write_whole

VERSION = 1


def directory() -> Path:
    """Where traces are kept."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "perfpass" / "graphs"


def path(source: str, model: str, img_size: int) -> Path:
    """The file of one traced model."""
    return directory() / f"v{VERSION}" / source / f"{model}-{img_size}.npz"


def save(
    file: Path, first: OpGraph, second: OpGraph, batches: tuple[int, int], repeat: np.ndarray | None = None
) -> None:
    """Write two traces of one model; ``repeat`` [N]: how often each node runs, where the traces do not say it.

    Raises ArgumentError where they differ in more than sizes.
    """
    same = (
        np.array_equal(first.op, second.op)
        and np.array_equal(first.inputs, second.inputs)
        and np.array_equal(first.shape_offset, second.shape_offset)
        and np.array_equal(first.attributes, second.attributes)
    )
    if not same:
        raise ArgumentError(f"traces at batch {batches[0]} and {batches[1]} differ in more than sizes")
    slope, rest = np.divmod(second.dims - first.dims, batches[1] - batches[0])
    if rest.any():
        raise ArgumentError(f"a dimension is not affine in the batch size between {batches[0]} and {batches[1]}")
    text = "\0".join(first.string(i) for i in range(first.string_count))
    columns: dict[str, Any] = {
        name: np.asarray(getattr(first, name))
        for name in [
            "op",
            "source_op",
            "node_name",
            "attributes",
            "repeat",
            "input_offset",
            "inputs",
            "output_offset",
            "outputs",
            "tensor_dtype",
            "tensor_role",
            "shape_offset",
            "graph_inputs",
            "graph_outputs",
        ]
    }
    if repeat is not None:
        columns["repeat"] = repeat
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        dims=first.dims - slope * batches[0],
        dims_per_sample=slope,
        strings=np.frombuffer(text.encode(), dtype=np.uint8),
        **columns,
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, buffer.getvalue())


@dataclass(frozen=True)
class Stored:
    """A cached trace in memory: the graph at batch 0 and how its dimensions grow with each sample."""

    graph: OpGraph
    dims: np.ndarray  # [D] at batch 0
    dims_per_sample: np.ndarray  # [D]

    def at(self, batch: int) -> OpGraph:
        """The graph at one batch size."""
        return OpGraph(self.graph.core.with_dims(self.dims + self.dims_per_sample * batch))

    @classmethod
    def read(cls, file: Path) -> Stored:
        """Read one file of the cache."""
        with np.load(file, allow_pickle=False) as stored:
            a = {name: stored[name] for name in stored.files}
        strings = a["strings"].tobytes().decode().split("\0")
        dims, offset = (a["dims"] + a["dims_per_sample"]).tolist(), a["shape_offset"].tolist()
        builder = _core.GraphBuilder()
        for t, (dtype, role) in enumerate(zip(a["tensor_dtype"].tolist(), a["tensor_role"].tolist(), strict=True)):
            builder.add_tensor("", DTYPES[dtype], dims[offset[t] : offset[t + 1]], ROLES[role])
        default = np.zeros(len(ATTRIBUTES), np.int32)
        default[ATTRIBUTES.index("axis")] = np.iinfo(np.int32).min
        given = a["attributes"] != default
        inputs, outputs = a["inputs"].tolist(), a["outputs"].tolist()
        in_offset, out_offset = a["input_offset"].tolist(), a["output_offset"].tolist()
        for n, op in enumerate(a["op"].tolist()):
            builder.add_node(
                OPERATORS[op],
                strings[a["source_op"][n]],
                strings[a["node_name"][n]],
                {ATTRIBUTES[c]: int(a["attributes"][n, c]) for c in np.flatnonzero(given[n])},
                inputs[in_offset[n] : in_offset[n + 1]],
                outputs[out_offset[n] : out_offset[n + 1]],
                float(a["repeat"][n]),
            )
        graph = OpGraph(builder.finish(a["graph_inputs"].tolist(), a["graph_outputs"].tolist()))
        return cls(graph, a["dims"], a["dims_per_sample"])


def load(file: Path, batch: int) -> OpGraph:
    """The graph of one file at one batch size."""
    return Stored.read(file).at(batch)
