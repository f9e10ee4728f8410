"""What `perfpass.training.llm_training` fitted on measured steps; `perfpass evaluate --area llm_training` grades it."""

from __future__ import annotations

from dataclasses import replace

from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.llm_training.in_use import Held
from perfpass.predictors.llm_training.step import Constants

STEP = Constants(
    products_16=0.782,
    products_8=0.950,
    products_4=1.013,
    attention=0.793,
    memory=0.787,
    tensor=0.718,
    replicas=0.527,
    experts=0.379,
    grouped=0.401,
    straggle=0.0108,
)
# A step's time over that of `STEP`: NVIDIA's recipes of 2024 to 2026, llm-foundry's FSDP, BLOOM's Megatron-DeepSpeed.
# Each of `OF_ONE_LABORATORY` is taught by one alone: nothing says how much of its factor (0.838, 1.098) is the
# framework's and how much its hosts', so that half of it, in logarithms, is taken to be another user's.
FRAMEWORKS = {"megatron": 1.033, "torch": 0.916, "deepspeed": 1.048, "other": 1.0}
OF_ONE_LABORATORY = ("torch", "deepspeed")
# Those that take FlashAttention 2, as `scaled_dot_product_attention` does; the others have kernels for later boards.
FLASH_2 = ("torch", "deepspeed")
# Boards of the records.
MEASURED = (
    *("a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb"),
    *("b200-sxm-180gb", "b300-sxm-288gb", "gb200-186gb", "gb300-279gb"),
)
# Log half-widths that hold 90 in 100, by what is not known: in any case, of a model, of mixtures of experts (whose
# recipes differ, whatever was measured), of a device, of a laboratory's framework and hosts. Squares add.
SPREAD = Spread(
    causes=("layout", "model", "experts", "device", "framework"),
    low=(0.136, 0.113, 0.452, 0.126, 0.224),
    high=(0.136, 0.113, 0.452, 0.126, 0.224),
    tails=(0.05, 0.05),
    sources=32,
    rows=577,
)
# Beside these, of a vendor none of whose boards was trained on: what serving's first tokens, large products as well,
# are off by where a vendor is new to it. By hand.
VENDORS, VENDOR_WIDTH = ("NVIDIA",), 0.70
# Beside these, where a step waits for its host alone: the hosts of two laboratories differ by two (`step`). By hand.
HOST_WIDTH = 0.6
# Peak memory by what is counted, of layouts alike, by framework; "other": what is counted, and more than any holds.
_HELD: dict[str, Held] = {
    "megatron": Held(3.93e6, 1.015, 0.933, 1.211, 4.40e8),
    "torch": Held(1.423e8, 1.050, 0.881, 1.146, 4.25e9),
    "deepspeed": Held(1.013e10, 1.082, 0.893, 1.316, 1.870e10),
}
# Over the upper bound of any that was measured, what one that was not may hold: by hand.
UNMEASURED_MORE = 1.05
_ALIKE = tuple(replace(one, high=UNMEASURED_MORE * one.high) for one in _HELD.values())
MEMORY: dict[str, Held] = _HELD | {"other": Held(0.0, 1.0, 0.905, 1.560, 4.40e8, _ALIKE)}
# What programs hold beside tensors that are counted: workspaces of cuBLAS (8 MiB, on Hopper and later 32 MiB a handle,
# by PyTorch's documentation) and of Transformer Engine, and what is small: the middle of 70 to 110 MiB in the records.
WORKSPACE_BYTES = 96 * 2**20
