"""What numbers of 8, 16 and 64 bits take on a CPU, over those of 32: one rule for inference and training.

Products run by the instructions of a CPU for them (AMX, AVX512_BF16, those of Arm), else bfloat16 by oneDNN's emulation
with AVX-512, else in PyTorch's own loops, a multiplication after the other. In the caches a core takes as long for an
element as in single precision, which it widens, narrows and turns one by one; memory moves half of the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass import _core
from perfpass.graph import DTYPES
from perfpass.predictors.inference.operators import EFFICIENCY, FAMILIES
from perfpass.predictors.workload import PRECISIONS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.predictors.way import Way

PRECISIONS_OF_16_BITS = ("fp16", "bf16", "amp", "amp_bf16")
# What follows from single precision.
FOLLOWING = ("fp64", *PRECISIONS_OF_16_BITS)
# How products run.
DOT_PRODUCTS, NO_DOT_PRODUCTS = "dot products", "no dot products"
AS_FP32, TILES, INSTRUCTIONS, EMULATED, LOOPS = "as fp32", "tiles", "instructions", "emulated", "loops"
# Half-width (in logarithms) where it is not as in single precision: a factor of 2, by hand.
UNMEASURED = float(np.log(2.0))
# What a vector instruction for 16 bits gains at most is four times fp32's rate; beyond it are the tiles of AMX.
MOST_OF_VECTORS = 4.0
# Of the peak of tiles, by hand, beside what matrix units of GPUs reach: tiles are fed from a core's second cache, and
# Intel's own claim is "up to 10 times" its CPU of the generation before (40 cores of 56) in single precision.
TILES_REACH = 0.5
# Measured on one EPYC with oneDNN held to AVX512_CORE_VNNI: products take 2.2 to 6.6 times as long as in fp32.
_EMULATED, _EMULATED_DEPTHWISE = 3.0, 1.4
# FLOP a cycle and core of PyTorch's own loops, on the same EPYC with oneDNN held to AVX2 in both types, and as it is in
# float16: 0.25 to 0.6 of convolutions and of products of two activations, 1.5 to 2 of those with a weight.
_LOOPS, _LOOPS_DENSE = 0.4, 1.7
# Products in 8 bits over fp32 by an instruction that sums four of them in 32 bits (VNNI, Arm's), as were timed. Tiles
# count as such, since what they gain was measured in no runtime. Without one there are two instructions of 8 and 16
# bits for four times the numbers, and sums where a CPU has units for these alone: twice fp32 by the catalogue.
DOT_PRODUCT = 4.0
_SAID = {
    TILES: "by the CPU's matrix tiles, of which no run was measured",
    INSTRUCTIONS: "by the CPU's instructions for them, as 20 runs in bf16 took on another CPU",
    DOT_PRODUCTS: "by its instructions for them, which were timed alone, over those in fp32",
    NO_DOT_PRODUCTS: "by instructions for 8 and 16 bits, of which no run was measured",
    EMULATED: "emulated: the CPU has no instructions for {rate}, and single products alone were timed so",
    LOOPS: "in PyTorch's own loops: the CPU has no instructions for {rate}, and single products alone were timed so",
}
_FP64 = "all in fp64 at the rate of its own peak, of which no run was measured"
_FURTHER = "bounds allow for a factor of 2 in it"
# Architectures with AVX-512 and without its instructions for bfloat16; others of 64 FLOP a cycle are taken for such.
_WIDE_VECTORS = (
    "cascade-lake", "ice-lake", "ice-lake-sp", "rocket-lake", "skylake-sp", "skylake-x", "tiger-lake",
)  # fmt: skip
_WIDE_FLOP_PER_CYCLE = 48.0
_PRODUCTS = ("conv", "dense", "matmul", "attention", "recurrent", "vector")
_WITH_WEIGHT = ("dense", "recurrent", "vector")


def how(device: Device, precision: str) -> str:
    """How products in a precision run on a CPU."""
    if precision == "int8":
        return DOT_PRODUCTS if of_8_bits(device) > 0.75 * DOT_PRODUCT else NO_DOT_PRODUCTS
    if precision not in PRECISIONS_OF_16_BITS:
        return AS_FP32
    rate = PRECISIONS[precision][1]
    gained = device.peak_flops.get(rate, 0.0) / device.peak_flops["fp32"]
    if gained > 1.0:
        return TILES if gained > MOST_OF_VECTORS else INSTRUCTIONS
    return EMULATED if rate == "bf16" and _has_wide_vectors(device) else LOOPS


def said(way: Way) -> str | None:
    """In words, how products run where they are not as in single precision, and what was measured of it."""
    rate = PRECISIONS[way.precision][1]
    found = how(way.device, way.precision)
    if found == AS_FP32:
        return f"{_FP64}; {_FURTHER}" if rate == "fp64" else None
    return f"products in {rate} {_SAID[found].format(rate=rate)}; {_FURTHER}"


def further(way: Way) -> float:
    """Half-width (in logarithms) that a precision adds to that of single precision, squares with squares."""
    return UNMEASURED if said(way) is not None else 0.0


def of_8_bits(device: Device) -> float:
    """Rate of products in 8 bits over fp32's, at most `DOT_PRODUCT`."""
    gained = device.peak_flops.get("int8", 0.0) / device.peak_flops["fp32"]
    return float(np.clip(gained, 1.0, DOT_PRODUCT))


def _has_wide_vectors(device: Device) -> bool:
    return device.architecture in _WIDE_VECTORS or _flop_per_cycle(device) >= _WIDE_FLOP_PER_CYCLE


def _flop_per_cycle(device: Device) -> float:
    """Of fp32, a core; 0 where the clock is not stated."""
    clock = device.base_clock_hz or device.clock_hz
    return device.peak_flops["fp32"] / (max(device.sm_count, 1) * clock) if clock else 0.0


def widened(precision: str) -> float:
    """Elements of tensors over those that so many bytes hold in single precision."""
    if precision == "int8":  # a core takes as many bytes in one instruction
        return 1.0
    bits: int = _core.DTYPE_BITS[DTYPES.index(PRECISIONS[precision][0])]
    return max(32.0 / bits, 1.0)


def over_fp32(way: Way, families: tuple[str, ...], shares: np.ndarray) -> np.ndarray:
    """[len(families)] time of arithmetic over that of single precision; ``shares`` [len(families)] of the peak that
    products reach there.
    """
    device, found = way.device, how(way.device, way.precision)
    peaks, rate = device.peak_flops, PRECISIONS[way.precision][1]
    if found == AS_FP32:  # fp64, all of it at its own peak
        return np.full(len(families), peaks["fp32"] / peaks.get(rate, peaks["fp32"]))
    return np.array([
        _over_fp32(name, found, device, rate, share) if name.startswith(_PRODUCTS) else 1.0
        for name, share in zip(families, shares.tolist(), strict=True)
    ])  # fmt: skip


def _over_fp32(family: str, found: str, device: Device, rate: str, share: float) -> float:
    depthwise = family == "conv_depthwise"
    if found in (DOT_PRODUCTS, NO_DOT_PRODUCTS):
        return 1.0 if depthwise or family == "dense_8bit" else 1.0 / of_8_bits(device)
    if found == EMULATED:
        return _EMULATED_DEPTHWISE if depthwise else _EMULATED
    if found == LOOPS:
        loops = _LOOPS_DENSE if family.startswith(_WITH_WEIGHT) else _LOOPS
        return max(_flop_per_cycle(device) * share / loops, 1.0)
    if depthwise:  # no product of matrices
        return 1.0
    gained = device.peak_flops[rate] / device.peak_flops["fp32"]
    if found == TILES:
        vector, matrix, _ = EFFICIENCY[family if family in FAMILIES else "dense"]
        gained *= TILES_REACH * min(matrix / vector, 1.0)
    return 1.0 / gained
