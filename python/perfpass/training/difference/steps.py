"""Pairs of joules of training steps at two batch sizes, and what is predicted of their ratio without the laboratory."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from perfpass.predictors.difference.unlike import CAUSES, Question, lacks
from perfpass.training.difference.pairs import Pairs, middle
from perfpass.training.training_step import outside
from perfpass.training.training_step.model import Corpus

# The source whose boards stated the power of each epoch (You, Chung and Chowdhury, NSDI 2023).
SOURCE = "zeus"
# Of one network, in one software, on one board, one record a batch size.
_CONDITIONS = ["device", "model"]


def energy(folder: Path | None = None) -> Pairs:
    """Pairs of batch sizes of one network on one board; times know nothing of the source, watts not of the board."""
    corpus = Corpus.load(folder)
    asked = [q for q in corpus.questions if q.source == SOURCE]
    rows = outside.drawn(outside.of_source(corpus, SOURCE).rows)
    rows = rows[rows.measured_j.notna()]
    half = {name: 0.5 * np.log(rows[f"high{name}"] / rows[f"low{name}"]) for name in ("", "_j")}
    found = [
        pair
        for _, part in rows.groupby(_CONDITIONS, sort=True)
        for pair in itertools.combinations([middle(at, "measured_j") for _, at in part.groupby("batch", sort=True)], 2)
    ]
    sides = {
        at: Question(asked[at].table, asked[at].batch, asked[at].way, float(half[""][at]))
        for pair in found
        for at in pair
    }
    old, new = (np.array([pair[i] for pair in found], dtype=int) for i in (0, 1))
    measured, predicted = (
        np.log(rows[name].loc[new].to_numpy() / rows[name].loc[old].to_numpy())
        for name in ("measured_j", "predicted_j")
    )
    halves = [half["_j"].loc[at].to_numpy() for at in (old, new)]
    lack = [list(lacks(sides[a], sides[b]).values()) for a, b in found]
    return Pairs(
        CAUSES,
        np.full(len(found), "batch", dtype=object),
        np.full(len(found), SOURCE, dtype=object),
        np.full(len(found), f"source:{SOURCE}", dtype=object),
        np.array([sides[a].way.device.kind for a in old.tolist()], dtype=object),
        measured,
        predicted,
        np.array(lack, dtype=np.float64).reshape(-1, len(CAUSES)),
        halves[0] + halves[1],
        np.hypot(*halves),
    )
