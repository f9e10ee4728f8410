"""What a predictor must do to be compared, and the predictors that are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from perfpass.errors import ArgumentError
from perfpass.training.tasks import tasks

if TYPE_CHECKING:
    import numpy as np

    from perfpass.training.tasks.graphs import Graphs
    from perfpass.training.tasks.tasks import Split, Task


class Fitted(Protocol):
    """A trained predictor of one task."""

    @property
    def parameters(self) -> int:
        """Numbers that were learned."""
        ...

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows)] predictions in the task's unit, for indices of the task's rows."""
        ...

    def adapted(self, rows: np.ndarray, seed: int = 0) -> Fitted:
        """The same predictor after it has also learned from ``rows``, a few measurements of a new device."""
        ...


class Method(Protocol):
    """A way to predict; one object serves many splits."""

    name: str

    def fit(self, task: Task, graphs: Graphs, split: Split, seed: int = 0) -> Fitted:
        """Learn from ``split.train`` alone, choosing on ``split.valid``; ``split.test`` is not looked at."""
        ...


# Modules with ``method(name) -> Method``.
METHODS: dict[str, str] = {
    "perfpass": "perfpass.training.tasks.ours",
    "perfpass-residual": "perfpass.training.tasks.residual",
    **dict.fromkeys(("constant", "roofline", "boosting"), "perfpass.training.tasks.baselines"),
    **dict.fromkeys(("dippm", "dippm-gat", "dippm-gcn", "dippm-gin", "dippm-mlp"), "perfpass.training.published.dippm"),
    **dict.fromkeys(
        ("trappm", "trappm-random", "trappm-nnlqp", "trappm-mlp", "trappm-boosting"),
        "perfpass.training.published.trappm",
    ),
    **dict.fromkeys(("llm-trees", "llm-gnn", "llm-process"), "perfpass.training.published.llm_trees"),
    **dict.fromkeys(
        (
            *("graph-language", "graph-language-text", "graph-language-json", "graph-language-none"),
            *("graph-language-many", "graph-language-digits", "graph-language-network", "graph-language-sentence"),
        ),
        "perfpass.training.published.graph_language",
    ),
}


# The tasks that a method is made for, where it is not all of `tasks.TASKS`.
MADE_FOR: dict[str, tuple[str, ...]] = {
    "perfpass": tasks.EVERY_TASK,
    "perfpass-residual": ("memory", "power", "energy"),
    "constant": tasks.EVERY_TASK,
    **dict.fromkeys(("llm-trees", "llm-gnn"), (tasks.LANGUAGE_TASK,)),
    "llm-process": (),  # what "perfpass" is for language models
}
# Methods with nothing to choose, which learn from validation rows too; compared without, so that all see the same.
WITHOUT_VALIDATION = ("llm-gnn",)


def made_for(name: str, task: str) -> bool:
    """Whether a method speaks of a task at all."""
    return task in MADE_FOR.get(name, tasks.TASKS)


def method(name: str) -> Any:
    """A method by name. Raises ArgumentError for an unknown one."""
    if name not in METHODS:
        raise ArgumentError(f"unknown predictor {name!r}; allowed are {', '.join(METHODS)}")
    return import_module(METHODS[name]).method(name)
