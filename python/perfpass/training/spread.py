"""Fits the widths of intervals on errors of sources that were left out, and says how good they are.

Quantile regression with a form that can only grow (`perfpass.predictors.learned.spread`): for either side the pinball
loss (Koenker and Bassett, 1978), whose sum is the interval score (Gneiting and Raftery, 2007), so that intervals that
are too wide lose as those that are too narrow. Every source counts alike: the error of a source is one draw of how
laboratories differ, however many rows it has. A conformal step makes the coverage hold for a source that the fit has
not seen (two-layer hierarchies: Dunn, Wasserman and Ramdas, Distribution-free prediction sets for two-layer
hierarchical models, 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.learned.spread import Spread

TAILS = (0.05, 0.05)
# What every user lacks, whose laboratory is another than that of the records.
ANOTHER_LABORATORY: Mapping[str, float] = {"laboratory": 1.0}
# Sources are left out one by one, or, where there are more, in so many parts.
FOLDS = 10
# No cause adds less, or more.
_LEAST, _MOST = 0.005, 5.0
# The pinball's corner is rounded over so much, in logarithms of the time.
_CORNER = 0.01
# Both sides are drawn to each other, and each width to its prior: a factor of e away from it costs so much loss.
_ALIKE, _PRIOR = 1e-3, 3e-4


@dataclass(frozen=True, eq=False)
class Errors:
    """Held-out errors: log(measured / predicted) [N], the lacks of each question [N, causes] and its source [N].

    A source is named "kind:name" or "kind:name/part"; a name is left out whole.
    """

    causes: tuple[str, ...]
    residual: np.ndarray
    lacks: np.ndarray
    source: np.ndarray

    @classmethod
    def of(cls, residual: np.ndarray, lacks: Mapping[str, np.ndarray | float], source: np.ndarray | str) -> Errors:
        """From columns; a number or a name stands for all rows. Raises ArgumentError for what is not finite."""
        residual = np.asarray(residual, dtype=np.float64)
        columns = [np.broadcast_to(np.asarray(v, dtype=np.float64), residual.shape) for v in lacks.values()]
        found = cls(
            tuple(lacks),
            residual,
            np.column_stack(columns),
            np.array(np.broadcast_to(np.asarray(source, dtype=object), residual.shape)),
        )
        if not (np.isfinite(residual).all() and np.isfinite(found.lacks).all() and (found.lacks >= 0).all()):
            raise ArgumentError("an error or a lack is not finite, or a lack is below 0")
        return found

    @classmethod
    def joined(cls, parts: Sequence[Errors]) -> Errors:
        """All parts in a row. Raises ArgumentError where their causes differ."""
        causes = {p.causes for p in parts}
        if len(causes) != 1:
            raise ArgumentError(f"parts have different causes: {sorted(causes)}")
        return cls(
            parts[0].causes,
            np.concatenate([p.residual for p in parts]),
            np.concatenate([p.lacks for p in parts]),
            np.concatenate([p.source for p in parts]),
        )

    def __len__(self) -> int:
        return len(self.residual)

    def thinned(self, most: int) -> Errors:
        """At most so many rows of each source, evenly spaced in the order of their errors."""
        order = np.lexsort((self.residual, self.source.astype(str)))
        _, start, count = np.unique(self.source[order].astype(str), return_index=True, return_counts=True)
        kept = [
            order[a + np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))]
            for a, n in zip(start, count, strict=True)
        ]
        return self.take(np.sort(np.concatenate(kept)))

    def take(self, rows: np.ndarray) -> Errors:
        """Some of the rows."""
        return Errors(self.causes, self.residual[rows], self.lacks[rows], self.source[rows])

    def mirrored(self) -> Errors:
        """Every error once on either side."""
        twice = np.tile(np.arange(len(self)), 2)
        return Errors(
            self.causes, np.concatenate([self.residual, -self.residual]), self.lacks[twice], self.source[twice]
        )

    @property
    def draws(self) -> np.ndarray:
        """[causes] how many sources show each cause: have a row that lacks at least half of the most of it."""
        names = np.array([name.split("/", 1)[0] for name in self.source.astype(str)])
        half = np.maximum(self.lacks.max(axis=0) / 2.0, 1e-9)
        return np.array([len(np.unique(names[column >= h])) for column, h in zip(self.lacks.T, half, strict=True)])

    @property
    def weight(self) -> np.ndarray:
        """[N] they sum to 1: every kind of source counts alike, each source of it by the root of its rows."""
        return self.weighted({})

    def weighted(self, times: Mapping[str, float]) -> np.ndarray:
        """[N] the same where a kind of source counts so many ``times`` as much as another."""
        names, inverse, count = np.unique(self.source.astype(str), return_inverse=True, return_counts=True)
        kinds, kind = np.unique([n.split(":", 1)[0] for n in names], return_inverse=True)
        of_kind = np.bincount(kind, weights=np.sqrt(count))
        share = np.array([times.get(str(name), 1.0) for name in kinds])
        return np.asarray((share[kind] / (np.sqrt(count) * of_kind[kind] * share.sum()))[inverse])


def fit(
    errors: Errors,
    prior: Mapping[str, float],
    tails: tuple[float, float] = TAILS,
    *,
    few: bool = False,
    least: Mapping[str, float] | None = None,
    times: Mapping[str, float] | None = None,
) -> Spread:
    """The widths that ship: fitted on all errors, and stretched so that a source left out is covered.

    ``prior``: log half-widths by cause that a fit is drawn to, weakly; a cause that no error has stays there. ``few``:
    for areas in which a handful of devices or networks vouch for another. On which side of the median these lie says
    nothing of the next, so both sides are one; and in place of the stretch a width that n sources show grows by
    sqrt(1 + 1 / n), as that of a new draw beside n others does. ``least``: log half-widths by cause that something
    else than errors tells; the other causes are fitted beside them, so that none counts twice. ``times``: how much a
    kind of source counts, beside 1 (`Errors.weighted`). Raises ArgumentError where no error is given.
    """
    if not len(errors):
        raise ArgumentError("no errors; at least those of one source are needed")
    asked = errors.mirrored() if few else errors
    floor = np.array([(least or {}).get(cause, 0.0) for cause in errors.causes])
    start = np.log(np.maximum([prior[cause] for cause in errors.causes], floor))
    grown = np.sqrt(1.0 + 1.0 / np.maximum(errors.draws, 1))
    counted = times or {}
    stretch = (grown, grown) if few else _stretch(errors, start, tails, floor, counted)
    shown = errors.lacks.any(axis=0)
    fitted = _fitted(asked, start, tails, floor, counted)
    low, high = (np.maximum(np.where(shown, w * s, w), floor) for w, s in zip(fitted, stretch, strict=True))
    sources = len(np.unique(errors.source.astype(str)))
    return Spread(errors.causes, tuple(low.tolist()), tuple(high.tolist()), tails, sources, len(errors))


def left_out(
    errors: Errors, prior: Mapping[str, float], tails: tuple[float, float] = TAILS, *, few: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of each source, made as those that ship but from the other sources alone."""
    low, high = np.zeros(len(errors)), np.zeros(len(errors))
    for inside in _parts(errors):
        found = fit(errors.take(~inside), prior, tails, few=few)
        own = dict(zip(errors.causes, errors.lacks[inside].T, strict=True))
        low[inside], high[inside] = found.bounds(own)
    return low, high


def of_each_source(
    errors: Errors, others: Sequence[Errors], fitted: Callable[[list[Errors]], Spread]
) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of each source of ``errors``, ``fitted`` on its other sources and on ``others``."""
    names = np.array([name.split("/", 1)[0] for name in errors.source.astype(str)])
    low, high = np.zeros(len(errors)), np.zeros(len(errors))
    for name in np.unique(names):
        own = names == name
        low[own], high[own] = _bounds(fitted([errors.take(~own), *others]), errors.take(own), ANOTHER_LABORATORY)
    return low, high


def graded(
    held: Mapping[str, tuple[Errors, np.ndarray]],
    outside: Sequence[Errors],
    split: str,
    count: int,
    fitted: Callable[[list[Errors]], Spread],
    asked: Mapping[str, float] = ANOTHER_LABORATORY,
) -> tuple[np.ndarray, np.ndarray]:
    """[``count``] log bounds of a split's held-out records, ``fitted`` on errors on none of those that are judged.

    ``held``: by split, errors and which records they are of; ``outside``: errors that know none of the records.
    ``asked``: lacks of all questions that take the place of those of the records.
    """
    errors, rows = held[split]
    low, high = np.full(count, np.nan), np.full(count, np.nan)
    for own, found in each_left_out(held, outside, split, fitted):
        low[rows[own]], high[rows[own]] = _bounds(found, errors.take(own), asked)
    return low, high


def each_left_out(
    held: Mapping[str, tuple[Errors, np.ndarray]],
    outside: Sequence[Errors],
    split: str,
    fitted: Callable[[list[Errors]], Spread],
) -> Iterator[tuple[np.ndarray, Spread]]:
    """For each source of a ``split``: which of its errors [M] are of it, and what is ``fitted`` on none of them."""
    errors, rows = held[split]
    for name in np.unique(errors.source.astype(str)):
        own = errors.source.astype(str) == name
        yield own, fitted([*(e.take(~np.isin(r, rows[own])) for e, r in held.values()), *outside])


def _bounds(found: Spread, errors: Errors, asked: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
    return found.bounds(dict(zip(errors.causes, errors.lacks.T, strict=True)) | dict(asked))


def interval_score(
    residual: np.ndarray, low: np.ndarray, high: np.ndarray, tails: tuple[float, float] = TAILS
) -> float:
    """Mean interval score in logarithms (Gneiting and Raftery, 2007): width, and what misses it costs; less is better.

    Equal tails of a give width + (what lies beyond) / a.
    """
    below, above = np.maximum(low - residual, 0.0), np.maximum(residual - high, 0.0)
    return float(np.mean(high - low + below / tails[0] + above / tails[1]))


def _parts(errors: Errors) -> list[np.ndarray]:
    """[N] masks of what is left out together: each source of a kind, or `FOLDS` sets of them."""
    names, inverse = np.unique([name.split("/", 1)[0] for name in errors.source.astype(str)], return_inverse=True)
    kinds = np.array([name.split(":", 1)[0] for name in names])
    fold = np.empty(len(names), dtype=int)
    count = 0
    for kind in np.unique(kinds):
        own = np.flatnonzero(kinds == kind)
        # By size, so that folds are alike, and the same in every run.
        order = own[np.argsort(-np.bincount(inverse, minlength=len(names))[own], kind="stable")]
        fold[order] = count + np.arange(len(own)) % FOLDS
        count += min(len(own), FOLDS)
    return [fold[inverse] == i for i in range(count)]


def _stretch(
    errors: Errors, start: np.ndarray, tails: tuple[float, float], floor: np.ndarray, times: Mapping[str, float]
) -> tuple[float, float]:
    """Factors on both half-widths that make nine in ten errors of sources left out lie inside.

    No more is added for how few the sources are: it cost interval score on every area that it was tried on.
    """
    parts = _parts(errors)
    if len(parts) < 2:
        return 1.0, 1.0
    below, above = np.zeros(len(errors)), np.zeros(len(errors))
    for inside in parts:
        fitted = _fitted(errors.take(~inside), start, tails, floor, times)
        low, high = (np.sqrt(errors.lacks[inside] @ np.square(w)) for w in fitted)
        below[inside] = -errors.residual[inside] / np.maximum(low, _LEAST)
        above[inside] = errors.residual[inside] / np.maximum(high, _LEAST)
    weight = errors.weighted(times)
    return _quantile(below, weight, 1.0 - tails[0]), _quantile(above, weight, 1.0 - tails[1])


def _quantile(values: np.ndarray, weight: np.ndarray, share: float) -> float:
    """The least value that ``share`` of the weight does not pass; never below a half: widths stay what was fitted."""
    order = np.argsort(values, kind="stable")
    at = int(np.searchsorted(np.cumsum(weight[order]), share - 1e-12))
    return max(float(values[order][min(at, len(values) - 1)]), 0.5)


def _fitted(
    errors: Errors, prior: np.ndarray, tails: tuple[float, float], floor: np.ndarray, times: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """[causes] half-widths below and above by least weighted pinball loss; ``prior`` [causes] in logarithms.

    None is below ``floor`` [causes].
    """
    from scipy.optimize import minimize

    k, weight = len(errors.causes), errors.weighted(times)
    sides = ((-errors.residual, tails[0]), (errors.residual, tails[1]))

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        total, gradient = 0.0, np.zeros(2 * k)
        for i, (residual, tail) in enumerate(sides):
            part = slice(i * k, (i + 1) * k)
            squares = np.exp(2.0 * theta[part])
            width = np.sqrt(errors.lacks @ squares + 1e-12)
            beyond = np.clip((residual - width) / _CORNER, -30.0, 30.0)
            over = _CORNER * np.logaddexp(0.0, beyond) + np.maximum(residual - width - 30.0 * _CORNER, 0.0)
            total += float(weight @ (tail * width + over))
            slope = weight * (tail - 1.0 / (1.0 + np.exp(-beyond)))
            gradient[part] += (slope / width) @ errors.lacks * squares
        apart, off = theta[:k] - theta[k:], theta - start
        total += _ALIKE * float(apart @ apart) + _PRIOR * float(off @ off)
        gradient += 2.0 * _PRIOR * off + 2.0 * _ALIKE * np.concatenate([apart, -apart])
        return total, gradient

    start = np.concatenate([prior, prior])
    limits = [(np.log(max(_LEAST, least)), np.log(_MOST)) for least in floor] * 2
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 500})
    return np.exp(found.x[:k]), np.exp(found.x[k:])
