"""The levels and the widths of the analytic predictor: what it is off on networks that laboratories ran in engines.

Questions: `perfpass.training.tasks.named`. Levels: `perfpass.training.inference.engines`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.inference.analytic import CAUSES, AnalyticPredictor
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.training import spread
from perfpass.training.inference import engines, operators
from perfpass.training.section import Section
from perfpass.training.spread import TAILS, Errors

if TYPE_CHECKING:
    import pandas

__all__ = ["evaluate", "train"]

_METRIC = "latency ms"
# Log half-widths that the fit is drawn to; those of another engine, precision or vendor stand by hand, as no error
# shows them. Where halves may be summed in halves, the rate is at most 1.6 times what kernels reach otherwise.
PRIOR = {
    "measurement": 0.4, "host": 0.4, "eager": 0.4, "rare": 0.5, "engine": 0.6, "precision": 0.4, "vendor": 0.7,
    "slice": 0.3, "sums": 0.47,
}  # fmt: skip
# Of one laboratory and domain; more say no more of how laboratories differ.
_MOST_ROWS = 60
_SEED = 17
# On CPUs no laboratory timed such an engine: compiled ones may be several times as fast. By hand.
_CPU_LOW, _CPU_HIGH = float(np.log(6.0)), float(np.log(2.5))
# Records of engines that users can name; what ran in others (FasterTransformer, Kernl, ...) is another question, and so
# is a time that has a server's round trip in it.
ENGINES = {"tensorrt", "onnxruntime", "paddle+tensorrt", "onnxruntime+tensorrt"}
_INTRO = """Networks of other laboratories in TensorRT and ONNX Runtime, from public definitions, at batch and shape
as recorded; times that no roofline allows are left out. "source": levels and widths from the other sources; "device":
from the other boards, whose laboratories may be the same. "FLOPs at the peak" are the roofline of the same rows; what a
copied relative says of them is in the area `relative`. "sources alike" takes 60 rows at most of each engine, source and
domain. Forms and priors were chosen with the errors by source in sight."""


def errors(rows: pandas.DataFrame) -> Errors:
    """For `_fitted`, named by laboratory and domain. All were measured, so none shows another engine."""
    lacks = np.stack(rows.lacks.tolist()).astype(np.float64)
    lacks[:, [CAUSES.index("engine"), CAUSES.index("precision")]] = 0.0
    names = ("source:" + rows.source + "/" + rows.domain).to_numpy(dtype=object)
    residual = np.log(rows.measured_s / rows.median_s).to_numpy(np.float64)
    return Errors(CAUSES, residual, lacks, names)


def asked(
    folder: Path | None = None, analytic: AnalyticPredictor | None = None, by: str = "source"
) -> pandas.DataFrame:
    """Every question of inference that ``analytic`` (default: the predictor that ships) answers.

    Times of operators, in engines too, have not seen the source, or with ``by`` "device" the device. Raises FileError,
    FormatError.
    """
    from perfpass.training.tasks import named

    rows, _ = named.residuals(folder, operators.left_out(folder, analytic=analytic, by=by), "inference")
    kept = (rows.predictor == AnalyticPredictor.name) & ~rows.above_peak
    return rows[kept & rows.runtime.isin(ENGINES) & named.of_the_runtime(rows)]


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit levels and widths, write them to ``output`` (default: where they ship from), return that folder.

    ``seed`` changes nothing: no choice is by chance. Raises FileError.
    """
    data = Path(folder) if folder else None
    widths = [PRIOR[c] for c in CAUSES]
    cpu = Spread(CAUSES, (_CPU_LOW, *widths[1:]), (_CPU_HIGH, *widths[1:]), TAILS, 0, 0)
    built = engines.load(data)
    manifest: dict[str, Any] = {
        "predictor": AnalyticPredictor.name,
        "levels": engines.fit(built).to_dict(),
        "spread": {"gpu": Spread(CAUSES, tuple(widths), tuple(widths), TAILS, 0, 0).to_dict(), "cpu": cpu.to_dict()},
        "measured": {},
        "corpus": {"rows": len(built), "sources": sorted(built.names.source.unique())},
    }
    # What is off on other sources is known once there is a predictor to ask.
    with TemporaryDirectory() as before:
        artefacts.write(Path(before), manifest, {})
        rows = asked(data, AnalyticPredictor(before))
    manifest["spread"]["gpu"] = _fitted(errors(rows)).to_dict()
    manifest["measured"] = {str(n): sorted(part.precision.unique()) for n, part in rows.groupby("asked_runtime")}
    place = Path(output) if output else artefacts.shipped(AnalyticPredictor.name)
    artefacts.write(place, manifest, {})
    if not quiet:
        print(f"wrote {place}", file=sys.stderr, flush=True)
    return place


def _fitted(found: Errors) -> Spread:
    """A laboratory counts by its domains, and none of these by more rows than `_MOST_ROWS`.

    What they show grows as a new draw beside that many laboratories has it, by sqrt(1 + 1 / n): which one of them is
    furthest off decides a width, and whenever its cause was found the next in line was left uncovered.
    """
    thinned = found.thinned(_MOST_ROWS)
    fitted = spread.fit(thinned, PRIOR)
    laboratories = len({name.split("/", 1)[0] for name in thinned.source})
    grown = np.where(found.lacks.any(axis=0), np.sqrt(1.0 + 1.0 / laboratories), 1.0)
    low, high = (tuple((np.asarray(w) * grown).tolist()) for w in (fitted.low, fitted.high))
    return replace(fitted, low=low, high=high)


def _bounds(found: Errors, apart: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of each row, from the errors of all rows that are ``apart`` [N] otherwise."""
    names = np.asarray(apart, dtype=str)
    low, high = np.zeros(len(found)), np.zeros(len(found))
    for name in np.unique(names):
        own = names == name
        lacks = dict(zip(found.causes, found.lacks[own].T, strict=True))
        low[own], high[own] = _fitted(found.take(~own)).bounds(lacks)
    return low, high


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Every source left out, lines by engine, source and domain; then every device, lines by engine and device."""
    data = Path(folder) if folder else None
    rows = asked(data)
    section = Section("analytic", "Engines, latency", _INTRO, {"rows": len(rows), "sources": rows.source.nunique()})
    _grade(section, rows, "source", rows.asked_runtime + ", " + rows.source + ", " + rows.domain)
    unseen = asked(data, by="device")
    _grade(section, unseen, "device", unseen.asked_runtime + ", " + unseen.device)
    at, measured = 1e3 * rows.median_s.to_numpy(), 1e3 * rows.measured_s.to_numpy()
    section.add_points(_METRIC, "ms", "source", rows.source.tolist(), at, measured)
    return section


def _grade(section: Section, rows: pandas.DataFrame, split: str, parts: pandas.Series) -> None:
    """Lines of one split: all, by engine, by ``parts``, and by the year of the software."""
    low, high = _bounds(errors(rows), rows[split].to_list())
    at, measured = 1e3 * rows.median_s.to_numpy(), 1e3 * rows.measured_s.to_numpy()
    below, above = at * np.exp(low), at * np.exp(high)
    peak = 1e3 * rows.roofline_s.to_numpy()

    def add(judged_on: str, kept: np.ndarray, *, beside: bool = False) -> None:
        if beside:
            section.add(_METRIC, split, "FLOPs at the peak", judged_on, peak[kept], measured[kept])
        section.add(_METRIC, split, "perfpass", judged_on, at[kept], measured[kept], below[kept], above[kept])

    add("all", np.ones(len(rows), dtype=bool), beside=True)
    alike = np.zeros(len(rows), dtype=bool)
    for _, part in rows.groupby(parts):
        alike[rows.index.get_indexer(part.sample(min(len(part), _MOST_ROWS), random_state=_SEED).index)] = True
    add("all, sources alike" if split == "source" else "all, devices alike", alike, beside=True)
    for engine, part in rows.groupby("asked_runtime"):
        add(str(engine), rows.index.isin(part.index), beside=True)
    for name, part in rows.groupby(parts):
        add(str(name), rows.index.isin(part.index))
    if split == "source":
        for year, part in rows[rows.software_year > 0].groupby("software_year"):
            add(f"software of {year}", rows.index.isin(part.index))
