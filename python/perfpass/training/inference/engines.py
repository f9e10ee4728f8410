"""Fits the levels of `perfpass.predictors.inference.engines`: whole networks in engines, all laboratories.

As `perfpass.training.inference.operators`, whose levels stay what they are: a hierarchical model of the logarithm of
measured times, linear in its levels after each step of Gauss and Newton, with a normal prior around 0 for every level.
Laboratories, their hosts and the engines that no user can name (FasterTransformer, TensorRT inside another framework)
have effects of their own, which ship nothing. Residuals have tails (Huber's weights).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.predictors.inference.engines import (
    CONVOLUTIONS,
    ENGINES,
    FUSABLE,
    KEPT,
    KEPT_FAMILIES,
    LAUNCHED,
    LEVELS,
    PRODUCTS,
    EngineTimes,
    kernels_of,
    launch_s,
    ran_as,
)
from perfpass.predictors.inference.operators import CALL_S, FAMILIES, ISSUE_S, generation, work
from perfpass.predictors.roofline import SMOOTHNESS, smooth_maximum
from perfpass.training.inference.levels import fitted
from perfpass.training.inference.operator_rows import asked
from perfpass.training.tasks import named

# Log deviations of levels around 0. Physics is set on measured kernels, so that families and boards hardly move; how
# much an engine leaves to launch, and of what bytes, is a guess. Chosen on sources left out (docs/decisions.md).
SPREAD: dict[str, float] = {
    "all": 0.05,
    "class": 0.03,
    "runtime": 0.1,
    "precision": 0.08,
    "generation": 0.04,
    "gap": 0.3,
    "launched": 0.25,
    "kept": 0.3,
    "call": 0.4,
    "issue": 0.3,
    "engine": 0.4,
    "laboratory": 0.3,
    "laboratory's host": 1.0,
}
# Attention at fp32 is no single kernel in engines, and its share of the roof was set on PyTorch's.
_FREE_FAMILY, _FREE = "attention_vector", 0.3
_NOISE, _HUBER, _STEPS = 0.25, 1.5, 20
# Rows of a group that count whole; of more their root does, of very many no more than the second figure's.
_WHOLE, _MOST = 12, 60
_OWN = ("engine", "laboratory", "laboratory's host")
_EVERY = np.ones(len(FAMILIES), dtype=bool)


@dataclass(frozen=True, eq=False)
class Rows:
    """N measurements: ``device_s`` and ``launches`` [N, families] before any level, ``launch_s`` [N] of one kernel,
    ``replayed`` [N] whether a CUDA graph was.

    ``names``: columns source, runtime (as asked), engine (as recorded), precision, generation, device, group.
    """

    names: Any
    measured_s: np.ndarray
    device_s: np.ndarray
    launches: np.ndarray
    launch_s: np.ndarray
    replayed: np.ndarray

    def __len__(self) -> int:
        return len(self.measured_s)

    def take(self, kept: np.ndarray) -> Rows:
        """Some of them."""
        arrays = (self.measured_s, self.device_s, self.launches, self.launch_s, self.replayed)
        return Rows(self.names.iloc[kept].reset_index(drop=True), *(a[kept] for a in arrays))


def load(folder: Path | None = None) -> Rows:
    """What the levels are fitted to. Raises FileError, FormatError."""
    import pandas

    frame, known = asked(folder)
    frame = frame[frame.asked_runtime.isin(ENGINES) & named.of_the_runtime(frame)]
    names, values = [], []
    for way, part in named.ways(frame):
        found, ran = named.tables_of(part, way, known), ran_as(way)
        tables = found.tables
        done = work(tables.table, ran, engine=True, graph=tables.graph)
        sums = np.zeros((2, len(tables), len(FAMILIES)))
        for out, value in zip(sums, (done.seconds, done.issued), strict=True):
            np.add.at(out, (tables.graph, done.family), value * tables.count)
        names.append(
            part[["source"]].assign(
                runtime=way.runtime, engine=part.runtime, precision=kernels_of(ran),
                generation=generation(way.device), device=way.device.parent or way.device.id,
                group=part.source + "/" + part.runtime + "/" + part.domain,
            )
        )  # fmt: skip
        start, replayed = np.full(len(part), launch_s(way)), np.full(len(part), way.cuda_graph)
        values.append((part.measured_s.to_numpy(), *sums[:, found.at], start, replayed))
    return Rows(pandas.concat(names, ignore_index=True), *(np.concatenate(v) for v in zip(*values, strict=True)))


class _Model:
    """The parameters of N rows: which of them each row has, and what the time is under them."""

    def __init__(self, rows: Rows) -> None:
        n, self.rows = rows.names, rows
        self.names: list[tuple[str, str]] = []
        # Levels of one value for all rows of a name: (families they scale, index of the parameter of each row).
        self._scales: list[tuple[np.ndarray, np.ndarray]] = []
        for level, column, families in (
            ("all", np.full(len(n), ""), _EVERY),
            ("runtime", n.runtime, _EVERY),
            ("generation", n.generation, _EVERY),
            ("engine", n.engine.where(~n.engine.isin(ENGINES), ""), _EVERY),
            ("laboratory", n.source, _EVERY),
            ("precision", n.precision, PRODUCTS),
            ("precision", n.precision + " convolution", CONVOLUTIONS),
            ("kept", n.runtime, KEPT_FAMILIES),
        ):
            self._scales.append((families, self._add(level, column)))
        self._family = self._add("class", np.array(FAMILIES))
        self._launched = {kind: self._add("launched", n.runtime + " " + kind) for kind in FUSABLE}
        self._gap, self._call, self._issue = (self._add(level, np.array([""]))[0] for level in ("gap", "call", "issue"))
        self._host = self._add("laboratory's host", n.source)
        self.own = np.array([level in _OWN for level, _ in self.names])
        self.deviation = np.array([_FREE if name == _FREE_FAMILY else SPREAD[level] for level, name in self.names])
        # What runs in an engine that users can name has no effect of another.
        self.deviation[[level == "engine" and not name for level, name in self.names]] = 1e-3
        self._before = {
            kind: np.array([LAUNCHED[runtime][kind] for runtime in n.runtime]) for kind in FUSABLE
        }  # fmt: skip
        self._kept = np.array([KEPT[runtime] for runtime in n.runtime])

    def _add(self, level: str, column: Any) -> np.ndarray:
        """Parameters of a level, one for each value of ``column``, and the index [len(column)] of each entry's."""
        values, index = np.unique(np.asarray(column, dtype=str), return_inverse=True)
        self.names += [(level, str(v)) for v in values]
        return np.asarray(len(self.names) - len(values) + index)

    def evaluate(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[N] log seconds and their Jacobian [N, P]."""
        r = self.rows
        level = theta[self._family] + np.log(self._kept)[:, None] * KEPT_FAMILIES
        for families, at in self._scales:
            level = level + theta[at][:, None] * families
        parts = r.device_s * np.exp(level)
        launches = np.array(r.launches)
        free = {}
        for kind, fusable in FUSABLE.items():
            share = self._before[kind] * np.exp(theta[self._launched[kind]])
            launches[:, np.isin(FAMILIES, fusable)] *= np.minimum(share, 1.0)[:, None]
            free[kind] = share < 1.0
        total_launches = launches.sum(axis=1)
        one_by_one = ~r.replayed
        start = r.launch_s * np.where(one_by_one, np.exp(theta[self._gap]), 1.0)
        own = np.exp(theta[self._host])
        call = CALL_S["engine"] * np.exp(theta[self._call]) * own
        issue = ISSUE_S["engine"] * np.exp(theta[self._issue]) * own * one_by_one
        busy, host = parts.sum(axis=1) + start * total_launches, call + issue * total_launches
        total = smooth_maximum(busy, host)
        on_device, on_host = (busy / total) ** SMOOTHNESS / busy, (host / total) ** SMOOTHNESS / host
        jacobian, every = np.zeros((len(r), len(theta))), np.arange(len(r))
        share = parts * on_device[:, None]
        jacobian[:, self._family] = share
        for families, at in self._scales:
            jacobian[every, at] += share[:, families].sum(axis=1)
        for kind, fusable in FUSABLE.items():
            own_launches = launches[:, np.isin(FAMILIES, fusable)].sum(axis=1) * free[kind]
            jacobian[every, self._launched[kind]] = own_launches * (start * on_device + issue * on_host)
        jacobian[:, self._gap] = start * total_launches * on_device * one_by_one
        jacobian[:, self._call] = call * on_host
        jacobian[:, self._issue] = issue * total_launches * on_host
        jacobian[every, self._host] = host * on_host
        return np.log(total), jacobian


def fit(rows: Rows) -> EngineTimes:
    """The levels that ship: those of laboratories and of engines that no user can name are left out."""
    model = _Model(rows)
    count = rows.names.groupby("group").group.transform("size").to_numpy(np.float64)
    base = np.sqrt(np.minimum(1.0, _WHOLE / count) * np.minimum(1.0, _MOST / count))
    target = np.log(rows.measured_s)
    return EngineTimes(fitted(model, target, base, LEVELS, noise=_NOISE, huber=_HUBER, steps=_STEPS))
