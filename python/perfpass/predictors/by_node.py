"""A run's predicted time, node by node of its graph: equal nodes share that of their row, by how often each runs.

A node that a runtime puts together with others into one kernel has no time of its own; the kernel's is at the node that
its row was made from (`perfpass.predictors.inference.fusion`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfpass import _core
from perfpass.graph import frozen
from perfpass.graph.costs import count
from perfpass.graph.traced_step import PHASES
from perfpass.predictors.inference.fusion import as_run, folds, fuses, strided
from perfpass.predictors.lane import predictor_of
from perfpass.predictors.training_step.predictor import StepPredictor

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.predictors.estimate import Run


@dataclass(frozen=True, eq=False)
class NodeTimes:
    """``ms`` [P, N]: milliseconds of each node in each of P ``phases``; ``rest_ms`` [P]: of no node of the graph.

    ``row`` [N]: the node's row in the run's table, -1 where none holds it. Of training a row is that of the forward
    pass.
    """

    phases: tuple[str, ...]
    ms: np.ndarray
    rest_ms: np.ndarray
    row: np.ndarray


def node_times(run: Run, training: bool, total_ms: float) -> NodeTimes:
    """How ``total_ms`` falls on the nodes of a run, in the proportions of the predictor's rows."""
    row = _rows(run, training)
    if training:
        estimate, step = StepPredictor.load().estimate(run)
        phases, source, phase = PHASES, np.asarray(step.source), np.asarray(step.phase)
    else:
        estimate = predictor_of(run.way).estimate(run)
        phases, source = ("forward",), np.arange(len(estimate.row_ms))
        phase = np.zeros(len(source), dtype=np.intp)
    share = np.asarray(estimate.row_ms) * total_ms / max(float(np.sum(estimate.row_ms)), 1e-300)
    ms = np.zeros((len(phases), len(row)))
    rest = np.zeros(len(phases))
    for p in range(len(phases)):
        mine = phase == p
        rest[p] = share[mine & (source < 0)].sum()
        of_row = np.bincount(source[mine & (source >= 0)], share[mine & (source >= 0)], len(run.table.op))
        ms[p] = _shared(of_row, row, np.asarray(run.graph.repeat), np.asarray(run.table.first_node))
    return NodeTimes(phases, ms, rest, row)


def component_ms(run: Run, row_ms: np.ndarray) -> dict[str, float]:
    """Milliseconds of each network of a pipeline (`perfpass.graph.joined`), whose nodes are named NETWORK.NODE."""
    graph, row = run.graph, _rows(run, training=False)
    ms = _shared(np.asarray(row_ms), row, np.asarray(graph.repeat), np.asarray(run.table.first_node))
    names = [graph.string(int(graph.node_name[node])).partition(".")[0] for node in range(graph.node_count)]
    found = dict.fromkeys(names, 0.0)
    for name, value in zip(names, ms.tolist(), strict=True):
        found[name] += value
    return found


def _shared(of_row: np.ndarray, row: np.ndarray, repeat: np.ndarray, first: np.ndarray) -> np.ndarray:
    """[N] the time of each row over its nodes, by their executions; of a row without nodes on its first one."""
    weight = np.where(row >= 0, repeat, 0.0)
    runs = np.bincount(row[row >= 0], weight[row >= 0], len(of_row))
    found = np.where(row >= 0, of_row[row] * weight / np.maximum(runs, 1e-300)[row], 0.0)
    np.add.at(found, first[runs == 0], of_row[runs == 0])
    return found


def _rows(run: Run, training: bool) -> np.ndarray:
    runtime, kind = run.way.runtime, run.way.device.kind
    how = strided(runtime, kind), folds(runtime), fuses(runtime, kind)

    def place(graph: OpGraph) -> np.ndarray:
        return np.asarray(_core.rows_as_run(graph.core, count(graph, float_as=run.float_as).core, *how)[0])

    if not (training and run.graph.frozen):
        return place(run.graph)
    marks = frozen.flags(run.graph, run.graph.frozen)
    return frozen.rows(run.graph, marks, lambda g: as_run(g, count(g, float_as=run.float_as), runtime, kind), place)
