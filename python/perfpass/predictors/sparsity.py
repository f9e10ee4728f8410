"""Structured sparsity of weights, 2:4: of every four values along a product's inner axis two are zero and not stored.

NVIDIA's tensor cores from Ampere on run such products at twice their dense rate (NVIDIA A100 Tensor Core GPU
Architecture, 2020, "Fine-grained structured sparsity"), and read half of the weights and two bits for each value kept.
The device's figures are dense, so the operators are given half of the work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from perfpass.errors import ArgumentError, DeviceError, UnsupportedError
from perfpass.graph import OPERATOR_CLASSES, OPERATORS
from perfpass.text import unknown

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph.table import OperatorColumns

_Columns = TypeVar("_Columns", bound="OperatorColumns")
PATTERNS = ("2:4",)
# Rates that the sparse tensor cores have, with the bytes of a value.
_BYTES = {"tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
# What of a network each runtime runs sparse: TensorRT its products with weights, torch.sparse its linear layers.
_CLASSES = {"tensorrt": ("matmul", "convolution"), "torch": ("matmul",), "torch.compile": ("matmul",)}
_FIRST_CAPABILITY = (8, 0)
_GROUP = 4


def check(sparsity: str, device: Device, rate: str, precision: str, runtime: str, mode: str) -> None:
    """Raises ArgumentError for another pattern, DeviceError for a board without it, UnsupportedError for a precision,
    runtime or mode that has no sparse products.
    """  # fmt: skip
    if sparsity not in PATTERNS:
        raise ArgumentError(unknown("sparsity", sparsity, PATTERNS))
    if mode != "inference":
        raise UnsupportedError(f"sparsity {sparsity} is predicted for inference, not for training; leave it out")
    if runtime not in _CLASSES:
        raise UnsupportedError(f"{runtime} runs no {sparsity} sparse products; {', '.join(_CLASSES)} do")
    if (device.compute_capability or (0, 0)) < _FIRST_CAPABILITY:
        raise DeviceError(
            f"no rate of {sparsity} sparse products is known of {device.name}, as of NVIDIA's boards from Ampere on; "
            "leave sparsity out"
        )
    if rate not in _BYTES:
        raise UnsupportedError(f"{sparsity} sparse products do not exist in {precision}; give {', '.join(_BYTES)}")


def as_run(table: _Columns, rate: str, runtime: str) -> _Columns:
    """``table`` with half of the work, and of the weights, in the products that run sparse."""
    classes = [OPERATOR_CLASSES.index(name) for name in _CLASSES[runtime]]
    weights = np.asarray(table.weight_bytes, dtype=np.float64)
    sparse = np.isin(np.asarray(table.op_class), classes) & (weights > 0)
    sparse &= (np.asarray(table.k) % _GROUP == 0) & (np.asarray(table.groups) <= 1)
    if runtime != "tensorrt":
        sparse &= np.asarray(table.op) == OPERATORS.index("dense")
    # Half of the values, and two bits for each of them.
    left = 0.5 * (1.0 + 2.0 / (8.0 * _BYTES[rate]))
    fewer = np.where(sparse, weights * (1.0 - left), 0.0)
    return replace(
        table,
        flops=_like(table.flops, np.where(sparse, 0.5, 1.0) * np.asarray(table.flops, dtype=np.float64)),
        bytes_read=_like(table.bytes_read, np.asarray(table.bytes_read, dtype=np.float64) - fewer),
        weight_bytes=_like(table.weight_bytes, weights - fewer),
    )


def _like(column: np.ndarray, values: np.ndarray) -> np.ndarray:
    return values.astype(np.asarray(column).dtype)
