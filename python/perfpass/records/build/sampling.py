"""Choosing rows of large tables in a way that is the same on every machine, and storing them small."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas

# Stored precision of a measurement: 0.05 %, a twentieth of the spread between repeats of a kernel.
MANTISSA_BITS = 10
# The reason under which readers count good rows that a sample leaves out.
NOT_SAMPLED = "good, but not in the sample that is kept"


def row_hash(rows: pandas.DataFrame, names: Sequence[str]) -> np.ndarray:
    """[N] uint64 of each row's named columns: texts by SHA-256, mixed with the sizes by splitmix64."""
    state = np.zeros(len(rows), dtype=np.uint64)
    for name in names:
        column: Any = rows[name]
        values = column.to_numpy()
        if values.dtype.kind not in "iuf":
            texts = {t: int.from_bytes(hashlib.sha256(str(t).encode()).digest()[:8], "big") for t in column.unique()}
            values = np.array([texts[t] for t in column], dtype=np.uint64)
        state = _mix(state ^ values.astype(np.uint64))
    return state


def _mix(state: np.ndarray) -> np.ndarray:
    """One step of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    with np.errstate(over="ignore"):
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def rounded(values: np.ndarray) -> np.ndarray:
    """``values`` with ``MANTISSA_BITS`` bits of mantissa, which compress well."""
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    return np.ldexp(np.round(mantissa * 2**MANTISSA_BITS) / 2**MANTISSA_BITS, exponent)
