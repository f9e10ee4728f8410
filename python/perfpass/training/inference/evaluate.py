"""Grading of the inference predictor, from the records of the repository alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.training import ratio_trees
from perfpass.training.inference import calibrate, outside
from perfpass.training.inference.dataset import Dataset, load
from perfpass.training.inference.model import ROUNDS, TREES
from perfpass.training.ratio_trees import Residuals
from perfpass.training.section import Section
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import SPLITS, Fold, set_aside

FOLDS = 5
GPU, CPU, OLD = "GPUs (timm)", "CPUs (timm)", "older GPUs (torchvision)"
_INTRO = """Intervals: 90 % asked, made as those that ship, but from the other folds, devices and sources alone. They
allow for another laboratory than that of the records, as a user's is, and so hold more than nine in ten of the
records' own. Devices with few records are predicted as unseen, so the device split grades them. "device and software":
no training row is of that device, nor of its software (eager, channels-last, compiled; or what only older GPUs ran).
"source": records of other laboratories, which no fit has seen; bounds from the other sources."""
_METRIC = "latency ms"
_AIMS = {"random": 3.0, "architecture": 6.0, "family": 10.0, "device": 10.0}


def evaluate(
    folder: str | None = None,
    seed: int = 0,
    *,
    splits: Sequence[str] | None = None,
    folds: int = FOLDS,
    rounds: int = ROUNDS,
    baselines: bool = True,
    quiet: bool = False,
) -> Section:
    """Grade the predictor with each of ``splits`` (default: all of ``SPLITS``) held out.

    ``folder``: of the records (default: those of the repository). Everything that is fitted is fitted on a fold's
    training rows, its bounds come from the held-out errors of the other folds, and families on which settings were
    chosen (`splits.set_aside`) are not graded. Raises ArgumentError for an unknown split.
    """
    chosen = tuple(splits or SPLITS)
    for split in chosen:
        if split not in SPLITS:
            raise ArgumentError(f"unknown split {split!r}; allowed are {', '.join(SPLITS)}")
    dataset = load(folder)
    rows = dataset.rows
    kind = _kinds(dataset)
    aside = set_aside(rows.family)
    graded = ~aside
    report = Section(
        "inference",
        "Vision inference, latency",
        _INTRO,
        {
            **ratio_trees.graded_corpus(dataset, aside),
            "families_set_aside": sorted(set(rows.family[aside])),
        },
    )

    def say(text: str) -> None:
        if not quiet:
            print(f"evaluate: {text}", file=sys.stderr, flush=True)

    def simpler(fold: Fold, found: ratio_trees.HeldOut) -> dict[str, np.ndarray]:
        return ratio_trees.baselines(dataset, found, fold, TREES, rounds, seed) if baselines else {}

    held = {
        split: calibrate.unseen_networks(dataset, split, folds, seed=seed, rounds=rounds, simpler=simpler, say=say)
        for split in chosen
        if split != "device"
    }
    alone: list[calibrate.Experiment] = []
    together: list[calibrate.Experiment] = []
    if "device" in chosen:
        alone = calibrate.unseen_devices(dataset, seed=seed, rounds=rounds, say=say)
        together = calibrate.unseen_software(dataset, seed=seed, rounds=rounds, say=say)
    known = Residuals.joined([h.residuals for h in held.values()]) if held else None
    evidence = _Evidence(dataset, known, [*alone, *together], outside.answers(folder))
    for split, found in held.items():
        _grade_folds(dataset, report, split, found, evidence, kind, graded)
    if "device" in chosen:
        _devices(dataset, report, alone, together, evidence, graded)
    outside.grade(report, evidence.outside, lambda kind, source: evidence.parts(kind, source=source))
    return report


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Every error there is, of which a grading leaves out what it grades."""

    dataset: Dataset
    networks: Residuals | None
    experiments: list[calibrate.Experiment]
    outside: outside.Answers

    def parts(
        self, kind: str, *, without: np.ndarray | None = None, devices: frozenset[str] = frozenset(), source: str = ""
    ) -> list[Errors]:
        """Errors on one kind of device, less those of rows ``without``, of experiments on ``devices``, of a source."""
        found = []
        if self.networks is not None:
            of = calibrate.kinds(self.dataset)[self.networks.row] == kind
            dropped = np.isin(self.networks.row, without) if without is not None else np.zeros_like(of)
            found.append(calibrate.of_networks(self.dataset, self.networks.take(of & ~dropped)))
        found += [e.errors for e in self.experiments if e.kind == kind and not e.devices & devices]
        others = (self.outside.kind == kind) & (self.outside.rows.source != source).to_numpy()
        return [*found, self.outside.take(others).errors]


def _kinds(dataset: Dataset) -> np.ndarray:
    source = dataset.rows.source.to_numpy()
    return np.where(source == "torchvision", OLD, np.where(calibrate.kinds(dataset) == "cpu", CPU, GPU))


def _grade_folds(
    dataset: Dataset,
    report: Section,
    split: str,
    found: ratio_trees.Split,
    evidence: _Evidence,
    kind: np.ndarray,
    graded: np.ndarray,
) -> None:
    predicted, y = found.predicted_s, dataset.measured_s
    low, high = predicted.copy(), predicted.copy()
    side, held = calibrate.kinds(dataset), found.residuals
    for fold in found.folds:
        for name in np.unique(side[fold.test]):
            asked = held.take(np.isin(held.row, fold.test) & (side[held.row] == name))
            parts = evidence.parts(str(name), without=fold.test)
            below, above = calibrate.bounds(parts, calibrate.of_networks(dataset, asked))
            low[asked.row], high[asked.row] = predicted[asked.row] * np.exp(below), predicted[asked.row] * np.exp(above)
    # Devices with few records are not predicted as known ones: the device split grades them.
    for name in (GPU, CPU):
        m = (kind == name) & graded
        if m.any():
            times = (1e3 * v[m] for v in (predicted, y, low, high))
            report.add(_METRIC, split, "perfpass", name, *times, aim_pct=_AIMS.get(split) if name == GPU else None)
    m = (kind == GPU) & graded
    for method, values in found.baselines.items():
        report.add(_METRIC, split, method, GPU, 1e3 * values[m], 1e3 * y[m])
    rows, at = dataset.rows[m], 1e3 * predicted[m]
    report.add_points(_METRIC, "ms", split, rows.device.to_numpy(), at, rows.latency_ms.to_numpy())
    if split == "family":
        report.add_worst_groups(_METRIC, split, "family", rows.family, at, rows.latency_ms.to_numpy())
    if split == "architecture":
        report.add_worst_cases(_METRIC, "ms", split, _described(rows), at, rows.latency_ms.to_numpy())


def _devices(
    dataset: Dataset, report: Section, alone: list[calibrate.Experiment], together: list[calibrate.Experiment],
    evidence: _Evidence, graded: np.ndarray,
) -> None:  # fmt: skip
    """Each device unseen: zero-shot; and its software unseen too. The area "calibration" grades few records."""
    large = calibrate.well_measured(dataset)
    judged = [_judged(dataset, e, evidence, graded) for e in alone]
    known = {name: j for j, e in zip(judged, alone, strict=True) for name in e.devices if name in large}
    for name, j in known.items():
        gpu = dataset.devices[name].is_gpu
        report.add(_METRIC, "device", "roofline only, zero-shot", name, 1e3 * j.base_s, 1e3 * j.measured_s)
        report.add(
            _METRIC, "device", "perfpass, zero-shot", name, *j.times_ms(), aim_pct=_AIMS["device"] if gpu else None
        )
    few = [j for j, e in zip(judged, alone, strict=True) if not e.devices & set(large)]
    if few:
        boards = _Judged.joined(few)
        judged_on = f"{OLD}, one at a time"
        times = 1e3 * boards.base_s, 1e3 * boards.measured_s
        report.add(_METRIC, "device", "roofline only, zero-shot", judged_on, *times)
        report.add(_METRIC, "device", "perfpass, zero-shot", judged_on, *boards.times_ms())
        for j in few:
            report.add(_METRIC, "device", "perfpass, zero-shot", str(dataset.rows.device[j.rows[0]]), *j.times_ms())
    for name, known_devices in ((GPU, True), (f"{OLD}, all at once", False)):
        parts = [
            _judged(dataset, e, evidence, graded) for e in together if bool(e.devices & set(large)) == known_devices
        ]
        if parts:
            times_ms = _Judged.joined(parts).times_ms()
            report.add(_METRIC, "device and software", "perfpass, zero-shot", name, *times_ms)


@dataclass(frozen=True)
class _Judged:
    """Graded rows of an experiment with unseen devices: times in seconds, and the log bounds of each."""

    rows: np.ndarray
    predicted_s: np.ndarray
    base_s: np.ndarray
    measured_s: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[_Judged]) -> _Judged:
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def times_ms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Predicted, measured, and the bounds, each [N] in milliseconds."""
        at = 1e3 * self.predicted_s
        return at, 1e3 * self.measured_s, at * np.exp(self.low), at * np.exp(self.high)


def _judged(
    dataset: Dataset, experiment: calibrate.Experiment, evidence: _Evidence, graded: np.ndarray
) -> _Judged:  # fmt: skip
    """Intervals as those that ship, from experiments with other devices alone."""
    kept = graded[experiment.rows]
    rows = experiment.rows[kept]
    of_devices = np.flatnonzero(np.isin(dataset.rows.device.to_numpy(), list(experiment.devices)))
    parts = evidence.parts(experiment.kind, without=of_devices, devices=experiment.devices)
    low, high = (v[kept] for v in calibrate.bounds(parts, experiment.errors))
    return _Judged(rows, experiment.predicted_s[kept], experiment.base_s[kept], dataset.measured_s[rows], low, high)


def _described(rows: Any) -> list[str]:
    """Each row in words."""
    return [
        f"{r.model} {r.img_size} px, {r.device}, {r.precision} {r.layout} {r.runtime}, batch {r.batch}"
        for r in rows.itertuples()
    ]
