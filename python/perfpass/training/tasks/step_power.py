"""What joules and watts of a training step are made of: how long it takes, and how much of the board it uses.

The time is predicted by our model of training steps, learned from records of boards that the task has no row of. The
watts are those of `perfpass.predictors.energy.power`, whose three shares come from kernels. Neither saw a row of the
task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.graph.step import Steps, StepTable
from perfpass.graph.table import operator_table
from perfpass.predictors.energy import features as energy_features
from perfpass.predictors.energy.power import PowerModel
from perfpass.predictors.learned.components import Rows
from perfpass.predictors.learned.ratios import Sums
from perfpass.predictors.roofline import software_index
from perfpass.predictors.training_step.features import RATIOS, STEP_GROUPS, step_sums
from perfpass.predictors.training_step.operators import StepTimes
from perfpass.predictors.training_step.predictor import StepPredictor
from perfpass.predictors.way import Way
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import STEP_OPTIMIZERS, Task
from perfpass.training.training_step import dataset as steps
from perfpass.training.training_step import model as step_model

# The share of the limit that physics asks for takes the place of the board's size: it tells boards and batches apart.
_WORKLOAD = {"log2_batch": 3.0, "log_limit_share": 0.5, "log_use": 1.0}
STEP_POWER = replace(energy_features.TRAINING_POWER, workload=_WORKLOAD)
STEP_ENERGY = replace(STEP_POWER, components=("idling", "at the watts of physics", "at the limit"))
step_corpus = lru_cache(maxsize=1)(step_model.Corpus.load)


@dataclass(frozen=True, eq=False)
class StepWork:
    """N steps at full power: ``seconds`` [N], and ``use`` [N] of the power limit (0 to 1)."""

    seconds: np.ndarray
    use: np.ndarray


@lru_cache(maxsize=4)
def step_work(task: Task, graphs: Graphs) -> StepWork:
    """Of a task's rows; kept for its splits."""
    sums, software = _sums(task, graphs)
    model = _elsewhere(tuple(sorted(set(task.rows.device))))
    x, _ = RATIOS.of(sums, model.efficiency[software])
    learned = model.trees.predict(x).astype(np.float64)
    seconds = _by_operators(task, graphs) * np.exp(learned)
    uses = (part.sum(axis=1) / seconds for part in (sums.compute, sums.memory))
    power = PowerModel.from_dict(StepPredictor.load().manifest["power"])
    return StepWork(seconds, power.share(*uses))


def roofline_s(task: Task, graphs: Graphs) -> np.ndarray:
    """[N] seconds of the task's steps at the boards' peak rates."""
    sums, _ = _sums(task, graphs)
    return RATIOS.of(sums, np.ones((len(task), len(STEP_GROUPS))))[1]


@lru_cache(maxsize=4)
def _elsewhere(devices: tuple[str, ...]) -> step_model.Model:
    """The portable model of steps from records of boards other than ``devices``."""
    corpus = step_corpus()
    dataset, others = corpus.dataset, corpus.others
    kept = ~dataset.rows.device.isin(devices).to_numpy()
    rows = step_model.Rows.of(dataset, corpus.vision.seconds(_times().levels["gpu"]), np.flatnonzero(kept))
    return step_model.fit(
        rows.beside(others, np.isin(others.device, sorted(set(dataset.rows.device[kept])))), portable=True
    )


@lru_cache(maxsize=1)
def _times() -> StepTimes:
    """The times of operators that have not seen the laboratory of the task."""
    return step_corpus().times_without("zeus")


def _steps(task: Task, graphs: Graphs) -> Iterator[tuple[StepTable, int, Way]]:
    """Every row's step, its batch and how it ran."""
    tables: dict[Any, StepTable] = {}
    r = task.rows
    for key, batch, name, precision, optimizer in zip(
        task.keys, r.batch, r.device, r.precision, r.optimizer, strict=True
    ):
        at = key, int(batch), precision, optimizer
        if at not in tables:
            graph = graphs.at(key, int(batch))
            chosen = steps.options(key[0], precision, STEP_OPTIMIZERS.get(optimizer, optimizer))
            elements = float(np.prod(graph.shape(int(graph.graph_inputs[0])), dtype=np.float64))
            tables[at] = steps.step_of(operator_table(graph), chosen, elements, 32)
        yield tables[at], int(batch), Way(find_device(name), precision)


def _by_operators(task: Task, graphs: Graphs) -> np.ndarray:
    """[N] seconds of the task's steps by their operators."""
    times = _times()
    return np.array([times.seconds(Steps.one(s), np.array([b]), way).total[0] for s, b, way in _steps(task, graphs)])


@lru_cache(maxsize=4)
def _sums(task: Task, graphs: Graphs) -> tuple[Sums, np.ndarray]:
    """Sums of every row's step, stacked, and the row of SOFTWARE that applies."""
    found = [
        (step_sums(Steps.one(step), np.array([batch]), way).take(0), software_index(way))
        for step, batch, way in _steps(task, graphs)
    ]
    return Sums.stacked([sums for sums, _ in found]), np.array([software for _, software in found])


def rows_of(task: Task, graphs: Graphs, kept: Rows) -> Rows:
    """``kept``, the rows of the energy area, with the coordinates and components of STEP_POWER or STEP_ENERGY."""
    work = step_work(task, graphs)
    boards = [find_device(name) for name in task.rows.device]
    full = np.array([on.power_limit_w for on in boards])
    idle = np.array([on.idle_power_w for on in boards])
    limit = np.minimum(task.rows.power_limit_w.to_numpy(np.float64), full)
    workload = np.column_stack([np.log2(task.rows.batch), np.log(limit / full), np.log(work.use)])
    found = replace(kept, workload=workload)
    if task.name != "energy":
        return found
    watts = np.clip(work.use * full, idle, limit)
    return replace(found, components=work.seconds[:, None] * np.column_stack([idle, watts, limit]))
