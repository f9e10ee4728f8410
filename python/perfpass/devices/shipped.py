"""The shipped catalogue: a folder of TOML files, of which only names are read until a device is asked for.

Reading all blocks takes over 100 ms, which a single prediction need not pay: names are found by a scan of the lines
that hold them (id, name and aliases open every block), and only the block asked for is parsed, with its file's sources.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Any

from perfpass.devices.spec import Device
from perfpass.devices.toml_file import device_of
from perfpass.toml_table import parse

FOLDER = Path(__file__).with_name("catalogue")
# In the order in which they are listed; architectures.toml holds what devices of one architecture share.
FILES = (
    "nvidia_server",
    "nvidia_workstation",
    "nvidia_geforce",
    "nvidia_laptop",
    "nvidia_jetson",
    "amd",
    "intel",
    "apple",
    "accelerators",
    "cpu_xeon",
    "cpu_server",
    "cpu_desktop",
)
_HEADER = "\n[[device]]\n"


class _File:
    """One file: its text, and the names of its devices."""

    def __init__(self, path: Path) -> None:
        self.name = f"{FOLDER.name}/{path.name}"
        self._head, *blocks = path.read_bytes().decode().split(_HEADER)
        self.names: dict[str, tuple[str, ...]] = {}
        self._blocks: dict[str, str] = {}
        for block in blocks:
            # id = "..."   name = "..."   aliases = ["...", "..."], where it has some
            key, name, aliases, _ = block.split("\n", 3)
            key, name = key[len('id = "') : -1], name[len('name = "') : -1]
            self.names[key] = (key, name, *aliases.split('"')[1::2]) if aliases[:11] == "aliases = [" else (key, name)
            self._blocks[key] = block

    def block(self, key: str) -> str:
        """The TOML text of one device, without its header."""
        return self._blocks[key]

    def says(self, key: str, line: str) -> bool:
        """Whether the text of one device has a line."""
        return f"\n{line}\n" in self._blocks[key]

    @cached_property
    def sources(self) -> dict[str, str]:
        """Titles of the sources of this file."""
        sources: dict[str, str] = parse(self._head)["sources"]
        return sources


class Shipped:
    """All files: ``names`` of every device by its id, and ``parse`` for one of them."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self.names: dict[str, tuple[str, ...]] = {}
        for name in FILES:
            file = _File(FOLDER / f"{name}.toml")
            self._files.update(dict.fromkeys(file.names, file))
            self.names.update(file.names)
        self._parsed: dict[str, Device] = {}

    @cached_property
    def _architectures(self) -> str:
        return (FOLDER / "architectures.toml").read_text(encoding="utf-8")

    def _architecture(self, name: str) -> dict[str, Any]:
        """What devices of an architecture share, by its name: a line of the file, where they share anything."""
        start = self._architectures.find(f"\n{name} = ") + 1
        return parse(self._architectures[start : self._architectures.find("\n", start)]) if start else {}

    def says(self, key: str, line: str) -> bool:
        """Whether the text of a device has a line, without reading its figures."""
        return self._files[key].says(key, line)

    def parse(self, key: str) -> Device:
        """The device of an id."""
        if key not in self._parsed:
            file = self._files[key]
            row = parse(file.block(key))
            architecture = self._architecture(row.get("architecture", ""))
            self._parsed[key] = device_of(row, file.sources, architecture, file.name)
        return self._parsed[key]


@cache
def shipped() -> Shipped:
    """The catalogue, read once a process."""
    return Shipped()
