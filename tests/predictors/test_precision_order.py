"""A faster precision is never told slower: networks, boards and batch sizes, in inference and in training."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import perfpass
from perfpass.devices import device
from perfpass.graph.step import StepOptions, Steps
from perfpass.graph.table import Tables, operator_table
from perfpass.predictors import predict_graph, roofline
from perfpass.predictors.inference.engines import ENGINES
from perfpass.predictors.inference.operators import OperatorTimes, kernels_of, precision_class, work
from perfpass.predictors.training_step.operators import StepTimes
from perfpass.predictors.training_step.predictor import Derivation, StepPredictor
from perfpass.predictors.way import Way
from perfpass.search.template import Template
from small_networks import network

# Boards that are answered by today's release. Those of two laboratories of 2022 (RTX 2080 Ti, TITAN V, A100 of 40 GB;
# RTX 3090 in training) have its release in some precisions, whose host and kernels are another question.
BOARDS = (
    "a10",
    "a100-sxm4-80gb",
    "h100-sxm5-80gb",
    "l4",
    "mi300x",
    "p100-pcie-16gb",
    "rtx-4090",
    "t4",
    "v100-sxm2-16gb",
)
NETWORKS = ("resnet50", "vit_base_patch16_224", "convolutions")
BATCHES = (1, 8, 128)
WAYS = tuple(itertools.product(("inference", "training"), ("torch", "torch.compile")))
ORDERED = (("tf32", "fp32"), ("fp16", "fp32"), ("bf16", "fp32"))
# Where a board's rate in 8 bits is the higher one, of which no run in PyTorch was measured.
EIGHT_BITS = (("int8", "fp16"), ("fp8", "fp16"))
# Whole networks in 16 bits run what autocast runs, without its casts. In inference each is learned from its own runs.
IN_TRAINING = (("fp16", "amp"), ("bf16", "amp_bf16"))
_LEARNED = 1.002  # of times that the host bounds


@cache
def graph(name, batch):
    if name == "convolutions":
        return network(batch, width=64, blocks=8)
    return template(name).at(batch)


@cache
def template(name):
    return Template(f"examples/{name}.onnx")


@cache
def latency_ms(name, board, batch, mode, runtime, precision):
    return predict_graph(
        graph(name, batch), board, batch=batch, mode=mode, runtime=runtime, precision=precision, calibration=False
    ).latency_ms.median


@pytest.mark.parametrize(("mode", "runtime"), WAYS)
@pytest.mark.parametrize("board", BOARDS)
def test_a_faster_precision_is_never_told_slower(board, mode, runtime):
    rates = device(board).peak_flops
    pairs = ORDERED + (IN_TRAINING if mode == "training" else EIGHT_BITS)
    for name, batch in itertools.product(NETWORKS, BATCHES):
        for faster, slower in pairs:
            if faster not in rates or ((faster, slower) in EIGHT_BITS and rates[faster] <= rates[slower]):
                continue
            asked = [latency_ms(name, board, batch, mode, runtime, p) for p in (faster, slower)]
            allowed = _LEARNED if mode == "inference" and faster != "tf32" else 1.0 + 1e-9
            assert asked[0] <= allowed * asked[1], (name, batch, faster, slower)


@pytest.mark.parametrize("board", ["a10", "h100-sxm5-80gb", "rtx-3090"])
def test_no_operator_of_a_step_is_slower_in_tf32_or_in_halves_than_under_the_slower_precision(board):
    times = StepTimes.from_dict(StepPredictor.load().manifest["operators"])
    for name in NETWORKS[:2]:
        steps = _step(name)
        found = {
            p: times.base.work(steps, np.array([8]), Way(device(board), p)) for p in ("fp32", "tf32", "fp16", "amp")
        }
        assert (found["tf32"].device_s <= found["fp32"].device_s * (1 + 1e-12)).all()
        assert (found["fp16"].device_s <= found["amp"].device_s * (1 + 1e-12)).all()


def test_a_step_in_halves_of_an_older_release_is_priced_as_that_release_ran():
    times, way = StepTimes.from_dict(StepPredictor.load().manifest["operators"]), Way(device("a100"), "fp16")
    steps = _step("resnet50")
    old, today = (times.seconds(steps, np.array([8]), replace(way, torch_version=v)).device[0] for v in ("1.12", None))
    assert old > 1.05 * today


def _step(name) -> Steps:
    table = operator_table(graph(name, 8))
    return Derivation(StepOptions("adamw"), np.array([8 * 3.0 * 224 * 224]), 4.0).steps(Tables.one(table))


def test_tf32_in_training_is_looked_at_as_fp32_where_the_board_has_its_own_release():
    predictor, way = StepPredictor.load(), Way(device("a100-sxm4-40gb"), "fp32")
    assert predictor.measured(way) is not None
    assert predictor.measured(replace(way, precision="tf32")) == predictor.measured(way)
    found = perfpass.predict("examples/resnet50.onnx", "a100-sxm4-40gb", mode="training", precision="tf32")
    assert any("as in fp32, whose kernels TF32 allows" in reason for reason in found.support.reasons)


def test_eager_pytorch_takes_halves_at_the_rate_of_fp32_where_a_board_has_no_matrix_units():
    table = operator_table(graph("resnet50", 8))
    eager = Way(device("p100-pcie-16gb"), "fp16")
    assert precision_class(eager) == "fp32"
    assert precision_class(replace(eager, runtime="tensorrt")) == "half"
    halves, plain = (work(table, replace(eager, precision=p)).seconds.sum() for p in ("fp16", "fp32"))
    assert halves == pytest.approx(plain)  # of one table, whose bytes are the same
    for board in ("p100-pcie-16gb", "jetson-nano-4gb"):  # and so do trees
        told = [latency_ms("resnet50", board, 8, "inference", "torch", p) for p in ("fp16", "fp32")]
        assert 0.75 < told[0] / told[1] <= 1.0


@pytest.mark.parametrize("board", ["gtx-1660-super", "gtx-1650"])
def test_libraries_emulate_matrix_units_for_halves_on_boards_of_turing_that_have_none(board):
    table = operator_table(graph("resnet50", 8))
    way = Way(device(board), "fp16")
    for runtime in ("torch", "torch.compile", "onnxruntime", "tensorrt"):
        built = runtime in ENGINES
        seconds = [
            work(table, replace(way, precision=p, runtime=runtime), engine=built).seconds.sum()
            for p in ("fp16", "fp32")
        ]
        longer = 2.0 < seconds[0] / seconds[1] < 3.5
        assert longer != (runtime == "tensorrt"), (runtime, seconds)  # which times kernels, and takes those of fp32
    assert latency_ms("resnet50", board, 8, "inference", "torch", "fp16") > 2.0 * latency_ms(
        "resnet50", board, 8, "inference", "torch", "fp32"
    )
    assert not roofline.emulated(device("t4"), "fp16") and not roofline.emulated(device("rtx-2080-ti"), "fp16")


def test_a_built_graph_under_autocast_runs_the_products_of_one_in_halves():
    way = Way(device("h100"), "amp", runtime="torch.compile")
    assert kernels_of(way) == kernels_of(replace(way, precision="fp16")) == "half, built"
    assert kernels_of(replace(way, runtime="torch")) == "amp, eager"
    times = OperatorTimes.load()
    assert (times.factors(way) == times.factors(replace(way, precision="fp16"))).all()
