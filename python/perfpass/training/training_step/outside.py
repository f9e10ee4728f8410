"""Steps that no split contains, as predicted for any caller: zero-shot, and after one factor.

Levels of operators have not seen the laboratory that asks, nor, on our own CPU, the network. Where a source measured
power, watts and joules are graded too, each board's by a constant of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfpass.features import Tables
from perfpass.graph import OPERATOR_CLASSES
from perfpass.predictors.estimate import STEP_WATTS_FALL, Bounds, energy_j, shares
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.learned.time_lacks import CAUSES
from perfpass.predictors.training_step.operators import StepTimes
from perfpass.predictors.training_step.predictor import StepPredictor
from perfpass.training import spread, time_widths
from perfpass.training.section import Section
from perfpass.training.spread import Errors
from perfpass.training.training_step import operators, power, widths
from perfpass.training.training_step.model import Corpus
from perfpass.training.training_step.questions import OTHER_FRAMEWORKS, OWN, Question

METRIC = "step ms"
# Metric -> the columns of measured and predicted, and of its bounds.
METRICS = {
    METRIC: ("measured", "predicted", "low", "high"),
    "power W": ("measured_w", "predicted_w", "low_w", "high_w"),
    "energy J": ("measured_j", "predicted_j", "low_j", "high_j"),
}
_COLUMNS = (
    "device", "domain", "model", "batch", *(name for names in METRICS.values() for name in names), "roofline",
    "operators", "lacks", "shares", "limit_w", "compute_use", "memory_use",
)  # fmt: skip
CALIBRATION_SIZE = 10
# On CPUs no error shows what another machine is (its caches, memory and clock): by hand.
_CPU_PRIOR = {**time_widths.PRIOR, "device": 0.4}


@dataclass(frozen=True)
class Outside:
    """Rows of one source: measured, predicted and bounds [N] in ms, W and J; what each was, for groups and cases.

    ``shares``: of each step's time, by class of operator.
    """

    source: str
    rows: Any  # pandas: _COLUMNS; NaN where a source did not measure

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def every(self) -> Errors:
        """The lacks of every row, whether its time was measured or not."""
        lacks = np.stack(self.rows.lacks.tolist())
        if self.source in OTHER_FRAMEWORKS:
            lacks[:, CAUSES.index("unmeasured software")] = 1.0
        return Errors(CAUSES, np.zeros(len(self)), lacks, np.full(len(self), self.source))

    @property
    def errors(self) -> Errors:
        """Of the time, for the fit of widths: the laboratory is left out whole, its devices are parts.

        Of our own CPU, where every row is of one laboratory, a network is left out whole.
        """
        known = self.rows[self.rows.measured.notna()]
        names = f"source:{self.source}/" + known.device.astype(str)
        if self.source == OWN:
            names = "network:" + known.model.astype(str)
        residual = np.log(known.measured / known.predicted).to_numpy(np.float64)
        return Errors(CAUSES, residual, np.stack(known.lacks.tolist()), names.to_numpy(dtype=object))


def of_gpus(found: list[Outside]) -> list[Errors]:
    """What other laboratories show of PyTorch on GPUs; another framework's time is another question."""
    return [p.errors for p in found if len(p) and p.source not in (*OTHER_FRAMEWORKS, OWN)]


def of_cpus(found: list[Outside]) -> Spread:
    """The widths on CPUs."""
    own = [part.errors for part in found if part.source == OWN and len(part)]
    return spread.fit(own[0], _CPU_PRIOR) if own else time_widths.fit([])


def outside(corpus: Corpus, predictor: StepPredictor | None = None) -> list[Outside]:
    """Every question, by the shipped predictor or ``predictor``, but for levels that have not seen what is asked."""
    return [of_source(corpus, name, predictor) for name in dict.fromkeys(q.source for q in corpus.questions)]


def of_source(corpus: Corpus, source: str, predictor: StepPredictor | None = None) -> Outside:
    """The questions of one source, in their order (of our own CPU: by network), by levels that have not seen it."""
    import pandas

    asked = predictor or StepPredictor.load()
    own = [q for q in corpus.questions if q.source == source]
    rows = [_row(q, asked.priced(times)) for times, part in _times(corpus, source, own) for q in part]
    return Outside(source, pandas.DataFrame(rows, columns=list(_COLUMNS)))


def of_power(found: list[Outside]) -> Any:
    """Rows whose watts were measured (pandas)."""
    import pandas

    return pandas.concat([part.rows[part.rows.measured_w.notna()] for part in found if len(part)], ignore_index=True)


def drawn(rows: Any) -> Any:
    """The rows with watts, and the joules of them, by the other boards of those whose watts were measured."""
    known = rows.measured_w.notna().to_numpy()
    if rows.device[known].nunique() < 2:
        return rows
    out, watts = rows.copy(), power.held_out(rows[known])
    out.loc[known, ["predicted_w", "low_w", "high_w"]] = watts
    ms = Bounds(*(rows[name].to_numpy(np.float64)[known] for name in METRICS[METRIC][1:]))
    joules = energy_j(ms, Bounds(*watts.T), STEP_WATTS_FALL)
    out.loc[known, ["predicted_j", "low_j", "high_j"]] = np.column_stack([joules.median, joules.low, joules.high])
    return out


def _times(corpus: Corpus, source: str, asked: list[Question]) -> Iterator[tuple[StepTimes, list[Question]]]:
    """The times of operators that have not seen some questions, and these."""
    if source != OWN:
        yield corpus.times_without(source), asked
        return
    families = corpus.cpu.names.family.to_numpy(dtype=str)
    gpu = corpus.levels()
    for model in sorted({q.model for q in asked}):
        cpu = operators.fit(corpus.cpu.take(np.flatnonzero(families != model)))
        yield StepTimes(corpus.base, {"gpu": gpu, "cpu": cpu}), [q for q in asked if q.model == model]


def _row(q: Question, predictor: StepPredictor) -> tuple[Any, ...]:
    """Milliseconds, watts, joules and lacks of one step, as for any caller, but of the PyTorch that the source ran."""
    tables, batch = Tables.one(q.table), np.array([q.batch])
    columns, _, row_s, steps = predictor.columns_of(tables, batch, q.way, q.derived)
    by_class = np.bincount(np.asarray(steps.columns.op_class), weights=shares(row_s), minlength=len(OPERATOR_CLASSES))
    seconds = predictor.latency_s(columns)
    watts = predictor.power_w(columns, seconds, q.way)
    ms = Bounds(1e3 * seconds.median, 1e3 * seconds.low, 1e3 * seconds.high)
    values: list[float] = []
    for measured, bounds in (
        (1e3 * q.measured_s, ms), (q.measured_w, watts), (q.measured_j, energy_j(ms, watts, STEP_WATTS_FALL))
    ):  # fmt: skip
        values += [measured, *(float(part[0]) for part in (bounds.median, bounds.low, bounds.high))]
    roofline = 1e3 * float(np.maximum(columns["compute_s"], columns["memory_s"])[0])
    return (
        q.way.device.id, q.domain, q.model, q.batch, *values, roofline, 1e3 * float(columns["base_s"][0]),
        columns["lacks"][0], dict(zip(OPERATOR_CLASSES, by_class.tolist(), strict=True)), q.way.device.power_limit_w,
        *(float(use[0]) for use in predictor.uses(columns, seconds, q.way)),
    )  # fmt: skip


def bounded(corpus: Corpus, part: Outside, found: list[Outside], parts: list[Errors]) -> Outside:
    """The rows with bounds of their time from ``parts`` (networks and devices held out), the other sources and hosts.

    On our own CPU, from the other networks.
    """
    if part.source == OWN:
        errors = part.errors
        low, high = spread.left_out(errors, _CPU_PRIOR)
    else:
        others = [*parts, *of_gpus([p for p in found if p.source != part.source])]
        least = operators.least_widths(corpus.levels(source=part.source))
        low, high = widths.bounds(others, part.every, least)
    at = part.rows.predicted
    return replace(part, rows=drawn(part.rows.assign(low=at * np.exp(low), high=at * np.exp(high))))


def grade(section: Section, corpus: Corpus, found: list[Outside], parts: list[Errors], seed: int = 0) -> None:
    """Lines for every source and device, and for every domain: zero-shot, and after one factor.

    The factor is the median of ten records drawn; of MISO (another framework), that of the other networks, so that no
    network's own records help it.
    """
    generator = np.random.default_rng(seed)
    parted = [bounded(corpus, part, found, parts) for part in found if len(part)]
    for part in parted:
        lines = [(f"{part.source}, {name}", own) for name, own in part.rows.groupby("device")]
        if part.rows.domain.nunique() > 1:
            lines += [(f"{part.source}, {name}", own) for name, own in part.rows.groupby("domain")]
        if len(lines) > 1:
            lines.append((part.source, part.rows))
        for judged, own in lines:
            for metric, columns in METRICS.items():
                there = own[own[columns[0]].notna()]
                if len(there):
                    measured, predicted, low, high = (there[c].to_numpy() for c in columns)
                    section.add(metric, "outside", "perfpass, zero-shot", judged, predicted, measured, low, high)
            there = own[own.measured.notna()]
            for method, column in (("roofline only", "roofline"), ("operators only", "operators")):
                if len(there):
                    section.add(
                        METRIC, "outside", method, judged, there[column].to_numpy(), there.measured.to_numpy()
                    )  # fmt: skip
        for name, own in part.rows.groupby("device"):
            _scaled(section, part.source, str(name), own[own.measured.notna()], generator)


def _scaled(section: Section, source: str, name: str, own: Any, generator: np.random.Generator) -> None:
    """After one factor on the rows of a device."""
    ratio = np.log(own.measured / own.predicted).to_numpy()
    kept = np.ones(len(own), dtype=bool)
    if source in OTHER_FRAMEWORKS:
        models = own.model.to_numpy()
        factor = np.array([np.median(ratio[models != m]) if (models != m).any() else 0.0 for m in models])
        method = "perfpass, scaled by the other networks"
    else:
        drawn = generator.permutation(len(own))[:CALIBRATION_SIZE]
        kept[drawn] = False
        factor, method = np.full(len(own), np.median(ratio[drawn]) if len(own) else 0.0), "perfpass, 10 records"
    if kept.sum() >= CALIBRATION_SIZE:
        scaled = (own.predicted * np.exp(factor)).to_numpy()[kept]
        section.add(METRIC, "outside", method, f"{source}, {name}", scaled, own.measured.to_numpy()[kept])
