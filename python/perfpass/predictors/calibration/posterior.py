"""A device learned from a few measurements of its own: what they tell about everything else that runs there.

log(measured / predicted) = constant + software + traits . w, a Bayesian linear model. How far its linear part may bend,
from "a scale is all that differs" to "every kind of network differs", is what makes the measurements most likely
(empirical Bayes); so ten of them mostly move the scale, and hundreds bend every trait. The bounds come from devices
left out of training (perfpass.training.calibration). The traits of a run are the portable features of the predictor:
where the time goes, at which sizes.

A calibration is one JSON file beside the user's device files (docs/predictors/calibration.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.declared import Anything, Choice, Exactly, Items, Maybe, Named, Number, Table, Text
from perfpass.errors import ArgumentError, ArtefactError
from perfpass.late import dataclass
from perfpass.predictors.calibration import device_file
from perfpass.predictors.inference.features import FEATURES, SOFTWARE_FEATURES
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.ratios import DEVICE_FEATURES

if TYPE_CHECKING:
    from perfpass.devices import Device

SCHEMA_VERSION = 1
SUFFIX = device_file.SUFFIX
LEAST_POINTS = 2
# More say nothing new of a device, and the solution costs their cube.
MOST_POINTS = 512
# Portable features: neither the device's figures nor the software, which has a term of its own.
TRAITS: tuple[str, ...] = tuple(f for f in FEATURES if f not in DEVICE_FEATURES and f not in SOFTWARE_FEATURES)
TRAIT_COLUMNS = np.array([FEATURES.index(name) for name in TRAITS])
_TRAIT_LIMIT = 3.0  # deviations: beyond, a trait counts as that, so that no line is drawn far past the data
_LARGEST_RATIO = 20.0  # of a logarithm: no measurement and prediction of one run are further apart
_LARGEST_TRAIT = 1e9
_POINT = Table(
    {
        **dict.fromkeys(("predictor", "software"), Text(empty=True)),
        "log_ratio": Number(-_LARGEST_RATIO, _LARGEST_RATIO, hint=", as no run is further off"),
        "traits": Items(Maybe(Number(-_LARGEST_TRAIT, _LARGEST_TRAIT)), len(TRAITS), len(TRAITS)),
    },
    ("predictor", "software", "log_ratio", "traits"),
)
_FILE = Table(
    {
        "schema_version": Exactly(SCHEMA_VERSION),
        "device": Text(),
        "kind": Choice(("cpu", "gpu")),
        "predictors": Named(Text(empty=True)),
        "traits": Items(Text(), 1000),
        "points": Items(_POINT, MOST_POINTS, LEAST_POINTS),
        "provenance": Named(Anything()),
    },
    ("schema_version", "device", "kind", "predictors", "traits", "points", "provenance"),
)
_REFITS = 4  # reweightings against outliers
_OUTLIER = 2.5  # robust deviations from the median
_STUDENT = 4.0  # degrees of freedom of the errors of single measurements


@dataclass(frozen=True)
class Prior:
    """How a device may differ from what is predicted of it: standard deviations of the logarithm, and a bound.

    ``scale`` of all runs together, ``software`` of one kind of software against another; ``levels``: pairs of
    deviations of the linear part (at typical traits) and of single runs, of which the measurements choose. ``bound``:
    nine in ten errors were below this many of the deviations that `Posterior.predict` states.
    """

    scale: float
    software: float
    levels: tuple[tuple[float, float], ...]
    bound: float


@dataclass(frozen=True, eq=False)
class Standard:
    """Mean and deviation [len(TRAITS)] of the traits over the corpus."""

    mean: np.ndarray
    deviation: np.ndarray

    def __call__(self, traits: np.ndarray) -> np.ndarray:
        """[N, len(TRAITS)] standardised; an absent trait is average."""
        z = (np.asarray(traits, dtype=np.float64) - self.mean) / self.deviation
        return np.clip(np.nan_to_num(z, nan=0.0), -_TRAIT_LIMIT, _TRAIT_LIMIT)


@dataclass(frozen=True, eq=False)
class Posterior:
    """The prior after N measurements. Made by `learn`."""

    prior: Prior
    traits: float  # deviation of the linear part that was chosen
    z: np.ndarray  # [N, T]
    software: np.ndarray  # [N] names
    weights: np.ndarray  # [N]
    gram: np.ndarray  # [N, N] inverse of the covariance of the measurements
    noise: float
    left_out: np.ndarray  # [N] log errors of each measurement, predicted from the others

    def predict(self, z: np.ndarray, software: Sequence[str] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[M] logarithm of measured over predicted, and its standard deviation for a single run."""
        asked = np.asarray(software, dtype=object)
        cross = covariance(self.prior, self.traits, z, asked, self.z, self.software)
        mean = cross @ self.weights
        own = self.prior.scale**2 + self.prior.software**2 + self.traits**2 * (z * z).mean(axis=1)
        variance = own - np.einsum("mn,nk,mk->m", cross, self.gram, cross)
        return mean, np.sqrt(np.maximum(variance, 0.0) + self.noise**2)


def covariance(
    prior: Prior, traits: float, a: np.ndarray, software_a: np.ndarray, b: np.ndarray, software_b: np.ndarray
) -> np.ndarray:
    """[A, B] prior covariance of log(measured / predicted) between runs with standardised traits [A, T] and [B, T]."""
    same = np.asarray(software_a, dtype=object)[:, None] == np.asarray(software_b, dtype=object)[None, :]
    linear = a @ b.T / max(a.shape[1], 1)
    return np.asarray(prior.scale**2 + prior.software**2 * same + traits**2 * linear, dtype=np.float64)


def learn(
    prior: Prior,
    z: np.ndarray,
    software: Sequence[str] | np.ndarray,
    log_ratio: np.ndarray,
    least: int = LEAST_POINTS,
) -> Posterior:
    """The posterior of N measurements: ``z`` [N, T] standardised traits, ``log_ratio`` [N] log(measured / predicted).

    Errors of single runs follow Student's distribution, by reweighting: one disturbed measurement in ten must not move
    the rest. The noise is that of the level, corrected by the leave-one-out errors, where there are two or more. Raises
    ArgumentError for fewer than ``least`` measurements.
    """
    count = len(log_ratio)
    if count < least:
        raise ArgumentError(f"{count} usable measurements; a calibration needs at least {least}, better 10 to 32")
    names = np.asarray(software, dtype=object)
    target = np.asarray(log_ratio, dtype=np.float64)
    chosen = int(np.argmax(log_evidence(prior, z, names, target)))
    if count == 1:  # which says nothing of how far the linear part bends
        chosen = min(1, len(prior.levels) - 1)
    traits, expected = prior.levels[chosen]
    between = covariance(prior, traits, z, names, z, names)
    weight = np.ones(count)
    for _ in range(_REFITS):
        inverse = np.linalg.inv(between + np.diag(expected**2 / weight))
        solved = inverse @ target
        left_out = solved / np.diag(inverse)  # leave-one-out errors of a Gaussian process (Sundararajan, Keerthi, 2001)
        error = expected**2 / weight * solved
        weight = np.minimum(1.0, (_STUDENT + 1.0) / (_STUDENT + (error / expected) ** 2))
    # Ten measurements' worth of prior; the median is not moved by outliers (1.48: of a normal distribution).
    own = 1.48 * float(np.median(np.abs(left_out)))
    told = count if count > 1 else 0  # of one, the prior's scale is all that leaving it out shows
    noise = float(np.sqrt((10.0 * expected**2 + told * own**2) / (10.0 + told)))
    return Posterior(prior, traits, z, names, solved, inverse, noise, left_out)


def log_evidence(
    prior: Prior, z: np.ndarray, software: Sequence[str] | np.ndarray, log_ratio: np.ndarray
) -> np.ndarray:
    """[levels] log likelihood of N measurements (as for `learn`) under each of the prior's levels, less a constant."""
    names, target = np.asarray(software, dtype=object), np.asarray(log_ratio, dtype=np.float64)
    # One disturbed run must not make the whole device look strange: outliers are drawn in.
    centre = float(np.median(target))
    reach = _OUTLIER * 1.48 * float(np.median(np.abs(target - centre)))
    drawn = centre + np.clip(target - centre, -reach, reach)
    found = []
    for traits, noise in prior.levels:
        total = covariance(prior, traits, z, names, z, names) + noise**2 * np.eye(len(target))
        found.append(-0.5 * (drawn @ np.linalg.solve(total, drawn) + np.linalg.slogdet(total)[1]))
    return np.array(found)


def plan(prior: Prior, z: np.ndarray, software: Sequence[str] | np.ndarray, count: int) -> list[int]:
    """Indices of the ``count`` candidates that together leave the least variance over all of them, best first.

    Greedy A-optimal design under the prior's second level (Krause, Singh, Guestrin: Near-optimal sensor placements,
    JMLR 9, 2008).
    ``z`` [N, T] standardised traits. Raises ArgumentError where there are fewer candidates.
    """
    if not 1 <= count <= len(z):
        raise ArgumentError(f"{count} of {len(z)} configurations; choose 1 to {len(z)}")
    names = np.asarray(software, dtype=object)
    traits, noise = prior.levels[min(1, len(prior.levels) - 1)]
    left = covariance(prior, traits, z, names, z, names)
    chosen: list[int] = []
    for _ in range(count):
        gain = (left * left).sum(axis=0) / (np.diag(left) + noise**2)
        gain[chosen] = -1.0
        best = int(np.argmax(gain))
        chosen.append(best)
        left = left - np.outer(left[:, best], left[:, best]) / (left[best, best] + noise**2)
    return chosen


@lru_cache(maxsize=1)
def shipped() -> tuple[Standard, dict[str, Prior]]:
    """The standardisation, and the priors that ship: by kind of device, and "other" for predictors but that of vision.

    Raises ArtefactError.
    """
    manifest = artefacts.Artefact(artefacts.shipped("calibration")).manifest
    if manifest.get("traits") != list(TRAITS):
        raise ArtefactError("the calibration's traits are not what this version computes; run `perfpass train`")
    mean, deviation = (np.array(manifest[name], dtype=np.float64) for name in ("mean", "deviation"))
    return Standard(mean, deviation), {kind: _prior(values) for kind, values in manifest["priors"].items()}


def _prior(values: dict[str, Any]) -> Prior:
    levels = tuple((float(traits), float(noise)) for traits, noise in values["levels"])
    return Prior(float(values["scale"]), float(values["software"]), levels, float(values["bound"]))


@dataclass(frozen=True, eq=False)
class Calibration:
    """What was measured on one device, beside what was predicted: N points.

    ``predictors`` names the predictors that were corrected, with a digest of each: another version of a predictor
    errs otherwise. ``provenance`` says where the measurements come from.
    """

    device: str
    kind: str
    predictors: dict[str, str]
    predictor: tuple[str, ...]  # [N]
    software: tuple[str, ...]  # [N]
    traits: np.ndarray  # [N, len(TRAITS)]
    log_ratio: np.ndarray  # [N]
    provenance: dict[str, Any] = field(default_factory=dict)

    def posterior(self, predictor: str) -> Posterior | None:
        """What the points of one predictor tell; None where there are fewer than LEAST_POINTS."""
        inside = np.array([name == predictor for name in self.predictor], dtype=bool)
        if inside.sum() < LEAST_POINTS:
            return None
        standard, priors = shipped()
        names = np.asarray(self.software, dtype=object)[inside]
        prior = priors[self.kind if predictor == "inference" else "other"]
        return learn(prior, standard(self.traits[inside]), names, self.log_ratio[inside])

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, with the digest of its content."""
        content = {
            "schema_version": SCHEMA_VERSION,
            "device": self.device,
            "kind": self.kind,
            "predictors": self.predictors,
            "provenance": self.provenance,
            "traits": list(TRAITS),
            "points": [
                {
                    "predictor": self.predictor[i],
                    "software": self.software[i],
                    "log_ratio": round(float(self.log_ratio[i]), 6),
                    "traits": [None if math.isnan(v) else round(float(v), 5) for v in self.traits[i]],
                }
                for i in range(len(self.log_ratio))
            ],
        }
        return device_file.digested(content)


def write(calibration: Calibration, folder: Path | str | None = None) -> Path:
    """Write the calibration to ``folder`` (default: the user's), in one step. Raises FileError."""
    return device_file.write(calibration.device, SUFFIX, calibration.to_dict(), folder)


def find(device: Device) -> Calibration | None:
    """The calibration of a device: the user's, else one in a folder that PERFPASS_DEVICES names; None without any.

    Raises FormatError for a damaged file, ArtefactError for one of another schema, LimitError for one too large.
    """
    found = device_file.find(device.id, SUFFIX)
    return None if found is None else _read_once(*found)


@lru_cache(maxsize=256)
def _read_once(path: Path, stamp: int) -> Calibration:
    return read(path)


def read(path: Path | str) -> Calibration:
    """One calibration file. Raises FileError, FormatError, ArtefactError, LimitError."""
    path = Path(path)
    content = device_file.opened(path, "a calibration", SCHEMA_VERSION)
    if content.get("traits") != list(TRAITS):
        raise ArtefactError(f"{path}: made by a version with other traits; {device_file.AGAIN}")
    device_file.declared(content, _FILE, path)
    points = content["points"]
    traits = [[math.nan if v is None else float(v) for v in p["traits"]] for p in points]
    return Calibration(
        device=content["device"],
        kind=content["kind"],
        predictors=content["predictors"],
        predictor=tuple(p["predictor"] for p in points),
        software=tuple(p["software"] for p in points),
        traits=np.array(traits, dtype=np.float64).reshape(len(points), len(TRAITS)),
        log_ratio=np.array([float(p["log_ratio"]) for p in points]),
        provenance=content["provenance"],
    )
