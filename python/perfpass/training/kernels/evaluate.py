"""Grading of the kernel predictor, from the records of the repository alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from perfpass.predictors.kernels.predictor import OPERATORS
from perfpass.training.kernels import experiments, power, widths
from perfpass.training.kernels.data import SHAPES, Data, load, software
from perfpass.training.kernels.experiments import RECORDS, Found
from perfpass.training.kernels.fit import boosted, fit
from perfpass.training.section import Section

TITLES = {
    "gemm": "GEMM",
    "prefill_attention": "prefill attention",
    "decode_attention": "decode attention",
    "moe": "experts",
    "collective": "collectives",
    "torch": "PyTorch fp32",
}
SPLIT_NAMES = {
    "random": "random rows",
    "shape": "shapes",
    "version": "versions of a stack",
    "device": "device, zero-shot",
}
_AIMS = {"gemm": (5.0, 12.0), "prefill_attention": (5.0, 12.0), "decode_attention": (5.0, 12.0)}
_INTRO = """Single kernels of serving stacks on six GPUs (TensorRT-LLM, vLLM, SGLang, NCCL; aiconfigurator). "Shapes":
no shape is on both sides, on any device or in any stack. "Versions": no training row is of that stack in
that version. "Device": nothing was measured on that device, which starts from its nearest measured relative
of the same compute capability where it has one; after 10 and 32 records "of the device" one correction is
fitted to all its software, "of its software" one to each (device, stack, version, precision, kernel).
Intervals: 90 % asked, widths by causes from what else was held out; a user's laboratory, another one, adds
its width to them. The plain roofline is max(FLOPs / peak, bytes / bandwidth, 2 us), nothing fitted; "XGBoost"
sees sizes, software and device figures, not physics."""
ROOFLINE_FLOOR_S = 2e-6
_BASELINE_ROWS = 30_000
_TEXTS = ("distribution", "operation", "operator", "dimensions")


def evaluate(folder: Path | str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade every operator and power with each kind of split. Raises FileError, FormatError for missing records."""
    section = Section("kernels", "Kernels on GPUs, latency and power", _INTRO)
    powered = []
    for operator in OPERATORS:
        if not quiet:
            print(f"evaluate: kernels, {TITLES[operator]}", file=sys.stderr, flush=True)
        data = load(operator, folder)
        section.corpus[TITLES[operator]] = len(data)
        found = experiments.run(data, seed=seed)
        for split, one in sorted(found.items()):
            _grade(section, operator, split, one, widths.graded(found, split))
        _adapted(section, operator, found["device"], seed)
        _baseline(section, operator, data, seed)
        if operator == "torch":
            _transformers(section, data, seed)
        powered.append(data)
    power.grade(section, powered, seed)
    section.notes.append(
        "Host-bound: collections whose least kernels take over 40 us were issued by the host without a graph; they are "
        "among the rows of GEMM, and the line without them stands beside."
    )
    return section


def _grade(section: Section, operator: str, split: str, found: Found, bounds: tuple[np.ndarray, np.ndarray]) -> None:
    metric = f"{TITLES[operator]} us"
    measured, predicted = found.data.seconds * 1e6, np.exp(found.predicted) * 1e6
    low, high = (np.exp(b) for b in bounds)
    aim = _AIMS.get(operator, (None, None))[1 if split == "device" else 0] if split in ("random", "device") else None
    name = SPLIT_NAMES[split]
    section.add(metric, name, "perfpass", "all", predicted, measured, low * predicted, high * predicted, aim_pct=aim)
    section.add(metric, name, "physics and efficiencies", "all", np.exp(found.base) * 1e6, measured)
    section.add(metric, name, "plain roofline", "all", _roofline(found.data) * 1e6, measured)
    clean = ~found.data.host_bound
    if not clean.all():
        section.add(metric, name, "perfpass", "not host-bound", *_taken(clean, predicted, measured, low, high))
    groups = found.data.device if split == "device" else found.data.precision
    for group in np.unique(groups):
        rows = groups == group
        if rows.sum() >= experiments.LEAST_ROWS:
            section.add(metric, name, "perfpass", str(group), *_taken(rows, predicted, measured, low, high))
    if split in ("random", "device"):
        section.add_worst_groups(metric, name, "software", list(found.data.keys[:, 3]), predicted, measured)
        section.add_points(metric, "us", name, list(found.data.device), predicted, measured)
    if split == "device":
        section.add_worst_cases(metric, "us", name, _described(found.data), predicted, measured)


def _taken(
    rows: np.ndarray, predicted: np.ndarray, measured: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, ...]:
    p = predicted[rows]
    return p, measured[rows], low[rows] * p, high[rows] * p


def _adapted(section: Section, operator: str, found: Found, seed: int) -> None:
    """The device split again, after a few records."""
    metric, measured = f"{TITLES[operator]} us", found.data.seconds * 1e6
    device = found.fold
    software = np.array([f"{k}" for k in found.data.keys[:, -1]])
    for records in RECORDS:
        for text, groups in (("of the device", device), ("of its software", software)):
            predicted, judged = experiments.adapted(found, groups, records, seed)
            if len(np.unique(device[judged])) < 2:
                continue
            low, high = widths.adapted(np.log(found.data.seconds[judged]) - predicted[judged], device[judged])
            p = np.exp(predicted[judged]) * 1e6
            bounds = (p * np.exp(low), p * np.exp(high))
            name = f"device, {records} records {text}"
            section.add(metric, name, "perfpass", "all", p, measured[judged], *bounds)


def _roofline(data: Data) -> np.ndarray:
    return np.maximum(np.maximum(data.terms.compute_s, data.terms.memory_s), ROOFLINE_FLOOR_S)


def _transformers(section: Section, data: Data, seed: int) -> None:
    """The source's own split of PyTorch operators: random shapes to learn from, those of transformer models to judge.

    H100, L4 and A100-80GB have no training rows but of convolutions, which do not count here.
    """
    operator, split = data.rows["operator"].to_numpy(), data.rows["split"].to_numpy()
    train = data.take(np.flatnonzero((split == "train") & (operator != "conv")))
    test = data.take(np.flatnonzero(split == "test"))
    fitted = fit(train, seed=seed)
    seen = np.isin(test.device, np.unique(train.device))
    log_s = fitted.predict(test, portable=False)
    unseen = np.flatnonzero(~seen)
    log_s[unseen] = fitted.unseen(test.take(unseen), software(train))[0]
    predicted, measured = np.exp(log_s) * 1e6, test.seconds * 1e6
    groups = {"devices measured": seen, "devices unseen": ~seen}
    groups |= {str(n): test.device == n for n in np.unique(test.device)}
    for name, rows in groups.items():
        args = ("PyTorch fp32 us", "transformer shapes", "perfpass", name)
        section.add(*args, predicted[rows], measured[rows])
    kinds = operator[split == "test"]
    section.add_worst_groups("PyTorch fp32 us", "transformer shapes", "operator", list(kinds), predicted, measured)


def _baseline(section: Section, operator: str, data: Data, seed: int) -> None:
    """XGBoost on the table's columns: sizes, software codes and device figures, against the logarithm of the time."""
    import xgboost

    part = experiments.subsample(data, _BASELINE_ROWS, seed)
    names = [n for n in SHAPES[operator] if n not in _TEXTS]
    figures = part.figures
    device = [figures.bandwidth, figures.sms, figures.clock, figures.l2, figures.power_limit, *figures.rate.T]
    sizes = [part.rows["context_tokens" if n == "tokens" and "attention" in operator else n] for n in names]
    texts = [part.rows[n].astype("category").cat.codes for n in SHAPES[operator] if n not in names]
    if operator == "torch":
        split = part.rows["dimensions"].str.split(",", expand=True)
        sizes, texts = [split[c].astype(float) for c in split], texts[:1]
    x = np.column_stack([*sizes, *texts, part.software, *device]).astype(np.float32)
    target = np.log(part.seconds)
    fold = experiments.row_folds(part, seed)
    splits = {"random rows": [fold == 0], SPLIT_NAMES["device"]: [part.device == d for d in np.unique(part.device)]}
    for name, tests in splits.items():
        predicted = np.full(len(part), np.nan)
        for test in tests:
            trees = boosted(x[~test], target[~test], 100, seed)
            predicted[test] = trees.predict(xgboost.DMatrix(x[test]))
        judged = np.isfinite(predicted)
        values = np.exp(predicted[judged]) * 1e6, part.seconds[judged] * 1e6
        section.add(f"{TITLES[operator]} us", name, "XGBoost on the table's columns", "all", *values)


def _described(data: Data) -> list[str]:
    return [f"{k.replace('|', ' ')} {s}" for k, s in zip(data.keys[:, -1], data.shape_key, strict=True)]
