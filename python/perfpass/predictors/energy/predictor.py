"""Energy and power learned from measurements: serving, batch 1, diffusion, offline batches, training, whole servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.prediction import Interval, Support, SupportLevel
from perfpass.predictors.energy import features
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.components import UNSEEN_MODEL, Bounds, Fitted, Form, Rows

# Name of a quantity -> its form and unit.
QUANTITIES: Mapping[str, tuple[Form, str]] = {
    "serving_energy": (features.SERVING, "J/token"),
    "serving_energy_at_rate": (features.SERVING_AT_RATE, "J/token"),
    "batch1_energy": (features.BATCH1, "J/response"),
    "diffusion_energy": (features.DIFFUSION, "J/sample"),
    "offline_power": (features.OFFLINE_POWER, "W"),
    "training_power": (features.TRAINING_POWER, "W"),
    "server_power": (features.SERVER_POWER, "W"),
}
# Beyond measured ranges no held-out error speaks for the bounds: their logarithmic width grows so much. By hand.
BEYOND = 2.0


@dataclass(frozen=True)
class Measured:
    """A learned figure: its interval and what stands behind it. ``kind`` is "learned" (physics alone say "physics")."""

    value: Interval
    support: Support
    kind: str = "learned"

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"value": self.value.to_dict(), "support": self.support.to_dict(), "kind": self.kind}


class EnergyPredictor:
    """The learned quantities of `QUANTITIES`, from a trained artefact; NumPy alone."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        artefact = artefacts.Artefact(folder or artefacts.shipped("energy"))
        self._fitted = {name: Fitted.read(form, artefact, name) for name, (form, _) in QUANTITIES.items()}
        self._bounds = {
            name: Bounds({k: (v[0], v[1]) for k, v in artefact.manifest[name]["bounds"].items()}) for name in QUANTITIES
        }
        self._ranges: dict[str, list[list[float]]] = artefact.manifest["ranges"]
        self.corpus: dict[str, Any] = artefact.manifest["corpus"]

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> EnergyPredictor:
        """The shipped predictor, read once per process."""
        return EnergyPredictor()

    def serving(self, served: features.Served) -> Measured:
        """Joules per output token of all GPUs together, prompts included; vLLM of 2024, 16 bits."""
        return self._one("serving_energy", features.serving_rows([served]))

    def serving_at_rate(self, served: features.Served, tokens_per_s: float) -> Measured:
        """The same where output tokens per second of the deployment are known; at most what the boards' limits give."""
        found = self._one("serving_energy_at_rate", features.serving_at_rate_rows([served], [tokens_per_s]))
        most = served.devices * served.device.power_limit_w / tokens_per_s
        return Measured(_capped(found.value, most), found.support)

    def batch1(self, served: features.Served) -> Measured:
        """Joules per response in eager PyTorch at batch 1 on one GPU."""
        return self._one("batch1_energy", features.batch1_rows([served]))

    def diffusion(self, run: features.Diffused) -> Measured:
        """Joules per picture or video of a diffusion pipeline on one GPU."""
        return self._one("diffusion_energy", features.diffusion_rows([run]))

    def offline_power(self, run: features.Offline) -> Measured:
        """Mean watts of all devices while a batch of equal requests runs; at most the sum of their limits."""
        found = self._one("offline_power", features.offline_power_rows([run]))
        return _limited(found, run.device, run.devices)

    def training_power(self, run: features.Trained) -> Measured:
        """Mean watts of a GPU that trains, at the power limit that is set; at most that limit."""
        found = self._one("training_power", features.training_power_rows([run]))
        limit = min(run.power_limit_w, run.device.power_limit_w)
        return Measured(_capped(found.value, limit), found.support)

    def server_power(self, run: features.Server) -> Measured:
        """Watts at the wall of a whole server under an MLPerf Inference load."""
        return self._one("server_power", features.server_power_rows([run]))

    def _one(self, name: str, rows: Rows) -> Measured:
        fitted, (_, unit) = self._fitted[name], QUANTITIES[name]
        median, spread = fitted.predict(rows)
        evidence = str(fitted.evidence(rows)[0])
        beyond = self._beyond(name, rows)
        value = self._bounds[name].interval(
            float(median[0]), float(spread[0]), evidence, unit, BEYOND if beyond else 1.0
        )
        return Measured(value, _support(evidence, beyond))

    def _beyond(self, name: str, rows: Rows) -> list[str]:
        form = QUANTITIES[name][0]
        labels = [*form.workload, *form.traits]
        values = np.concatenate([rows.workload[0], rows.traits[0]])
        return [
            f"{label.split('_', 1)[-1].replace('_', ' ')} is outside what was measured"
            for label, value, (low, high) in zip(labels, values, self._ranges[name], strict=True)
            if not low - 0.05 <= value <= high + 0.05
        ]


def _support(evidence: str, beyond: list[str]) -> Support:
    known = evidence.removesuffix(UNSEEN_MODEL)
    reasons = list(beyond)
    if known != "seen":
        reasons.append(f"energy or power: {known}; carried over by physics from what was measured")
    if evidence.endswith(UNSEEN_MODEL):
        reasons.append("energy or power: no model of this architecture was measured")
    level: SupportLevel = "in range" if not reasons else "near"
    if beyond or known in ("network unseen", "source unseen"):
        level = "outside"
    return Support(level, tuple(reasons))


def _limited(found: Measured, device: Device, devices: int) -> Measured:
    return Measured(_capped(found.value, device.power_limit_w * devices), found.support)


def _capped(value: Interval, limit: float) -> Interval:
    bound: Callable[[float], float] = lambda v: min(v, limit)  # noqa: E731 - one place, three uses
    return Interval(bound(value.median), bound(value.low), max(bound(value.high), bound(value.median)), value.unit)
