"""Weights in fewer bits than the arithmetic beside them, as a what-if on any graph: "w8a8", "w8a16", "w4a16", "nf4".

"int8" and "fp8" count everything in 8 bits, as an engine that was built so runs it. These quantise the products alone
(`perfpass.graph.quantised`): w8a8 gives products and convolutions weights of 8 bits and quantises their inputs as they
come, at the device's rate of int8; w8a16 and w4a16 store the weights of products in 8 or 4 bits, in blocks of 128 with
a scale each, and compute in 16 bits; nf4 is bitsandbytes' w4a16, in blocks of 64 with a scale of 32 bits. On a CPU,
whose kernels compute in fp32, so does what stands between. Time is that of the other precision with the bytes and the
rate of these products; the interval holds the run without quantisation too, since few kernels reach what they promise,
but where products in 8 bits were measured (ONNX Runtime on a CPU).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import DeviceError
from perfpass.graph import OPERATORS

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.features import OperatorTable
    from perfpass.graph import OpGraph
    from perfpass.graph.quantised import Quantised
    from perfpass.predictors.way import Way

BITS = {"w8a8": 8, "w8a16": 8, "w4a16": 4, "nf4": 4}
# Blocks and scales of its 4 bits as diffusers asks for them (bnb_4bit_use_double_quant is off): fp32, which is counted
# as integers of as many bytes, since counting narrows floating tensors.
_BITSANDBYTES = (64, "int32")
_TIMED_AS = {"w8a8": "int8", "nf4": "w4a16"}
_INPUTS_TOO = ("w8a8",)
_EIGHT_BITS = [OPERATORS.index(name) for name in ("quantized_matmul", "quantized_conv")]


def beside(scheme: str, device: Device) -> str:
    """The precision of everything else. Raises DeviceError for a GPU without the scheme's arithmetic."""
    if device.kind == "cpu":
        return "fp32"
    needed = ("fp16", "int8") if scheme in _INPUTS_TOO else ("fp16",)
    if lacking := [rate for rate in needed if rate not in device.peak_flops]:
        raise DeviceError(f"{device.name} has no {lacking[0]} arithmetic, which {scheme} needs; give another precision")
    return "fp16"


def rewritten(graph: OpGraph, scheme: str) -> Quantised:
    """The graph as it is stored."""
    from perfpass.graph.quantised import Packing, quantised

    packing = Packing(*_BITSANDBYTES) if scheme == "nf4" else None
    return quantised(graph, BITS[scheme], alone=scheme not in _INPUTS_TOO, packing=packing)


def as_run(table: OperatorTable, way: Way) -> OperatorTable:
    """``table``, products of 8 bits as the work that they are at the rate of ``way``'s precision."""
    peaks = way.device.peak_flops
    if way.device.kind == "cpu" or peaks.get("int8", 0.0) <= peaks["fp16"]:
        return table
    faster = np.where(np.isin(table.op, _EIGHT_BITS), peaks["fp16"] / peaks["int8"], 1.0)
    return replace(
        table, flops=(np.asarray(table.flops, dtype=np.float64) * faster).astype(np.asarray(table.flops).dtype)
    )


def told_apart(asked: str | None, beside: str) -> str:
    """The precision by which a ratio's interval tells a quantised run from others; that of any other run is its own."""
    if asked not in BITS:
        return beside
    return _TIMED_AS.get(asked, asked)


def measured(scheme: str, way: Way) -> bool:
    """Whether products in the scheme were measured where it runs."""
    return scheme == "w8a8" and way.device.kind == "cpu" and way.runtime == "onnxruntime"


def no_engine(way: Way) -> str:
    """What to ask for instead, for the support of a network in PyTorch that is wholly in 8 bits; else empty.

    Libraries beside PyTorch (torchao, quanto, bitsandbytes) store weights in 8 bits and compute in 16 unless asked for
    more, so that activations keep 16 bits and time is not saved.
    """
    if (
        way.precision not in ("int8", "fp8")
        or way.runtime not in ("torch", "torch.compile")
        or way.device.kind == "cpu"
    ):
        return ""
    return (
        f"{way.precision} is everything in 8 bits, as an engine has it; PyTorch's quantised weights alone are w8a16, "
        "with products in 8 bits too w8a8"
    )


def sentence(scheme: str, found: Quantised, way: Way) -> str:
    """What was assumed, for the support."""
    bits = f"weights of {found.products} products in {BITS[scheme]} bits"
    if scheme in _INPUTS_TOO:
        bits += ", their inputs in 8 bits as they come"
    left = ", ".join(f"{name} ({count})" for name, count in sorted(found.left.items(), key=lambda i: -i[1])[:4])
    kept = f"; with their weights as they are: {left}" if left else ""
    held = "" if measured(scheme, way) else "; not measured so: the interval holds the run without it"
    return f"{scheme}: {bits}, all else in {way.precision}{kept}{held}"
