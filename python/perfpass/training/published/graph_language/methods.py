"""The graph + language model and its variants as methods of the comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.published.answer import from_log
from perfpass.training.published.graph_language import stages
from perfpass.training.published.graph_language.model import GraphLanguage
from perfpass.training.published.graph_language.settings import Settings
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Split, Task

# Rows of a device or family up to which they count as few, so an adaptation, where the others are four times as many.
_FEW = 128
VARIANTS: dict[str, Settings] = {
    "graph-language": Settings(),
    "graph-language-text": Settings(representation="text"),
    "graph-language-json": Settings(representation="json"),
    "graph-language-none": Settings(representation="none"),
    "graph-language-many": Settings(tokens=5),
    "graph-language-digits": Settings(answer="text"),
    "graph-language-network": Settings(representation="network"),
    "graph-language-sentence": Settings(representation="sentence"),
}


@dataclass(frozen=True, eq=False)
class FittedGraphLanguage:
    """A trained network with the rows it was made for; ``learned``: those that it learned from."""

    model: GraphLanguage
    data: stages.Data
    scale: stages.Scale
    learned: np.ndarray

    @property
    def parameters(self) -> int:
        """Numbers that were learned, the base model's included."""
        return sum(p.numel() for p in self.model.parameters())

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """In the unit of the task."""
        return from_log(stages.predict(self.model, self.data, self.scale, np.asarray(rows)))

    def adapted(self, rows: np.ndarray, seed: int = 0) -> FittedGraphLanguage:
        """The same network after a few more steps, half of each on ``rows``, half on rows that it knows."""
        rows, model = np.asarray(rows), self.model.twin()
        known = np.setdiff1d(self.learned, rows)
        s = model.settings
        stages.fine_tune(model, self.data, self.scale, known, s.adaptation_steps, s.rate / 2, seed, rows)
        return replace(self, model=model, learned=np.union1d(known, rows))


class GraphLanguageMethod:
    """The method under one set of settings."""

    def __init__(self, name: str, settings: Settings, unlabelled: Task | None = None) -> None:
        """``unlabelled``: whose graphs the stages before prediction see (default: the latency records)."""
        self.name, self.settings, self.unlabelled = name, settings, unlabelled
        self._data: tuple[Task, stages.Data] | None = None

    def data(self, task: Task, graphs: Graphs) -> stages.Data:
        """The rows of a task, kept for the next split."""
        if self._data is None or self._data[0] is not task:
            self._data = task, stages.Data.of(task, graphs, self.unlabelled)
        return self._data[1]

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> FittedGraphLanguage:
        """Pre-training stages, then prediction on ``split.train``; then, in an adaptation, on the few rows of the new
        device or family and as many others. Graphs are seen without labels in all stages before prediction.
        """
        data = self.data(task, graphs)
        few = few_rows(task, split)
        known = np.setdiff1d(split.train, few)
        scale = stages.Scale.of(data, known)
        model = stages.start(self.settings, data, seed)
        stages.trained_on(model, data, scale, known, seed)
        fitted = FittedGraphLanguage(model, data, scale, known)
        return fitted.adapted(few, seed) if len(few) else fitted


def few_rows(task: Task, split: Split) -> np.ndarray:
    """Rows to learn from that are of the only device, or family, that is judged on; none unless they are few."""
    for column in ("device", "family"):
        names = task.rows[column].to_numpy(str)
        judged = np.unique(names[split.test])
        if len(judged) == 1:
            found = split.train[names[split.train] == judged[0]]
            if 0 < len(found) <= min(_FEW, (len(split.train) - len(found)) // 4):
                return found
    return split.train[:0]


def method(name: str, unlabelled: Task | None = None, **changed: object) -> GraphLanguageMethod:
    """A variant by its name in VARIANTS, with settings ``changed``. Raises ArgumentError for an unknown name."""
    if name not in VARIANTS:
        raise ArgumentError(f"unknown predictor {name!r}; allowed are {', '.join(VARIANTS)}")
    return GraphLanguageMethod(name, replace(VARIANTS[name], **changed), unlabelled)  # type: ignore[arg-type]
