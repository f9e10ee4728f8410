"""One operator's learned model: efficiencies of software, trees on what is left, widths by causes.

Two ensembles, as in the vision predictor: *known* starts from the efficiencies of the software on this very device, or
on its nearest measured relative of the same compute capability, and sees the device's figures; *portable* starts from
those of the software on all devices and sees ratios to the physics only. Training and scoring share what is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.predictors.kernels.efficiency import LEVELS, Efficiencies, curve
from perfpass.predictors.kernels.physics import Figures, Terms
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.relative.nearest import between

SOFTWARE_FEATURES = ("runtime", "version", "family", "precision", "kv_precision")
SHARES = ("share_floor", "share_compute", "share_memory", "share_chain", "share_serial")
DEVICE_FEATURES = ("log_bandwidth", "log_sms", "log_rate", "log_clock", "throttle")
# The level of `Efficiencies` that a device without records starts from: the software on all devices.
PORTABLE_LEVEL = 1
# What stands behind a figure, from the best to the least.
EVIDENCE = (
    *("measured", "version unseen", "software unseen", "device unseen", "device and version unseen"),
    *("device and software unseen", "generation unseen", "outside"),
)
# Shapes beyond the measured ones by more than this factor, and precisions that no record has, count as outside.
OUTSIDE_FACTOR = 2.0
# What makes an interval wide (`learned.spread`): shapes that were not measured, or lie beyond those measured; a
# version, a piece of software, a device; one of whose compute capability none was measured; a precision without a rate.
WORDS: Mapping[str, str] = {
    "measurement": "how single kernels differ",
    "laboratory": "another laboratory than that of the records",
    "shape": "shapes between those measured",
    "version": "a version of the software that was not measured",
    "software": "software that was not measured",
    "device": "a board that was not measured",
    "generation": "a generation of boards that was not measured",
    "load": "sizes beyond those measured",
    "rate": "a precision that the board has no rate for",
}
CAUSES = tuple(WORDS)
_LACKS: dict[str, tuple[str, ...]] = {
    "measured": (),
    "version unseen": ("version",),
    "software unseen": ("version", "software"),
    "device unseen": ("device",),
    "device and version unseen": ("device", "version"),
    "device and software unseen": ("device", "generation"),
    "generation unseen": ("device", "generation"),
    "outside": ("version", "software", "device", "generation"),
}
# Ridge of `offsets`: how far a device's own regimes may be from the portable model's, and a row from its regime (logs).
OFFSET_SPREAD = 0.3
OFFSET_ROW_SPREAD = 0.3
# A record further off than this says that something else was measured, and counts as this.
OFFSET_LIMIT = 1.5


def features(terms: Terms, software: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features [N, F] of the portable trees, the log base [N] that they correct, and how much of its time [N, 5] is
    floor, compute, memory, chain and serial, which sum to 1.

    ``software`` [N, 5] as SOFTWARE_FEATURES, ``values`` [N, 5] of `Efficiencies`.
    """
    log_base, slopes = curve(values, terms.ramp, terms.work_s)
    parts = (terms.features, software, slopes, log_base[:, None], values[:, :1])
    return np.concatenate(parts, axis=1).astype(np.float32), log_base, np.abs(slopes)


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


def lacks(evidence: Sequence[str] | np.ndarray, **more: np.ndarray | float) -> dict[str, np.ndarray | float]:
    """What is not known of N kernels by cause; ``evidence`` [N] of EVIDENCE, ``more`` of what it does not tell."""
    out: dict[str, np.ndarray | float] = dict.fromkeys(CAUSES, 0.0)
    for cause in {c for named in _LACKS.values() for c in named}:
        out[cause] = np.array([float(cause in _LACKS[str(e)]) for e in evidence])
    return out | {"measurement": 1.0} | more


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


def unseen_evidence(
    measured: Sequence[Software], capability: str, runtime: str, precision: str, family: str, *, version_known: bool
) -> str:
    """Of EVIDENCE, what stands behind a device that was not measured."""
    alike = [s for s in measured if s.capability == capability]
    if not alike:
        return "generation unseen"
    if not any((s.runtime, s.precision, s.family) == (runtime, precision, family) for s in alike):
        return "device and software unseen"
    return "device unseen" if version_known else "device and version unseen"


def relative(
    measured: Sequence[Software], device: Device, capability: str, runtime: str, precision: str, family: str
) -> str | None:
    """The measured device whose efficiencies a device of the same compute capability starts from.

    One with this very software before others, then the nearest by its rates; None where there is none, and where the
    host issued this software's kernels there, which says nothing of another device or version.
    """
    alike = [s for s in measured if s.capability == capability]
    same = [s for s in alike if (s.runtime, s.precision, s.family) == (runtime, precision, family)]
    if same and all(s.host_bound for s in same):
        return None
    names = {s.device for s in same if not s.host_bound} or {s.device for s in alike}
    return min(sorted(names), key=lambda name: between(device, find_device(name)), default=None)


class OperatorModel:
    """Scores one operator. ``section`` is the manifest's part, ``ensembles`` the portable and known trees."""

    def __init__(self, section: dict[str, Any], portable: Any, known: Any) -> None:
        self.efficiencies = Efficiencies.from_dict(section["efficiencies"])
        self.spread = Spread.from_dict(section["spread"])
        self.software = [Software(*row) for row in section["software"]]
        self.ranges: dict[str, tuple[float, float]] = {n: (r[0], r[1]) for n, r in section["ranges"].items()}
        self._portable, self._known = portable, known

    def log_seconds(
        self, terms: Terms, figures: Figures, software: np.ndarray, keys: np.ndarray, carried: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log medians [N] and regime shares [N, 5]; N kernels of one software and device.

        ``carried``: the keys on the nearest measured `relative`, for software that was not measured on the device.
        """
        known = keys if self.efficiencies.depth(keys.tolist()) >= LEVELS - 2 else carried
        one = (
            self.efficiencies.at(keys.tolist(), PORTABLE_LEVEL)
            if known is None
            else self.efficiencies.at(known.tolist())
        )
        values = np.broadcast_to(one, (len(terms.ramp), len(one)))
        x, log_base, shares = features(terms, software, values)
        if known is not None:
            x = known_features(x, figures, values)
        trees = self._portable if known is None else self._known
        return log_base + trees.predict(np.ascontiguousarray(x)), shares

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
