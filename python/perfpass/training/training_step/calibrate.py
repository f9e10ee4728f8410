"""What the intervals of training steps are made from: held-out errors on networks and on devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.predictors.learned.intervals import EVIDENCE, pooled_width
from perfpass.training.ratio_trees import HeldOut, Split, hold_out
from perfpass.training.tasks.splits import Fold, folds_of
from perfpass.training.training_step import model
from perfpass.training.training_step.dataset import Dataset, Inference

NETWORK_SPLITS = ("random", "architecture", "family")
# Distances that part the residuals; fewer than for inference, as there are fewer rows.
EDGES = (0.0, 0.01, 0.1, 0.2, 0.35)


def unseen_networks(dataset: Dataset, split: str, folds: int, *, seed: int, **more: Any) -> Split:
    """Every row held out once by ``split``; ``more`` of `ratio_trees.hold_out`."""

    def held_out(fold: Fold) -> HeldOut:
        return model.held_out(dataset, fold.train, fold.test, seed=seed)

    return hold_out(dataset, split, folds, seed, held_out, **more)


def sides(dataset: Dataset) -> np.ndarray:
    """[N] "many" or "few" records on the row's device: a device with many has bounds of its own."""
    return np.where(dataset.well_measured, "many", "few")


@dataclass(frozen=True, eq=False)
class Experiment:
    """One device left out, zero-shot. ``alone`` [n]: nobody else ran that precision."""

    device: str
    rows: np.ndarray
    predicted_s: np.ndarray
    base_s: np.ndarray
    residual: np.ndarray
    alone: np.ndarray


def unseen_devices(
    dataset: Dataset, others: Inference, *, seed: int, say: Callable[[str], None] = lambda text: None
) -> list[Experiment]:
    """Every device left out, its records of inference too, by rising name."""
    rows, out = dataset.rows, []
    precision = rows.precision.to_numpy()
    for fold in folds_of("device", rows.architecture, rows.family, rows.device):
        found = model.held_out(dataset, fold.train, fold.test, others=others, seed=seed)
        base_s = found.base_s[fold.test]
        alone = ~np.isin(precision[fold.test], np.unique(precision[fold.train]))
        # As StepPredictor: trees have nothing to say of a precision that no record has.
        predicted = np.where(alone, base_s, found.predicted_s)
        residual = np.log(dataset.measured_s[fold.test] / predicted)
        out.append(Experiment(fold.held_out, fold.test, predicted, base_s, residual, alone))
        say(f"unseen device {fold.held_out}")
    return out


def widths(experiments: Iterable[Experiment], without: str = "") -> dict[str, float]:
    """Log half-widths by EVIDENCE of nine in ten on an unseen device, every device counting alike.

    "rare": from the devices whose precision was measured nowhere else, where there are any; never below "common".
    "unmeasured": both errors, taken as independent.
    """
    kept = [e for e in experiments if e.device != without]
    known = [e.residual[~e.alone] for e in kept if (~e.alone).any()]
    alone = [e.residual[e.alone] for e in kept if e.alone.any()]
    common = pooled_width(known)
    rare = max(common, pooled_width(alone)) if alone else float(np.hypot(common, common))
    return dict(zip(EVIDENCE, (common, rare, float(np.hypot(common, rare))), strict=True))
