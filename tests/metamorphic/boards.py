"""Devices that are asked about, and which of two is better by the catalogue alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import perfpass
from perfpass.devices import Device

# With records of inference or training, of serving, of generation; then without any.
GPUS = (
    *("a100-sxm4-40gb", "gtx-1080-ti", "rtx-2080-ti", "rtx-3090", "rtx-4090", "titan-rtx", "titan-v", "titan-xp"),
    *("rtx-pro-6000-blackwell-max-q", "h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "b300-sxm-288gb"),
    *("a100-sxm4-80gb", "a100-pcie-40gb", "mi300x", "mi250-gcd", "max-1550", "v100-sxm2-16gb", "v100-sxm2-32gb"),
    *("p100-pcie-16gb", "t4", "a10", "a10g", "a30", "a40", "l4", "l40", "l40s", "h100-pcie-80gb", "h100-nvl-94gb"),
    *("rtx-a4000", "rtx-a6000", "rtx-6000-ada", "rtx-pro-6000-blackwell", "rtx-2060", "rtx-2080", "gtx-1660-ti"),
    *("rtx-3060-12gb", "rtx-3080-10gb", "rtx-4070", "rtx-4080", "rtx-5080", "rtx-5090", "gtx-980-ti", "p4"),
    *("mi210", "mi325x", "rx-6800-xt", "rx-6900-xt", "rx-7900-xt", "rx-7900-xtx", "apple-m2-max", "apple-m2-ultra"),
    *("jetson-orin-nx-8gb", "jetson-orin-nx-16gb", "jetson-agx-orin-64gb"),
)
CPUS = (
    *("core-i7-12700h", "core-i9-10940x", "xeon-gold-6226", "xeon-gold-6248", "xeon-platinum-8280"),
    *("xeon-platinum-8358", "xeon-platinum-8380", "xeon-platinum-8480-plus", "xeon-platinum-8592-plus"),
    *("core-i7-12700k", "core-i9-12900k", "core-i9-13900k", "core-i9-14900k", "epyc-7302", "epyc-7763"),
    *("epyc-9354", "epyc-9654", "epyc-9755", "ryzen-7-7700x", "ryzen-9-7950x", "ryzen-9-9950x", "graviton3"),
    "graviton4",
)
SLICED = (
    *("a30", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h100-pcie-80gb", "h200-sxm-141gb"),
    *("b200-sxm-180gb", "rtx-pro-6000-blackwell"),
)
# Known from runs of one laboratory that state no release of PyTorch and no host: the time of that host is in their
# figures, so that they are compared with nothing.
OF_ANOTHER_HOST = {"a100-sxm4-40gb", "gtx-1080-ti", "rtx-2080-ti", "titan-rtx", "titan-v", "titan-xp"}
# The arithmetic that decides: the precision's own, that of vector work, and TF32, in which fp32 convolutions run.
_RATES = {"amp": ("fp16", "fp32"), "amp_bf16": ("bf16", "fp32"), "fp32": ("fp32", "tf32"), "fp64": ("fp64",)}
_FIGURES = ("memory_bandwidth_bytes_s", "memory_bytes", "l2_bytes")
_OF_KIND = {"gpu": ("power_limit_w", "pcie_bandwidth_bytes_s"), "cpu": ("l3_bytes", "clock_hz")}


@cache
def device(name: str) -> Device:
    """The device of a name."""
    return perfpass.device(name)


def can(name: str, precision: str) -> bool:
    """Whether a device has the arithmetic of a precision."""
    rate = {"amp": "fp16", "amp_bf16": "bf16"}.get(precision, precision)
    return rate in device(name).peak_flops


def rates(precision: str) -> tuple[str, ...]:
    """The rates that the time at a precision depends on."""
    return _RATES.get(precision, (precision, "fp32"))


def better(one: Device, other: Device, used: Sequence[str]) -> bool:
    """Whether ``other`` is behind ``one`` in nothing: rates, bandwidth, memory, caches, power; and is not the same.

    Only devices of one vendor and kind that stand in alike hosts are compared, and only with an architecture that is
    not older: what the catalogue does not hold (instructions, schedulers, drivers) is then no worse either.
    """
    if (one.vendor, one.kind, _host(one)) != (other.vendor, other.kind, _host(other)):
        return False
    if one.compute_capability and other.compute_capability:
        if other.compute_capability < one.compute_capability:
            return False
    elif (one.is_gpu and one.architecture != other.architecture) or (one.launch_date or "") > (other.launch_date or ""):
        return False
    pairs = [(getattr(one, name), getattr(other, name)) for name in (*_FIGURES, *_OF_KIND[one.kind])]
    pairs += [(one.peak_flops.get(rate, 0.0), other.peak_flops.get(rate, 0.0)) for rate in used]
    pairs.append((one.memory_type.startswith("HBM"), other.memory_type.startswith("HBM")))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _host(found: Device) -> str:
    """What the device stands in, as far as its name and its records tell."""
    if found.id in OF_ANOTHER_HOST:
        return found.id
    kinds = ("Jetson", "Laptop", "GB10", "GB200", "GB300", "GH200", "MI300A", "Ryzen AI", "Apple")
    return next((kind for kind in kinds if kind in found.name), "")


@cache
def ordered(names: tuple[str, ...], precision: str) -> list[tuple[str, str]]:
    """Pairs (worse, better) of which all others follow."""
    used = rates(precision)
    usable = [name for name in names if can(name, precision)]
    behind = {a: {b for b in usable if a != b and better(device(a), device(b), used)} for a in usable}
    return [(a, b) for a in usable for b in sorted(behind[a]) if not any(b in behind[c] for c in behind[a])]


def slices(name: str) -> list[tuple[str, str]]:
    """Pairs (smaller, larger) of profiles, of which all others follow; the whole GPU is the last."""
    whole = device(name)
    assert whole.mig is not None
    profiles = {f"{name}:{p.name}": (p.sm_count, p.memory_slices, p.compute_slices) for p in whole.mig.profiles}
    profiles[name] = (whole.sm_count, whole.mig.memory_slices, whole.mig.compute_slices + 1)
    behind = {
        a: {b for b in profiles if a != b and all(x <= y for x, y in zip(profiles[a], profiles[b], strict=True))}
        for a in profiles
        if not a.endswith("+me")
    }
    behind = {a: {b for b in bs if b in behind} for a, bs in behind.items()}
    return [(a, b) for a in behind for b in sorted(behind[a]) if not any(b in behind[c] for c in behind[a])]


def whole_slice(name: str) -> str | None:
    """The profile with every unit of the GPU, if it has one."""
    whole = device(name)
    assert whole.mig is not None
    for profile in whole.mig.profiles:
        if profile.sm_count == whole.sm_count and profile.memory_slices == whole.mig.memory_slices:
            return f"{name}:{profile.name}"
    return None
