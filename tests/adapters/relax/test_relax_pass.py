"""PredictPerformance, build and the instrument for Relax: predictions where users look, and nothing else changed."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
import tvm
from relax_modules import module, tensor
from tvm import relax, tirx

import perfpass
from perfpass import features
from perfpass.errors import ArgumentError, DeviceError, FileError, FormatError, GraphError, ShapeError
from perfpass.graph import costs
from tvm_perfpass.fusion import fused
from tvm_perfpass.relax import PerformanceInstrument, PredictPerformance, build, load, read_prediction
from tvm_perfpass.relax.library import sidecar
from tvm_perfpass.relax.walk import walk

DEVICE = "a100-80gb"
METRICS = ("latency_ms", "peak_memory_bytes", "energy_j", "power_w", "throughput_per_s")
LOWERING = (
    relax.transform.LegalizeOps(),
    relax.transform.AnnotateTIROpPattern(),
    relax.transform.FoldConstant(),
    relax.transform.FuseOps(),
    relax.transform.FuseTIR(),
)


def network(rows: int | tirx.Var = 2) -> tvm.IRModule:
    """A residual block and a classifier; the batch may be symbolic."""
    values = np.random.default_rng(0)

    def weight(*shape: int) -> relax.Expr:
        return relax.const(values.standard_normal(shape).astype("float32"))

    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = b.emit(relax.op.nn.conv2d(x, weight(8, 3, 3, 3), padding=1))
        statistics = [weight(8), weight(8), weight(8), relax.const(np.ones(8, "float32"))]
        y = b.emit(relax.op.nn.relu(b.emit(relax.op.nn.batch_norm(y, *statistics, axis=1, training=False))[0]))
        z = b.emit(relax.op.nn.conv2d(y, weight(8, 8, 3, 3), padding=1))
        y = b.emit(relax.op.nn.relu(b.emit(relax.op.add(y, z))))
        y = b.emit(relax.op.mean(y, axis=[2, 3]))
        y = b.emit(relax.op.matmul(y, b.emit(relax.op.permute_dims(weight(10, 8)))))
        return relax.op.add(y, weight(10))

    return module([relax.Var("x", tensor((rows, 3, 16, 16)))], body)


@pytest.fixture(scope="module")
def annotated():
    return PredictPerformance(device=DEVICE)(network())


@pytest.fixture(scope="module")
def built():
    return build(network(), "llvm", device=DEVICE)


@pytest.fixture(scope="module")
def exported(built, tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "model.so"
    built.export_library(path)
    return path


def outputs(executable, image):
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(image)).numpy()


def test_the_module_carries_every_metric_with_its_interval(annotated):
    for metric in METRICS:
        value = annotated.attrs[f"perfpass.{metric}"]
        assert 0 < float(value["low"]) <= float(value["median"]) <= float(value["high"])
        assert 0 < float(value["coverage"]) < 1
    assert int(annotated.attrs["perfpass.mig"]["instances_per_gpu"]) >= 1
    assert str(annotated.attrs["perfpass.mig"]["reason"])
    assert str(annotated.attrs["perfpass.support"]["level"]) in ("in range", "near", "outside")
    workload = json.loads(str(annotated.attrs["perfpass.workload"]))
    assert (workload["batch"], workload["runtime"]) == (2, "relax")


def test_the_module_carries_its_graph_as_tensors(annotated):
    graph = load(network())
    table = features.extract(graph, "operator")
    np.testing.assert_array_equal(annotated.attrs["perfpass.node_features"].numpy(), table.nodes)
    np.testing.assert_array_equal(annotated.attrs["perfpass.edge_index"].numpy(), graph.edge_index)


def test_the_prediction_is_that_of_perfpass_predict(annotated):
    mod = network()
    expected = perfpass.predict(load(mod), DEVICE, runtime="relax", limits=perfpass.Limits()).to_dict()
    assert read_prediction(annotated) == expected
    decision = perfpass.Decision.from_dict(expected["decision"])
    assert perfpass.Decision.from_dict(json.loads(str(annotated.attrs["perfpass.decision"]))) == decision
    assert decision.slices and PredictPerformance(device=DEVICE, limits=perfpass.Limits(latency_ms=1e-9))
    assert perfpass.predict(mod, DEVICE, runtime="relax").to_dict()["latency_ms"] == expected["latency_ms"]


def test_symbolic_sizes_are_bound_by_the_pass():
    mod = network(tirx.Var("n", "int64"))
    with pytest.raises(ShapeError, match=r"bindings=\{'n': 8\}"):
        PredictPerformance(device=DEVICE)(mod)
    out = PredictPerformance(device=DEVICE, bindings={"n": 2})(mod)
    assert (
        read_prediction(out)["latency_ms"]
        == read_prediction(PredictPerformance(device=DEVICE)(network()))["latency_ms"]
    )
    assert out["main"].same_as(mod["main"])


def test_functions_and_the_input_module_stay_as_they_are():
    mod = network()
    before = tvm.ir.save_json(mod)
    out = PredictPerformance(device=DEVICE)(mod)
    assert tvm.ir.save_json(mod) == before
    assert out["main"].same_as(mod["main"])


def test_attributes_survive_json(annotated):
    back = tvm.ir.load_json(tvm.ir.save_json(annotated))
    assert set(back.attrs.keys()) == set(annotated.attrs.keys())
    assert read_prediction(back) == read_prediction(annotated)
    np.testing.assert_array_equal(
        back.attrs["perfpass.node_features"].numpy(), annotated.attrs["perfpass.node_features"].numpy()
    )


def test_attributes_survive_a_sequence_of_passes():
    out = tvm.transform.Sequential([relax.transform.Normalize(), PredictPerformance(device=DEVICE), *LOWERING])(
        network()
    )
    assert read_prediction(out)["latency_ms"]["median"] > 0
    assert any(isinstance(function, tirx.PrimFunc) for _, function in out.functions.items())


def test_errors_keep_their_class_through_tvm():
    with pytest.raises(DeviceError):
        PredictPerformance(device="no such device")
    with pytest.raises(ArgumentError):
        PredictPerformance(device=DEVICE, schema="no such schema")
    with pytest.raises(ArgumentError, match="IRModule, got Function"):
        build(network()["main"], device=DEVICE)


def test_the_built_executable_computes_the_same(built, annotated):
    image = np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype("float32")
    expected = outputs(relax.build(network(), "llvm"), image)
    np.testing.assert_array_equal(outputs(built, image), expected)
    np.testing.assert_array_equal(outputs(relax.build(annotated, "llvm"), image), expected)


def test_the_prediction_survives_export_and_load(exported, built, annotated):
    expected = read_prediction(annotated)
    assert read_prediction(built) == read_prediction(exported) == read_prediction(str(exported)) == expected
    loaded = tvm.runtime.load_module(str(exported))
    assert read_prediction(loaded) == expected
    image = np.random.default_rng(2).standard_normal((2, 3, 16, 16)).astype("float32")
    np.testing.assert_array_equal(outputs(loaded, image), outputs(built, image))


def test_a_sidecar_of_another_library_is_refused(tmp_path, exported):
    path = Path(shutil.copy(exported, tmp_path))
    with pytest.raises(FileError, match="load_module"):
        read_prediction(path)
    text = sidecar(exported).read_text()
    for damaged in (text[:-20], "[]", '{"schema_version": 1}'):
        sidecar(path).write_text(damaged)
        with pytest.raises(FormatError, match="export the library again"):
            read_prediction(path)
    sidecar(path).write_text(text)
    assert read_prediction(path) == read_prediction(exported)
    path.write_bytes(path.read_bytes() + b"0")
    with pytest.raises(FormatError, match="was written for a library"):
        read_prediction(path)


def test_a_sidecar_that_cannot_be_written_is_said(tmp_path, built, monkeypatch):
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(FileError, match="No space left on device"):
        built.export_library(tmp_path / "model.so")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["model.so"]


def test_what_carries_no_prediction_says_so():
    with pytest.raises(GraphError, match="PredictPerformance"):
        read_prediction(network())
    with pytest.raises(ArgumentError, match=r"tvm_perfpass\.relax\.build"):
        read_prediction(relax.build(module([relax.Var("x", tensor((2,)))], lambda b, x: relax.op.exp(x)), "llvm"))
    with pytest.raises(ArgumentError, match="got int"):
        read_prediction(3)


def test_the_instrument_shows_how_the_prediction_moves():
    instrument = PerformanceInstrument(DEVICE, at=["input", "FuseOps", "FuseTIR"])
    with tvm.transform.PassContext(opt_level=3, instruments=[instrument]):
        relax.get_pipeline("zero")(network())
    assert not instrument.errors
    names = [point.name for point in instrument.points]
    assert names[0] == "input"
    assert {"FuseOps", "FuseTIR"} <= set(names)
    first, last = instrument.points[0], instrument.points[-1]
    assert last.kernels < first.kernels
    assert last.bytes_moved < first.bytes_moved
    assert last.macs == first.macs
    assert "%" in instrument.report()


def test_an_instrument_that_nobody_holds_is_gone_with_its_predictions():
    instrument = PerformanceInstrument(DEVICE, at=["input"])
    with tvm.transform.PassContext(opt_level=3, instruments=[instrument]):
        relax.get_pipeline("zero")(network())
    kept = weakref.ref(instrument.points[0].prediction)
    del instrument
    gc.collect()
    assert kept() is None


def test_a_failing_instrument_never_breaks_a_build(monkeypatch):
    def broken(*_args, **_options):
        raise RuntimeError("provoked")

    monkeypatch.setattr("tvm_perfpass.points.predict_loaded", broken)
    instrument = PerformanceInstrument(DEVICE)
    unbound = PerformanceInstrument(DEVICE)
    with tvm.transform.PassContext(opt_level=3, instruments=[instrument]):
        small = module([relax.Var("x", tensor((2, 4)))], lambda b, x: relax.op.exp(x))
        executable = relax.build(small, "llvm")
    assert outputs(executable, np.zeros((2, 4), "float32")).shape == (2, 4)
    assert instrument.points == []
    assert "provoked" in instrument.report()
    with tvm.transform.PassContext(opt_level=3, instruments=[unbound]):
        relax.transform.LegalizeOps()(network(tirx.Var("n", "int64")))
    assert "ShapeError" in unbound.report()


def test_fused_functions_are_kernels_with_the_same_work():
    simple = network()
    plain = walk(simple)
    lowered = simple
    for step in LOWERING:
        lowered = step(lowered)
        walked = walk(lowered)
        assert costs.count(walked.graph).totals["macs"] == costs.count(plain.graph).totals["macs"], step
        assert walked.graph.unknown_operators == {}
        if "FuseOps" in str(step.info.name):
            assert walked.kernel_group.max() >= 0
            assert fused(walked).node_count < walked.graph.node_count
    assert walked.graph.node_count < plain.graph.node_count
