"""Versions of runtimes."""

from __future__ import annotations

import re
from math import inf

from perfpass.errors import ArgumentError

# As runtimes number releases (0.18.0, v0.5.9.post1, 1.2.0rc6, 1.1.0-dev.2) and name nightly builds.
_VERSION = re.compile(r"v?\d+(\.\d+){1,3}([.+-]?[a-z]+[.-]?\d*)*(\+[\w.]+)?|nightly(-[\w.]+)*", re.ASCII)
_LONGEST_VERSION = 64


def check_version(version: str) -> None:
    """Raises ArgumentError for a text that is no version of a runtime; empty is the newest."""
    if version and (len(version) > _LONGEST_VERSION or not _VERSION.fullmatch(version)):
        raise ArgumentError(
            f"runtime version {version[:_LONGEST_VERSION]!r} is none; give one as 0.18.0 or 1.2.0rc6, or leave it out"
        )


def release(version: str) -> tuple[float, ...]:
    """Major and minor number of a runtime's version; above all of one that has none (the newest, a nightly build)."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (float(found[1]), float(found[2])) if found else (inf,)
