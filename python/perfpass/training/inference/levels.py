"""Levels fitted to measured times: Gauss-Newton steps on logarithms, with priors and with tails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

_HALVES = 8  # of a step that gains nothing
_LEAST_GAIN = 1e-3  # of a step, as a log likelihood


class Model(Protocol):
    """P parameters with a prior ``deviation`` [P] around 0 and ``names`` (level, name); some a source's ``own``."""

    names: list[tuple[str, str]]
    own: np.ndarray
    deviation: np.ndarray

    def evaluate(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[N] log seconds and their Jacobian [N, P]."""
        ...


def fitted(
    model: Model, target: np.ndarray, base: np.ndarray, kept: Sequence[str], *, noise: float, huber: float, steps: int
) -> dict[str, dict[str, float]]:
    """The levels ``kept``, by name. ``target`` [N]: log seconds measured; ``base`` [N]: what each row counts for.

    Rows further off than ``huber`` times ``noise`` count less; so do sources: one that is twice as slow as others moves
    none of their levels. A step that does not lower what is minimised is halved: where hosts hide behind devices, whole
    steps go to and fro, and a few rows more decide where they stop.
    """
    theta = np.zeros(len(model.names))
    found, jacobian = model.evaluate(theta)
    loss = _loss(model, theta, (target - found) / noise, base, huber)
    for _ in range(steps):
        residual = (target - found) / noise
        weight = base * np.minimum(1.0, huber / np.maximum(np.abs(residual), 1e-9)) / noise**2
        tail = np.where(model.own, np.minimum(1.0, model.deviation / np.maximum(np.abs(theta), 1e-9)), 1.0)
        prior = tail / model.deviation**2
        left = (jacobian * weight[:, None]).T @ jacobian + np.diag(prior)
        step = np.clip(np.linalg.solve(left, jacobian.T @ (weight * residual * noise) - theta * prior), -0.5, 0.5)
        before = loss
        for half in 0.5 ** np.arange(_HALVES):
            tried = theta + half * step
            found, jacobian = model.evaluate(tried)
            loss = _loss(model, tried, (target - found) / noise, base, huber)
            if loss < before:
                break
        else:
            break
        theta = tried
        if before - loss < _LEAST_GAIN:
            break
    levels: dict[str, dict[str, float]] = {level: {} for level in kept}
    for (level, name), value in zip(model.names, theta.tolist(), strict=True):
        if level in levels:
            levels[level][name] = value
    return levels


def _loss(model: Model, theta: np.ndarray, residual: np.ndarray, base: np.ndarray, huber: float) -> float:
    """What `fitted` minimises: minus the log posterior. ``residual`` [N] in deviations of a row."""
    prior = np.abs(theta) / model.deviation
    own = np.where(model.own, _tailed(prior, 1.0), prior**2 / 2.0)
    return float(base @ _tailed(np.abs(residual), huber) + own.sum())


def _tailed(size: np.ndarray, huber: float) -> np.ndarray:
    """Half of the square, and beyond ``huber`` its tangent."""
    return np.asarray(np.where(size < huber, size**2 / 2.0, huber * (size - huber / 2.0)))
