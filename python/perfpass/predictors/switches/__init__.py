"""What users switch on in an engine, as transformations of its steps: speculation, shared prefixes, adapters."""

from __future__ import annotations

__all__ = ["load", "speculative", "switches"]
