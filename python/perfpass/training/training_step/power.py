"""Fits the power of training steps on Zeus' boards, and grades it with each board held out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from perfpass.devices import device
from perfpass.predictors.training_step.power import StepPower

_TAILS = (0.05, 0.95)


def fit(rows: Any) -> StepPower:
    """From rows with ``measured_w``, ``limit_w``, ``compute_use``, ``memory_use``, ``device`` and ``model`` (pandas).

    The middle of what is drawn over idle, over the root of the uses of the rest, and how far nine in ten lie from what
    follows. Networks on boards count alike: as few as they are, nine in ten of their like lie as far out as Student's t
    says, and a board that is not among n others is wider by sqrt(1 + 1 / n).
    """
    from scipy import stats

    watts, limit = (rows[name].to_numpy(dtype=np.float64) for name in ("measured_w", "limit_w"))
    idle = np.minimum(rows.device.map(lambda name: device(name).idle_power_w).to_numpy(dtype=np.float64), limit)
    used = np.sqrt((rows.compute_use + rows.memory_use).to_numpy(dtype=np.float64)) * (limit - idle)
    group = rows.device + "|" + rows.model
    weight = 1.0 / group.map(group.value_counts()).to_numpy(dtype=np.float64)
    scale = _quantile((watts - idle) / used, weight, 0.5)
    off = np.log(watts / (idle + scale * used))
    middle = _quantile(off, weight, 0.5)
    few = stats.t.ppf(_TAILS[1], max(group.nunique() - 1, 1)) / stats.norm.ppf(_TAILS[1])
    grown = float(few * np.sqrt(1 + 1 / rows.device.nunique()))
    low, high = (float(np.exp(grown * (_quantile(off, weight, tail) - middle))) for tail in _TAILS)
    return StepPower(scale, low, high)


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
