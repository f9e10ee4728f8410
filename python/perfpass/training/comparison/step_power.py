"""What joules and watts of a training step are made of: how long it takes, and how much of the board it uses.

The time is predicted by our model of training steps, learned from records of boards that the task has no row of. The
watts are those of `perfpass.predictors.power`, whose three shares come from kernels. Neither saw a row of the task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from perfpass.backward import StepTable
from perfpass.devices import device as find_device
from perfpass.features.table import operator_table
from perfpass.predictors import energy_features
from perfpass.predictors.components import Rows
from perfpass.predictors.power import PowerModel
from perfpass.predictors.roofline import Workload
from perfpass.predictors.step_features import STEP_GROUPS, StepSums, features, software_index, step_sums
from perfpass.predictors.steps import StepPredictor
from perfpass.training.comparison import ours
from perfpass.training.comparison.graphs import Graphs
from perfpass.training.comparison.tasks import Task
from perfpass.training.steps import dataset as steps
from perfpass.training.steps import model as step_model

# The share of the limit that physics asks for takes the place of the board's size: it tells boards and batches apart.
_WORKLOAD = {"log2_batch": 3.0, "log_limit_share": 0.5, "log_use": 1.0}
STEP_POWER = replace(energy_features.TRAINING_POWER, workload=_WORKLOAD)
STEP_ENERGY = replace(STEP_POWER, components=("idling", "at the watts of physics", "at the limit"))
# Adadelta keeps two tensors beside each parameter, as Adam does; our steps know no other optimizer with two.
_STEP_OPTIMIZERS = {"adadelta": "adam", "": "none"}


@dataclass(frozen=True, eq=False)
class StepWork:
    """N steps at full power: ``seconds``, ``roofline_s`` at peak rates, ``use`` of the limit (0 to 1). Arrays [N]."""

    seconds: np.ndarray
    roofline_s: np.ndarray
    use: np.ndarray

    @classmethod
    def of(cls, task: Task, graphs: Graphs) -> StepWork:
        """Of a task's rows."""
        sums, software = _sums(task, graphs)
        model = _elsewhere(tuple(sorted(set(task.rows.device))))
        x, base_s = features(sums, model.efficiency[software])
        seconds = base_s * np.exp(_scored(model, x))
        uses = (part.sum(axis=1) / seconds for part in (sums.compute, sums.memory))
        power = PowerModel.from_dict(StepPredictor.load().manifest["power"])
        roofline_s = features(sums, np.ones((len(task), len(STEP_GROUPS))))[1]
        return cls(seconds, roofline_s, power.share(*uses))


def _scored(model: step_model.Model, x: np.ndarray) -> np.ndarray:
    import xgboost

    return model.booster.predict(xgboost.DMatrix(x[:, model.columns])).astype(np.float64)


@lru_cache(maxsize=4)
def _elsewhere(devices: tuple[str, ...]) -> step_model.Model:
    """The portable model of steps from records of boards other than ``devices``."""
    dataset, others = ours.step_data(), ours.inference_data()
    kept = ~dataset.rows.device.isin(devices).to_numpy()
    rows = step_model.Rows.of(dataset, np.flatnonzero(kept))
    return step_model.fit(
        rows.beside(others, np.isin(others.device, sorted(set(dataset.rows.device[kept])))), portable=True
    )


def _sums(task: Task, graphs: Graphs) -> tuple[StepSums, np.ndarray]:
    """Sums of every row's step, stacked, and the row of SOFTWARE that applies."""
    tables: dict[Any, StepTable] = {}
    found: list[tuple[StepSums, int]] = []
    r = task.rows
    for key, batch, name, precision, optimizer in zip(
        task.keys, r.batch, r.device, r.precision, r.optimizer, strict=True
    ):
        at = key, int(batch), precision, optimizer
        if at not in tables:
            graph = graphs.at(key, int(batch))
            chosen = steps.options(key[0], precision, _STEP_OPTIMIZERS.get(optimizer, optimizer))
            elements = float(np.prod(graph.shape(int(graph.graph_inputs[0])), dtype=np.float64))
            tables[at] = steps.step_of(operator_table(graph), chosen, elements, 32)
        on, workload = find_device(name), Workload(int(batch), precision)
        found.append((step_sums(tables[at], on, workload), software_index(on, workload)))
    return StepSums.stacked([sums for sums, _ in found]), np.array([software for _, software in found])


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


_KEPT: dict[tuple[str, int], StepWork] = {}


def step_work(task: Task, graphs: Graphs) -> StepWork:
    """`StepWork.of`, kept for the splits of a task."""
    # Two tasks of one name differ where one is a part of the other.
    key = task.name, hash(task.value.tobytes())
    if key not in _KEPT:
        _KEPT[key] = StepWork.of(task, graphs)
    return _KEPT[key]
