"""Memory of training steps by the plan of their graph, at laboratories of which each is left out in turn.

Live tensors of openmmlab's segmentation and of torchtune's Llama, and what milabench's steps have in use (NVML, AMD
SMI). The plan has no constant of theirs; what is fitted is how wide an interval is (`perfpass.training.spread`), with
2 in 100 above it: too little memory is a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from perfpass.devices import device
from perfpass.graph.table import Tables
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.memory import step
from perfpass.predictors.memory.allocation import convolutional
from perfpass.predictors.memory.allowance import driver_bytes
from perfpass.predictors.way import Way
from perfpass.predictors.workload import PRECISIONS
from perfpass.records import tables
from perfpass.records.location import data_directory
from perfpass.training import spread
from perfpass.training.memory import measured_runs, ran_steps, runs
from perfpass.training.memory.fit import HIGH, LOW
from perfpass.training.section import Section
from perfpass.training.spread import Errors

_FIGURES = ("memory alive, training step (MiB)", "memory in use, training step (MiB)")
_MIB = 2.0**20
_FLOAT_BYTES = 4.0
_LINE = 3  # rows that a line of the table needs
# Where few laboratories stand behind a width: a tenth by which programs differ; the largest of the simulated
# allocator's slacks over the middle one (`step.SLACK`); the spread of contexts that inference has; all of what else may
# be kept (gradients once more, every activation's workspace or normalization once more).
_PRIOR = {
    "laboratory": 0.1,
    "allocator": 0.17,
    "context": 0.85,
    "gradients": 1.0,
    "workspaces": 1.0,
    "normalizations": 1.0,
}
_TAILS = (LOW, 1.0 - HIGH)
# Of 2021: before 2.0, PyTorch's zero_grad filled gradients with zeros and kept them.
_ZEROED = ("openmmlab",)


@dataclass(frozen=True, eq=False)
class MeasuredSteps:
    """[N] steps that their laboratory's constants had no part in: errors with lacks, bytes, and what a line is of."""

    errors: Errors
    measured: np.ndarray
    median: np.ndarray
    alive: np.ndarray
    in_use: np.ndarray
    judged_on: np.ndarray


@dataclass(frozen=True)
class _Row:
    source: str
    judged_on: str
    measured: float
    median: float
    alive: float
    in_use: bool
    lacks: dict[str, float]


def _row(
    laboratory: str, way: Way, columns: dict[str, float], measured: float, beside: float | None, known: float = 0.0
) -> _Row:
    """``beside``: context and all else outside the allocator, None for live tensors; ``known``: what the program is
    known to hold on top.
    """
    arrays = {name: np.array([value]) for name, value in (columns | {"folded": 0.0}).items()}
    found = step.planned(arrays, way)
    if laboratory in _ZEROED:
        found = replace(found, alive=found.alive + found.earlier, earlier=np.zeros(1))
    alive = found.alive + known
    median = alive if beside is None else step.SLACK * alive + beside + step.left_by_workspaces(arrays, way)
    lacks = step.lacks(arrays, found, way, None if beside is None else median)
    vendor = way.device.vendor
    kind = "convolutions" if columns["convolutional"] else "matrix products"
    judged_on = f"torch, {laboratory}"
    if beside is not None:
        judged_on += f", {vendor}" if vendor == "NVIDIA" else f", {vendor}, {kind}"
    return _Row(
        f"source:{laboratory}/{vendor} {kind}",
        judged_on,
        measured,
        float(median[0]),
        float(alive[0]),
        beside is not None,
        {name: float(value[0]) for name, value in lacks.items()},
    )


def _alive(root: Path) -> Iterator[_Row]:
    table = measured_runs.read(root / "graphs" / measured_runs.FILE)
    for row in table[table["mode"] == "training"].itertuples():
        columns = {
            name: float(getattr(row, name))
            for name in ("parameters", "weight_bytes", "backward_bytes", "gradient_bytes")
        } | {"convolutional": float(row.convolutions)}
        way = Way(device(row.device), row.precision, optimizer=row.optimizer)
        # Several devices hold fp32 gradients a second time for their collectives.
        again = _FLOAT_BYTES * row.parameters * (row.n_devices > 1)
        yield _row(row.source, way, columns, row.alive, None, again + row.workspace_bytes)


def _in_use(root: Path) -> Iterator[_Row]:
    """Milabench's, with the context that laboratories of inference measured."""
    measured = runs.load(root)
    beside = runs.fit(measured.take(measured.group == "torch")).beside[1]
    planned, known = ran_steps.load(root), tables.load(root / "graphs", "outside")
    for row in ran_steps.benchmarks(root).itertuples():
        source, network, size = row.key
        backward, gradients = planned[source, network, size, int(row.batch), ran_steps.type_of(row.precision)]
        on, wide = device(row.device), PRECISIONS[row.precision][0] == "float32"
        table = known.table(source, network, size, int(row.batch), 32 if wide else 16)
        columns = {
            "parameters": table.statics["parameters"],
            "weight_bytes": table.statics["weight_bytes"],
            "backward_bytes": backward,
            "gradient_bytes": gradients,
            "convolutional": float(convolutional(Tables.one(table))[0]),
        }
        way = Way(on, row.precision, optimizer=row.taken)
        yield _row("milabench", way, columns, row.peak_memory_bytes, beside + driver_bytes(on))


def load(folder: Path | None = None) -> MeasuredSteps:
    """All rows. Raises FileError and FormatError."""
    root = Path(folder) if folder else data_directory()
    rows = [*_alive(root), *_in_use(root)]
    measured, median, alive = (np.array([getattr(r, n) for r in rows]) for n in ("measured", "median", "alive"))
    lacks = {cause: np.array([row.lacks[cause] for row in rows]) for cause in step.CAUSES}
    return MeasuredSteps(
        Errors.of(np.log(measured / median), lacks, np.array([row.source for row in rows], dtype=object)),
        measured,
        median,
        alive,
        np.array([row.in_use for row in rows]),
        np.array([row.judged_on for row in rows]),
    )


def fit(rows: MeasuredSteps) -> Spread:
    """The widths that ship."""
    return spread.fit(rows.errors, _PRIOR, _TAILS, few=True)


def left_out(rows: MeasuredSteps) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of every laboratory, by the others alone."""
    return spread.left_out(rows.errors, _PRIOR, _TAILS, few=True)


def add(section: Section, folder: Path | None = None) -> None:
    """A line and a note for every laboratory and kind, and the nearest of the others beside it."""
    rows = load(folder)
    low, high = left_out(rows)
    copied = _copied(rows)
    for judged_on in map(str, dict.fromkeys(rows.judged_on.tolist())):
        here = rows.judged_on == judged_on
        metric = _FIGURES[int(rows.in_use[here][0])]
        median, measured = rows.median[here] / _MIB, rows.measured[here] / _MIB
        bounds = (median * np.exp(low[here]), median * np.exp(high[here]))
        if len(measured) >= _LINE:
            section.add(metric, "source", "perfpass", judged_on, median, measured, *bounds)
            section.add(metric, "source", "nearest, copied and scaled", judged_on, copied[here] / _MIB, measured)
        else:
            told = "; ".join(f"{p:,.0f} for {m:,.0f}" for p, m in zip(median, measured, strict=True))
            section.notes.append(f"{metric}, {judged_on}, predicted for measured: {told}.")
        section.notes.append(
            f"{metric}, {judged_on}, source left out: {100 * float(np.mean(measured > bounds[1])):.1f} % of "
            f"{len(measured)} rows above the bound, the bound {float(np.median(bounds[1] / median)):.2f} of the median."
        )


def _copied(rows: MeasuredSteps) -> np.ndarray:
    """[N] the measurement of another laboratory's step that holds most nearly as much, scaled by what both hold."""
    laboratory = np.array([str(name).split("/", 1)[0] for name in rows.errors.source])
    size, found = np.log(rows.alive), np.empty(len(rows.alive))
    for i in range(len(found)):
        others = np.flatnonzero(laboratory != laboratory[i])
        nearest = others[np.argmin(np.abs(size[others] - size[i]))]
        found[i] = rows.measured[nearest] * rows.alive[i] / rows.alive[nearest]
    return found
