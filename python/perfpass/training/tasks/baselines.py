"""What every table of predictors needs beside it: a constant, physics alone, and trees without our design."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfpass import features
from perfpass.errors import ArgumentError
from perfpass.training.tasks import ours, step_power
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Split, Task

NAMES = ("constant", "roofline", "boosting")
_TREES = {
    "objective": "reg:squarederror",
    "max_depth": 6,
    "eta": 0.1,
    "subsample": 0.8,
    "colsample_bytree": 0.8,
    "tree_method": "hist",
    "nthread": 1,
}
_ROUNDS, _PATIENCE = 1000, 50
# A few records of a new device count as these many of the others: trees that learned from thousands must notice them.
_NEW_ROWS_COUNT = 0.2


@dataclass(frozen=True, eq=False)
class Scaled:
    """``base`` [N] of the task's rows times a factor that new rows may set."""

    task: Task
    base: np.ndarray
    parameters: int
    factor: float = 1.0

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] in the task's unit."""
        return np.asarray(self.base[rows] * self.factor)

    def adapted(self, rows: np.ndarray, seed: int = 0) -> Scaled:
        """Times the median ratio of the rows."""
        return replace(self, factor=float(np.median(self.task.value[rows] / self.base[rows])))


@dataclass(frozen=True)
class Constant:
    """The median of the training rows."""

    name: str = "constant"

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> Scaled:
        """One number."""
        return Scaled(task, np.full(len(task), float(np.median(task.value[split.train]))), 1)


@dataclass(frozen=True)
class Roofline:
    """Physics alone: operators at the device's peak rates, planned memory, the power limit."""

    name: str = "roofline"

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> Scaled:
        """Nothing is learned."""
        return Scaled(task, _PHYSICS[task.name](task, graphs), 0)


def _vision(task: Task, graphs: Graphs) -> np.ndarray:
    from perfpass.predictors.roofline import GROUPS, SOFTWARE

    return _seconds(task, ours.vision_data().features(np.ones((len(SOFTWARE), len(GROUPS))))[1])


def _steps(task: Task, graphs: Graphs) -> np.ndarray:
    from perfpass.predictors.roofline import SOFTWARE
    from perfpass.predictors.training_step.features import STEP_GROUPS

    return _seconds(task, ours.step_corpus().dataset.features(np.ones((len(SOFTWARE), len(STEP_GROUPS))))[1])


def _seconds(task: Task, found: np.ndarray) -> np.ndarray:
    return np.asarray(1e3 * found[task.rows.record.to_numpy()])


def _memory(task: Task, graphs: Graphs) -> np.ndarray:
    return ours.memory_data()[0].take(task.rows.record.to_numpy()).reserved


_PHYSICS: dict[str, Callable[[Task, Graphs], np.ndarray]] = {
    "latency": _vision,
    "training_step": _steps,
    "memory": _memory,
    "energy": lambda task, graphs: step_power.roofline_s(task, graphs) * task.rows.power_limit_w.to_numpy(),
    "power": lambda task, graphs: task.rows.power_limit_w.to_numpy(np.float64),
}


def with_new_rows(train: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both, and their weights: a few records of a new device count as a fifth of all others together."""
    weight = np.ones(len(train) + len(rows))
    weight[len(train) :] = max(1.0, _NEW_ROWS_COUNT * len(train) / len(rows))
    return np.concatenate([train, rows]), weight


@dataclass(frozen=True, eq=False)
class FittedTrees:
    """A booster on the columns [N, F] of a task's rows, for the logarithm."""

    task: Task
    columns: np.ndarray
    train: np.ndarray
    booster: Any
    rounds: int

    @property
    def parameters(self) -> int:
        """Numbers that were learned."""
        return ours.nodes_of(self.booster)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] in the task's unit."""
        import xgboost

        return np.exp(self.booster.predict(xgboost.DMatrix(self.columns[rows])).astype(np.float64))

    def adapted(self, rows: np.ndarray, seed: int = 0) -> FittedTrees:
        """Fitted again with the rows, which together count as a fifth of the old ones."""
        import xgboost

        if not len(rows):
            return self
        both, weight = with_new_rows(self.train, rows)
        data = xgboost.DMatrix(self.columns[both], np.log(self.task.value[both]), weight=weight)
        return replace(self, booster=xgboost.train({**_TREES, "seed": seed}, data, self.rounds))


@dataclass(frozen=True)
class Boosting:
    """XGBoost on the static features of a ``schema`` and on how the network runs."""

    name: str = "boosting"
    schema: str = "dippm"
    _columns: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> FittedTrees:
        """As many trees as ``split.valid`` says."""
        import xgboost

        x = self.columns(task, graphs)
        train, valid = (xgboost.DMatrix(x[at], np.log(task.value[at])) for at in (split.train, split.valid))
        booster = xgboost.train(
            {**_TREES, "seed": seed, "eval_metric": "mae"},
            train,
            _ROUNDS,
            evals=[(valid, "valid")],
            early_stopping_rounds=_PATIENCE,
            verbose_eval=False,
        )
        rounds = int(booster.best_iteration) + 1
        return FittedTrees(task, x, split.train, booster[:rounds], rounds)

    def columns(self, task: Task, graphs: Graphs) -> np.ndarray:
        """[N, F] logarithms of the schema's static features, and the run features."""
        from perfpass.training.graph_networks.data import task_runs

        # Two tasks of one name differ where one is a part of the other.
        key = (task.name, hash(task.value.tobytes()))
        if key not in self._columns:
            of: dict[Any, np.ndarray] = {}
            for instance in sorted(set(zip(task.keys, task.rows.batch, strict=True))):
                found = features.extract(graphs.at(instance[0], int(instance[1])), self.schema)
                of[instance] = np.log1p(np.maximum(found.statics, 0.0))
            statics = np.stack([of[instance] for instance in zip(task.keys, task.rows.batch, strict=True)])
            self._columns[key] = np.hstack([statics, task_runs(task)]).astype(np.float32)
        return self._columns[key]


def method(name: str) -> Any:
    """One of NAMES. Raises ArgumentError for another name."""
    made: dict[str, Callable[[], Any]] = {"constant": Constant, "roofline": Roofline, "boosting": Boosting}
    if name not in made:
        raise ArgumentError(f"unknown predictor {name!r}; allowed are {', '.join(NAMES)}")
    return made[name]()
