"""Promises of a run's time node by node: nothing is lost, equal nodes get equal times, rows hold what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import perfpass
from perfpass.predictors.by_node import node_times

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WAYS = [
    ("resnet50.onnx", {}),
    ("vit_base_patch16_224.onnx", {"precision": "amp"}),
    ("llama_1b_prefill.onnx", {"precision": "bf16", "runtime": "tensorrt"}),
    ("resnet50.onnx", {"mode": "training", "batch": 8}),
    ("resnet50.onnx", {"mode": "training", "batch": 8, "frozen": ["onnx::Conv_4*"]}),
]


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: f"{way[0]} {way[1]}")
def timed(request):
    name, how = request.param
    found = perfpass.predict(EXAMPLES / name, "a100-sxm4-80gb", **how)
    run = found.asked.run()
    total = sum(found.breakdown["latency_ms"].values())
    return found, run, node_times(run, found.workload["mode"] == "training", total)


def test_the_times_of_all_nodes_and_of_the_rest_are_that_of_the_run(timed):
    found, _, times = timed
    assert times.ms.sum() + times.rest_ms.sum() == pytest.approx(sum(found.breakdown["latency_ms"].values()))
    assert (times.ms >= 0).all() and (times.rest_ms >= 0).all()


def test_phases_of_a_step_take_what_the_breakdown_says(timed):
    found, _, times = timed
    for phase, ms, rest in zip(times.phases, times.ms, times.rest_ms, strict=True):
        if "phase_ms" in found.breakdown:
            assert ms.sum() + rest == pytest.approx(found.breakdown["phase_ms"][phase])


def test_a_row_counts_the_executions_of_the_nodes_that_it_holds(timed):
    _, run, times = timed
    held = times.row >= 0
    runs = np.bincount(times.row[held], np.asarray(run.graph.repeat)[held], len(run.table.op))
    np.testing.assert_allclose(runs, run.table.count)


def test_nodes_of_a_row_have_equal_times_by_how_often_they_run(timed):
    _, run, times = timed
    each = times.ms[0] / np.maximum(np.asarray(run.graph.repeat), 1e-300)
    for row in range(len(run.table.op)):
        mine = each[times.row == row]
        np.testing.assert_allclose(mine, mine[0])


def test_a_copied_prediction_says_that_its_graph_is_gone():
    import pickle

    found = pickle.loads(pickle.dumps(perfpass.predict(EXAMPLES / "resnet50.onnx", "t4")))
    assert found.asked.model.endswith("resnet50.onnx")
    with pytest.raises(perfpass.PerfPassError, match="predict it anew"):
        found.plot.roofline()
