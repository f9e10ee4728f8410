"""XGBoost on the LLM feature table (Panner Selvam and Brorsson, ARC-LG workshop at ISCA 2024), for the logarithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.llm import table as llm_table
from perfpass.training.published.llm_trees.table import runtimes, table

if TYPE_CHECKING:
    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.tasks import Split, Task

# Of three sizes the best on validation rows; what ships stays below 0.3 MB.
SETTINGS = {"max_depth": 7, "eta": 0.06, "subsample": 0.8, "min_child_weight": 2, "tree_method": "hist", "nthread": 1}
ROUNDS = 700
_PATIENCE = 30
# Trees that an adaptation adds; the few rows weigh as much as all others together.
_ADAPTATION_ROUNDS = 40


@dataclass(frozen=True, eq=False)
class FittedTrees:
    """A booster over the columns ``columns`` of `table` and all of `runtimes`; ``learned``: the rows it saw."""

    booster: Any
    columns: list[int]
    task: Task
    graphs: Graphs | None
    learned: np.ndarray

    @property
    def parameters(self) -> int:
        """Numbers in the trees: a feature and a threshold per inner node, a value per leaf."""
        nodes = self.booster.trees_to_dataframe()
        leaves = int((nodes.Feature == "Leaf").sum())
        return leaves + 2 * (len(nodes) - leaves)

    def adapted(self, rows: np.ndarray, seed: int = 0) -> FittedTrees:
        """More trees on top of these, grown on ``rows`` and on all rows learned from before."""
        import xgboost

        rows = np.asarray(rows)
        known = np.setdiff1d(self.learned, rows)
        both = np.concatenate([known, rows])
        weight = np.concatenate([np.ones(len(known)), np.full(len(rows), max(len(known), 1) / max(len(rows), 1))])
        x, y = matrix(self.task, self.graphs, self.columns)[both], np.log(self.task.value[both])
        booster = xgboost.train(
            {**SETTINGS, "seed": seed},
            xgboost.DMatrix(x, y, weight=weight),
            _ADAPTATION_ROUNDS,
            xgb_model=self.booster,
            verbose_eval=False,
        )
        return replace(self, booster=booster, learned=both)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Seconds."""
        import xgboost

        x = matrix(self.task, self.graphs, self.columns)[rows]
        return np.exp(self.booster.predict(xgboost.DMatrix(x)).astype(np.float64))


def matrix(task: Task, graphs: Graphs | None, columns: Sequence[int]) -> np.ndarray:
    """[N, F] what the trees read: columns of the table, then the runtime."""
    return np.concatenate([table(task, graphs)[:, list(columns)], runtimes(task)], axis=1)


class Trees:
    """The method: ``groups`` of columns that it may see besides the workload; ``traced`` ones need operator graphs."""

    def __init__(
        self, name: str = "llm-trees", groups: Sequence[str] = tuple(llm_table.GROUPS), traced: bool = True
    ) -> None:
        self.name, self.traced = name, traced
        every = llm_table.columns_of(dict.fromkeys([*groups, "workload"]))
        self.columns = [c for c in every if traced or llm_table.COLUMNS[c] not in llm_table.TRACED]

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> FittedTrees:
        """Boosting stops where rows of ``split.valid`` get worse for `_PATIENCE` rounds."""
        import xgboost

        given = graphs if self.traced else None
        x, y = matrix(task, given, self.columns), np.log(task.value)
        train, valid = (xgboost.DMatrix(x[rows], y[rows]) for rows in (split.train, split.valid))
        watched = {"evals": [(valid, "valid")], "early_stopping_rounds": _PATIENCE} if len(split.valid) else {}
        booster = xgboost.train({**SETTINGS, "seed": seed}, train, ROUNDS, verbose_eval=False, **watched)
        best = getattr(booster, "best_iteration", ROUNDS - 1)
        return FittedTrees(booster[: best + 1], self.columns, task, given, split.train)
