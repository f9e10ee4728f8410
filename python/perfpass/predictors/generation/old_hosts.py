"""What the host of an old vLLM adds to a batch: before 0.2.6, without CUDA graphs, it issued every kernel of a step.

The runs that were learned from are of 2024 (0.5), whose scheduler they hold. What a step's kernels take to be issued is
that of serving (`serving.base`).
"""

from __future__ import annotations

import numpy as np

from perfpass.llm.costs import Parallelism
from perfpass.llm.serving import Serving
from perfpass.predictors.generation.features import Batch, Sizes, overflow
from perfpass.predictors.serving.base import issued_s

# How sharply the longer of device and host counts, as of eager engines (`generation.habits`).
_OVERLAP = 4.0


def waited_for(b: Batch, sizes: Sizes, seconds: np.ndarray) -> np.ndarray:
    """Logarithms of seconds [N], from those of a host that is not waited for; ``seconds``: their logarithms [N]."""
    old = Serving(1, 1, 1.0, b.runtime, b.runtime_version, parallelism=Parallelism.of(b.devices))
    # What AMD's boards waited for lies in the runs that were learned from.
    issued = issued_s(b.model, b.device, old) if b.device.vendor == "NVIDIA" else 0.0
    if not issued:
        return seconds
    steps = (sizes.output_tokens + 1.0) * np.maximum(overflow(b, sizes), 1.0)
    return np.asarray(np.logaddexp(_OVERLAP * seconds, _OVERLAP * np.log(steps * issued)) / _OVERLAP)
