"""Device files: the TOML format of the catalogue, checked figure by figure (docs/reference/devices.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass.declared import Choice, Exactly, Flag, Items, Kind, Named, Number, Table, Text
from perfpass.devices.spec import IDLE_SHARE_CPU, IDLE_SHARE_GPU, PRECISIONS, Device
from perfpass.errors import FormatError
from perfpass.late import dataclass
from perfpass.toml_table import read_toml

SCHEMA = 1

# Figure: (unit in SI, least, most). The bounds are two orders of magnitude around anything built so far; they catch a
# figure given in the wrong unit (bytes for GiB, FLOP/s for TFLOP/s) rather than judge a device.
_BOUNDS: dict[str, tuple[float, float, float]] = {
    "memory_gib": (2.0**30, 0.01, 1e5),
    "bandwidth_gb_s": (1e9, 0.1, 1e6),
    "l2_mib": (2.0**20, 0.0, 1e5),
    "l3_mib": (2.0**20, 0.0, 1e6),
    "sm_count": (1, 1, 1e5),
    "base_mhz": (1e6, 1, 1e5),
    "boost_mhz": (1e6, 1, 1e5),
    "power_limit_w": (1, 0.1, 1e5),
    "idle_power_w": (1, 0.0, 1e5),
    "pcie_gb_s": (1e9, 0.0, 1e5),
    "nvlink_gb_s": (1e9, 0.0, 1e5),
    "link_peers": (1, 0, 1000),
    "link_group": (1, 0, 1000),
    "registers_per_sm": (1, 0, 1e8),
    "shared_memory_per_sm_kib": (1024, 0, 1e6),
    "shared_memory_per_block_kib": (1024, 0, 1e6),
    "max_threads_per_sm": (1, 0, 1e6),
}
_COUNTS = ("sm_count", "link_peers", "link_group", "registers_per_sm", "max_threads_per_sm")
# Names of the machine that perfpass runs on, which no file may take.
HOST_NAMES = frozenset({"cpu", "host", "host-cpu"})
_LONGEST_ID = 100
_ID = re.compile(rf"(?=.{{1,{_LONGEST_ID}}}$)[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*")
_MONTH = re.compile(r"(19[89]|20\d)\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?", re.ASCII)
_REQUIRED = ("id", "name", "peak_tflops", "memory_gib", "bandwidth_gb_s", "sm_count", "power_limit_w")
_CHECK_UNIT = ": check the unit"
_PEAK = Number(1e-6, 1e6, hint=f" (10^12 FLOP/s){_CHECK_UNIT}")


@dataclass(frozen=True)
class _Launch(Kind):
    """When a device came out: predictors count with the year."""

    def fits(self, value: Any) -> bool:
        """As `Kind.fits`."""
        return isinstance(value, str) and (not value or _MONTH.fullmatch(value) is not None)

    def expected(self) -> str:
        """As `Kind.expected`."""
        return "it is a year, or a year and month, as 2024-05"


_KEYS: dict[str, Kind] = {
    **{name: Number(least, most, hint=_CHECK_UNIT) for name, (_, least, most) in _BOUNDS.items()},
    **dict.fromkeys(("id", "name"), Text()),
    **dict.fromkeys(("vendor", "architecture", "memory_type", "mig", "source"), Text(empty=True)),
    "launch": _Launch(),
    **dict.fromkeys(("aliases", "estimated", "notes"), Items(Text(empty=True), 100)),
    "kind": Choice(("gpu", "cpu")),
    "unified_memory": Flag(),
    "inline_ecc": Flag(),
    "compute_capability": Items(Number(0, 99, whole=True), 2, 2),
    "peak_tflops": Table(dict.fromkeys(PRECISIONS, _PEAK), ("fp32",)),
    "sources": Named(Text(empty=True)),
}
# What a file states once for all devices of an architecture, and what a device states itself.
_SHARED = Table(_KEYS)
_DEVICE = Table(_KEYS, _REQUIRED)
_FILE = Table(
    {
        "schema": Exactly(SCHEMA),
        "sources": Named(Text()),
        "architecture": Named(_SHARED, 1000),
        "device": Items(_DEVICE, 10_000, 1, " ([[device]] blocks)"),
    },
    ("device",),
    " ([[device]] blocks); see docs/reference/devices.md for an example",
)


def read(path: str | Path) -> list[Device]:
    """The devices of a user's TOML file. Raises FileError, FormatError or LimitError, each naming file and figure."""
    path = Path(path).expanduser()
    return devices_of(read_toml(path, "a device file"), str(path))


def devices_of(document: Mapping[str, Any], where: str) -> list[Device]:
    """The devices of a parsed file; ``where`` names it in errors."""
    _FILE.take(document, where)
    sources, architectures = document.get("sources", {}), document.get("architecture", {})
    rows = document["device"]
    found = [_device(row, sources, architectures, f"{where}, device {i}") for i, row in enumerate(rows, 1)]
    times = Counter(_plain(device.id) for device in found)
    for device in found:
        if times[_plain(device.id)] > 1:
            raise FormatError(
                f"{where}: {times[_plain(device.id)]} [[device]] blocks have the id {device.id!r} (case and "
                "punctuation do not count); each needs its own"
            )
        if taken := HOST_NAMES & {name.lower() for name in (device.id, device.name, *device.aliases)}:
            raise FormatError(
                f"{where}: {device.id} is called {min(taken)!r}, as the machine that perfpass runs on; choose another "
                "name"
            )
    return found


def _plain(name: str) -> str:
    """What counts of a name when a device is looked for."""
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def device_of(
    row: Mapping[str, Any], sources: Mapping[str, Any], architectures: Mapping[str, Any], where: str
) -> Device:
    """One ``[[device]]`` block as a Device. Raises FormatError."""
    _DEVICE.take(row, where)
    return _device(row, sources, architectures, where)


def _device(row: Mapping[str, Any], sources: Mapping[str, Any], architectures: Mapping[str, Any], where: str) -> Device:
    shared = architectures.get(row.get("architecture", ""), {})
    row = {**shared, **row}
    where = f"{where} ({_id(row, where)})"

    figures = {key: _number(row, key, where) for key in _BOUNDS if key in row}
    texts = {key: row.get(key, "").strip() for key, kind in _KEYS.items() if isinstance(kind, Text)}
    kind = row.get("kind", "gpu")
    lists = {key: tuple(text.strip() for text in row.get(key, ())) for key in ("aliases", "estimated", "notes")}
    boost = figures.get("boost_mhz", figures.get("base_mhz", 0.0))
    base = figures.get("base_mhz", boost)
    if base > boost:
        raise FormatError(f"{where}: base_mhz {base / 1e6:g} is above boost_mhz {boost / 1e6:g}")
    peers, group = (int(figures.get(key, 0)) for key in ("link_peers", "link_group"))
    if 0 < group <= max(peers, 1):
        least = max(peers + 1, 2)
        raise FormatError(
            f"{where}: link_group {group} counts a device and those that its links lead to, so it is {least} or more"
            f"{f' beside link_peers {peers}' if peers else ''}; leave it out where all of a node are joined"
        )
    peaks = {p: row["peak_tflops"][p] * 1e12 for p in PRECISIONS if p in row["peak_tflops"]}

    estimated, notes = list(lists["estimated"]), list(lists["notes"])
    idle = figures.get("idle_power_w")
    if idle is None:
        share = IDLE_SHARE_CPU if kind == "cpu" else IDLE_SHARE_GPU
        idle = figures["power_limit_w"] * share
        estimated.append("idle_power_w")
        notes.append(f"idle_power_w is {share:.0%} of the power limit, perfpass's default")
    elif idle >= figures["power_limit_w"]:
        raise FormatError(f"{where}: idle_power_w {idle:g} is not below power_limit_w {figures['power_limit_w']:g}")
    mig = texts["mig"] or None
    if mig is not None:
        _check_mig(mig, where)
    return Device(
        id=texts["id"],
        name=texts["name"],
        kind=kind,
        vendor=texts["vendor"] or "NVIDIA",
        architecture=texts["architecture"],
        peak_flops=peaks,
        memory_bytes=int(figures["memory_gib"]),
        memory_type=texts["memory_type"],
        memory_bandwidth_bytes_s=figures["bandwidth_gb_s"],
        l2_bytes=int(figures.get("l2_mib", 0)),
        l3_bytes=int(figures.get("l3_mib", 0)),
        sm_count=int(figures["sm_count"]),
        clock_hz=boost,
        base_clock_hz=base,
        power_limit_w=figures["power_limit_w"],
        idle_power_w=idle,
        pcie_bandwidth_bytes_s=figures.get("pcie_gb_s", 0.0),
        nvlink_bandwidth_bytes_s=figures.get("nvlink_gb_s", 0.0),
        link_peers=peers,
        link_group=group,
        launch_date=row.get("launch") or None,
        compute_capability=tuple(row["compute_capability"]) if "compute_capability" in row else None,
        registers_per_sm=int(figures.get("registers_per_sm", 0)),
        shared_memory_per_sm_bytes=int(figures.get("shared_memory_per_sm_kib", 0)),
        shared_memory_per_block_bytes=int(figures.get("shared_memory_per_block_kib", 0)),
        max_threads_per_sm=int(figures.get("max_threads_per_sm", 0)),
        mig_geometry=mig,
        unified_memory=row.get("unified_memory", False),
        inline_ecc=row.get("inline_ecc", False),
        aliases=lists["aliases"],
        sources=_sources(row, sources, where),
        estimated=tuple(estimated),
        notes=tuple(notes),
    )


def _number(row: Mapping[str, Any], key: str, where: str) -> float:
    value: float = row[key]
    if key in _COUNTS and value != int(value):
        raise FormatError(f"{where}: {key} {value!r}; it is a whole number")
    return value * _BOUNDS[key][0]


def _id(row: Mapping[str, Any], where: str) -> str:
    """The id: a word for command lines and file names, which `device` finds as it stands."""
    value: str = row["id"].strip()
    if not _ID.fullmatch(value):
        raise FormatError(
            f"{where}: id {value!r}; an id has letters, digits, and . _ - between them, at most {_LONGEST_ID} in all"
        )
    return value


def _sources(row: Mapping[str, Any], sources: Mapping[str, Any], where: str) -> dict[str, str]:
    """Title of the source of every figure of the block; a key of the file's ``sources`` table or a title itself."""
    own = row.get("sources", {})
    default = row.get("source", "").strip() or "not stated"
    figures = [key for key in row if key in _BOUNDS or key == "peak_tflops"]
    if unknown := sorted(set(own) - {*figures, "launch"}):
        raise FormatError(f"{where}: a source for {unknown[0]!r}, which the block does not state")
    shared = ("registers_per_sm", "shared_memory_per_sm_kib", "shared_memory_per_block_kib", "max_threads_per_sm")
    titles = {}
    for figure in figures:
        key = own.get(figure, "cuda-guide" if figure in shared and "cuda-guide" in sources else default)
        titles[figure] = sources.get(key, key)
    return titles


def _check_mig(name: str, where: str) -> None:
    from perfpass.devices.mig import geometry_names

    if name not in geometry_names():
        raise FormatError(f"{where}: unknown MIG geometry {name!r}; known are {', '.join(geometry_names())}")
