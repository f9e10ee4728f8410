"""Public definitions of networks that no installed library has, written from their papers and configurations."""

from __future__ import annotations

from perfpass.importers.definitions.registry import Own, definition, named, names

__all__ = ["Own", "definition", "named", "names", "transformer_models"]
