"""Power constants of the artefacts, with what they were learned from.

They come from measurements that the repository does not carry (too large for it);
docs/predictors/inference.md says how each was
found and how well it holds.
"""

from __future__ import annotations

from typing import Any

# Fit of board power over limit to 24,000 bf16 GEMM measurements of aiconfigurator (8,000 each of H200, B200, GB200;
# soft-L1 least squares): mean absolute error 0.15 of the limit, 90 % of measured over predicted within the bounds.
POWER: dict[str, Any] = {
    "floor": 0.27,
    "compute": 1.04,
    "memory": 0.45,
    "low": 0.43,
    "high": 1.69,
    "source": "bf16 GEMM kernels on H200, B200, GB200 (aiconfigurator); no power was measured on vision inference",
}
