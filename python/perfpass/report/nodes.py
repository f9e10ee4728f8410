"""A prediction seen node by node: names as in the model's file, the modules that hold them, time, work and bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.graph import OPERATOR_CLASS_OF, OPERATOR_CLASSES, OPERATORS
from perfpass.predictors.by_node import NodeTimes, node_times

if TYPE_CHECKING:
    from perfpass.prediction import Prediction
    from perfpass.predictors.estimate import Run

# Torch's names end in the operator with its library: layer1.0.conv1.aten.convolution.
_LIBRARY = re.compile(r"(?:^|\.)(?=(?:aten|prims?|torch|torchvision|quantized|_operator|custom)\.)")
_NAMED_SHARE = 0.5  # of the nodes that must stand in modules, for the modules to say something


@dataclass(frozen=True, eq=False)
class Nodes:
    """N nodes of a predicted run. ``name`` [N] as the model's source has them (`OpGraph.label`), in execution order."""

    prediction: Prediction
    run: Run
    times: NodeTimes
    name: tuple[str, ...]

    @classmethod
    def of(cls, prediction: Prediction) -> Nodes:
        """Raises UnsupportedError for a prediction that does not keep its graph."""
        asked = prediction.asked
        if asked is None or not hasattr(asked, "run"):
            raise UnsupportedError(
                "this prediction was read or made by hand, and has no graph; predict it to see into it"
            )
        run = asked.run()
        total = sum(prediction.breakdown["latency_ms"].values())
        times = node_times(run, prediction.workload["mode"] == "training", total)
        return cls(prediction, run, times, tuple(run.graph.label(i) for i in range(run.graph.node_count)))

    @cached_property
    def ms(self) -> np.ndarray:
        """[N] milliseconds in all phases."""
        return np.asarray(self.times.ms.sum(axis=0))

    @cached_property
    def operator(self) -> tuple[str, ...]:
        """[N] canonical operators."""
        return tuple(OPERATORS[i] for i in np.asarray(self.run.graph.op).tolist())

    @cached_property
    def operator_class(self) -> tuple[str, ...]:
        """[N] their classes; of a node whose kernel does the work of others too, the kernel's."""
        own = OPERATOR_CLASS_OF[np.asarray(self.run.graph.op)]
        row = self.times.row
        return tuple(OPERATOR_CLASSES[i] for i in np.where(row >= 0, self.run.table.op_class[row], own).tolist())

    @cached_property
    def modules(self) -> tuple[tuple[str, ...], ...]:
        """[N] the modules around each node, the outermost first; classes of operators where the names have none."""
        found = tuple(module_of(name) for name in self.name)
        if sum(map(bool, found)) >= _NAMED_SHARE * max(len(found), 1):
            return found
        return tuple((one,) for one in self.operator_class)

    @property
    def by_module(self) -> bool:
        """Whether `modules` are the model's own."""
        return any(map(bool, map(module_of, self.name))) and self.modules != tuple((c,) for c in self.operator_class)

    def tree(self) -> Frame:
        """Time by phase (of training), module and node."""
        root = Frame("all")
        several = len(self.times.phases) > 1
        for phase, ms, rest in zip(self.times.phases, self.times.ms, self.times.rest_ms, strict=True):
            top = (phase,) if several else ()
            for i in np.flatnonzero(ms > 0).tolist():
                root.add((*top, *self.modules[i], self.name[i]), float(ms[i]), self.operator_class[i])
            if rest > 0:
                root.add((*top, "update" if phase == "optimizer" else "beside the graph"), float(rest), "")
        return root


@dataclass(eq=False)
class Frame:
    """A module, or a node, with all that it holds."""

    name: str
    ms: float = 0.0
    children: dict[str, Frame] = field(default_factory=dict)
    by_class: dict[str, float] = field(default_factory=dict)

    def child(self, name: str) -> Frame:
        """The one of a name, made where it is missing."""
        return self.children.setdefault(name, Frame(name))

    def add(self, path: tuple[str, ...], ms: float, operator_class: str) -> None:
        """Time at the end of a path, counted all along it."""
        frame = self
        frame._count(ms, operator_class)
        for name in path:
            frame = frame.child(name)
            frame._count(ms, operator_class)

    def _count(self, ms: float, operator_class: str) -> None:
        self.ms += ms
        self.by_class[operator_class] = self.by_class.get(operator_class, 0.0) + ms

    @property
    def leaf(self) -> bool:
        """Whether it is a node, and not a module."""
        return not self.children

    @property
    def main_class(self) -> str:
        """The operator class that takes most of it."""
        return max(self.by_class, key=lambda name: self.by_class[name], default="")

    def walk(self, depth: int = 0, path: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...], Frame]]:
        """Every frame below, with its depth and path."""
        for child in self.children.values():
            yield depth, (*path, child.name), child
            yield from child.walk(depth + 1, (*path, child.name))


def module_of(name: str) -> tuple[str, ...]:
    """The modules that a node's name says it stands in, as "/blocks/blocks.0/attn/MatMul" or "layer1.relu.aten.relu_".

    A number belongs to what it counts: layer.0.
    """
    if "/" in name:
        return tuple(part for part in name.split("/")[:-1] if part)
    head = _LIBRARY.split(name, maxsplit=1)[0] if _LIBRARY.search(name) else name.rpartition(".")[0]
    parts: list[str] = []
    for part in filter(None, head.split(".")):
        if part.isdigit() and parts:
            parts[-1] = f"{parts[-1]}.{part}"
        else:
            parts.append(part)
    return tuple(parts)


def asked_of(prediction: Any) -> str:
    """The name that a prediction was asked with, without its folders; empty where it is not known."""
    return os.path.basename(getattr(prediction.asked, "model", "") or "")


def workload_line(workload: dict[str, Any], device_name: str, model: str = "") -> str:
    """What was predicted, in a line."""
    w = workload
    optimizer = f" with {w['optimizer']}" if "optimizer" in w else ""
    replayed = ", as a CUDA graph" if w.get("cuda_graph") else ""
    how = f"batch {w['batch']}, {w['precision']}, {w['mode']}{optimizer}, {w['runtime']}, {w['layout']}{replayed}"
    return f"{model + ' on ' if model else ''}{device_name}, {how}"
