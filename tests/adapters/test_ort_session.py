"""`ort_extension.InferenceSession` is onnxruntime's session, with the prediction of the graph as it is run."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ort_sessions import CPU, images, session

import ort_extension
from ort_extension import observer
from ort_extension.placement import place, unlike
from ort_extension.report import FILE_READER, NATIVE_READER
from ort_extension.runs import WARM_UP_RUNS, WINDOW_RUNS
from perfpass.annotation import metadata as annotation
from perfpass.decision import Limits
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError, FileError, UnsupportedError
from perfpass.importers import load
from perfpass.predictors import predict_graph
from perfpass.predictors.assemble import peak_memory

ROOT = Path(__file__).resolve().parents[2]
FAKE_NVML = ROOT / "tests" / "fakes" / "nvml"
needs_native = pytest.mark.skipif(observer.native_library() is None, reason="the native provider was not built")


def test_outputs_and_answers_are_those_of_onnxruntimes_session(models, reader):
    for name, feed in (("open.onnx", images()), ("fixed.onnx", images())):
        plain = ort.InferenceSession(str(models / name), providers=CPU)
        ours = session(models / name, reader=reader)
        assert isinstance(ours, ort.InferenceSession)
        np.testing.assert_array_equal(ours.run(None, feed)[0], plain.run(None, feed)[0])
        assert list(ours.get_providers()) == list(plain.get_providers())
        assert ours.get_provider_options() == plain.get_provider_options()
        assert [(v.name, v.shape, v.type) for v in ours.get_inputs()] == [
            (v.name, v.shape, v.type) for v in plain.get_inputs()
        ]


def test_every_way_to_run_works_and_is_timed(models, reader):
    ours, feed = session(models / "fixed.onnx", reader=reader), images()
    expected = ours.run(None, feed)[0]
    binding = ours.io_binding()
    binding.bind_cpu_input("x", feed["x"])
    binding.bind_output("y" if ours.get_outputs()[0].name == "y" else ours.get_outputs()[0].name)
    ours.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], expected)
    value = ort.OrtValue.ortvalue_from_numpy(feed["x"])
    np.testing.assert_array_equal(ours.run_with_ort_values(None, {"x": value})[0].numpy(), expected)
    done: list = []
    ours.run_async(None, feed, lambda results, data, error: data.append((results, error)), done)
    while not done:
        pass
    np.testing.assert_array_equal(done[0][0][0], expected)
    (found,) = ours.runs
    assert found.count == (4 if ours.perfpass.reader == NATIVE_READER else 3)
    assert found.shapes == (("x", (2, 3, 96, 96)),)


def test_onnxruntimes_arguments_and_errors_stay_its_own(models, tmp_path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    ours = ort_extension.InferenceSession(models / "fixed.onnx", options, CPU, [{}], enable_fallback=0)
    assert ours.get_session_options().intra_op_num_threads == 1
    (tmp_path / "noise.onnx").write_bytes(b"\x00\x01\x02" * 50)
    for wrong in (str(tmp_path / "absent.onnx"), str(tmp_path / "noise.onnx"), b"noise", 3):
        kinds = []
        for kind in (ort.InferenceSession, ort_extension.InferenceSession):
            with pytest.raises(Exception) as failure:
                kind(wrong, providers=CPU)
            kinds.append((failure.type, str(failure.value)))
        assert kinds[0] == kinds[1]


class Reopened(ort_extension.InferenceSession):
    """How sessions are pickled: by their path."""

    def __init__(self, path: str) -> None:
        super().__init__(path, providers=CPU)
        self.path = path

    def __reduce__(self):
        return Reopened, (self.path,)


def test_a_subclass_may_be_pickled_by_its_path(models):
    again = pickle.loads(pickle.dumps(Reopened(str(models / "fixed.onnx"))))
    assert again.prediction.latency_ms.median > 0


def test_a_session_is_freed_with_its_last_reference(models, reader):
    ours = session(models / "fixed.onnx", reader=reader)
    ours.run(None, images())
    reference = weakref.ref(ours)
    assert ours.drift is not None
    del ours
    gc.collect()
    assert reference() is None


def test_options_may_be_used_again_and_providers_changed(models, reader):
    options, feed = ort.SessionOptions(), images()
    first = ort_extension.InferenceSession(str(models / "fixed.onnx"), options, CPU, reader=reader)
    second = ort_extension.InferenceSession(str(models / "encoder.onnx"), options, CPU, reader=reader)
    plain = ort.InferenceSession(str(models / "fixed.onnx"), options)
    plain.run(None, feed)
    expected = first.run(None, feed)[0]
    assert first.prediction.workload["batch"] == 2
    second.run(None, {"x": np.zeros((1, 4, 64), np.float32)})
    assert first.runs[0].count == second.runs[0].count == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # onnxruntime's, of options that name providers
        first.set_providers(CPU)
    np.testing.assert_array_equal(first.run(None, feed)[0], expected)
    assert first.runs[0].count == 1 and first.prediction is not None


def test_importing_the_package_imports_nothing_heavy():
    program = "import sys, ort_extension; print(*({'onnxruntime', 'numpy', 'onnx'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True).stdout.split()
        == []
    )
    assert sorted(ort_extension.__all__) == sorted(dir(ort_extension._HOME) and ort_extension._HOME)
    for name in ort_extension.__all__:
        assert getattr(ort_extension, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ort_extension.nonsense


def test_the_prediction_is_that_of_the_file(models):
    ours = session(models / "fixed.onnx", reader="file")
    plain = predict_graph(load(models / "fixed.onnx"), "cpu", runtime="onnxruntime", limits=Limits())
    assert ours.prediction.to_dict() == plain.to_dict() and ours.problem is None
    assert ours.perfpass.reader == FILE_READER and "reader='file'" in ours.perfpass.why_not_native
    assert ours.perfpass.device.id == "host-cpu" and "detected" in ours.perfpass.detected
    assert ours.perfpass.verdict.fits in ("yes", "perhaps")
    for part in ("device", "verdict", "file", "reader"):
        assert part in str(ours.perfpass)


def test_without_the_native_library_the_file_reader_answers_and_says_why(models, monkeypatch):
    monkeypatch.setattr(observer, "_LIBRARY", Path("/nonexistent/libperfpass_ort.so"))
    ours = session(models / "fixed.onnx")
    assert ours.perfpass.reader == FILE_READER and "not built" in ours.perfpass.why_not_native
    monkeypatch.undo()
    monkeypatch.setenv("PERFPASS_ORT_READER", "file")
    assert session(models / "fixed.onnx").perfpass.reader == FILE_READER


def test_options_that_choose_providers_are_left_as_they_are(models):
    options = ort.SessionOptions()
    options.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    ours = ort_extension.InferenceSession(str(models / "fixed.onnx"), options)
    assert ours.perfpass.reader == FILE_READER and "displace" in ours.perfpass.why_not_native


@needs_native
def test_the_native_provider_gives_the_graph_as_it_was_optimised(models):
    ours = session(models / "fixed.onnx")
    report = ours.perfpass
    assert report.reader == NATIVE_READER and report.why_not_native is None
    before, after = report.before, report.optimised
    assert ours.prediction is after
    assert after.provenance["graph"]["nodes"] <= before.provenance["graph"]["nodes"]
    assert after.provenance["graph"]["macs"] == before.provenance["graph"]["macs"]
    assert after.latency_ms.median == pytest.approx(before.latency_ms.median, rel=0.1)


def test_the_prediction_is_in_the_sessions_metadata_under_the_keys_of_annotated_files(models, reader, tmp_path):
    ours = session(models / "fixed.onnx", device="a100-80gb", reader=reader)
    stored = ours.get_modelmeta().custom_metadata_map
    assert set(stored) == set(annotation.KEYS)
    assert annotation.from_metadata(stored).predictions == {"a100-sxm4-80gb": ours.prediction.to_dict()}
    assert "metadata" not in str(ours.perfpass)
    model = onnx.load(models / "fixed.onnx")
    for key, value in {**stored, "author": "somebody"}.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, tmp_path / "annotated.onnx")
    again = session(tmp_path / "annotated.onnx", device="a100-80gb", reader=reader)
    assert "annotated for a100-sxm4-80gb; now 1 times its latency" in str(again.perfpass)
    elsewhere = session(tmp_path / "annotated.onnx", device="h100", reader=reader)
    assert "annotated for a100-sxm4-80gb, not for" in str(elsewhere.perfpass)
    stored = elsewhere.get_modelmeta().custom_metadata_map
    assert stored["author"] == "somebody" and len(annotation.from_metadata(stored).predictions) == 2


def test_precision_and_batch_are_those_of_the_file(models, tmp_path):
    model = onnx.load(models / "fixed.onnx")
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnx.save(convert_float_to_float16(model), tmp_path / "half.onnx")
    ours = session(tmp_path / "half.onnx", reader="file")
    assert (ours.prediction.workload["precision"], ours.prediction.workload["batch"]) == ("fp16", 2)
    assert session(models / "open.onnx", batch=3).prediction.workload["batch"] == 3
    assert session(models / "fixed.onnx", precision="bf16").prediction.workload["precision"] == "bf16"
    assert session(models / "fixed.onnx", device="a100-80gb:2g.20gb").prediction.workload["device"].endswith(":2g.20gb")


def test_serialized_models_are_predicted_too(models):
    ours = ort_extension.InferenceSession((models / "fixed.onnx").read_bytes(), providers=CPU)
    assert ours.prediction.workload["batch"] == 2
    with pytest.warns(ort_extension.PredictionWarning, match="batch"):
        opened = ort_extension.InferenceSession((models / "open.onnx").read_bytes(), providers=CPU)
    assert opened.prediction is None


@settings(max_examples=20)
@given(
    st.sampled_from(["resnet50", "vit_base_patch16_224", "llama_1b_prefill"]),
    st.sampled_from(["cpu", "a100-80gb", "a100-80gb:2g.20gb", "mi300x"]),
    st.sampled_from(["torch", "onnxruntime", "tvm", "tensorrt"]),
    st.sampled_from(["fp32", "fp16"]),
)
def test_memory_alone_is_the_memory_of_the_whole_prediction(name, device, runtime, precision):
    graph = load(ROOT / "examples" / f"{name}.onnx")
    if runtime == "tensorrt" and not device.startswith("a100"):
        for asked in (predict_graph, peak_memory):
            with pytest.raises(UnsupportedError, match="NVIDIA's GPUs alone"):
                asked(graph, device, runtime=runtime, precision=precision)
        return
    whole = predict_graph(graph, device, runtime=runtime, precision=precision)
    assert peak_memory(graph, device, runtime=runtime, precision=precision) == whole.peak_memory_bytes


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"policy": "maybe"}, ArgumentError, "allowed are ignore, warn, raise, require"),
        ({"device": "gtx-9999"}, DeviceError, "unknown device"),
        ({"drift": 0.5}, ArgumentError, "a factor above 1"),
        ({"reader": "onnx"}, ArgumentError, "allowed are auto, file"),
        ({"memory_budget_bytes": 0}, ArgumentError, "above 0"),
        ({"latency_target_ms": float("nan")}, ArgumentError, "above 0"),
        ({"batch": 0}, ArgumentError, "batch must be"),
        ({"dims": {"nonsense": 3}}, ArgumentError, "nonsense"),
        ({"precision": "fp3", "device": "cpu"}, ArgumentError, "unknown precision"),
        ({"precision": "fp3"}, ArgumentError, "unknown precision"),
        ({"records": "/nonexistent/records.jsonl"}, FileError, "folder"),
        ({"records": "/dev/full"}, FileError, "no regular file"),
    ],
)
def test_an_impossible_argument_is_one_typed_error(models, wrong, kind, says):
    with pytest.raises(kind, match=says):
        session(models / "fixed.onnx", **wrong)


def test_a_failure_of_perfpass_never_costs_the_session(models, monkeypatch, reader):
    from ort_extension import forecast

    def broken(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr(forecast, "predict_graph", broken)
    monkeypatch.setattr(forecast, "peak_memory", broken)
    with pytest.warns(ort_extension.PredictionWarning, match="internal error of perfpass, RuntimeError: a bug"):
        ours = session(models / "fixed.onnx", reader=reader)
    assert ours.prediction is None and "a bug" in ours.problem
    for _ in range(WARM_UP_RUNS + WINDOW_RUNS):
        ours.run(None, images())
    assert ours.drift.median_ms > 0 and "a bug" in ours.drift.not_compared
    assert ours.get_modelmeta().custom_metadata_map == {}


def test_a_model_in_ort_format_is_created_and_not_predicted(models, tmp_path):
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(str(models / "fixed.onnx"), options, providers=CPU)
    for model in (str(tmp_path / "model.ort"), (tmp_path / "model.ort").read_bytes()):
        with pytest.warns(ort_extension.PredictionWarning, match="ORT format"):
            ours = ort_extension.InferenceSession(model, providers=CPU, reader="file")
        assert "ORT format" in ours.problem and ours.run(None, images())
        with pytest.raises(ort_extension.NotPredictedError, match="ORT format"):
            ort_extension.InferenceSession(model, providers=CPU, policy="require")


@needs_native
def test_what_only_the_session_shows_is_judged_when_it_exists(models, tmp_path):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    ort.InferenceSession(str(models / "fixed.onnx"), options, providers=CPU)
    ours = ort_extension.InferenceSession(str(tmp_path / "model.ort"), providers=CPU, policy="raise")
    assert ours.perfpass.before is None and ours.perfpass.verdict.fits == "yes"
    assert ours.prediction is ours.perfpass.optimised and ours.problem is None
    with pytest.raises(ort_extension.DoesNotFitError):
        ort_extension.InferenceSession(
            str(tmp_path / "model.ort"), providers=CPU, policy="raise", memory_budget_bytes=1 << 20
        )


def test_a_session_has_of_a_board_what_check_bits_leave_it():
    board = find_device("t4")
    assert place(board, [("CUDAExecutionProvider", {})]).memory_bytes == board.usable_bytes < board.memory_bytes


def test_nvidia_providers_are_placed_on_the_gpu_that_nvml_tells(monkeypatch):
    monkeypatch.syspath_prepend(str(FAKE_NVML))
    sys.modules.pop("pynvml", None)
    try:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        whole = place(None, [("CUDAExecutionProvider", {})])
        assert whole.device.name == "NVIDIA H100 80GB HBM3" and "detected by NVML (GPU 0" in whole.how
        assert place(None, [("TensorrtExecutionProvider", {"device_id": "0"})]).runtime == "tensorrt"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234")
        part = place(None, [("CUDAExecutionProvider", {})])
        assert part.device.mig_profile == "1g.10gb" and "MIG slice 1g.10gb" in part.how
        assert unlike(part, ["CUDAExecutionProvider"], 0, 0, False) is None
        assert "predicted is" in unlike(whole, ["CUDAExecutionProvider"], 0, 0, False)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-partitioned")
        assert place(None, [("CUDAExecutionProvider", {})]).device == part.device
        with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES has 1"):
            place(None, [("CUDAExecutionProvider", {"device_id": 3})])
        assert place(None, [("CPUExecutionProvider", {})]).device.id == "host-cpu"
    finally:
        sys.modules.pop("pynvml", None)
