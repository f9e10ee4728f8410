"""Names of the networks of timm and torchvision (`library_names.txt`), known without importing either."""

from __future__ import annotations

import functools
from pathlib import Path

from perfpass.bounded_file import read_file

PATH = Path(__file__).with_suffix(".txt")
_LARGEST_BYTES = 2**20


@functools.cache
def names() -> dict[str, str]:
    """Name of a network -> the library that defines it; timm where both do, as it knows the size of the images."""
    found: dict[str, str] = {}
    library = ""
    for line in read_file(PATH, "the names of networks", _LARGEST_BYTES).decode().splitlines():
        if line.startswith("#"):
            library = line.split()[1]
        else:
            for name in line.split():
                found.setdefault(name, library)
    return found


def library(name: str) -> str:
    """The library that defines a network of this name, with or without a tag of weights; "" where none does."""
    return names().get(name.lower().partition(".")[0], "")
