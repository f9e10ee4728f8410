"""`perfpass evaluate --area step_calibration`: training steps learned from 1 to 32 of one's own.

Every laboratory's device is predicted by what has not seen the laboratory (language models: nor, apart, the device),
then learned from some of its records and asked about the others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from perfpass.predictors.calibration import steps as learned
from perfpass.predictors.calibration.posterior import Prior
from perfpass.predictors.learned.intervals import pooled_width
from perfpass.predictors.llm_training import constants
from perfpass.predictors.llm_training.step import StepTime, timed
from perfpass.training.llm_training import memory, questions, rates
from perfpass.training.llm_training.evaluate import held_out, load
from perfpass.training.llm_training.evaluate import steps as asked_steps
from perfpass.training.section import Section, Table
from perfpass.training.training_step import outside
from perfpass.training.training_step.model import Corpus

SIZES = (1, 2, 4, 8, 16, 32)
DRAWS = 10
LEAST_ASKED = 8  # records beside those drawn; a device with fewer is left out
_INTRO = """Training steps learned from a user's own. A device of a laboratory is predicted by levels and constants that
have not seen the laboratory ("laboratory"; of language models also the device alone, "device"), then corrected by 1 to
32 of its own records, drawn at random ten times, and asked about its others; repeats of a drawn configuration are not
asked. Language models: time of a step and memory on 1 to 1,024 devices. Single GPUs: time, and watts where a laboratory
measured them. "mean ratio": the same records, one factor, the mean of measured over predicted. Bounds come from the
devices of other laboratories, of memory from the laboratory among these that asks for most. Every draw counts."""


@dataclass(frozen=True, eq=False)
class Unit:
    """Records of one device of one laboratory: predicted without it, measured; N each, as a calibration sees them."""

    name: str
    laboratory: str
    predicted: np.ndarray
    measured: np.ndarray
    z: np.ndarray  # [N, T]
    model: np.ndarray  # [N] names
    same: np.ndarray  # [N] equal for repeats

    @property
    def log_ratio(self) -> np.ndarray:
        """[N]"""
        return np.log(self.measured / self.predicted)


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was asked of a unit after some records: which rows, log factors by posterior and by mean, deviations."""

    asked: np.ndarray
    mean: np.ndarray
    scaled: np.ndarray
    deviation: np.ndarray
    error: np.ndarray


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade what own steps bring on every device of every laboratory. Raises FileError."""

    def say(text: str) -> None:
        if not quiet:
            print(f"evaluate step_calibration: {text}", file=sys.stderr, flush=True)

    section = Section("step_calibration", "Training steps learned from a few of one's own", _INTRO)
    bounds: list[tuple[str, str, float]] = []
    for predictor, metric, name, split, units in (*_language(folder), *_graphs(folder)):
        section.corpus[f"{name} of {predictor}, {split}"] = sum(len(u.measured) for u in units)
        prior = learned.prior_of(predictor, metric)
        drawn = {u.name: {s: list(draws(u, prior, s, seed)) for s in sizes_of(u)} for u in units}
        planned = metric == "memory_bytes"
        _grade(section, f"{predictor}: {name}", split, units, drawn, planned=planned)
        bounds.append((f"{predictor}, {metric}", split, bound_of(units, drawn, planned=planned)))
        say(f"{predictor} {name} {split}")
    section.tables.append(Table("Deviations that hold 90 %", ("figure", "held out", "bound"), tuple(bounds)))
    return section


def sizes_of(unit: Unit) -> tuple[int, ...]:
    """So many records of a unit can be drawn."""
    return tuple(s for s in SIZES if len(unit.measured) >= s + LEAST_ASKED)


def draws(unit: Unit, prior: Prior, size: int, seed: int) -> Iterator[Drawn]:
    """Learned from ``size`` records at random, asked about all that repeat none of them."""
    ratio = unit.log_ratio
    for one in range(DRAWS):
        order = np.random.default_rng(1000 * (seed + 1) + one).permutation(len(ratio))
        seen = order[:size]
        asked = order[size:][~np.isin(unit.same[order[size:]], unit.same[seen])]
        if not len(asked):
            continue
        found = learned.learned_from(prior, unit.z[seen], unit.model[seen], ratio[seen])
        mean, deviation = found.predict(unit.z[asked], unit.model[asked])
        scaled = np.full(len(asked), np.log(np.mean(np.exp(ratio[seen]))))
        yield Drawn(asked, mean, scaled, deviation, ratio[asked] - mean)


def bound_of(units: Sequence[Unit], drawn: dict[str, dict[int, list[Drawn]]], *, planned: bool = False) -> float:
    """Deviations that hold nine in ten errors, of every device and size alike.

    ``planned``: of what is planned for, as memory, which is a crash where it runs out: the most that a laboratory
    asks by itself, since one is off as a whole, and rows of one vouch for no other.
    """
    if planned:
        every = {u.laboratory for u in units}
        return max(bound_of([u for u in units if u.laboratory == one], drawn) for one in every)
    groups = [
        np.concatenate([d.error / d.deviation for d in found])
        for u in units
        for found in drawn[u.name].values()
        if found
    ]
    return pooled_width(groups) if groups else float("nan")


def _grade(
    section: Section, metric: str, split: str, units: Sequence[Unit], drawn: dict[str, dict[int, list[Drawn]]], *,
    planned: bool,
) -> None:  # fmt: skip
    whole = [(u.predicted, u.measured) for u in units]
    section.add(
        metric, f"{split}: none", "perfpass", "all", *(np.concatenate(side) for side in zip(*whole, strict=True))
    )
    bound = {}
    for laboratory in {u.laboratory for u in units}:
        others = [u for u in units if u.laboratory != laboratory]
        bound[laboratory] = bound_of(others or units, drawn, planned=planned)
    for size in SIZES:
        parts = [(u, d) for u in units for d in drawn[u.name].get(size, ())]
        if parts:
            _lines(section, metric, f"{split}: {size} own", "all", parts, bound)
        for laboratory in dict.fromkeys(u.laboratory for u, _ in parts):
            own = [(u, d) for u, d in parts if u.laboratory == laboratory]
            _lines(section, metric, f"{split}: {size} own", laboratory, own, bound)


def _lines(
    section: Section, metric: str, split: str, judged: str, parts: Sequence[tuple[Unit, Drawn]], bound: dict[str, float]
) -> None:
    measured = np.concatenate([u.measured[d.asked] for u, d in parts])
    before = np.concatenate([u.predicted[d.asked] for u, d in parts])
    half = np.concatenate([bound[u.laboratory] * d.deviation for u, d in parts])
    at = before * np.exp(np.concatenate([d.mean for _, d in parts]))
    section.add(metric, split, "perfpass", judged, at, measured, at * np.exp(-half), at * np.exp(half))
    scaled = before * np.exp(np.concatenate([d.scaled for _, d in parts]))
    section.add(metric, split, "mean ratio", judged, scaled, measured)
    section.add(metric, split, "without them", judged, before, measured)


Graded = tuple[str, str, str, str, list[Unit]]


def _language(folder: str | None) -> Iterator[Graded]:
    """Steps and memory of language models on many devices."""
    table = load(folder)
    rows, asked, _ = asked_steps(table)
    work = rates.stacked(asked)
    parts = timed(work, constants.STEP)
    columns = {f.name: np.broadcast_to(np.asarray(getattr(parts, f.name)), len(asked)) for f in fields(StepTime)}
    shares = [learned.shares_of({name: float(v[i]) for name, v in columns.items()}) for i in range(len(asked))]
    laboratory = np.array([one.laboratory for one in asked])
    model = np.array([f"{one.model.name} {p}" for one, p in zip(asked, rows.precision, strict=True)])
    measured, same = np.array([one.seconds for one in asked]), rows.configuration.to_numpy(dtype=str)
    for split in ("device", "laboratory"):
        predicted = held_out(rows, asked, split)[:, 0]
        device = rows.device.to_numpy(dtype=str)
        yield (
            *("llm_training", "step_s", "step s", split),
            _units(laboratory, device, predicted, measured, shares, model, same),
        )
    rows, counted, known, _ = memory.rows(table)
    found, _ = questions.asked(table[table.peak_memory_bytes.notna()])
    held = [learned.shares_of({f.name: float(getattr(q.memory, f.name)) for f in fields(q.memory)}) for q in found if q]
    at = np.flatnonzero(known)
    source = rows.source.to_numpy(dtype=str)[at]
    # As of a framework that was not measured.
    expected = constants.MEMORY["other"].of(counted[at])[1]
    gib = 2.0**30
    yield (
        *("llm_training", "memory_bytes", "memory GiB", "laboratory"),
        _units(
            source,
            rows.device.to_numpy(dtype=str)[at],
            expected / gib,
            rows.peak_memory_bytes.to_numpy()[at] / gib,
            [held[i] for i in at],
            rows.model.to_numpy(dtype=str)[at],
            rows.configuration.to_numpy(dtype=str)[at],
        ),
    )


def _graphs(folder: str | None) -> Iterator[Graded]:
    """Steps of other laboratories on one GPU: milliseconds and watts."""
    corpus = Corpus.load(folder)
    parts = outside.outside(corpus)
    for metric, name, measured, predicted in (
        ("step_s", "step ms", "measured", "predicted"),
        ("power_w", "power W", "measured_w", "predicted_w"),
    ):
        units: list[Unit] = []
        for part in parts:
            rows = part.rows[part.rows[measured].notna()]
            if not len(rows):
                continue
            same = (rows.model.astype(str) + " " + rows.batch.astype(str)).to_numpy(dtype=str)
            units += _units(
                np.full(len(rows), part.source),
                rows.device.to_numpy(dtype=str),
                rows[predicted].to_numpy(np.float64),
                rows[measured].to_numpy(np.float64),
                [learned.shares_of(one) for one in rows.shares],
                rows.model.to_numpy(dtype=str),
                same,
            )
        yield "training_step", metric, name, "laboratory", units


def _units(
    laboratory: np.ndarray,
    device: np.ndarray,
    predicted: np.ndarray,
    measured: np.ndarray,
    shares: Sequence[dict[str, float]],
    model: np.ndarray,
    same: np.ndarray,
) -> list[Unit]:
    names = tuple(sorted({name for one in shares for name in one}))
    z = learned.traits(names, shares)
    out = []
    for lab, board in sorted(set(zip(laboratory.tolist(), device.tolist(), strict=True))):
        at = np.flatnonzero((laboratory == lab) & (device == board))
        if len(at) >= SIZES[0] + LEAST_ASKED:
            out.append(
                Unit(f"{lab}, {board}", lab, predicted[at], measured[at], z[at], model[at].astype(object), same[at])
            )
    return out
