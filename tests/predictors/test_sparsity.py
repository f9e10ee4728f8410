"""Structured sparsity of weights: half of the work where the runtime and the board have it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfpass
from perfpass.errors import ArgumentError, DeviceError, UnsupportedError
from perfpass.graph import OPERATORS
from perfpass.predictors.assemble import run_of

GRAPH = perfpass.load("bert-base", batch=8)


def _tables(runtime: str, precision: str) -> tuple:
    how = {"precision": precision, "runtime": runtime}
    dense, sparse = (run_of(GRAPH, "a100", sparsity=s, **how).table for s in (None, "2:4"))
    return dense, sparse, np.asarray(dense.op) == OPERATORS.index("dense")


@pytest.mark.parametrize(("precision", "left"), [("fp16", 9 / 16), ("int8", 5 / 8)])
def test_linear_layers_take_half_of_the_work_and_of_the_weights(precision: str, left: float) -> None:
    dense, sparse, linear = _tables("torch", precision) if precision == "fp16" else _tables("tensorrt", precision)
    assert linear.any() and not linear.all()
    assert np.array_equal(sparse.flops[linear], dense.flops[linear] // 2)
    saved = dense.bytes_read[linear] - sparse.bytes_read[linear]
    assert saved == pytest.approx(dense.weight_bytes[linear] * (1 - left), abs=1)
    for column in dataclasses.fields(dense):
        before, after = (getattr(t, column.name) for t in (dense, sparse))
        assert np.array_equal(before[~linear], after[~linear]), column.name


def test_the_interval_holds_the_dense_run() -> None:
    how = {"precision": "fp16", "runtime": "tensorrt"}
    dense, sparse = (perfpass.predict("bert-base", "a100", batch=8, sparsity=s, **how) for s in (None, "2:4"))
    assert sparse.latency_ms.low < sparse.latency_ms.median < dense.latency_ms.median < sparse.latency_ms.high
    assert sparse.latency_ms.high / sparse.latency_ms.median > dense.latency_ms.high / dense.latency_ms.median
    assert any("2:4 sparse" in reason for reason in sparse.support.reasons)
    assert sparse.to_dict()["workload"]["sparsity"] == "2:4" and "sparsity" not in dense.to_dict()["workload"]


@pytest.mark.parametrize(
    ("device", "asked", "error"),
    [
        ("t4", {}, DeviceError),
        ("mi300x", {}, UnsupportedError),
        ("a100", {"precision": "fp32"}, UnsupportedError),
        ("a100", {"runtime": "onnxruntime"}, UnsupportedError),
        ("a100", {"mode": "training", "runtime": "torch"}, UnsupportedError),
        ("a100", {"sparsity": "1:2"}, ArgumentError),
    ],
)
def test_what_has_no_sparse_products_is_refused_in_one_sentence(device: str, asked: dict, error: type) -> None:
    with pytest.raises(error) as found:
        perfpass.predict(GRAPH, device, **{"precision": "fp16", "runtime": "tensorrt", "sparsity": "2:4", **asked})
    assert "\n" not in str(found.value)
