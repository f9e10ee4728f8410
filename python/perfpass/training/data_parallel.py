"""Grading and fit of replicas: NVIDIA's DeepLearningExamples ran networks on one V100 or A100 and on 2 to 16 of them.

A pair is such a run beside the same step on one device. Its ratio needs no prediction of the step; what the all-reduces
take does, by the bytes of the network's parameters.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.interval import COVERAGE, Interval
from perfpass.predictors.training_step import replicas
from perfpass.predictors.training_step.replicas import SHIPPED, Constants, exchange, log_ratio
from perfpass.records import named as questions
from perfpass.records import schema, tables
from perfpass.records.location import data_directory
from perfpass.training.section import Section, Table
from perfpass.training.tasks import named

if TYPE_CHECKING:
    import pandas

_RATIO, _STEP = "step on N devices over one", "step ms"
_ALL, _AIM = "all", 10.0
_SOURCE = "deeplearningexamples"
# Pre-training there adds up the gradients of many micro-batches for one exchange; how many, its tables do not say.
_ACCUMULATED = ("bert-large",)
# Parameters of networks that are not defined here or whose inputs' size is not stated, for pairs alone: 18.9 M
# (arXiv:1910.10261), 213 M (arXiv:1706.03762, table 3), 406 M (Hugging Face, facebook/bart-large).
_PARAMETERS = {"QuartzNet": 18.9e6, "Transformer": 213e6, "BART": 406e6}
_ALIKE = ["model", "network", "device", "precision", "batch", "runtime_version", "sequence", "variant",
          "throughput_unit"]  # fmt: skip
_GRADIENT_BYTES = 4  # an element: weights stay in single precision under autocast
_ONE_NODE = 8  # a DGX-2 joins 16 by NVLink
_SOFT = 0.05  # log errors beyond it count less in the fit
_INTRO = """Data-parallel training in PyTorch: DistributedDataParallel, or the older one of Apex. "ratio": a step on 2
to 16 devices over the same step on one, with the same batch on each, a network left out of the two constants and of the
bounds; BERT's and BART's pre-training, which add up gradients, and rows whose rate counts tokens of sequences of
unknown length are not asked. "step": the whole step on several devices, predicted from its graph: networks of
DeepLearningExamples, whose steps on one device taught levels of operators, and Detectron2's model zoo (8 V100, two
pictures each, with its data loading), from which nothing is learned. Bounds: 90 %. Baselines: no loss (the step on one
device), and the middle ratio of other networks at as many devices."""


def pairs(folder: str | None = None) -> pandas.DataFrame:
    """Runs on several devices whose step on one was measured, too.

    Columns: those of the records, ``step_s``, ``step_1_s``, ``ratio``, ``gradient_bytes``, ``share`` (of the
    all-reduces, over the step on one device). Raises FileError, FormatError.
    """
    rows, asked, known = _records(folder)
    rows = rows[(rows.source == _SOURCE) & ~rows.network.isin(_ACCUMULATED)].join(asked[["refused"]])
    stated = rows.model.map(_PARAMETERS)
    sized = np.where(rows.refused == "", asked.loc[rows.index, "table_size"], 1)
    # Of networks without a table a rate that counts tokens is of the batch as it stands: Transformer's is in tokens.
    own = np.where((rows.throughput_unit == "tok") & (rows.refused == ""), sized, 1)
    rows = rows.assign(step_s=_seconds(rows, own))[(rows.refused == "") | stated.notna()]
    alone = rows[rows.n_devices == 1].groupby(_ALIKE, dropna=False).step_s.mean().rename("step_1_s")
    many = rows[rows.n_devices > 1].join(alone, on=_ALIKE)
    many = many[many.step_1_s.notna()].copy()
    names = asked.loc[many.index, ["table_source", "table_model", "table_size"]].itertuples(index=False, name=None)
    many["gradient_bytes"] = [
        _GRADIENT_BYTES * (_PARAMETERS[model] if model in _PARAMETERS else _parameters(known, key))
        for model, key in zip(many.model, names, strict=True)
    ]
    many["ratio"] = many.step_s / many.step_1_s
    many["name"] = many.network.where(many.network != "", many.model)
    many["share"] = _shares(many)
    return many.reset_index(drop=True)


def _records(folder: str | None) -> tuple[pandas.DataFrame, pandas.DataFrame, tables.RecordedTables]:
    """PyTorch's training steps, what each asks of one device, and the tables of networks."""
    data = Path(folder) if folder else data_directory()
    rows = schema.read(data / "records" / "networks.parquet", "network")
    rows = rows[(rows["mode"] == "training") & (rows.runtime == "torch")]
    known = tables.load(data / "graphs", "networks")
    return rows, questions.questions(rows.assign(n_devices=rows.n_devices.clip(upper=1)), known), known


def _parameters(known: tables.RecordedTables, key: tuple[str, str, int]) -> float:
    return float(known.table(*key, 1).statics["parameters"])


def _seconds(rows: pandas.DataFrame, samples: np.ndarray) -> pandas.Series:
    """Of a step; rates are of all devices."""
    rate = rows.batch * samples * rows.n_devices / rows.throughput_per_s
    return rows.latency_ms.fillna(1e3 * rate) * 1e-3


def _shares(rows: pandas.DataFrame) -> np.ndarray:
    asked = zip(rows.device, rows.n_devices, rows.gradient_bytes, strict=True)
    seconds = [exchange(device(d), min(int(n), _ONE_NODE), b).seconds for d, n, b in asked]
    return np.array(seconds) / rows.step_1_s.to_numpy()


def fit(rows: pandas.DataFrame) -> Constants:
    """The two constants; every network weighs alike, and large errors less than their square."""
    from scipy.optimize import least_squares

    weight = rows.groupby("name").ratio.transform("size").to_numpy() ** -0.5
    measured = np.log(rows.ratio.to_numpy())

    def errors(x: np.ndarray) -> np.ndarray:
        return np.asarray(weight * (_predicted(rows, Constants(float(x[0]), float(x[1]), 0.0, 0.0)) - measured))

    found = least_squares(errors, [1.0, 0.02], bounds=([0.0, 0.0], [10.0, 1.0]), loss="soft_l1", f_scale=_SOFT).x
    return Constants(float(found[0]), float(found[1]), 0.0, 0.0)


def _predicted(rows: pandas.DataFrame, constants: Constants) -> np.ndarray:
    return log_ratio(rows.share.to_numpy(), rows.n_devices.to_numpy(), constants)


def held_out(rows: pandas.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Log ratios [N] predicted without the network of each, and log errors of measured over predicted."""
    predicted = np.empty(len(rows))
    for name in rows.name.unique():
        out = (rows.name == name).to_numpy()
        predicted[out] = _predicted(rows[out], fit(rows[~out]))
    return predicted, np.log(rows.ratio.to_numpy()) - predicted


def spread(rows: pandas.DataFrame, constants: Constants) -> Constants:
    """``constants`` with the half-widths that nine in ten rows of networks left out stay within, networks alike."""
    _, errors = held_out(rows)
    return replace(constants, **dict(zip(("low", "high"), _half_widths(rows, errors), strict=True)))


def _half_widths(rows: pandas.DataFrame, errors: np.ndarray) -> tuple[float, float]:
    """Below and above; each leaves out half of one in ten."""
    weight = 1 / rows.groupby("name").ratio.transform("size").to_numpy()
    order = np.argsort(errors)
    place = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    tail = (1 - COVERAGE) / 2
    low, high = np.interp([tail, 1 - tail], place, errors[order])
    return max(-float(low), 0.0), max(float(high), 0.0)


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade ratios and whole steps. Raises FileError, FormatError."""
    rows = pairs(folder)
    corpus = {"pairs": len(rows), "networks": rows.name.nunique(), "most devices": int(rows.n_devices.max())}
    section = Section("data_parallel", "Training steps on several devices", _INTRO, corpus)
    predicted, errors = held_out(rows)
    low, high = np.empty(len(rows)), np.empty(len(rows))
    middle = np.empty(len(rows))
    for name in rows.name.unique():
        out = (rows.name == name).to_numpy()
        below, above = _half_widths(rows[~out], errors[~out])
        low[out], high[out] = predicted[out] - below, predicted[out] + above
        others = rows[~out].groupby("n_devices").ratio.median()
        middle[out] = rows[out].n_devices.map(others).fillna(float(rows[~out].ratio.median()))
    measured = rows.ratio.to_numpy()
    shown = [np.exp(v) for v in (predicted, low, high)]
    section.add(_RATIO, "network", "perfpass", _ALL, shown[0], measured, *shown[1:], aim_pct=_AIM)
    section.add(_RATIO, "network", "middle ratio of other networks", _ALL, middle, measured)
    section.add(_RATIO, "network", "no loss", _ALL, np.ones(len(rows)), measured)
    for name in sorted(rows.name.unique()):
        out = (rows.name == name).to_numpy()
        section.add(_RATIO, "network", "perfpass", name, shown[0][out], measured[out], *(v[out] for v in shown[1:]))
    cases = [
        f"{r.name}, {r.n_devices} x {r.device}, {r.precision} batch {r.batch}" for r in rows.itertuples(index=False)
    ]
    section.add_worst_cases(_RATIO, "times", "network", cases, shown[0], measured)
    _steps(section, folder)
    fitted = spread(rows, fit(rows))
    names = ("exposed", "straggle", "low", "high")
    constants = tuple((name, getattr(SHIPPED, name), round(getattr(fitted, name), 4)) for name in names)
    section.tables.append(Table("Constants", ("constant", "ships", "fitted"), constants))
    return section


def _steps(section: Section, folder: str | None) -> None:
    """Whole steps on several devices, by what ships."""
    rows, _, known = _records(folder)
    many = rows[(rows.n_devices > 1) & ~rows.network.isin(_ACCUMULATED)]
    each = many.assign(n_devices=1, throughput_per_s=many.throughput_per_s / many.n_devices)
    frame, _ = named.asked_of(each, known)
    step = named.graded(frame[~frame.above_peak], known)
    step["n_devices"] = many.n_devices.loc[step.index]
    found = []
    for r in step.itertuples():
        parameters = _parameters(known, (r.table_source, r.table_model, r.table_size))
        board = device(r.device)
        messages = exchange(board, min(int(r.n_devices), _ONE_NODE), _GRADIENT_BYTES * parameters)
        alone = Interval(r.median_s, r.low_s, r.high_s, "s")
        step_s = replicas.replicated(alone, alone, int(r.n_devices), messages).step_s
        found.append((step_s.median, step_s.low, step_s.high, r.median_s))
    ours, low, high, one = 1e3 * np.array(found).T
    measured = 1e3 * step.measured_s.to_numpy()
    for source in sorted(step.source.unique()):
        at = (step.source == source).to_numpy()
        section.add(_STEP, "step", "perfpass", source, ours[at], measured[at], low[at], high[at])
        section.add(_STEP, "step", "no loss", source, one[at], measured[at])
    cases = [f"{r.network}, {r.n_devices} x {r.device}, {r.precision} batch {r.batch}" for r in step.itertuples()]
    section.add_worst_cases(_STEP, "ms", "step", cases, ours, measured)
