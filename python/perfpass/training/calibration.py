"""What a few measurements on a device tell about all others there: a correction of the prediction's logarithm.

log(measured / predicted) = w . z with z the standardised traits of a run (a constant first), w by ridge regression.
The strength of the ridge is chosen by leave-one-out on the measurements themselves, in closed form, so ten
measurements mostly give one scale factor, and hundreds a factor per kind of operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# From "a scale factor only" to "least squares"; the constant is never penalised.
STRENGTHS = (1e4, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)


@dataclass(frozen=True)
class Correction:
    """``factor(traits [N, F]) -> [N]``: what to multiply a predicted latency with."""

    weights: np.ndarray  # [1 + F], the constant first
    mean: np.ndarray  # [F]
    scale: np.ndarray  # [F]
    strength: float
    residual: np.ndarray  # [N] leave-one-out residuals of the logarithm, for intervals

    def factor(self, traits: np.ndarray) -> np.ndarray:
        """[N] factors. Traits beyond three deviations of those seen count as three: no extrapolation."""
        z = np.clip((traits - self.mean) / self.scale, -3.0, 3.0)
        return np.asarray(np.exp(self.weights[0] + z @ self.weights[1:]))


def fit(traits: np.ndarray, measured_s: np.ndarray, predicted_s: np.ndarray) -> Correction:
    """The correction from N measurements: ``traits`` [N, F], latencies [N] in seconds. N of at least 2."""
    target = np.log(measured_s / predicted_s)
    mean, scale = traits.mean(axis=0), traits.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    z = np.concatenate([np.ones((len(traits), 1)), np.clip((traits - mean) / scale, -3.0, 3.0)], axis=1)
    # The mean is moved by outliers, the median is not; the constant is what a small sample rests on.
    centre = float(np.median(target))
    best: tuple[float, float, np.ndarray, np.ndarray] | None = None
    for strength in STRENGTHS:
        penalty = np.diag([1e-6] + [strength] * traits.shape[1])
        gram = z.T @ z + penalty
        weights = np.linalg.solve(gram, z.T @ (target - centre))
        leverage = np.einsum("nf,nf->n", z, np.linalg.solve(gram, z.T).T)
        left_out = (target - centre - z @ weights) / np.maximum(1.0 - leverage, 1e-3)
        error = float(np.mean(np.abs(left_out)))
        if best is None or error < best[0]:
            best = error, strength, weights, left_out
    assert best is not None
    weights = best[2].copy()
    weights[0] += centre
    return Correction(weights, mean, scale, best[1], best[3])
