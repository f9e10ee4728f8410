"""Grading of training on one to many devices: time of a step and peak memory, with layouts, models, devices and
laboratories held out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.predictors.llm_training.step import Constants, Work, timed
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training import spread
from perfpass.training.llm_training import elsewhere, memory, rates
from perfpass.training.llm_training.fit import NAMES, fit, start
from perfpass.training.section import Section, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas

    from perfpass.predictors.learned.spread import Spread
    from perfpass.training.llm_training.rates import Timed

_AIMS = {"layout": 10.0, "model": 15.0, "device": 20.0, "laboratory": 20.0}
_FOLDS, _MEMORY_AIM = 10, 8.0
_FEWEST = 3  # pairs of a line of scaling
# Log half-widths that a fit is drawn to, by what is not known: always, a model, mixtures of experts whatever was
# measured, a device, a framework and its hosts.
PRIOR = {"layout": 0.2, "model": 0.15, "experts": 0.3, "device": 0.2, "framework": 0.3}
# Runs that differ by the number of devices alone.
_ALIKE = ["source", "model", "device", "precision", "sequence", "micro_batch", "tensor", "pipeline", "virtual",
          "context", "expert", "sharding", "sharding_group", "recompute", "variant"]  # fmt: skip
_INTRO = """Language models trained on 1 to 1,024 devices: a step's time by what each device computes, moves and waits
for: products and attention as measured kernels run them, ten constants fitted on the rows that are not held out, with
a factor for each laboratory (its framework and hosts), which one that is held out lacks; peak memory by counting
alone. "layout": all rows of one layout of one model are held out together, in ten parts. "laboratory": all that one
has published; NVIDIA's three pages are one. Baselines: a constant share of the peak (by bits of the products), and
the nearest measured row (of the same bits, by FLOPs of a step and devices) scaled by FLOPs and peaks. Bounds: 90 %,
by the errors on rows of other parts; of a step by what is not known (a model, a device, a framework, and mixtures of
experts in any case). "scaling": a device's rate among many over that among the fewest. Memory: the rank that logs,
its tensors as the allocator counts them (Megatron-LM), what the pages report, or what the device shows; predicted from
what is counted by what the framework holds beside it, learned from its other layouts, or from all other sources; 5 %
below the lower bound and 2 % above the upper one are asked for. "outside": a laboratory from which nothing is learned,
asked with what ships, as --framework torch."""


def load(folder: str | None = None) -> pandas.DataFrame:
    """The records. Raises FileError, FormatError."""
    return schema.read(Path(folder or data_directory() / "records") / "llm_training.parquet", "llm_training")


def steps(table: pandas.DataFrame) -> tuple[pandas.DataFrame, list[Timed], list[str]]:
    """Rows with a time or a rate that are asked, their questions, and why the others are not."""
    rows = table[table.latency_ms.notna() | table.throughput_per_s.notna()]
    found, why = rates.asked(rows)
    asked = np.array([one is not None for one in found])
    return rows[asked].reset_index(drop=True), [one for one in found if one], [w for w in why if w]


def groups(rows: pandas.DataFrame, asked: Sequence[Timed], split: str) -> np.ndarray:
    """[N] what is held out together."""
    if split == "layout":
        return np.array(rows.configuration)
    if split == "model":
        return np.array([one.model.name for one in asked])
    return np.array(rows.device) if split == "device" else np.array([one.laboratory for one in asked])


def shares(rows: pandas.DataFrame) -> list[str]:
    """What shares a weight in a fit: a model on a device by a source."""
    return [f"{a}|{b}|{c}" for a, b, c in zip(rows.source, rows.model, rows.device, strict=True)]


def folds(group: np.ndarray) -> list[np.ndarray]:
    """Rows of each part that is held out: a group, or so many groups together that there are ten parts."""
    names = np.unique(group)
    part = np.arange(len(names)) % _FOLDS if len(names) > 2 * _FOLDS else np.arange(len(names))
    return [np.flatnonzero(np.isin(group, names[part == k])) for k in range(part.max() + 1)]


def held_out(rows: pandas.DataFrame, asked: Sequence[Timed], split: str) -> np.ndarray:
    """[N, 3] seconds by constants, by a share of the peak and by the nearest row, of rows that are not held out."""
    work, measured = rates.stacked(asked), np.array([one.seconds for one in asked])
    weights = shares(rows)
    out = np.empty((len(asked), 3))
    for held in folds(groups(rows, asked, split)):
        stay = np.setdiff1d(np.arange(len(asked)), held)
        found, factors = fit([asked[i] for i in stay], [weights[i] for i in stay])
        known = np.array([factors.get(asked[i].laboratory, 1.0) for i in held])
        out[held, 0] = timed(_taken(work, held), found).seconds * known
        out[held, 1:] = _baselines(asked, work, measured, stay, held)
    return out


def _taken(work: Work, where: np.ndarray) -> Work:
    return Work(**{f.name: np.asarray(getattr(work, f.name))[where] for f in fields(work)})


def _baselines(
    asked: Sequence[Timed], work: Work, measured: np.ndarray, stay: np.ndarray, held: np.ndarray
) -> np.ndarray:
    """[held, 2] a constant share of the peak, and the nearest row scaled by its share."""
    ideal = work.model_flops / (work.relative_peak * 312e12 * work.speed_up)
    share = ideal / measured
    place = np.log(np.column_stack([ideal, 2.0**work.doublings, [one.model.parameters for one in asked]]))
    out = np.empty((len(held), 2))
    for k, i in enumerate(held):
        alike = stay[work.bits[stay] == work.bits[i]]
        alike = alike if len(alike) else stay
        far = np.abs(place[alike] - place[i]).sum(axis=1)
        out[k] = ideal[i] / np.median(share[alike]), ideal[i] / share[alike[np.argmin(far)]]
    return out


def lacks(rows: pandas.DataFrame, asked: Sequence[Timed], split: str) -> dict[str, np.ndarray]:
    """[N] by cause of a width: what the rows that are not held out know nothing of."""
    names = {
        "model": np.array([one.model.name for one in asked]),
        "device": np.array(rows.device),
        "framework": np.array([one.laboratory for one in asked]),
    }
    found = {cause: np.zeros(len(asked)) for cause in PRIOR} | {"layout": np.ones(len(asked))}
    found["experts"] += [one.model.is_mixture for one in asked]
    for held in folds(groups(rows, asked, split)):
        for cause, name in names.items():
            found[cause][held] = ~np.isin(name[held], np.delete(name, held))
    return found


def errors(rows: pandas.DataFrame, asked: Sequence[Timed], split: str, predicted: np.ndarray) -> spread.Errors:
    """Of a split; every part that was held out together is a source."""
    source = np.empty(len(asked), dtype=object)
    for k, held in enumerate(folds(groups(rows, asked, split))):
        source[held] = f"{split}:{k}"
    residual = np.log([one.seconds for one in asked]) - np.log(predicted)
    return spread.Errors.of(residual, lacks(rows, asked, split), source)


def fitted_widths(parts: Sequence[spread.Errors]) -> Spread:
    """How wide a step's time is, from errors of all splits."""
    return spread.fit(spread.Errors.joined(parts), PRIOR, few=True)


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade all splits, with baselines on the same rows. Raises FileError."""
    table = load(folder)
    rows, asked, refused = steps(table)
    corpus = {"rows": len(table), "steps": len(rows), "steps_not_asked": len(refused)}
    corpus |= {"models": len({one.model.name for one in asked}), "devices": rows.device.nunique()}
    section = Section("llm_training", "Training of language models on many devices", _INTRO, corpus)
    measured = np.array([one.seconds for one in asked])
    found = {split: held_out(rows, asked, split) for split in _AIMS}
    every, by = np.arange(len(asked)), groups(rows, asked, "laboratory")
    known = {split: (errors(rows, asked, split, found[split][:, 0]), every) for split in _AIMS}
    metric = "step s"
    for split, aim in _AIMS.items():
        predicted, share, nearest = found[split].T
        bounds = spread.graded(known, [], split, len(asked), fitted_widths, {})
        low, high = (predicted * np.exp(bound) for bound in bounds)
        section.add(metric, split, "perfpass", "all", predicted, measured, low, high, aim_pct=aim)
        section.add(metric, split, "a share of the peak", "all", share, measured)
        section.add(metric, split, "nearest row, scaled", "all", nearest, measured)
        for name in np.unique(by):
            here = by == name
            section.add(metric, split, "perfpass", str(name), predicted[here], measured[here], low[here], high[here])
        cases = (rows.model + ", " + rows.device + ", " + rows.n_devices.astype(str)).tolist()
        section.add_worst_cases(metric, "s", split, cases, predicted, measured)
        _grade_scaling(section, split, rows, by, predicted, measured)
        if split == "laboratory":
            section.add_points(metric, "s", split, by.tolist(), predicted, measured)
    section.tables.append(_not_asked("Peak memory not asked", memory.grade(section, table, _MEMORY_AIM)))
    section.tables.append(_not_asked("Steps outside not asked", elsewhere.grade(section, table)))
    section.tables.append(_not_asked("Steps not asked", refused))
    fitted, factors = fit(asked, shares(rows))
    before = np.exp(start())
    shown = tuple((n, float(b), float(getattr(fitted, n))) for n, b in zip(NAMES, before, strict=True))
    section.tables.append(Table("Constants of a step", ("constant", "before", "fitted"), shown))
    section.tables.append(Table("Measured time over that", ("laboratory", "factor"), tuple(factors.items())))
    return section


def _not_asked(title: str, why: Sequence[str]) -> Table:
    """Why rows are not asked, and how many."""
    counted = sorted(Counter(why).items(), key=lambda item: (-item[1], item[0]))
    return Table(title, ("why", "rows"), tuple(counted))


def _grade_scaling(
    section: Section, split: str, rows: pandas.DataFrame, laboratory: np.ndarray, predicted: np.ndarray,
    measured: np.ndarray,
) -> None:  # fmt: skip
    """Rate of a device among many over that among the fewest, of runs alike on eightfold devices or more."""
    each = rows.batch / rows.n_devices  # sequences of a device in a step
    ours = rows.assign(laboratory=laboratory, predicted=each / predicted, measured=each / measured)
    found: dict[str, list[np.ndarray]] = {}
    for key, alike in ours.groupby(["laboratory", *_ALIKE]):
        fewest = alike.n_devices.min()
        first = alike[alike.n_devices == fewest][["predicted", "measured"]].mean()
        for count, more in alike[alike.n_devices >= 8 * fewest].groupby("n_devices"):
            kept = (more[["predicted", "measured"]].mean() / first).to_numpy()
            for name in (str(key[0]), f"{key[0]}, {int(fewest)} to {int(count)}"):
                found.setdefault(name, []).append(kept)
    for name, pairs in found.items():
        if len(pairs) < _FEWEST:
            continue
        ratio, truth = np.array(pairs).T
        section.add("scaling", split, "perfpass", name, ratio, truth, aim_pct=10.0)


def widths(table: pandas.DataFrame) -> tuple[Constants, dict[str, float], Spread]:
    """What ships: constants, factors of laboratories, and how wide a step's time is."""
    rows, asked, _ = steps(table)
    parts = [errors(rows, asked, split, held_out(rows, asked, split)[:, 0]) for split in _AIMS]
    return *fit(asked, shares(rows)), fitted_widths(parts)
