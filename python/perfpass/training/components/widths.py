"""Widths of a quantity of fitted components, from what splits held out of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perfpass.predictors.learned.component_widths import CAUSES, lacks
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
