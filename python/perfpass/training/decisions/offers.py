"""Questions to choose from measured ways to run a model, and how good a first choice was.

A question is a model with its load, limits on times, and all measured ways to run it, each with the price an hour of
its devices. What is chosen by predictions is judged by what was measured of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.decision import together
from perfpass.prediction import Interval

CONFIDENCES = (0.5, 0.9, 0.95)
NEAR = 1.1  # of the cheapest price that was measured, what counts as good as the best
_FEWEST = 3  # ways to choose from, that it is a choice


@dataclass(frozen=True, eq=False)
class Offers:
    """N measured ways. ``group`` [N]: model and load; ``model`` [N]: whose error all questions of it share; ``times``
    [N] in ms by name, as measured; ``price_of``: USD of a unit [N] from times.
    """

    group: np.ndarray
    model: np.ndarray
    times: Mapping[str, np.ndarray]
    price_of: Callable[[Mapping[str, np.ndarray]], np.ndarray]


@dataclass(frozen=True, eq=False)
class Method:
    """Times [N] in ms as predicted, NaN where there is no answer, and log bounds of them or None."""

    name: str
    times: Mapping[str, np.ndarray]
    bounds: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None

    @property
    def answers(self) -> np.ndarray:
        """[N] whether all times are predicted."""
        return np.logical_and.reduce([np.isfinite(values) for values in self.times.values()])


@dataclass(frozen=True)
class Question:
    """``rows`` of offers, and limits in ms by name."""

    rows: np.ndarray
    limits: Mapping[str, float]


def questions(offers: Offers, kept: np.ndarray, limits: Sequence[Mapping[str, float]]) -> list[Question]:
    """Every group with every set of limits that some of its ways keep and some do not; of rows ``kept`` [N]."""
    out = []
    for group in np.unique(offers.group[kept]):
        rows = np.flatnonzero((offers.group == group) & kept)
        for limit in limits:
            good = _within(offers.times, rows, limit)
            if len(rows) >= _FEWEST and 0 < good.sum() < len(rows):
                out.append(Question(rows, limit))
    return out


def _within(times: Mapping[str, np.ndarray], rows: np.ndarray, limits: Mapping[str, float]) -> np.ndarray:
    return np.logical_and.reduce([times[name][rows] <= limit for name, limit in limits.items()])


def _probability(method: Method, row: int, limits: Mapping[str, float]) -> float:
    """That a way keeps all limits; of medians alone 1 or 0."""
    each = []
    for name, limit in limits.items():
        at = float(method.times[name][row])
        if method.bounds is None:
            each.append(float(at <= limit))
            continue
        low, high = (float(np.exp(b[row])) for b in method.bounds[name])
        each.append(Interval(at, at * min(low, 1.0), at * max(high, 1.0), "ms").probability_below(limit))
    return together(each)


def chosen(offers: Offers, method: Method, asked: Question, confidence: float) -> int | None:
    """The row that a method takes: the cheapest by its prediction that keeps the limits; None where none does."""
    prices = offers.price_of(method.times)
    good = [r for r in asked.rows.tolist() if _probability(method, r, asked.limits) >= confidence]
    return min(good, key=lambda row: float(prices[row]), default=None)


def graded(
    offers: Offers, methods: Sequence[Method], asked: Sequence[Question], split: str, judged_on: str
) -> Iterator[dict[str, Any]]:
    """How each method's first choice turned out, on the same questions; with bounds at each of CONFIDENCES."""
    price = offers.price_of(offers.times)
    for method in methods:
        for confidence in CONFIDENCES if method.bounds is not None else (0.5,):
            missed: dict[str, list[bool]] = {}
            ratios = []
            taken = [chosen(offers, method, one, confidence) for one in asked]
            for row, one in zip(taken, asked, strict=True):
                if row is None:
                    continue
                kept = bool(_within(offers.times, np.array([row]), one.limits)[0])
                missed.setdefault(str(offers.model[row]), []).append(not kept)
                if kept:
                    best = price[one.rows][_within(offers.times, one.rows, one.limits)].min()
                    ratios.append(float(price[row] / best))
            made = sum(map(len, missed.values()))
            yield {
                "split": split,
                "judged_on": judged_on,
                "method": method.name,
                "confidence": confidence if method.bounds is not None else None,
                "questions": len(asked),
                "chosen": made,
                "best_pct": _share(sum(r < 1.0 + 1e-9 for r in ratios), len(asked)),
                "near_best_pct": _share(sum(r <= NEAR for r in ratios), len(asked)),
                "missed_pct": _share(made - len(ratios), made),
                "models": len(missed),
                "missed_models_alike_pct": 100 * float(np.mean([np.mean(m) for m in missed.values()]))
                if made
                else None,
                "regret_median_pct": 100 * (float(np.median(ratios)) - 1) if ratios else None,
                "regret_mean_pct": 100 * (float(np.mean(ratios)) - 1) if ratios else None,
            }


def _share(count: int, of: int) -> float | None:
    return 100.0 * count / of if of else None
