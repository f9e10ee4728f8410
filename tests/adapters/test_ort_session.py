"""`ort_extension.InferenceSession`: promises before, at and after a session's creation."""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
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

import ort_extension
from ort_extension import observer
from ort_extension.placement import Placement, place, unlike
from ort_extension.report import FILE_READER, NATIVE_READER
from ort_extension.runs import WARM_UP_RUNS, WINDOW_RUNS, DriftWarning, Meter
from perfpass.annotation import metadata as annotation
from perfpass.cli import main
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError, FileError
from perfpass.importers import load
from perfpass.importers import onnx as onnx_importer
from perfpass.measure.journal import read as read_journal
from perfpass.prediction import Interval
from perfpass.predictors import predict_graph
from perfpass.predictors.assemble import peak_memory

CPU = ["CPUExecutionProvider"]
GIB = 2**30
ROOT = Path(__file__).resolve().parents[2]
FAKE_NVML = ROOT / "tests" / "fakes" / "nvml"
needs_native = pytest.mark.skipif(observer.native_library() is None, reason="the native provider was not built")


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A folder of exports: an image network with an open batch and with a fixed one, an encoder of open length."""
    torch = pytest.importorskip("torch")
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    timm = pytest.importorskip("timm")
    folder = tmp_path_factory.mktemp("exports")
    torch.manual_seed(0)

    def export(module, argument, name, dynamic=None):
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.eval(),
                (argument,),
                str(folder / name),
                input_names=["x"],
                output_names=["y"],
                opset_version=17,
                dynamo=False,
                dynamic_axes=dynamic,
            )

    images = timm.create_model("resnet18", exportable=True)
    export(images, torch.zeros(1, 3, 96, 96), "open.onnx", {"x": {0: "batch"}, "y": {0: "batch"}})
    export(images, torch.zeros(2, 3, 96, 96), "fixed.onnx")

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.norm = torch.nn.Linear(64, 192), torch.nn.LayerNorm(64)

        def forward(self, x):
            q, k, v = self.project(self.norm(x)).chunk(3, dim=-1)
            return x + torch.softmax(q @ k.transpose(1, 2) / 8, dim=-1) @ v

    tokens = {"x": {0: "batch", 1: "length"}, "y": {0: "batch", 1: "length"}}
    export(torch.nn.Sequential(*(Attention() for _ in range(4))), torch.zeros(2, 8, 64), "encoder.onnx", tokens)
    return folder


@pytest.fixture(params=["auto", "file"])
def reader(request) -> str:
    """Both ways to a graph; "auto" is the native provider where it was built, else the file reader again."""
    return request.param


@pytest.fixture(autouse=True)
def no_calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def session(path, **keywords):
    return ort_extension.InferenceSession(str(path), providers=CPU, **keywords)


def images(batch: int = 2) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(batch).standard_normal((batch, 3, 96, 96), np.float32)}


def large_model(folder: Path, gigabytes: int = 8, layers: int = 2, batch: int | str = 1) -> Path:
    """Products whose weights, ``gigabytes`` in all, lie in weights.bin; the file is not made."""
    side = int((gigabytes * 2**30 / 4 / layers) ** 0.5)
    weights, nodes = [], []
    for i in range(layers):
        tensor = onnx.TensorProto(name=f"w{i}", data_type=onnx.TensorProto.FLOAT, dims=[side, side])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", i * side * side * 4), ("length", side * side * 4)):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
        nodes.append(onnx.helper.make_node("MatMul", [f"t{i}" if i else "x", f"w{i}"], [f"t{i + 1}"]))
    graph = onnx.helper.make_graph(
        nodes,
        "large",
        [onnx.helper.make_tensor_value_info("x", 1, [batch, side])],
        [onnx.helper.make_tensor_value_info(f"t{layers}", 1, [batch, side])],
        weights,
    )
    path = folder / "large.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    return path


# A drop-in


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


# Predictions


def test_the_prediction_is_that_of_the_file(models):
    ours = session(models / "fixed.onnx", reader="file")
    plain = predict_graph(load(models / "fixed.onnx"), "cpu", runtime="onnxruntime")
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


@settings(derandomize=True, max_examples=20, deadline=None)
@given(
    st.sampled_from(["resnet50", "vit_base_patch16_224", "llama_1b_prefill"]),
    st.sampled_from(["cpu", "a100-80gb", "a100-80gb:2g.20gb", "mi300x"]),
    st.sampled_from(["torch", "onnxruntime", "tvm", "tensorrt"]),
    st.sampled_from(["fp32", "fp16"]),
)
def test_memory_alone_is_the_memory_of_the_whole_prediction(name, device, runtime, precision):
    graph = load(ROOT / "examples" / f"{name}.onnx")
    whole = predict_graph(graph, device, runtime=runtime, precision=precision)
    assert peak_memory(graph, device, runtime=runtime, precision=precision) == whole.peak_memory_bytes


# Policies


@pytest.mark.parametrize("weights", ["absent", "sparse", "unreadable", "pipe"])
def test_a_model_over_the_budget_is_refused_without_its_weights_being_read(tmp_path, weights):
    path, data = large_model(tmp_path), tmp_path / "weights.bin"
    if weights == "sparse":
        with data.open("wb") as file:
            file.truncate(8 * GIB)
    elif weights == "unreadable":
        data.write_bytes(b"")
        data.chmod(0)
    elif weights == "pipe":  # opening it would wait for a writer for ever
        os.mkfifo(data)
    seen = data.stat().st_atime_ns if data.exists() else None
    before = bytes_read()
    with pytest.raises(ort_extension.DoesNotFitError) as refusal:
        session(path, device="a100-40gb", memory_budget_bytes=4 * GIB, policy="raise")
    assert bytes_read() - before < 2**20  # the model's file, the catalogue and what else is imported by then
    assert seen == (data.stat().st_atime_ns if data.exists() else None)
    verdict, message = refusal.value.verdict, str(refusal.value)
    assert verdict.fits == "no" and verdict.memory.median > 8 * GIB and verdict.budget_bytes == 4 * GIB
    assert "8.4" in message and "4 GiB stated as the budget" in message and "a budget of" in message
    assert "NVIDIA A100" in message


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


def test_a_refusal_says_what_would_do(tmp_path):
    path = large_model(tmp_path, gigabytes=8, batch="batch")
    with pytest.raises(ort_extension.DoesNotFitError, match=r"2g\.10gb, .*MIG profile 3g\.20gb .*; device"):
        session(path, device="a100-40gb:2g.10gb", batch=16 << 10, policy="raise")
    with pytest.raises(ort_extension.DoesNotFitError, match=r"what would do: batch \d+ \(9\.\d+ GiB\)"):
        session(path, device="a100-40gb", batch=64 << 10, memory_budget_bytes=10 * GIB, policy="raise")


def test_open_dimensions_do_not_hide_a_model_that_cannot_fit(tmp_path, models):
    path = large_model(tmp_path, batch="batch")
    with pytest.raises(ort_extension.DoesNotFitError, match="with every open dimension at 1"):
        session(path, device="l4", memory_budget_bytes=4 * GIB, policy="raise")
    with pytest.warns(ort_extension.PredictionWarning, match="leaves batch open"):
        ours = session(models / "open.onnx", policy="raise")
    assert ours.prediction is None and "batch" in ours.problem and ours.perfpass.verdict.fits == "unknown"
    with pytest.raises(ort_extension.NotPredictedError, match="leaves batch open"):
        session(models / "open.onnx", policy="require")


def test_each_policy_does_what_it_says(models):
    tight = {"memory_budget_bytes": 1 << 20, "device": "a100-80gb"}
    with pytest.warns(ort_extension.PredictionWarning, match="does not fit") as caught:
        ours = session(models / "fixed.onnx", **tight)
    assert caught[0].filename == __file__ and ours.run(None, images())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session(models / "fixed.onnx", policy="ignore", **tight).perfpass.verdict.fits == "no"
        session(models / "fixed.onnx", policy="raise", device="a100-80gb")
    seen: list = []
    session(models / "fixed.onnx", policy=seen.append, **tight)
    session(models / "fixed.onnx", policy=seen.append, device="a100-80gb")
    assert [verdict.fits for verdict in seen] == ["no"]

    def stop(verdict):
        raise KeyError(verdict.fits)

    with pytest.raises(KeyError, match="no"):
        session(models / "fixed.onnx", policy=stop, **tight)


def test_a_latency_target_is_kept_or_refused_with_devices_that_keep_it(models):
    with pytest.raises(
        ort_extension.MissesTargetError, match=r"misses the target of 20 ms: .* ms predicted .*: device "
    ):
        session(models / "open.onnx", batch=256, device="t4", latency_target_ms=20, policy="raise")
    assert session(models / "fixed.onnx", latency_target_ms=1e5, policy="raise").perfpass.verdict.meets_target == "yes"


def test_what_may_not_fit_is_a_warning_whatever_the_policy(models):
    peak = session(models / "fixed.onnx").prediction.peak_memory_bytes
    budget = int((peak.median + peak.high) / 2)
    for policy in ("warn", "raise"):
        with pytest.warns(ort_extension.PredictionWarning, match="may not fit"):
            session(models / "fixed.onnx", memory_budget_bytes=budget, policy=policy, reader="file")


def test_the_policy_ignore_predicts_nothing_before_somebody_asks(models, monkeypatch):
    reads: list = []
    monkeypatch.setattr(
        onnx_importer, "read", lambda *a, _read=onnx_importer.read, **k: reads.append(a) or _read(*a, **k)
    )
    ours = session(models / "fixed.onnx", policy="ignore", drift=False)
    ours.run(None, images())
    assert reads == []
    assert ours.prediction is not None and reads


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


# Where nothing can be predicted


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


# Measured beside predicted


def test_runs_are_compared_with_the_prediction_for_their_shapes(models, reader):
    ours = session(models / "encoder.onnx", reader=reader)
    for length, count in ((16, 50), (300, 40)):
        for _ in range(count):
            ours.run(None, {"x": np.zeros((1, length, 64), np.float32)})
    short, long = ours.runs
    assert ours.drift == short
    assert (short.shapes, long.shapes) == ((("x", (1, 16, 64)),), (("x", (1, 300, 64)),))
    assert (short.count, short.warm_up, long.count) == (50, WARM_UP_RUNS, 40)
    assert short.median_ms < long.median_ms and short.predicted_ms.median < long.predicted_ms.median
    assert short.ratio == pytest.approx(short.median_ms / short.predicted_ms.median)
    assert "times as predicted" in str(short)


def test_unlike_is_never_compared(models):
    ours = session(models / "fixed.onnx", device="a100-80gb")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    narrow = ort_extension.InferenceSession(str(models / "fixed.onnx"), options, CPU)
    for one in (ours, narrow):
        for _ in range(WARM_UP_RUNS + WINDOW_RUNS):
            one.run(None, images())
    assert ours.drift.inside is None and "predicted is NVIDIA A100" in ours.drift.not_compared
    if find_device("cpu").sm_count > 1:
        assert narrow.drift.predicted_ms is None and "cores" in narrow.drift.not_compared


def test_a_session_warns_once_when_its_runs_drift(models, reader):
    with pytest.warns(DriftWarning, match="times as predicted") as caught:
        ours = session(models / "fixed.onnx", reader=reader, drift=1 + 1e-9)
        for _ in range(WARM_UP_RUNS + WINDOW_RUNS):
            ours.run(None, images())
        assert ours.drift.ratio != 1
        for _ in range(WINDOW_RUNS):
            ours.run(None, images())
        assert ours.runs
    assert len(caught) == 1


def laps(meter: Meter, times_ms: list[float], start_ns: int = 0, feed=None) -> int:
    for time_ms in times_ms:
        meter.lap(start_ns, start_ns + int(time_ms * 1e6), feed)
        start_ns += int(time_ms * 1e6) + 1000
    return start_ns


def fixed_meter(predicted: Interval | str, drift: bool | float = True) -> Meter:
    return Meter(["x"], (("x", (1, 3)),), lambda shapes: predicted, drift)


def test_a_drift_warning_comes_once_per_crossing_and_not_for_outliers():
    meter = fixed_meter(Interval(10, 5, 20, "ms"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        end = laps(meter, [500] * WARM_UP_RUNS + ([10] * 20 + [400] * 10) * 5)
        (found,) = meter.runs()
        assert found.median_ms == 10 and found.inside
    for _ in range(2):
        with pytest.warns(DriftWarning, match="outside the interval") as caught:
            for _ in range(3):
                end = laps(meter, [30.0] * 200, end)
                meter.settle()
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            end = laps(meter, [10.0] * 200, end)
            assert meter.runs()[0].inside


def test_too_few_runs_say_nothing():
    meter = fixed_meter(Interval(10, 5, 20, "ms"))
    laps(meter, [90.0] * (WARM_UP_RUNS + WINDOW_RUNS - 1))
    (found,) = meter.runs()
    assert found.median_ms is None and found.inside is None and "too few" in str(found)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 300)), min_size=WARM_UP_RUNS + 1, max_size=60))
def test_runs_beside_others_of_the_session_are_left_out(times):
    spans = sorted({start: (start, start + length) for start, length in times}.values())
    meter = fixed_meter("nothing to compare with", drift=False)
    for start, end in reversed(spans):  # they end in any order
        meter.lap(start, end, None)
    found = meter.runs()
    beside = [any(a < d and c < b for j, (c, d) in enumerate(spans) if j != i) for i, (a, b) in enumerate(spans)]
    assert found[0].count == len(spans)
    assert found[0].overlapping == sum(beside[WARM_UP_RUNS:])


def test_more_shapes_than_are_kept_apart_are_pooled_and_not_compared():
    from ort_extension.runs import MOST_SHAPES

    meter = Meter(["x"], None, lambda shapes: Interval(1, 0.5, 2, "ms"), True)
    for size in range(MOST_SHAPES + 10):
        laps(meter, [1.0] * (WARM_UP_RUNS + WINDOW_RUNS), 10**9 * size, {"x": np.empty((size, 1))})
    found = meter.runs()
    assert len(found) == MOST_SHAPES + 1 and found[0].count == 10 * (WARM_UP_RUNS + WINDOW_RUNS)
    assert found[0].predicted_ms is None and found[1].inside


# Records


def test_runs_become_records_that_calibrate_this_machine(models, tmp_path, capsys):
    path = tmp_path / "records.jsonl"
    figures = {}
    for name, feeds in (
        ("open.onnx", [images(batch) for batch in (1, 2, 3)]),
        ("encoder.onnx", [{"x": np.zeros((1, length, 64), np.float32)} for length in (64, 256)]),
    ):
        ours = session(models / name, records=path, drift=False)
        for feed in feeds:
            for _ in range(WARM_UP_RUNS + WINDOW_RUNS):
                ours.run(None, feed)
        figures |= {found.shapes: found for found in ours.runs}
        assert ours.write_records() == len(feeds)
        assert ours.write_records() == 0
    contents = read_journal(path)
    assert len(contents.records) == 5 and len(contents.facts) == 1
    (facts,) = contents.facts.values()
    assert facts["device"]["catalogue_id"] == "host-cpu" and facts["software"]["onnxruntime"] == ort.__version__
    first = contents.records[0]
    assert first["configuration"]["runtime"] == "onnxruntime" and first["campaign"] == "session"
    assert first["configuration"]["input_shapes"] == {"x": [1, 3, 96, 96]} and first["iterations"] == WINDOW_RUNS
    assert main(["calibrate", "--device", "cpu", "--records", str(path)]) == 0
    assert "learned from 5 measurements" in capsys.readouterr().out
    ours = session(models / "open.onnx", batch=2)
    found = figures[("x", (2, 3, 96, 96)),]
    before = abs(np.log(found.ratio))
    after = abs(np.log(found.median_ms / ours.prediction.latency_ms.median))
    assert "calibration" in ours.prediction.provenance
    assert after < max(before, 0.1)


def test_records_are_written_when_a_session_ends_and_when_the_interpreter_does(models, tmp_path):
    path = tmp_path / "records.jsonl"
    ours = session(models / "fixed.onnx", records=path)
    for _ in range(WARM_UP_RUNS + 11):
        ours.run(None, images())
    del ours
    gc.collect()
    assert len(read_journal(path).records) == 1
    program = (
        "import sys, numpy, ort_extension\n"
        "s = ort_extension.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'], records=sys.argv[2])\n"
        "for _ in range(20): s.run(None, {'x': numpy.zeros((2, 3, 96, 96), numpy.float32)})\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program, models / "fixed.onnx", path], check=True)
    contents = read_journal(path)
    assert len(contents.records) == 2 and len(contents.facts) == 1
    assert len({record["key"] for record in contents.records}) == 1


def test_a_full_disk_is_one_clear_error_and_leaves_inference_alone(models, tmp_path):
    path = tmp_path / "records.jsonl"
    ours = session(models / "fixed.onnx", records=path)
    for _ in range(WARM_UP_RUNS + 11):
        ours.run(None, images())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # Python ignores SIGXFSZ: the write fails
    try:
        with pytest.raises(FileError, match=r"records.jsonl: File too large; the records written so far are safe"):
            ours.write_records()
        assert ours.run(None, images())
        with pytest.warns(ort_extension.RecordsWarning, match="not recorded: .*File too large"):
            del ours
            gc.collect()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b""


def test_a_file_that_is_no_journal_is_left_as_it_is(models, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("important\n")
    ours = session(models / "fixed.onnx", records=path)
    for _ in range(WARM_UP_RUNS + 11):
        ours.run(None, images())
    with pytest.warns(ort_extension.RecordsWarning, match="not JSON"):
        del ours
        gc.collect()
    assert path.read_text() == "important\n"


def test_models_without_a_file_cannot_be_recorded(models, tmp_path):
    with pytest.raises(ArgumentError, match="give the session a path"):
        ort_extension.InferenceSession((models / "fixed.onnx").read_bytes(), providers=CPU, records=tmp_path / "r")


# Devices


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


def test_a_provider_that_perfpass_has_no_device_for_is_not_compared():
    here = Placement(find_device("cpu"), "named", GIB, "onnxruntime")
    assert "OpenVINO" in unlike(here, ["OpenVINOExecutionProvider"], 0, 0, False)
    assert unlike(here, CPU, 0, 0, False) is None


def test_configurations_keep_their_keys_and_shapes_survive_json():
    from perfpass.measure.configuration import Configuration

    plain = Configuration(model="onnx:a.onnx", runtime="onnxruntime")
    shaped = Configuration(model="onnx:a.onnx", runtime="onnxruntime", input_shapes={"x": [1, 3]}, precision="fp16")
    assert Configuration(model="timm:resnet18", batch=4).key == "469f74f5e30fc4d8e457"
    assert Configuration.from_dict(json.loads(json.dumps(shaped.to_dict()))) == shaped
    assert len({plain, shaped}) == 2 and plain.key != shaped.key
    with pytest.raises(ArgumentError, match="only ONNX files"):
        Configuration(model="timm:resnet18", input_shapes={"x": [1]})
    with pytest.raises(ArgumentError, match="whole number"):
        Configuration(model="onnx:a.onnx", runtime="onnxruntime", input_shapes={"x": [0]})
