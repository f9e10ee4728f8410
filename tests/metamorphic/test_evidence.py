"""Evidence taken away never raises the level of support, and never narrows the interval.

Two questions that differ in nothing but what was measured: the same board with and without records, the same network
with an operator that nobody knows, the same run in a runtime that nobody measured, a batch further from those measured.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from onnx import TensorProto, helper

import perfpass
from perfpass.graph import OpGraph
from perfpass.prediction import SUPPORT_LEVELS, Prediction
from perfpass.predictors import predict_graph

from . import boards, networks

# What trees look at is kept in float32, the host's time among it.
ROUNDING = 1e-6
# A step at batch 1 waits for its host and is known alike on both: what is left are the upper bounds of larger batches,
# which hold for it, and normalization that a file has lost, added to other medians.
WAITING = 0.05
QUICK = ("resnet50.onnx", "mobilenet_v2", "vit_b_16", "16 convolutions")
BATCHES = (1, 12, 128)
PRECISIONS = ("fp32", "fp16", "amp")
# With records, of any number: those without have none to take away.
MEASURED = (*sorted(boards.OF_ANOTHER_HOST), "rtx-3090", "rtx-4090", "rtx-pro-6000-blackwell-max-q")
OTHERS = ("t4", "v100-sxm2-16gb", "h100-sxm5-80gb", "gtx-1660-ti", "mi300x", "a100-sxm4-80gb:3g.40gb")


@cache
def asked(network: str, device: perfpass.Device, batch: int, precision: str, runtime: str, mode: str) -> Prediction:
    """One answer."""
    graph = networks.graph(network, batch)
    how = {"precision": precision, "runtime": runtime, "mode": mode, "calibration": False}
    return predict_graph(graph, device, batch=batch, **how)


def less(more: Prediction, fewer: Prediction, rounding: float = ROUNDING) -> list[str]:
    """What an answer with less evidence has too much of, in words."""
    wide, wider = (p.latency_ms.high / p.latency_ms.low for p in (more, fewer))
    said = []
    if wider < wide * (1.0 - rounding):
        said.append(f"bounds {wide:.4f} apart became {wider:.4f}")
    levels = [SUPPORT_LEVELS.index(p.support.level) for p in (more, fewer)]
    if levels[1] < levels[0]:
        said.append(f"{more.support.level} became {fewer.support.level}")
    return said


def unmeasured(device: perfpass.Device) -> perfpass.Device:
    """The same board under a name that no record has."""
    return replace(device, id="a-board-of-nobody", name="a board of nobody", parent=None)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", MEASURED)
def test_a_board_is_known_no_worse_than_without_its_records(name, mode):
    """A board of one laboratory, measured at one batch alone, was told wider at others than boards never measured."""
    device, broken = boards.device(name), {}
    for network in QUICK:
        for batch in BATCHES:
            for precision in (p for p in PRECISIONS if boards.can(name, p)):
                pair = [asked(network, d, batch, precision, "torch", mode) for d in (device, unmeasured(device))]
                if said := less(*pair, rounding=WAITING if mode == "training" and batch == 1 else ROUNDING):
                    broken[network, batch, precision] = said
    assert not broken


@pytest.mark.parametrize("name", ("rtx-3090", *OTHERS))
def test_a_runtime_that_nobody_measured_is_known_no_better(name):
    device, broken = boards.device(name), {}
    for network in QUICK:
        for batch in BATCHES:
            known = asked(network, device, batch, "fp32", "torch", "inference")
            for runtime in ("tvm", "relax"):
                if said := less(known, asked(network, device, batch, "fp32", runtime, "inference")):
                    broken[network, batch, runtime] = said
    assert not broken


@pytest.mark.parametrize("name", ("rtx-3090", "rtx-4090", "rtx-2080-ti", *OTHERS))
def test_a_batch_further_from_those_measured_is_known_no_better(name):
    """Where no host is waited for, which small batches do and large ones do not."""
    device, broken = boards.device(name), {}
    for network in ("vgg16", "resnet50.onnx"):
        for precision in (p for p in PRECISIONS if boards.can(name, p)):
            found = [asked(network, device, b, precision, "torch", "inference") for b in (2048, 8192, 65536)]
            for near, far in pairwise(found):
                if said := less(near, far):
                    broken[network, precision] = said
    assert not broken


def _with(operator: str, domain: str, batch: int) -> OpGraph:
    """A convolution and an operator behind it."""
    shapes = ([batch, 64, 56, 56], [batch, 64, 54, 54])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 64, 3, 3], bytes(4 * 64 * 64 * 9), raw=True)
    nodes = [helper.make_node("Conv", ["x", "w"], ["z"]), helper.make_node(operator, ["z"], ["y"], domain=domain)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("xy", shapes, strict=True)]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], [weight])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return perfpass.load(helper.make_model(graph, opset_imports=opsets).SerializeToString())


@pytest.mark.parametrize("name", ("rtx-3090", "rtx-4090", "rtx-2080-ti", *OTHERS))
def test_a_network_with_an_operator_that_nobody_knows_is_known_no_better(name):
    device, broken = boards.device(name), {}
    for batch in (1, 32, 256):
        known, unknown = (_with(*o, batch) for o in (("Relu", ""), ("Wobble", "mine")))
        for runtime, precision in (("torch", "fp32"), ("torch", "fp16"), ("onnxruntime", "fp32")):
            pair = [
                predict_graph(g, device, batch=batch, precision=precision, runtime=runtime, calibration=False)
                for g in (known, unknown)
            ]
            if said := less(*pair):
                broken[batch, runtime, precision] = said
    assert not broken
