"""Latency of inference in one MIG instance that several MPS processes share.

Each process issues its kernels, copies its inputs and waits for its own work; all of them together keep the instance
busy. The run of one process takes the smooth maximum of the two:

    T = ((host + own_share d)^q + (processes d)^q)^(1/q),   host = issue x kernels + copy x bytes + start

with d the device time of one run on the slice: roofline seconds by operator group (the slice is a Device) times learned
efficiencies. Fitted on ParvaGPU's measurements (perfpass.training.mig); scoring needs NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArgumentError, ArtefactError, DeviceError, UnsupportedError
from perfpass.prediction import Interval, Support
from perfpass.predictors import artefacts
from perfpass.predictors.roofline import GEMM_RATE, GROUPS, ISSUE_S, Workload, bound

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.estimate import Estimate, Inputs

# CUDA MPS serves at most 48 clients on a GPU since Volta (NVIDIA Multi-Process Service guide, "Limitations").
MOST_PROCESSES = 48
PARAMETERS = ("issue_s", "start_s", "copy_s_per_byte", "own_share", "sharpness")
# Beyond what was measured (another GPU, precision, runtime, more processes): by hand, no data vouches for it.
_WIDENING = 2.0


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


def work_of(table: Any, device: Device, batch: int, precision: str, copied_bytes: float, processes: int) -> Work:
    """One run of an operator table on a slice."""
    roof = bound(table, device, Workload(batch, precision))
    count = np.asarray(table.count, dtype=np.float64)
    seconds = np.bincount(roof.group, roof.roof_s * count, len(GROUPS))
    kernels = float(roof.launched @ count)
    return Work(seconds[None], np.array([kernels]), np.array([float(copied_bytes)]), np.array([float(processes)]))


@dataclass(frozen=True, eq=False)
class MigModel:
    """The fitted parameters: `PARAMETERS` and the factor of each operator group on its roofline."""

    parameters: dict[str, float]
    efficiency: np.ndarray  # [G]

    def seconds(self, work: Work) -> np.ndarray:
        """[N] seconds of one run of one process."""
        p = self.parameters
        device_s = work.group_s @ self.efficiency
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
        self.manifest = manifest
        self.model = MigModel(manifest["parameters"], np.array(manifest["efficiency"], dtype=np.float64))

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> MigPredictor:
        """The shipped predictor, read once per process."""
        return MigPredictor()

    def apply(self, estimate: Estimate, inputs: Inputs, wanted: int | None) -> Estimate:
        """``estimate`` as that of one of ``wanted`` processes that share the device (None: one, if it is a slice).

        In the conditions that were measured (slices of an A100 80 GB, fp32 in eager PyTorch, networks in range) the
        time is the model's, with the copy of the input; elsewhere the estimate, which a calibration may have corrected,
        is multiplied by what sharing adds, and the interval is wider. Raises ArgumentError, DeviceError for a CPU, and
        UnsupportedError for a runtime whose issue time is unknown.
        """
        processes = 1 if wanted is None else wanted
        if isinstance(processes, bool) or not isinstance(processes, int) or not 1 <= processes <= MOST_PROCESSES:
            raise ArgumentError(f"processes must be a whole number from 1 to {MOST_PROCESSES}, got {processes!r}")
        device, manifest = inputs.device, self.manifest
        if wanted is None and not self._measured(estimate, inputs, processes):
            return estimate
        if device.kind != "gpu":
            raise DeviceError(f"{device.name} is no GPU; MPS processes share a GPU or a MIG slice")
        if inputs.runtime not in ISSUE_S or inputs.precision not in GEMM_RATE:
            raise UnsupportedError(
                f"sharing by processes is predicted for {', '.join(ISSUE_S)} in {', '.join(GEMM_RATE)}, not for "
                f"{inputs.runtime} in {inputs.precision}"
            )
        copied = float(sum(np.prod(inputs.graph.shape(int(t))) for t in inputs.graph.graph_inputs)) * 4.0
        asked, alone = (
            work_of(inputs.table, device, inputs.batch, inputs.precision, copied, n) for n in (processes, 1)
        )
        seen = self._measured(estimate, inputs, processes)
        if seen:
            median = float(self.model.seconds(asked)[0]) * 1e3
            low, high = (float(v) for v in manifest["bounds"])
            share = f"one of {processes} processes" if processes > 1 else "one process"
            reason = f"time of {share} in a slice, input copied, learned on slices of {device.name.split(' MIG ')[0]}"
        else:
            shared = float(self.model.seconds(asked)[0] / self.model.seconds(alone)[0])
            median = estimate.latency_ms.median * shared
            base = estimate.latency_ms
            extra = _WIDENING * max(-manifest["bounds"][0], manifest["bounds"][1]) if processes > 1 else 0.0
            low = -float(np.hypot(np.log(base.median / base.low), extra))
            high = float(np.hypot(np.log(base.high / base.median), extra))
            reason = f"{processes} processes share the device: {shared:.2f} times the time of one (not measured here)"
        latency = Interval(median, median * float(np.exp(low)), median * float(np.exp(high)), "ms")
        level = estimate.support.level if not seen or estimate.support.level == "outside" else "near"
        return replace(
            estimate,
            latency_ms=latency,
            row_ms=estimate.row_ms * (median / estimate.latency_ms.median),
            support=Support(level, (*estimate.support.reasons, reason)),
            provenance={
                **estimate.provenance,
                "sharing": {"predictor": "mig", "processes": processes, "corpus": manifest["corpus"]["name"]},
            },
        )

    def _measured(self, estimate: Estimate, inputs: Inputs, processes: int) -> bool:
        """Whether the model was fitted in these conditions, and nothing measured speaks of the device itself."""
        corpus = self.manifest["corpus"]
        return (
            inputs.device.parent in corpus["devices"]
            and (inputs.precision, inputs.runtime, inputs.layout) == ("fp32", "torch", "nchw")
            and processes <= corpus["most_processes"]
            and estimate.support.level != "outside"
            and "calibration" not in estimate.provenance
        )
