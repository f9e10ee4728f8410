"""How wide the ratio of two runs is: `Spread` of each figure over what the runs do not share, fitted on pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from perfpass.errors import ArtefactError
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import NAMED_SHARE, Spread

NAME = "difference"
FIGURES = ("latency", "memory", "energy")
# A cause beside those of `unlike`: by operators that nothing was learned of, one time is told otherwise than the other.
ANOTHER_ROAD = "another road"
# A log half-width, and what it is made of: causes with their shares, the largest first.
Found = tuple[float, tuple[tuple[str, float], ...]]


class Widths:
    """Log half-widths of ratios by figure; of latency and energy also by the kind of device."""

    def __init__(self, folder: Path | str | None = None) -> None:
        """Reads the shipped artefact, or the one in ``folder``. Raises ArtefactError."""
        found = artefacts.Artefact(folder or artefacts.shipped(NAME))
        try:
            self._spread = {name: Spread.from_dict(values) for name, values in found.manifest["spread"].items()}
        except (AttributeError, KeyError, TypeError) as error:
            raise ArtefactError(f"{found.folder}: no widths of ratios; run `perfpass train --area {NAME}`") from error

    @staticmethod
    @cache
    def load() -> Widths:
        """The shipped ones, read once per process. Raises ArtefactError."""
        return Widths()

    def of(self, figure: str, kind: str, lacks: Mapping[str, float], most: float = math.inf) -> Found:
        """The log half-width of a ratio, the same on both sides, and the causes with their shares.

        ``figure`` of `FIGURES`; ``kind`` of device; ``lacks`` of `unlike`; ``most``: the half-width of two figures that
        share nothing. Raises ArtefactError, ArgumentError.
        """
        spread = self._spread.get(f"{figure} {kind}", self._spread.get(figure))
        if spread is None:
            raise ArtefactError(f"the widths of ratios lack {figure}; run `perfpass train --area {NAME}`")
        if not any(lacks.values()):
            return 0.0, ()
        return min(half_width(spread, lacks), most), spread.named(lacks)


def widened(found: Found, share: float, apart: float) -> Found:
    """What `Widths.of` gave, of two figures of which a ``share`` (0 to 1) of the logarithm is told in another way.

    That part is known as two figures that share nothing are, whose log half-width is ``apart``; squares add, and the
    whole is no wider than them.
    """
    if not share * apart:
        return found
    width, causes = found
    both, other = width**2 + (share * apart) ** 2, (share * apart) ** 2
    shares = ((ANOTHER_ROAD, other / both), *((cause, part * (1.0 - other / both)) for cause, part in causes))
    named = sorted((part for part in shares if part[1] >= NAMED_SHARE), key=lambda part: -part[1])
    return min(math.sqrt(both), apart), tuple(named)


def half_width(spread: Spread, lacks: Mapping[str, float]) -> float:
    """Both sides of a ratio are one: with OLD and NEW changed places it is inverted."""
    low, high = spread.bounds(lacks)
    return math.sqrt((float(low[0]) ** 2 + float(high[0]) ** 2) / 2.0)
