"""Held-out predictions of every kind that an interval speaks of: rows, shapes, versions and devices unseen.

`train` makes the shipped bounds from them, `evaluate` grades them; in `evaluate` the bounds of a fold come from the
other folds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfpass.predictors.intervals import pooled_width, quantiles
from perfpass.predictors.kernel_model import offsets
from perfpass.training.kernels.data import Data
from perfpass.training.kernels.fit import fit, inputs
from perfpass.training.splits import groups_into_folds

# Rows that versions and devices are left out of: enough for the widths, and an evaluation stays within minutes.
SUBSAMPLE = 50_000
FOLDS = 5
# Of the five folds of rows and of shapes so many are judged; each has a fifth of all rows.
JUDGED = 2
RECORDS = (10, 32)
DRAWS = 3
LEAST_ROWS = 30


@dataclass(frozen=True, eq=False)
class Found:
    """Log predictions of held-out rows. ``fold`` names what was held out with each row; ``data`` are these rows."""

    split: str
    data: Data
    predicted: np.ndarray
    base: np.ndarray
    fold: np.ndarray

    @property
    def residual(self) -> np.ndarray:
        """log(measured / predicted), [N]."""
        return np.log(self.data.seconds) - self.predicted


def row_groups(data: Data) -> np.ndarray:
    """[N] one text per shape and software on a device; repeats share it, so that none is on both sides of a split."""
    return np.array([f"{s} {k}" for s, k in zip(data.shape_key, data.keys[:, -1], strict=True)])


def subsample(data: Data, rows: int, seed: int = 0) -> Data:
    """At most ``rows`` of the data."""
    if len(data) <= rows:
        return data
    return data.take(np.sort(np.random.default_rng(seed).permutation(len(data))[:rows]))


def run(data: Data, *, seed: int = 0) -> dict[str, Found]:
    """All held-out predictions of one operator, by split."""
    part = subsample(data, SUBSAMPLE, seed)
    return {
        "random": grouped("random", data, row_groups(data), FOLDS, JUDGED, seed),
        "shape": grouped("shape", data, data.shape_key, FOLDS, JUDGED, seed),
        "version": grouped("version", part, part.release, 4, 4, seed),
        "device": devices(part, seed),
    }


def grouped(split: str, data: Data, groups: np.ndarray, folds: int, judged: int, seed: int) -> Found:
    """Rows whose group was held out, by the known model."""
    fold = groups_into_folds(list(groups), min(folds, len(np.unique(groups))), seed)
    tests, predicted, base = [], [], []
    for i in range(min(judged, fold.max() + 1)):
        test = np.flatnonzero(fold == i)
        held = data.take(test)
        fitted = fit(data.take(np.flatnonzero(fold != i)), portable=False, seed=seed)
        tests.append(test)
        predicted.append(fitted.predict(held, portable=False))
        base.append(inputs(fitted.efficiencies, held, portable=False)[1])
    rows = np.concatenate(tests)
    return Found(split, data.take(rows), np.concatenate(predicted), np.concatenate(base), fold[rows].astype(str))


def devices(data: Data, seed: int) -> Found:
    """Rows of each device by the portable model of the others."""
    tests, predicted, base = [], [], []
    for name in np.unique(data.device):
        test = np.flatnonzero(data.device == name)
        held = data.take(test)
        fitted = fit(data.take(np.flatnonzero(data.device != name)), known=False, seed=seed)
        tests.append(test)
        predicted.append(fitted.predict(held, portable=True))
        base.append(inputs(fitted.efficiencies, held, portable=True)[1])
    rows = np.concatenate(tests)
    return Found("device", data.take(rows), np.concatenate(predicted), np.concatenate(base), data.device[rows])


def bounds(found: dict[str, Found]) -> dict[str, dict[str, list[float]]]:
    """Log bounds that ship, by evidence and precision, and "*" for all precisions."""
    return {
        "measured": by_precision(found["random"]),
        "version unseen": by_precision(found["version"]),
        "software unseen": device_widths(found["device"]),
        "device unseen": device_widths(found["device"]),
        "device and version unseen": widened(device_widths(found["device"]), by_precision(found["version"])),
    }


def by_precision(found: Found, keep: np.ndarray | None = None) -> dict[str, list[float]]:
    """Quantiles of held-out residuals; precisions with under 200 of them take those of all."""
    residual, precision = found.residual, found.data.precision
    if keep is not None:
        residual, precision = residual[keep], precision[keep]
    out = {"*": _around_zero(quantiles(residual, 0.9))}
    for name in np.unique(precision):
        inside = residual[precision == name]
        if len(inside) >= 200:
            out[str(name)] = _around_zero(quantiles(inside, 0.9))
    return out


def _around_zero(found: tuple[float, float]) -> list[float]:
    return [min(found[0], -0.01), max(found[1], 0.01)]


def device_widths(found: Found, without: str | None = None) -> dict[str, list[float]]:
    """Half-widths that hold nine in ten, every left-out device counting alike; precisions seen on two or more."""
    keep = found.fold != without
    names = np.unique(found.fold[keep])
    residual, precision = found.residual, found.data.precision
    every = [residual[(found.fold == n) & keep] for n in names]
    width = pooled_width([g for g in every if len(g) >= LEAST_ROWS])
    out = {"*": [-width, width]}
    for name in np.unique(precision[keep]):
        groups = [residual[(found.fold == n) & (precision == name)] for n in names]
        groups = [g for g in groups if len(g) >= LEAST_ROWS]
        if len(groups) >= 2:
            own = pooled_width(groups)
            out[str(name)] = [-own, own]
    return out


def widened(a: dict[str, list[float]], b: dict[str, list[float]]) -> dict[str, list[float]]:
    """Independent errors: squares add."""
    other = b["*"]
    return {p: [-float(np.hypot(low, other[0])), float(np.hypot(high, other[1]))] for p, (low, high) in a.items()}


def adapted(found: Found, data_shares: np.ndarray, records: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log predictions of left-out devices after ``records`` of their rows, and which rows were kept back from judging.

    Returns [N] predictions and [N] bools (row was a record). One draw.
    """
    rng = np.random.default_rng(seed)
    predicted, used = found.predicted.copy(), np.zeros(len(found.predicted), dtype=bool)
    for name in np.unique(found.fold):
        rows = np.flatnonzero(found.fold == name)
        chosen = rng.permutation(rows)[: min(records, len(rows) // 2)]
        fitted = offsets(found.residual[chosen], data_shares[chosen])
        predicted[rows] += data_shares[rows] @ fitted
        used[chosen] = True
    return predicted, used
