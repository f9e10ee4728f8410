"""Widths of the time of training steps: errors as of `perfpass.training.time_widths`, beside what is known of hosts.

How far hosts lie apart is told by the effects that the levels are fitted with (`operators.least_widths`), not by errors
of steps, of which few wait. The other causes are fitted beside that width, so that steps which wait are not made wide
twice. On which side of what ships a device or a laboratory lies says nothing of the next: there are a dozen and a half
of them, and an error counts once on either side.

Networks of measured families, families left out, devices and other laboratories are kinds of sources, each as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from perfpass.predictors.learned.spread import Spread
from perfpass.training import spread, time_widths
from perfpass.training.spread import Errors

# How often a kind of source counts, beside 1: a user is of another laboratory, whatever the network and the board.
TIMES: Mapping[str, float] = {"source": 2.0}


def fit(parts: Iterable[Errors], least: Mapping[str, float]) -> Spread:
    """The widths that ship, from all parts; ``least``: log half-widths by cause that something else than errors tells.

    Raises ArgumentError where no part has an error.
    """
    kept = [part.thinned(time_widths.MOST_ROWS).mirrored() for part in parts if len(part)]
    return spread.fit(Errors.joined(kept), time_widths.PRIOR, least=least, times=TIMES)


def bounds(parts: Iterable[Errors], asked: Errors, least: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """[N] log bounds of what is ``asked``, as those that ship, but from ``parts`` and ``least`` alone.

    A question of a user comes from another laboratory than any record.
    """
    lacks = dict(zip(asked.causes, asked.lacks.T, strict=True)) | dict(spread.ANOTHER_LABORATORY)
    return fit(parts, least).bounds(lacks)
