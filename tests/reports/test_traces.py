"""Promises of profiles: what other tools read, with the times of the run and modules around their nodes."""

from __future__ import annotations

import json
import pickle

import pytest

from perfpass.errors import UnsupportedError
from perfpass.report import traces
from perfpass.report.snapshot import snapshot


@pytest.mark.parametrize("name", ["encoder", "step"])
def test_a_chrome_trace_has_every_event_inside_its_module(request, tmp_path, name):
    found = request.getfixturevalue(name)
    found.plot.trace(tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    leaves = [event for event in events if event["cat"] != "module"]
    assert sum(event["dur"] for event in leaves) == pytest.approx(1e3 * sum(found.breakdown["latency_ms"].values()))
    opened: list[float] = []
    for event in events:  # in order of their begins, the outer ones first
        while opened and opened[-1] <= event["ts"] * (1 + 1e-12) + 1e-9:
            opened.pop()
        end = event["ts"] + event["dur"]
        assert not opened or end <= opened[-1] * (1 + 1e-9) + 1e-6
        opened.append(end)
    assert {event["name"] for event in leaves} & set(found.plot.nodes.name)


@pytest.mark.parametrize("name", ["encoder", "step"])
def test_speedscope_weighs_a_stack_for_every_node(request, tmp_path, name):
    found = request.getfixturevalue(name)
    found.plot.speedscope(tmp_path / "profile.json")
    document = json.loads((tmp_path / "profile.json").read_text())
    (profile,) = document["profiles"]
    assert document["$schema"].endswith("file-format-schema.json") and profile["type"] == "sampled"
    assert len(profile["samples"]) == len(profile["weights"])
    assert profile["endValue"] == pytest.approx(sum(found.breakdown["latency_ms"].values()))
    frames = document["shared"]["frames"]
    assert all(0 <= frame < len(frames) for sample in profile["samples"] for frame in sample)
    assert len({frame["name"] for frame in frames}) == len(frames)


def test_a_backward_pass_runs_backward(step):
    events = traces.chrome_trace(step.plot.nodes)["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X" and event["cat"] != "module"]
    first = step.plot.nodes.name[0]
    assert names.index(first) < len(names) / 3 < len(names) - 1 - names[::-1].index(first)


def test_a_snapshot_is_what_pytorch_draws(vision, tmp_path):
    viz = pytest.importorskip("torch.cuda._memory_viz")
    vision.plot.snapshot(tmp_path / "memory.pickle")
    found = pickle.loads((tmp_path / "memory.pickle").read_bytes())
    assert len(viz.trace(found)) > 1000 and viz.segsum(found) and viz.trace_plot(found)
    stacks = [event["frames"] for event in found["device_traces"][0] if event["frames"]]
    assert vision.plot.nodes.name[0] in {stack[0]["name"] for stack in stacks}


def test_a_snapshot_holds_the_plan_and_nothing_overlaps(encoder):
    found = snapshot(encoder.plot.nodes)
    plan = encoder.asked.run().plan
    (segment,) = found["segments"]
    live: dict[int, int] = {}
    most = now = 0
    for event in found["device_traces"][0][1:]:
        if event["action"] == "alloc":
            begin, end = event["addr"], event["addr"] + event["size"]
            assert all(end <= other or begin >= other + held for other, held in live.items())
            assert segment["address"] <= begin and end <= segment["address"] + segment["total_size"]
            live[begin] = event["size"]
            now += event["size"]
            most = max(most, now)
        elif event["action"] == "free_completed":
            now -= live.pop(event["addr"])
    assert most == pytest.approx(plan.weight_bytes + plan.peak_activation_bytes, rel=0.01)
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    times = [event["time_us"] for event in found["device_traces"][0]]
    assert times == sorted(times)


def test_a_step_has_no_snapshot_and_says_why(step):
    with pytest.raises(UnsupportedError, match="record a step in PyTorch"):
        snapshot(step.plot.nodes)
