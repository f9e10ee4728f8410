"""Fits the power of training steps on Zeus' boards, and grades it with each board held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from perfpass.devices import device
from perfpass.predictors.training_step.power import StepPower, asked, resting_w

_TAIL = 0.95
_AWAKE = np.arange(0.0, 0.21, 0.01)  # shares of the limit
_HALF = np.arange(0.1, 0.61, 0.02)  # of the sum of both uses


def fit(rows: Any) -> StepPower:
    """From rows with ``measured_w``, ``limit_w``, ``compute_use``, ``memory_use``, ``device`` and ``model`` (pandas).

    The middle of what is drawn over rest, over what the uses ask for of what the limit leaves; of what boards with GDDR
    draw at rest, and of uses that ask for half, those with the least mean error (in logarithms). Then how far nine in
    ten lie from what follows, on either side: where a handful of boards lie says nothing of the next one's side.
    Networks on boards count alike: as few as they are, nine in ten of their like lie as far out as Student's t says,
    and a board that is not among n others is wider by sqrt(1 + 1 / n).
    """
    from scipy import stats

    group = rows.device + "|" + rows.model
    weight = 1.0 / group.map(group.value_counts()).to_numpy(dtype=np.float64)
    tried = [found for awake in _AWAKE for found in _fitted(rows, weight, float(awake))]
    awake, half, scale, off = min(tried, key=lambda found: float(weight @ np.abs(found[3])))
    few = stats.t.ppf(_TAIL, max(group.nunique() - 1, 1)) / stats.norm.ppf(_TAIL)
    grown = float(few * np.sqrt(1 + 1 / rows.device.nunique()))
    high = float(np.exp(grown * _quantile(np.abs(off), weight, 2 * _TAIL - 1)))
    return StepPower(scale, awake, 1 / high, high, half)


def _fitted(rows: Any, weight: np.ndarray, awake: float) -> Iterator[tuple[float, float, float, np.ndarray]]:
    """``awake``, every half, the scale beside both, and the log of measured over predicted [N]."""
    watts, limit = (rows[name].to_numpy(dtype=np.float64) for name in ("measured_w", "limit_w"))
    rest = np.empty_like(limit)
    for name in rows.device.unique():
        own = (rows.device == name).to_numpy()
        rest[own] = resting_w(device(str(name)), limit[own], awake)
    use = (rows.compute_use + rows.memory_use).to_numpy(dtype=np.float64)
    for half in _HALF.tolist():
        used = asked(use, half) * (limit - rest)
        scale = _quantile((watts - rest) / used, weight, 0.5)
        yield awake, half, scale, np.log(watts / (rest + scale * used))


def _quantile(values: np.ndarray, weight: np.ndarray, share: float) -> float:
    order = np.argsort(values, kind="stable")
    place = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    return float(np.interp(share, place, values[order]))


def held_out(rows: Any) -> np.ndarray:
    """[N, 3] watts and their bounds, each board's from the others."""
    out = np.full((len(rows), 3), np.nan)
    for name in rows.device.unique():
        own = (rows.device == name).to_numpy()
        found = fit(rows[~own])
        for limit in rows.limit_w[own].unique():
            here = own & (rows.limit_w == limit).to_numpy()
            board = replace(device(str(name)), power_limit_w=float(limit))
            watts = found.predict(board, *(rows[use][here].to_numpy() for use in ("compute_use", "memory_use")))
            out[here] = np.column_stack([watts.median, watts.low, watts.high])
    return out
