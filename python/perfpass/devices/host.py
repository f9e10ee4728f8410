"""The CPU of this machine as a Device, from /proc and /sys."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from perfpass.devices.spec import IDLE_SHARE_CPU, Device
from perfpass.errors import DeviceError

# fp32 FLOP per core and cycle by vector extension: lanes x 2 (fused multiply-add) x 2 units.
# Source: Intel 64 and IA-32 Architectures Optimization Reference Manual; AMD Software Optimization Guides (Zen 4,
# Zen 5); Arm Neoverse N1 and V1 Software Optimization Guides. Cores with one 512-bit unit reach half: the notes say so.
_FP32_PER_CYCLE = (("avx512f", 64), ("fma", 32), ("avx", 16), ("asimd", 16), ("sse2", 8))
# AMD's cores that run a 512-bit instruction in two halves: all of Zen 4 (family 25); of Zen 5 (family 26) the models
# of Strix Point and Krackan Point. In a cycle they do what AVX2 does. Source: A. J. Yee, Zen 4's and Zen 5's AVX512
# Teardown (numberworld.org, 2022 and 2024); which models those are is set by hand.
_HALVED_AVX512 = {25: range(256), 26: (*range(0x20, 0x30), *range(0x60, 0x70))}
# AMX: 1,024 bf16 and 2,048 int8 multiply-adds (two operations each) per core and cycle (Intel Optimization Manual,
# chapter on AMX).
_AMX_BF16_PER_CYCLE = 2048
_AMX_INT8_PER_CYCLE = 4096
# 8 bits over fp32 of a CPU with fused multiply-adds and without VNNI, as of those in the catalogue: vpmaddubsw and
# vpmaddwd take the two units for four times the numbers, their sums another one.
_INT8_ALONE = 2.0


def host(root: Path = Path("/")) -> Device:
    """The CPU of this machine; ``root`` is the file system to look at. Raises DeviceError where it is not Linux.

    Peaks are cores x FLOP per cycle x highest clock. Bandwidth and power cannot be read: they are estimated from the
    number of cores, and everything estimated is flagged.
    """
    try:
        cpuinfo = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        meminfo = (root / "proc/meminfo").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DeviceError(
            f"cannot detect the CPU: {error}; only Linux is supported, elsewhere describe it in a device file"
        ) from error
    processors = [_fields(block) for block in cpuinfo.split("\n\n") if block.strip()]
    first = processors[0] if processors else {}
    flags = set(first.get("flags", first.get("Features", "")).split())
    cores = len({(p.get("physical id", "0"), p.get("core id", str(i))) for i, p in enumerate(processors)}) or 1
    clock, clock_read = _clock_hz(root, processors)
    memory = int(_fields(meminfo).get("MemTotal", "1048576 kB").split()[0]) * 1024
    l2, l3 = _caches(root, len(processors), cores)

    vector, per_cycle = next(((flag, flop) for flag, flop in _FP32_PER_CYCLE if flag in flags), ("scalar", 4))
    narrow_int8 = _INT8_ALONE if vector in ("fma", "avx512f") else 1.0
    halved = vector == "avx512f" and _halves_avx512(first)
    if halved:
        per_cycle = dict(_FP32_PER_CYCLE)["fma"]
    rate = per_cycle * cores * clock
    narrow_bf16 = 2.0 if "avx512_bf16" in flags else 0.5
    peaks = {
        "fp64": rate / 2,
        "fp32": rate,
        "fp16": rate * (2.0 if "avx512_fp16" in flags or "asimdhp" in flags else 0.5),
        "bf16": _AMX_BF16_PER_CYCLE * cores * clock if "amx_bf16" in flags else rate * narrow_bf16,
        "int8": _AMX_INT8_PER_CYCLE * cores * clock
        if "amx_int8" in flags
        else rate * (4.0 if {"avx512_vnni", "avx_vnni", "asimddp"} & flags else narrow_int8),
    }
    # Two to twelve memory channels of 20 to 40 GB/s, growing with the number of cores; at least dual-channel DDR4.
    bandwidth = min(max(40e9, 8e9 * cores), 500e9)
    # 5 W a core and 20 W for the rest, the ratio of Intel's and AMD's server lines of 2019 to 2024.
    power = 20.0 + 5.0 * cores
    notes = [
        f"detected: {cores} cores, {vector}{', amx' if 'amx_bf16' in flags else ''}, {clock / 1e9:.2f} GHz",
        "peaks are cores x FLOP per cycle x clock, for two vector units a core; "
        + ("512 bits take two cycles on these cores" if halved else "a core with one reaches half"),
        "bandwidth (8 GB/s a core, 40 to 500) and power (20 W + 5 W a core) are estimated from the number of cores",
    ]
    if not clock_read:
        notes.append("the highest clock cannot be read here; the momentary one, or 2.5 GHz, stands in its place")
    return Device(
        id="host-cpu",
        name=_model_name(first),
        kind="cpu",
        vendor=first.get("vendor_id", "unknown").replace("Genuine", "").replace("Authentic", ""),
        architecture=platform.machine(),
        peak_flops=peaks,
        memory_bytes=memory,
        memory_type="",
        memory_bandwidth_bytes_s=bandwidth,
        l2_bytes=l2,
        l3_bytes=l3,
        sm_count=cores,
        clock_hz=clock,
        base_clock_hz=clock,
        power_limit_w=power,
        idle_power_w=power * IDLE_SHARE_CPU,
        pcie_bandwidth_bytes_s=0.0,
        aliases=("cpu", "host"),
        sources={"memory_gib": "/proc/meminfo", "sm_count": "/proc/cpuinfo"},
        estimated=("peak_flops", "memory_bandwidth_bytes_s", "power_limit_w", "idle_power_w")
        + (() if clock_read else ("clock_hz",)),
        notes=tuple(notes),
    )


def _halves_avx512(fields: dict[str, str]) -> bool:
    """Whether a core of AMD's takes two cycles for what an instruction of 512 bits says."""
    if fields.get("vendor_id") != "AuthenticAMD":
        return False
    try:
        family, model = int(fields["cpu family"]), int(fields["model"])
    except (KeyError, ValueError):
        return False
    return model in _HALVED_AVX512.get(family, ())


def _model_name(fields: dict[str, str]) -> str:
    name = fields.get("model name") or fields.get("Model") or f"{platform.machine()} CPU"
    return re.sub(r"\s+", " ", re.sub(r"\((?:R|TM|tm)\)", "", name)).strip()


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _clock_hz(root: Path, processors: list[dict[str, str]]) -> tuple[float, bool]:
    """Highest clock in Hz, and whether it was read (else the momentary one, or 2.5 GHz)."""
    highest = root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"
    try:
        return float(highest.read_text()) * 1e3, True
    except (OSError, ValueError):
        pass
    try:
        return max(float(p["cpu MHz"]) for p in processors) * 1e6, False
    except (KeyError, ValueError):
        return 2.5e9, False


def _caches(root: Path, processors: int, cores: int) -> tuple[int, int]:
    """L2 and L3 bytes of the whole machine, from the caches of CPU 0 and how many CPUs share them; 0 if unreadable."""
    sizes = {2: 0, 3: 0}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
            shared = _cpu_count((index / "shared_cpu_list").read_text())
        except (OSError, ValueError):
            continue
        if level in sizes and text[-1:] in "KM" and text[:-1].isdigit():
            size = int(text[:-1]) << (10 if text[-1] == "K" else 20)
            sizes[level] = size * max(1, round(max(processors, cores) / max(1, shared)))
    return sizes[2], sizes[3]


def _cpu_count(cpu_list: str) -> int:
    """Number of CPUs in a kernel list such as "0-3,8"."""
    spans = (part.partition("-") for part in cpu_list.strip().split(",") if part)
    return sum(int(high or low) - int(low) + 1 for low, _, high in spans)
