"""Grading of speculative decoding: Spec-Bench's speed-ups with a method, a model and a device held out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.llm.configuration import language_model
from perfpass.llm.speculation import METHODS
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.section import Section, Table
from perfpass.training.speculation.fit import CONSTANTS, Question, at, fit, speedup, start

if TYPE_CHECKING:
    import pandas

_METRIC, _UNIT, _AIM = "speed-up", "times", 15.0
_ALL, _EACH = "all tasks", "each task"
_COVERAGE = 0.9
_SPLITS = ("method", "model", "device")
_KIN = ("eagle",)
_INTRO = """Spec-Bench: ten ways of speculative decoding, Vicuna 7B and 13B, an RTX 3090 and an A100, one request at a
time in eager PyTorch, greedy; speed-ups over plain decoding, with the mean tokens that a step keeps. The steps are
those of `perfpass llm --draft` (drafting, then one pass over all drafts), on times of eager PyTorch: five constants,
fitted on the rows that are not held out. What is asked is a method with its settings and its tokens a step, as a user
states an acceptance; "its tokens elsewhere": those are taken from rows that are not held out, too. "method": all that
builds on EAGLE is held out together. Bounds: 90 %, by the errors of other methods (models, devices) held out. Each
task: the source states tokens over all tasks alone, so a task's speed-up over that of all is the mean of other methods
of its kind (text that is searched, or drafts that are computed)."""


def load(folder: str | None = None) -> pandas.DataFrame:
    """The records, with ``asked`` (our name of the method). Raises FileError, FormatError."""
    table = schema.read(Path(folder or data_directory() / "records") / "speculation.parquet", "speculation")
    names = {method.measured_as: name for name, method in METHODS.items() if method.measured_as}
    return table.assign(asked=table.method.map(names))


def questions(rows: pandas.DataFrame) -> list[Question]:
    """What each row asks."""
    columns = rows.network, rows.device, rows.asked, rows.tokens_per_step
    return [Question(language_model(n), device(d), m, float(t)) for n, d, m, t in zip(*columns, strict=True)]


def groups(rows: pandas.DataFrame, split: str) -> np.ndarray:
    """[N] what is held out together: a method with its kin, a model, a device."""
    names = rows[split].str.lower()
    return np.array([next((kin for kin in _KIN if split == "method" and kin in name), name) for name in names])


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade all splits, with baselines on the same rows. Raises FileError."""
    table = load(folder)
    overall = (table.task == "Overall").to_numpy()
    rows, tasks = (table[part].reset_index(drop=True) for part in (overall, ~overall))
    corpus = {"rows": len(table), "methods": rows.method.nunique(), "models": rows.model.nunique()}
    section = Section("speculation", "Speculative decoding", _INTRO, corpus)
    asked, measured = questions(rows), rows.speedup.to_numpy()
    tokens = rows.tokens_per_step.to_numpy()
    for split in _SPLITS:
        group = groups(rows, split)
        ours, mean = np.empty(len(rows)), np.empty(len(rows))
        elsewhere, copied = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        for value in np.unique(group):
            stay, held = group != value, np.flatnonzero(group == value)
            constants = fit([asked[i] for i in np.flatnonzero(stay)], measured[stay])
            mean[held] = measured[stay].mean()
            for i in held:
                ours[i] = speedup(asked[i], constants)
                if (same := stay & (rows.method == rows.method[i]).to_numpy()).any():
                    elsewhere[i] = speedup(at(asked[i], float(np.median(tokens[same]))), constants)
                    copied[i] = np.median(measured[same])
        section.add(_METRIC, split, "perfpass", _ALL, ours, measured, *_bounds(group, ours, measured), aim_pct=_AIM)
        section.add(_METRIC, split, "tokens a step alone", _ALL, tokens, measured)
        section.add(_METRIC, split, "mean speed-up of the others", _ALL, mean, measured)
        known = ~np.isnan(copied)
        if known.any():
            of = f"{_ALL}, methods also elsewhere"
            section.add(_METRIC, split, "perfpass", of, ours[known], measured[known])
            section.add(_METRIC, split, "perfpass, its tokens elsewhere", of, elsewhere[known], measured[known])
            section.add(_METRIC, split, "speed-up of the method elsewhere", of, copied[known], measured[known])
        each, shares = tasks.speedup.to_numpy(), _shares(rows, tasks, split)
        index = _overall_of(rows, tasks)
        section.add(_METRIC, split, "perfpass", _EACH, ours[index] * shares, each)
        section.add(_METRIC, split, "mean speed-up of the others", _EACH, mean[index] * shares, each)
        cases = (rows.method + ", " + rows.model + ", " + rows.device).tolist()
        section.add_worst_cases(_METRIC, _UNIT, split, cases, ours, measured)
        if split == "method":
            section.add_points(_METRIC, _UNIT, split, rows.method.tolist(), ours, measured)
    unfitted = np.array([speedup(one, start()) for one in asked])
    section.add(_METRIC, "none", "constants where the fit starts", _ALL, unfitted, measured)
    shown: list[tuple[str, float, float]] = []
    for name, before, fitted in zip(CONSTANTS, start(), fit(asked, measured), strict=True):
        unit, scale = (", ms", 1e3) if name.endswith("_s") else (", share of the peak", 1.0)
        shown.append((name.removesuffix("_s") + unit, scale * before, scale * fitted))
    section.tables.append(Table("Constants", ("constant", "before", "fitted"), tuple(shown)))
    spread = np.log(tasks.speedup.to_numpy() / measured[_overall_of(rows, tasks)])
    half = float(np.quantile(np.abs(spread), _COVERAGE))
    section.notes.append(f"Nine in ten tasks are within a factor of {np.exp(half):.2f} of the speed-up over all tasks.")
    return section


def _bounds(group: np.ndarray, predicted: np.ndarray, measured: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Low and high [N]: by 90 in 100 errors of the other groups, each held out."""
    off = np.abs(np.log(measured / predicted))
    half = np.empty(len(group))
    for value in np.unique(group):
        others = np.sort(off[group != value])
        half[group == value] = others[min(int(np.ceil(_COVERAGE * (len(others) + 1))) - 1, len(others) - 1)]
    return predicted * np.exp(-half), predicted * np.exp(half)


def _overall_of(rows: pandas.DataFrame, tasks: pandas.DataFrame) -> np.ndarray:
    """[tasks] the row over all tasks that each belongs to."""
    keys = ["device", "model", "method"]
    place = {key: i for i, key in enumerate(rows[keys].itertuples(index=False, name=None))}
    return np.array([place[key] for key in tasks[keys].itertuples(index=False, name=None)])


def _shares(rows: pandas.DataFrame, tasks: pandas.DataFrame, split: str) -> np.ndarray:
    """[tasks] a task's speed-up over that of all, by other methods of the kind that are not held out."""
    group, index = groups(tasks, split), _overall_of(rows, tasks)
    share = np.log(tasks.speedup.to_numpy() / rows.speedup.to_numpy()[index])
    searched = np.array([METHODS[name].drafted_by == "search" for name in tasks.asked])
    task = tasks.task.to_numpy()
    out = np.empty(len(tasks))
    for i in range(len(tasks)):
        alike = (task == task[i]) & (group != group[i]) & (searched == searched[i])
        out[i] = share[alike].mean()
    return np.asarray(np.exp(out))
