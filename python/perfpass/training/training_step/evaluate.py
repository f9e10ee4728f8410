"""Grading of the training-step predictor, from the records of the repository alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np

from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.training import ratio_trees
from perfpass.training.ratio_trees import Residuals, Split
from perfpass.training.section import Section
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import Fold, set_aside
from perfpass.training.training_step import calibrate, model, operators, outside, widths
from perfpass.training.training_step.dataset import Dataset
from perfpass.training.training_step.model import Corpus

FOLDS = 5
CALIBRATION_SIZES = (10, 32)
ALL, TIMM, BOARDS = "all", "RTX 3090 (timm)", "six older boards (torchvision)"
_METRIC = "step ms"
_AIMS = {"architecture": 8.0}
_INTRO = """Training steps of vision models in PyTorch 1.12 and older: timm on an RTX 3090 (autocast, SGD with momentum;
forward, backward, optimizer) and torchvision on six older boards (fp16, fp32, fp64 at batch 12; no optimizer). Each
step is derived from the forward graph. Levels of operators and intervals have not seen what is graded: the fold, the
device, the source. Intervals: 90 % asked; they allow for another laboratory than that of the records, as a user's is.
"device": zero-shot, one device left out at a time; the RTX 3090 is the only one with autocast, so leaving it out leaves
its software out too, and operators answer alone. Families on which settings were chosen are not graded. "outside":
steps of other laboratories and domains, that trained no tree, the laboratory left out of levels and widths; of our own
CPU, the network. MISO ran TensorFlow, asked as that in TF32; nothing of it teaches."""
# The middle of what a few calibration records say is drawn towards no change with the weight of as many records.
_PRIOR_RECORDS = 1.0


def evaluate(folder: str | None = None, seed: int = 0, *, folds: int = FOLDS, quiet: bool = False) -> Section:
    """Grade the predictor with rows, architectures, families and devices held out, and on records from outside.

    ``folder``: of the records (default: those of the repository). Everything that is fitted is fitted on a fold's
    training rows, its bounds come from the held-out errors of the other folds. Raises FileError.
    """
    corpus = Corpus.load(folder)
    dataset = corpus.dataset
    aside = set_aside(dataset.rows.family)
    section = Section(
        "training_step",
        "Training steps of vision models, time",
        _INTRO,
        ratio_trees.graded_corpus(dataset, aside),
    )

    def say(text: str) -> None:
        if not quiet:
            print(f"evaluate steps: {text}", file=sys.stderr, flush=True)

    tripled = _three_inferences(dataset)

    def simpler(fold: Fold, found: ratio_trees.HeldOut) -> dict[str, np.ndarray]:
        return {
            "operators only": found.base_s[fold.test],
            "copied from the nearest network, scaled by operators": _copied(dataset, found, fold),
            **ratio_trees.baselines(dataset, found, fold, model.TREES, model.ROUNDS, seed),
        }

    held = {
        split: calibrate.unseen_networks(corpus, split, folds, seed=seed, simpler=simpler, say=say)
        for split in calibrate.NETWORK_SPLITS
    }
    known = {split: found.residuals for split, found in held.items()}
    experiments = calibrate.unseen_devices(corpus, seed=seed, say=say)
    apart = outside.outside(corpus)
    evidence = _Evidence(corpus, known, experiments, outside.of_gpus(apart))
    for split, found in held.items():
        found.baselines["3 x inference (shipped inference predictor, which has seen all networks)"] = tripled
        _grade(dataset, section, split, found, evidence, ~aside)
    _devices(dataset, section, evidence, ~aside, seed)
    outside.grade(section, corpus, apart, evidence.parts(), seed)
    return section


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Every error there is, of which a grading leaves out what it grades."""

    corpus: Corpus
    networks: dict[str, Residuals]
    experiments: list[calibrate.Experiment]
    others: list[Errors]

    def parts(self, without: np.ndarray | None = None, device: str = "") -> list[Errors]:
        """Errors on networks and devices held out, less those of rows ``without`` and on ``device``."""
        gone = np.empty(0, dtype=np.intp) if without is None else without
        networks = [
            calibrate.of_networks(self.corpus.dataset, found.take(~np.isin(found.row, gone)), split)
            for split, found in self.networks.items()
        ]
        return [*networks, *(e.errors for e in self.experiments if e.device != device)]

    def bounds(self, asked: Errors, without: np.ndarray, device: str = "") -> tuple[np.ndarray, np.ndarray]:
        """[N] log bounds of what is ``asked``, from all that is not of rows ``without`` nor on ``device``."""
        least = operators.least_widths(self.corpus.levels(without, device))
        return widths.bounds([*self.parts(without, device), *self.others], asked, least)


def _grade(
    dataset: Dataset, section: Section, split: str, found: Split, evidence: _Evidence, graded: np.ndarray
) -> None:  # fmt: skip
    predicted, y, held = found.predicted_s, dataset.measured_s, found.residuals
    low, high = predicted.copy(), predicted.copy()
    for fold in found.folds:
        asked = held.take(np.isin(held.row, fold.test))
        below, above = evidence.bounds(calibrate.of_networks(dataset, asked, split), fold.test)
        low[asked.row], high[asked.row] = predicted[asked.row] * np.exp(below), predicted[asked.row] * np.exp(above)
    timm = (dataset.rows.source == "timm").to_numpy()
    for name, side in ((ALL, graded), (TIMM, timm & graded), (BOARDS, ~timm & graded)):
        shown = [1e3 * v[side] for v in (predicted, y, low, high)]
        section.add(_METRIC, split, "perfpass", name, *shown, aim_pct=_AIMS.get(split) if name == ALL else None)
    for method, values in found.baselines.items():
        section.add(_METRIC, split, method, ALL, 1e3 * values[graded], 1e3 * y[graded])
    if split == "family":
        families = dataset.rows.family[graded]
        section.add_worst_groups(_METRIC, split, "family", families, 1e3 * predicted[graded], 1e3 * y[graded])
    if split == "architecture":
        rows = dataset.rows[graded]
        cases = [
            f"{r.model} {r.img_size} px, {r.device}, {r.precision} {r.layout} batch {r.batch}"
            for r in rows.itertuples()
        ]
        section.add_worst_cases(_METRIC, "ms", split, cases, 1e3 * predicted[graded], 1e3 * y[graded])
        section.add_points(_METRIC, "ms", split, rows.device.tolist(), 1e3 * predicted[graded], 1e3 * y[graded])


def _copied(dataset: Dataset, found: ratio_trees.HeldOut, fold: Fold) -> np.ndarray:
    """[len(test)] seconds of the nearest training network on the device in its precision and layout, scaled."""
    rows, prints = dataset.rows, dataset.fingerprints
    key = (rows.device + rows.precision + rows.layout).to_numpy()
    out = np.empty(len(fold.test))
    for name in np.unique(key[fold.test]):
        inside, known = key[fold.test] == name, fold.train[key[fold.train] == name]
        known = known if len(known) else fold.train
        at = known[[int(np.square(prints[known] - p).sum(axis=1).argmin()) for p in prints[fold.test][inside]]]
        out[inside] = dataset.measured_s[at] * found.base_s[fold.test][inside] / found.base_s[at]
    return out


def _three_inferences(dataset: Dataset) -> np.ndarray:
    """[N] seconds: three times what the shipped predictor says of inference."""
    predictor = InferencePredictor.load()
    out = np.empty(len(dataset))
    for i, (table, batch, way) in enumerate(zip(dataset.tables, dataset.rows.batch, dataset.ways, strict=True)):
        out[i] = 3.0 * predictor.predict(table, batch, replace(way, torch_version=None)).median_s
    return out


def _devices(dataset: Dataset, section: Section, evidence: _Evidence, graded: np.ndarray, seed: int) -> None:
    """Each device unseen: zero-shot, then scaled by a few calibration records."""
    generator = np.random.default_rng(seed)
    pooled: list[np.ndarray] = []
    device = dataset.rows.device.to_numpy()
    for e in evidence.experiments:
        kept = graded[e.rows]
        rows, predicted = e.rows[kept], e.predicted_s[kept]
        y = dataset.measured_s[rows]
        low, high = (v[kept] for v in evidence.bounds(e.errors, np.flatnonzero(device == e.device), e.device))
        bounds = (1e3 * predicted * np.exp(low), 1e3 * predicted * np.exp(high))
        board = e.device != "rtx-3090"
        section.add(_METRIC, "device", "perfpass, zero-shot", e.device, 1e3 * predicted, 1e3 * y, *bounds)
        section.add(_METRIC, "device", "operators only, zero-shot", e.device, 1e3 * e.base_s[kept], 1e3 * y)
        if board:
            pooled.append(1e3 * np.stack([predicted, y, bounds[0] / 1e3, bounds[1] / 1e3]))
        precision = dataset.rows.precision.to_numpy()[rows]
        for size in CALIBRATION_SIZES:
            drawn = generator.permutation(len(rows))
            seen, rest = drawn[:size], drawn[size:]
            if len(rest) < 10:
                continue
            scaled = predicted[rest] * np.exp(scale(np.log(y / predicted)[seen], precision[seen], precision[rest]))
            section.add(_METRIC, f"device, {size} records", "perfpass", e.device, 1e3 * scaled, 1e3 * y[rest])
    boards = np.concatenate(pooled, axis=1)
    section.add(_METRIC, "device", "perfpass, zero-shot", f"{BOARDS}, one at a time", *boards)


def scale(residual: np.ndarray, precision: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """[len(asked)] log factors: the median of each precision's residuals, drawn to that of all by a few records."""
    overall = float(np.median(residual)) * len(residual) / (len(residual) + _PRIOR_RECORDS)
    out = np.full(len(asked), overall)
    for name in np.unique(precision):
        own = residual[precision == name]
        out[asked == name] = (len(own) * np.median(own) + 4 * overall) / (len(own) + 4)
    return out
