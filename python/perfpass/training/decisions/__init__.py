"""Grading of decisions, made from predictions, against what was measured: nothing is fitted.

`perfpass evaluate --area decisions` grades whether models fit, `--area choose` what was chosen.
"""

from __future__ import annotations

from perfpass.training.decisions.evaluate import evaluate

__all__ = ["choose", "evaluate"]
