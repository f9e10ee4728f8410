"""Widths of energy and power: errors of models, boards, both, and laboratories that were held out of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfpass.predictors.energy.features import CAUSES
from perfpass.predictors.learned.spread import Spread
from perfpass.training import spread
from perfpass.training.components.fit import covariance_of
from perfpass.training.components.grade import Edges, Held, Quantity, hold_out
from perfpass.training.components.widths import held_out_errors
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import Fold

# Log half-widths that fits are drawn to, and those of what no error shows. By hand: runs of one set-up differ by some
# five per cent (NVML's own accuracy); laboratories and runtimes, of which two or three tell, by a quarter or a third.
PRIOR: Mapping[str, float] = {
    "measurement": 0.05, "laboratory": 0.25, "unlike": 0.3, "model": 0.2, "network": 0.7, "data set": 0.3,
    "device": 0.4, "load": 0.2, "vendor": 0.5, "runtime": 0.3, "precision": 0.3,
}  # fmt: skip
# Of which so few tell that the next may be off by more than they are: never narrower than the prior.
_FEW = ("laboratory", "runtime")
# A part with more rows is thinned, evenly: its error as a whole is what counts.
_MOST_ROWS = 80
# A board that is held out with half of the models is the same board.
_KINDS = {"random rows": "random", "device and model": "device"}


def errors_of(
    q: Quantity, held: Mapping[str, Held], splits: Mapping[str, list[Fold]]
) -> dict[str, tuple[Errors, np.ndarray]]:
    """By split, the errors of its held-out rows and which rows these are."""
    return {name: held_out_errors(q, found, splits[name], name, CAUSES, _KINDS) for name, found in held.items()}


def held_out(q: Quantity, splits: Mapping[str, list[Fold]]) -> list[Errors]:
    """Errors of all that ``splits`` hold out."""
    covariance = covariance_of(q.form, q.rows)
    held = {name: hold_out(q, folds, covariance) for name, folds in splits.items()}
    return [errors for errors, _ in errors_of(q, held, splits).values()]


def fit(parts: list[Errors]) -> Spread:
    """The widths that ship, of one quantity; two to eleven boards vouch for another."""
    found = spread.fit(Errors.joined([p.thinned(_MOST_ROWS) for p in parts if len(p)]), PRIOR, few=True)
    least = [PRIOR[cause] if cause in _FEW else 0.0 for cause in found.causes]
    low, high = (tuple(map(max, widths, least)) for widths in (found.low, found.high))
    return replace(found, low=low, high=high)


def edges(
    q: Quantity,
    splits: Mapping[str, list[Fold]],
    split: str,
    held: Mapping[str, Held],
    outside: Sequence[Errors] = (),
) -> Edges:
    """Bounds [rows of ``q``] of a split's held-out rows, from errors on none of them and ``outside``."""
    low, high = spread.graded(errors_of(q, held, splits), outside, split, len(q), fit, asked={})
    return held[split].predicted * np.exp(low), held[split].predicted * np.exp(high)
