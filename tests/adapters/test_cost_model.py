"""Cost models of TVM 0.19: MetaSchedule, autotvm, and which tasks of a network are worth tuning."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tvm
import tvm.meta_schedule as ms
from cost_model_promises import *  # noqa: F403 - the promises shared with 0.27
from cost_model_promises import CORE
from tvm import autotvm, relay, te

from perfpass.errors import ArgumentError, FileError
from tvm_perfpass.cost_model import PerfpassTuner, allot, rank_tasks
from tvm_perfpass.cost_model.tasks import RankedTask

# The promises stand on one real tuning run, which compiles and measures.
pytestmark = pytest.mark.slow


@autotvm.template("perfpass/test/product")
def product(size):
    """A product with tiles and a vectorised inner loop to choose."""
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    r = te.reduce_axis((0, size), name="r")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    schedule, config = te.create_schedule(c.op), autotvm.get_config()
    y, x = schedule[c].op.axis
    config.define_split("tile_y", y, num_outputs=2)
    config.define_split("tile_x", x, num_outputs=2)
    config.define_knob("vectorize", [0, 1])
    yo, yi = config["tile_y"].apply(schedule, c, y)
    xo, xi = config["tile_x"].apply(schedule, c, x)
    schedule[c].reorder(yo, xo, schedule[c].op.reduce_axis[0], yi, xi)
    if config["vectorize"].val:
        schedule[c].vectorize(xi)
    return schedule, [a, b, c]


@pytest.fixture
def task():
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    return autotvm.task.create("perfpass/test/product", args=(64,), target="llvm -num-cores 1")


def measured_option():
    """Builds and runs in this process."""

    class Here:
        def __init__(self, seen):
            self.seen = seen

        def __call__(self, inputs):
            results = []
            for item in inputs:
                index = item.config.index
                self.seen.append(index)
                tile = item.config["tile_x"].size[-1] * (4 if item.config["vectorize"].val else 1)
                failed = index % 5 == 0
                cost = (1e9,) if failed else (1e-3 / tile,)
                results.append(autotvm.measure.MeasureResult(cost, int(failed), 0.1, 0.0))
            return results

    return Here([])


def test_the_autotvm_tuner_proposes_learns_and_saves(task, tmp_path):
    tuner = PerfpassTuner(task, plan_size=6, hardware=CORE, pretrained=False)
    measure = measured_option()
    for _ in range(3):
        configs = tuner.next_batch(6)
        inputs = [autotvm.measure.MeasureInput(task.target, task, config) for config in configs]
        tuner.update(inputs, measure(inputs))
    assert len(set(measure.seen)) == 18
    (learned,) = tuner.cost_model.ranker.own.values()
    assert len(learned.seconds) >= 15
    tuner.save(tmp_path / "model")
    again = PerfpassTuner(task, load=tmp_path / "model")
    indices = list(range(0, 90, 9))
    scores = tuner.cost_model.predict(indices)
    np.testing.assert_array_equal(again.cost_model.predict(indices), scores)
    assert np.isfinite(scores).all() and (scores > 0).all()


def test_the_autotvm_tuner_runs_real_measurements_and_reads_their_log(task, tmp_path):
    option = autotvm.measure_option(
        builder=autotvm.LocalBuilder(n_parallel=1), runner=autotvm.LocalRunner(number=1, repeat=1, min_repeat_ms=0)
    )
    log = tmp_path / "log.json"
    tuner = PerfpassTuner(task, plan_size=3, hardware=CORE, pretrained=False)
    tuner.tune(n_trial=3, measure_option=option, callbacks=[autotvm.callback.log_to_file(str(log))])
    assert len(log.read_text().splitlines()) == 3
    warmed = PerfpassTuner(task, records=[log], hardware=CORE, pretrained=False)
    assert [len(task.seconds) for task in warmed.cost_model.ranker.earlier.values()] == [3]
    with pytest.raises(FileError, match="log_to_file"):
        PerfpassTuner(task, records=[tmp_path / "nowhere.json"], hardware=CORE)


def test_autotvm_tells_vectorised_from_scalar_and_good_tiles_from_bad(task):
    tuner = PerfpassTuner(task, hardware=CORE)
    space = task.config_space
    by_knobs = {
        (space.get(i)["tile_x"].size[-1], space.get(i)["tile_y"].size[-1], space.get(i)["vectorize"].val): i
        for i in range(len(space))
    }
    good, scalar, column = (by_knobs[key] for key in ((16, 4, 1), (1, 1, 0), (1, 64, 0)))
    scores = tuner.cost_model.predict([good, scalar, column])
    assert scores[0] > scores[1] and scores[0] > scores[2]


def network():
    x = relay.var("x", shape=(1, 16, 28, 28))
    y = relay.nn.conv2d(x, relay.var("w", shape=(32, 16, 3, 3)), padding=(1, 1), channels=32, kernel_size=(3, 3))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(y)))
    y = relay.nn.dense(y, relay.var("d", shape=(10, 32)))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.softmax(y)))


def test_the_tasks_worth_tuning_come_first():
    tasks = ms.relay_integration.extract_tasks(network(), "llvm -num-cores 1", None)
    ranked = rank_tasks(tasks, hardware=CORE)
    assert sorted(task.index for task in ranked) == list(range(len(tasks)))
    assert "conv2d" in ranked[0].name and ranked[0].gain_s > 10 * ranked[-1].gain_s
    assert all(task.untuned_s >= task.bound_s > 0 for task in ranked)
    with pytest.raises(ArgumentError, match="no tasks"):
        rank_tasks([])
    with pytest.raises(ArgumentError, match="not what extract_tasks returns"):
        rank_tasks(["conv2d"])


def test_trials_go_where_seconds_can_be_saved():
    ranked = [RankedTask(0, "large", 1, 1.0, 0.1), RankedTask(1, "small", 2, 0.1, 0.05), RankedTask(2, "done", 1, 1, 1)]
    given = allot(ranked, 64, batch=8)
    assert sum(given.values()) == 64 and given[0] > given[1] > 0 == given[2]
    assert allot(ranked, 7, batch=8) == {0: 0, 1: 0, 2: 0}
    with pytest.raises(ArgumentError, match="at least 1"):
        allot(ranked, 0)
