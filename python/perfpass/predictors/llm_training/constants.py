"""What `perfpass.training.llm_training` fitted on measured steps; `perfpass evaluate --area llm_training` grades it."""

from __future__ import annotations

import math

from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.llm_training.step import Constants

STEP = Constants(
    products_16=0.764,
    products_8=0.738,
    products_4=0.575,
    attention=0.302,
    memory=0.489,
    tensor=1.0,
    replicas=0.316,
    experts=0.117,
    grouped=0.319,
    straggle=0.00353,
    faster=0.156,
)
# A step's time over that of `STEP`: NVIDIA's recipes of 2024 to 2026, llm-foundry's FSDP, BLOOM's Megatron-DeepSpeed.
FRAMEWORKS = {"megatron": 0.847, "torch": 0.967, "deepspeed": 1.30, "other": 1.0}
# Boards of the records.
MEASURED = (
    *("a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb"),
    *("b200-sxm-180gb", "b300-sxm-288gb", "gb200-186gb", "gb300-279gb"),
)
# Log half-widths that hold 90 in 100 of what is held out: a model, a device, a laboratory.
MODEL, DEVICE, LABORATORY = 0.251, 0.381, 0.584
_BEYOND = (math.sqrt(DEVICE**2 - MODEL**2), math.sqrt(LABORATORY**2 - MODEL**2))
SPREAD = Spread(
    causes=("model", "device", "framework"),
    low=(MODEL, *_BEYOND),
    high=(MODEL, *_BEYOND),
    tails=(0.05, 0.05),
    sources=5,
    rows=577,
)
# Peak memory over what is counted: 5th percentile, median and 95th, by framework; layouts count alike.
MEMORY: dict[str, tuple[float, float, float]] = {
    "megatron": (0.950, 1.01, 1.14),
    "torch": (1.02, 1.21, 1.62),
    "deepspeed": (1.24, 1.50, 1.93),
    "other": (0.950, 1.21, 1.93),
}
# What programs hold beside tensors that are counted: workspaces of cuBLAS (8 MiB, on Hopper and later 32 MiB a handle,
# by PyTorch's documentation) and of Transformer Engine, and what is small: the middle of 70 to 110 MiB in the records.
WORKSPACE_BYTES = 96 * 2**20
