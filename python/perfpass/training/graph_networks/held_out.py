"""What a shipped network never sees: architectures of the latency task's split, held out of every task."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from perfpass.training.tasks import tasks
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Split, Task

# Memory, energy and power were measured of so few networks that none can be spared: rows are set aside there.
BY_NETWORK = ("latency", "training_step")


@lru_cache(maxsize=2)
def architectures(graphs: Graphs, seed: int = 0) -> dict[str, frozenset[str]]:
    """The architectures that are chosen on (valid) and graded on (test)."""
    task = tasks.load("latency").traced(graphs, quiet=True)
    split = next(s for s in task.splits(seed) if s.name == "architecture")
    return {part: frozenset(task.rows.architecture.iloc[getattr(split, part)]) for part in ("valid", "test")}


def split(task: Task, graphs: Graphs, seed: int = 0) -> Split:
    """`architectures` as a split of the task, so that none is held out here and learned elsewhere; or rows."""
    if task.name not in BY_NETWORK:
        return next(s for s in task.splits(seed) if s.name == "random")
    at = {part: task.rows.architecture.isin(names).to_numpy() for part, names in architectures(graphs, seed).items()}
    rest = ~at["valid"] & ~at["test"]
    return Split("architecture", *(np.flatnonzero(rows) for rows in (rest, at["valid"], at["test"])))
