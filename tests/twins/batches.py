"""Operator tables at other batch sizes, and products in whole tiles, with NumPy, as the core makes them."""

from __future__ import annotations

import numpy as np

from perfpass.devices import Device
from perfpass.graph import OPERATOR_CLASSES, OPERATORS
from perfpass.graph.table import COLUMNS, OperatorColumns, Tables
from perfpass.predictors.inference import operators

_ATTENTION = OPERATORS.index("attention")
_CONVOLUTION = OPERATOR_CLASSES.index("convolution")
_PROPORTIONAL = ("macs", "flops", "bytes_written", "input_elements", "output_elements")


def at_batches(tables: Tables, batch: np.ndarray, wanted: np.ndarray) -> Tables:
    """As `perfpass.predictors.learned.ladder.at_batches`."""
    steps = wanted.shape[1]
    rows = np.diff(tables.offset)
    start = np.repeat(tables.offset[:-1], steps)
    size = np.repeat(rows, steps)
    offset = np.concatenate([[0], np.cumsum(size)])
    at = np.arange(offset[-1]) + np.repeat(start - offset[:-1], size)
    scale = np.repeat((wanted / batch[:, None]).ravel(), size)
    table = {name: np.asarray(getattr(tables.table, name))[at] for name in COLUMNS}
    scale = np.where((table["constant"].astype(np.int64) & 1) != 0, 1.0, scale)
    for name in _PROPORTIONAL:
        table[name] = table[name] * scale
    weights, convolution = table["weight_bytes"], table["op_class"] == _CONVOLUTION
    matrices = (weights == 0) & ~convolution | (table["op"] == _ATTENTION)
    width = table["bytes_written"] / np.maximum(table["output_elements"], 1)
    channels = table["b"] * table["n"] * width * convolution
    stored = np.where(weights <= channels, weights, 0.0)  # beside filters that are computed
    kept = np.minimum(np.maximum(weights, channels * table["k"] + stored), table["bytes_read"])
    table["bytes_read"] = kept + (table["bytes_read"] - kept) * scale
    table["b"] = table["b"] * np.where(matrices, scale, 1.0)
    table["m"] = table["m"] * np.where(matrices, 1.0, scale)
    return Tables(OperatorColumns(**table), offset)


def tiled(table: OperatorColumns, product: np.ndarray, device: Device, on_matrix: np.ndarray) -> np.ndarray:
    """Of the rows ``product``, FLOPs in whole waves of tiles over FLOPs."""
    b, m, n, k = (
        np.maximum(np.asarray(c, dtype=np.float64)[product], 1.0) for c in (table.b, table.m, table.n, table.k)
    )
    sms, exponents = max(device.sm_count, 1), operators._AREA_EXPONENT
    exponent = np.where(on_matrix[product], exponents["matrix"], exponents["vector"])
    convolution = np.asarray(table.op_class)[product] == _CONVOLUTION
    splits = np.where(convolution, operators._CONVOLUTION_SPLITS, operators._SPLITS[-1])
    best = np.full(len(m), np.inf)
    for rows, columns in operators._TILES:
        tiles = b * np.ceil(m / rows) * np.ceil(n / columns)
        share = np.minimum(1.0, (rows * columns / operators._FULL_TILE) ** exponent)
        for split in operators._SPLITS:
            depth = k / split + operators._PROLOGUE_K
            cost = np.ceil(tiles * split / sms) * sms * rows * columns * depth / share
            best = np.where(split <= splits, np.minimum(best, cost), best)
    return best / (b * m * n * k)
