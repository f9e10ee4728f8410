"""Grading of decisions: what was chosen from predictions, against what was measured of everything that stood to choose.

`perfpass.training.decisions.choose` is an area of `perfpass evaluate`.
"""

from __future__ import annotations

__all__ = ["choose"]
