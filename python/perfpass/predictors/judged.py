"""Whether a predicted run fits into its device, and what would help where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perfpass.devices import Device
from perfpass.prediction import ABOVE_MEMORY, Interval, MemoryVerdict, Prediction, Support, fits
from perfpass.predictors.memory.allowance import driver_bytes
from perfpass.predictors.memory.process import beside_high_bytes
from perfpass.predictors.workload import PRECISIONS
from perfpass.text import size

# What takes less memory, by the precision asked for, in the order tried; training keeps fp32 weights (autocast).
_NARROWER = {
    "fp64": ("fp32", "bf16", "fp16"),
    "fp32": ("bf16", "fp16", "fp8", "int8"),
    "tf32": ("bf16", "fp16", "fp8", "int8"),
    "amp": ("bf16", "fp16", "fp8", "int8"),
    "amp_bf16": ("bf16", "fp16", "fp8", "int8"),
    "fp16": ("fp8", "int8"),
    "bf16": ("fp8", "int8"),
}
# The upper bound on boards of another vendor, whose libraries take other workspaces, over that of one's own. By hand.
_OTHER_VENDOR = 1.3
_NARROWER_TRAINING = {"fp64": ("fp32", "amp"), "fp32": ("amp_bf16", "amp"), "tf32": ("amp_bf16", "amp")}


def judged(
    found: Prediction,
    device: Device,
    peak_at: Callable[[int], float] | None,
    peak_in: Callable[[str], float],
) -> Prediction:
    """``found`` with its verdict on the memory of the device.

    ``peak_at`` and ``peak_in`` give the upper bound of the peak in bytes, of one process, at another batch (None where
    the model cannot be read again) and in another precision; they are asked only where it may not fit.
    """
    processes = found.workload.get("processes") or 1
    peak = together(found.peak_memory_bytes, processes, driver_bytes(device))
    answer = fits(peak, device.memory_bytes)
    verdict = MemoryVerdict(
        fits=answer,
        needed_bytes=int(peak.median),
        needed_high_bytes=int(peak.high),
        available_bytes=device.memory_bytes,
        remedies=() if answer == "yes" else _remedies(found, peak, processes, device, peak_at, peak_in),
        probability=peak.probability_below(device.memory_bytes, share_above=ABOVE_MEMORY),
    )
    support = found.support
    if answer != "yes":
        support = Support(support.level, (*support.reasons, _reason(answer)))
    if device.unread:
        support = support.at_most("near", device.unread)
    return replace(found, memory_verdict=verdict, support=support)


def together(one: Interval, processes: int, driver: float) -> Interval:
    """Memory in use of all processes: what the driver keeps for itself is there once."""
    more = (processes - 1) * driver
    low, median, high = (processes * value - more for value in (one.low, one.median, one.high))
    return Interval(median, min(max(low, 0.0), median), high, one.unit, one.coverage)


def _holds(found: Prediction, peak: Interval, processes: int, device: Device) -> Callable[[Device], bool]:
    """Whether another device holds the same run: what lies beside its tensors may be more there."""
    runtime = found.workload["runtime"]
    here = beside_high_bytes(device, runtime)

    def holds(other: Device) -> bool:
        more = max(0.0, beside_high_bytes(other, runtime) - here)
        tensors = 1.0 if other.vendor == device.vendor else _OTHER_VENDOR
        return other.memory_bytes >= tensors * peak.high + processes * more

    return holds


def _reason(answer: str) -> str:
    if answer == "no":
        return "it does not fit: the figures are those of the device with enough memory"
    return "it may not fit into the memory of the device"


def _remedies(
    found: Prediction,
    peak: Interval,
    processes: int,
    device: Device,
    peak_at: Callable[[int], float] | None,
    peak_in: Callable[[str], float],
) -> tuple[str, ...]:
    # Imported here: most questions fit.
    from perfpass.predictors import remedies

    workload, available = found.workload, device.memory_bytes / processes
    out = []
    if processes > 1 and found.peak_memory_bytes.high <= device.memory_bytes:
        driver = driver_bytes(device)
        fewer = int((device.memory_bytes - driver) / (found.peak_memory_bytes.high - driver))
        out.append(f"{fewer} process{'es' * (fewer > 1)}")
    if peak_at is not None:
        one = found.peak_memory_bytes.high
        if (batch := remedies.smaller_batch(peak_at, int(workload["batch"]), one, available)) is not None:
            out.append(f"batch {batch[0]} (up to {size(batch[1] * processes)})")
    table = _NARROWER_TRAINING if workload["mode"] == "training" else _NARROWER
    able = [p for p in table.get(workload["precision"], ()) if PRECISIONS[p][1] in device.peak_flops]
    if (precision := remedies.narrower(able, peak_in, available)) is not None:
        out.append(f"precision {precision[0]} (up to {size(precision[1] * processes)})")
    if (profile := remedies.larger_profile(device, peak.high)) is not None:
        out.append(profile)
    if (larger := remedies.larger_devices(device, _holds(found, peak, processes, device))) is not None:
        out.append(larger)
    return tuple(out)
