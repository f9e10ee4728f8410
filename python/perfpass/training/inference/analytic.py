"""The widths of the analytic predictor: what it is off on networks that laboratories ran in engines.

Questions: `perfpass.training.tasks.named`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.inference.analytic import CAUSES, AnalyticPredictor
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.training import spread
from perfpass.training.section import Section
from perfpass.training.spread import TAILS, Errors

if TYPE_CHECKING:
    import pandas

__all__ = ["evaluate", "train"]

_METRIC = "latency ms"
# Log half-widths that the fit is drawn to; those of another engine, precision or vendor stand by hand, as no error
# shows them.
PRIOR = {"measurement": 0.6, "host": 0.5, "eager": 0.4, "engine": 0.6, "precision": 0.4, "vendor": 0.7, "slice": 0.3}
# On CPUs no laboratory timed such an engine: compiled ones may be several times as fast. By hand.
_CPU_LOW, _CPU_HIGH = float(np.log(6.0)), float(np.log(2.5))
# Records of engines that users can name; what ran in others (FasterTransformer, Kernl, ...) is another question, and so
# is a time that has a server's round trip in it.
ENGINES = {"tensorrt", "onnxruntime", "paddle+tensorrt", "onnxruntime+tensorrt", "torch", "torchscript"}
_INTRO = """Networks of other laboratories in TensorRT and ONNX Runtime (and in PyTorch with TF32), from public
definitions, at batch and shape as recorded. Nothing of the predictor but its widths was fitted to them; bounds come
from the other sources. Times that no roofline allows are left out."""


def errors(rows: pandas.DataFrame) -> Errors:
    """For the fit; a laboratory counts by its domains."""
    names = ("source:" + rows.source + "/" + rows.domain).to_numpy(dtype=object)
    residual = np.log(rows.measured_s / rows.median_s).to_numpy(np.float64)
    return Errors(CAUSES, residual, np.stack(rows.lacks.tolist()).astype(np.float64), names)


def asked(folder: Path | None = None) -> pandas.DataFrame:
    """Every question of inference that the analytic predictor answers, by operator times that its source did not teach.

    Raises FileError, FormatError.
    """
    from perfpass.training.inference import operators
    from perfpass.training.tasks import named

    rows, _ = named.residuals(folder, operators.left_out(folder))
    kept = (rows["mode"] == "inference") & (rows.predictor == AnalyticPredictor.name) & ~rows.above_peak
    return rows[kept & rows.runtime.isin(ENGINES) & (rows.server == "")]


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit the widths, write them to ``output`` (default: where they ship from), return that folder. Raises FileError.

    ``seed`` changes nothing: no choice is by chance.
    """
    rows = asked(Path(folder) if folder else None)
    found = spread.fit(errors(rows), PRIOR)
    widths = [PRIOR[c] for c in CAUSES]
    cpu = Spread(CAUSES, (_CPU_LOW, *widths[1:]), (_CPU_HIGH, *widths[1:]), TAILS, 0, 0)
    manifest: dict[str, Any] = {
        "predictor": AnalyticPredictor.name,
        "spread": {"gpu": found.to_dict(), "cpu": cpu.to_dict()},
        "measured": {
            str(name): sorted(part.precision.unique()) for name, part in rows.groupby("asked_runtime")
        },
        "corpus": {"rows": len(rows), "sources": sorted(rows.source.unique())},
    }  # fmt: skip
    place = Path(output) if output else artefacts.shipped(AnalyticPredictor.name)
    artefacts.write(place, manifest, {})
    if not quiet:
        print(f"wrote {place}", file=sys.stderr, flush=True)
    return place


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Every source left out of the widths: lines by engine, source and domain."""
    rows = asked(Path(folder) if folder else None)
    low, high = spread.left_out(errors(rows), PRIOR)
    at, measured = 1e3 * rows.median_s.to_numpy(), 1e3 * rows.measured_s.to_numpy()
    below, above = at * np.exp(low), at * np.exp(high)
    section = Section("analytic", "Engines, latency", _INTRO, {"rows": len(rows), "sources": rows.source.nunique()})

    def add(judged_on: str, kept: np.ndarray) -> None:
        section.add(_METRIC, "source", "perfpass", judged_on, at[kept], measured[kept], below[kept], above[kept])

    add("all", np.ones(len(rows), dtype=bool))
    for engine, part in rows.groupby("asked_runtime"):
        add(str(engine), rows.index.isin(part.index))
    for (engine, source, domain), part in rows.groupby(["asked_runtime", "source", "domain"]):
        add(f"{engine}, {source}, {domain}", rows.index.isin(part.index))
    for year, part in rows[rows.software_year > 0].groupby("software_year"):
        add(f"software of {year}", rows.index.isin(part.index))
    section.add_points(_METRIC, "ms", "source", rows.source.tolist(), at, measured)
    return section
