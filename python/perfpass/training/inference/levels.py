"""Levels fitted to measured times: Gauss-Newton steps on logarithms, with priors and with tails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


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
    none of their levels.
    """
    theta = np.zeros(len(model.names))
    for _ in range(steps):
        found, jacobian = model.evaluate(theta)
        residual = (target - found) / noise
        weight = base * np.minimum(1.0, huber / np.maximum(np.abs(residual), 1e-9)) / noise**2
        tail = np.where(model.own, np.minimum(1.0, model.deviation / np.maximum(np.abs(theta), 1e-9)), 1.0)
        prior = tail / model.deviation**2
        left = (jacobian * weight[:, None]).T @ jacobian + np.diag(prior)
        step = np.linalg.solve(left, jacobian.T @ (weight * residual * noise) - theta * prior)
        theta = theta + np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < 1e-4:
            break
    levels: dict[str, dict[str, float]] = {level: {} for level in kept}
    for (level, name), value in zip(model.names, theta.tolist(), strict=True):
        if level in levels:
            levels[level][name] = value
    return levels
