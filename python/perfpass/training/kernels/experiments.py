"""Held-out predictions of every kind that an interval speaks of: rows, shapes, versions and devices unseen.

`widths` makes the intervals that ship from them, and those that `evaluate` grades.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfpass.predictors.kernels.efficiency import LEVELS
from perfpass.predictors.kernels.model import offsets
from perfpass.training.kernels.data import Data, software
from perfpass.training.kernels.fit import fit, inputs
from perfpass.training.tasks.splits import groups_into_folds

# Rows that shapes, versions and devices are left out of: enough for the widths, and an evaluation stays within minutes.
SUBSAMPLE = 30_000
FOLDS = 5
# Of the five folds of rows and of shapes so many are judged; each has a fifth of all rows.
JUDGED = 2
RECORDS = (10, 32)
LEAST_ROWS = 30


@dataclass(frozen=True, eq=False)
class Found:
    """Log predictions of held-out rows, beside those of physics and efficiencies alone (``base``).

    ``fold`` names what was held out with each row; ``data`` are these rows, ``shares`` [N, 5] their regimes,
    ``evidence`` [N] (of EVIDENCE) what was left to learn from.
    """

    split: str
    data: Data
    predicted: np.ndarray
    base: np.ndarray
    shares: np.ndarray
    fold: np.ndarray
    evidence: np.ndarray

    @property
    def residual(self) -> np.ndarray:
        """log(measured / predicted), [N]."""
        return np.log(self.data.seconds) - self.predicted


def row_groups(data: Data) -> np.ndarray:
    """[N] one text per shape and software on a device; repeats share it, so that none is on both sides of a split."""
    _, code = np.unique(data.keys[:, -1].astype(str), return_inverse=True)
    return np.char.add(np.char.add(data.shape_key.astype(str), " "), code.astype(str))


def subsample(data: Data, rows: int, seed: int = 0) -> Data:
    """At most ``rows`` of the data."""
    if len(data) <= rows:
        return data
    return data.take(np.sort(np.random.default_rng(seed).permutation(len(data))[:rows]))


def run(data: Data, *, seed: int = 0) -> dict[str, Found]:
    """All held-out predictions of one operator, by split; no versions where there is only one."""
    part = subsample(data, SUBSAMPLE, seed)
    found = {
        "random": grouped("random", data, row_groups(data), FOLDS, JUDGED, seed),
        "shape": grouped("shape", part, part.shape_key, FOLDS, JUDGED, seed),
        "device": devices(part, seed),
    }
    if len(np.unique(part.release)) >= 4:
        found["version"] = grouped("version", part, part.release, 4, 4, seed)
    return found


def grouped(split: str, data: Data, groups: np.ndarray, folds: int, judged: int, seed: int) -> Found:
    """Rows whose group was held out, by the known model."""
    fold = groups_into_folds(list(groups), min(folds, len(np.unique(groups))), seed)
    return _held_out(split, data, fold, list(range(min(judged, int(fold.max()) + 1))), seed)


def devices(data: Data, seed: int) -> Found:
    """Rows of each device by the others: by its nearest measured relative, or the portable model where it has none."""
    return _held_out("device", data, data.device, sorted(np.unique(data.device)), seed)


def _held_out(split: str, data: Data, fold: np.ndarray, names: Sequence[object], seed: int) -> Found:
    parts: list[tuple[np.ndarray, ...]] = []
    for name in names:
        test = np.flatnonzero(fold == name)
        held, rest = data.take(test), data.take(np.flatnonzero(fold != name))
        if split == "device":
            found = fit(rest, seed=seed).unseen(held, software(rest))
        else:
            fitted = fit(rest, portable=False, seed=seed)
            _, base, regimes = inputs(fitted.efficiencies, held, portable=False)
            depth = fitted.efficiencies.rows(held.keys)[1]
            seen = np.array([*("software unseen",) * (LEVELS - 2), "version unseen", "measured"], dtype=object)
            found = fitted.predict(held, portable=False), base, regimes, seen[np.maximum(depth, 0)]
        parts.append((test, *found))
    rows, logs, bases, shares, evidence = (np.concatenate(p) for p in zip(*parts, strict=True))
    return Found(split, data.take(rows), logs, bases, shares, fold[rows].astype(str), evidence)


def row_folds(data: Data, seed: int) -> np.ndarray:
    """[N] fold of each row at random, repeats of a measurement together."""
    return groups_into_folds(list(row_groups(data)), FOLDS, seed)


def adapted(found: Found, groups: np.ndarray, records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log predictions of left-out devices after ``records`` rows of each group, and which rows [N] are judged.

    A group's records correct its own rows; groups with fewer than twice as many rows are not judged.
    """
    rng = np.random.default_rng(seed)
    predicted, judged = found.predicted.copy(), np.ones(len(found.predicted), dtype=bool)
    for name in np.unique(groups):
        rows = np.flatnonzero(groups == name)
        if len(rows) < 2 * records:
            judged[rows] = False
            continue
        chosen = rng.permutation(rows)[:records]
        predicted[rows] += found.shares[rows] @ offsets(found.residual[chosen], found.shares[chosen])
        judged[chosen] = False
    return predicted, judged
