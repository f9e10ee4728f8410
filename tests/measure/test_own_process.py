"""Configurations that are measured in an interpreter of their own: what they import, report, and refuse."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from perfpass.errors import ArgumentError, FormatError, UnsupportedError
from perfpass.measure import host, own_process
from perfpass.measure.configuration import Configuration, Protocol
from perfpass.measure.journal import Journal, read
from perfpass.measure.timing import measure

QUICK = Protocol(warmup_max_s=0.1, measure_min_s=0.01, measure_max_s=0.05, iterations_least=5)
RECORDS = Path(__file__).resolve().parents[2] / "data" / "records" / "measured" / "epyc-2-cores" / "records.jsonl"
STAGES = ("interpreter", "runtime", "loaded", "ran")


def _file(folder: Path, megabytes: int = 8) -> str:
    """An ONNX file with one product of weights of ``megabytes``."""
    onnx = pytest.importorskip("onnx")
    width = megabytes * 2**20 // 4 // 512
    weights = onnx.numpy_helper.from_array(np.ones((512, width), np.float32), "w")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "product",
        [onnx.helper.make_tensor_value_info("x", kind, [1, 512])],
        [onnx.helper.make_tensor_value_info("y", kind, [1, width])],
        [weights],
    )
    path = folder / "product.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10), path)
    return f"onnx:{path}"


def _measured(configuration: Configuration, protocol: Protocol = QUICK) -> dict:
    def built():
        raise AssertionError("nothing is built for a file")

    return own_process.measured(configuration, protocol, built, lambda: None)


def test_the_record_tells_the_runtime_from_the_model(tmp_path):
    found = _measured(Configuration(model=_file(tmp_path, 64), runtime="onnxruntime", threads=1, own_process=True))
    rss = [found["stages"][stage]["rss"] for stage in STAGES]
    assert rss[0] < rss[1] < rss[2]
    assert rss[1] < 200 * 2**20  # neither torch nor anything else that only makes models
    assert 60 * 2**20 < rss[2] - rss[1] < 400 * 2**20  # the weights, and copies
    memory = found["memory"]
    assert abs(memory["host_baseline_rss_bytes"] - rss[1]) < 2**20
    opening, running = memory["host_opening_peak_rss_bytes"], memory["host_peak_rss_bytes"]
    assert memory["host_whole_peak_rss_bytes"] == max(opening, running) >= rss[2]
    assert found["iterations"] >= QUICK.iterations_least
    for stage in STAGES:
        parts = found["stages"][stage]
        assert parts["anonymous"] + parts["file"] <= parts["rss"]


def test_what_goes_wrong_there_is_raised_here(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x08")
    with pytest.raises(FormatError, match=r"broken\.onnx"):
        _measured(Configuration(model=f"onnx:{tmp_path}/broken.onnx", runtime="onnxruntime", own_process=True))


def test_it_is_pinned_and_another_campaign_waits_for_the_core(tmp_path):
    core = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    with own_process._turn_on(core):
        assert os.sched_getaffinity(0) == {core}
        program = (
            "import sys; from perfpass.measure import own_process\n"
            "with own_process._turn_on(int(sys.argv[1])): print('in')"
        )
        other = subprocess.Popen([sys.executable, "-c", program, str(core)], stdout=subprocess.PIPE, text=True)
        time.sleep(1.0)
        assert other.poll() is None
    assert other.communicate(timeout=120)[0] == "in\n"
    assert os.sched_getaffinity(0) == before


def test_a_core_that_is_not_there_is_refused():
    with pytest.raises(UnsupportedError, match="core 4095"), own_process._turn_on(4095):
        pass


@pytest.mark.parametrize("wrong", [{"device": "cuda"}, {"mode": "training"}, {"runtime": "torch.compile"}])
def test_only_inference_on_the_cpu_has_one(wrong):
    with pytest.raises(ArgumentError, match="own_process"):
        Configuration(model="timm:resnet18", own_process=True, **wrong)


def test_configurations_that_lack_it_keep_their_keys():
    shared, own = Configuration(model="timm:resnet18"), Configuration(model="timm:resnet18", own_process=True)
    assert shared.key != own.key
    assert "own_process" not in shared.to_dict()
    recorded = next(r for r in read(RECORDS).records if r["configuration"]["model"] == "timm:resnet18")
    assert Configuration.from_dict(recorded["configuration"]).key == recorded["key"]
    assert Configuration.from_dict(own.to_dict()) == own


def test_a_journal_keeps_stages(tmp_path):
    path = tmp_path / "records.jsonl"
    record = {"key": "k", "environment": "e", "status": "ok", "configuration": {"model": "timm:resnet18"}}
    with Journal(path) as journal:
        journal.append("record", record | {"stages": {"loaded": {"rss": 5}}, "preparing": {"elapsed_s": 1.0}})
    assert read(path).records[0]["stages"]["loaded"]["rss"] == 5
    path.write_text(path.read_text().replace('"rss":5', '"rss":"five"').replace('"rss": 5', '"rss": "five"'))
    with pytest.raises(FormatError, match="stages"):
        read(path)


def test_slow_iterations_are_measured_as_often_as_asked():
    slow = measure(lambda: time.sleep(0.03) or 30.0, QUICK)
    assert len(slow.laps_ms) >= QUICK.iterations_least


def test_resident_bytes_are_of_this_process():
    before = host.resident_bytes()
    # Pages of its own: an allocator may hand out memory that an earlier test freed and that is resident still.
    with mmap.mmap(-1, 128 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.write(b"\1" * len(block))
        after = host.resident_bytes()
    assert 100 * 2**20 < after["anonymous"] - before["anonymous"] < 200 * 2**20
