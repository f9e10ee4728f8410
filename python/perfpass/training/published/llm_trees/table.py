"""The runs of the `llm` task as rows of `perfpass.llm.table`, with the runtime beside them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.llm import table as llm_table
from perfpass.llm.configuration import language_model
from perfpass.predictors.generation.features import RUNTIMES, Batch
from perfpass.predictors.published.llm_trees import table_row

if TYPE_CHECKING:
    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.tasks import Task


def batches(task: Task) -> list[Batch]:
    """The runs behind the rows. Raises ArgumentError for another task."""
    if task.name != "llm":
        raise ArgumentError(f"this predictor is made for the task llm, not {task.name}")
    models = {m: language_model(m) for m in task.rows.model_name.unique()}
    devices = {d: device(d) for d in task.rows.device.unique()}
    return [
        Batch(
            models[r.model_name],
            devices[r.device],
            r.runtime,
            int(r.n_devices),
            int(r.batch),
            int(r.img_size),
            int(r.output_tokens),
            r.precision,
            r.software_stack,
        )
        for r in task.rows.itertuples()
    ]


@lru_cache(maxsize=4)
def table(task: Task, graphs: Graphs | None) -> np.ndarray:
    """[N, len(llm_table.COLUMNS)] the rows of a task; nodes and edges only where ``graphs`` are given.

    Kept for the task: counting 4,739 runs takes seconds.
    """
    traced: dict[str, tuple[float, float]] = {}
    out = []
    for b, key in zip(batches(task), task.keys, strict=True):
        if graphs is not None and key[1] not in traced:
            graph = graphs.at(key, 1)
            traced[key[1]] = (graph.node_count, graph.edge_count)
        nodes, edges = traced.get(key[1], (np.nan, np.nan))
        out.append(table_row(b, nodes, edges))
    return np.array(out).reshape(-1, len(llm_table.COLUMNS))


def runtimes(task: Task) -> np.ndarray:
    """[N, len(RUNTIMES) + 1] one-hot of the runtime, and whether a second stack of the device ran it."""
    names = task.rows.runtime.to_numpy(str)
    columns = [names == r for r in RUNTIMES] + [(task.rows.software_stack != "").to_numpy()]
    return np.stack(columns, axis=1).astype(np.float64)
