"""What the width of an interval says of its support, and the causes that make it wide, in words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfpass.prediction import LEVEL_WIDTHS, Interval, SupportLevel
from perfpass.predictors.learned.spread import Spread

# Support of an interval that is wider than this (high / low) is at most "near", "outside".
NEAR_FROM, OUTSIDE_FROM = LEVEL_WIDTHS


def level_of(found: Interval, level: SupportLevel) -> SupportLevel:
    """The level of a figure of which what was measured makes ``level``: no better than its width."""
    width = found.high / max(found.low, 1e-300)
    if width > OUTSIDE_FROM:
        return "outside"
    return "near" if width > NEAR_FROM and level == "in range" else level


def reason(
    what: str, found: Interval, spread: Spread, lacks: Mapping[str, np.ndarray | float], words: Mapping[str, str]
) -> tuple[str, ...]:
    """What makes an interval wide; empty where it is not."""
    width = found.high / max(found.low, 1e-300)
    if width <= NEAR_FROM:
        return ()
    causes = [words[cause] for cause, _ in spread.named(lacks)]
    return (f"{what}: bounds lie a factor of {width:.2g} apart, mostly by {', '.join(causes)}",)
