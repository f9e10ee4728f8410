"""Which MIG profile a workload fits into, from its predicted memory."""

from __future__ import annotations

import math

from perfpass.devices import Device, MigProfile
from perfpass.errors import ArgumentError
from perfpass.prediction import MigHint

# Panner Selvam and Brorsson, "DIPPM: a Deep Learning Inference Performance Predictive Model using Graph Neural
# Networks" (Euro-Par 2023), equation 1: the profile of an A100 40 GB whose capacity is the first above the predicted
# memory. The paper's gigabytes are NVML's, so GiB.
_DIPPM_RULE = ((5, "1g.5gb"), (10, "2g.10gb"), (20, "3g.20gb"), (40, "7g.40gb"))


def hint(memory_bytes: float, device: Device) -> MigHint:
    """The smallest MIG profile of ``device`` whose usable memory holds ``memory_bytes``.

    ``memory_bytes`` is the upper bound of the predicted peak: too small an instance is a crash. "Smallest" is the least
    memory, then the fewest compute slices, so that most instances fit on one GPU; profiles that only add media engines
    (+me) are left out. ``instances_per_gpu`` is how many of the profile one GPU holds. Raises ArgumentError for a
    size that is not a finite number of at least 0.
    """
    if not math.isfinite(memory_bytes) or memory_bytes < 0:
        raise ArgumentError(f"memory must be a finite number of bytes, at least 0, got {memory_bytes!r}")
    need = f"{memory_bytes / 2**30:.2f} GiB"
    geometry = device.mig
    if geometry is None:
        return MigHint(None, 0, _reason_without_mig(memory_bytes, need, device))
    fitting = [p for p in geometry.profiles if "+" not in p.name and p.memory_bytes >= memory_bytes]
    if not fitting:
        largest = max(geometry.profiles, key=lambda p: p.memory_bytes)
        return MigHint(
            None,
            0,
            f"needs up to {need}, more than the {largest.memory_bytes / 2**30:.2f} GiB of the largest profile "
            f"{largest.name}; use the whole GPU without MIG, a GPU with more memory or a smaller batch",
        )
    best = min(fitting, key=lambda p: (p.memory_bytes, p.compute_slices))
    return MigHint(best.name, best.max_instances, _reason(best, fitting, need, geometry.listing))


def dippm_rule(memory_bytes: float) -> str | None:
    """The profile that DIPPM's published rule gives on an A100 40 GB; None from 40 GiB on.

    The rule compares with nominal capacities. The driver leaves 4.75 of 5 GiB to programs (and so on), so a workload
    within 5 % below a threshold does not fit: ``hint`` takes the usable sizes.
    """
    if not math.isfinite(memory_bytes) or memory_bytes < 0:
        raise ArgumentError(f"memory must be a finite number of bytes, at least 0, got {memory_bytes!r}")
    return next((profile for gib, profile in _DIPPM_RULE if memory_bytes < gib * 2**30), None)


def _reason(best: MigProfile, fitting: list[MigProfile], need: str, listing: str) -> str:
    usable = f"{best.memory_bytes / 2**30:.2f} GiB"
    reason = f"needs up to {need}; {best.name} is the smallest profile that holds it ({usable} usable"
    reason += ", estimated)" if listing == "by-rule" else ")"
    stronger = [p for p in fitting if p.memory_slices == best.memory_slices and p.compute_slices > best.compute_slices]
    if stronger:
        best_alternative = min(stronger, key=lambda p: p.compute_slices)
        reason += (
            f"; {best_alternative.name} has the same memory and {best_alternative.sm_count} SMs instead of "
            f"{best.sm_count}, {best_alternative.max_instances} to a GPU"
        )
    return reason


def _reason_without_mig(memory_bytes: float, need: str, device: Device) -> str:
    if device.mig_profile is not None:
        fits = "fits" if memory_bytes <= device.memory_bytes else "does not fit"
        return f"the device is the MIG slice {device.mig_profile} already; up to {need} {fits} into it"
    if device.kind == "cpu":
        return "a CPU has no MIG"
    if device.vendor != "NVIDIA":
        return f"{device.name} has no MIG (an NVIDIA feature)"
    if device.compute_capability is not None and device.compute_capability < (8, 0):
        return (
            f"{device.name} has no MIG (it came with compute capability 8.0, this is {device.compute_capability[0]}."
            f"{device.compute_capability[1]})"
        )
    return f"{device.name} has no MIG profiles in the MIG user guide"
