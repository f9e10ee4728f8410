"""Widths of served times: errors of what was held out of the records and of other laboratories, by what was unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.serving import base
from perfpass.predictors.serving.features import Neighbours, beside
from perfpass.predictors.serving.predictor import TARGETS, ServingPredictor
from perfpass.predictors.serving.widths import CAUSES, of_prompts, of_tokens
from perfpass.training import spread
from perfpass.training.serving.dataset import Dataset
from perfpass.training.serving.fit import SET_UP, first_by_base
from perfpass.training.serving.held_out import HeldOut, folds_of
from perfpass.training.serving.outside import Answers, Asked, answers
from perfpass.training.spread import Errors

# Log half-widths that fits are drawn to, and those of what no error shows. By hand: pipelines as a set-up that was not
# measured, other vendors as with networks (`training.time_widths`); requests that wait, of whom eight rows of one
# set-up tell too little.
PRIOR: Mapping[str, Mapping[str, float]] = {
    "tpot": {
        "measurement": 0.1, "laboratory": 0.2, "model": 0.3, "device": 0.3, "pair": 0.2, "architecture": 0.3,
        "vendor": 0.7, "set-up": 0.2, "precision": 0.3, "version": 0.4, "load": 0.15, "others": 0.1, "waiting": 0.4,
        "split prefill": 0.2, "unstated workers": 0.2, "pipeline": 0.4,
    },
    "ttft": {
        "measurement": 0.3, "laboratory": 0.5, "model": 0.4, "device": 0.4, "pair": 0.3, "architecture": 0.4,
        "vendor": 0.7, "set-up": 0.3, "precision": 0.3, "version": 0.4, "load": 0.2, "others": 0.5, "waiting": 1.2,
        "split prefill": 0.3, "unstated workers": 0.5, "pipeline": 0.4,
    },
}  # fmt: skip
# What of the held-out levels counts as a kind of source, and the lack that it shows.
_KINDS = {
    "measured": ("random", ()),
    "apart": ("pair", ("pair",)),
    "model unseen": ("model", ("model",)),
    "device unseen": ("device", ("device",)),
    "both unseen": ("both", ("model", "device")),
    SET_UP: ("set-up", ()),
}
# By hand: a first token that takes over a quarter longer for every so much that its prompts do.
_NEAR_FULL, _STEP = 1.25, 0.1
# A part with more rows is thinned, evenly: its error as a whole is what counts.
_MOST_ROWS = 80


def held_out_errors(
    data: Dataset, found: HeldOut, level: str, target: str, seed: int = 0, *, calm: bool = True
) -> tuple[Errors, np.ndarray]:
    """Errors of a level's held-out rows, and which rows [M] they are of.

    Of first tokens those of servers that are warm and have room, and, where the base answers, are not `near_full`,
    which alone make widths; the others where not ``calm``.
    """
    excited = np.zeros(len(data), dtype=bool)
    if target == "ttft":
        excited = data.queued | data.cold
        if first_by_base(level):
            excited = excited | near_full(data, found)
    kind, missing = _KINDS[level]
    quantization, runtime = (data.workloads.texts[name].astype(str) for name in ("quantization", "runtime"))
    precision = np.char.add(np.char.add(runtime, "|"), quantization)
    device = data.rows.device.to_numpy(dtype=str)
    architecture = np.array([find_device(name).architecture for name in device])
    parts, rows = [], []
    for number, fold in enumerate(folds_of(data, level, seed)):
        test = fold.test[excited[fold.test] != calm]
        if not len(test):
            continue
        known = Neighbours.of(data.workloads.take(fold.train), data.weight[fold.train])
        lacks: dict[str, Any] = dict.fromkeys(CAUSES, 0.0) | dict.fromkeys(missing, 1.0)
        lacks["measurement"] = 1.0
        lacks["set-up"] = np.minimum(np.array(known.set_up_apart(data.workloads.take(test))) / 3.0, 2.0)
        lacks["precision"] = (~np.isin(precision[test], precision[fold.train])).astype(float)
        unseen = ~np.isin(device[test], device[fold.train])
        lacks["architecture"] = (unseen & ~np.isin(architecture[test], architecture[fold.train])).astype(float)
        lacks["others"] = beside(data.workloads.terms.take(test))
        lacks["split prefill"] = (~data.aggregated[test]).astype(float)
        # A decoder's limit makes requests wait for a place, not its steps longer.
        unstated = data.settings_unstated if target == "ttft" else data.workloads.terms.unstated
        lacks["unstated workers"] = unstated[test].astype(float)
        lacks = lacks if target == "ttft" else of_tokens(lacks)
        parts.append(Errors.of(found.residual[target][test], lacks, f"{kind}:{number}"))
        rows.append(test)
    return Errors.joined(parts), np.concatenate(rows)


def near_full(data: Dataset, found: HeldOut) -> np.ndarray:
    """[N] whether a queue for prefill or for room is so near its saturation that first tokens are less certain than
    their prompts; by what was asked, not by what was measured.
    """
    low, high = _with_queues(data, found, np.full(len(data), -_STEP), np.full(len(data), _STEP))
    return np.maximum(-low, high) > _NEAR_FULL * _STEP


def _with_queues(data: Dataset, found: HeldOut, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`base.first_token_bounds` [N] by the constants of each row's fold; as they are of rows without one."""
    low, high = low.copy(), high.copy()
    for number, constants in enumerate(found.constants):
        rows = np.flatnonzero(found.fold == number)
        terms = data.workloads.take(rows).terms
        low[rows], high[rows] = base.first_token_bounds(terms, constants, low[rows], high[rows])
    return low, high


def graded(
    data: Dataset, held_out: Mapping[str, HeldOut], others: Answers, target: str, seed: int = 0
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Log bounds [N] by level, from errors on other records alone; of cold and queued first tokens as if they were
    neither.
    """
    errors = {level: held_out_errors(data, found, level, target, seed) for level, found in held_out.items()}
    asked = [outside_errors(others, target)]
    if target == "tpot":
        return {level: spread.graded(errors, asked, level, len(data), fitted(target)) for level in errors}
    every = fitted(target)([*(e for e, _ in errors.values()), *asked])
    out = {}
    for level, found in held_out.items():
        calm, rows = errors[level]
        parts = [
            (w, calm.take(own), rows[own]) for own, w in spread.each_left_out(errors, asked, level, fitted(target))
        ]
        parts.append((every, *held_out_errors(data, found, level, target, seed, calm=False)))
        whole, prompts = np.full((2, len(data)), np.nan), np.full((2, len(data)), np.nan)
        for widths, of, places in parts:
            lacks = dict(zip(of.causes, of.lacks.T, strict=True)) | dict(spread.ANOTHER_LABORATORY)
            whole[:, places], prompts[:, places] = widths.bounds(lacks), widths.bounds(of_prompts(lacks))
        low, high = _with_queues(data, found, *prompts) if first_by_base(level) else whole
        out[level] = np.fmin(whole[0], low), np.fmax(whole[1], high)
    return out


def outside_errors(found: Answers, target: str) -> Errors:
    """Errors of other laboratories."""
    columns: dict[str, Any] = {cause: np.array([lack[cause] for lack in found.lacks]) for cause in CAUSES}
    columns |= {"waiting": 0.0}
    columns = columns if target == "ttft" else of_tokens(columns)
    return Errors.of(np.log(found.measured_s / found.seconds), columns, found.source)


def prior() -> dict[str, Any]:
    """Of a manifest before any fit, by target."""
    widths = {target: tuple(PRIOR[target][cause] for cause in CAUSES) for target in TARGETS}
    return {name: Spread(CAUSES, w, w, spread.TAILS, 0, 0).to_dict() for name, w in widths.items()}


def fit(
    data: Dataset, held_out: Mapping[str, HeldOut], predictor: ServingPredictor, asked: list[Asked]
) -> dict[str, Spread]:
    """The widths that ship, by target."""
    out = {}
    for target in TARGETS:
        parts = [held_out_errors(data, found, level, target)[0] for level, found in held_out.items()]
        parts.append(outside_errors(answers(predictor, asked, target), target))
        out[target] = fitted(target)(parts)
    return out


def fitted(target: str) -> Callable[[list[Errors]], Spread]:
    """What fits the widths of a target on parts."""
    return lambda parts: spread.fit(Errors.joined([p for p in parts if len(p)]).thinned(_MOST_ROWS), PRIOR[target])
