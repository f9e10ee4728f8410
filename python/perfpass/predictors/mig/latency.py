"""Latency of inference in one MIG instance that several MPS processes share.

Each process issues its kernels, copies its inputs and waits for its own work; all of them together keep the instance
busy. The run of one process takes the smooth maximum of the two:

    T = ((host + own_share d)^q + (processes d)^q)^(1/q),   host = issue x kernels + copy x bytes + start

with d the device time of one run on the slice: roofline seconds by operator group (the slice is a Device) times learned
efficiencies. Fitted on ParvaGPU's measurements (perfpass.training.mig); scoring needs NumPy alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArgumentError, ArtefactError, DeviceError, UnsupportedError
from perfpass.late import dataclass
from perfpass.prediction import SUPPORT_LEVELS
from perfpass.predictors.estimate import Bounds, Columns, Estimates
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.roofline import GEMM_RATE, GROUPS, ISSUE_S, bound

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.way import Way

# CUDA MPS serves at most 48 clients on a GPU since Volta (NVIDIA Multi-Process Service guide, "Limitations").
MOST_PROCESSES = 48
PARAMETERS = ("issue_s", "start_s", "copy_s_per_byte", "own_share", "sharpness")
# What makes an interval wide (`learned.spread`): a network whose operators no measured one spends its time on; another
# GPU, precision or runtime; more processes than were measured.
CAUSES = ("measurement", "laboratory", "network", "conditions", "processes")


@dataclass(frozen=True, eq=False)
class Work:
    """N runs in a slice: roofline seconds by operator group, launches, copied bytes and processes that share it."""

    group_s: np.ndarray  # [N, G]
    kernels: np.ndarray  # [N]
    copied_bytes: np.ndarray  # [N]
    processes: np.ndarray  # [N]

    @classmethod
    def stacked(cls, parts: list[Work]) -> Work:
        """All parts as one."""
        names = ("group_s", "kernels", "copied_bytes", "processes")
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))

    def take(self, rows: np.ndarray) -> Work:
        """Some of the runs."""
        return Work(self.group_s[rows], self.kernels[rows], self.copied_bytes[rows], self.processes[rows])


def unlike(group_s: np.ndarray, networks: np.ndarray) -> np.ndarray:
    """[N] square of the share of each run's roofline seconds [N, G] in operator groups in which no one of ``networks``
    spends them.

    ``networks`` [M, G]: of measured networks, rows sum to 1; the one that is most alike counts. As in fitted components
    widths grow with the share, not with its root: what is much like a measured network errs as that does.
    """
    share = group_s / np.maximum(group_s.sum(axis=1, keepdims=True), 1e-30)
    alike = np.stack([np.minimum(share, network).sum(axis=1) for network in networks])
    return np.square(1.0 - alike.max(axis=0))


def work_of(table: Any, way: Way, processes: int) -> Work:
    """One run of an operator table on a slice, by one of ``processes`` that share it."""
    roof = bound(table, way)
    count = np.asarray(table.count, dtype=np.float64)
    seconds = np.bincount(roof.group, roof.roof_s * count, len(GROUPS))
    kernels = float(roof.launched @ count)
    return Work(seconds[None], np.array([kernels]), np.array([float(way.copied_bytes)]), np.array([float(processes)]))


@dataclass(frozen=True, eq=False)
class MigModel:
    """The fitted parameters: `PARAMETERS` and the factor of each operator group on its roofline."""

    parameters: dict[str, float]
    efficiency: np.ndarray  # [G]

    def seconds(self, work: Work) -> np.ndarray:
        """[N] seconds of one run of one process."""
        p = self.parameters
        device_s = (work.group_s * self.efficiency).sum(axis=1)
        host_s = p["issue_s"] * work.kernels + p["start_s"] + p["copy_s_per_byte"] * work.copied_bytes
        own, shared = host_s + p["own_share"] * device_s, work.processes * device_s
        larger = np.maximum(own, shared)
        q = p["sharpness"]
        return np.asarray(larger * ((own / larger) ** q + (shared / larger) ** q) ** (1 / q))


class MigPredictor:
    """The shipped model with its bounds."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        manifest = artefacts.Artefact(folder or artefacts.shipped("mig")).manifest
        if manifest.get("groups") != list(GROUPS) or set(manifest.get("parameters", ())) != set(PARAMETERS):
            raise ArtefactError("the MIG artefact is not of this version; run `perfpass train`")
        if "spread" not in manifest:
            raise ArtefactError("the MIG artefact has no widths; run `perfpass train`")
        self.manifest = manifest
        self.spread = Spread.from_dict(manifest["spread"])
        self._networks = np.array([shares for _, shares in manifest["networks"]], dtype=np.float64)
        self.model = MigModel(manifest["parameters"], np.array(manifest["efficiency"], dtype=np.float64))

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> MigPredictor:
        """The shipped predictor, read once per process."""
        return MigPredictor()

    def check(self, way: Way, processes: int) -> None:
        """Raises ArgumentError for no such number, DeviceError for a CPU, UnsupportedError where issuing is unknown."""
        if isinstance(processes, bool) or not isinstance(processes, int) or not 1 <= processes <= MOST_PROCESSES:
            raise ArgumentError(f"processes must be a whole number from 1 to {MOST_PROCESSES}, got {processes!r}")
        if way.device.kind != "gpu":
            raise DeviceError(f"{way.device.name} is no GPU; MPS processes share a GPU or a MIG slice")
        if way.runtime not in ISSUE_S or way.precision not in GEMM_RATE:
            raise UnsupportedError(
                f"sharing by processes is predicted for {', '.join(ISSUE_S)} in {', '.join(GEMM_RATE)}, not for "
                f"{way.runtime} in {way.precision}"
            )

    def shared(
        self, found: Estimates, columns: Columns, way: Way, processes: int, corrected: bool
    ) -> tuple[Estimates, np.ndarray, np.ndarray]:
        """Estimates of N runs as those of one of ``processes`` that share the device.

        In the conditions that were measured (an A100 80 GB and its slices, fp32 in eager PyTorch, networks in range)
        the time is the model's, with the copy of the input; elsewhere the estimate, which a calibration may have
        corrected, is multiplied by what sharing adds, and the interval is wider. Raises what `check` does.

        ``corrected``: a calibration has spoken of the device. Returns them, [N] whether the model's own time was taken,
        and [N] the time over that of one process alone.
        """
        self.check(way, processes)
        seen = self._measured(way, corrected) & (found.level < SUPPORT_LEVELS.index("outside"))
        work = Work(
            columns["group_s"], columns["kernels"], columns["input_elements"] * 4.0, np.full(len(seen), 1.0 * processes)
        )
        asked_s = self.model.seconds(work)
        ratio = asked_s / self.model.seconds(replace(work, processes=np.ones(len(seen))))
        most = self.manifest["corpus"]["most_processes"]
        known: dict[str, np.ndarray | float] = {
            "measurement": 1.0,
            "laboratory": 1.0,
            "network": unlike(work.group_s, self._networks),
            "conditions": 0.0,
            "processes": max(float(np.log(processes / most)), 0.0) ** 2,
        }
        low, high = self.spread.bounds(known)
        measured_s = self.model.seconds(replace(work, processes=np.minimum(work.processes, most)))
        least, _ = self.spread.bounds(known | {"processes": 0.0})
        own = Bounds.around(asked_s * 1e3, low, high).at_least(1e3 * measured_s * np.exp(least))
        # Elsewhere the ratio alone is carried over: what is known of the time itself is the estimate's.
        base, shares = found.latency_ms, float(processes > 1)
        ratio_low, ratio_high = self.spread.bounds(
            {**known, "measurement": shares, "laboratory": 0.0, "network": 0.0, "conditions": shares}
        )
        scaled = Bounds.around(
            base.median * ratio,
            -np.hypot(np.log(base.median / base.low), ratio_low),
            np.hypot(np.log(base.high / base.median), ratio_high),
        ).at_least(base.low)  # what shares a device is no faster than what has it alone
        latency = own.or_else(scaled, seen)
        level = np.where(seen, np.int8(SUPPORT_LEVELS.index("near")), found.level)
        return replace(found, latency_ms=latency, level=level), seen, ratio

    def words(
        self, device: Device, processes: int, measured: bool, ratio: float
    ) -> tuple[str, dict[str, Any]]:  # fmt: skip
        """What is said of one of the processes: the reason of its support, and where its time comes from."""
        if measured:
            share = f"one of {processes} processes" if processes > 1 else "one process"
            reason = f"time of {share}, input copied, learned on slices of {device.name.split(' MIG ')[0]}"
        else:
            reason = f"{processes} processes share the device: {ratio:.2f} times the time of one (not measured here)"
        return reason, {"predictor": "mig", "processes": processes, "corpus": self.manifest["corpus"]["name"]}

    def _measured(self, way: Way, corrected: bool) -> bool:
        """Whether the model was fitted in these conditions, and nothing measured speaks of the device itself."""
        corpus = self.manifest["corpus"]
        return (
            (way.device.parent or way.device.id) in corpus["devices"]
            and (way.precision, way.runtime, way.layout) == ("fp32", "torch", "nchw")
            and not corrected
        )
