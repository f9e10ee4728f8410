"""Public definitions of networks that no installed library has, written from their papers and configurations."""

from __future__ import annotations

from perfpass.importers.definitions.registry import Own, definition, names

__all__ = ["Own", "definition", "names", "transformer_models"]
