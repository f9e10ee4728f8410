"""PredictPerformance, build and the instrument: predictions where TVM's users look, and nothing else changed."""

from __future__ import annotations

import gc
import json
import os
import weakref

import numpy as np
import pytest

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay import testing

import perfpass
import tvm_perfpass
from perfpass import features
from perfpass.errors import ArgumentError, DeviceError, GraphError, ShapeError, UnsupportedError
from perfpass.graph import costs
from tvm_perfpass import PerformanceInstrument, PredictPerformance, import_relay, read_prediction
from tvm_perfpass.fusion import fused
from tvm_perfpass.relay.module_walk import walk

DEVICE = "a100-80gb"
METRICS = ("latency_ms", "peak_memory_bytes", "energy_j", "power_w", "throughput_per_s")


@pytest.fixture(scope="module")
def network():
    """A residual block and a classifier: small enough to be compiled several times."""
    x = relay.var("data", shape=(2, 3, 16, 16))
    y = relay.nn.conv2d(x, relay.var("conv0_weight", shape=(8, 3, 3, 3)), padding=1, channels=8, kernel_size=(3, 3))
    statistics = [relay.var(f"bn_{name}", shape=(8,)) for name in ("gamma", "beta", "moving_mean", "moving_var")]
    y = relay.nn.relu(relay.nn.batch_norm(y, *statistics)[0])
    z = relay.nn.conv2d(y, relay.var("conv1_weight", shape=(8, 8, 3, 3)), padding=1, channels=8, kernel_size=(3, 3))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(relay.add(y, z))))
    y = relay.nn.bias_add(relay.nn.dense(y, relay.var("fc_weight", shape=(10, 8))), relay.var("fc_bias", shape=(10,)))
    return testing.create_workload(y)


@pytest.fixture(scope="module")
def annotated(network):
    mod, params = network
    return PredictPerformance(device=DEVICE, params=params)(mod)


def outputs(lib, image):
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input("data", image)
    module.run()
    return module.get_output(0).numpy()


def test_the_module_carries_every_metric_with_its_interval(annotated):
    for metric in METRICS:
        value = annotated.attrs[f"perfpass.{metric}"]
        assert 0 < float(value["low"]) <= float(value["median"]) <= float(value["high"])
        assert 0 < float(value["coverage"]) < 1
    assert int(annotated.attrs["perfpass.mig"]["instances_per_gpu"]) >= 1
    assert str(annotated.attrs["perfpass.mig"]["reason"])
    assert str(annotated.attrs["perfpass.support"]["level"]) in ("in range", "near", "outside")
    provenance = json.loads(str(annotated.attrs["perfpass.provenance"]))
    assert provenance["features"]["schema"] == "operator"
    assert json.loads(str(annotated.attrs["perfpass.workload"]))["batch"] == 2
    assert json.loads(str(annotated.attrs["perfpass.workload"]))["runtime"] == "tvm"


def test_the_module_carries_its_graph_as_tensors(network, annotated):
    mod, params = network
    graph = import_relay(mod, params)
    table = features.extract(graph, "operator")
    np.testing.assert_array_equal(annotated.attrs["perfpass.node_features"].numpy(), table.nodes)
    np.testing.assert_array_equal(annotated.attrs["perfpass.edge_index"].numpy(), graph.edge_index)


def test_the_prediction_is_that_of_perfpass_predict(network, annotated):
    mod, params = network
    expected = perfpass.predict(import_relay(mod, params), DEVICE, runtime="tvm", limits=perfpass.Limits()).to_dict()
    found = read_prediction(annotated)
    assert found == expected
    assert perfpass.predict(mod, DEVICE, runtime="tvm").to_dict()["latency_ms"] == expected["latency_ms"]


def test_code_and_input_module_stay_as_they_are(network):
    mod, params = network
    before = tvm.ir.structural_hash(mod["main"]), tvm.ir.save_json(mod)
    out = PredictPerformance(device=DEVICE, params=params)(mod)
    assert not mod.attrs
    assert tvm.ir.save_json(mod) == before[1]
    assert tvm.ir.structural_hash(out["main"]) == before[0]
    bare = out
    for key in list(out.attrs.keys()):
        bare = bare.without_attr(key)
    assert tvm.ir.structural_equal(bare, mod)


def test_attributes_survive_json(annotated):
    back = tvm.ir.load_json(tvm.ir.save_json(annotated))
    assert set(back.attrs.keys()) == set(annotated.attrs.keys())
    assert read_prediction(back) == read_prediction(annotated)
    for name in ("node_features", "edge_index"):
        np.testing.assert_array_equal(
            back.attrs[f"perfpass.{name}"].numpy(), annotated.attrs[f"perfpass.{name}"].numpy()
        )
    # TVM writes numbers with six digits; the whole prediction is a string and stays exact.
    for metric in METRICS:
        before, after = (mod.attrs[f"perfpass.{metric}"] for mod in (annotated, back))
        assert float(after["median"]) == pytest.approx(float(before["median"]), rel=1e-5)


def test_the_pass_works_in_a_sequence(network):
    mod, params = network
    sequence = tvm.transform.Sequential(
        [
            relay.transform.SimplifyInference(),
            PredictPerformance(device=DEVICE, params=params),
            relay.transform.FoldConstant(),
        ]
    )
    with tvm.transform.PassContext(opt_level=3):
        out = sequence(mod)
    assert read_prediction(out)["latency_ms"]["median"] > 0


def test_a_module_without_types_is_typed_first():
    x = relay.var("x", shape=(4, 8))
    mod = tvm.IRModule()
    mod["main"] = relay.Function([x], relay.nn.relu(x))
    assert read_prediction(PredictPerformance(device=DEVICE)(mod))["workload"]["batch"] == 4


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "fp32"), ("float16", "fp16")])
def test_precision_is_that_of_the_module(dtype, precision):
    x = relay.var("x", shape=(4, 8), dtype=dtype)
    w = relay.var("w", shape=(16, 8), dtype=dtype)
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    assert read_prediction(PredictPerformance(device=DEVICE)(mod))["workload"]["precision"] == precision


def test_layout_is_that_of_the_convolutions():
    x, w = relay.var("x", shape=(1, 8, 8, 4)), relay.var("w", shape=(3, 3, 4, 8))
    y = relay.nn.conv2d(x, w, channels=8, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO")
    mod = tvm.IRModule.from_expr(relay.Function([x, w], y))
    assert read_prediction(PredictPerformance(device=DEVICE)(mod))["workload"]["layout"] == "nhwc"


def test_errors_keep_their_class_through_tvm():
    with pytest.raises(DeviceError):
        PredictPerformance(device="no such device")
    with pytest.raises(ArgumentError):
        PredictPerformance(device=DEVICE, schema="no such schema")
    x = relay.var("x", shape=(relay.Any(), 3))
    with pytest.raises(ShapeError, match="axis 0"):
        PredictPerformance(device=DEVICE)(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))))


@pytest.fixture(scope="module")
def built(network):
    mod, params = network
    with tvm.transform.PassContext(opt_level=3):
        return tvm_perfpass.build(mod, "llvm", params=params, device=DEVICE)


@pytest.mark.slow
def test_the_built_library_computes_the_same(network, built, annotated):
    mod, params = network
    image = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("float32")
    with tvm.transform.PassContext(opt_level=3):
        plain = relay.build(mod, "llvm", params=params)
        passed = relay.build(annotated, "llvm", params=params)
    expected = outputs(plain, image)
    np.testing.assert_array_equal(outputs(built, image), expected)
    np.testing.assert_array_equal(outputs(passed, image), expected)


@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_the_prediction_survives_export_and_load(tmp_path, network, built, annotated, suffix):
    image = np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype("float32")
    path = str(tmp_path / f"model.{suffix}")
    built.export_library(path)
    loaded = tvm.runtime.load_module(path)
    assert read_prediction(loaded) == read_prediction(built) == read_prediction(annotated)
    np.testing.assert_array_equal(outputs(loaded, image), outputs(built, image))


def test_pack_reads_the_hint_off_a_library_without_loading_it(tmp_path, built, capsys):
    from perfpass.cli import main
    from perfpass.cli.carried import carried

    path = str(tmp_path / "network.so")
    built.export_library(path)
    found = carried(path)
    assert found == read_prediction(built)
    assert main(["pack", "--from", path, "--format", "k8s", "-o", str(tmp_path), "--time-limit", "5"]) == 0
    assert found["mig"]["profile"] in capsys.readouterr().out
    assert "nvidia.com/mig-" in (tmp_path / "k8s" / "network.yaml").read_text()


def test_the_decision_is_the_same_in_the_module_the_library_and_perfpass_predict(tmp_path, network):
    mod, params = network
    limits = perfpass.Limits(latency_ms=5, energy_j=2, confidence=0.95)
    expected = perfpass.predict(import_relay(mod, params), DEVICE, runtime="tvm", limits=limits).decision
    passed = PredictPerformance(device=DEVICE, params=params, limits=limits)(mod)
    path = str(tmp_path / "model.so")
    tvm_perfpass.build(mod, "llvm", params, device=DEVICE, limits=limits).export_library(path)
    for found in (read_prediction(passed), read_prediction(tvm.runtime.load_module(path))):
        assert perfpass.Decision.from_dict(found["decision"]) == expected
    assert perfpass.Decision.from_dict(json.loads(str(passed.attrs["perfpass.decision"]))) == expected
    assert expected.limits == limits and len(expected.slices) > 1


def test_pack_places_a_library_by_the_latency_on_the_slice(tmp_path, built, capsys):
    from perfpass.cli import main

    path = str(tmp_path / "network.so")
    built.export_library(path)
    decision = perfpass.Decision.from_dict(read_prediction(built)["decision"])
    kept, missed = (str(getattr(decision.slices[0].latency_ms, bound)) for bound in ("high", "low"))
    assert main(["pack", "--from", path, "--latency", kept, "--json", "--time-limit", "5"]) == 0
    layout = json.loads(capsys.readouterr().out)
    (instance,) = layout["gpus"][0]["instances"]
    assert instance["profile"] == decision.under(perfpass.Limits(latency_ms=float(kept))).smallest.profile
    assert main(["pack", "--from", path, "--latency", missed, "--time-limit", "5"]) == 1
    assert "P(meets)" in capsys.readouterr().out


def test_what_carries_no_prediction_says_so(network):
    mod, params = network
    with pytest.raises(GraphError, match="PredictPerformance"):
        read_prediction(mod)
    small = tvm.IRModule.from_expr(relay.Function([], relay.exp(relay.const(np.ones((2, 2), "float32")))))
    with pytest.raises(ArgumentError, match=r"tvm_perfpass\.build"):
        read_prediction(relay.build(small, "llvm"))
    with pytest.raises(ArgumentError, match="IRModule"):
        read_prediction("model.so")
    with pytest.raises(UnsupportedError, match="aot"):
        tvm_perfpass.build(mod, "llvm", params, device=DEVICE, executor=relay.backend.Executor("aot"))
    with pytest.raises(ArgumentError, match="optlevel"):
        tvm_perfpass.build(mod, "llvm", params, device=DEVICE, optlevel=3)


def test_the_instrument_shows_how_the_prediction_moves(network):
    mod, params = network
    instrument = PerformanceInstrument(DEVICE, params=params)
    with tvm.transform.PassContext(opt_level=3, instruments=[instrument]):
        relay.build(mod, "llvm", params=params)
    assert [point.name for point in instrument.points][:2] == ["input", "FuseOps"]
    assert not instrument.errors
    first, last = instrument.points[0], instrument.points[-1]
    assert last.kernels < first.kernels
    assert last.bytes_moved < first.bytes_moved
    report = instrument.report()
    assert "FuseOps" in report
    assert "%" in report


def test_an_instrument_that_nobody_holds_is_gone_with_its_predictions(network):
    mod, params = network
    instrument = PerformanceInstrument(DEVICE, at=["input"], params=params)
    with tvm.transform.PassContext(opt_level=3, instruments=[instrument]):
        relay.transform.InferType()(mod)
    kept = weakref.ref(instrument.points[0].prediction)
    del instrument
    gc.collect()
    assert kept() is None


def test_a_failing_instrument_never_breaks_a_build(network, monkeypatch):
    mod, params = network

    def broken(*_args, **_options):
        raise RuntimeError("provoked")

    monkeypatch.setattr("tvm_perfpass.points.predict_loaded", broken)
    instrument = PerformanceInstrument(DEVICE, params=params)
    with tvm.transform.PassContext(opt_level=3, instruments=[instrument]):
        lib = relay.build(mod, "llvm", params=params)
    assert outputs(lib, np.zeros((2, 3, 16, 16), "float32")).shape == (2, 10)
    assert instrument.points == []
    assert {failure.name for failure in instrument.errors} >= {"input", "FuseOps"}
    assert "provoked" in instrument.report()


def test_an_instrument_survives_a_module_it_cannot_read():
    x = relay.var("x", shape=(relay.Any(), 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    instrument = PerformanceInstrument(DEVICE)
    with tvm.transform.PassContext(opt_level=3, instruments=[instrument]):
        relay.vm.compile(mod, "llvm")
    assert "ShapeError" in instrument.report()


def test_fusion_keeps_macs_and_parameters_and_saves_traffic():
    mod, params = testing.mobilenet.get_workload(1)
    with tvm.transform.PassContext(opt_level=3):
        simple = relay.transform.InferType()(relay.transform.SimplifyInference()(mod))
        grouped = walk(relay.transform.InferType()(relay.transform.FuseOps(fuse_opt_level=2)(simple)), params)
    plain, kernels = costs.count(grouped.graph).totals, costs.count(fused(grouped)).totals
    assert kernels["macs"] == plain["macs"]
    assert kernels["parameters"] == plain["parameters"]
    assert kernels["bytes_written"] < plain["bytes_written"]
    assert fused(walk(simple, params)).node_count == walk(simple, params).graph.node_count


def test_wrong_arguments_are_errors_before_a_build_begins(network):
    mod, params = network
    with pytest.raises(ArgumentError, match=r"write \['FuseOps'\]"):
        PerformanceInstrument("a100-80gb", "FuseOps")
    for make in (PredictPerformance, PerformanceInstrument):
        with pytest.raises(ArgumentError, match=r"write \['weight'\]"):
            make("a100-80gb", params="weight")
    with pytest.raises(ArgumentError, match="IRModule, got Function"):
        tvm_perfpass.build(mod["main"], "llvm", params, device="a100-80gb")
