"""Held-out predictions of every kind that an interval speaks of: rows, shapes, versions and devices unseen.

`train` makes the shipped bounds from them, `evaluate` grades them; in `evaluate` the bounds of a fold come from the
other folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfpass.devices import device as find_device
from perfpass.predictors.kernels.model import offsets
from perfpass.predictors.kernels.software import generation
from perfpass.predictors.learned.intervals import pooled_width, quantiles
from perfpass.training.kernels.data import Data
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

    ``fold`` names what was held out with each row; ``data`` are these rows, ``shares`` [N, 5] their regimes.
    """

    split: str
    data: Data
    predicted: np.ndarray
    base: np.ndarray
    shares: np.ndarray
    fold: np.ndarray

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
    return _held_out(split, data, fold, list(range(min(judged, int(fold.max()) + 1))), False, seed)


def devices(data: Data, seed: int) -> Found:
    """Rows of each device by the portable model of the others."""
    return _held_out("device", data, data.device, sorted(np.unique(data.device)), True, seed)


def _held_out(split: str, data: Data, fold: np.ndarray, names: Sequence[object], portable: bool, seed: int) -> Found:
    rows, predicted, base, regimes = [], [], [], []
    for name in names:
        test = np.flatnonzero(fold == name)
        held = data.take(test)
        fitted = fit(data.take(np.flatnonzero(fold != name)), portable=portable, known=not portable, seed=seed)
        _, log_base, own_shares = inputs(fitted.efficiencies, held, portable=portable)
        rows.append(test)
        predicted.append(fitted.predict(held, portable=portable))
        base.append(log_base)
        regimes.append(own_shares)
    joined = np.concatenate(rows)
    logs, bases, shares = (np.concatenate(p) for p in (predicted, base, regimes))
    return Found(split, data.take(joined), logs, bases, shares, fold[joined].astype(str))


def row_folds(data: Data, seed: int) -> np.ndarray:
    """[N] fold of each row at random, repeats of a measurement together."""
    return groups_into_folds(list(row_groups(data)), FOLDS, seed)


def bounds(found: dict[str, Found]) -> dict[str, dict[str, list[float]]]:
    """Log bounds that ship, by evidence and precision, and "*" for all precisions."""
    unseen = device_widths(found["device"])
    version = by_precision(found["version"]) if "version" in found else unseen
    return {
        "measured": by_precision(found["random"]),
        "version unseen": version,
        "software unseen": unseen,
        "device unseen": unseen,
        "device and version unseen": widened(unseen, version),
        "generation unseen": generation_widths(found["device"]),
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


def generation_widths(found: Found, without: str | None = None) -> dict[str, list[float]]:
    """Half-widths that hold nine in ten on the worst left-out device: no other of its generation vouches for one.

    Few devices are alone of their compute capability, so the worst of all stands in for them, for all precisions alike.
    """
    names = [n for n in np.unique(found.fold) if n != without]
    groups = [found.residual[found.fold == n] for n in names]
    width = max(pooled_width([g]) for g in groups if len(g) >= LEAST_ROWS)
    return {"*": [-width, width]}


def alone(found: Found, device: str) -> bool:
    """Whether no other left-out device has the compute capability of this one."""
    own = generation(find_device(device))
    return all(generation(find_device(str(n))) != own for n in np.unique(found.fold) if n != device)


def widened(a: dict[str, list[float]], b: dict[str, list[float]]) -> dict[str, list[float]]:
    """Independent errors: squares add."""
    other = b["*"]
    return {p: [-float(np.hypot(low, other[0])), float(np.hypot(high, other[1]))] for p, (low, high) in a.items()}


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
