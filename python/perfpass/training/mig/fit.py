"""Fitting `MigModel`: least squares of the logarithm, drawn to the efficiencies of vision on whole GPUs."""

from __future__ import annotations

import numpy as np

from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.mig.latency import PARAMETERS, MigModel, Work
from perfpass.predictors.roofline import GROUPS, SOFTWARE

# Where the fit starts and is drawn to: issue time of eager PyTorch, a launch, PCIe 4.0 with pageable memory, and curves
# between "the longer of both" and "their sum".
_START = {"issue_s": 25e-6, "start_s": 1e-4, "copy_s_per_byte": 3e-10, "own_share": 0.1, "sharpness": 4.0}
# One row counts (1 / 0.1)^2 in the loss; a factor of e on any parameter costs this much of a unit residual.
_PULL = 0.3
_HUBER = 0.1


def vision_efficiency() -> np.ndarray:
    """[G] factors on the roofline of eager PyTorch, from the shipped vision predictor."""
    efficiency = InferencePredictor.load().manifest["efficiency"]
    return np.array(efficiency, dtype=np.float64)[SOFTWARE.index("eager")]


def fit(work: Work, latency_s: np.ndarray) -> MigModel:
    """The model that fits N runs, [N] seconds each."""
    from scipy.optimize import least_squares

    prior = vision_efficiency()
    used = np.flatnonzero(work.group_s.sum(axis=0) > 0)
    start = np.log([_START[name] for name in PARAMETERS])
    target = np.log(latency_s)

    def model(x: np.ndarray) -> MigModel:
        efficiency = prior.copy()
        efficiency *= np.exp(x[len(PARAMETERS)])
        efficiency[used] *= np.exp(x[len(PARAMETERS) + 1 :])
        values = dict(zip(PARAMETERS, map(float, np.exp(x[: len(PARAMETERS)])), strict=True))
        values["sharpness"] = min(max(values["sharpness"], 1.0), 20.0)
        return MigModel(values, efficiency)

    def residuals(x: np.ndarray) -> np.ndarray:
        pulled = x.copy()
        pulled[: len(PARAMETERS)] -= start
        return np.concatenate([np.log(model(x).seconds(work)) - target, _PULL * pulled])

    x = np.concatenate([start, np.zeros(1 + len(used))])
    found = least_squares(residuals, x, loss="soft_l1", f_scale=_HUBER, max_nfev=100)
    assert len(GROUPS) == len(prior)
    return model(found.x)
