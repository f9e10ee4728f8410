"""Promises of tuning records as a calibration, in TVM 0.19 and 0.27: collected by a test file of each environment."""

from __future__ import annotations

import cost_model_cases as cases
import numpy as np
import pytest
import tvm
from tvm import te, topi

import perfpass
import tvm_perfpass
from perfpass.errors import ArgumentError, FileError, FormatError
from perfpass.graph import OPERATORS, costs
from perfpass.predictors.inference.fusion import as_run
from tvm_perfpass.cost_model import tvm_names
from tvm_perfpass.cost_model.tuned_operators import of_loops
from tvm_perfpass.cost_model.tuning_records import calibration_of, read_schedules

CPU = "core-i9-10940x"
SECONDS = 3e-3  # of one product [64, 256] x [256, 512], slower than any schedule


def database(folder, runs):
    """A MetaSchedule database with a record for each pair of a TIR function and its seconds."""
    found = cases.ms.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    for function, seconds in runs:
        mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        trace = tvm_names.schedule(mod).trace
        record = cases.ms.database.TuningRecord(trace, found.commit_workload(mod), seconds, cases.TARGET, None)
        found.commit_tuning_record(record)
    return found


def convolution(groups=1, stride=1):
    x, w = te.placeholder((2, 16, 16, 16), name="X"), te.placeholder((32, 16 // groups, 3, 3), name="W")
    y = topi.nn.group_conv2d_nchw(x, w, stride, 1, 1, groups) if groups > 1 else topi.nn.conv2d_nchw(x, w, stride, 1, 1)
    return te.create_prim_func([x, w, topi.nn.relu(y)])


def depthwise():
    x, w = te.placeholder((2, 16, 16, 16), name="X"), te.placeholder((16, 1, 3, 3), name="W")
    return te.create_prim_func([x, w, topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)])


def attention():
    x, y = te.placeholder((6, 8, 64), name="X"), te.placeholder((6, 10, 64), name="Y")
    return te.create_prim_func([x, y, topi.nn.batch_matmul(x, y)])


def normalised():
    x = te.placeholder((6, 64), name="X")
    return te.create_prim_func([x, topi.nn.softmax(x)])


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (convolution(), ("conv", 1, 512, 32, 144, 9, 1, 1)),
        (convolution(stride=2), ("conv", 1, 128, 32, 144, 9, 2, 1)),
        (convolution(groups=4), ("conv", 4, 512, 8, 36, 9, 1, 4)),
        (depthwise(), ("conv", 16, 512, 1, 9, 9, 1, 16)),
        (cases.product(64, 32, 16), ("dense", 1, 64, 32, 16, 0, 0, 0)),
        (attention(), ("matmul", 6, 8, 10, 64, 0, 0, 0)),
        (normalised(), ("softmax", 0, 0, 0, 0, 0, 0, 0)),
        (cases.doubled(), ("mul", 0, 0, 0, 0, 0, 0, 0)),
    ],
)
def test_loops_tell_what_an_operator_is(function, sizes):
    graph = of_loops(function)
    table = as_run(graph, costs.count(graph, float_as="float32"), "tvm", "cpu")
    names = ("b", "m", "n", "k", "kernel_area", "stride", "groups")
    assert (OPERATORS[int(table.op[0])], *(int(getattr(table, name)[0]) for name in names)) == sizes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A database of one product, tuned three times."""
    place = tmp_path_factory.mktemp("records")
    product = cases.product(64, 512, 256)
    database(place, [(product, [9e-3]), (product, [SECONDS, 1.1 * SECONDS]), (product, [1e10])])
    return place


def predicted(module, calibration, device=CPU):
    return perfpass.predict(module, device, runtime="tvm", calibration=calibration)


def test_a_tuned_operator_takes_what_was_measured(folder, dense_network):
    plain, known = (predicted(dense_network(64, 512, 256), c) for c in (False, read_schedules(folder)))
    assert known.latency_ms.median == pytest.approx(1.05e3 * SECONDS, rel=0.1)
    assert plain.latency_ms.median < 0.8 * known.latency_ms.median
    width = [p.latency_ms.high / p.latency_ms.low for p in (plain, known)]
    assert width[1] < 0.6 * width[0]
    assert any("1 tuned operators of the records" in reason for reason in known.support.reasons)


def test_others_of_its_class_are_drawn_there_and_other_classes_stay(folder, dense_network, conv_network):
    schedules = read_schedules(folder)
    plain, known = (predicted(dense_network(64, 768, 256), c) for c in (False, schedules))
    exact = predicted(dense_network(64, 512, 256), schedules)
    assert known.latency_ms.median > 1.5 * plain.latency_ms.median
    assert known.latency_ms.high / known.latency_ms.low > 1.5 * exact.latency_ms.high / exact.latency_ms.low
    plain, known = (predicted(conv_network(), c) for c in (False, schedules))
    assert known.latency_ms.median == pytest.approx(plain.latency_ms.median, rel=1e-9)


def test_the_pass_takes_a_folder_a_database_or_schedules(folder, dense_network, annotate):
    module = dense_network(64, 512, 256)
    given = [str(folder), folder, calibration_of(folder)]
    given.append(database(folder.parent, [(cases.product(64, 512, 256), [SECONDS, 1.1 * SECONDS])]))
    found = [float(annotate(module, CPU, c).attrs["perfpass.latency_ms"]["median"]) for c in given]
    assert np.ptp(found) < 1e-9 * found[0]
    assert found[0] == pytest.approx(1.05e3 * SECONDS, rel=0.1)


def test_records_that_say_nothing_of_the_question_are_refused(folder, tmp_path, dense_network):
    schedules = tvm_perfpass.read_schedules(folder)
    with pytest.raises(ArgumentError, match=r"records are of a cpu, .* is a gpu"):
        predicted(dense_network(8, 8, 8), schedules, "a100-80gb")
    with pytest.raises(ArgumentError, match="not torch; use runtime='tvm'"):
        perfpass.predict(dense_network(8, 8, 8), CPU, runtime="torch", calibration=schedules)
    with pytest.raises(ArgumentError, match=r"no usable tuning record \(1 failed runs"):
        read_schedules(database(tmp_path, [(cases.product(), [1e10])]))
    with pytest.raises(ArgumentError, match="calibration is a int"):
        calibration_of(3)
    with pytest.raises(FileError, match="tuning log"):
        calibration_of(tmp_path / "absent.log")
    (tmp_path / "database_workload.json").write_text("{")
    with pytest.raises(FormatError, match="not JSON"):
        calibration_of(tmp_path)
