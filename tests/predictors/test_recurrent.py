"""Recurrent layers on GPUs: their steps come one after another, whatever format the layer was read from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import perfpass
from perfpass.devices import device
from perfpass.features import operator_table
from perfpass.graph import OPERATORS
from perfpass.predictors.inference.operators import GRAPH_CYCLES

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _sizes(graph: perfpass.OpGraph, name: str) -> tuple[int, ...]:
    table = operator_table(graph)
    (row,) = np.flatnonzero(np.asarray(table.op) == OPERATORS.index(name.lower()))
    return tuple(int(c[row]) for c in (table.b, table.m, table.n, table.k))


def _onnx(name: str, steps: int, batch: int, hidden: int, *, state: bool) -> bytes:
    shapes = {"w": [1, GATES[name] * hidden, 8], "r": [1, GATES[name] * hidden, hidden]}
    weights = [
        helper.make_tensor(k, TensorProto.FLOAT, s, np.zeros(s, np.float32).tobytes(), raw=True)
        for k, s in shapes.items()
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, 8])]
    if state:
        inputs.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, batch, hidden]))
    names = ["x", "w", "r"] + (["", "", "h"] if state else [])
    node = helper.make_node(name, names, ["y"], hidden_size=hidden)
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, 1, batch, hidden])
    return helper.make_model(helper.make_graph([node], "recurrent", inputs, [out], weights)).SerializeToString()


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_steps_of_a_module_are_counted_in_both_layouts(name: str, batch_first: bool) -> None:
    layer = getattr(torch.nn, name)(8, 16, batch_first=batch_first)
    shape = (3, 40, 8) if batch_first else (40, 3, 8)
    assert _sizes(perfpass.load(layer, batch=shape[0], input_shape=shape[1:]), name) == (40, 3, GATES[name] * 16, 16)


class _Handed(torch.nn.Module):
    """A second layer that begins with the states that the first one ended with."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.first, self.second = (getattr(torch.nn, name)(8, 16, batch_first=True) for _ in range(2))

    def forward(self, past: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        _, states = self.first(past)
        return self.second(future, states)[0]


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_steps_are_those_of_a_layer_whatever_made_its_first_state(name: str) -> None:
    graph = perfpass.load(_Handed(name), batch=3, input_shape=[(40, 8), (5, 8)])
    table = operator_table(graph)
    rows = np.flatnonzero(np.asarray(table.op) == OPERATORS.index(name.lower()))
    assert [(int(table.b[r]), int(table.m[r])) for r in rows] == [(40, 3), (5, 3)]
    # What the second reads of the first is its states alone.
    states = (2 if name == "LSTM" else 1) * 3 * 16
    weights = GATES[name] * 16 * (8 + 16 + 2)
    assert int(table.bytes_read[rows[1]]) == 4 * (3 * 5 * 8 + weights + states)


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_steps_of_an_onnx_operator_are_its_first_axis(name: str, state: bool) -> None:
    assert _sizes(perfpass.load(_onnx(name, 40, 3, 16, state=state)), name) == (40, 3, GATES[name] * 16, 16)


# DeepBench's README, results of inference and of the forward pass in training, single precision, milliseconds.
@pytest.mark.parametrize(
    ("name", "units", "batch", "steps", "device", "measured_ms"),
    [
        ("LSTM", 1536, 4, 50, "titan-xp", 6.93),
        ("LSTM", 256, 4, 150, "gtx-1080-ti", 1.63),
        ("GRU", 2816, 1, 1500, "titan-xp", 350.6),
        ("GRU", 2560, 2, 375, "titan-xp", 75.02),
    ],
)
def test_bounds_hold_what_deepbench_measured(
    name: str, units: int, batch: int, steps: int, device: str, measured_ms: float
) -> None:
    layer = getattr(torch.nn, name)(units, units, batch_first=True)
    found = perfpass.predict(layer, device=device, batch=batch, input_shape=(steps, units)).latency_ms
    assert found.low <= measured_ms <= found.high
    assert found.median == pytest.approx(measured_ms, rel=0.3)


def test_time_grows_with_the_steps_and_hardly_with_the_batch() -> None:
    def ms(steps: int, batch: int) -> float:
        layer = torch.nn.LSTM(256, 256, batch_first=True)
        found = perfpass.predict(layer, device="v100-sxm2-16gb", batch=batch, input_shape=(steps, 256))
        return found.latency_ms.median

    assert ms(2048, 1) == pytest.approx(4 * ms(512, 1), rel=0.1)
    assert ms(512, 1) <= ms(512, 4) < 1.2 * ms(512, 1)


def test_a_step_in_tensorrt_is_two_kernels_with_no_host_between() -> None:
    board = device("v100-sxm2-16gb")

    def step_s(runtime: str) -> float:
        layer = torch.nn.LSTM(128, 128, batch_first=True)
        found = [
            perfpass.predict(layer, board, batch=1, input_shape=(steps, 128), precision="fp16", runtime=runtime)
            for steps in (512, 1024)
        ]
        return (found[1].latency_ms.median - found[0].latency_ms.median) / 512 * 1e-3

    assert step_s("tensorrt") == pytest.approx(2 * GRAPH_CYCLES / board.clock_hz, rel=0.2)
    assert step_s("tensorrt") < 0.7 * step_s("onnxruntime")
