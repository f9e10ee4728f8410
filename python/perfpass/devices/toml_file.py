"""Device files: the TOML format of the catalogue, checked figure by figure (docs/reference/devices.md)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass.devices.spec import IDLE_SHARE_CPU, IDLE_SHARE_GPU, PRECISIONS, Device
from perfpass.errors import FormatError
from perfpass.toml_table import read_toml

SCHEMA = 1
MAX_TEXT = 500

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
    "registers_per_sm": (1, 0, 1e8),
    "shared_memory_per_sm_kib": (1024, 0, 1e6),
    "shared_memory_per_block_kib": (1024, 0, 1e6),
    "max_threads_per_sm": (1, 0, 1e6),
}
# Names of the machine that perfpass runs on, which no file may take.
HOST_NAMES = frozenset({"cpu", "host", "host-cpu"})
_LONGEST_ID = 100
_ID = re.compile(rf"(?=.{{1,{_LONGEST_ID}}}$)[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*")
_PEAK_TFLOPS = (1e-6, 1e6)
_TEXTS = ("id", "name", "kind", "vendor", "architecture", "memory_type", "launch", "mig", "source")
_LISTS = ("aliases", "estimated", "notes", "compute_capability")
_FLAGS = ("unified_memory",)
_TABLES = ("peak_tflops", "sources")
_REQUIRED = ("id", "name", "peak_tflops", "memory_gib", "bandwidth_gb_s", "sm_count", "power_limit_w")


def read(path: str | Path) -> list[Device]:
    """The devices of a user's TOML file. Raises FileError, FormatError or LimitError, each naming file and figure."""
    path = Path(path).expanduser()
    return devices_of(read_toml(path, "a device file"), str(path))


def devices_of(document: Mapping[str, Any], where: str) -> list[Device]:
    """The devices of a parsed file; ``where`` names it in errors."""
    schema = document.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise FormatError(f"{where}: schema {schema!r}; this version reads schema {SCHEMA}")
    known = {"schema", "sources", "architecture", "device"}
    if unknown := sorted(set(document) - known):
        raise FormatError(f"{where}: unknown table {unknown[0]!r}; a device file has {', '.join(sorted(known))}")
    rows = document.get("device", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise FormatError(f"{where}: no [[device]] block; see docs/reference/devices.md for an example")
    sources, architectures = document.get("sources", {}), document.get("architecture", {})
    for name, table in (("sources", sources), ("architecture", architectures)):
        if not isinstance(table, dict):
            raise FormatError(f"{where}: {name} must be a table, got {type(table).__name__}")
    found = [device_of(row, sources, architectures, f"{where}, device {i + 1}") for i, row in enumerate(rows)]
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
    if missing := [key for key in _REQUIRED if key not in row]:
        raise FormatError(f"{where}: {missing[0]} is missing; required are {', '.join(_REQUIRED)}")
    allowed = {*_BOUNDS, *_TEXTS, *_LISTS, *_FLAGS, *_TABLES}
    if unknown := sorted(set(row) - allowed):
        raise FormatError(f"{where}: unknown figure {unknown[0]!r}; known are {', '.join(sorted(allowed))}")
    shared = architectures.get(row.get("architecture", ""), {})
    if not isinstance(shared, dict):
        raise FormatError(f"{where}: architecture {row['architecture']!r} must be a table, got {type(shared).__name__}")
    row = {**shared, **row}
    where = f"{where} ({_id(row, where)})"

    figures = {key: _number(row, key, where) for key in _BOUNDS if key in row}
    kind = _text(row, "kind", where) or "gpu"
    if kind not in ("gpu", "cpu"):
        raise FormatError(f"{where}: kind {kind!r}; allowed are gpu and cpu")
    lists = {key: _texts(row, key, where) for key in ("aliases", "estimated", "notes")}
    boost = figures.get("boost_mhz", figures.get("base_mhz", 0.0))
    base = figures.get("base_mhz", boost)
    if base > boost:
        raise FormatError(f"{where}: base_mhz {base / 1e6:g} is above boost_mhz {boost / 1e6:g}")
    peaks = _peaks(row, where)

    estimated, notes = list(lists["estimated"]), list(lists["notes"])
    idle = figures.get("idle_power_w")
    if idle is None:
        share = IDLE_SHARE_CPU if kind == "cpu" else IDLE_SHARE_GPU
        idle = figures["power_limit_w"] * share
        estimated.append("idle_power_w")
        notes.append(f"idle_power_w is {share:.0%} of the power limit, perfpass's default")
    elif idle >= figures["power_limit_w"]:
        raise FormatError(f"{where}: idle_power_w {idle:g} is not below power_limit_w {figures['power_limit_w']:g}")
    mig = _text(row, "mig", where) or None
    if mig is not None:
        _check_mig(mig, where)
    return Device(
        id=_text(row, "id", where),
        name=_text(row, "name", where),
        kind=kind,
        vendor=_text(row, "vendor", where) or "NVIDIA",
        architecture=_text(row, "architecture", where),
        peak_flops=peaks,
        memory_bytes=int(figures["memory_gib"]),
        memory_type=_text(row, "memory_type", where),
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
        launch_date=_text(row, "launch", where) or None,
        compute_capability=_capability(row, where),
        registers_per_sm=int(figures.get("registers_per_sm", 0)),
        shared_memory_per_sm_bytes=int(figures.get("shared_memory_per_sm_kib", 0)),
        shared_memory_per_block_bytes=int(figures.get("shared_memory_per_block_kib", 0)),
        max_threads_per_sm=int(figures.get("max_threads_per_sm", 0)),
        mig_geometry=mig,
        unified_memory=_flag(row, "unified_memory", where),
        aliases=lists["aliases"],
        sources=_sources(row, sources, where),
        estimated=tuple(estimated),
        notes=tuple(notes),
    )


def _number(row: Mapping[str, Any], key: str, where: str) -> float:
    value = row[key]
    unit, least, most = _BOUNDS[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"{where}: {key} must be a number, got {value!r}")
    if not math.isfinite(value) or not least <= value <= most:
        raise FormatError(f"{where}: {key} = {value!r}; allowed is {least:g} to {most:g}: check the unit")
    if key in ("sm_count", "registers_per_sm", "max_threads_per_sm") and value != int(value):
        raise FormatError(f"{where}: {key} must be a whole number, got {value!r}")
    return value * unit


def _text(row: Mapping[str, Any], key: str, where: str) -> str:
    value = row.get(key, "")
    if not isinstance(value, str) or (key in _REQUIRED and not value.strip()):
        raise FormatError(f"{where}: {key} must be a text, got {value!r}")
    if len(value) > MAX_TEXT or not value.isprintable():
        raise FormatError(f"{where}: {key} must be printable and at most {MAX_TEXT} characters, got {len(value)}")
    return value.strip()


def _id(row: Mapping[str, Any], where: str) -> str:
    """The id: a word for command lines and file names, which `device` finds as it stands."""
    value = _text(row, "id", where)
    if not _ID.fullmatch(value):
        raise FormatError(
            f"{where}: id {value!r}; an id has letters, digits, and . _ - between them, at most {_LONGEST_ID} in all"
        )
    return value


def _flag(row: Mapping[str, Any], key: str, where: str) -> bool:
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise FormatError(f"{where}: {key} must be true or false, got {value!r}"[:MAX_TEXT])
    return value


def _texts(row: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = row.get(key, [])
    if not isinstance(values, list) or len(values) > 100:
        raise FormatError(f"{where}: {key} must be a list of at most 100 texts")
    return tuple(_text({key: value}, key, where) for value in values)


def _peaks(row: Mapping[str, Any], where: str) -> dict[str, float]:
    table = row["peak_tflops"]
    if not isinstance(table, dict) or "fp32" not in table:
        raise FormatError(f"{where}: peak_tflops must be a table with at least fp32, got {table!r}"[:MAX_TEXT])
    if unknown := sorted(set(table) - set(PRECISIONS)):
        raise FormatError(
            f"{where}: unknown precision {unknown[0]!r} in peak_tflops; known are {', '.join(PRECISIONS)}"
        )
    peaks = {}
    for precision in PRECISIONS:
        if precision not in table:
            continue
        value = table[precision]
        least, most = _PEAK_TFLOPS
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise FormatError(
                f"{where}: peak_tflops.{precision} = {value!r}; allowed is {least:g} to {most:g} (10^12 FLOP/s)"
            )
        peaks[precision] = value * 1e12
    return peaks


def _capability(row: Mapping[str, Any], where: str) -> tuple[int, int] | None:
    value = row.get("compute_capability")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(v) is int and 0 <= v < 100 for v in value):
        raise FormatError(f"{where}: compute_capability must be [major, minor], got {value!r}")
    return value[0], value[1]


def _sources(row: Mapping[str, Any], sources: Mapping[str, Any], where: str) -> dict[str, str]:
    """Title of the source of every figure of the block; a key of the file's ``sources`` table or a title itself."""
    own = row.get("sources", {})
    if not isinstance(own, dict):
        raise FormatError(f"{where}: sources must be a table of figure = source, got {own!r}")
    default = _text(row, "source", where) or "not stated"
    figures = [key for key in row if key in _BOUNDS or key == "peak_tflops"]
    if unknown := sorted(set(own) - {*figures, "launch"}):
        raise FormatError(f"{where}: a source for {unknown[0]!r}, which the block does not state")
    shared = ("registers_per_sm", "shared_memory_per_sm_kib", "shared_memory_per_block_kib", "max_threads_per_sm")
    titles = {}
    for figure in figures:
        key = own.get(figure, "cuda-guide" if figure in shared and "cuda-guide" in sources else default)
        if not isinstance(key, str):
            raise FormatError(f"{where}: the source of {figure} must be a text, got {key!r}")
        titles[figure] = str(sources.get(key, key))
    return titles


def _check_mig(name: str, where: str) -> None:
    from perfpass.devices.mig import geometry_names

    if name not in geometry_names():
        raise FormatError(f"{where}: unknown MIG geometry {name!r}; known are {', '.join(geometry_names())}")
