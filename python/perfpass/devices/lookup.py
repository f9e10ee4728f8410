"""Finding a device by any of its names: of the catalogue, of the user's files, or of a cloud's machine that has it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from perfpass.devices.shipped import shipped
from perfpass.devices.spec import Device
from perfpass.devices.toml_file import HOST_NAMES, read
from perfpass.errors import ArgumentError, DeviceError

# Words that sources write or leave out at will; a name is the same with and without them.
_MAKERS = {"nvidia", "amd", "intel", "apple", "google"}
_FILLER = frozenset({*_MAKERS, "geforce", "tesla", "instinct", "radeon", "core", "gpu", "cpu", "r", "tm"})
# What /proc/cpuinfo appends to the name of a processor: "CPU @ 2.30GHz", "64-Core Processor".
_CPU_TAIL = re.compile(r"\s*(?:CPU\s*)?@\s*[\d.]+\s*GHz|\s+\d+-Core Processor|\s+Processor$", re.IGNORECASE)
_MIG_SUFFIX = re.compile(r"^(?P<parent>.+?)(?:[:/]|\s+MIG\s+)(?P<profile>\d+g\.\S+)$", re.IGNORECASE)
# A name that asks for a slice and does not say which.
_EMPTY_PROFILE = re.compile(r"^[\W_]*[:/]|[:/][\W_]*$|\bMIG[\W_]*$", re.IGNORECASE)
_COUNT = re.compile(r"^(?P<count>\d{1,5})\s?[xX]\s?(?P<rest>[A-Za-z].*)$")

_added: dict[str, Device] = {}


def device(name: str | Device) -> Device:
    """The device of a name, id or alias, of a name with a MIG profile, or the CPU of this machine.

    "a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", "A100 80GB", "a100-80gb:1g.10gb", "A100-SXM4-80GB/1g.10gb", "cpu". A name
    that several products share ("a100") gives the documented default and says so in ``notes``; so do the instance type
    of a cloud ("g5.xlarge") and a number of devices ("8x A100 80GB"), which give one of the GPUs meant. Raises
    DeviceError with the nearest names for an unknown one, and FormatError for a broken device file of the user.
    """
    if isinstance(name, Device):
        return name
    if not isinstance(name, str) or not name.strip() or len(name) > 200:
        raise ArgumentError(
            f"a device is a name of 1 to 200 characters, got {str(name)[:80]!r}; see `perfpass devices`"
        )
    if split := _MIG_SUFFIX.match(name.strip()):
        return device(split["parent"]).mig_slice(split["profile"])
    if name.strip().lower() in HOST_NAMES:
        from perfpass.devices.host import host

        return host()
    if _EMPTY_PROFILE.search(name.strip()):
        raise DeviceError(
            f"{name!r} names no MIG profile or no device; write DEVICE:PROFILE (a100:1g.5gb) for a slice, and the "
            "device alone for all of it"
        )
    found = _find(name) or _in_cloud(name) or _one_of_several(name)
    if found is None:
        raise DeviceError(
            f"unknown device {name!r}; {_nearest(name)} `perfpass devices` lists all, and a TOML file in "
            f"{user_folder()}, in PERFPASS_DEVICES or by --device-file adds one (docs/reference/devices.md)"
        )
    return found


def catalogue() -> tuple[Device, ...]:
    """Every known device: shipped, then the user's, then added; a later one replaces an earlier one of the same id."""
    known = shipped()
    devices = {key: known.parse(key) for key in known.names}
    for extra in (*_user_devices(), *_added.values()):
        devices[extra.id] = extra
    return tuple(devices.values())


def device_ids() -> tuple[str, ...]:
    """The ids of ``catalogue()``, without reading the figures."""
    return tuple(_names())


def add_file(path: str | Path) -> tuple[Device, ...]:
    """Adds the devices of a TOML file for this process and returns them. Raises FileError, FormatError, LimitError."""
    devices = tuple(read(path))
    _added.update({d.id: d for d in devices})
    return devices


def user_folder() -> Path:
    """The folder of the user's device files and calibrations."""
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(config).expanduser() / "perfpass" / "devices"


def _user_files() -> Iterator[Path]:
    if (folder := user_folder()).is_dir():
        yield from sorted(folder.glob("*.toml"))
    for entry in filter(None, os.environ.get("PERFPASS_DEVICES", "").split(os.pathsep)):
        path = Path(entry).expanduser()
        yield from sorted(path.glob("*.toml")) if path.is_dir() else [path]


def _user_devices() -> list[Device]:
    return [found for path in _user_files() for found in _read_once(path, _stamp(path))]


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0  # read() says what is wrong with the file


@cache
def _read_once(path: Path, stamp: int) -> tuple[Device, ...]:
    return tuple(read(path))


@lru_cache(maxsize=8192)
def _tokens(name: str) -> tuple[str, ...]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return tuple(w for w in words if w not in _FILLER) or tuple(words)


@lru_cache(maxsize=8192)
def _joined(name: str) -> str:
    """A spelling under which a name is found: its letters and digits in order."""
    return "".join(_tokens(name))


@lru_cache(maxsize=8192)
def _words(name: str) -> str:
    """Another: its words, in any order."""
    return " ".join(sorted(re.findall(r"[a-z]+|\d+", " ".join(_tokens(name)))))


@cache
def _shipped_by_joined() -> dict[str, str]:
    """The id of every shipped spelling, as ``_joined`` has it; all spellings are split in one pass, not one by one."""
    keys = [key for key, spellings in shipped().names.items() for _ in spellings]
    text = "\n".join(spelling for spellings in shipped().names.values() for spelling in spellings).lower()
    fillers = rf"(?<![a-z0-9])(?:{'|'.join(_FILLER)})(?![a-z0-9])"
    return dict(zip(re.sub(rf"{fillers}|[^a-z0-9\n]+", "", text).split("\n"), keys, strict=True))


@cache
def _shipped_by_words() -> dict[str, str]:
    return {_words(spelling): key for key, spellings in shipped().names.items() for spelling in spellings}


def _extras() -> dict[str, Device]:
    return {d.id: d for d in (*_user_devices(), *_added.values())}


def _names() -> dict[str, tuple[str, ...]]:
    """Names of every device by its id."""
    return {**shipped().names, **{d.id: (d.id, d.name, *d.aliases) for d in _extras().values()}}


def _namesakes(name: str, names: Mapping[str, Sequence[str]]) -> list[str]:
    """Ids of those that say all that ``name`` says, and more, in id or name."""
    tokens = set(_tokens(name))
    return [
        key
        for key, spellings in names.items()
        # The first condition is a cheap one that leaves few names to split.
        if any(all(w in text.lower() for w in tokens) and tokens < set(_tokens(text)) for text in spellings[:2])
    ]


@lru_cache(maxsize=256)
def _shipped_namesakes(name: str) -> tuple[str, ...]:
    return tuple(_namesakes(name, shipped().names))


def _find(name: str) -> Device | None:
    name = _CPU_TAIL.sub("", name)
    wanted, words, extras = _joined(name), _words(name), _extras()
    mine = [(d, {_joined(s) for s in (d.id, d.name, *d.aliases)}) for d in extras.values()]
    found = next((d for d, spellings in reversed(mine) if wanted in spellings), None)  # the user's devices win
    if found is not None:
        hidden = _shipped_by_joined().get(wanted, found.id)
        return found if hidden == found.id else _read_as(found, _hides(name, found, hidden))
    if (key := _shipped_by_joined().get(wanted)) is not None:
        found = extras.get(key) or shipped().parse(key)
    if found is None:
        found = next((d for d in extras.values() if words in {_words(s) for s in (d.id, d.name, *d.aliases)}), None)
    if found is None and (key := _shipped_by_words().get(words)) is not None:
        found = extras.get(key) or shipped().parse(key)
    if found is None or wanted in {_joined(found.id), _joined(found.name)}:
        return found
    others = [key for key in _shipped_namesakes(name) if key != found.id and key not in extras]
    others += _namesakes(name, {d.id: (d.id, d.name) for d in extras.values() if d.id != found.id})
    if not others:
        return found
    note = f"{name!r} was read as {found.name}; others of that name: {', '.join(others)}"
    return replace(found, notes=(*found.notes, note), others=tuple(others))


def _in_cloud(name: str) -> Device | None:
    """The GPU of a cloud's instance type. Raises DeviceError for a share of one."""
    from perfpass.devices.clouds import instance

    known = instance(name)
    if known is None:
        return None
    found = device(known.device)
    return _read_as(found, known.understood_as(found.name))


def _one_of_several(name: str) -> Device | None:
    """One device of "8x A100 80GB"."""
    split = _COUNT.match(name.strip())
    found = _find(split["rest"]) if split else None
    if split is None or found is None:
        return None
    count = split["count"]
    return _read_as(found, f"{name.strip()!r} was read as {count} x {found.name}; the figures are those of one")


def _hides(name: str, found: Device, hidden: str) -> str:
    return (
        f"{name.strip()!r} was read as {found.name} ({found.id}) of a device file; the catalogue's {hidden} has "
        "that name too, and is found by its id"
    )


def _read_as(found: Device, understood: str) -> Device:
    return replace(found, notes=(*found.notes, understood), read_as=understood)


def _nearest(name: str) -> str:
    import difflib

    from perfpass.devices.clouds import instance_names

    spellings = {_joined(s): i for i, names in _names().items() for s in names}
    clouds = {_joined(s): s for s in instance_names()}
    near = difflib.get_close_matches(_joined(name), {**clouds, **spellings}, n=3, cutoff=0.6)
    ids = list(dict.fromkeys(spellings.get(key) or clouds[key] for key in near))
    return f"did you mean {' or '.join(ids)}?" if ids else "nothing has a similar name;"
