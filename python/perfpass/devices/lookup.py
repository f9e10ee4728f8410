"""Finding a device by any of its names: of the catalogue, of the user's files, or of a cloud's machine that has it."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from perfpass.devices.names import (
    Reading,
    alike,
    in_any_order,
    joined,
    may_be_of,
    readings,
    refusal,
    shared,
    tokens,
    without_cpu_tail,
)
from perfpass.devices.shipped import shipped
from perfpass.devices.spec import Device
from perfpass.devices.toml_file import HOST_NAMES, read
from perfpass.errors import ArgumentError, DeviceError

_MIG_SUFFIX = r"(?i)^(?P<parent>.+?)(?:[:/]|\s+MIG\s+)(?P<profile>\d+g\.\S+)$"
# A name that asks for the cores of what has a GPU of its name, too.
_OF_CORES = r"[\w)][ _-](?:cpu|processor)(?: cores)?\s*$"
# A CPU and how many threads a runtime has there: "cpu:16", "EPYC 9654:32 threads".
_THREADS_SUFFIX = r"(?i)^(?P<cpu>.+?):(?P<threads>\d{1,4})\s*(?:t|threads?|c|cores?)?$"
# A name that asks for a slice and does not say which.
_EMPTY_PROFILE = r"(?i)^[\W_]*[:/]|[:/][\W_]*$|\bMIG[\W_]*$"
# A name has one of these where it speaks of a slice.
_SLICED = (":", "/", "mig")

# Words that make another product of a name: a 3060 Ti is no 3060.
_OTHER_PRODUCT = frozenset({"ti", "super", "xt", "xtx", "gre"})
_NVIDIA_SYSTEM = r"(?i)\bDGX[- ]?(?:\d\w*|[A-Z]\d+)"

_NO_DIGITS = bytes(set(range(256)) - set(b"0123456789\n"))

_added: dict[str, Device] = {}


def device(name: str | Device) -> Device:
    """The device of a name, id or alias, of one with a MIG profile or a number of threads, or this machine's CPU.

    "a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", "A100 80GB", "a100-80gb:1g.10gb", "A100-SXM4-80GB/1g.10gb", "cpu",
    "epyc-9654:16" (a runtime of 16 threads there). A name
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
    sliced = any(sign in name.lower() for sign in _SLICED)
    if sliced and (split := re.match(_MIG_SUFFIX, name.strip())):
        return device(split["parent"]).mig_slice(split["profile"])
    if sliced and (split := re.match(_THREADS_SUFFIX, name.strip())):
        whole = _host(split["cpu"]) or _find(split["cpu"])
        if whole is not None:  # else the number belongs to something else: "cudnn:8500"
            return whole.of_threads(int(split["threads"]))
    if (machine := _host(name)) is not None:
        return machine
    if sliced and re.search(_EMPTY_PROFILE, name.strip()):
        raise DeviceError(
            f"{name!r} names no MIG profile or no device; write DEVICE:PROFILE (a100:1g.5gb) for a slice, and the "
            "device alone for all of it"
        )
    found = _find(name) or _in_cloud(name)
    if found is None and (reason := refusal(name)) is not None:
        raise DeviceError(f"{name!r}: {reason}")
    found = found or _undressed(name)
    if found is None:
        raise DeviceError(
            f"unknown device {name!r}; {_nearest(name)} `perfpass devices` lists all, and a TOML file in "
            f"{user_folder()}, in PERFPASS_DEVICES or by --device-file adds one (docs/reference/devices.md)"
        )
    return found


def _host(name: str) -> Device | None:
    """The CPU of this machine where that is asked."""
    if name.strip().lower() not in HOST_NAMES:
        return None
    from perfpass.devices.host import host

    return host()


def catalogue(*, boards: bool = False) -> tuple[Device, ...]:
    """Every known device: shipped, then the user's, then added; a later one replaces an earlier one of the same id.

    ``boards``: without the shipped ones that are a CPU or share its memory, which then are not read.
    """
    known = shipped()
    devices = {
        key: known.parse(key)
        for key in known.names
        if not (boards and any(known.says(key, line) for line in ('kind = "cpu"', "unified_memory = true")))
    }
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
    return Path(user_path())


def user_path() -> str:
    """`user_folder` as text, for whoever only looks whether a file is there."""
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return os.path.join(os.path.expanduser(config), "perfpass", "devices")


def _user_files() -> Iterator[Path]:
    if os.path.isdir(folder := user_path()):
        yield from sorted(Path(folder).glob("*.toml"))
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


@lru_cache(maxsize=1024)
def _read_once(path: Path, stamp: int) -> tuple[Device, ...]:
    return tuple(read(path))


def read_beforehand() -> None:
    """What finding a shipped device reads, whichever it is: for a process that answers many questions."""
    for table in (_shipped_spellings, shared, alike):
        table()


@cache
def _shipped_spellings() -> tuple[list[str], list[str], list[bytes]]:
    """Every shipped spelling, the id of its device, and the digits in it."""
    names = shipped().names
    every = [spelling for spellings in names.values() for spelling in spellings]
    ids = [key for key, spellings in names.items() for _ in spellings]
    return every, ids, _digits("\n".join(every)).split(b"\n")


def _digits(text: str) -> bytes:
    return text.encode().translate(None, _NO_DIGITS)


@lru_cache(maxsize=1024)
def _shipped_as(wanted: str, split: Callable[[str], str]) -> tuple[str, str] | None:
    """The shipped spelling that ``split`` makes ``wanted``, and its device's id; the last of several.

    Only spellings with the digits of ``wanted`` are split, since no digit is left out of a name: to split all of them
    takes as long as half a prediction.
    """
    digits = sorted(_digits(wanted))
    every, ids, has = _shipped_spellings()
    near = [at for at, found in enumerate(has) if len(found) == len(digits) and sorted(found) == digits]
    return next(((every[at], ids[at]) for at in reversed(near) if split(every[at]) == wanted), None)


def _extras() -> dict[str, Device]:
    return {d.id: d for d in (*_user_devices(), *_added.values())}


def _names() -> dict[str, tuple[str, ...]]:
    """Names of every device by its id."""
    return {**shipped().names, **{d.id: (d.id, d.name, *d.aliases) for d in _extras().values()}}


def _namesakes(name: str, names: Mapping[str, Sequence[str]]) -> list[str]:
    """Ids of those that say all that ``name`` says, and more, in id or name."""
    said = set(tokens(name))
    word = max(said, key=len, default="")
    # A cheap condition first, which leaves few names to split.
    near = [key for key, said_of in names.items() if word in said_of[0].lower() or word in said_of[1].lower()]
    return [
        key
        for key in near
        if any(all(w in text.lower() for w in said) and _says_more(set(tokens(text)), said) for text in names[key][:2])
    ]


def _says_more(words: set[str], said: set[str]) -> bool:
    return said < words and not (words - said) & _OTHER_PRODUCT


@lru_cache(maxsize=256)
def _shipped_namesakes(name: str) -> tuple[str, ...]:
    return tuple(_namesakes(name, shipped().names))


def _find(name: str) -> Device | None:
    found = _found(name, extras) if (extras := _extras()) else _shipped(name)
    if found is not None and found.kind == "gpu" and re.search(_OF_CORES, name, re.IGNORECASE):
        raise DeviceError(
            f"{name.strip()!r} asks for a processor's cores; the catalogue has its GPU alone ({found.id}). Ask for a "
            "processor of the same cores (`perfpass devices`), or describe these in a device file "
            "(docs/reference/devices.md)"
        )
    return found


@lru_cache(maxsize=1024)
def _shipped(name: str) -> Device | None:
    return _found(name, {})


def _found(name: str, extras: Mapping[str, Device]) -> Device | None:
    found = _among(without_cpu_tail(name), name.strip(), extras)
    return found if found is not None and may_be_of(name, found.vendor) else None


def _among(name: str, asked: str, extras: Mapping[str, Device]) -> Device | None:
    wanted = joined(name)
    shipped_so = _shipped_as(wanted, joined)  # of every spelling, in full: "rtx3080" is "RTX 3080"
    mine = [(d, {joined(s) for s in (d.id, d.name, *d.aliases)}) for d in extras.values()]
    alike_mine = (d for d, spellings in reversed(mine) if wanted in spellings)  # the user's devices win
    found = extras.get(asked) or next(alike_mine, None)  # "my-cpu" and "my-gpu" are spelled alike
    if found is not None:
        hidden = found.id if shipped_so is None else shipped_so[1]
        return found if hidden == found.id else _read_as(found, _hides(name, found, hidden))
    if shipped_so is not None:
        found = extras.get(shipped_so[1]) or shipped().parse(shipped_so[1])
    words = "" if found is not None else in_any_order(name)
    if found is None:
        reordered = ((d, {in_any_order(s) for s in (d.id, d.name, *d.aliases)}) for d in extras.values())
        found = next((d for d, spellings in reordered if words in spellings), None)
    if found is None and (reordered_so := _shipped_as(words, in_any_order)) is not None:
        found = extras.get(reordered_so[1]) or shipped().parse(reordered_so[1])
    if found is None and wanted in shared():
        first, *further = shared()[wanted]
        found = extras.get(first) or shipped().parse(first)
        return _one_of(found, name, further) if further else found
    if found is None:
        return None
    others: list[str] = []
    if wanted not in {joined(found.id), joined(found.name)}:
        spelling = name if shipped_so is None else shipped_so[0]
        others = [key for key in _shipped_namesakes(spelling) if key != found.id and key not in extras]
        others += _namesakes(spelling, {d.id: (d.id, d.name) for d in extras.values() if d.id != found.id})
    others += [key for key in alike().get(wanted, ()) if key not in others]
    return _one_of(found, name, others) if others else found


def _one_of(found: Device, name: str, others: Sequence[str]) -> Device:
    note = f"{name!r} was read as {found.name}; others of that name: {', '.join(others)}"
    return replace(found, notes=(*found.notes, note), others=tuple(others))


def _in_cloud(name: str) -> Device | None:
    """The GPU of a cloud's instance type. Raises DeviceError for a share of one."""
    from perfpass.devices.clouds import instance

    known = instance(name)
    if known is None:
        return None
    found = device(known.device)
    found = replace(found, others=alike().get(joined(name), ()))
    also = f"; it may also have {', '.join(found.others)}" if found.others else ""
    return _read_as(found, known.understood_as(found.name) + also)


def _undressed(name: str) -> Device | None:
    """The device of a name that says more than it: "8x A100 80GB", "SYSTEM (4x H100-PCIe-80GB, SOFTWARE)", "4090 24G".

    Raises DeviceError for a memory that no board of the name has.
    """
    for reading in readings(name):
        found = _find(reading.name) or _in_cloud(reading.name)
        if found is None:
            continue
        chosen = _of_system(_of_memory(found, reading, name), reading)
        each = f"{found.read_as}, each" if found.read_as else chosen.name
        one = "" if reading.count == "1" else "; the figures are those of one"
        times = "" if reading.count == "1" else f"{reading.count} x "
        unused = f"; not used: {', '.join(reading.unused)}" if reading.unused else ""
        return _read_as(chosen, f"{name.strip()!r} was read as {times}{each}{one}{unused}")
    return _first_of_several(name)


def _first_of_several(name: str) -> Device | None:
    """The first board of a chip that several share, as `lspci` prints them: "[Radeon RX 7900 XT/7900 XTX/7900M]"."""
    inside = re.findall(r"\[([^\[\]]+/[^\[\]]+)\]", name)  # the maker's stands first: "[AMD/ATI] Navi 31 [...]"
    if not inside:
        return None
    first, *further = re.split(r"\s*/\s*", inside[-1].strip())
    family = " ".join(itertools.takewhile(lambda word: not re.search(r"\d", word), first.split()))
    boards = [_find(first), *(_find(part) or _find(f"{family} {part}") for part in further)]
    known = list(dict.fromkeys(board.id for board in boards if board is not None))
    if boards[0] is None or len(known) < 2:
        return None
    return _one_of(device(known[0]), name.strip(), known[1:])


def _of_system(found: Device, reading: Reading) -> Device:
    """``found``, or the board of its memory that the system named beside it has: the V100 of a DGX-2 is an SXM3."""
    from perfpass.devices.clouds import instance

    systems = (instance(text) for words in reading.unused for text in re.findall(_NVIDIA_SYSTEM, words))
    held = {known.device for known in systems if known is not None} & {found.id, *found.others}
    if len(held) != 1 or (board := device(held.pop())).memory_bytes != found.memory_bytes:
        return found
    return board


def _of_memory(found: Device, reading: Reading, name: str) -> Device:
    """``found``, or the board that differs from it by its memory alone, of the memory that the name says.

    Of others that the name may mean, those of that memory stay.
    """
    stated = reading.memory_gib or reading.driver_gib
    if not stated:
        return found
    if found.unified_memory and reading.driver_gib is None and found.kind == "gpu" and found.vendor in ("Intel", "AMD"):
        return found  # drivers name the share of the system's memory that a processor's GPU may take
    common = {*tokens(reading.name), *tokens(found.id)}
    boards = {found.id: found}
    for key in (*_shipped_namesakes(reading.name), *found.others):
        boards.setdefault(key, device(key))
    # Drivers report what is left of the memory that is sold, in whole GiB.
    fitting = [key for key, board in boards.items() if 0.9 <= stated / (board.memory_bytes / 2**30) <= 1.03]
    chosen = next((key for key in fitting if _is_memory(set(tokens(key)) - common)), None)
    if chosen is not None:
        others = [key for key in found.others if key in fitting and key != chosen]
        board = _extras().get(chosen) or shipped().parse(chosen)
        return _one_of(board, name.strip(), others) if others else board
    alone = [board for key, board in boards.items() if _is_memory(set(tokens(key)) - common)]
    said = ", ".join(f"{board.id} ({board.memory_bytes / 2**30:g} GiB)" for board in alone)
    if reading.memory_gib is None:
        note = f"the driver reported {stated} GB, and none of the name has as much: {said}"
        return replace(found, notes=(*found.notes, note))
    raise DeviceError(f"{name!r}: no known board of that name has {stated} GB; known: {said}")


def _is_memory(words: set[str]) -> bool:
    return all(word[0].isdigit() and word.endswith("gb") for word in words)


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

    known = _names()
    spellings = {joined(s): i for i, names in known.items() for s in names}
    clouds = {joined(s): s for s in instance_names()}
    name = without_cpu_tail(name)
    close = difflib.get_close_matches(joined(name), {**clouds, **spellings}, n=6, cutoff=0.6)
    near = dict.fromkeys(spellings.get(key) or clouds[key] for key in close)
    of_maker = [
        [key for key in keys if key not in known or may_be_of(name, device(key).vendor)][:3]
        for keys in (_namesakes(name, known), near)
    ]
    ids = list(dict.fromkeys(itertools.chain(*of_maker)))[:4]
    return f"did you mean {' or '.join(ids)}?" if ids else "nothing has a similar name;"
