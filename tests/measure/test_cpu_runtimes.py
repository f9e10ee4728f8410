"""OpenVINO and LiteRT on the CPU: what they measure, what they refuse, and what is predicted of them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from perfpass.devices import device
from perfpass.errors import ArgumentError, FormatError, UnsupportedError
from perfpass.importers import load
from perfpass.measure.collector import Collector
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.predictors import predict_graph
from perfpass.predictors.assemble import peak_memory

FILES = Path(__file__).parents[1] / "importers" / "files"
QUICK = Protocol(warmup_max_s=0.05, measure_min_s=0.01, measure_max_s=0.05, iterations_min=3)


@pytest.mark.parametrize(
    ("model", "runtime", "more", "said"),
    [
        ("file:a.xml", "torch", {}, "runs in openvino or litert"),
        ("onnx:a.onnx", "litert", {}, "runs in onnxruntime or openvino"),
        ("timm:resnet18", "litert", {}, "convert the model with litert-torch"),
        ("timm:resnet18", "openvino", {"device": "cuda"}, "on the CPU only"),
        ("timm:resnet18", "openvino", {"precision": "fp16"}, "only fp32"),
        ("timm:resnet18", "openvino", {"mode": "training"}, "runs no training step"),
    ],
)
def test_what_a_runtime_does_not_run_is_refused(model: str, runtime: str, more: dict[str, str], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Configuration(model=model, runtime=runtime, **more)


def test_openvino_measures_its_file_an_onnx_file_and_a_model_by_name(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(n, 1, ["n", 3, 8, 8]) for n in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    models = [f"file:{FILES / 'ov_images_open.xml'}", f"onnx:{path}"]
    with Collector("cpu") as collector:
        for model in models:
            one = Configuration(model=model, runtime="openvino", threads=1, batch=2, image_size=32)
            record = collector.measure(one, QUICK)
            assert record["latency_ms"]["median"] > 0 and record["memory"]["host_peak_rss_bytes"] > 0


def test_a_broken_file_is_one_error_of_either_runtime(tmp_path: Path) -> None:
    from perfpass.measure.runners import open_session

    for package, runtime in (("openvino", "openvino"), ("ai_edge_litert", "litert")):
        pytest.importorskip(package)
        path = tmp_path / "broken.xml"
        path.write_text("<net")
        with pytest.raises(FormatError, match="cannot load it"):
            open_session(Configuration(model=f"file:{path}", runtime=runtime), None)


def test_a_batch_that_a_file_does_not_have_is_an_error_of_the_argument() -> None:
    from perfpass.measure.runners import open_session

    pytest.importorskip("ai_edge_litert")
    asked = Configuration(model=f"file:{FILES / 'block_fixed.tflite'}", runtime="litert", batch=7)
    with pytest.raises(ArgumentError, match="has a fixed batch of 1, not 7"):
        open_session(asked, None)


@pytest.mark.parametrize("runtime", ["openvino", "litert"])
def test_an_unmeasured_runtime_has_the_time_of_the_one_that_stands_in_and_a_wider_interval(runtime: str) -> None:
    graph = load(FILES / "ov_block.xml")
    known = predict_graph(graph, "host-cpu", runtime="onnxruntime", calibration=False)
    found = predict_graph(graph, "host-cpu", runtime=runtime, calibration=False)
    assert found.latency_ms.median == known.latency_ms.median
    # Half-widths in logarithms: a factor of 2 between the runtimes beside what is not known of either, in squares.
    for bound in ("low", "high"):
        half, own = (math.log(getattr(x.latency_ms, bound) / x.latency_ms.median) for x in (found, known))
        assert abs(half) == pytest.approx(math.hypot(own, math.log(2)))
    assert any(f"no run of {runtime} to learn from" in reason for reason in found.support.reasons)
    assert found.support.level != "in range" and found.workload["runtime"] == runtime
    assert math.isfinite(peak_memory(graph, "host-cpu", runtime=runtime).high)


def test_runtimes_for_cpus_are_refused_elsewhere() -> None:
    graph = load(FILES / "ov_block.xml")
    with pytest.raises(UnsupportedError, match="openvino is predicted on CPUs in fp32"):
        predict_graph(graph, device("A100"), runtime="openvino")
    with pytest.raises(UnsupportedError, match="litert is predicted on CPUs in fp32"):
        predict_graph(graph, "host-cpu", runtime="litert", precision="fp64")
