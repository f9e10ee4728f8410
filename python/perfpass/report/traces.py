"""A predicted run as profilers write measured ones: for speedscope (speedscope.app), and for Perfetto and Chrome.

Operators stand one after another in execution order, as long as their predicted medians. Nothing overlaps: it is where
the time goes, not a schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import numpy as np

from perfpass import __version__
from perfpass.report.nodes import Nodes, asked_of
from perfpass.report.run_charts import headline

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"  # names the format; nothing is fetched


def speedscope(nodes: Nodes) -> dict[str, Any]:
    """The document of speedscope's file format: a stack of modules for every node, weighted by its milliseconds."""
    frames: dict[str, int] = {}
    samples, weights = [], []
    for stack, ms, _ in _in_order(nodes):
        samples.append([frames.setdefault(name, len(frames)) for name in stack])
        weights.append(ms)
    profile = {
        "type": "sampled",
        "name": headline(nodes.prediction),
        "unit": "milliseconds",
        "startValue": 0,
        "endValue": float(sum(weights)),
        "samples": samples,
        "weights": weights,
    }
    return {
        "$schema": _SCHEMA,
        "exporter": f"perfpass {__version__}",
        "name": f"{asked_of(nodes.prediction) or 'model'}, predicted",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [profile],
    }


def chrome_trace(nodes: Nodes) -> dict[str, Any]:
    """The JSON object of the Trace Event Format: complete events, modules around their nodes; times in microseconds."""
    events: list[dict[str, Any]] = [
        _named("process_name", f"perfpass: {headline(nodes.prediction)}"),
        _named("thread_name", "predicted, in execution order"),
    ]
    opened: list[dict[str, Any]] = []
    now = 0.0
    for stack, ms, node in _in_order(nodes):
        path = stack[:-1]
        same = len(list(takewhile(lambda pair: pair[0]["name"] == pair[1], zip(opened, path, strict=False))))
        for event in opened[same:]:
            event["dur"] = now - event["ts"]
        del opened[same:]
        for name in path[same:]:
            event = {"name": name, "cat": "module", "ph": "X", "ts": now, "dur": 0.0, "pid": 1, "tid": 1}
            opened.append(event)
            events.append(event)
        args = {} if node is None else _facts(nodes, node)
        kind = "rest" if node is None else nodes.operator_class[node]
        events.append(
            {"name": stack[-1], "cat": kind, "ph": "X", "ts": now, "dur": 1e3 * ms, "pid": 1, "tid": 1, "args": args}
        )
        now += 1e3 * ms
    for event in opened:
        event["dur"] = now - event["ts"]
    found = nodes.prediction.latency_ms
    about = {"interval_ms": [found.low, found.high], "median_ms": found.median, "coverage": found.coverage}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"perfpass": __version__, **about}}


def _named(what: str, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 1, "tid": 1, "args": {"name": name}}


def _facts(nodes: Nodes, node: int) -> dict[str, Any]:
    costs = nodes.run.costs
    return {
        "operator": nodes.operator[node],
        "flops": int(costs.flops[node]),
        "bytes": int(costs.bytes_read[node]) + int(costs.bytes_written[node]),
    }


def _in_order(nodes: Nodes) -> Iterator[tuple[tuple[str, ...], float, int | None]]:
    """Stack, milliseconds and node of everything that takes time, in execution order; backward passes run backward."""
    times = nodes.times
    several = len(times.phases) > 1
    for phase, ms, rest in zip(times.phases, times.ms, times.rest_ms, strict=True):
        order = np.flatnonzero(ms > 0)
        top = (phase,) if several else ()
        for node in (order[::-1] if phase == "backward" else order).tolist():
            yield (*top, *nodes.modules[node], nodes.name[node]), float(ms[node]), node
        if rest > 0:
            yield (*top, "update" if phase == "optimizer" else "beside the graph"), float(rest), None
