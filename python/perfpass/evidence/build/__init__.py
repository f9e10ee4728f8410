"""How the shipped table of evidence is made from data/records and data/graphs: `python -m perfpass.evidence.build`."""

from __future__ import annotations

__all__ = ["graphs", "language", "rows", "write"]
