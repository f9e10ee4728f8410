"""Files of other frameworks: which format one is, told by its content, and the module that reads it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perfpass.importers.formats.content import Content, is_gguf
from perfpass.importers.formats.table import FORMATS, Format, named, recognised

if TYPE_CHECKING:
    from perfpass.importers.formats.in_memory import of_bytes, owns
    from perfpass.importers.formats.sizes import Sizes, fixed

# Imported on first use: every model that a user names is looked at, few are files of these formats.
_HOME = {
    "of_bytes": "perfpass.importers.formats.in_memory",
    "owns": "perfpass.importers.formats.in_memory",
    "Sizes": "perfpass.importers.formats.sizes",
    "fixed": "perfpass.importers.formats.sizes",
}
__all__ = ["FORMATS", "Content", "Format", "Sizes", "fixed", "is_gguf", "named", "of_bytes", "owns", "recognised"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'perfpass.importers.formats' has no attribute {name!r}")
