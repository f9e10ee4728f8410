"""Engines and compiled graphs replayed as a CUDA graph: no kernel waits for the host, and each starts sooner."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import perfpass
from perfpass.devices import device
from perfpass.errors import DeviceError, UnsupportedError
from perfpass.predictors import predict_graph
from perfpass.predictors.inference.engines import ENGINES, GRAPH_CYCLES, launch_s
from perfpass.predictors.roofline import WRAPPER_HOST
from perfpass.predictors.way import Way
from perfpass.training.tasks import named

HOW = {"precision": "fp16", "runtime": "tensorrt", "dims": {"sequence": 128}}


def both(name, **how):
    return [perfpass.predict("bert-base", name, **{**HOW, **how}, cuda_graph=graph) for graph in (False, True)]


@pytest.mark.parametrize("name", ["t4", "l4", "a100", "h100", "rtx-4090"])
@pytest.mark.parametrize("runtime", ENGINES)
def test_a_small_batch_gains_most_and_no_run_is_slower(name, runtime):
    gained = []
    for batch in (1, 128):
        launched, replayed = both(name, batch=batch, runtime=runtime)
        gained.append(launched.latency_ms.median / replayed.latency_ms.median)
    assert gained[0] > 1.15 and gained[0] > gained[1] >= 1.0


@pytest.mark.parametrize("name", ["t4", "l4", "a100", "h100", "rtx-4090"])
def test_a_compiled_graph_gains_as_far_as_it_waits(name):
    """A T4 and an L4 are busy with one sequence of 128 tokens, others wait for their host."""
    launched, replayed = zip(*(both(name, batch=batch, runtime="torch.compile") for batch in (1, 128)), strict=True)
    small, large = (a.latency_ms.median / b.latency_ms.median for a, b in zip(launched, replayed, strict=True))
    assert small > large >= 1.0 and small > (1.02 if name in ("t4", "l4") else 1.3)


def test_the_answer_says_that_a_graph_was_replayed():
    launched, replayed = both("a100", batch=1)
    assert replayed.to_dict()["workload"]["cuda_graph"] is True and "cuda_graph" not in launched.to_dict()["workload"]
    assert any("CUDA graph" in reason for reason in replayed.support.reasons)
    assert launched.memory == replayed.memory


@pytest.mark.parametrize(
    ("name", "asked", "error", "said"),
    [
        ("a100", {"runtime": "torch"}, UnsupportedError, "onnxruntime and torch.compile"),
        ("a100", {"runtime": "torch", "mode": "training"}, UnsupportedError, "training"),
        ("mi300x", {"runtime": "onnxruntime"}, DeviceError, "NVIDIA"),
        ("xeon-platinum-8168", {"runtime": "onnxruntime", "precision": "fp32"}, DeviceError, "NVIDIA"),
    ],
)
def test_what_replays_no_graph_is_refused(name, asked, error, said):
    with pytest.raises(error, match=said):
        perfpass.predict("bert-base", name, **{**HOW, "batch": 1, **asked}, cuda_graph=True)


def test_a_graph_of_operators_is_asked_alike():
    graph = perfpass.load("bert-base", batch=1, dims=HOW["dims"])
    how = {"precision": "fp16", "runtime": "tensorrt", "cuda_graph": True}
    assert predict_graph(graph, "a100", batch=1, **how).latency_ms == both("a100", batch=1)[1].latency_ms


def test_a_replayed_kernel_starts_in_the_cycles_of_measured_ones():
    board = device("a100-sxm4-80gb")
    assert launch_s(Way(board, runtime="tensorrt", cuda_graph=True)) == GRAPH_CYCLES / board.clock_hz


def test_nvidias_demo_is_asked_as_a_graph_and_nobody_else():
    rows = pd.DataFrame({"source": ["demobert", "kernl"], "device": "t4", "precision": "fp16", "mode": "inference"})
    rows = rows.assign(asked_runtime="tensorrt", optimizer="")
    assert {part.source.iloc[0]: way.cuda_graph for way, part in named.ways(rows)} == {"demobert": True, "kernl": False}


def test_inductor_of_2022_is_asked_as_a_graph_and_torch_compile_is_not():
    """In the nightly that kernl timed CUDA graphs were on by default; in releases they are of a mode of their own."""
    rows = pd.DataFrame({"source": ["kernl", "kernl", "ort_stable_diffusion"], "device": "t4", "precision": "fp16"})
    rows = rows.assign(mode="inference", optimizer="", asked_runtime=["torch.compile", "torch", "torch.compile"])
    assert [way.cuda_graph for way, _ in named.ways(rows)] == [False, True, False]


@pytest.mark.parametrize("name", ["resnet50", "vit_base_patch16_224"])
def test_a_small_compiled_batch_waits_for_python_unless_it_is_replayed(name):
    """Mode "default" launches kernel by kernel: two thirds of eager's time, as ResNet-50 took in torch 2.0."""
    eager, launched, replayed = (
        perfpass.predict(name, "h100", batch=1, precision="bf16", runtime=runtime, cuda_graph=graph)
        for runtime, graph in (("torch", False), ("torch.compile", False), ("torch.compile", True))
    )
    assert launched.latency_ms.median == pytest.approx(WRAPPER_HOST * eager.latency_ms.median, rel=0.02)
    # Hosts of 2026, twice as fast, and of torch 2.0, twice as slow, are inside of it, and it says why.
    assert launched.latency_ms.low < 0.61 * launched.latency_ms.median
    assert launched.latency_ms.high > 2.0 * launched.latency_ms.median
    assert any("reduce-overhead" in reason for reason in launched.support.reasons)
    assert replayed.latency_ms.high < launched.latency_ms.median
    assert not any("host" in reason for reason in replayed.support.reasons)


def test_a_large_compiled_batch_gains_nothing_from_a_graph():
    launched, replayed = (
        perfpass.predict("resnet50", "a10", batch=256, precision="fp16", runtime="torch.compile", cuda_graph=graph)
        for graph in (False, True)
    )
    assert replayed.latency_ms.median == pytest.approx(launched.latency_ms.median, rel=0.01)


def test_the_command_asks_so_and_compares_a_quantised_run_that_is_replayed_too(capsys):
    from perfpass.cli import main

    asked = ["predict", "bert-base", "--device", "a100", "--batch", "1", "--dim", "sequence=128", "--precision", "fp16"]
    asked += ["--runtime", "tensorrt", "--cuda-graph", "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["latency_ms"]["median"] == pytest.approx(both("a100", batch=1)[1].latency_ms.median)
    assert main([*asked, "--quantize", "int8"]) == 0
    ratio = json.loads(capsys.readouterr().out)["quantized"]["ratios"]["latency"]
    how = {**HOW, "batch": 1, "cuda_graph": True, "change": {"precision": "int8"}}
    assert ratio == perfpass.diff("bert-base", "bert-base", "a100", **how).devices[0].ratios[0].to_dict()
    assert ratio["old"] == pytest.approx(found["latency_ms"]["median"])
