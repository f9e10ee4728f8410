"""What the width of an interval says of its support, and the causes that make it wide, in words.

An area states its causes once, as a mapping from each to its words: they follow "mostly by".
"""

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


def factor(width: float) -> str:
    """High / low with one decimal, and said to be over a limit of the levels that this would round it to."""
    shown = f"{width:.1f}"
    return f"over {shown}" if width > float(shown) in LEVEL_WIDTHS else shown


def wide_by(spread: Spread, lacks: Mapping[str, np.ndarray | float], words: Mapping[str, str]) -> tuple[str, ...]:
    """What makes the first question's interval wide, in ``words``, the largest share first."""
    return tuple(words[cause] for cause, _ in spread.named(lacks))


def reason(
    what: str, found: Interval, spread: Spread, lacks: Mapping[str, np.ndarray | float], words: Mapping[str, str]
) -> tuple[str, ...]:
    """What makes an interval wide; empty where it is not."""
    width = found.high / max(found.low, 1e-300)
    if width <= NEAR_FROM:
        return ()
    causes = ", ".join(wide_by(spread, lacks, words))
    return (f"{what}: bounds lie a factor of {factor(width)} apart, mostly by {causes}",)
