"""Ours with trees on what the physics miss, for the quantities whose shipped predictor has none: memory, power, energy.

A candidate for what answers there; which one does is for validation to say (docs/research/comparison.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.training.tasks import ours
from perfpass.training.tasks.baselines import Boosting, with_new_rows
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Split, Task

NAME = "perfpass-residual"
TASKS = ("memory", "power", "energy")
_TREES = {
    "objective": "reg:squarederror",
    "max_depth": 5,
    "eta": 0.05,
    "subsample": 0.8,
    "colsample_bytree": 0.8,
    "tree_method": "hist",
    "nthread": 1,
    "eval_metric": "mae",
}
_ROUNDS, _PATIENCE = 1000, 50


@dataclass(frozen=True, eq=False)
class FittedResidual:
    """``physics`` answers in the task's unit; ``booster`` says the logarithm of measured over that."""

    task: Task
    physics: Any
    columns: np.ndarray
    train: np.ndarray
    booster: Any
    rounds: int

    @property
    def parameters(self) -> int:
        """Numbers that were learned."""
        return ours.nodes_of(self.booster) + int(self.physics.parameters)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] in the task's unit."""
        import xgboost

        rows = np.asarray(rows)
        learned = self.booster.predict(xgboost.DMatrix(self.columns[rows])).astype(np.float64)
        return np.asarray(self.physics.coarse(rows) * np.exp(learned))

    def adapted(self, rows: np.ndarray, seed: int = 0) -> FittedResidual:
        """Physics and trees again, from all rows; the new ones together count as a fifth of the old."""
        both, weight = with_new_rows(self.train, rows)
        physics = self.physics.adapted(rows, seed)
        booster = _grown(self.task, physics, self.columns, both, weight, self.rounds, seed)
        return FittedResidual(self.task, physics, self.columns, both, booster, self.rounds)


@dataclass(frozen=True)
class Residual:
    """As many trees as ``split.valid`` says."""

    name: str = NAME
    _statics: Boosting = field(default_factory=Boosting)

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> FittedResidual:
        """Physics, then trees, from ``split.train``."""
        if task.name not in TASKS:
            raise ArgumentError(f"{NAME} is for {', '.join(TASKS)}; {task.name!r} has trees as it ships")
        physics = ours.Perfpass().fit(task, graphs, split, seed)
        x = self._statics.columns(task, graphs)
        booster = _grown(task, physics, x, split.train, None, _ROUNDS, seed, split.valid)
        rounds = int(booster.best_iteration) + 1
        return FittedResidual(task, physics, x, split.train, booster[:rounds], rounds)


def _grown(
    task: Task,
    physics: Any,
    x: np.ndarray,
    rows: np.ndarray,
    weight: np.ndarray | None,
    rounds: int,
    seed: int,
    valid: np.ndarray | None = None,
) -> Any:
    import xgboost

    def data(at: np.ndarray, of: np.ndarray | None = None) -> Any:
        return xgboost.DMatrix(x[at], np.log(task.value[at] / physics.coarse(at)), weight=of)

    stopping: dict[str, Any] = {}
    if valid is not None:
        stopping = {"evals": [(data(valid), "valid")], "early_stopping_rounds": _PATIENCE}
    return xgboost.train({**_TREES, "seed": seed}, data(rows, weight), rounds, verbose_eval=False, **stopping)


def method(name: str) -> Residual:
    """The method. Raises ArgumentError for another name."""
    if name != NAME:
        raise ArgumentError(f"unknown predictor {name!r}; allowed is {NAME}")
    return Residual()
