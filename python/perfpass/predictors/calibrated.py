"""An estimate corrected by what was measured on its device, and the measurements such corrections are learned from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.prediction import Interval, Support
from perfpass.predictors import artefacts, calibration
from perfpass.predictors.calibration import TRAIT_COLUMNS, Calibration
from perfpass.predictors.roofline import GEMM_RATE, ISSUE_S, Workload

if TYPE_CHECKING:
    from perfpass.predictors.estimate import Estimate, Inputs


@dataclass(frozen=True, eq=False)
class Point:
    """How one run looks to a calibration: the predictor that answers for it, its software and its traits."""

    predictor: str
    software: str
    traits: np.ndarray  # [len(TRAITS)]
    predicted_ms: float


def point(estimate: Estimate, inputs: Inputs) -> Point:
    """The traits of a run, and what was predicted of it."""
    from perfpass.predictors.trees import VisionPredictor

    precision = inputs.precision if inputs.precision in GEMM_RATE else "fp32"
    runtime = inputs.runtime if inputs.runtime in ISSUE_S else "torch.compile"
    workload = Workload(inputs.batch, precision, runtime, inputs.layout)
    traits = VisionPredictor.load().traits(inputs.table, inputs.device, workload)[TRAIT_COLUMNS]
    software = f"{inputs.precision} {inputs.runtime} {inputs.layout}"
    return Point(str(estimate.provenance["predictor"]), software, traits, estimate.latency_ms.median)


@cache
def digest_of(predictor: str) -> str:
    """What tells one version of a predictor from another: the digest of its manifest, or the program's version."""
    from perfpass import __version__
    from perfpass.predictors import onnxruntime_cpu

    if predictor == onnxruntime_cpu.NAME:
        return f"{digest_of('vision')} x {onnxruntime_cpu.RATIO}"
    manifest = artefacts.shipped(predictor) / artefacts.MANIFEST
    return hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest.is_file() else f"perfpass {__version__}"


def apply(estimate: Estimate, inputs: Inputs, wanted: bool | Calibration = True) -> Estimate:
    """``estimate`` as the device's calibration corrects it; unchanged where there is none, or it does not apply."""
    if wanted is False:
        return estimate
    found = calibration.find(inputs.device) if wanted is True else wanted
    if found is None:
        return estimate
    asked = point(estimate, inputs)
    if asked.predictor not in found.predictors:
        return estimate
    if found.predictors[asked.predictor] != digest_of(asked.predictor):
        reason = (
            f"the calibration of {inputs.device.name} was made for another version of the predictor and is not used; "
            "run `perfpass calibrate` again"
        )
        return replace(estimate, support=Support(estimate.support.level, (*estimate.support.reasons, reason)))
    learned = found.posterior(asked.predictor)
    if learned is None:
        return estimate
    standard, _ = calibration.shipped()
    mean, deviation = learned.predict(standard(asked.traits[None]), [asked.software])
    factor, width = float(np.exp(mean[0])), learned.prior.bound * float(deviation[0])
    low, high = _widths(estimate, inputs, asked.predictor, width)
    median = estimate.latency_ms.median * factor
    points = len(learned.left_out)
    off = 100 * float(np.mean(np.abs(np.expm1(learned.left_out))))
    reason = f"corrected by {points} measurements on {inputs.device.name}, by a factor of {factor:.2f}"
    notes: dict[str, Any] = {
        "points": points,
        "factor": factor,
        "left_out_mape_pct": off,
        **{key: _shown(found.provenance[key]) for key in ("records", "made_at") if key in found.provenance},
    }
    return replace(
        estimate,
        latency_ms=Interval(median, median * float(np.exp(-low)), median * float(np.exp(high)), "ms"),
        row_ms=estimate.row_ms * factor,
        support=Support(estimate.support.level, (*estimate.support.reasons, reason)),
        provenance={**estimate.provenance, "calibration": notes},
    )


def _shown(value: Any) -> str:
    """A text of a calibration file, which a terminal may print."""
    return "".join(c if c.isprintable() else "?" for c in str(value)[:200])


def _widths(estimate: Estimate, inputs: Inputs, predictor: str, width: float) -> tuple[float, float]:
    """Log widths below and above the median: the device's, and what the network and its novelty add."""
    from perfpass.predictors.trees import VisionPredictor

    if predictor == "vision":
        distance = float(estimate.provenance["nearest_network_distance"])
        width = VisionPredictor.load().widened(inputs.device, width, distance, estimate.provenance["beyond_measured"])
    return width, width
