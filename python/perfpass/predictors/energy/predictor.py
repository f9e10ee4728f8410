"""Energy and power learned from measurements: serving, batch 1, diffusion, offline batches, training, whole servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.devices.product import same_chip
from perfpass.prediction import Interval
from perfpass.predictors.energy import features
from perfpass.predictors.estimate import Bounds
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
        """The same where output tokens per second of the deployment are known; ``more``: lacks as `unlike_records`.

        At least what idle boards draw and at most what their limits give, so that energy times rate is a power.
        """
        rows = features.serving_at_rate_rows([served], [tokens_per_s])
        found, other = self.one(AT_RATE, rows, more), self._with_chip(served.device)
        value = found.value
        if other is not None:
            alike = features.serving_at_rate_rows([replace(served, device=other)], [tokens_per_s])
            value = value.scaled(float(self.fitted[AT_RATE].predict(alike)[0][0]) / value.median, value.unit)
        return replace(found, value=_drawn(value, served.device, served.devices / tokens_per_s))

    def _with_chip(self, device: Device) -> Device | None:
        """The board that joules of ``device`` are told by: one of those learned from that has its chip, where it was
        not learned from itself; None where there is no such board.

        What it draws while it waits is told by the lower of their limits: a module's covers a host as well.
        """
        known = self.fitted[AT_RATE].names[0]
        if device.id in known or not device.is_gpu:
            return None
        other = next((board for name in known if same_chip(board := find_device(name), device)), None)
        return other and replace(other, power_limit_w=min(other.power_limit_w, device.power_limit_w))

    def serving_at_rates(
        self, served: Sequence[features.Served], tokens_per_s: np.ndarray, more: Mapping[str, float] | None = None
    ) -> Bounds:
        """[N] of `serving_at_rate` for deployments [N] on one device at their rates [N]."""
        rows, fitted = features.serving_at_rate_rows(served, tokens_per_s.tolist()), self.fitted[AT_RATE]
        median, spread = fitted.predict(rows)
        lacking: dict[str, np.ndarray | float] = {"load": self.far(AT_RATE, rows), **(more or {})}
        low, high = self.log_bounds(AT_RATE, fitted.evidence(rows), spread, lacking)
        device = served[0].device
        if other := self._with_chip(device):
            alike = [replace(one, device=other) for one in served]
            median = fitted.predict(features.serving_at_rate_rows(alike, tokens_per_s.tolist()))[0]
        scale = np.array([one.devices for one in served]) / tokens_per_s
        ends = min(device.idle_power_w, device.power_limit_w) * scale, device.power_limit_w * scale
        return Bounds(*(np.clip(v, *ends) for v in (median, median * np.exp(low), median * np.exp(high))))

    def lacks_at_rate(
        self, served: features.Served, tokens_per_s: float, more: Mapping[str, float]
    ) -> dict[str, np.ndarray | float]:
        """What is not known of `serving_at_rate`, by cause."""
        rows, fitted = features.serving_at_rate_rows([served], [tokens_per_s]), self.fitted[AT_RATE]
        lacking: dict[str, np.ndarray | float] = {"load": self.far(AT_RATE, rows), **more}
        return lacks(fitted.form, fitted.evidence(rows), fitted.predict(rows)[1], lacking, features.CAUSES)

    def batch1(self, served: features.Served) -> Learned:
        """Joules per response in eager PyTorch at batch 1 on one GPU."""
        return self.one("batch1_energy", features.batch1_rows([served]))

    def diffusion(self, run: features.Diffused) -> Learned:
        """Joules per picture or video of a diffusion pipeline on one GPU."""
        return self.one("diffusion_energy", features.diffusion_rows([run]))

    def offline_power(self, run: features.Offline) -> Learned:
        """Mean watts of all devices while a batch of equal requests runs; between their idle power and their limits."""
        found = self.one("offline_power", features.offline_power_rows([run]))
        return replace(found, value=_drawn(found.value, run.device, run.devices))

    def training_power(self, run: features.Trained) -> Learned:
        """Mean watts of a GPU that trains, at the power limit that is set; between idle and that limit."""
        found = self.one("training_power", features.training_power_rows([run]))
        return replace(found, value=_drawn(found.value, run.device, 1.0, run.power_limit_w))

    def server_power(self, run: features.Server) -> Learned:
        """Watts at the wall of a whole server under an MLPerf Inference load."""
        return self.one("server_power", features.server_power_rows([run]))


def _drawn(value: Interval, device: Device, scale: float, limit_w: float = np.inf) -> Interval:
    """``value`` within ``scale`` times what a board draws: from idle to its limit, or the one that is set."""
    most = min(limit_w, device.power_limit_w)
    ends = min(device.idle_power_w, most) * scale, most * scale
    low, median, high = (float(np.clip(v, *ends)) for v in (value.low, value.median, value.high))
    return Interval(median, low, high, value.unit)
