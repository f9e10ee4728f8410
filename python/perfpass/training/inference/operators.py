"""Fits the levels of `perfpass.predictors.inference.operators`: whole networks and single operators, all laboratories.

A hierarchical model of the logarithm of measured times, linear in its levels after each step of Gauss and Newton: every
level has a normal prior around 0, whose deviation says how far physics may be off there; laboratories, their hosts and
what these take for a kind of operator have effects of their own, which explain what is theirs and ship nothing. So a
host's level counts sources and not rows. Residuals have tails (Huber's weights).
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.inference.analytic import AnalyticPredictor
from perfpass.predictors.inference.engines import EngineTimes
from perfpass.predictors.inference.operators import (
    CONVOLUTION,
    CUDNN,
    FAMILIES,
    FUSED,
    GAP_S,
    HOST_LEVELS,
    HOST_OF,
    LEVELS,
    OperatorTimes,
    host_design,
)
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.lane import predictor_of
from perfpass.predictors.learned import artefacts
from perfpass.predictors.roofline import SMOOTHNESS, smooth_maximum
from perfpass.training.inference import engines
from perfpass.training.inference.levels import fitted
from perfpass.training.inference.operator_rows import Rows, asked, load
from perfpass.training.section import Section
from perfpass.training.tasks import named

if TYPE_CHECKING:
    from perfpass.predictors.way import Way

AREA = "operators"
# Log deviations of levels around 0, of laboratories (device and host), and of single measurements.
SPREAD: dict[str, float] = {
    "all": 0.15,
    "class": 0.03,
    "runtime": 0.05,
    "precision": 0.15,
    "launched": 0.3,
    "gap": 0.3,
    "host class": 0.2,
    "host runtime": 0.4,
    "generation": 0.05,
    "laboratory": 0.3,
    "laboratory's host": 0.5,
    "laboratory's host class": 0.06,
}
# Convolutions and batch norms differ from other operators more than these do among themselves.
_HOST_SPREAD: dict[str, float] = {CUDNN: 0.4, "batch_norm": 0.3}
_BUILT = 0.05  # of precisions in runtimes that build
_NOISE = 0.25  # as of engines
_HUBER = 1.5  # of the deviation of single measurements
_STEPS = 60
_WHOLE = 12  # rows of a group that count whole; of more, their root does


# Levels that scale all of a device's time.
_WHOLE_DEVICE = ("runtime", "generation", "laboratory")


class _Model:
    """The parameters of N rows: which of them each row has, and what the time is under them."""

    def __init__(self, rows: Rows) -> None:
        n = rows.names
        self.rows = rows
        self.names: list[tuple[str, str]] = [("all", "")] + [("class", name) for name in FAMILIES]
        self.names += [("gap", "")] + [("host class", name) for name in HOST_LEVELS]
        self._at: dict[str, np.ndarray] = {}
        columns = {
            "runtime": n.runtime, "precision": n.precision, "precision of convolutions": n.precision,
            "generation": n.generation,
            "launched": n.runtime.where(rows.fused, ""), "host runtime": n.runtime.replace(HOST_OF),
            "laboratory": n.source,
            "laboratory's host": n.host,
        }  # fmt: skip
        for level, column in columns.items():
            values, index = np.unique(column.to_numpy(dtype=str), return_inverse=True)
            self._at[level] = len(self.names) + index
            self.names += [(level.removesuffix(" of convolutions"), _named(level, str(v))) for v in values]
        self._own_classes = self._classes_of_sources(rows)
        self.own = np.array([level.startswith("laboratory") for level, _ in self.names])
        # The shares of the roofs were set on kernels that runtimes choose when they build.
        built = np.array([level == "precision" and ", eager" not in name for level, name in self.names])
        spread = [_HOST_SPREAD.get(name, SPREAD[level]) for level, name in self.names]
        self.deviation = np.where(built, _BUILT, spread)
        self._host = slice(2 + len(FAMILIES), 2 + len(FAMILIES) + len(HOST_LEVELS))
        convolutions = np.array([f.startswith("conv") for f in FAMILIES])
        others = np.array([f.startswith(("dense", "matmul", "attention", "recurrent")) for f in FAMILIES])
        self._products = {"precision": others, "precision of convolutions": convolutions}
        self._fusable = np.isin(FAMILIES, FUSED)

    def _classes_of_sources(self, rows: Rows) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(index into HOST_LEVELS, rows, their parameter) of each source's level of it, if any row issues such."""
        source, issues = rows.names.source.to_numpy(dtype=str), rows.issue_s @ host_design() > 0.0
        found = []
        for i, level in enumerate(HOST_LEVELS):
            where = np.flatnonzero(issues[:, i])
            names, index = np.unique(source[where], return_inverse=True)
            found.append((i, where, len(self.names) + index))
            self.names += [("laboratory's host class", f"{name}/{level}") for name in names.tolist()]
        return found

    def evaluate(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[N] log seconds and their Jacobian [N, P]."""
        r, at, count = self.rows, self._at, len(FAMILIES)
        level = theta[0] * r.whole + sum(theta[at[name]] for name in _WHOLE_DEVICE)
        precision = sum(theta[at[name]][:, None] * which for name, which in self._products.items())
        launched = np.where(r.fused, theta[at["launched"]], 0.0)[:, None] * self._fusable
        parts = r.device_s * np.exp(level[:, None] + theta[1 : 1 + count] + precision + launched)
        gap = GAP_S * np.exp(theta[1 + count]) * r.kernels
        kinds = np.repeat(theta[None, self._host], len(r), axis=0)
        for i, where, own in self._own_classes:
            kinds[where, i] += theta[own]
        hosts = theta[at["host runtime"]] + theta[at["laboratory's host"]]
        host = r.issue_s * np.exp(hosts[:, None] + kinds @ host_design().T)
        busy, issue = parts.sum(axis=1) + gap, host.sum(axis=1) + r.call_s
        total = smooth_maximum(busy, issue)
        on_device = (busy / total) ** SMOOTHNESS
        on_host = (issue / total) ** SMOOTHNESS
        share, issued = parts / busy[:, None] * on_device[:, None], host / np.maximum(issue, 1e-12)[:, None]
        issued *= on_host[:, None]
        jacobian = np.zeros((len(r), len(theta)))
        every = np.arange(len(r))
        jacobian[:, 0] = share.sum(axis=1) * r.whole
        jacobian[:, 1 : 1 + count] = share
        jacobian[:, 1 + count] = gap / busy * on_device
        jacobian[:, self._host] = of_kinds = issued @ host_design()
        for i, where, own in self._own_classes:
            jacobian[where, own] = of_kinds[where, i]
        for name in _WHOLE_DEVICE:
            jacobian[every, at[name]] = share.sum(axis=1)
        for name, which in self._products.items():
            jacobian[every, at[name]] = share[:, which].sum(axis=1)
        jacobian[every, at["launched"]] = np.where(r.fused, share[:, self._fusable].sum(axis=1), 0.0)
        for name in ("host runtime", "laboratory's host"):
            jacobian[every, at[name]] = issued.sum(axis=1)
        return np.log(total), jacobian


def _named(level: str, value: str) -> str:
    return value + CONVOLUTION if level.endswith("convolutions") else value


def fit(rows: Rows) -> OperatorTimes:
    """The levels that ship: those of laboratories are left out."""
    model = _Model(rows)
    counts = rows.names.groupby("group").group.transform("size").to_numpy(np.float64)
    base = np.sqrt(_WHOLE / np.maximum(counts, _WHOLE))
    target = np.log(rows.measured_s)
    return OperatorTimes(fitted(model, target, base, LEVELS, noise=_NOISE, huber=_HUBER, steps=_STEPS))


def left_out(
    folder: Path | None = None,
    inference: InferencePredictor | None = None,
    analytic: AnalyticPredictor | None = None,
    by: str = "source",
) -> named.Chosen:
    """The predictors by way and source, whose times of operators, in engines too, have not seen the source.

    ``inference``, ``analytic``: those of PyTorch and of engines (default: those that ship). ``by``: "source", or
    "device", for times that have not seen the device instead.
    """
    rows, built, learned = load(folder), engines.load(folder), inference or InferencePredictor.load()

    @cache
    def times(without: str) -> OperatorTimes:
        return fit(rows.take(np.flatnonzero(rows.names[by].to_numpy() != without)))

    @cache
    def in_engines(without: str) -> EngineTimes:
        return engines.fit(built.take(np.flatnonzero(built.names[by].to_numpy() != without)))

    def chosen(way: Way, source: str) -> Any:
        without = source if by == "source" else way.device.parent or way.device.id
        found = learned if learned.covers(way) else predictor_of(way)
        if isinstance(found, AnalyticPredictor):
            priced = learned.priced(times(without))
            return (analytic or found).priced(times(without), in_engines(without), priced)
        return found.priced(times(without)) if isinstance(found, InferencePredictor) else found

    return chosen


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit the levels, write them to ``output`` (default: where they ship from), return that folder. Raises FileError.

    ``seed`` changes nothing: the rows are thinned in one way.
    """
    rows = load(Path(folder) if folder else None)
    manifest: dict[str, Any] = {
        "predictor": AREA,
        "levels": fit(rows).to_dict(),
        "corpus": {"rows": len(rows), "sources": sorted(rows.names.source.unique())},
    }
    place = Path(output) if output else artefacts.shipped(AREA)
    artefacts.write(place, manifest, {})
    if not quiet:
        print(f"wrote {place}", file=sys.stderr, flush=True)
    return place


_INTRO = """What each part of the time of whole networks of other laboratories on GPUs brings: the FLOPs at the peak;
operators by their work, before any level; the host beside them; the levels, fitted without what is left out (a source,
a device, a domain); and the predictor that ships, with trees where they know the network (levels and widths without the
source). What a copied relative says of the same rows is in the area `relative`."""
_METRIC = "latency ms"
_STAGES = ("roofline", "operators", "+ host", "+ levels")
_SHIPPED = "+ trees (perfpass)"


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """The parts of the time side by side: lines by source, device and domain, each left out of the levels."""
    import pandas

    data = Path(folder) if folder else None
    frame, known = asked(data)
    rows = load(data)
    section = Section(AREA, "Operators, latency", _INTRO, {"rows": len(frame), "levels fitted to": len(rows)})
    plain = OperatorTimes({})
    for split in ("source", "device", "domain"):
        parts = []
        for value, group in frame.groupby(split):
            times = fit(rows.take(np.flatnonzero(rows.names[split].to_numpy() != value)))
            for way, part in named.ways(group):
                tables = named.tables_of(part, way, known)
                bare, levelled = plain.seconds(tables.tables, way), times.seconds(tables.tables, way)
                stages = (bare.device[tables.at], bare.total[tables.at], levelled.total[tables.at])
                parts.append(part.assign(**dict(zip(_STAGES[1:], stages, strict=True)), roofline=part.roofline_s))
        found = pandas.concat(parts)
        methods = list(_STAGES)
        if split == "source":
            answered, _ = named.residuals(data, left_out(data))
            found = found.join(answered.median_s.rename(_SHIPPED))
            methods.append(_SHIPPED)
        for value in ("all", *sorted(found[split].unique())):
            judged = found[found[split] == value] if value != "all" else found
            for method in methods:
                predicted, measured = (1e3 * judged[c].to_numpy(np.float64) for c in (method, "measured_s"))
                kept = predicted > 0
                if kept.any():
                    section.add(_METRIC, split, method, str(value), predicted[kept], measured[kept])
    return section
