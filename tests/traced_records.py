"""Real records of a few small networks with their graphs, traced once a process: for tests that learn."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import Split, Task, load

NETWORKS = ("resnet18", "resnet50", "vgg11", "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x1_0")


@lru_cache(maxsize=1)
def graphs() -> Graphs:
    """The graphs of this process."""
    return Graphs()


def traced(task: Task) -> Task:
    """The task, once each of its networks is traced in this process; one that cannot be is a failure."""
    wanted = set(task.keys)
    assert set(graphs().ensure(wanted, jobs=1, quiet=True)) == wanted, graphs().failures
    return task


@lru_cache(maxsize=1)
def training_steps() -> Task:
    """Training steps of six networks of torchvision on six devices. The tests share it: change a copy alone."""
    task = load("training_step")
    wanted = task.rows.model.isin(NETWORKS) & (task.rows.source == "torchvision") & (task.rows.precision != "fp64")
    return traced(task.subset(np.flatnonzero(wanted)))


def by_rows(task: Task) -> Split:
    """Single rows held out: with repeats kept together, six networks are too few to learn from."""
    draw = np.random.default_rng(0).permutation(len(task))
    test, valid = len(draw) // 5, len(draw) * 3 // 10
    return Split("rows", np.sort(draw[valid:]), np.sort(draw[test:valid]), np.sort(draw[:test]))
