"""Devices left out of training, and what a few of their records would have told: what bounds are made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfpass.predictors.calibration.posterior import TRAIT_COLUMNS, Prior, Standard, learn, plan
from perfpass.predictors.learned.intervals import pooled_width
from perfpass.training.inference import model
from perfpass.training.inference.dataset import Dataset
from perfpass.training.tasks.splits import set_aside

SIZES = (10, 32)
DRAWS = 10
# Rows of a device beyond these are not drawn or judged when priors are chosen: 400 tell as much as 5000.
_ROWS = 400
# Candidates of a planned calibration.
_CANDIDATES = 300
# A board that was measured on fewer rows leaves too few to judge.
LEAST_ROWS = 2 * max(SIZES)
# Wide enough for a device whose figures are rough (two in three offsets within a factor of 2.7): ten measurements leave
# nothing of it. The levels span what devices left out showed, by about a factor of two from one to the next.
PRIOR = Prior(
    scale=1.0,
    software=0.05,
    levels=((0.05, 0.06), (0.1, 0.1), (0.2, 0.1), (0.4, 0.15), (0.8, 0.1), (1.6, 0.15)),
    bound=1.0,
)
# For predictors that were never graded on devices left out (analytic and others): by hand, too wide rather than too
# narrow.
OTHER = Prior(scale=1.0, software=0.3, levels=((0.2, 0.15), (0.5, 0.25), (1.0, 0.4)), bound=2.0)


@dataclass(frozen=True, eq=False)
class Unseen:
    """Rows of one device, predicted by a model that saw no row of it. N rows; ``graded`` [N]: may be reported."""

    device: str
    kind: str
    z: np.ndarray  # [N, T]
    software: np.ndarray  # [N]
    log_ratio: np.ndarray  # [N] log(measured / predicted)
    predicted_s: np.ndarray
    measured_s: np.ndarray
    base_s: np.ndarray
    graded: np.ndarray

    def take(self, rows: np.ndarray) -> Unseen:
        """Some of the rows."""
        names = ("z", "software", "log_ratio", "predicted_s", "measured_s", "base_s", "graded")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def standard_of(dataset: Dataset) -> Standard:
    """Mean and deviation of the traits over all records."""
    everything = np.arange(len(dataset))
    traits = model.arrays(dataset, model.efficiency_of(dataset, everything), everything).x[:, TRAIT_COLUMNS]
    deviation = np.nanstd(traits, axis=0)
    return Standard(np.nan_to_num(np.nanmean(traits, axis=0)), np.where(deviation > 1e-6, deviation, 1.0))


def unseen_devices(
    dataset: Dataset, standard: Standard, *, seed: int, say: Callable[[str], None] = lambda text: None
) -> list[Unseen]:
    """Every device with LEAST_ROWS records or more, left out alone."""
    rows = dataset.rows
    device = rows.device.to_numpy()
    graded = ~set_aside(rows.family)
    software = (rows.precision + " " + rows.runtime + " " + rows.layout).to_numpy()
    out = []
    for name in sorted(dataset.devices):
        test = np.flatnonzero(device == name)
        if len(test) < LEAST_ROWS or len(test) == len(dataset):
            continue
        found = model.held_out(dataset, np.flatnonzero(device != name), test, portable=True, seed=seed)
        out.append(
            Unseen(
                device=name,
                kind=dataset.devices[name].kind,
                z=standard(found.x[test][:, TRAIT_COLUMNS]),
                software=software[test],
                log_ratio=np.log(dataset.measured_s[test] / found.predicted_s),
                predicted_s=found.predicted_s,
                measured_s=dataset.measured_s[test],
                base_s=found.base_s[test],
                graded=graded[test],
            )
        )
        say(f"unseen device {name}")
    return out


@dataclass(frozen=True, eq=False)
class Draw:
    """One calibration: rows that it learned from, rows it was asked about, and log errors and deviations of these."""

    seen: np.ndarray
    asked: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    error: np.ndarray


def draw(unseen: Unseen, prior: Prior, size: int, seed: int, *, planned: bool = False) -> Draw:
    """Learn from ``size`` rows at random (or planned, among candidates at random) and predict all others."""
    order = np.random.default_rng(seed).permutation(len(unseen.log_ratio))
    seen = order[:size]
    if planned:
        candidates = order[:_CANDIDATES]
        seen = candidates[plan(prior, unseen.z[candidates], unseen.software[candidates], size)]
    asked = np.setdiff1d(order, seen)
    learned = learn(prior, unseen.z[seen], unseen.software[seen], unseen.log_ratio[seen])
    mean, deviation = learned.predict(unseen.z[asked], unseen.software[asked])
    return Draw(seen, asked, mean, deviation, unseen.log_ratio[asked] - mean)


def prior_of(devices: Sequence[Unseen], kind: str) -> Prior:
    """`PRIOR` with the bound that held nine in ten errors of calibrations on ``devices`` of a kind.

    Judged on the families that no report grades where a device has enough of them; every device counts alike. Without a
    device of the kind the others stand in.
    """
    parts = []
    for d in [d for d in devices if d.kind == kind] or list(devices):
        aside = np.flatnonzero(~d.graded)
        rows = aside if len(aside) >= LEAST_ROWS else np.arange(len(d.graded))
        parts.append(d.take(np.random.default_rng(0).permutation(rows)[:_ROWS]))
    draws = [draw(d, PRIOR, size, seed) for d in parts for size in SIZES for seed in range(DRAWS)]
    return replace(PRIOR, bound=pooled_width([found.error / found.deviation for found in draws]))
