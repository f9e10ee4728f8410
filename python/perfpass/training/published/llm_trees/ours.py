"""The design of the shipped generation predictor (physics and a Gaussian process), fitted on a split of the task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perfpass.predictors.generation.features import FORM, rows_of
from perfpass.predictors.learned.adapt import adapt
from perfpass.predictors.learned.components import Adaptation, Fitted, Rows
from perfpass.training.components.fit import fit
from perfpass.training.published.llm_trees.table import batches

if TYPE_CHECKING:
    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.tasks import Split, Task


@dataclass(frozen=True, eq=False)
class FittedProcess:
    """`components.Fitted` behind the comparison's interface."""

    fitted: Fitted
    task: Task
    adaptation: Adaptation | None = None

    @property
    def parameters(self) -> int:
        """Factors, and the weights of the remembered rows."""
        factors = sum(len(f) for level in self.fitted.factors for f in level.values())
        return factors + self.fitted.known.weights.size

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Seconds."""
        asked = _rows(self.task).take(np.asarray(rows))
        return self.adaptation.predict(self.fitted, asked) if self.adaptation else self.fitted.predict(asked)[0]

    def adapted(self, rows: np.ndarray, seed: int = 0) -> FittedProcess:
        """With the correction that ``rows`` of a new device suggest, as `GenerationPredictor.adapted` makes it."""
        rows = np.asarray(rows)
        return replace(self, adaptation=adapt(self.fitted, _rows(self.task).take(rows), self.task.value[rows]))


class Process:
    """The method. It has no settings left to choose, so the rows of ``split.valid`` are learned from too."""

    name = "llm-process"

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> FittedProcess:
        """Factors and process on the split's rows."""
        known = np.concatenate([split.train, split.valid])
        return FittedProcess(fit(FORM, _rows(task).take(known), task.value[known]), task)


@lru_cache(maxsize=4)
def _rows(task: Task) -> Rows:
    """The task's runs as the process sees them, kept for the next split."""
    return rows_of(batches(task))
