"""An estimate corrected by what was measured on its device, and the measurements such corrections are learned from."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.late import dataclass
from perfpass.predictors.calibration import posterior as calibration
from perfpass.predictors.calibration.posterior import TRAIT_COLUMNS, Calibration, Posterior
from perfpass.predictors.estimate import Bounds, Columns, Estimate, Estimates, Run, Runs
from perfpass.predictors.learned import artefacts
from perfpass.predictors.memory import allocation
from perfpass.predictors.roofline import GEMM_RATE, ISSUE_S

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.way import Way


_NAMED_BEFORE_0_2 = {"inference": "vision", "training_step": "steps"}


@dataclass(frozen=True, eq=False)
class Point:
    """How one run looks to a calibration: the predictor that answers for it, its software and its traits."""

    predictor: str
    software: str
    traits: np.ndarray  # [len(TRAITS)]
    predicted_ms: float


def point(estimate: Estimate, run: Run) -> Point:
    """The traits of a run, and what was predicted of it."""
    way, predictor = run.way, str(estimate.provenance["predictor"])
    columns = {**estimate.columns, **extra_columns(predictor, allocation.runs_of(run), way)}
    return Point(predictor, _software(way), _traits(predictor, columns)[0], estimate.latency_ms.median)


def extra_columns(predictor: str, runs: Runs, way: Way) -> dict[str, np.ndarray]:
    """Columns that a calibration reads and the predictor itself does not: the traits, where it has no such features."""
    from perfpass.predictors.inference.predictor import InferencePredictor

    if predictor == "inference":
        return {}
    precision = way.precision if way.precision in GEMM_RATE else "fp32"
    runtime = way.runtime if way.runtime in ISSUE_S else "torch.compile"
    # Of an engine, traits are those of its launched kernels, which calibrations were made with.
    known = replace(way, precision=precision, runtime=runtime, cuda_graph=way.cuda_graph and runtime == way.runtime)
    found = InferencePredictor.load().traits(runs.tables, runs.batch, known)
    return {"traits": found[:, TRAIT_COLUMNS]}


def _traits(predictor: str, columns: Columns) -> np.ndarray:
    """[N, len(TRAITS)]"""
    return columns["features"][:, TRAIT_COLUMNS] if predictor == "inference" else columns["traits"]


def _software(way: Way) -> str:
    """A compiled graph that is replayed has no host, which is most of what runs of one that is not say."""
    replayed = " replayed" if way.cuda_graph and way.runtime in ISSUE_S else ""
    return f"{way.precision} {way.runtime} {way.layout}{replayed}"


@cache
def digest_of(predictor: str) -> str:
    """What tells one version of a predictor from another: the digest of its manifest, or the program's version."""
    from perfpass import __version__

    manifest = artefacts.shipped(predictor) / artefacts.MANIFEST
    return hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest.is_file() else f"perfpass {__version__}"


@dataclass(frozen=True, eq=False)
class Correction:
    """What a device's measurements say of one predictor, ready to be applied to many runs."""

    predictor: str
    learned: Posterior
    notes: dict[str, Any]

    def words(self, device: Device, factor: float) -> tuple[str, dict[str, Any]]:
        """What is said of one corrected run: the reason of its support, and where the factor comes from."""
        points = self.notes["points"]
        reason = f"corrected by {points} measurements on {device.name}, by a factor of {factor:.2f}"
        return reason, {**self.notes, "factor": factor}

    def apply(self, found: Estimates, columns: Columns, way: Way) -> tuple[Estimates, np.ndarray]:
        """The corrected estimates, and [N] the factors."""
        from perfpass.predictors.inference.predictor import InferencePredictor

        standard, _ = calibration.shipped()
        z = standard(_traits(self.predictor, columns))
        mean, deviation = self.learned.predict(z, np.full(len(z), _software(way), dtype=object))
        factor, width = np.exp(mean), self.learned.prior.bound * deviation
        if self.predictor == "inference":
            # What the network and its size add to the width of the device.
            width = np.hypot(width, InferencePredictor.load().of_network(way.device, columns["lacks"]))
        latency = Bounds.around(found.latency_ms.median * factor, -width, width)
        return replace(found, latency_ms=latency), factor


def correction(device: Device, predictor: str, wanted: bool | Calibration = True) -> Correction | str | None:
    """The correction of what ``predictor`` says of a device; a sentence where one is at hand that does not fit."""
    if wanted is False:
        return None
    found = calibration.find(device) if wanted is True else wanted
    if found is None:
        return None
    made_for = found.predictors.get(predictor) or found.predictors.get(_NAMED_BEFORE_0_2.get(predictor, ""))
    if made_for is None:
        return None
    if made_for != digest_of(predictor):
        return (
            f"the calibration of {device.name} was made for another version of the predictor and is not used; "
            "run `perfpass calibrate` again"
        )
    learned = found.posterior(predictor)
    if learned is None:
        return None
    notes: dict[str, Any] = {
        "points": len(learned.left_out),
        "left_out_mape_pct": 100 * float(np.mean(np.abs(np.expm1(learned.left_out)))),
        **{key: _shown(found.provenance[key]) for key in ("records", "made_at") if key in found.provenance},
    }
    return Correction(predictor, learned, notes)


def _shown(value: Any) -> str:
    """A text of a calibration file, which a terminal may print."""
    return "".join(c if c.isprintable() else "?" for c in str(value)[:200])
