"""Files that came as bytes: a name to open them by, without a disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.errors import UnsupportedError
from perfpass.importers.formats.content import HEAD_BYTES, Content
from perfpass.importers.formats.table import recognised

if TYPE_CHECKING:
    from perfpass.graph import OpGraph
    from perfpass.importers.formats.sizes import Sizes

_UNNAMED = "the bytes"


def of_bytes(content: bytes, sizes: Sizes) -> OpGraph | None:
    """The graph of a file that came as bytes; None where they are of no format of the table.

    Raises UnsupportedError for a format that its own library reads: bytes may come from anyone.
    """
    if not owns(content):
        return None
    head = bytes(content[:HEAD_BYTES])
    with _named(content) as path:
        found = recognised(Content(path, head))
        if found is None:
            return None
        if not found.own:
            raise UnsupportedError(
                f"{found.title} is read by a library of its framework, and so from a path alone and not from bytes; "
                "give its path, or its ONNX file"
            )
        return found.read(path, sizes)


def owns(content: bytes | bytearray | memoryview) -> bool:
    """Whether bytes may be of a format of the table; ONNX's are not. Of archives `of_bytes` finds out."""
    seen = Content(Path(_UNNAMED), bytes(content[:HEAD_BYTES]))
    return seen.is_archive or recognised(seen) is not None


@contextmanager
def _named(content: bytes) -> Iterator[Path]:
    """A path that holds ``content`` as long as it is asked for. Raises UnsupportedError where the system has none."""
    if not hasattr(os, "memfd_create"):
        raise UnsupportedError("bytes of this format need Linux (memfd_create); write them to a file and give its path")
    file = os.memfd_create("model", os.MFD_CLOEXEC)
    try:
        at = 0
        while at < len(content):
            at += os.write(file, memoryview(content)[at:])
        yield Path(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
