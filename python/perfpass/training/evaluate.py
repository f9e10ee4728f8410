"""`perfpass evaluate`: every accuracy figure, from the records of the repository alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.predictors.intervals import conformal, quantiles
from perfpass.predictors.roofline import GROUPS
from perfpass.predictors.roofline_features import DEVICE_FEATURES, FEATURES, SOFTWARE_FEATURES
from perfpass.predictors.trees import LEAST_DEVICE_ROWS, WIDENING
from perfpass.training import model
from perfpass.training.dataset import Dataset, load
from perfpass.training.fit import ROUNDS, TREES, fit_efficiency
from perfpass.training.metrics import Errors, errors
from perfpass.training.splits import SPLITS, Fold, folds_of

FOLDS = 5
WORST = 10
CALIBRATION_SIZES = (10, 32)
GPU, CPU, OLD = "GPUs (timm)", "CPUs (timm)", "older GPUs (torchvision)"
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
        }

    def __str__(self) -> str:
        out = [f"{self.corpus['rows']} records, {self.corpus['architectures']} architectures in "]
        out[0] += f"{self.corpus['families']} families, {self.corpus['devices']} devices"
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

    ``output``: a folder for accuracy.md and accuracy.json; ``json_file``: a file for the JSON alone. Nothing is tuned
    here; the bounds of each fold come from the held-out errors of the other folds. Raises ArgumentError for an
    unknown split.
    """
    chosen = tuple(splits or SPLITS)
    for split in chosen:
        if split not in SPLITS:
            raise ArgumentError(f"unknown split {split!r}; allowed are {', '.join(SPLITS)}")
    dataset = load(records)
    rows = dataset.rows
    kind = _kinds(dataset)
    report = Report(
        {
            "rows": len(dataset),
            "rows_without_table": dataset.missing,
            "models": int(rows.model.nunique()),
            "architectures": int(rows.architecture.nunique()),
            "families": int(rows.family.nunique()),
            "devices": len(dataset.devices),
        }
    )
    # The efficiencies (4 x 25 numbers) are fitted once on all rows for the within-device splits: held out or not, they
    # differ by under a percent, and features need not be computed anew for each fold. Devices get their own.
    data = model.arrays(dataset, model.efficiency_of(dataset, np.arange(len(dataset))))
    for split in chosen:
        if not quiet:
            print(f"evaluate: {split}", file=sys.stderr, flush=True)
        if split == "device":
            _devices(dataset, report, seed, rounds)
        else:
            _folds(dataset, data, kind, report, split, folds, seed, rounds, baselines)
    text = json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n"
    if json_file:
        Path(json_file).write_text(text, encoding="utf-8")
    if output:
        folder = Path(output)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "accuracy.json").write_text(text, encoding="utf-8")
        (folder / "accuracy.md").write_text(f"{report}\n", encoding="utf-8")
    return report


def _kinds(dataset: Dataset) -> np.ndarray:
    source = dataset.rows.source.to_numpy()
    cpu = np.array([dataset.devices[name].kind == "cpu" for name in dataset.rows.device])
    return np.where(source == "torchvision", OLD, np.where(cpu, CPU, GPU))


def _folds(
    dataset: Dataset,
    data: model.Arrays,
    kind: np.ndarray,
    report: Report,
    split: str,
    folds: int,
    seed: int,
    rounds: int,
    baselines: bool,
) -> None:
    rows, n = dataset.rows, len(dataset)
    predicted, low, high = np.empty(n), np.empty(n), np.empty(n)
    others = {name: np.empty(n) for name in ("MACs only", "roofline only", "trees on static features")}
    every = list(folds_of(split, rows.architecture, rows.family, rows.device, folds, seed))
    residual, distance = np.empty(n), np.empty(n)
    for fold in every:
        trees = model.fit(data, fold.train, portable=False, seed=seed, rounds=rounds)
        predicted[fold.test], distance[fold.test] = model.predict(data, trees, fold.train, fold.test)
        if baselines:
            for name, values in _baselines(dataset, data, fold, seed, rounds).items():
                others[name][fold.test] = values
    residual = np.log(dataset.latency_s / predicted)
    # A fold's intervals come from the residuals of the other folds, whose groups it does not share.
    for fold in every:
        for name in np.unique(kind):
            inside, outside = fold.test[kind[fold.test] == name], fold.train[kind[fold.train] == name]
            if len(inside):
                table = conformal(residual[outside], distance[outside])
                a, b = table.bounds(distance[inside])
                low[inside], high[inside] = predicted[inside] * np.exp(a), predicted[inside] * np.exp(b)
    # Devices with few records are not predicted as known ones: the device split grades them.
    for name in (GPU, CPU):
        m = kind == name
        if m.any():
            report.lines.append(
                Line(split, "perfpass", name, errors(predicted[m], dataset.latency_s[m], low[m], high[m]))
            )
    if baselines:
        for method, values in others.items():
            m = kind == GPU
            report.lines.append(Line(split, method, GPU, errors(values[m], dataset.latency_s[m])))
    if split == "family":
        report.worst_families = _worst_families(rows, np.abs(np.exp(-residual) - 1), kind == GPU)
    if split == "architecture":
        report.worst_cases = _worst_cases(dataset, predicted, np.abs(residual), kind == GPU)


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
    """A booster with the predictor's own settings on other features."""
    import xgboost

    settings = {**TREES, "seed": seed, "nthread": 1, "base_score": float(np.median(target))}
    return xgboost.train(settings, xgboost.DMatrix(x, target), rounds)


def _devices(dataset: Dataset, report: Report, seed: int, rounds: int) -> None:
    """Each device unseen: zero-shot, then after a scale factor from a few calibration records."""
    rows = dataset.rows
    device = rows.device.to_numpy()
    counts = rows.device.value_counts()
    group_s, software = dataset.group_times()
    generator = np.random.default_rng(seed)

    zero_shot: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    unseen = {str(name): device == name for name in sorted(counts.index[counts >= LEAST_DEVICE_ROWS])}
    few = {OLD: rows.source.to_numpy() == "torchvision"}
    for name, held_out in {**unseen, **few}.items():
        if not held_out.any() or held_out.all():
            continue
        train, test = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        data = model.arrays(dataset, fit_efficiency(group_s[train], software[train], dataset.latency_s[train]))
        trees = model.fit(data, train, portable=True, seed=seed, rounds=rounds)
        predicted = data.base_s[test] * np.exp(trees.predict(data.x[test]))
        measured = dataset.latency_s[test]
        zero_shot[name] = predicted, measured
        for size in CALIBRATION_SIZES if name in unseen else ():
            drawn = generator.permutation(len(test))
            known, rest = drawn[:size], drawn[size:]
            scale = _calibrated(np.log(measured[known] / predicted[known]), software[test][known], software[test][rest])
            found = errors(predicted[rest] * np.exp(scale), measured[rest])
            report.lines.append(Line("device", f"perfpass, {size} records", name, found))
        roof = data.base_s[test]
        report.lines.append(Line("device", "roofline only, zero-shot", name, errors(roof, measured)))
    cpus = {name for name in unseen if dataset.devices[name].kind == "cpu"}
    for name, (predicted, measured) in zero_shot.items():
        # As shipped, but from the other devices alone: the widest of their bounds, widened as for any unseen device.
        others = [
            np.log(zero_shot[o][1] / zero_shot[o][0]) for o in unseen if o != name and (o in cpus) == (name in cpus)
        ]
        found = errors(predicted, measured)
        if others:
            width = WIDENING["near"] * max(max(abs(b) for b in quantiles(r, 0.9)) for r in others)
            found = errors(predicted, measured, predicted * np.exp(-width), predicted * np.exp(width))
        report.lines.append(Line("device", "perfpass, zero-shot", name, found))


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
