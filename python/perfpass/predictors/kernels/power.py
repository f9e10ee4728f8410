"""Board power while one kernel runs back to back, as a share of the limit, from how busy its units are.

Trees on utilisations (the shares of peak FLOP/s and bandwidth that the predicted time means), the regime and the
software. No figure of the device enters but through them; its limit and idle power scale and clip the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.predictors.kernels.software import PRECISIONS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.kernels.physics import Terms

POWERED = ("gemm", "prefill_attention", "decode_attention", "moe", "collective", "torch")
POWER_FEATURES = 15
_WIDTHS = np.array([PRECISIONS[p][:2] for p in PRECISIONS])


def power_features(
    operator: str, terms: Terms, seconds: np.ndarray, shares: np.ndarray, software: np.ndarray
) -> np.ndarray:
    """[N, POWER_FEATURES] utilisations, regime and software of N kernels that take ``seconds``.

    ``software`` [N, 5] as `model.SOFTWARE_FEATURES`: at the same utilisation, libraries differ in what they draw.
    """
    rows = len(seconds)
    widths = _WIDTHS[software[:, 3].astype(int)]
    return np.column_stack(
        [
            np.full(rows, POWERED.index(operator)),
            np.log(np.maximum(terms.compute_s / seconds, 1e-6)),
            np.log(np.maximum(terms.memory_s / seconds, 1e-6)),
            np.log(np.maximum(terms.work_s[:, 0] / seconds, 1e-6)),
            np.log(seconds),
            shares,
            widths,
            software[:, :3],
        ]
    ).astype(np.float32)


class KernelPower:
    """Scores power; ``trees`` predict the logarithm of power over the board's limit."""

    def __init__(self, trees: Any) -> None:
        self._trees = trees

    def watts(
        self,
        device: Device,
        operator: str,
        terms: Terms,
        seconds: np.ndarray,
        shares: np.ndarray,
        software: np.ndarray,
    ) -> np.ndarray:
        """[N] mean board power in W, between idle and the limit."""
        x = power_features(operator, terms, seconds, shares, software)
        share = np.exp(self._trees.predict(np.ascontiguousarray(x)))
        limit = device.power_limit_w
        return np.clip(share * limit, min(device.idle_power_w, limit), limit)
