"""Which MIG profile a workload fits into, from its memory, and how large a one it keeps busy, from its utilisation."""

from __future__ import annotations

import math

from perfpass.devices import Device, MigProfile
from perfpass.errors import ArgumentError
from perfpass.prediction import MigHint
from perfpass.text import size

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
    need = _need(memory_bytes)
    geometry = device.mig
    if geometry is None:
        return MigHint(None, 0, _reason_without_mig(memory_bytes, need, device))
    fitting = [p for p in geometry.profiles if "+" not in p.name and p.memory_bytes >= memory_bytes]
    if not fitting:
        largest = max(geometry.profiles, key=lambda p: p.memory_bytes)
        return MigHint(
            None,
            0,
            f"needs up to {need}, more than the {size(largest.memory_bytes)} of the largest profile "
            f"{largest.name}; use the whole GPU without MIG, a GPU with more memory or a smaller batch",
        )
    best = min(fitting, key=lambda p: (p.memory_bytes, p.compute_slices, -p.max_instances))
    return MigHint(best.name, best.max_instances, _reason(best, fitting, need, geometry.listing))


def dippm_rule(memory_bytes: float) -> str | None:
    """The profile that DIPPM's published rule gives on an A100 40 GB; None from 40 GiB on.

    The rule compares with nominal capacities. The driver leaves 4.75 of 5 GiB to programs (and so on), so a workload
    within 5 % below a threshold does not fit: ``hint`` takes the usable sizes.
    """
    if not math.isfinite(memory_bytes) or memory_bytes < 0:
        raise ArgumentError(f"memory must be a finite number of bytes, at least 0, got {memory_bytes!r}")
    return next((profile for gib, profile in _DIPPM_RULE if memory_bytes < gib * 2**30), None)


def utilisation(
    flops: float, moved_bytes: float, latency_ms: float, peak_flop_s: float, bandwidth_bytes_s: float
) -> float:
    """Share of a device that a run keeps busy: of peak compute or of bandwidth, whichever is larger; at most 1.

    ``flops`` and ``moved_bytes`` are of one run of ``latency_ms``. Raises ArgumentError for a time or rate that is not
    above 0 and for negative work.
    """
    rates = {"latency_ms": latency_ms, "peak_flop_s": peak_flop_s, "bandwidth_bytes_s": bandwidth_bytes_s}
    for name, value in rates.items():
        if not math.isfinite(value) or value <= 0:
            raise ArgumentError(f"{name} must be a finite number above 0, got {value!r}")
    for name, value in {"flops": flops, "moved_bytes": moved_bytes}.items():
        if not math.isfinite(value) or value < 0:
            raise ArgumentError(f"{name} must be a finite number of at least 0, got {value!r}")
    seconds = latency_ms / 1e3
    return min(1.0, max(flops / seconds / peak_flop_s, moved_bytes / seconds / bandwidth_bytes_s))


def advise(share: float, memory_bytes: float, device: Device) -> MigHint:
    """The slice of ``device`` that a workload which keeps ``share`` (0 to 1) of the whole device busy should get.

    The rule: under 25 % the smallest number of compute slices, from 25 to 50 % the next, and above that the remaining
    sizes share the upper half evenly (on seven slices 3g to 66.7 %, 4g to 83.3 %, 7g; on four slices 4g). A size none
    of whose profiles holds ``memory_bytes`` is passed over, and the reason says so; among profiles of one size the
    least memory that fits is taken, without media engines (+me). The rule packs many workloads on one GPU: a slice may
    be smaller than the share, and the reason then says how much longer a run may take. ``share``: see `utilisation`, or
    a measured SM utilisation. Raises ArgumentError for a share outside 0 to 1 and for a size that is not finite and at
    least 0.
    """
    if not math.isfinite(share) or not 0 <= share <= 1:
        raise ArgumentError(f"utilisation must be between 0 and 1, got {share!r}")
    need = _need(memory_bytes)
    geometry = device.mig
    if geometry is None:
        return MigHint(None, 0, _reason_without_mig(memory_bytes, need, device))
    profiles = [p for p in geometry.profiles if "+" not in p.name]
    sizes = sorted({p.compute_slices for p in profiles})
    first = _rung(share, len(sizes))
    passed: list[MigProfile] = []
    for slices in sizes[first:]:
        candidates = [p for p in profiles if p.compute_slices == slices]
        fitting = [p for p in candidates if p.memory_bytes >= memory_bytes]
        if fitting:
            best = min(fitting, key=lambda p: p.memory_bytes)
            passed += [p for p in candidates if p.memory_bytes < memory_bytes]
            return MigHint(best.name, best.max_instances, _advice(share, best, passed, need, device))
        passed += candidates
    return MigHint(
        None,
        0,
        f"keeps {share:.0%} of the device busy and needs up to {need}, more than any profile from "
        f"{sizes[first]}g on holds; use the whole GPU without MIG, a GPU with more memory or a smaller batch",
    )


def _need(memory_bytes: float) -> str:
    """The size as reasons show it. Raises ArgumentError for one that is not finite and at least 0."""
    if not math.isfinite(memory_bytes) or memory_bytes < 0:
        raise ArgumentError(f"memory must be a finite number of bytes, at least 0, got {memory_bytes!r}")
    return size(memory_bytes)


def _rung(share: float, sizes: int) -> int:
    """Index of the size that the rule gives: two quarters, then equal parts of the upper half."""
    if share < 0.5:
        return min(int(share >= 0.25), sizes - 1)
    upper = sizes - 2
    if upper < 1:
        return sizes - 1
    return 2 + min(int((share - 0.5) / 0.5 * upper), upper - 1)


def _advice(share: float, best: MigProfile, passed: list[MigProfile], need: str, device: Device) -> str:
    reason = f"keeps {share:.0%} of the device busy; {best.name} has {best.sm_count} of {device.sm_count} SMs"
    if passed:
        small = ", ".join(f"{p.name} ({size(p.memory_bytes)})" for p in passed)
        reason += f"; skipped, too small for up to {need}: {small}"
    part = best.sm_count / device.sm_count
    if share > 1.05 * part:
        reason += f"; a run may take up to {share / part:.1f} times as long as on the whole GPU"
    return reason


def _reason(best: MigProfile, fitting: list[MigProfile], need: str, listing: str) -> str:
    usable = size(best.memory_bytes)
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
        fits = "fits" if memory_bytes <= device.usable_bytes else "does not fit"
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
