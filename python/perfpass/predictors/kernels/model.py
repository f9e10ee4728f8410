"""One operator's learned model: efficiencies of software, trees on what is left, conformal bounds by evidence.

Two ensembles, as in the vision predictor: *known* starts from the efficiencies of the software on this very device and
sees the device's figures; *portable* starts from those of the software on all devices and sees ratios to the physics
only. Training and scoring share what is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.predictors.kernels.efficiency import LEVELS, Efficiencies, curve
from perfpass.predictors.kernels.physics import Figures, Terms

SOFTWARE_FEATURES = ("runtime", "version", "family", "precision", "kv_precision")
SHARES = ("share_floor", "share_compute", "share_memory", "share_chain", "share_serial")
DEVICE_FEATURES = ("log_bandwidth", "log_sms", "log_rate", "log_clock", "throttle")
# The level of `Efficiencies` that a device without records starts from: the software on all devices.
PORTABLE_LEVEL = 1
# What stands behind a figure, from the best to the least.
EVIDENCE = (
    *("measured", "version unseen", "software unseen", "device unseen", "device and version unseen"),
    *("generation unseen", "outside"),
)
# Shapes beyond the measured ones by more than this factor, and precisions that no record has, count as outside. Nothing
# vouches for their bounds: log widths grow by the factor below and are at least the minimum.
OUTSIDE_FACTOR = 2.0
OUTSIDE_WIDENING = 2.5
OUTSIDE_LEAST = 0.7
# Ridge of `offsets`: how far a device's own regimes may be from the portable model's, and a row from its regime (logs).
OFFSET_SPREAD = 0.3
OFFSET_ROW_SPREAD = 0.3
# A record further off than this says that something else was measured, and counts as this.
OFFSET_LIMIT = 1.5


def features(terms: Terms, software: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features [N, F] of the portable trees and the log base [N] that they correct.

    ``software`` [N, 5] as SOFTWARE_FEATURES, ``values`` [N, 5] of `Efficiencies`.
    """
    log_base, slopes = curve(values, terms.ramp, terms.work_s)
    parts = (terms.features, software, slopes, log_base[:, None], values[:, :1])
    return np.concatenate(parts, axis=1).astype(np.float32), log_base


def known_features(portable: np.ndarray, figures: Figures, values: np.ndarray) -> np.ndarray:
    """Features [N, F'] of the known trees: those of `features`, the device's figures and the efficiencies."""
    logs = [np.log(v) for v in (figures.bandwidth, figures.sms, figures.rate[:, 0], figures.clock)]
    device = np.stack([*logs, figures.throttle], axis=1)
    device = np.broadcast_to(device, (len(portable), device.shape[1]))
    return np.concatenate([portable, device, values], axis=1).astype(np.float32)


def offsets(residual: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """[5] log factors per regime from few records: ridge of log(measured / predicted) [n] on the shares [n, 5]."""
    residual = np.clip(residual, -OFFSET_LIMIT, OFFSET_LIMIT)
    ridge = (OFFSET_ROW_SPREAD / OFFSET_SPREAD) ** 2
    return np.linalg.solve(shares.T @ shares + ridge * np.eye(shares.shape[1]), shares.T @ residual)


def shares(terms: Terms, values: np.ndarray) -> np.ndarray:
    """[N, 5] how much of the time is floor, compute, memory, chain and serial; rows sum to 1."""
    return np.abs(curve(values, terms.ramp, terms.work_s)[1])


@dataclass(frozen=True)
class Bounds:
    """Log bounds by evidence and precision; "*" stands for every precision without its own."""

    table: dict[str, dict[str, tuple[float, float]]]

    def of(self, evidence: str, precision: str) -> tuple[float, float]:
        """Log bounds of measured over predicted, nine in ten; those of the nearest weaker evidence where none is."""
        if evidence == "outside":
            low, high = self.of(EVIDENCE[-2], precision)
            return min(low * OUTSIDE_WIDENING, -OUTSIDE_LEAST), max(high * OUTSIDE_WIDENING, OUTSIDE_LEAST)
        for name in EVIDENCE[EVIDENCE.index(evidence) :]:
            if found := self.table.get(name):
                return found.get(precision) or found["*"]
        return -1.5, 1.5


@dataclass(frozen=True)
class Software:
    """One measured combination of an operator: on which device, which software, how many rows stand behind it."""

    device: str
    capability: str
    runtime: str
    precision: str
    version: str
    family: str
    rows: int
    host_bound: bool


class OperatorModel:
    """Scores one operator. ``section`` is the manifest's part, ``ensembles`` the portable and known trees."""

    def __init__(self, section: dict[str, Any], portable: Any, known: Any) -> None:
        self.efficiencies = Efficiencies.from_dict(section["efficiencies"])
        self.bounds = Bounds(
            {e: {p: (float(b[0]), float(b[1])) for p, b in by.items()} for e, by in section["bounds"].items()}
        )
        self.software = [Software(*row) for row in section["software"]]
        self.ranges: dict[str, tuple[float, float]] = {n: (r[0], r[1]) for n, r in section["ranges"].items()}
        self._portable, self._known = portable, known

    def log_seconds(
        self, terms: Terms, figures: Figures, software: np.ndarray, keys: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Log medians [N], regime shares [N, 5] and the deepest known level; N kernels of one software and device."""
        depth = self.efficiencies.depth(keys)
        known = depth >= LEVELS - 2
        one = self.efficiencies.at(keys) if known else self.efficiencies.at(keys, PORTABLE_LEVEL)
        values = np.broadcast_to(one, (len(terms.ramp), len(one)))
        x, log_base = features(terms, software, values)
        if known:
            x = known_features(x, figures, values)
        trees = self._known if known else self._portable
        return log_base + trees.predict(np.ascontiguousarray(x)), shares(terms, values), depth

    def candidates(self, device: str, capability: str, precision: str) -> list[Software]:
        """What was measured in this precision: on the device, else on its compute capability, else anywhere."""
        found = [s for s in self.software if s.precision == precision]
        for wanted in (
            [s for s in found if s.device == device],
            [s for s in found if s.capability == capability],
        ):
            if wanted:
                return wanted
        return found
