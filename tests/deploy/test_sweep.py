"""Sweeps: every point is what one prediction says, what cannot be asked is a row, and files hold the same points."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.deploy.sweep import Sweep, sweep
from perfpass.errors import ArgumentError, DeviceError, LimitError, PerfPassError, UnsupportedError
from perfpass.llm.serving import CONCURRENCY

SERVED = ("ttft_ms", "tpot_ms", "request_ms", "output_tokens_per_s", "energy_per_token_j", "power_w")
DEVICES = ["h100", "l4", "mi300x", "a100-80gb:2g.20gb"]


@pytest.fixture(scope="module")
def served():
    return sweep(
        "llama-3.1-8b", DEVICES, precisions=["bf16", "fp8"], runtimes=["vllm", "trtllm"], tensor_parallel=[1, 2, 3],
        input_lengths=[200, 4000], output_lengths=[64], concurrencies=[1, 24, 3000], energy=True,
    )  # fmt: skip


@pytest.mark.filterwarnings("error")
def test_the_least_and_the_greatest_loads_have_finite_figures_or_a_reason():
    found = sweep(
        "llama-3.1-8b", ["h100"], input_lengths=[1, 10_000_000], output_lengths=[1, 10_000_000],
        concurrencies=CONCURRENCY, tensor_parallel=[1, 8], energy=True,
    )  # fmt: skip
    answered = [point for point in found.rows() if not point["problem"]]
    assert answered
    for point in answered:
        assert all(0 < point[name] < math.inf for name in (*SERVED, "usd_per_million_tokens"))


@pytest.fixture(scope="module")
def network(example_onnx):
    return sweep(example_onnx, ["l4", "t4", "a100"], precisions=["fp32", "bf16"], batches=[1, 8, 4096])


@pytest.fixture(scope="module")
def example_onnx():
    from pathlib import Path

    return str(Path(__file__).resolve().parents[2] / "examples" / "resnet50.onnx")


def test_points_of_a_served_model_are_what_each_prediction_says(served):
    points = served.rows()
    assert len(points) == 4 * 2 * 2 * 3 * 2 * 3
    for point in points[::11]:
        asked = {name: point[name] for name in ("input_length", "output_length", "concurrency", "runtime")}
        try:
            one = perfpass.predict_llm(
                "llama-3.1-8b", point["device"], **asked, precision=point["precision"], tp=point["tensor_parallel"]
            )
        except PerfPassError as error:
            assert point["problem"], error
            continue
        if point["problem"]:
            assert not one.memory.fits or "no link" in point["problem"]
            continue
        assert point["support"] == ("in range", "near", "outside").index(one.support.level)
        for name in SERVED:
            found = getattr(one, name)
            ends = [point[name], point[f"{name}_low"], point[f"{name}_high"]]
            assert ends == pytest.approx([found.median, found.low, found.high], rel=1e-9)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-r1"])
def test_devices_that_share_what_was_measured_are_answered_as_each_by_itself(model):
    """To the last bit: what bounds several devices is found once, and changes none of them."""
    boards = ["l4", "h200", "a100-80gb:2g.20gb", "b200", "mi300x"]
    asked = {"runtimes": ["vllm", "sglang"], "tensor_parallel": [8], "concurrencies": [1, 24]}
    together = sweep(model, boards, **asked)
    for board in boards:
        alone = sweep(model, [board], **asked)
        rows = together.columns["device"] == alone.columns["device"][0]
        assert rows.sum() == len(alone)
        for name, column in alone.columns.items():
            np.testing.assert_array_equal(together.columns[name][rows], column)


def test_what_cannot_be_asked_is_a_row_with_its_reason(served, network):
    assert not served.ok.all() and served.ok.any()
    reasons = set(served.columns["problem"][~served.ok].tolist())
    assert any("attention heads do not divide into 3" in text for text in reasons)
    assert any("TensorRT-LLM runs on NVIDIA GPUs only" in text for text in reasons)
    assert any("no link to others" in text for text in reasons)
    assert np.isnan(served.columns["tpot_ms"][~served.ok]).all()
    points = network.rows()
    assert any("T4 has no bf16" in point["problem"] for point in points)
    assert any(point["problem"].startswith("it needs") and point["batch"] == 4096 for point in points)


def test_points_of_a_network_are_what_each_prediction_says(network, example_onnx):
    for point in network.rows()[::3]:
        if point["problem"]:
            continue
        one = perfpass.predict(example_onnx, point["device"], batch=point["batch"], precision=point["precision"])
        for name in ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j"):
            found = getattr(one, name)
            ends = [point[name], point[f"{name}_low"], point[f"{name}_high"]]
            assert ends == pytest.approx([found.median, found.low, found.high], rel=1e-6)


def test_points_replayed_as_a_cuda_graph_are_what_each_prediction_says(example_onnx):
    how = {"precisions": ["fp16"], "batches": [1, 8], "cuda_graph": True}
    found = sweep(example_onnx, ["a100", "mi300x"], runtimes=["tensorrt", "torch"], **how)
    for point in found.rows():
        asked = {name: point[name] for name in ("precision", "runtime", "batch")}
        if point["problem"]:
            assert point["runtime"] == "torch" or point["device"] == "mi300x"
            with pytest.raises(PerfPassError) as refused:
                perfpass.predict(example_onnx, point["device"], cuda_graph=True, **asked)
            assert str(refused.value) == point["problem"]
        else:
            alone = perfpass.predict(example_onnx, point["device"], cuda_graph=True, **asked)
            assert point["latency_ms"] == pytest.approx(alone.latency_ms.median, rel=1e-9)
            launched = perfpass.predict(example_onnx, point["device"], **asked)
            assert point["latency_ms"] < launched.latency_ms.median
    assert int(found.ok.sum()) == 2 and "CUDA graph" in str(found)
    with pytest.raises(ArgumentError, match="graphs of its own; leave it out"):
        sweep("llama-3.1-8b", ["a100"], cuda_graph=True)


def test_money_is_the_price_of_the_table_over_what_is_done_in_an_hour(served, network):
    for point in network.rows():
        if not point["problem"]:
            hours = 1000 / point["throughput_per_s"] / 3600
            assert point["usd_per_thousand_samples"] == pytest.approx(point["usd_per_hour"] * hours)
    one = next(p for p in served.rows() if p["device"].startswith("mi300x"))
    assert one["usd_per_hour"] is None and any("no price of mi300x" in note for note in served.notes)


@pytest.mark.parametrize("kind", [".csv", ".json", ".parquet"])
def test_files_hold_every_point(served, tmp_path, kind):
    path = tmp_path / f"points{kind}"
    served.write(path)
    if kind == ".csv":
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["device"] for row in rows] == served.columns["device"].tolist()
    elif kind == ".json":
        assert json.loads(path.read_text())["points"] == served.rows()
    else:
        import pyarrow.parquet

        assert pyarrow.parquet.read_table(path).num_rows == len(served)
    with pytest.raises(ArgumentError, match=r"\.csv, \.parquet, \.json"):
        served.write(tmp_path / "points.txt")


def test_a_table_says_how_many_have_no_figures_and_why(served):
    text = str(served)
    assert "of them without figures" in text and "without figures: " in text
    assert all(len(line) <= 300 for line in text.splitlines())


def test_no_table_is_shown_where_no_point_has_figures(served):
    text = str(served.take(np.flatnonzero(~served.ok)))
    assert "latency" not in text and "price of" not in text
    assert all("without figures" in line or "of them without figures" in line for line in text.splitlines())


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=25))
def test_a_front_is_what_no_point_is_better_than(values):
    table = np.array(values, dtype=np.float64)
    columns = {"latency_ms": table[:, 0], "energy_j": table[:, 1], "throughput_per_s": table[:, 2]}
    columns["problem"] = np.full(len(table), "", dtype=object)
    found = Sweep("m", ("device",), ("latency_ms", "energy_j", "throughput_per_s"), columns)
    front = found.pareto("latency_ms", "energy_j", "throughput_per_s")
    signed = table * [1, 1, -1]
    better = [any((a <= b).all() and (a < b).any() for a in signed) for b in signed]
    assert len(front) == better.count(False)


def test_bad_questions_are_one_clear_error(tmp_path):
    with pytest.raises(DeviceError, match="unknown device"):
        sweep("llama-3.1-8b", ["h1000"])
    with pytest.raises(ArgumentError, match="no device"):
        sweep("llama-3.1-8b", [])
    for load in (math.nan, 0, 1e-323):
        with pytest.raises(ArgumentError, match="concurrencies must be from 1e-06 to 10,000,000, got"):
            sweep("llama-3.1-8b", ["h100"], concurrencies=[load])
    with pytest.raises(ArgumentError, match="input_lengths must be whole numbers"):
        sweep("llama-3.1-8b", ["h100"], input_lengths=[0])
    with pytest.raises(ArgumentError, match="is of a served language model"):
        sweep("resnet50", ["l4"], concurrencies=[2])
    with pytest.raises(LimitError, match="at most 5,000,000"):
        sweep("llama-3.1-8b", ["h100"], concurrencies=range(1, 3000), input_lengths=range(1, 3000))
    with pytest.raises(ArgumentError, match="unknown figure 'speed'"):
        sweep("llama-3.1-8b", ["h100"]).pareto("speed")


def test_without_ray_a_sweep_by_ray_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r"perfpass\[ray\]"):
        sweep("llama-3.1-8b", ["h100"], ray=True)


def test_a_runtime_without_loads_is_one_error_and_not_a_row_each():
    for ask in (sweep, perfpass.choose):
        with pytest.raises(ArgumentError, match=r"unknown runtime 'llama.cpp'.*`perfpass llm --runtime`"):
            ask("llama-3.1-8b", ["h100", "m2-max"], runtimes=["vllm", "llama.cpp"])


def test_a_device_without_a_price_says_so():
    text = str(sweep("llama-3.1-8b", ["rtx-4090"], tensor_parallel=[1]))
    assert "no price" in text and "nan" not in text
