"""Tuning records of TVM 0.19 as a calibration of the Relay pass: MetaSchedule databases and autotvm logs."""

from __future__ import annotations

import json
import os

import pytest

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
from tuning_record_promises import *  # noqa: F403 - the promises shared with 0.27
from tuning_record_promises import CPU, predicted, read_schedules
from tvm import relay
from tvm.relay import testing

import tvm_perfpass
from perfpass.errors import ArgumentError, FormatError
from tvm_perfpass import PredictPerformance
from tvm_perfpass.cost_model.tuned_operators import of_task


@pytest.fixture(scope="module")
def dense_network():
    def make(m, n, k):
        x, w = relay.var("data", shape=(m, k)), relay.var("fc_weight", shape=(n, k))
        return testing.create_workload(relay.nn.dense(x, w))[0]

    return make


@pytest.fixture(scope="module")
def conv_network():
    def make():
        x, w = relay.var("data", shape=(1, 16, 16, 16)), relay.var("conv_weight", shape=(32, 16, 3, 3))
        return testing.create_workload(relay.nn.conv2d(x, w, padding=1, channels=32, kernel_size=(3, 3)))[0]

    return make


@pytest.fixture(scope="module")
def annotate():
    return lambda module, device, calibration: PredictPerformance(device, calibration=calibration)(module)


def line(task, args, seconds, error=0, target="llvm -keys=cpu -mcpu=core-avx2"):
    return json.dumps({"input": [target, task, args, {}], "config": {}, "result": [seconds, error, 1.0, 1.6e9]})


DENSE = [["TENSOR", [64, 256], "float32"], ["TENSOR", [512, 256], "float32"], None, "float32"]
CONV = [["TENSOR", [1, 16, 16, 16], "float32"], ["TENSOR", [32, 16, 3, 3], "float32"]]
CONV += [[1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]


def test_a_log_of_autotvm_says_the_same(tmp_path, dense_network, conv_network, annotate):
    log = tmp_path / "tuned.log"
    lines = [line("dense_pack.x86", DENSE, [4e-3]), line("dense_pack.x86", DENSE, [2e-3, 2.2e-3])]
    lines += [line("dense_pack.x86", DENSE, [1e10], 4), line("conv2d_NCHWc.x86", CONV, [5e-3])]
    lines += [line("winograd_nnpack.x86", CONV, [5e-3])]
    log.write_text("\n".join(lines) + "\n")
    schedules = read_schedules(log)
    assert schedules.seconds.tolist() == pytest.approx([2.1e-3, 5e-3])
    assert schedules.provenance["left_out"] == {"failed runs": 1, "tasks that are no known operator": 1}
    assert predicted(dense_network(64, 512, 256), schedules).latency_ms.median == pytest.approx(2.1, rel=0.1)
    found = annotate(conv_network(), CPU, str(log)).attrs["perfpass.latency_ms"]
    assert float(found["median"]) == pytest.approx(5.0, rel=0.1)


def test_every_task_of_topi_has_its_operator():
    depthwise = [["TENSOR", [1, 16, 16, 16], "float32"], ["TENSOR", [16, 1, 3, 3], "float32"], *CONV[2:5], "float32"]
    products = [["TENSOR", [6, 8, 64], "float32"], ["TENSOR", [6, 10, 64], "float32"]]
    assert of_task("depthwise_conv2d_nchw.cuda", depthwise).node_count == 1
    assert of_task("batch_matmul.x86", products).node_count == 1
    assert of_task("conv2d_nhwc.x86", CONV) is None
    assert of_task("dense_pack.x86", [1, 2]) is None


def test_what_is_no_log_is_said_in_one_line(tmp_path):
    log = tmp_path / "tuned.log"
    log.write_text(line("dense_pack.x86", DENSE, [1e-3]) + '\n{"input": 3}\n')
    with pytest.raises(FormatError, match="line 2: not a record of autotvm"):
        tvm_perfpass.read_schedules(log)
    log.write_text(line("dense.x", DENSE, [1e-3]) + "\n" + line("dense.y", DENSE, [1e-3], target="cuda") + "\n")
    with pytest.raises(ArgumentError, match="records of cpu and gpu"):
        tvm_perfpass.read_schedules(log)


def test_records_of_a_gpu_calibrate_a_gpu(tmp_path, dense_network):
    log = tmp_path / "tuned.log"
    log.write_text(line("dense_small_batch.gpu", DENSE, [1e-3], target="cuda -keys=cuda,gpu") + "\n")
    found = predicted(dense_network(64, 512, 256), read_schedules(log), "a100-80gb")
    assert found.latency_ms.median == pytest.approx(1.04, rel=0.2)
