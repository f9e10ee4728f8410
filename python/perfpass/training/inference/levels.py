"""Levels fitted to measured times: damped Gauss-Newton steps on logarithms, with priors and with tails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

_LEAST_GAIN = 1e-3  # of a step, as a log likelihood
# Of Levenberg and Marquardt's damping: where it starts, and beyond which no step is tried.
_DAMPING, _MOST_DAMPING = 1e-3, 1e6


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
    none of their levels. Steps are Levenberg and Marquardt's, damped by what the last one gained over what it promised
    (Nocedal and Wright, Numerical Optimization, 10.3): where hosts hide behind devices, whole steps go to and fro, and
    it ends where neither gains.
    """
    theta, damping = np.zeros(len(model.names)), _DAMPING
    found, jacobian = model.evaluate(theta)
    loss = _loss(model, theta, (target - found) / noise, base, huber)
    for _ in range(steps):
        residual = (target - found) / noise
        weight = base * np.minimum(1.0, huber / np.maximum(np.abs(residual), 1e-9)) / noise**2
        tail = np.where(model.own, np.minimum(1.0, model.deviation / np.maximum(np.abs(theta), 1e-9)), 1.0)
        prior = tail / model.deviation**2
        curvature = (jacobian * weight[:, None]).T @ jacobian + np.diag(prior)
        downhill = jacobian.T @ (weight * residual * noise) - theta * prior
        while damping <= _MOST_DAMPING:
            damped = curvature + damping * np.diag(np.diag(curvature))
            step = np.clip(np.linalg.solve(damped, downhill), -0.5, 0.5)
            tried, promised = theta + step, float(downhill @ step - step @ curvature @ step / 2.0)
            found, jacobian = model.evaluate(tried)
            gain = loss - _loss(model, tried, (target - found) / noise, base, huber)
            held = gain / max(promised, 1e-12)
            damping *= 0.25 if held > 0.75 else 4.0 if held < 0.25 else 1.0
            if gain > 0.0:
                break
        else:
            break
        theta, loss = tried, loss - gain
        if max(gain, 0.1 * promised) < _LEAST_GAIN:
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
