"""Choices among measured ways to run a network: records of other laboratories, which no fit has seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perfpass import evidence
from perfpass.deploy import money
from perfpass.errors import DeviceError
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.learned.time_lacks import CAUSES
from perfpass.training import time_widths
from perfpass.training.decisions.offers import Method, Offers, graded, questions
from perfpass.training.inference import operators, outside
from perfpass.training.relative import copies, places
from perfpass.training.spread import Errors
from perfpass.training.tasks import named

LIMITS = tuple({"latency": limit} for limit in (2.0, 5.0, 10.0, 20.0, 50.0, 100.0))
_ALIKE = ["source", "table_source", "table_model", "table_size"]


def decisions(folder: Path | str | None = None) -> Iterator[dict[str, Any]]:
    """The lines of a table. Raises FileError, FormatError."""
    root = Path(folder) if folder else None
    rows, _ = named.residuals(root, operators.left_out(root))
    kept = (rows["mode"] == "inference") & ~rows.above_peak & named.of_the_runtime(rows)
    kept &= (rows.predictor == InferencePredictor.load().name) & rows.runtime.isin(outside.TORCH)
    rows = rows[kept].reset_index(drop=True)
    usd = _usd_per_hour(rows)
    latency, batch = 1e3 * rows.measured_s.to_numpy(float), rows.batch.to_numpy(float)

    def price(ms: Mapping[str, np.ndarray]) -> np.ndarray:
        """USD of a thousand samples."""
        return np.asarray(usd * ms["latency"] / batch / 3.6e3)

    group = rows[_ALIKE].astype(str).agg("|".join, axis=1).to_numpy(dtype=str)
    offers = Offers(group, rows.table_model.to_numpy(dtype=str), {"latency": latency}, price)
    median = 1e3 * rows.median_s.to_numpy(float)
    relatives = evidence.load()
    at = places(relatives, rows)
    copied = np.full(len(rows), np.nan)
    copied[at >= 0] = copies(relatives, "time", at[at >= 0], leave_out=("source",))[0]
    methods = [
        Method("perfpass", {"latency": median}, {"latency": _bounds(rows)}),
        Method("perfpass, medians alone", {"latency": median}),
        Method("roofline", {"latency": 1e3 * rows.roofline_s.to_numpy(float)}),
        Method("nearest record, copied and scaled", {"latency": copied}),
    ]
    kept = np.isfinite(usd) & np.logical_and.reduce([m.answers for m in methods])
    yield from graded(offers, methods, questions(offers, kept, LIMITS), "source", "all")


def _bounds(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of each source, from the errors on the others alone."""
    residual = np.log(rows.measured_s.to_numpy(float) / rows.median_s.to_numpy(float))
    names = ("source:" + rows.source + "/" + rows.domain).to_numpy(dtype=object)
    errors = Errors(CAUSES, residual, np.stack(rows.lacks.tolist()), names)
    low, high = np.zeros(len(rows)), np.zeros(len(rows))
    for source in rows.source.unique():
        own = (rows.source == source).to_numpy()
        low[own], high[own] = time_widths.bounds([errors.take(~own)], errors.take(own))
    return low, high


def _usd_per_hour(rows: Any) -> np.ndarray:
    prices, known = money.read_prices(), {}
    for name in rows.device.unique():
        try:
            known[name] = money.price(name, prices).usd_per_hour
        except DeviceError:
            known[name] = np.nan
    return np.asarray(rows.device.map(known).to_numpy(float))
