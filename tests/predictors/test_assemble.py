"""`predict` and `predict_graph`: every metric, strict JSON, arguments checked, honest support."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from graph_strategies import graphs
from perfpass import features
from perfpass.errors import ArgumentError, DeviceError, UnsupportedError
from perfpass.graph import OpGraph, costs
from perfpass.prediction import Interval, MigHint, Prediction, Support
from perfpass.predictors import predict_graph
from perfpass.predictors.memory.allowance import driver_bytes
from perfpass.predictors.way import STANDING_IN
from perfpass.predictors.workload import PRECISIONS, RUNTIMES
from small_networks import network

METRICS = ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w")
UNITS = {"latency_ms": "ms", "throughput_per_s": "1/s", "peak_memory_bytes": "byte", "energy_j": "J", "power_w": "W"}


def run(graph: OpGraph | None = None, device: Any = "a100", **arguments: Any) -> Prediction:
    return predict_graph(graph or network(), device, **arguments)


def strict(prediction: Prediction) -> dict[str, Any]:
    """The prediction through strict JSON."""
    return json.loads(json.dumps(prediction.to_dict(), allow_nan=False))


def test_every_metric_is_an_interval_with_its_unit():
    found = run()
    for name in METRICS:
        interval = getattr(found, name)
        assert isinstance(interval, Interval) and interval.unit == UNITS[name]
        assert 0 < interval.low <= interval.median <= interval.high < math.inf, name
        assert interval.coverage == 0.9
    assert isinstance(found.mig, MigHint) and isinstance(found.support, Support)


def test_the_metrics_agree_with_each_other():
    found = run(batch=4)
    assert found.throughput_per_s.median == pytest.approx(4e3 / found.latency_ms.median)
    assert found.throughput_per_s.low == pytest.approx(4e3 / found.latency_ms.high)
    assert found.energy_j.median == pytest.approx(found.power_w.median * found.latency_ms.median / 1e3)
    assert sum(found.breakdown["latency_ms"].values()) == pytest.approx(found.latency_ms.median, rel=1e-6)
    parts = {"weights", "activations", "allocator", "workspace", "runtime"}
    assert set(found.breakdown["memory_bytes"]) == parts
    assert sum(found.breakdown["memory_bytes"].values()) == pytest.approx(found.peak_memory_bytes.median, rel=1e-6)


def test_weights_and_activations_are_at_least_what_the_graph_needs():
    found = run(network(batch=4, width=64, blocks=3))
    memory = found.breakdown["memory_bytes"]
    assert memory["weights"] >= 3 * 64 * 64 * 9 * 4
    assert memory["activations"] >= 2 * 4 * 64 * 32 * 32 * 4  # input and output of one operator
    assert found.peak_memory_bytes.high >= memory["weights"] + memory["activations"]


def test_power_stays_between_idle_and_limit():
    for name in ("a100", "t4", "rtx-3090", "cpu", "a100:1g.5gb"):
        target = perfpass.device(name)
        power = run(device=name).power_w
        assert power.low > 0 and power.high <= target.power_limit_w * 1.1, name


SCHEMA = {
    "schema_version": int,
    "workload": {"device": str, "batch": int, "precision": str, "mode": str, "runtime": str, "layout": str},
    **{m: {"median": float, "low": float, "high": float, "unit": str, "coverage": float} for m in METRICS},
    "mig": {"profile": (str, type(None)), "instances_per_gpu": int, "reason": str},
    "support": {"level": str, "reasons": list},
    "memory_verdict": {
        "fits": str,
        "headline": str,
        "needed_bytes": int,
        "needed_high_bytes": int,
        "available_bytes": int,
        "remedies": list,
    },
    "memory": {
        **{figure: {"median": float, "low": float, "high": float} for figure in ("alive", "reserved", "in_use")},
        "gradients_bytes": (float, type(None)),
    },
    "breakdown": {"latency_ms": dict, "memory_bytes": dict, "operators": list, "peak": dict},
    "provenance": {"predictor": str, "perfpass": str, "device": dict, "graph": dict},
}


def check_schema(value: Any, schema: Any, where: str = "prediction") -> None:
    if isinstance(schema, dict):
        assert isinstance(value, dict) and set(schema) <= set(value), where
        for key, inner in schema.items():
            check_schema(value[key], inner, f"{where}.{key}")
    else:
        assert isinstance(value, schema) or (schema is float and isinstance(value, int)), where


@pytest.mark.parametrize("device", ["a100", "p4", "mi300x", "cpu", "h100:1g.10gb"])
def test_to_dict_is_strict_json_of_the_documented_schema(device):
    found = strict(run(device=device))
    check_schema(found, SCHEMA)
    assert set(found) == set(SCHEMA)
    assert found["workload"]["batch"] == 4
    assert found["support"]["level"] in ("in range", "near", "outside")
    graph = found["provenance"]["graph"]
    assert graph["nodes"] == 6 and graph["macs"] == 3 * 4 * 64 * 64 * 9 * 32 * 32


def test_the_longest_operators_and_the_peak_are_named():
    found = run(network(blocks=3))
    conv = next(o for o in found.breakdown["operators"] if o["operator"] == "conv")
    assert conv["count"] == 3 and conv["output_shape"] == [4, 64, 32, 32] and conv["example"] == "conv0"
    times = [o["ms"] for o in found.breakdown["operators"]]
    assert times == sorted(times, reverse=True)
    peak = found.breakdown["peak"]
    assert peak["operator"] and peak["largest"][0]["shape"] == [4, 64, 32, 32]


def test_the_batch_is_the_graphs_own():
    assert run(network(batch=7)).workload["batch"] == 7
    found = run(network(batch=8), batch=8)
    assert found.throughput_per_s.median == pytest.approx(8e3 / found.latency_ms.median)


@pytest.mark.parametrize("batch", [0, -1, 1.5, "8", True, (1 << 20) + 1, float("nan")])
def test_a_batch_that_is_none_is_an_argument_error(batch):
    with pytest.raises(ArgumentError, match="batch"):
        run(batch=batch)


def test_a_numpy_batch_is_a_batch():
    assert run(batch=np.int64(4)).workload["batch"] == 4


@pytest.mark.parametrize(
    ("argument", "value"),
    [("precision", "fp42"), ("runtime", "caffe"), ("layout", "nc"), ("mode", "dream"), ("precision", None)],
)
def test_an_unknown_choice_names_what_is_allowed(argument, value):
    with pytest.raises(ArgumentError, match=rf"unknown {argument} .*allowed are"):
        run(**{argument: value})


def test_training_in_integers_is_refused_plainly():
    with pytest.raises(UnsupportedError, match=r"training in int8 is not predicted"):
        run(mode="training", precision="int8")


@pytest.mark.parametrize("device", ["mi300x", "rx-7900-xtx", "arc-a770", "apple-m2-max", "xeon-platinum-8480-plus"])
def test_tensorrt_is_predicted_where_it_runs_alone(device):
    with pytest.raises(UnsupportedError, match=r"TensorRT runs on NVIDIA's GPUs alone, not on .*: torch, .*, relax$"):
        run(device=device, precision="fp32", runtime="tensorrt")


@pytest.mark.parametrize(("device", "precision"), [("v100", "bf16"), ("t4", "tf32"), ("a100", "fp8"), ("p100", "int8")])
def test_a_precision_the_device_lacks_is_a_device_error_that_lists_those_it_has(device, precision):
    with pytest.raises(DeviceError, match=rf"{precision}.*it can run .*fp32"):
        run(device=device, precision=precision)


def test_every_precision_and_runtime_gives_a_finite_prediction():
    for precision in PRECISIONS:
        strict(run(device="h100", precision=precision))
    for runtime in RUNTIMES:
        strict(run(runtime=runtime, **({"device": "cpu"} if runtime in STANDING_IN else {})))
    strict(run(layout="nhwc"))


def test_half_precision_halves_the_planned_activations():
    full, half = run(device="h100"), run(device="h100", precision="fp16")
    ratio = half.breakdown["memory_bytes"]["activations"] / full.breakdown["memory_bytes"]["activations"]
    assert 0.4 < ratio < 0.6
    assert run(precision="amp_fp16").workload["precision"] == "amp"


def test_more_work_takes_more_time_and_memory():
    small, large = run(network(batch=2)), run(network(batch=512))
    assert large.latency_ms.median > small.latency_ms.median
    assert large.peak_memory_bytes.median > small.peak_memory_bytes.median
    assert large.throughput_per_s.median > small.throughput_per_s.median


def test_a_slice_is_slower_than_its_gpu():
    graph = network(batch=512)
    assert run(graph, "a100:1g.5gb").latency_ms.median > run(graph, "a100").latency_ms.median


def test_the_mig_hint_goes_by_the_upper_bound_of_memory():
    found = run(network(batch=2048))
    profile = perfpass.device("a100").mig.profile(found.mig.profile)
    # A slice's memory is stated without what the driver keeps of the whole GPU.
    assert profile.memory_bytes >= found.peak_memory_bytes.high - driver_bytes(perfpass.device("a100"))


def test_what_does_not_fit_says_so():
    found = run(network(batch=1 << 17), "p4")
    assert found.support.level == "outside"
    assert any("does not fit" in reason for reason in found.support.reasons)


def test_unknown_operators_are_named_in_the_support():
    found = run(network(op="unknown"))
    assert any("without a cost model" in reason and "Unknown (3)" in reason for reason in found.support.reasons)
    assert found.support.level != "in range"
    assert found.provenance["graph"]["unknown_operators"] == {"Unknown": 3}


def test_a_model_of_16_bits_that_is_told_in_fp32_says_so():
    half, whole = network(dtype="float16"), network()
    said = "the model computes in fp16 and is told in fp32 here; ask for it as it is: precision fp16"
    assert said in run(half).support.reasons and said in perfpass.fit(half, "a100").notes
    for graph, precision in ((half, "fp16"), (half, "amp"), (whole, "fp32"), (whole, "fp16")):
        assert not any("is told in" in reason for reason in run(graph, precision=precision).support.reasons)
    assert run(half).support.level == run(whole).support.level


def test_a_device_without_any_record_is_never_in_range_and_says_why():
    found = run(device="mi300x")
    assert found.support.level != "in range" and any("no run on AMD" in r for r in found.support.reasons)


@pytest.mark.parametrize("runtime", ["onnxruntime", "tvm"])
def test_runtimes_on_a_cpu_are_priced_by_operators_and_say_on_what_they_rest(runtime):
    found = predict_graph(network(), "cpu", runtime=runtime, calibration=False)
    assert found.provenance["predictor"] == "cpu"
    assert found.support.level != "in range"
    assert "time by its operators" in found.support.reasons[0]
    assert found.latency_ms.high / found.latency_ms.low < 10
    assert sum(found.breakdown["latency_ms"].values()) == pytest.approx(found.latency_ms.median)


def test_an_ambiguous_device_name_is_told_in_the_provenance():
    assert any("was read as" in note for note in run(device="a100").provenance["device"]["notes"])


@pytest.mark.parametrize("model", [3, None, object(), [1, 2]])
def test_what_is_not_a_model_is_an_argument_error(model):
    with pytest.raises(ArgumentError):
        perfpass.predict(model, "a100")
    with pytest.raises(ArgumentError, match="OpGraph"):
        predict_graph(model, "a100")


def test_a_graph_goes_through_predict_as_well():
    graph = network()
    assert perfpass.predict(graph, "t4").latency_ms == run(graph, "t4").latency_ms


def test_a_prediction_prints_as_a_table_of_at_most_100_columns():
    text = str(run())
    assert "latency" in text and "MIG profile" in text and max(map(len, text.splitlines())) <= 100


@settings(max_examples=25)
@given(
    st.integers(1, 64), st.sampled_from([1, 3, 8, 64, 130]), st.integers(1, 5), st.sampled_from(["a100", "t4", "cpu"])
)
def test_any_small_network_gives_a_finite_prediction(batch, width, blocks, device):
    found = run(network(batch, width, blocks), device)
    assert all(getattr(found, m).low <= getattr(found, m).median <= getattr(found, m).high for m in METRICS)
    strict(found)


@settings(max_examples=60)
@given(graphs(), st.sampled_from(["a100", "rtx-3090", "cpu", "a100:1g.5gb"]), st.sampled_from(["fp32", "fp16"]))
def test_any_graph_gives_a_finite_prediction(graph, device, precision):
    """Graphs of views, of shape arithmetic, of empty tensors and of unknown operators included."""
    strict(run(graph, device, precision=precision, batch=1))


@pytest.mark.parametrize(
    ("median", "low", "high"), [(2, 3, 4), (1, 0, 0.5), (-1, -2, 0), (float("nan"), 0, 1), (1, 0, float("inf"))]
)
def test_an_interval_that_is_none_cannot_be_made(median, low, high):
    with pytest.raises(ArgumentError):
        Interval(median, low, high, "ms")


def test_intervals_scale_and_invert():
    interval = Interval(2.0, 1.0, 4.0, "ms")
    assert interval.scaled(1e-3, "s") == Interval(0.002, 0.001, 0.004, "s")
    assert interval.inverse(4.0, "1/ms") == Interval(2.0, 1.0, 4.0, "1/ms")


def test_a_support_level_is_one_of_three():
    with pytest.raises(ArgumentError, match="in range, near, outside"):
        Support("fine")


def test_bytes_that_a_cpus_last_level_cache_holds_come_faster():
    from dataclasses import replace

    from perfpass.devices import device
    from perfpass.predictors.roofline import CACHE_SPEED, bound
    from perfpass.predictors.way import Way

    table = features.operator_table(network(batch=1), costs.count(network(batch=1)))
    cpu = device("core-i9-10940x")
    without = replace(cpu, l2_bytes=0, l3_bytes=0)
    cached, plain = (bound(table, Way(d)).memory_s for d in (cpu, without))
    moved = plain > 0
    # A feature map of 64 x 32 x 32 floats is far below the cache, and far above one of a kilobyte.
    assert np.allclose(plain[moved] / cached[moved], CACHE_SPEED["cpu"])
    small = replace(without, l2_bytes=1024)
    assert (bound(table, Way(small)).memory_s[moved] > 0.9 * plain[moved]).all()
