"""`ort_extension.InferenceSession` after its creation: runs beside the prediction, drift, records."""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import warnings

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ort_sessions import CPU, images, session

import ort_extension
from ort_extension.placement import Placement, unlike
from ort_extension.runs import WARM_UP_RUNS, WINDOW_RUNS, DriftWarning, Meter
from perfpass.cli import main
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, FileError
from perfpass.measure.journal import read as read_journal
from perfpass.prediction import Interval

GIB = 2**30


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


@settings(max_examples=60)
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
