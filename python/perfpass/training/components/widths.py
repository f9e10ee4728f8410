"""Widths of a quantity of fitted components, from what splits held out of its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from perfpass.predictors.learned.component_widths import CAUSES, lacks
from perfpass.predictors.learned.spread import Spread
from perfpass.training.components.grade import Held, Quantity
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import Fold

# Kinds of source by the names of splits.
KINDS = {"random rows": "random", "device and model": "both"}


def held_out_errors(
    q: Quantity,
    held: Held,
    folds: list[Fold],
    split: str,
    causes: Sequence[str] = CAUSES,
    kinds: Mapping[str, str] = KINDS,
) -> tuple[Errors, np.ndarray]:
    """Errors of a split's held-out rows, and which rows [M] they are of.

    They lack a laboratory where the split is that of sources, or where no row of theirs was learned from.
    """
    rows = np.flatnonzero(held.fold >= 0)
    evidence = held.evidence[rows]
    other = np.array([split == "source" or str(e).startswith("source unseen") for e in evidence], dtype=np.float64)
    found = lacks(q.form, evidence, held.spread[rows], causes=causes) | {"laboratory": other}
    kind = kinds.get(split, split)
    names = np.array([f"{kind}:{folds[i].held_out}" for i in held.fold[rows]], dtype=object)
    return Errors.of(np.log(q.measured[rows] / held.predicted[rows]), found, names), rows


def graded(
    held: Mapping[str, tuple[Errors, np.ndarray]],
    split: str,
    q: Quantity,
    fit: Callable[[list[Errors]], Spread],
    asked: Mapping[str, float],
) -> tuple[np.ndarray, np.ndarray]:
    """[rows of ``q``] log bounds of a split's held-out rows, from errors on none of the rows that are judged.

    ``held``: by split, what `held_out_errors` gives. ``asked``: lacks of all questions that take the place of those of
    the rows.
    """
    errors, rows = held[split]
    low, high = np.full(len(q), np.nan), np.full(len(q), np.nan)
    for name in np.unique(errors.source.astype(str)):
        own = errors.source.astype(str) == name
        found = fit([e.take(~np.isin(r, rows[own])) for e, r in held.values()])
        low[rows[own]], high[rows[own]] = found.bounds(
            dict(zip(errors.causes, errors.lacks[own].T, strict=True)) | dict(asked)
        )
    return low, high
