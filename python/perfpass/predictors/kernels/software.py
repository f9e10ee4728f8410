"""What names the software behind a kernel: serving stack, its version, the family of the kernel, the precisions.

Names are those of the records; numbers are part of the artefact, so their order does not change.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from perfpass.errors import ArgumentError
from perfpass.text import unknown

if TYPE_CHECKING:
    from perfpass.devices import Device

RUNTIMES: tuple[str, ...] = ("trtllm", "vllm", "sglang", "nccl", "torch")
# Bytes of one stored element: activations, weights (with the scales of their blocks), and the rate they multiply at.
# Block scales: fp8_block one fp32 per 128 x 128 weights and 1 x 128 activations; fp4 one fp8 per 16 (NVFP4, Blackwell
# architecture brief), mxfp4 one byte per 32 (OCP Microscaling formats, 2023); int4 one 16-bit scale per 128.
PRECISIONS: dict[str, tuple[float, float, str]] = {
    "bf16": (2.0, 2.0, "bf16"),
    "fp16": (2.0, 2.0, "fp16"),
    "fp8": (1.0, 1.0, "fp8"),
    "fp8_static": (1.0, 1.0, "fp8"),
    "fp8_block": (1.03125, 1.0, "fp8"),
    "int8": (1.0, 1.0, "int8"),
    "int8_wo": (2.0, 1.0, "bf16"),
    "int4_wo": (2.0, 0.515625, "bf16"),
    "fp4": (0.5625, 0.5625, "fp4"),
    "w4a16_mxfp4": (2.0, 0.53125, "bf16"),
    "w4a8_mxfp4_mxfp8": (1.03125, 0.53125, "fp8"),
    "fp32": (4.0, 4.0, "fp32"),
}
_PRECISION_CODE = {name: i for i, name in enumerate(PRECISIONS)}
# Families of kernels, found in the record's name; the first that matches counts.
_FAMILIES: tuple[tuple[str, str], ...] = (
    ("cutedsl", "cutedsl"),
    ("deepgemm", "deepgemm"),
    ("marlin", "marlin"),
    ("cutlass", "cutlass"),
    ("sgl_kernel", "cutlass"),
    ("fidecode", "flashinfer"),
    ("fiprefill", "flashinfer"),
    ("trtllm_moe", "trtllm"),
    ("flashinfer_trtllm", "trtllm"),
    ("trtllmdecode", "trtllm"),
    ("trtllmprefill", "trtllm"),
    ("trtllm_mha", "trtllm"),
    ("min_latency", "min_latency"),
    ("triton", "triton"),
    ("fa4", "fa4"),
    ("fa3", "fa3"),
    ("fa2", "fa2"),
    ("flash_att", "flash"),
    ("flashinfer", "flashinfer"),
    ("plugin", "plugin"),
    ("nongated", "nongated"),
    ("eager", "eager"),
    ("graph", "graph"),
    ("linear", "torch"),
)
# PyTorch operators in fp32; a trailing u is tensor with scalar.
TORCH_OPERATORS: tuple[str, ...] = (
    *("bmm", "linear", "conv", "add", "addu", "div", "divu", "gelu", "ln"),
    *("mul", "mulu", "pow", "powu", "relu", "softmax", "tanh"),
)
FAMILIES: tuple[str, ...] = ("default", *dict.fromkeys(family for _, family in _FAMILIES), *TORCH_OPERATORS)


@lru_cache(maxsize=4096)
def family(kernel: str) -> str:
    """The family of a record's kernel name, "default" where the name says only which stack it is."""
    lowered = kernel.lower()
    if lowered in TORCH_OPERATORS:
        return lowered
    return next((found for text, found in _FAMILIES if text in lowered), "default")


@lru_cache(maxsize=4096)
def version_number(version: str) -> float:
    """A number that rises with releases: 0.5.9 gives 5.09, 0.24.0 gives 24, 1.3.0rc15 gives 103.15.

    Raises ArgumentError for a text without a number.
    """
    parts = [int(p) for p in re.findall(r"\d+", version.split("+")[0].split(".dev")[0])]
    if not parts:
        raise ArgumentError(f"version {version!r} has no number; give it as 0.24.0 or 1.3.0rc15")
    major, minor, patch, candidate = (*parts, 0, 0, 0)[:4]
    return 100.0 * major + minor + (candidate if "rc" in version else patch) / 100.0


def generation(device: Device) -> str:
    """Compute capability as text; the data-centre boards of one major number from 10 on run the same kernels."""
    major, minor = device.compute_capability or (0, 0)
    return f"{major}.0" if major >= 10 else f"{major}.{minor}"


def precision_code(name: str) -> int:
    """Its place in ``PRECISIONS``. Raises ArgumentError for an unknown one."""
    if name not in _PRECISION_CODE:
        raise ArgumentError(unknown("precision of a kernel", name, PRECISIONS))
    return _PRECISION_CODE[name]


def runtime_code(name: str) -> int:
    """Its place in ``RUNTIMES``. Raises ArgumentError for an unknown one."""
    if name not in RUNTIMES:
        raise ArgumentError(unknown("serving stack", name, RUNTIMES))
    return RUNTIMES.index(name)
