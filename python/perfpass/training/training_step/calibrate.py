"""What the intervals of training steps are made from: held-out errors on networks and on devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.predictors.learned.intervals import EVIDENCE
from perfpass.predictors.roofline import generations_before_ampere, has_units
from perfpass.predictors.training_step.features import RATIOS
from perfpass.predictors.training_step.predictor import as_it_waits
from perfpass.training import time_widths
from perfpass.training.ratio_trees import HeldOut, Residuals, Split, hold_out
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import Fold, folds_of
from perfpass.training.training_step import model
from perfpass.training.training_step.dataset import Dataset
from perfpass.training.training_step.model import Corpus

COMMON, RARE, UNMEASURED = range(len(EVIDENCE))
_LOG_ISSUE = RATIOS.names.index("log_issue")
NETWORK_SPLITS = ("random", "architecture", "family")


def unseen_networks(corpus: Corpus, split: str, folds: int, *, seed: int, **more: Any) -> Split:
    """Every row held out once by ``split``; ``more`` of `ratio_trees.hold_out`."""

    def held_out(fold: Fold) -> HeldOut:
        return model.held_out(corpus, fold.train, fold.test, seed=seed)

    return hold_out(corpus.dataset, split, folds, seed, held_out, **more)


def of_networks(dataset: Dataset, found: Residuals, split: str) -> Errors:
    """Errors on networks held out by ``split``, for the fit of widths: families left out whole are a kind of source."""
    kind = "family" if split == "family" else "network"
    return _as_asked(time_widths.of_networks(dataset, found, kind), found.issue)


def _as_asked(errors: Errors, issue: np.ndarray) -> Errors:
    """With lacks as those of a question (`StepPredictor`); ``issue`` [N]."""
    lacks = as_it_waits(dict(zip(errors.causes, errors.lacks.T, strict=True)), issue)
    return replace(errors, lacks=np.column_stack([lacks[cause] for cause in errors.causes]))


@dataclass(frozen=True, eq=False)
class Experiment:
    """One device left out, zero-shot. ``evidence`` [n] indexes EVIDENCE: how widely each row's precision ran."""

    device: str
    rows: np.ndarray
    predicted_s: np.ndarray
    base_s: np.ndarray
    residual: np.ndarray
    issue: np.ndarray
    evidence: np.ndarray

    @property
    def errors(self) -> Errors:
        """For the fit of widths."""
        generation = generations_before_ampere(find_device(self.device))
        found = time_widths.of_devices(self.residual, self.issue, self.evidence, generation, self.device)
        return _as_asked(found, self.issue)


def unseen_devices(
    corpus: Corpus, *, seed: int, say: Callable[[str], None] = lambda text: None
) -> list[Experiment]:  # fmt: skip
    """Every device left out, its records of inference too, by rising name."""
    dataset, out = corpus.dataset, []
    rows = dataset.rows
    precision, names = rows.precision.to_numpy(), rows.device.to_numpy()
    every = np.unique(precision)
    for fold in folds_of("device", rows.architecture, rows.family, rows.device):
        found = model.held_out(corpus, fold.train, fold.test, device=str(fold.held_out), seed=seed)
        base_s = found.base_s[fold.test]
        others_of = {p: _alike(str(fold.held_out), p, names[fold.train][precision[fold.train] == p]) for p in every}
        evidence = np.array([(UNMEASURED, RARE, COMMON)[min(others_of[p], 2)] for p in precision[fold.test]])
        # As StepPredictor: trees have nothing to say of a precision that no record has.
        predicted = np.where(evidence == UNMEASURED, base_s, found.predicted_s)
        residual = np.log(dataset.measured_s[fold.test] / predicted)
        issue = np.exp(found.x[fold.test, _LOG_ISSUE].astype(np.float64))
        out.append(Experiment(fold.held_out, fold.test, predicted, base_s, residual, issue, evidence))
        say(f"unseen device {fold.held_out}")
    return out


def _alike(device: str, precision: str, others: np.ndarray) -> int:
    """How many of ``others`` [n] have units for a precision, or none, as ``device`` has (`StepPredictor.evidence`)."""
    own = has_units(find_device(device), precision)
    return sum(has_units(find_device(str(name)), precision) == own for name in np.unique(others))
