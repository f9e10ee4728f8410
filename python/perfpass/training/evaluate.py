"""`perfpass evaluate`: every accuracy figure, from the records of the repository alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.roofline import GROUPS
from perfpass.predictors.roofline_features import DEVICE_FEATURES, FEATURES, SOFTWARE_FEATURES
from perfpass.training import calibrate, model
from perfpass.training.dataset import Dataset, load
from perfpass.training.fit import ROUNDS, TREES
from perfpass.training.metrics import Errors, errors
from perfpass.training.splits import SPLITS, Fold, folds_of, set_aside

FOLDS = 5
WORST = 10
CALIBRATION_SIZES = (10, 32)
GPU, CPU, OLD = "GPUs (timm)", "CPUs (timm)", "older GPUs (torchvision)"
_HEADING = """# Accuracy of the vision predictor

What `perfpass evaluate` prints. Intervals: 90 % asked, made as those that ship, but from the other folds and devices
alone. Devices with few records are predicted as unseen, so the device split grades them. "device and software": no
training row is of that device, nor of its software (eager, channels-last, compiled; or what only older GPUs ran)."""
_STATIC = ("log_kernels", "log_batch", "log_weights", *(f"kernels_{g}" for g in GROUPS))


@dataclass(frozen=True)
class Line:
    """One line of the table: a split, the method, the rows it was judged on and its errors."""

    split: str
    method: str
    judged_on: str
    errors: Errors


@dataclass
class Report:
    """What `evaluate` found; prints as Markdown."""

    corpus: dict[str, Any]
    lines: list[Line] = field(default_factory=list)
    worst_families: list[dict[str, Any]] = field(default_factory=list)
    worst_cases: list[dict[str, Any]] = field(default_factory=list)
    few_records: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "schema_version": 1,
            "corpus": self.corpus,
            "lines": [
                {"split": x.split, "method": x.method, "judged_on": x.judged_on, **x.errors.to_dict()}
                for x in self.lines
            ],
            "worst_families": self.worst_families,
            "worst_cases": self.worst_cases,
            "devices_with_few_records": self.few_records,
        }

    def __str__(self) -> str:
        out = [f"{self.corpus['rows']} records, {self.corpus['architectures']} architectures in "]
        out[0] += (
            f"{self.corpus['families']} families, {self.corpus['devices']} devices; not reported, because settings "
        )
        out[0] += (
            f"were chosen on them: {self.corpus['rows_set_aside']} records of {len(self.corpus['families_set_aside'])} "
        )
        out[0] += "families"
        out += [
            "",
            "| held out | method | judged on | rows | MAPE % | median % | P90 % | within 10 % | RMSE ms | tau | ",
        ]
        out[-1] += "covered % | high/low |"
        out.append("|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        for x in self.lines:
            e = x.errors
            coverage = "" if e.coverage_pct is None else f"{e.coverage_pct:.1f}"
            factor = "" if e.interval_factor is None else f"{e.interval_factor:.2f}"
            out.append(
                f"| {x.split} | {x.method} | {x.judged_on} | {e.rows} | {e.mape_pct:.2f} | {e.median_ape_pct:.2f} | "
                f"{e.p90_ape_pct:.1f} | {e.within_10_pct:.1f} | {e.rmse_ms:.1f} | "
                f"{e.kendall_tau:.3f} | {coverage} | {factor} |"
            )
        if self.few_records:
            out += ["", "Older GPUs, each unseen (rows, MAPE, covered): "]
            out[-1] += ", ".join(
                f"{f['device']} {f['rows']}, {f['mape_pct']:.0f} %, {f['coverage_pct']:.0f} %" for f in self.few_records
            )
        if self.worst_families:
            out += ["", "Worst families when unseen (GPUs, timm): "]
            out[-1] += ", ".join(f"{f['family']} {f['mape_pct']:.1f} % ({f['rows']})" for f in self.worst_families)
        if self.worst_cases:
            out += [
                "",
                "| worst cases, architecture unseen | device | workload | measured ms | predicted ms |",
                "|---|---|---|---:|---:|",
            ]
            for c in self.worst_cases:
                times = f"{c['measured_ms']:.1f} | {c['predicted_ms']:.1f}"
                out.append(f"| {c['model']} {c['img_size']} px | {c['device']} | {c['workload']} | {times} |")
        return "\n".join(out)


def evaluate(
    records: str | None = None,
    splits: Sequence[str] | None = None,
    *,
    output: str | None = None,
    json_file: str | None = None,
    seed: int = 0,
    folds: int = FOLDS,
    rounds: int = ROUNDS,
    baselines: bool = True,
    quiet: bool = False,
) -> Report:
    """Grade the predictor with each of ``splits`` (default: all of ``SPLITS``) held out.

    ``output``: a folder for accuracy.md and accuracy.json; ``json_file``: a file for the JSON alone. Everything that is
    fitted is fitted on a fold's training rows, its bounds come from the held-out errors of the other folds, and
    families on which settings were chosen (`splits.set_aside`) are not graded. Raises ArgumentError for an unknown
    split.
    """
    chosen = tuple(splits or SPLITS)
    for split in chosen:
        if split not in SPLITS:
            raise ArgumentError(f"unknown split {split!r}; allowed are {', '.join(SPLITS)}")
    dataset = load(records)
    rows = dataset.rows
    kind = _kinds(dataset)
    aside = set_aside(rows.family)
    graded = ~aside
    report = Report(
        {
            "rows": len(dataset),
            "rows_without_table": dataset.missing,
            "models": int(rows.model.nunique()),
            "architectures": int(rows.architecture.nunique()),
            "families": int(rows.family.nunique()),
            "devices": len(dataset.devices),
            "rows_set_aside": int(aside.sum()),
            "families_set_aside": sorted(set(rows.family[aside])),
        }
    )

    def say(text: str) -> None:
        if not quiet:
            print(f"evaluate: {text}", file=sys.stderr, flush=True)

    held = {
        split: _held_out(dataset, split, folds, seed, rounds, baselines, say) for split in chosen if split != "device"
    }
    if held:
        known = calibrate.NetworkResiduals.joined([h.residuals for h in held.values()])
        for split, found in held.items():
            _grade_folds(dataset, report, split, found, known, kind, graded)
    if "device" in chosen:
        _devices(dataset, report, graded, seed, rounds, say)
    text = json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"
    if json_file:
        Path(json_file).write_text(text, encoding="utf-8")
    if output:
        folder = Path(output)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "accuracy.json").write_text(text, encoding="utf-8")
        (folder / "accuracy.md").write_text(f"{_HEADING}\n\n{report}\n", encoding="utf-8")
    return report


def _kinds(dataset: Dataset) -> np.ndarray:
    source = dataset.rows.source.to_numpy()
    cpu = np.array([dataset.devices[name].kind == "cpu" for name in dataset.rows.device])
    return np.where(source == "torchvision", OLD, np.where(cpu, CPU, GPU))


@dataclass(frozen=True)
class _Split:
    """Every row of one split when held out."""

    folds: list[Fold]
    predicted_s: np.ndarray
    distance: np.ndarray
    baselines: dict[str, np.ndarray]
    residuals: calibrate.NetworkResiduals


def _held_out(dataset: Dataset, split: str, folds: int, seed: int, rounds: int, baselines: bool, say: Any) -> _Split:
    rows, n = dataset.rows, len(dataset)
    predicted, distance = np.empty(n), np.empty(n)
    others: dict[str, np.ndarray] = {}
    residuals = []
    every = list(folds_of(split, rows.architecture, rows.family, rows.device, folds, seed))
    for fold in every:
        found = model.held_out(dataset, fold.train, fold.test, portable=False, seed=seed, rounds=rounds)
        predicted[fold.test], distance[fold.test] = found.predicted_s, found.distance
        residuals.append(calibrate.network_residuals(dataset, fold.test, found))
        if baselines:
            for name, values in _baselines(dataset, found.data, fold, seed, rounds).items():
                others.setdefault(name, np.empty(n))[fold.test] = values
        say(f"{split}, {fold.held_out}")
    return _Split(every, predicted, distance, others, calibrate.NetworkResiduals.joined(residuals))


def _grade_folds(
    dataset: Dataset,
    report: Report,
    split: str,
    found: _Split,
    known: calibrate.NetworkResiduals,
    kind: np.ndarray,
    graded: np.ndarray,
) -> None:
    predicted, y = found.predicted_s, dataset.latency_s
    low, high = predicted.copy(), predicted.copy()
    cpu = dataset.software == model.CPU
    # As the bounds that ship, but from the errors on rows of other folds alone, whose groups this one does not share.
    for fold in found.folds:
        for name, table in calibrate.tables(dataset, known, without=fold.test).items():
            inside = fold.test[cpu[fold.test] == (name == "cpu")]
            a, b = table.bounds(found.distance[inside])
            low[inside], high[inside] = predicted[inside] * np.exp(a), predicted[inside] * np.exp(b)
    # Devices with few records are not predicted as known ones: the device split grades them.
    for name in (GPU, CPU):
        m = (kind == name) & graded
        if m.any():
            report.lines.append(Line(split, "perfpass", name, errors(predicted[m], y[m], low[m], high[m])))
    m = (kind == GPU) & graded
    for method, values in found.baselines.items():
        report.lines.append(Line(split, method, GPU, errors(values[m], y[m])))
    if split == "family":
        report.worst_families = _worst_families(dataset.rows, np.abs(predicted / y - 1), m)
    if split == "architecture":
        report.worst_cases = _worst_cases(dataset, predicted, np.abs(np.log(predicted / y)), m)


def _baselines(dataset: Dataset, data: model.Arrays, fold: Fold, seed: int, rounds: int) -> dict[str, np.ndarray]:
    """What simpler methods make of the same rows: one rate per device and software, the roofline, trees without it."""
    rows, y = dataset.rows, dataset.latency_s
    macs = np.array([float(np.dot(t.macs, t.count)) for t in dataset.tables])
    key = (rows.device + rows.precision + rows.runtime + rows.layout).to_numpy()
    by_macs, by_roof = np.empty(len(fold.test)), np.empty(len(fold.test))
    for name in np.unique(key[fold.test]):
        inside, known = key[fold.test] == name, fold.train[key[fold.train] == name]
        if not len(known):
            known = fold.train
        by_macs[inside] = macs[fold.test][inside] * np.median(y[known] / np.maximum(macs[known], 1))
        by_roof[inside] = data.base_s[fold.test][inside] * np.median(y[known] / data.base_s[known])
    names = [*_STATIC, *SOFTWARE_FEATURES, *DEVICE_FEATURES]
    x = np.column_stack([data.x[:, [FEATURES.index(n) for n in names]], np.log(np.maximum(macs, 1))])
    static = _fit_static(x[fold.train], np.log(y[fold.train]), seed, rounds)
    import xgboost

    return {
        "MACs only": by_macs,
        "roofline only": by_roof,
        "trees on static features": np.exp(static.predict(xgboost.DMatrix(x[fold.test]))),
    }


def _fit_static(x: np.ndarray, target: np.ndarray, seed: int, rounds: int) -> Any:
    """A booster with the predictor's own settings on other features, of which it needs more in each tree."""
    import xgboost

    settings = {**TREES, "colsample_bytree": 0.6, "seed": seed, "nthread": 1, "base_score": float(np.median(target))}
    return xgboost.train(settings, xgboost.DMatrix(x, target), rounds)


def _devices(dataset: Dataset, report: Report, graded: np.ndarray, seed: int, rounds: int, say: Any) -> None:
    """Each device unseen: zero-shot, then scaled by a few calibration records; and its software unseen too."""
    generator = np.random.default_rng(seed)
    large = calibrate.well_measured(dataset)
    alone = calibrate.unseen_devices(dataset, seed=seed, rounds=rounds, say=say)
    together = calibrate.unseen_software(dataset, seed=seed, rounds=rounds, say=say)
    every = [*alone, *together]
    judged = [_judged(dataset, e, every, graded) for e in alone]
    known = {name: j for j, e in zip(judged, alone, strict=True) for name in e.devices if name in large}
    for name, j in known.items():
        for size in CALIBRATION_SIZES:
            drawn = generator.permutation(len(j.predicted_s))
            seen, rest = drawn[:size], drawn[size:]
            software = dataset.software[j.rows]
            scale = _calibrated(np.log(j.measured_s[seen] / j.predicted_s[seen]), software[seen], software[rest])
            found = errors(j.predicted_s[rest] * np.exp(scale), j.measured_s[rest])
            report.lines.append(Line("device", f"perfpass, {size} records", name, found))
        report.lines.append(Line("device", "roofline only, zero-shot", name, errors(j.base_s, j.measured_s)))
        report.lines.append(Line("device", "perfpass, zero-shot", name, j.errors()))
    few = [j for j, e in zip(judged, alone, strict=True) if not e.devices & set(large)]
    if few:
        boards = _Judged.joined(few)
        judged_on = f"{OLD}, one at a time"
        report.lines.append(
            Line("device", "roofline only, zero-shot", judged_on, errors(boards.base_s, boards.measured_s))
        )
        report.lines.append(Line("device", "perfpass, zero-shot", judged_on, boards.errors()))
        for j in few:
            device = str(dataset.rows.device[j.rows[0]])
            report.few_records.append({"device": device, **j.errors().to_dict()})
    for name, known_devices in ((GPU, True), (f"{OLD}, all at once", False)):
        parts = [_judged(dataset, e, every, graded) for e in together if bool(e.devices & set(large)) == known_devices]
        if parts:
            line = Line("device and software", "perfpass, zero-shot", name, _Judged.joined(parts).errors())
            report.lines.append(line)


@dataclass(frozen=True)
class _Judged:
    """Graded rows of an experiment with unseen devices: times in seconds, and the log half-width of each interval."""

    rows: np.ndarray
    predicted_s: np.ndarray
    base_s: np.ndarray
    measured_s: np.ndarray
    width: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[_Judged]) -> _Judged:
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def errors(self) -> Errors:
        spread = np.exp(self.width)
        return errors(self.predicted_s, self.measured_s, self.predicted_s / spread, self.predicted_s * spread)


def _judged(
    dataset: Dataset, experiment: calibrate.Experiment, every: Sequence[calibrate.Experiment], graded: np.ndarray
) -> _Judged:
    """Intervals as those that ship, from experiments with other devices alone."""
    kept = graded[experiment.rows]
    rows = experiment.rows[kept]
    width = calibrate.bounds(experiment, every)[kept]
    return _Judged(rows, experiment.predicted_s[kept], experiment.base_s[kept], dataset.latency_s[rows], width)


def _calibrated(residual: np.ndarray, software: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """[len(asked)] log factors: the median of each kind of software's residuals, drawn to that of all by 4 records."""
    overall = float(np.median(residual))
    out = np.full(len(asked), overall)
    for s in np.unique(software):
        own = residual[software == s]
        out[asked == s] = (len(own) * np.median(own) + 4 * overall) / (len(own) + 4)
    return out


def _worst_families(rows: Any, ape: np.ndarray, mask: np.ndarray) -> list[dict[str, Any]]:
    found = rows[mask].assign(ape=ape[mask]).groupby("family").ape.agg(["mean", "size"])
    found = found.sort_values("mean", ascending=False).head(WORST)
    return [{"family": str(f), "mape_pct": 100 * float(r["mean"]), "rows": int(r["size"])} for f, r in found.iterrows()]


def _worst_cases(dataset: Dataset, predicted: np.ndarray, size: np.ndarray, mask: np.ndarray) -> list[dict[str, Any]]:
    out = []
    for i in np.flatnonzero(mask)[np.argsort(-size[mask])[:WORST]]:
        row = dataset.rows.iloc[i]
        out.append(
            {
                "model": str(row.model),
                "img_size": int(row.img_size),
                "device": str(row.device),
                "workload": f"{row.precision} {row.layout} {row.runtime}, batch {row.batch}",
                "measured_ms": float(row.latency_ms),
                "predicted_ms": 1e3 * float(predicted[i]),
            }
        )
    return out
