"""Low-rank adapters as a transformation of a load: every step reads and computes them beside the matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.adapters import Adapters
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch, StepTime
from perfpass.llm.costs import peak_flops
from perfpass.llm.memory import Beside
from perfpass.predictors.switches.load import Change, Deployment, Load

# Punica adds 2 ms to a token of a model of 32 layers with adapters beside 7 matrices of each (arXiv:2310.18547,
# abstract), two kernels for each: 448 of them.
_LAUNCH_S = 2e-3 / 448
# Of the peaks, that kernels as thin as a rank reach. By hand.
_MEMORY, _COMPUTE = 0.4, 0.2
_SPREAD = 0.15


@dataclass(frozen=True)
class AdaptedSteps(StepTime):
    """Steps of a model whose requests have adapters."""

    steps: StepTime
    model: LanguageModel
    device: Device
    adapters: Adapters
    tensor: int
    pipeline: int

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps."""
        requests = np.asarray(batch.prompts, dtype=np.float64) + batch.decodes
        tokens = np.asarray(batch.prompt_tokens, dtype=np.float64) + batch.decodes
        read = self.adapters.traffic_bytes(self.model, requests, self.tensor)
        bandwidth = self.device.memory_bandwidth_bytes_s * _MEMORY
        peak = peak_flops(self.device.peak_flops, "bf16") * _COMPUTE
        work = np.maximum(read / bandwidth, self.adapters.flops(self.model, tokens, self.tensor) / peak)
        issued = np.where(tokens > 0, self.adapters.launches(self.model) * _LAUNCH_S, 0.0)
        return np.asarray(self.steps.seconds(batch) + issued + work)

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds of ``steps`` decode steps in a row: the adapters' part is the same in each."""
        plain = self.steps.decode_run(decodes, decode_context, steps)
        one = self.steps.one(0.0, 0.0, 0.0, 0.0, decodes, decode_context)
        return plain + steps * (self.one(0.0, 0.0, 0.0, 0.0, decodes, decode_context) - one)


def adapt(deployment: Deployment, load: Load, adapters: Adapters) -> Change:
    """Steps with adapters; those that are not resident come from the host before a prefill.

    Raises ArgumentError for a device without a stated PCIe bandwidth where some are swapped.
    """
    model, device, split = deployment.model, deployment.device, deployment.serving.parallelism
    steps = AdaptedSteps(load.steps, model, device, adapters, split.tensor, split.pipeline)
    fetch = 0.0
    if adapters.swapped_share:
        # A device states both directions together.
        link = device.pcie_bandwidth_bytes_s / 2
        if not link:
            raise ArgumentError(f"{device.name} states no PCIe bandwidth, so swapping adapters has no time")
        fetch = adapters.swapped_share * adapters.held_bytes(model, split.tensor) / adapters.held / link
    swapped = "" if adapters.resident is None else f", {adapters.resident} on the GPU at once"
    on = f"{'all matrices' if adapters.targets == 'all' else adapters.targets}"
    real = adapters.rank > 0 and adapters.count > 0
    return Change(
        replace(load, steps=steps, fetch_s=load.fetch_s + fetch) if real else load,
        f"{adapters.count} LoRA adapters of rank {adapters.rank} on {on}{swapped}",
        Beside(weights_bytes=adapters.held_bytes(model, split.tensor) / split.pipeline),
        _SPREAD if real else 0.0,
        "no record has adapters: their kernels are taken as those of Punica" if real else "",
        {"rank": adapters.rank, "adapters": adapters.count, "resident": adapters.held, "fetch_ms": 1e3 * fetch},
    )
