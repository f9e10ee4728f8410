"""A network at other batch sizes, so that its time never falls as its batch grows.

Trees know no order: between two batch sizes their correction may fall by more than the work grows. So the time is
worked out on a ladder of batch sizes that is the same whatever is asked, made monotone there (isotonic regression), and
what is asked is held between the rungs below and above it. Of two batch sizes with a rung on or between them, the
larger never takes less time; those between two neighbouring rungs lie within the same bounds.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from perfpass.graph import OPERATOR_CLASSES, OPERATORS
from perfpass.graph.table import OperatorColumns, Tables

RUNGS = 4 ** np.arange(7)
_ATTENTION = OPERATORS.index("attention")
_CONVOLUTION = OPERATOR_CLASSES.index("convolution")
_PROPORTIONAL = ("macs", "flops", "bytes_written", "input_elements", "output_elements")


def at_batches(tables: Tables, batch: np.ndarray, wanted: np.ndarray) -> Tables:
    """The N networks at K batch sizes each, ``wanted`` [N, K], as N * K tables, those of one network side by side.

    ``batch`` [N]: what the tables were counted at. Every row that reads an input grows with the batch; weights do not.
    """
    steps = wanted.shape[1]
    rows = np.diff(tables.offset)
    # Row r of network i is repeated once for each of its sizes, the rows of one size together.
    start = np.repeat(tables.offset[:-1], steps)
    size = np.repeat(rows, steps)
    offset = np.concatenate([[0], np.cumsum(size)])
    at = np.arange(offset[-1]) + np.repeat(start - offset[:-1], size)
    scale = np.repeat((wanted / batch[:, None]).ravel(), size)
    table = {f.name: np.asarray(getattr(tables.table, f.name))[at] for f in fields(OperatorColumns)}
    scale = np.where((table["constant"].astype(np.int64) & 1) != 0, 1.0, scale)
    for name in _PROPORTIONAL:
        table[name] = table[name] * scale
    # A product with a weight has more rows, one of activations more matrices.
    weights, convolution = table["weight_bytes"], table["op_class"] == _CONVOLUTION
    matrices = (weights == 0) & ~convolution | (table["op"] == _ATTENTION)
    # Weights that are themselves computed (standardized) are no weights of the table, and stay as large.
    width = table["bytes_written"] / np.maximum(table["output_elements"], 1)
    filters = table["b"] * table["n"] * table["k"] * width * convolution
    kept = np.minimum(np.maximum(weights, filters), table["bytes_read"])
    table["bytes_read"] = kept + (table["bytes_read"] - kept) * scale
    table["b"] = table["b"] * np.where(matrices, scale, 1.0)
    table["m"] = table["m"] * np.where(matrices, 1.0, scale)
    return Tables(OperatorColumns(**table), offset)


def isotonic(values: np.ndarray) -> np.ndarray:
    """[N, K] the nearest nondecreasing rows in the least squares (Barlow and Brunk, 1972: largest of least means)."""
    number, steps = values.shape
    sums = np.concatenate([np.zeros((number, 1)), np.cumsum(values, axis=1)], axis=1)
    first, last = np.arange(steps)[:, None], np.arange(steps)[None, :]
    means = (sums[:, None, 1:] - sums[:, :-1, None]) / np.maximum(last - first + 1, 1)
    means[:, last < first] = np.inf
    # Of all runs that start at i and end at k or later, the least mean; then the largest over starts up to k.
    least = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]
    least[:, last < first] = -np.inf
    found: np.ndarray = least.max(axis=1)
    return found


def held(asked: np.ndarray, batch: np.ndarray, rungs: np.ndarray) -> np.ndarray:
    """[N] values at ``batch`` [N], held between those of the rungs around it; ``rungs`` [N, K] nondecreasing."""
    every = np.arange(len(batch))
    below = np.searchsorted(RUNGS, batch, side="right") - 1
    above = np.searchsorted(RUNGS, batch, side="left")
    upper = np.where(above < len(RUNGS), rungs[every, np.minimum(above, len(RUNGS) - 1)], np.inf)
    return np.clip(asked, rungs[every, below], upper)
