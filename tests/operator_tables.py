"""Operator tables from dicts, as the predictors of a run take them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from perfpass.graph import OPERATOR_CLASS_OF, OPERATORS


def table(rows):
    """An operator table from dicts; what a row does not say is 0."""
    names = ["macs", "flops", "bytes_read", "bytes_written", "weight_bytes", "input_elements", "output_elements"]
    names += ["b", "m", "n", "k", "kernel_area", "stride", "groups", "constant", "view"]
    op = np.array([OPERATORS.index(r["op"]) for r in rows], dtype=np.uint16)
    columns = {n: np.array([r.get(n, 0) for r in rows], dtype=np.int64) for n in names}
    count = np.array([r.get("count", 1.0) for r in rows], dtype=np.float64)
    return SimpleNamespace(
        op=op, op_class=OPERATOR_CLASS_OF[op], dtype=np.zeros(len(op), np.uint8), count=count, **columns
    )


def convolution(batch, channels=256, pixels=196, area=9, groups=1, width=2):
    """A row of ``table``: a convolution of square images; ``pixels`` and ``area`` are products of both sides."""
    k, n, m = channels // groups * area, channels // groups, batch * pixels
    macs = groups * m * n * k
    elements = batch * channels * pixels
    weights = channels * channels // groups * area * width
    sizes = {"input_elements": elements, "output_elements": elements, "b": groups, "m": m, "n": n, "k": k}
    traffic = {"bytes_read": elements * width + weights, "bytes_written": elements * width, "weight_bytes": weights}
    shape = {"kernel_area": area, "stride": 1, "groups": groups}
    return {"op": "conv", "macs": macs, "flops": 2 * macs, **sizes, **traffic, **shape}
