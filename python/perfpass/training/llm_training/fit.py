"""Fits the constants of a training step on measured steps, with a factor for each laboratory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from perfpass.predictors.llm_training.step import Constants, timed
from perfpass.training.llm_training.rates import stacked

if TYPE_CHECKING:
    from perfpass.training.llm_training.rates import Timed

# How far, in logarithms, a constant may lie from where it starts, and a laboratory from all.
_PRIOR = {
    "products_16": 0.15,
    "products_8": 0.15,
    "products_4": 0.25,
    "attention": 0.4,
    "memory": 0.2,
    "tensor": 0.5,
    "replicas": 0.7,
    "experts": 0.7,
    "grouped": 0.3,
    "straggle": 1.0,
}
_LABORATORY, _ERROR = 0.2, 0.1
# Kernels of training may be better than those of serving, or than what they are predicted on a board without records.
_BEYOND = 1.3
NAMES = tuple(f.name for f in fields(Constants))


def start() -> np.ndarray:
    """[constants] where a fit starts, in logarithms."""
    return np.log([getattr(Constants(), name) for name in NAMES])


def constants_of(logs: np.ndarray) -> Constants:
    """From [constants] logarithms; shares are at most 1, of what kernels were measured to reach at most `_BEYOND`."""
    most = [_BEYOND if name.startswith("products") else 1.0 for name in NAMES]
    return Constants(**dict(zip(NAMES, np.minimum(np.exp(logs), most).tolist(), strict=True)))


def fit(rows: Sequence[Timed], groups: Sequence[str]) -> tuple[Constants, dict[str, float]]:
    """The constants, and the factor of each laboratory; rows of one of ``groups`` (a model on a device) share a weight.

    A factor is measured over predicted: what a laboratory's framework and hosts take longer.
    """
    from scipy.optimize import least_squares

    work, measured = stacked(rows), np.log([row.seconds for row in rows])
    _, place, count = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    weight = count[place] ** -0.25
    laboratories, lab = np.unique([row.laboratory for row in rows], return_inverse=True)
    first, prior = start(), np.array([_PRIOR[name] for name in NAMES])

    def errors(x: np.ndarray) -> np.ndarray:
        logs, effects = x[: len(NAMES)], x[len(NAMES) :]
        off = (np.log(timed(work, constants_of(logs)).seconds) + effects[lab] - measured) / _ERROR
        # Large errors count by their size, not its square; priors by theirs.
        robust = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + np.square(off)) - 1))
        return np.concatenate([robust * weight, (logs - first) / prior, effects / _LABORATORY])

    found = least_squares(errors, np.concatenate([first, np.zeros(len(laboratories))]), max_nfev=100)
    factors = np.exp(found.x[len(NAMES) :])
    return constants_of(found.x[: len(NAMES)]), dict(zip(laboratories.tolist(), factors.tolist(), strict=True))
