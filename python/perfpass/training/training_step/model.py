"""The whole step-time model on one set of training rows: levels of operators, trees on what is left, predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from perfpass.predictors.learned.ratio_trees import fade
from perfpass.predictors.learned.ratios import Sums
from perfpass.predictors.roofline import SOFTWARE
from perfpass.predictors.training_step.features import RATIOS, STEP_GROUPS
from perfpass.predictors.training_step.operators import Base, StepTimes
from perfpass.predictors.training_step.predictor import StepPredictor
from perfpass.training.inference import operators as inference_operators
from perfpass.training.ratio_trees import PRIOR_FACTOR, HeldOut, Trees, factors, fit_trees
from perfpass.training.training_step import operators
from perfpass.training.training_step.dataset import Dataset, Inference, inference
from perfpass.training.training_step.questions import Question, questions

# Chosen on the families that `evaluate` does not report (docs/research/training_step.md).
TREES = {"max_depth": 6, "colsample_bytree": 0.3, "min_child_weight": 1.0, "base_score": 0.0}
ROUNDS = 500
# A group's factor is drawn towards its factor over all software, and that towards this one, with the weight of a
# fraction of the rows.
PRIOR_WEIGHT = 3e-4
_LEAST_ROWS = 50
# A record of inference counts as this share of a step.
INFERENCE_WEIGHT = 0.1
# Rows whose host needs over this share of their time to issue kernels must not bend the factors.
_ISSUE_BOUND = 0.3
TREES_FADE = StepPredictor.settings.fade["gpu"]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Everything that steps are learned from: the vision corpora, records of inference, steps of other laboratories."""

    dataset: Dataset
    others: Inference
    questions: list[Question]
    folder: Path | None

    @classmethod
    def load(cls, folder: Path | str | None = None) -> Corpus:
        """Those in ``folder`` (default: the repository's). Raises FileError, FormatError, ArtefactError."""
        root = Path(folder) if folder else None
        return cls(Dataset.load(folder), inference(folder), questions(root), root)

    @cached_property
    def base(self) -> Base:
        """The levels of inference that ship."""
        return Base.load()

    @cached_property
    def inference_rows(self) -> inference_operators.Rows:
        """What the levels of inference are fitted to."""
        return inference_operators.load(self.folder)

    @cached_property
    def vision(self) -> operators.Rows:
        """The dataset's rows, priced by operators."""
        return operators.of_dataset(self.dataset, self.base)

    @cached_property
    def cpu(self) -> operators.Rows:
        """Our own steps on CPUs."""
        return operators.of_questions(self.questions, "cpu", self.base)

    @cached_property
    def _learned(self) -> tuple[operators.Rows, np.ndarray]:
        return operators.learned(self.dataset, self.vision, self.questions, self.base)

    def levels(self, without: np.ndarray | None = None, device: str = "", source: str = "") -> operators.Levels:
        """The levels of GPUs; not from rows ``without`` of the dataset, on a ``device`` or of a ``source``."""
        rows, at = self._learned
        kept = (rows.names.device != device).to_numpy() & (rows.names.source != source).to_numpy()
        if without is not None:
            kept &= ~np.isin(at, without)
        return operators.fit(rows.take(np.flatnonzero(kept)))

    def times(self) -> StepTimes:
        """What ships."""
        return StepTimes(self.base, {"gpu": self.levels(), "cpu": operators.fit(self.cpu)})

    def times_without(self, source: str) -> StepTimes:
        """The same without a laboratory, in the levels of inference too."""
        known = self.inference_rows
        if source not in set(known.names.source):
            return StepTimes(self.base, {"gpu": self.levels(source=source), "cpu": operators.fit(self.cpu)})
        kept = np.flatnonzero(known.names.source.to_numpy() != source)
        base = Base(inference_operators.fit(known.take(kept)), self.base.cpu)
        asked = [q for q in self.questions if q.source != source]
        rows, _ = operators.learned(self.dataset, None, asked, base)
        return StepTimes(base, {"gpu": operators.fit(rows), "cpu": operators.fit(self.cpu)})


@dataclass(frozen=True)
class Rows:
    """What a model is fitted on: steps, and for the portable model records of inference beside them.

    ``sums`` stacked [N], ``software``, ``measured_s``, ``base_s`` (by operators) and ``weight`` [N].
    """

    sums: Sums
    software: np.ndarray
    measured_s: np.ndarray
    base_s: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset, base_s: np.ndarray, rows: np.ndarray) -> Rows:
        """Rows of the dataset; ``base_s`` of all of them."""
        sums, software, one = dataset.sums.take(rows), dataset.software[rows], np.ones(len(rows))
        return cls(sums, software, dataset.measured_s[rows], base_s[rows], one)

    def beside(self, others: Inference, kept: np.ndarray) -> Rows:
        """These rows and the records of inference ``kept``."""
        return Rows(
            self.sums.beside(others.sums.take(kept)),
            np.concatenate([self.software, others.software[kept]]),
            np.concatenate([self.measured_s, others.measured_s[kept]]),
            np.concatenate([self.base_s, others.base_s[kept]]),
            np.concatenate([self.weight, np.full(int(kept.sum()), INFERENCE_WEIGHT)]),
        )


def portable_rows(corpus: Corpus, levels: operators.Levels, steps: np.ndarray, others: np.ndarray) -> Rows:
    """What the portable model is fitted on: ``steps`` of the dataset, and the records of inference ``others``.

    It does not see the board, so that what it learns must not be the host of the board's laboratory.
    """
    there = corpus.vision.seconds(levels, there=True)
    return Rows.of(corpus.dataset, there, steps).beside(corpus.others, others)


def fit_efficiency(rows: Rows) -> np.ndarray:
    """[len(SOFTWARE), len(STEP_GROUPS)] factors on roofline time, by which features weight groups.

    Non-negative least squares on the relative error of the sum. Software without rows takes the factors of all rows.
    """
    everything = np.ones(len(rows.software), dtype=bool)
    overall = _factors(rows, everything, np.full(len(STEP_GROUPS), PRIOR_FACTOR))
    out = np.tile(overall, (len(SOFTWARE), 1))
    for s in range(len(SOFTWARE)):
        own = rows.software == s
        if own.sum() >= _LEAST_ROWS:
            out[s] = _factors(rows, own, overall)
    return out


def _factors(rows: Rows, kept: np.ndarray, prior: np.ndarray) -> np.ndarray:
    sums, measured_s = rows.sums.take(kept), rows.measured_s[kept]
    on_device = np.maximum(measured_s - sums.copy_s, 0.3 * measured_s)
    by_device = sums.issue_s < _ISSUE_BOUND * on_device
    return factors(sums.seconds, on_device, rows.weight[kept], prior, PRIOR_WEIGHT, by_device)


@dataclass(frozen=True)
class Model:
    """Efficiencies of the features, and the trees on what operators leave."""

    efficiency: np.ndarray
    trees: Trees


def fit(rows: Rows, *, portable: bool, seed: int = 0, rounds: int = ROUNDS) -> Model:
    """Efficiencies and trees from the given rows alone."""
    efficiency = fit_efficiency(rows)
    x, _ = RATIOS.of(rows.sums, efficiency[rows.software])
    target = np.log(rows.measured_s / rows.base_s)
    return Model(efficiency, fit_trees(RATIOS, x, target, rows.weight, TREES, rounds, portable=portable, seed=seed))


def held_out(
    corpus: Corpus,
    train: np.ndarray,
    test: np.ndarray,
    *,
    device: str = "",
    seed: int = 0,
    rounds: int = ROUNDS,
) -> HeldOut:
    """A model from the rows ``train`` alone, asked about the rows ``test``; ``base_s`` is the time by operators.

    With a ``device`` that is left out it is the portable one, which learns from inference too, but not there.
    """
    dataset, others = corpus.dataset, corpus.others
    levels = corpus.levels(test, device)
    base_s = corpus.vision.seconds(levels)
    known = Rows.of(dataset, base_s, train)
    if device:
        known = portable_rows(corpus, levels, train, others.device != device)
    found = fit(known, portable=bool(device), seed=seed, rounds=rounds)
    x, _ = dataset.features(found.efficiency)
    distance = dataset.distances(train, test)
    predicted = base_s[test] * np.exp(fade(distance, TREES_FADE) * found.trees.predict(x[test]))
    return HeldOut(x, base_s, predicted, distance)
