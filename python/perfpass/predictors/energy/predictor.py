"""Energy and power learned from measurements: serving, batch 1, diffusion, offline batches, training, whole servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from perfpass.devices import Device
from perfpass.prediction import Interval
from perfpass.predictors.energy import features
from perfpass.predictors.learned.component_predictor import ComponentPredictor, Learned
from perfpass.predictors.learned.component_widths import lacks
from perfpass.predictors.learned.components import Form

_16_BITS = 2.0
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


# The quantity that answers for servers.
AT_RATE = "serving_energy_at_rate"


def unlike_records(served: features.Served, runtime: str) -> dict[str, float]:
    """Lacks of a server's energy that no number of it tells: another runtime than vLLM, other than 16-bit weights,
    another vendor than NVIDIA.
    """
    return {
        "runtime": float(runtime != "vllm"),
        "precision": float(served.weight_bytes != _16_BITS),
        "vendor": float(served.device.vendor != "NVIDIA"),
    }


class EnergyPredictor(ComponentPredictor):
    """The learned quantities of `QUANTITIES`, from a trained artefact; NumPy alone."""

    AREA = "energy"
    QUANTITIES = QUANTITIES
    SUBJECT = "energy or power: "
    OUTSIDE = ("network unseen", "source unseen")

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> EnergyPredictor:
        """The shipped predictor, read once per process."""
        return EnergyPredictor()

    def serving(self, served: features.Served) -> Learned:
        """Joules per output token of all GPUs together, prompts included; vLLM of 2024, 16 bits."""
        return self.one("serving_energy", features.serving_rows([served]))

    def serving_at_rate(
        self, served: features.Served, tokens_per_s: float, more: Mapping[str, float] | None = None
    ) -> Learned:
        """The same where output tokens per second of the deployment are known; at most what the boards' limits give.

        ``more``: what the records lack (`unlike_records`).
        """
        found = self.one(AT_RATE, features.serving_at_rate_rows([served], [tokens_per_s]), more)
        most = served.devices * served.device.power_limit_w / tokens_per_s
        return replace(found, value=_capped(found.value, most))

    def lacks_at_rate(
        self, served: features.Served, tokens_per_s: float, more: Mapping[str, float]
    ) -> dict[str, np.ndarray | float]:
        """What is not known of `serving_at_rate`, by cause."""
        rows, fitted = features.serving_at_rate_rows([served], [tokens_per_s]), self.fitted[AT_RATE]
        lacking = {"load": self.far(AT_RATE, rows), **more}
        return lacks(fitted.form, fitted.evidence(rows), fitted.predict(rows)[1], lacking)

    def batch1(self, served: features.Served) -> Learned:
        """Joules per response in eager PyTorch at batch 1 on one GPU."""
        return self.one("batch1_energy", features.batch1_rows([served]))

    def diffusion(self, run: features.Diffused) -> Learned:
        """Joules per picture or video of a diffusion pipeline on one GPU."""
        return self.one("diffusion_energy", features.diffusion_rows([run]))

    def offline_power(self, run: features.Offline) -> Learned:
        """Mean watts of all devices while a batch of equal requests runs; at most the sum of their limits."""
        found = self.one("offline_power", features.offline_power_rows([run]))
        return _limited(found, run.device, run.devices)

    def training_power(self, run: features.Trained) -> Learned:
        """Mean watts of a GPU that trains, at the power limit that is set; at most that limit."""
        found = self.one("training_power", features.training_power_rows([run]))
        limit = min(run.power_limit_w, run.device.power_limit_w)
        return replace(found, value=_capped(found.value, limit))

    def server_power(self, run: features.Server) -> Learned:
        """Watts at the wall of a whole server under an MLPerf Inference load."""
        return self.one("server_power", features.server_power_rows([run]))


def _limited(found: Learned, device: Device, devices: int) -> Learned:
    return replace(found, value=_capped(found.value, device.power_limit_w * devices))


def _capped(value: Interval, limit: float) -> Interval:
    bound: Callable[[float], float] = lambda v: min(v, limit)  # noqa: E731 - one place, three uses
    return Interval(bound(value.median), bound(value.low), max(bound(value.high), bound(value.median)), value.unit)
