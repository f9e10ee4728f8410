"""Served times at the peaks of the devices: nothing is fitted, no fixed time, no wait for others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfpass.predictors.serving.base import BY_RUNTIME, CONSTANTS, SHARED, Terms, times


def at_peaks(terms: Terms) -> dict[str, np.ndarray]:
    """Ms [N] by target."""
    ideal = {name: 1.0 if value < 1.0 and not name.endswith("_s") else 0.0 for name, value in SHARED.items()}
    own = {f"{name}.{runtime}": 0.0 for name in BY_RUNTIME for runtime in ("vllm", "trtllm", "sglang")}
    counted = replace(terms, kernels=np.zeros(len(terms), dtype=bool))
    found = times(counted, dict.fromkeys(CONSTANTS, 1.0) | ideal | own)
    return {"tpot": 1e3 * found["step"], "ttft": 1e3 * found["prompt"]}
