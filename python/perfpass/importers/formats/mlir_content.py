"""How MLIR shows itself: as text, as bytecode, and as what ``jax.export`` serialises around bytecode."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfpass.importers.formats.content import Content

BYTECODE = b"ML\xefR"
_TEXT = (
    rb"\s*(//[^\n]*\n\s*)*(\"builtin\.module\"|\"func\.func\"|builtin\.module\b|module(\s+@|\s*\{|\s+attributes\b)|"
    rb"func\.func\s|#[\w.$]+\s*=\s*(loc\(|#?\w+<)|![\w.$]+\s*=\s)"
)
_FIRST = frozenset((b"/", b'"', b"b", b"m", b"f", b"#", b"!"))  # of the comments and words that it begins with
_MODULE_FIELD = 13  # `mlir_module_serialized` in jax/_src/export/serialization.fbs


def is_text(content: Content) -> bool:
    """Whether a file begins as MLIR text does."""
    return content.head.lstrip()[:1] in _FIRST and re.match(_TEXT, content.head) is not None


def is_bytecode(content: Content) -> bool:
    """Whether a file is MLIR bytecode, or an export of JAX around it."""
    return content.head.startswith(BYTECODE) or module_at(content.head) is not None


def module_at(content: bytes) -> int | None:
    """Where the field of the module points in a FlatBuffer of ``jax.export``; None in what is no such buffer.

    The field lies in the first bytes, what it points at may lie anywhere.
    """
    try:
        (root,) = struct.unpack_from("<I", content, 0)
        (back,) = struct.unpack_from("<i", content, root)
        table = root - back
        if not 4 <= table < root <= 1024:
            return None
        size, _ = struct.unpack_from("<HH", content, table)
        if not 4 + 2 * _MODULE_FIELD < size <= 256:
            return None
        (field,) = struct.unpack_from("<H", content, table + 4 + 2 * _MODULE_FIELD)
        (version,) = struct.unpack_from("<H", content, table + 4)
        if not field or not version:
            return None
        (offset,) = struct.unpack_from("<I", content, root + field)
    except struct.error:
        return None
    return root + int(field) + int(offset)
