"""Finding a device by any of its names.

The shipped catalogue is one TOML file of some 50 blocks. Reading it whole takes 20 to 30 ms, which a single prediction
need not pay: names are found by a scan of the lines that hold them, and only the block asked for is parsed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from perfpass.devices.spec import Device
from perfpass.devices.toml_file import device_of, read
from perfpass.errors import ArgumentError, DeviceError
from perfpass.toml_table import parse

_SHIPPED = Path(__file__).with_name("catalogue.toml")
_HOST_NAMES = frozenset({"cpu", "host", "host-cpu"})
# Words that sources write or leave out at will; a name is the same with and without them.
_FILLER = frozenset({"nvidia", "amd", "intel", "geforce", "tesla", "instinct", "core", "gpu", "cpu", "r", "tm"})
_NAME_LINE = re.compile(r"^(id|name|aliases) = (.*)$", re.MULTILINE)
_QUOTED = re.compile(r'"([^"]*)"')
_MIG_SUFFIX = re.compile(r"^(?P<parent>.+?)(?:[:/]|\s+MIG\s+)(?P<profile>\d+g\.\S+)$", re.IGNORECASE)

_added: dict[str, Device] = {}


def device(name: str | Device) -> Device:
    """The device of a name, id or alias, of a name with a MIG profile, or the CPU of this machine.

    "a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", "A100 80GB", "a100-80gb:1g.10gb", "A100-SXM4-80GB/1g.10gb", "cpu". A name
    that several products share ("a100") gives the documented default and says so in ``notes``. Raises DeviceError with
    the nearest names for an unknown one, and FormatError for a broken device file of the user.
    """
    if isinstance(name, Device):
        return name
    if not isinstance(name, str) or not name.strip() or len(name) > 200:
        raise ArgumentError(
            f"a device is a name of 1 to 200 characters, got {str(name)[:80]!r}; see `perfpass devices`"
        )
    if split := _MIG_SUFFIX.match(name.strip()):
        return device(split["parent"]).mig_slice(split["profile"])
    if name.strip().lower() in _HOST_NAMES:
        from perfpass.devices.host import host

        return host()
    found = _find(name)
    if found is None:
        raise DeviceError(
            f"unknown device {name!r}; {_nearest(name)}; `perfpass devices` lists all, and a TOML file in "
            f"{user_folder()}, in PERFPASS_DEVICES or by --device-file adds one (docs/reference/devices.md)"
        )
    return found


def catalogue() -> tuple[Device, ...]:
    """Every known device: shipped, then the user's, then added; a later one replaces an earlier one of the same id."""
    shipped = _shipped()
    devices = {key: shipped.parse(key) for key in shipped.blocks}
    for extra in (*_user_devices(), *_added.values()):
        devices[extra.id] = extra
    return tuple(devices.values())


def add_file(path: str | Path) -> tuple[Device, ...]:
    """Adds the devices of a TOML file for this process and returns them. Raises FileError, FormatError, LimitError."""
    devices = tuple(read(path))
    _added.update({d.id: d for d in devices})
    return devices


class _Shipped:
    """The shipped catalogue, split into blocks that are parsed when asked for."""

    def __init__(self, text: str) -> None:
        head, *blocks = text.split("\n[[device]]\n")
        document = parse(head)
        self.sources = document["sources"]
        self.architectures = document["architecture"]
        self.blocks: dict[str, str] = {}
        self.names: dict[str, tuple[str, ...]] = {}
        for block in blocks:
            names = [text for _, line in _NAME_LINE.findall(block) for text in _QUOTED.findall(line)]
            self.blocks[names[0]] = block
            self.names[names[0]] = tuple(names)
        self._parsed: dict[str, Device] = {}

    def parse(self, key: str) -> Device:
        if key not in self._parsed:
            row = parse(self.blocks[key])
            self._parsed[key] = device_of(row, self.sources, self.architectures, _SHIPPED.name)
        return self._parsed[key]


@cache
def _shipped() -> _Shipped:
    return _Shipped(_SHIPPED.read_text(encoding="utf-8"))


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


def _tokens(name: str) -> tuple[str, ...]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return tuple(w for w in words if w not in _FILLER) or tuple(words)


@lru_cache(maxsize=4096)
def _keys(name: str) -> tuple[str, str]:
    """Two spellings under which a name is found: letters and digits in order, and its words in any order."""
    tokens = _tokens(name)
    return "".join(tokens), " ".join(sorted(re.findall(r"[a-z]+|\d+", " ".join(tokens))))


def _names() -> dict[str, tuple[str, ...]]:
    """Names of every device by its id."""
    names = dict(_shipped().names)
    for extra in (*_user_devices(), *_added.values()):
        names[extra.id] = (extra.id, extra.name, *extra.aliases)
    return names


def _find(name: str) -> Device | None:
    wanted, names = _keys(name), _names()
    exact = [i for i, spellings in names.items() if wanted[0] in {_keys(s)[0] for s in spellings}]
    matches = exact or [i for i, spellings in names.items() if wanted[1] in {_keys(s)[1] for s in spellings}]
    if not matches:
        return None
    chosen = matches[-1]  # the user's devices come last and win
    extras = {d.id: d for d in (*_user_devices(), *_added.values())}
    found = extras[chosen] if chosen in extras else _shipped().parse(chosen)
    if wanted[0] in {_keys(s)[0] for s in names[chosen][:2]}:
        return found
    tokens = set(_tokens(name))
    others = [
        i for i, spellings in names.items() if i != chosen and any(tokens < set(_tokens(s)) for s in spellings[:2])
    ]
    if not others:
        return found
    return replace(
        found, notes=(*found.notes, f"{name!r} was read as {found.name}; others of that name: {', '.join(others)}")
    )


def _nearest(name: str) -> str:
    import difflib

    spellings = {_keys(s)[0]: i for i, names in _names().items() for s in names}
    near = difflib.get_close_matches(_keys(name)[0], spellings, n=3, cutoff=0.5)
    ids = list(dict.fromkeys(spellings[key] for key in near))
    return f"did you mean {' or '.join(ids)}?" if ids else "nothing has a similar name"
