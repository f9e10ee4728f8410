"""Widths of latency in MIG slices: errors of rows, networks and the language model that were held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.mig.latency import CAUSES, unlike
from perfpass.training import spread
from perfpass.training.crossfit import cross_fit
from perfpass.training.mig.dataset import LANGUAGE_MODEL, Dataset
from perfpass.training.mig.fit import fit as fit_model
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import Fold, random_folds

# Log half-widths that fits are drawn to, and those of what no error shows: a laboratory as in inference; by hand, how
# far sharing elsewhere may be from sharing where it was measured, and a factor of e more processes than were measured.
PRIOR: Mapping[str, float] = {
    "measurement": 0.1, "laboratory": 0.12, "network": 0.5, "conditions": 0.6, "processes": 0.4,
}  # fmt: skip
_BANDS = (4, 32)
_FOLDS = 5
_MOST_ROWS = 200


@dataclass(frozen=True, eq=False)
class Held:
    """Predictions [K] in seconds of the ``rows`` [K] of the records that a split held out, and their errors."""

    rows: np.ndarray
    predicted: np.ndarray
    errors: Errors


def networks(data: Dataset) -> list[tuple[str, np.ndarray]]:
    """Measured networks, and mean shares [G] of their roofline seconds by operator group in each band of batches.

    At small batches launches weigh, so that a network is unlike itself at large ones. Not the language model.
    """
    share = data.work.group_s / data.work.group_s.sum(axis=1, keepdims=True)
    band = np.digitize(data.rows.batch.to_numpy(), _BANDS)
    return [
        (str(name), share[rows].mean(axis=0))
        for name in np.unique(data.model)
        for b in range(len(_BANDS) + 1)
        if name != LANGUAGE_MODEL and (rows := (data.model == name) & (band == b)).any()
    ]


def hold_out(data: Dataset, seed: int) -> dict[str, Held]:
    """By split: random rows and each network held out among the networks, and the language model by all of them."""
    rows = np.flatnonzero(data.model != LANGUAGE_MODEL)
    work, seconds, names = data.work.take(rows), data.latency_s[rows], data.model[rows]
    fold = random_folds(len(rows), _FOLDS, seed)
    known = networks(data)

    def predicted(groups: np.ndarray) -> np.ndarray:
        folds = [Fold(np.flatnonzero(groups != n), np.flatnonzero(groups == n), str(n)) for n in np.unique(groups)]
        return cross_fit(len(rows), folds, lambda a, b: fit_model(work.take(a), seconds[a]).seconds(work.take(b)))[0]

    def held(rows: np.ndarray, predicted_s: np.ndarray, source: np.ndarray, left_out: bool) -> Held:
        lacks = dict.fromkeys(CAUSES, np.zeros(len(rows))) | {"measurement": np.ones(len(rows))}
        lacks["network"] = np.empty(len(rows))
        for name in np.unique(data.model[rows]):
            own = data.model[rows] == name
            others = [shares for n, shares in known if not (left_out and n == name)]
            lacks["network"][own] = unlike(data.work.group_s[rows[own]], np.stack(others))
        return Held(rows, predicted_s, Errors.of(np.log(data.latency_s[rows] / predicted_s), lacks, source))

    language = np.flatnonzero(data.model == LANGUAGE_MODEL)
    of_language = fit_model(work, seconds).seconds(data.work.take(language))
    return {
        "random": held(rows, predicted(fold), np.char.add("random:", fold.astype(str)).astype(object), False),
        "model": held(rows, predicted(names), np.char.add("network:", names).astype(object), True),
        LANGUAGE_MODEL: held(language, of_language, np.full(len(language), f"network:{LANGUAGE_MODEL}", object), True),
    }


def fit(parts: list[Errors]) -> Spread:
    """The widths that ship. Light networks take longer than heavy ones tell, so sides are apart."""
    return spread.fit(Errors.joined([p.thinned(_MOST_ROWS) for p in parts if len(p)]), PRIOR)


def graded(held: Mapping[str, Held], split: str) -> tuple[np.ndarray, np.ndarray]:
    """[K] log bounds of a split's rows, from errors on none of the rows that are judged."""
    own = held[split]
    low, high = np.zeros(len(own.rows)), np.zeros(len(own.rows))
    for name in np.unique(own.errors.source.astype(str)):
        judged = own.errors.source.astype(str) == name
        others = [h.errors.take(~np.isin(h.rows, own.rows[judged])) for h in held.values()]
        lacks = dict(zip(CAUSES, own.errors.lacks[judged].T, strict=True))
        low[judged], high[judged] = fit(others).bounds(lacks)
    return low, high
