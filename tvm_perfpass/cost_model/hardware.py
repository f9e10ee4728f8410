"""What a cost model of candidates has to know of a CPU: vector width, cores, cache sizes, rates."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfpass.devices import Device
from perfpass.devices.host import host
from perfpass.errors import ArgumentError, UnsupportedError

# Bytes of a vector register and their number by vector extension (Intel SDM volume 1, chapters 13 to 15; Arm ARM, C1).
_VECTORS = {"avx512f": (64, 32), "avx": (32, 16), "asimd": (16, 32), "sse2": (16, 16)}
# Bytes per cycle and core that a cache of this level delivers, sustained: the lower end of what AMD's and Intel's
# optimization guides give for cores of 2017 to 2024 (L1: two loads of a vector; L2: 32 B; L3: 16 B).
_L2_BYTES_PER_CYCLE, _L3_BYTES_PER_CYCLE = 32.0, 16.0
# Where the machine says nothing: the smallest caches of server cores of these years.
_L1, _L2, _L3 = 32 << 10, 256 << 10, 1 << 20
# fp32 multiply-adds: two units a core, two operations each; notes of `perfpass.devices.host` say where it is less.
_OPERATIONS_PER_LANE_AND_CYCLE = 4.0


@dataclass(frozen=True)
class Hardware:
    """One core of a CPU and how many of them a task may use. Bytes, bytes per second, FLOP per second."""

    vector_bytes: int
    vector_registers: int
    cores: int
    clock_hz: float
    core_flop_s: float
    l1_bytes: float
    l2_bytes: float
    l3_bytes: float
    l2_bytes_s: float
    l3_bytes_s: float
    memory_bytes_s: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (isinstance(value, int | float) and 0 < value < 1e18):
                raise ArgumentError(f"{name} of the hardware must be a number above 0 and below 1e18, got {value!r}")

    @property
    def lanes(self) -> float:
        """fp32 elements of a vector register."""
        return self.vector_bytes / 4

    def to_dict(self) -> dict[str, float]:
        """Field by field, for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Hardware:
        """The inverse of `to_dict`. Raises ArgumentError."""
        try:
            return Hardware(**fields)
        except TypeError as error:
            raise ArgumentError(f"not the fields of a Hardware: {error}") from error


def detect(cores: int | None = None, *, roofline: Mapping[str, Any] | None = None, root: Path = Path("/")) -> Hardware:
    """The CPU of this machine; ``cores`` that a task may use (all of them if None).

    Peak, clock and memory bandwidth are those of `perfpass.devices.host`, caches are read from /sys. ``roofline`` is
    the summary that ``perfpass roofline`` writes (roofline.json): its measured peak and bandwidths replace what is
    computed. Raises DeviceError where the CPU cannot be read, ArgumentError for a roofline without the figures.
    """
    device = host(root)
    name = next((name for name in _VECTORS if _has(device, name)), "sse2")
    width, registers = _VECTORS[name]
    clock = float(device.clock_hz)
    sizes = _caches(root)
    own = min(cores or device.sm_count, device.sm_count)
    rate = width / 4 * _OPERATIONS_PER_LANE_AND_CYCLE * clock
    memory = float(device.memory_bandwidth_bytes_s)
    l3_rate = _L3_BYTES_PER_CYCLE * clock
    if roofline is not None:
        try:
            threads = max(1, int(roofline.get("facts", {}).get("host", {}).get("threads", os.cpu_count() or 1)))
            rate = float(roofline["peak_flop_s"]["fp32"]) / threads
            memory, l3_rate = float(roofline["memory_bytes_s"]), float(roofline["cache_bytes_s"]) / threads
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArgumentError(f"not a summary of `perfpass roofline`: {type(error).__name__} {error}") from error
    return Hardware(
        width,
        registers,
        own,
        clock,
        rate,
        sizes.get(1, _L1),
        sizes.get(2, _L2),
        sizes.get(3, _L3),
        _L2_BYTES_PER_CYCLE * clock,
        l3_rate,
        memory,
    )


def cores_of(target: Any) -> int | None:
    """``num-cores`` of a TVM target; None where it says nothing. Raises UnsupportedError for what is no CPU."""
    kind = str(getattr(getattr(target, "kind", None), "name", "llvm"))
    if kind not in ("llvm", "c"):
        raise UnsupportedError(f"target {kind}: the tuning cost models know CPUs (llvm, c) only; use TVM's own here")
    attributes = getattr(target, "attrs", None)
    try:
        value = attributes["num-cores"] if attributes is not None and "num-cores" in attributes else None
    except (KeyError, TypeError):
        value = None
    return int(value) if value is not None and int(value) > 0 else None


def _has(device: Device, extension: str) -> bool:
    words = " ".join(device.notes[:1])
    found = {"avx512f": ("avx512f",), "avx": ("fma", "avx,"), "asimd": ("asimd",), "sse2": ("sse2",)}[extension]
    return any(word in words for word in found)


def _caches(root: Path) -> dict[int, float]:
    """Bytes of the data caches that a core reaches, by level."""
    sizes: dict[int, float] = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind = int((index / "level").read_text()), (index / "type").read_text().strip()
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and text[-1:] in ("K", "M") and text[:-1].isdigit():
            sizes[level] = float(int(text[:-1]) << (10 if text[-1] == "K" else 20))
    return sizes
