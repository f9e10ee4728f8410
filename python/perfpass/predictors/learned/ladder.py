"""A network at other batch sizes, so that its time never falls as its batch grows.

Trees know no order: between two batch sizes their correction may fall by more than the work grows. So the time is
worked out on a ladder of batch sizes that is the same whatever is asked, made monotone there (isotonic regression), and
what is asked is held between the rungs below and above it. Of two batch sizes with a rung on or between them, the
larger never takes less time; those between two neighbouring rungs lie within the same bounds.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from perfpass import _core
from perfpass.graph.table import COLUMNS, OperatorColumns, Tables

RUNGS = 4 ** np.arange(7)


def at_batches(tables: Tables, batch: np.ndarray, wanted: np.ndarray) -> Tables:
    """The N networks at K batch sizes each, ``wanted`` [N, K], as N * K tables, those of one network side by side.

    ``batch`` [N]: what the tables were counted at. Every row that reads an input grows with the batch; weights do not.
    """
    held_as = vars(tables.table)
    columns = {name: np.ascontiguousarray(held_as[name]) for name in COLUMNS}
    # [N], [N, K] as the core reads them.
    offset = np.ascontiguousarray(tables.offset, dtype=np.int64)
    of, asked = (np.ascontiguousarray(values, dtype=np.float64) for values in (batch, wanted))
    scaled, offsets = _core.at_batches(columns, offset, of, asked)
    return Tables(OperatorColumns(**scaled), offsets)


@cache
def _runs(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """[K, K] lengths of the runs from the first to the last of two of K ``steps``, and where the last is before it."""
    length = np.arange(steps)[None, :] - np.arange(steps)[:, None] + 1
    return np.maximum(length, 1), length < 1


def isotonic(values: np.ndarray) -> np.ndarray:
    """[N, K] the nearest nondecreasing rows in the least squares (Barlow and Brunk, 1972: largest of least means)."""
    number, steps = values.shape
    sums = np.zeros((number, steps + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    length, ends_before = _runs(steps)
    means = (sums[:, None, 1:] - sums[:, :-1, None]) / length
    means[:, ends_before] = np.inf
    # Of all runs that start at i and end at k or later, the least mean; then the largest over starts up to k.
    least = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]
    least[:, ends_before] = -np.inf
    found: np.ndarray = least.max(axis=1)
    return found


def held(asked: np.ndarray, batch: np.ndarray, rungs: np.ndarray) -> np.ndarray:
    """[N] values at ``batch`` [N], held between those of the rungs around it; ``rungs`` [N, K] nondecreasing."""
    every = np.arange(len(batch))
    below = RUNGS.searchsorted(batch, side="right") - 1
    above = RUNGS.searchsorted(batch, side="left")
    upper = np.where(above < len(RUNGS), rungs[every, np.minimum(above, len(RUNGS) - 1)], np.inf)
    return np.minimum(np.maximum(asked, rungs[every, below]), upper)


def seconds(
    asked: np.ndarray, rungs: np.ndarray, low: np.ndarray, high: np.ndarray, batch: np.ndarray
) -> dict[str, np.ndarray]:
    """[N] median and bounds of the time at ``batch`` [N], from log seconds there and on the rungs.

    ``low`` and ``high``: log bounds on the rungs, and in the last column there. A larger batch takes no less time, so
    that its upper bound holds for a smaller one too, and the lower bound of a smaller one for it: on the rungs both
    bounds are nondecreasing so, and what is asked is held between them as the median is, also where its own width
    shrinks faster than its time grows.
    """
    steps = rungs.shape[1]
    median = held(asked, batch, rungs)
    under = np.maximum.accumulate(rungs + low[:, :steps], axis=1)
    over = np.minimum.accumulate((rungs + high[:, :steps])[:, ::-1], axis=1)[:, ::-1]
    return {
        "median_s": np.exp(median),
        "low_s": np.exp(np.minimum(held(median + low[:, -1], batch, under), median)),
        "high_s": np.exp(np.maximum(held(median + high[:, -1], batch, over), median)),
    }
