"""Files of other frameworks: which format one is, told by its content, and the module that reads it."""

from __future__ import annotations

from perfpass.importers.formats.content import Content
from perfpass.importers.formats.in_memory import of_bytes, owns
from perfpass.importers.formats.sizes import Sizes, fixed
from perfpass.importers.formats.table import FORMATS, Format, named, recognised

__all__ = ["FORMATS", "Content", "Format", "Sizes", "fixed", "named", "of_bytes", "owns", "recognised"]
