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

    The middle of measured over the root of the uses, and how far nine in ten lie from it; networks on boards count
    alike, and a board that is not among n others is wider by sqrt(1 + 1 / n).
    """
    used = np.sqrt(rows.compute_use + rows.memory_use) * rows.limit_w
    off = np.log(rows.measured_w / used).to_numpy(dtype=np.float64)
    group = rows.device + "|" + rows.model
    weight = 1.0 / group.map(group.value_counts()).to_numpy(dtype=np.float64)
    order = np.argsort(off, kind="stable")
    share = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    middle = float(np.interp(0.5, share, off[order]))
    grown = float(np.sqrt(1 + 1 / rows.device.nunique()))
    low, high = (float(np.exp(grown * (np.interp(tail, share, off[order]) - middle))) for tail in _TAILS)
    return StepPower(float(np.exp(middle)), low, high)


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
