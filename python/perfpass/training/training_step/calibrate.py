"""What the intervals of training steps are made from: held-out errors on networks and on devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from perfpass.predictors.learned.intervals import ConformalTable, conformal, pooled_width
from perfpass.predictors.training_step.latency import EVIDENCE, LEAST_DEVICE_ROWS
from perfpass.training.tasks.splits import folds_of
from perfpass.training.training_step import model
from perfpass.training.training_step.dataset import Dataset, Inference

NETWORK_SPLITS = ("random", "architecture", "family")
# Distances that part the residuals; fewer than for inference, as there are fewer rows.
EDGES = (0.0, 0.01, 0.1, 0.2, 0.35)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Held-out log(measured / predicted), network distance and row of each."""

    residual: np.ndarray
    distance: np.ndarray
    row: np.ndarray

    @classmethod
    def joined(cls, parts: Iterable[Residuals]) -> Residuals:
        """All parts in a row."""
        columns = zip(*((p.residual, p.distance, p.row) for p in parts), strict=True)
        return cls(*(np.concatenate(c) for c in columns))


def unseen_networks(dataset: Dataset, folds: int, *, seed: int) -> Residuals:
    """Every row held out once in each of NETWORK_SPLITS."""
    rows, parts = dataset.rows, []
    for split in NETWORK_SPLITS:
        for fold in folds_of(split, rows.architecture, rows.family, rows.device, folds, seed):
            found = model.held_out(dataset, fold.train, fold.test, seed=seed)
            parts.append(Residuals(np.log(dataset.step_s[fold.test] / found.predicted_s), found.distance, fold.test))
    return Residuals.joined(parts)


def well_measured(dataset: Dataset) -> np.ndarray:
    """[N] whether a row's device has LEAST_DEVICE_ROWS rows or more."""
    counts = dataset.rows.device.value_counts()
    return np.asarray(dataset.rows.device.map(counts) >= LEAST_DEVICE_ROWS)


def tables(dataset: Dataset, found: Residuals, without: np.ndarray | None = None) -> dict[str, ConformalTable]:
    """Bounds by network distance, for devices with many and with few records; the rows ``without`` do not count."""
    kept = np.ones(len(found.row), dtype=bool) if without is None else ~np.isin(found.row, without)
    many = well_measured(dataset)[found.row]
    return {
        name: conformal(found.residual[kept & side], found.distance[kept & side], edges=EDGES)
        for name, side in (("many", many), ("few", ~many))
    }


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
        alone = ~np.isin(precision[fold.test], np.unique(precision[fold.train]))
        # As StepPredictor: trees have nothing to say of a precision that no record has.
        predicted = np.where(alone, found.base_s, found.predicted_s)
        residual = np.log(dataset.step_s[fold.test] / predicted)
        out.append(Experiment(fold.held_out, fold.test, predicted, found.base_s, residual, alone))
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
