"""Grading of memory: `perfpass evaluate --area memory`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from perfpass.predictors.memory.predictor import FLOOR_BYTES
from perfpass.predictors.memory.step import MOST_LEFT_AGAIN
from perfpass.training.memory import ran, serving, sources
from perfpass.training.memory.dataset import Rows, load
from perfpass.training.memory.fit import bound_groups, bounds, fit, nvidia_contexts
from perfpass.training.section import Section
from perfpass.training.tasks.splits import random_folds

_AIM_PCT = 6.0
_METRIC = "peak memory of training (MiB)"
_MIB = 2.0**20
INTRO = """
Peak memory of training on one GPU as NVML shows it (milabench), of networks whose programs are recorded and run through
the simulated allocator. "By network": every network is held out in turn, with all its precisions and benchmarks; bounds
of a network come from the errors of the others. A row is over the bound where it needed more than the upper bound said.
On AMD boards the convolution library takes workspaces that differ up to twofold between repeats of one benchmark, so
those rows are graded apart, and only one AMD board was measured: held out, nothing is known of its vendor, but that
workspaces may hold activations once more, or twice.

Memory of inference (BERT-base, Stable Diffusion 1), of other laboratories, by the plan of their graphs: each laboratory
is held out in turn, then each device. Memory of training steps by the plan of their graphs, not of a recording: live
tensors of segmentation networks and of a language model, in use of milabench; each laboratory is held out in turn.

What ran must fit: of every record of an accelerator, whether `predict` says that it does not.
"""


def by_family(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """[N] predictions with each row's network held out, and the same without workspaces."""
    return _held_out(rows, rows.family)


def of_networks(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[N] bytes predicted with each row's network held out, and their lower and upper bounds by the other networks."""
    found = by_family(rows)
    return found[0], *_bounded(rows, *found, rows.family)


def _held_out(rows: Rows, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    predicted, planned = np.full((2, len(rows)), np.nan)
    for group in np.unique(groups):
        test = groups == group
        fitted, part = fit(rows.take(np.flatnonzero(~test))), rows.take(np.flatnonzero(test))
        predicted[test], planned[test] = fitted.predict(part), fitted.planned(part)
    return predicted, planned


def _bounded(
    rows: Rows, predicted: np.ndarray, planned: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[N] bounds of every group from the errors of the others of its kind."""
    low, high = predicted.copy(), predicted.copy()
    of = bound_groups(rows)
    for group in np.unique(groups):
        for name in np.unique(of):
            test = (groups == group) & (of == name)
            rest = np.flatnonzero((groups != group) & (of == name))
            below, above = bounds(predicted[rest], planned[rest], rows.take(rest))
            width = predicted[test] + FLOOR_BYTES
            low[test], high[test] = planned[test] + below * width, predicted[test] + above * width
    return low, high


def _zero_shot(rows: Rows, records: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every device held out but for ``records`` of its rows: [M] rows judged, predictions and bounds.

    How far devices lie apart is allowed for as what is left of it after so many records of the device's own.
    """
    tested, predicted, low, high = [], [], [], []
    for name in np.unique(rows.device):
        here = np.flatnonzero(rows.device == name)
        order = np.random.default_rng(seed).permutation(here)
        given, test = order[:records], np.sort(order[records:])
        if not len(test):
            continue
        train = np.concatenate([np.flatnonzero(rows.device != name), given])
        learned, part = rows.take(train), rows.take(test)
        constants = fit(learned)
        median, planned = constants.predict(part), constants.planned(part)
        held_out = by_family(learned)
        extra = constants.unseen[str(part.kind[0]).split()[0]][1] / np.sqrt(1.0 + records)
        of, asked = bound_groups(learned), bound_groups(part)
        for group in np.unique(asked):
            test_of = asked == group
            same = np.flatnonzero(of == group) if (of == group).any() else np.arange(len(learned))
            below, above = bounds(held_out[0][same], held_out[1][same], learned.take(same))
            width = median[test_of] + FLOOR_BYTES
            tested.append(test[test_of])
            predicted.append(median[test_of])
            low.append(planned[test_of] + below * width - extra)
            most = planned[test_of] + MOST_LEFT_AGAIN * constants.strange(part)[test_of]
            high.append(np.maximum(median[test_of] + above * width, most) + extra)
    return np.concatenate(tested), np.concatenate(predicted), np.concatenate(low), np.concatenate(high)


def judged(rows: Rows) -> Iterator[tuple[str, np.ndarray]]:
    """Names of what is graded apart, each with the rows [N] that it is of."""
    nvidia = np.array([k.startswith("nvidia") for k in rows.kind])
    matrix = np.array([k.endswith("products") for k in rows.kind])
    inferred = rows.inferred.astype(bool)
    yield "NVIDIA", nvidia & ~inferred
    yield "NVIDIA, definition partly inferred", nvidia & inferred
    yield "AMD, matrix products", ~nvidia & matrix
    yield "AMD, convolutions", ~nvidia & ~matrix
    yield "all", np.ones(len(rows), dtype=bool)


def evaluate(folder: Path | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """All lines of the area."""
    rows, others = load(folder)
    section = Section("memory", "Memory of training", INTRO)
    section.corpus = {
        "rows": len(rows),
        "benchmarks": len(np.unique(rows.bench)),
        "networks": len(np.unique(rows.family)),
        "devices": len(np.unique(rows.device)),
        "rows of benchmarks without a public program": len(others),
    }
    measured = rows.measured / _MIB
    model, low, high = (v / _MIB for v in of_networks(rows))
    base = _baselines(rows, seed)
    for name, where in judged(rows):
        aim = _AIM_PCT if name == "NVIDIA" else None
        args = (model[where], measured[where], low[where], high[where])
        section.add(_METRIC, "network", "perfpass", name, *args, aim_pct=aim)
        for method, predicted in base.items():
            section.add(_METRIC, "network", method, name, predicted[where] / _MIB, measured[where])
    nvidia = dict(judged(rows))["NVIDIA"]
    labels = [f"{b}, batch {n}, {d}" for b, n, d in zip(rows.bench, rows.batch, rows.device, strict=True)]
    for by, groups in (("network", rows.family), ("device", rows.device)):
        section.add_worst_groups(_METRIC, "network", by, list(groups), model, measured)
    cases = [label for label, w in zip(labels, nvidia, strict=True) if w]
    section.add_worst_cases(_METRIC, "MiB", "network", cases, model[nvidia], measured[nvidia])
    section.add_points(_METRIC, "MiB", "network", list(rows.family), model, measured)
    folds = random_folds(len(rows), 5, seed)
    held_out = _held_out(rows, folds)
    below, above = (v / _MIB for v in _bounded(rows, *held_out, folds))
    kept = held_out[0] / _MIB
    for name, where in list(judged(rows))[:4]:
        args = (kept[where], measured[where], below[where], above[where])
        section.add(_METRIC, "random rows", "perfpass", name, *args)
    for records in (0, 10, 32):
        tested, predicted, below, above = _zero_shot(rows, records, seed)
        part = rows.take(tested)
        split = f"device, after {records} records" if records else "device, zero-shot"
        for name, where in list(judged(part))[:4]:
            if where.any():
                args = tuple(v[where] / _MIB for v in (predicted, part.measured, below, above))
                section.add(_METRIC, split, "perfpass", name, *args)
    _few_samples(section, others)
    sources.add(section, nvidia_contexts(rows, fit(rows)), folder)
    serving.add(section, folder)
    section.notes += serving.notes(folder)
    section.verdicts += [found.to_dict() for found in ran.every(folder)]
    return section


def _baselines(rows: Rows, seed: int) -> dict[str, np.ndarray]:
    """Predictions with each network held out: parts of the simulation alone, and trees on static columns."""
    import xgboost

    state = rows.by_use[:, [0, 3, 4]].sum(axis=1)  # weights, gradients, optimizer
    columns = np.column_stack(
        [
            np.log(state),
            np.log(rows.batch),
            *[rows.device == d for d in np.unique(rows.device)],
            *[[p in b for b in rows.bench] for p in ("fp32", "fp16", "tf32")],
        ]
    ).astype(np.float32)
    trees, allocated = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for family in np.unique(rows.family):
        test = rows.family == family
        learned = fit(rows.take(np.flatnonzero(~test)))
        runtime = learned.predict(rows.take(np.flatnonzero(test))) - rows.reserved[test] * np.array(
            [1.0 + learned.share.get(k, 0.0) for k in rows.kind[test]]
        )
        allocated[test] = runtime + rows.allocated[test]
        options = {"max_depth": 5, "eta": 0.05, "nthread": 1, "seed": seed, "tree_method": "hist"}
        fitted = xgboost.train(
            options, xgboost.DMatrix(columns[~test], np.log(rows.measured[~test])), num_boost_round=300
        )
        trees[test] = np.exp(fitted.predict(xgboost.DMatrix(columns[test])))
    return {
        "live tensors + runtime, no allocator": allocated,
        "XGBoost on parameters, batch, precision, device": trees,
        "weights, gradients and states alone": np.maximum(state, 1.0),
    }


def _few_samples(section: Section, rows: Rows) -> None:
    """Benchmarks whose program is not public: a line through the two smallest batches measured on the device."""
    predicted, measured, bench = [], [], []
    for name in np.unique(rows.bench):
        for device in np.unique(rows.device):
            here = (rows.bench == name) & (rows.device == device)
            batches = np.unique(rows.batch[here])
            if len(batches) < 3:
                continue
            first, second = (float(np.median(rows.measured[here & (rows.batch == b)])) for b in batches[:2])
            slope = max((second - first) / (batches[1] - batches[0]), 0.0)
            rest = here & (rows.batch > batches[1])
            predicted += list(first + slope * (rows.batch[rest] - batches[0]))
            measured += list(rows.measured[rest])
            bench += [name] * int(rest.sum())
    section.add(
        _METRIC,
        "larger batches than the two measured",
        "line through two measured batches",
        "benchmarks without a public program",
        np.array(predicted) / _MIB,
        np.array(measured) / _MIB,
    )
    names = ", ".join(np.unique(bench))
    section.notes.append(f"Benchmarks without a public program, graded by two measured batches alone: {names}.")
