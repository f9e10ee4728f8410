"""Inference that no record of the corpus has: other laboratories, domains, devices and slices, answered as for a user.

What the shipped predictor is off there makes the widths of its intervals (perfpass.training.spread), each source left
out in turn. Nothing of it trains a tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import Device, device
from perfpass.errors import DeviceError
from perfpass.features import Tables
from perfpass.graph.table import OperatorColumns
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.way import Way
from perfpass.training.spread import Errors

# A laboratory counts once for each domain that it measured.
VISION, SEARCH = "vision", "search spaces"


@dataclass(frozen=True, eq=False)
class Question:
    """What one record asks: a counted network at a batch size, how it ran, and the seconds that were measured."""

    source: str
    domain: str
    network: str
    table: OperatorColumns
    batch: int
    way: Way
    measured_s: float


@dataclass(frozen=True, eq=False)
class Answers:
    """N questions (``rows``: source, domain, network, device, precision, runtime, batch), seconds and lacks [N, CAUSES].

    ``low_s`` and ``high_s``: the shipped bounds, which have seen these errors.
    """

    rows: Any
    measured_s: np.ndarray
    predicted_s: np.ndarray
    low_s: np.ndarray
    high_s: np.ndarray
    lacks: np.ndarray
    level: np.ndarray

    def take(self, kept: np.ndarray) -> Answers:
        """Some of them."""
        arrays = (getattr(self, f.name)[kept] for f in fields(self) if f.name != "rows")
        return Answers(self.rows[kept].reset_index(drop=True), *arrays)

    def of_kind(self, kind: str) -> Answers:
        """Those on one kind of device."""
        kinds = {name: device(name).kind for name in self.rows.device.unique()}
        return self.take(self.rows.device.map(kinds).to_numpy() == kind)

    def without(self, source: str) -> Answers:
        """Those of other sources."""
        return self.take(self.rows.source.to_numpy() != source)

    @property
    def errors(self) -> Errors:
        """For the fit of widths: sources are left out whole, and count once for each of their domains."""
        from perfpass.predictors.learned.ratio_trees import CAUSES

        residual = np.log(self.measured_s / self.predicted_s)
        names = ("source:" + self.rows.source + "/" + self.rows.domain).to_numpy(dtype=object)
        return Errors(CAUSES, residual, self.lacks, names)


def shipped_answers(folder: Path | str | None = None) -> Answers:
    """What the shipped predictor says of every question. Raises FileError, FormatError."""
    return answered(questions(Path(folder) if folder else None), InferencePredictor.load())


def answered(asked: Iterator[Question], predictor: InferencePredictor) -> Answers:
    """What a predictor says of each."""
    import pandas

    rows, values, lacks = [], [], []
    for q in asked:
        columns, _ = predictor.columns_of(runs_of(q), q.way)[:2]
        seconds = predictor.latency_s(columns)
        rows.append((q.source, q.domain, q.network, q.way.device.id, q.way.precision, q.way.runtime, q.batch))
        values.append((q.measured_s, *(float(v[0]) for v in (seconds.median, seconds.low, seconds.high)), columns["level"][0]))
        lacks.append(columns["lacks"][0])
    names = ["source", "domain", "network", "device", "precision", "runtime", "batch"]
    measured, predicted, low, high, level = np.array(values, dtype=np.float64).reshape(-1, 5).T
    return Answers(pandas.DataFrame(rows, columns=names), measured, predicted, low, high, np.array(lacks), level)


def runs_of(question: Question) -> Any:
    """Its time alone: no memory is planned."""
    from perfpass.predictors.estimate import Runs

    return Runs(Tables.one(question.table), np.array([question.batch]), *(np.zeros(1) for _ in range(7)))


def questions(folder: Path | None = None) -> Iterator[Question]:
    """Every record of inference outside the corpus whose network is known. Raises FileError, FormatError."""
    yield from _slices(folder)
    yield from _search_spaces(folder)


def _slices(folder: Path | None) -> Iterator[Question]:
    """ParvaGPU: one process in a slice of an A100, or in the whole."""
    from perfpass.training.mig import dataset

    for row, table, way in dataset.questions(folder):
        if row.processes == 1:
            yield Question("parvagpu", VISION if row.model != dataset.LANGUAGE_MODEL else "language", row.model, table, int(row.batch), way, row.latency_ms * 1e-3)


def _search_spaces(folder: Path | None) -> Iterator[Question]:
    """HELP: cells of NAS-Bench-201 and FBNet networks on boards and processors of the catalogue."""
    from perfpass.records import nas_graphs, schema
    from perfpass.records.location import data_directory

    rows = schema.read((folder or data_directory()) / "records" / "nas.parquet", "nas")
    counted: dict[Any, OperatorColumns] = {}
    for row in rows.itertuples():
        found = _listed(str(row.device))
        if found is None:
            continue
        key = (row.space, row.architecture, int(row.batch))
        if key not in counted:
            from perfpass import features
            from perfpass.graph import costs

            graph = nas_graphs.graph(row.space, tuple(row.architecture.split(",")), int(row.batch), optimised=False)
            counted[key] = features.operator_table(graph, costs.count(graph))
        runtime = "torch" if found.kind == "gpu" else "torch.compile"
        yield Question("help", SEARCH, row.architecture, counted[key], int(row.batch), Way(found, "fp32", runtime), row.latency_ms * 1e-3)


def _listed(name: str) -> Device | None:
    try:
        return device(name)
    except DeviceError:
        return None


def grade(section: Section, answers: Answers, parts: Callable[..., list[Errors]]) -> None:
    """A line for every source and domain, with bounds from all ``parts`` but that source; and by level of support."""
    low, high = np.empty(len(answers.rows)), np.empty(len(answers.rows))
    kinds = {name: device(name).kind for name in answers.rows.device.unique()}
    side = answers.rows.device.map(kinds).to_numpy()
    for source in sorted(answers.rows.source.unique()):
        for kind in np.unique(side[answers.rows.source == source]):
            inside = np.flatnonzero((answers.rows.source == source).to_numpy() & (side == kind))
            low[inside], high[inside] = time_widths.bounds(parts(str(kind), source=source), answers.take_rows(inside).errors)
    at, measured = 1e3 * answers.predicted_s, 1e3 * answers.measured_s
    shown = {f"{s}, {d}": (answers.rows.source == s) & (answers.rows.domain == d) for s, d in _pairs(answers.rows)}
    for name, of in shown.items():
        m = of.to_numpy()
        section.add(METRIC, "source", "perfpass", name, at[m], measured[m], at[m] * np.exp(low[m]), at[m] * np.exp(high[m]))
