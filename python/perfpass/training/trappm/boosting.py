"""Boosted trees on the six static features: the published baseline without a graph."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfpass.training.comparison.graphs import Graphs
from perfpass.training.comparison.tasks import Split, Task
from perfpass.training.graph_networks.data import ClassPool, Examples, examples, statics
from perfpass.training.trappm.unlabelled import SCHEMA

_ROUNDS, _PATIENCE = 800, 40
# Trees that grow on records of a new device, and rows learned before that stay beside each new one.
_GROWN, _OLD_PER_NEW = 60, 2


@dataclass(frozen=True, eq=False)
class FittedTrees:
    """A booster of log(value) and the rows that it learned from."""

    task: Task
    booster: Any
    pool: ClassPool
    learned: Examples

    @property
    def parameters(self) -> int:
        """Splits and leaves."""
        return sum(text.count("leaf=") + text.count("yes=") for text in self.booster.get_dump())

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] in the task's unit."""
        import xgboost

        found = examples([(self.task.subset(np.asarray(rows)), 0)], 1)
        return np.exp(self.booster.predict(xgboost.DMatrix(statics(found, self.pool))).astype(np.float64))

    def adapted(self, rows: np.ndarray, seed: int = 0) -> FittedTrees:
        """The trees with more of them, grown on ``rows`` and on some rows known before."""
        if not len(rows):
            return self
        fresh = examples([(self.task.subset(np.asarray(rows)), 0)], 1)
        drawn = np.random.default_rng(seed).permutation(len(self.learned))[: _OLD_PER_NEW * len(fresh)]
        old = self.learned.subset(drawn)
        x = np.vstack([statics(part, self.pool) for part in (fresh, old)])
        target = np.concatenate([part.targets[:, 0] for part in (fresh, old)])
        return replace(self, booster=_grown(x, target, _GROWN, seed, after=self.booster))


@dataclass(frozen=True)
class Boosting:
    """XGBoost on statics and run features."""

    name: str = "trappm-boosting"
    settings: dict[str, Any] = field(default_factory=dict)

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> FittedTrees:
        """Learn from ``split.train``; as many trees as are best on ``split.valid``."""
        from perfpass.training.trappm.autoencoder import LAYERS
        from perfpass.training.trappm.network import plain_pool

        pool = plain_pool(graphs, SCHEMA, LAYERS)
        train, valid = (examples([(task.subset(rows), 0)], 1) for rows in (split.train, split.valid))
        judged = statics(valid, pool), valid.targets[:, 0]
        booster = _grown(statics(train, pool), train.targets[:, 0], _ROUNDS, seed, judged, **self.settings)
        return FittedTrees(task, booster, pool, train)

    def with_options(self, **changes: Any) -> Boosting:
        """The same method with other settings of XGBoost."""
        return replace(self, settings={**self.settings, **changes})


def _grown(
    x: np.ndarray,
    target: np.ndarray,
    rounds: int,
    seed: int,
    judged: tuple[np.ndarray, np.ndarray] | None = None,
    after: Any = None,
    **settings: Any,
) -> Any:
    import xgboost

    chosen: dict[str, Any] = {
        "max_depth": 7,
        "eta": 0.1,
        "subsample": 0.8,
        "colsample_bytree": 0.8,
        "min_child_weight": 2.0,
    }
    chosen |= {"objective": "reg:squarederror", "nthread": 1, "seed": seed, "verbosity": 0, **settings}
    stopping: dict[str, Any] = {}
    if judged is not None:
        stopping = {"evals": [(xgboost.DMatrix(*judged), "valid")], "early_stopping_rounds": _PATIENCE}
    found = xgboost.train(chosen, xgboost.DMatrix(x, target), rounds, xgb_model=after, verbose_eval=False, **stopping)
    return found[: found.best_iteration + 1] if judged is not None else found
