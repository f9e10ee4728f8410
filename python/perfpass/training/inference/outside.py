"""Inference that no record of the corpus has: other laboratories, domains, devices and slices, answered as for a user.

What the shipped predictor is off there makes the widths of its intervals (perfpass.training.time_widths), each source
left out in turn. Nothing of it trains a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from perfpass import features
from perfpass.devices import Device, device
from perfpass.errors import DeviceError
from perfpass.features import Tables
from perfpass.graph import costs
from perfpass.graph.table import OperatorColumns
from perfpass.prediction import SUPPORT_LEVELS
from perfpass.predictors.estimate import Runs, width_level
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.learned.time_lacks import CAUSES
from perfpass.predictors.way import Way
from perfpass.records import nas_graphs, schema
from perfpass.records.location import data_directory
from perfpass.training.inference import calibrate, operators
from perfpass.training.mig import dataset as mig
from perfpass.training.section import Section
from perfpass.training.spread import Errors
from perfpass.training.tasks import named

METRIC = "latency ms"
_PEAK = "FLOPs at the peak"
_COLUMNS = ("source", "domain", "device", "software_year")
# Records of PyTorch itself; another framework's time is another question, and so is one with a server's round trip in
# it, or with what is around a network (CodeCarbon's pipelines).
TORCH = ("torch", "torchscript", "torch.compile")
_PIPELINES = ("co2_inference",)


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
    """N questions: seconds measured, predicted and of the FLOPs at the peak, lacks [N, CAUSES], and ``level`` [N].

    ``level`` indexes SUPPORT_LEVELS.
    ``rows``: source, domain, device, software_year (-1 where it is not stated).
    """

    rows: Any
    measured_s: np.ndarray
    predicted_s: np.ndarray
    peak_s: np.ndarray
    lacks: np.ndarray
    level: np.ndarray

    def take(self, kept: np.ndarray) -> Answers:
        """Some of them."""
        arrays = (getattr(self, f.name)[kept] for f in fields(self) if f.name != "rows")
        return Answers(self.rows.iloc[kept].reset_index(drop=True), *arrays)

    @property
    def kind(self) -> np.ndarray:
        """[N] of the device."""
        kinds = {name: device(name).kind for name in self.rows.device.unique()}
        return np.asarray(self.rows.device.map(kinds).to_numpy(), dtype=str)

    @property
    def errors(self) -> Errors:
        """For the fit of widths: sources are left out whole, their domains are parts."""
        names = ("source:" + self.rows.source + "/" + self.rows.domain).to_numpy(dtype=object)
        return Errors(CAUSES, np.log(self.measured_s / self.predicted_s), self.lacks, names)

    @classmethod
    def joined(cls, parts: Sequence[Answers]) -> Answers:
        """All parts in a row."""
        import pandas

        arrays = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls) if f.name != "rows")
        return cls(pandas.concat([p.rows for p in parts], ignore_index=True), *arrays)


def answers(folder: Path | str | None = None, predictor: InferencePredictor | None = None) -> Answers:
    """What the shipped predictor, or ``predictor``, says of every question whose records are in ``folder``.

    Raises FileError, FormatError.
    """
    root = Path(folder) if folder else None
    asked = predictor or InferencePredictor.load()
    home = (root or data_directory()) / "records"
    found = [_each(of(root), asked) for name, of in _SOURCES.items() if (home / name).is_file()]
    if (home / "networks.parquet").is_file():
        found.append(_named(root, asked))
    return Answers.joined(found) if found else _each(iter(()), asked)


def _each(questions: Iterator[Question], predictor: InferencePredictor) -> Answers:
    import pandas

    rows, values, lacks = [], [], []
    for q in questions:
        runs = Runs(Tables.one(q.table), np.array([q.batch]), *(np.zeros(1) for _ in range(7)))  # time alone
        columns, _ = predictor.columns(runs, q.way)
        rows.append((q.source, q.domain, q.way.device.id, -1))
        peak_s = float(named.peak_s(runs.tables, q.way)[0])
        values.append((q.measured_s, float(columns["median_s"][0]), peak_s, columns["level"][0]))
        lacks.append(columns["lacks"][0])
    measured, predicted, peak, level = np.array(values, dtype=np.float64).reshape(-1, 4).T
    frame = pandas.DataFrame(rows, columns=list(_COLUMNS))
    return Answers(frame, measured, predicted, peak, np.array(lacks).reshape(-1, len(CAUSES)), level.astype(int))


def _named(folder: Path | None, predictor: InferencePredictor) -> Answers:
    """Networks of other laboratories in PyTorch, by name."""
    rows, _ = named.residuals(folder, operators.left_out(folder, predictor), "inference")
    kept = (rows.predictor == predictor.name) & ~rows.above_peak
    rows = rows[kept & named.of_the_runtime(rows) & rows.runtime.isin(TORCH) & ~rows.source.isin(_PIPELINES)]
    return Answers(
        rows[list(_COLUMNS)].reset_index(drop=True),
        rows.measured_s.to_numpy(np.float64),
        rows.median_s.to_numpy(np.float64),
        rows.roofline_s.to_numpy(np.float64),
        np.stack(rows.lacks.tolist()),
        np.array([SUPPORT_LEVELS.index(level) for level in rows.level]),
    )


def _slices(folder: Path | None) -> Iterator[Question]:
    """ParvaGPU: one process in a slice of an A100, or in the whole.

    BERT is left out: its products ran in TF32, which a user asks of another predictor.
    """
    for row, table, way in mig.questions(folder):
        if row.processes == 1 and row.model != mig.LANGUAGE_MODEL:
            yield Question("parvagpu", "vision", row.model, table, int(row.batch), way, row.latency_ms * 1e-3)


def _search_spaces(folder: Path | None) -> Iterator[Question]:
    """HELP: cells of NAS-Bench-201 and FBNet networks on the GPUs of the catalogue.

    Its processors are left out: small networks at batch 1 in eager PyTorch are bound by an interpreter that no record
    of a processor has.
    """
    rows = schema.read((folder or data_directory()) / "records" / "nas.parquet", "nas")
    counted: dict[Any, OperatorColumns] = {}
    for row in rows.itertuples():
        found = _gpu(str(row.device))
        if found is None:
            continue
        key = (row.space, row.architecture, int(row.batch))
        if key not in counted:
            graph = nas_graphs.graph(row.space, tuple(row.architecture.split(",")), int(row.batch), optimised=False)
            counted[key] = features.operator_table(graph, costs.count(graph))
        way = Way(found, "fp32")
        yield Question(
            "help", "search spaces", row.architecture, counted[key], int(row.batch), way, row.latency_ms * 1e-3
        )


_SOURCES: dict[str, Callable[[Path | None], Iterator[Question]]] = {
    "mig.parquet": _slices,
    "nas.parquet": _search_spaces,
}


def _gpu(name: str) -> Device | None:
    try:
        found = device(name)
    except DeviceError:
        return None
    return found if found.kind == "gpu" else None


def grade(section: Section, found: Answers, parts: Callable[[str, str], list[Errors]]) -> None:
    """Lines by source and domain, and by level of support; bounds from ``parts`` (of a kind, without a source)."""
    low, high = np.empty(len(found.rows)), np.empty(len(found.rows))
    kind, source, domain = found.kind, found.rows.source.to_numpy(dtype=str), found.rows.domain.to_numpy(dtype=str)
    for name, of in sorted(set(zip(source, kind, strict=True))):
        inside = np.flatnonzero((source == name) & (kind == of))
        low[inside], high[inside] = calibrate.bounds(parts(of, name), found.take(inside).errors)
    at, measured = 1e3 * found.predicted_s, 1e3 * found.measured_s
    level = np.array(SUPPORT_LEVELS)[np.maximum(found.level, width_level(np.exp(high), np.exp(low)))]
    lines = {"all": np.ones(len(at), dtype=bool)}
    lines |= {f"support {name}": level == name for name in SUPPORT_LEVELS}
    lines |= {f"{s}, {d}": (source == s) & (domain == d) for s, d in sorted(set(zip(source, domain, strict=True)))}
    year = found.rows.software_year.to_numpy()
    lines |= {f"software of {y}": year == y for y in sorted(set(year[year > 0]))}
    for name, m in lines.items():
        if m.any():
            bounds = at[m] * np.exp(low[m]), at[m] * np.exp(high[m])
            section.add(METRIC, "source", "perfpass", name, at[m], measured[m], *bounds)
            section.add(METRIC, "source", _PEAK, name, 1e3 * found.peak_s[m], measured[m])
