"""`diff`: what changed from one model to another, and by which factor each figure did, on one device or several."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfpass.deploy.difference.found import OnDevice
from perfpass.deploy.difference.git_file import at_commit, is_git
from perfpass.deploy.difference.ratio import EXACT, Ratio, Verdict, limits
from perfpass.deploy.difference.result import Difference
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.graph import OPERATOR_CLASS_OF, OPERATOR_CLASSES, costs
from perfpass.graph.changes import Changes, changes
from perfpass.importers import load
from perfpass.prediction import SUPPORT_LEVELS, WIDEST_FACTOR, Interval, Prediction, Support
from perfpass.predictors import predict_graph, quantisation
from perfpass.predictors.assemble import run_of
from perfpass.predictors.difference.unlike import Question, lacks, memory_lacks
from perfpass.predictors.difference.widths import Widths, widened
from perfpass.predictors.workload import PRECISIONS, check, own_name
from perfpass.text import shown_value, unknown

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

# What NEW may differ in beside the model. "version" is that of the runtime: no predictor tells releases apart, but the
# interval does.
CHANGES = ("batch", "precision", "runtime", "layout", "cuda_graph", "version")
DEFAULT_CONFIDENCE = 0.5


def diff(
    old: Any,
    new: Any,
    device: str | Device | Sequence[str | Device] = (),
    *,
    batch: int | None = None,
    precision: str = "fp32",
    mode: str = "inference",
    runtime: str = "torch",
    layout: str = "nchw",
    optimizer: str | None = None,
    cuda_graph: bool = False,
    dims: Mapping[str, int] | None = None,
    input_shape: Any = None,
    assume: Mapping[str, int] | None = None,
    calibration: bool = True,
    processes: int | None = None,
    change: Mapping[str, Any] | None = None,
    fail: Mapping[str, Any] | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Difference:
    """What changed from ``old`` to ``new``, and the ratio new / old of each figure with its own 90 % interval.

    ``old``, ``new``: what `perfpass.predict` takes, or ``git:REV:PATH``, a file as it was at a commit of the repository
    here. ``device``: one or several; without one, only what is counted exactly is compared (parameters, FLOPs). The
    other arguments are those of `perfpass.predict` and hold for both; ``change``: what is otherwise for ``new``
    (`CHANGES`). ``fail``: by figure (latency, throughput, memory, energy, parameters, flops), by how many per cent it
    may get worse ("5%", 5.0, "0"). A limit is broken, or held, where the probability of it is at least ``confidence``
    (0.5 to 1, not 1 itself); else it cannot be said. The ratio's interval has only what the two runs do not share
    (`perfpass.predictors.difference.unlike`): it is fitted on pairs of measurements.

    Raises ArgumentError, DeviceError, UnsupportedError and what reading a model raises.
    """
    allowed = limits(fail or {})
    _check_confidence(confidence)
    other = _checked_changes(change or {})
    asked = [device] if isinstance(device, (str, Device)) else list(device)
    targets = [find_device(d) for d in asked]
    if not targets and (needing := [m for m in allowed if m not in EXACT]):
        raise ArgumentError(f"a limit of {needing[0]} needs a device")
    how: dict[str, Any] = {"batch": batch, "precision": precision, "runtime": runtime, "layout": layout}
    how["cuda_graph"] = cuda_graph
    rest: dict[str, Any] = {"mode": mode, "optimizer": optimizer}
    new_how = {**how, **{k: v for k, v in other.items() if k != "version"}}
    for target in targets:  # before a model is read
        for each in (how, new_how):
            check(target, **each, **rest)
    read = {"dims": dims, "input_shape": input_shape, "assume": assume}
    version = str(other.get("version", ""))
    sides = [_Side.read(model, each, read) for model, each in ((old, how), (new, new_how))]
    totals = [costs.count(s.graph, float_as=PRECISIONS[own_name(s.how["precision"])][0]).totals for s in sides]
    exact = tuple(Ratio.of(name, float(totals[0][name]), float(totals[1][name]), 0.0) for name in EXACT)
    own = {"calibration": calibration, "processes": processes}
    changed = changes(sides[0].graph, sides[1].graph)
    differ = None if other else _classes(changed, sides)
    found = tuple(_on(target, sides, rest, own, ("", version), differ) for target in targets)
    told: list[tuple[str | None, Ratio]] = [(None, r) for r in exact]
    told += [(d.device, r) for d in found for r in d.ratios]
    verdicts = tuple(
        Verdict(r.metric, where, allowed[r.metric], r.probability_within(allowed[r.metric]), confidence, r)
        for where, r in told
        if r.metric in allowed
    )
    asked_how = {**{name: value for name, value in how.items() if name != "cuda_graph" or value}, **rest}
    return Difference(sides[0].name, sides[1].name, asked_how, other, changed, exact, found, verdicts)


@dataclass(frozen=True, eq=False)
class _Side:
    """One of the two models: how it is called, its graph, and how it runs."""

    name: str
    graph: OpGraph
    how: dict[str, Any]

    @classmethod
    def read(cls, model: Any, how: dict[str, Any], read: Mapping[str, Any]) -> _Side:
        """Raises what `perfpass.load` and `git_file.at_commit` do."""
        name = os.fsdecode(model) if isinstance(model, (str, os.PathLike)) else type(model).__name__
        with ExitStack() as stack:
            source = stack.enter_context(at_commit(model)) if is_git(model) else model
            return cls(name, load(source, batch=how["batch"], **read), how)


@dataclass(frozen=True, eq=False)
class Run:
    """A graph in one way of running, predicted: what `ratios` compares."""

    prediction: Prediction
    question: Question

    @classmethod
    def of(
        cls, graph: OpGraph, target: Device, how: Mapping[str, Any], own: Mapping[str, Any], version: str = ""
    ) -> Run:  # fmt: skip
        """``how``: the workload's arguments of `predict_graph`; ``own``: what it takes beside; ``version``: of the
        runtime. Raises what `predict_graph` does.
        """
        found = predict_graph(graph, target, **how, **own)
        run = run_of(graph, target, **how)
        way = replace(run.way, precision=quantisation.told_apart(own_name(how.get("precision")), run.way.precision))
        return cls(found, Question(run.table, run.batch, way, _half_width(found.latency_ms), version))


def ratios(old: Run, new: Run) -> tuple[Ratio, ...]:
    """New over old of latency, throughput, memory and energy of a run; of two devices they share nothing."""
    a, b = old.prediction, new.prediction
    apart = [
        _apart(x, y)
        for x, y in (
            (a.latency_ms, b.latency_ms),
            (a.peak_memory_bytes, b.peak_memory_bytes),
            (a.energy_j, b.energy_j),
        )
    ]
    device = old.question.way.device
    if device == new.question.way.device:
        differ = lacks(old.question, new.question)
        held = memory_lacks(old.question, new.question, (a.breakdown["memory_bytes"], b.breakdown["memory_bytes"]))
        widths = Widths.load()
        # What was learned tells one of the times by so much more, and its operators one by one the other.
        handed_over = abs(a.handed_over - b.handed_over)
        time = widened(widths.of("latency", device.kind, differ, apart[0]), handed_over, apart[0])
        memory = widths.of("memory", device.kind, held)
        energy = widened(widths.of("energy", device.kind, differ, apart[2]), handed_over, apart[2])
    else:
        time, memory, energy = ((width, (("another device", 1.0),)) for width in apart)
    return (
        Ratio.of("latency", a.latency_ms.median, b.latency_ms.median, *time),
        Ratio.of("throughput", a.throughput_per_s.median, b.throughput_per_s.median, *time),
        Ratio.of("memory", a.peak_memory_bytes.median, b.peak_memory_bytes.median, *memory),
        Ratio.of("energy", a.energy_j.median, b.energy_j.median, *energy),
    )


def _on(
    target: Device, sides: Sequence[_Side], rest: Mapping[str, Any], own: Mapping[str, Any],
    versions: tuple[str, str], differ: set[str] | None,
) -> OnDevice:  # fmt: skip
    """Both models on one device; ``own``: what `predict_graph` takes of it beside the workload; ``differ``: the classes
    of the operators that do, None where both run otherwise as a whole.
    """
    runs = [Run.of(s.graph, target, {**s.how, **rest}, own, v) for s, v in zip(sides, versions, strict=True)]
    old, new = (run.prediction for run in runs)
    by_class = [p.breakdown["latency_ms"] for p in (old, new)]
    names = sorted({*by_class[0], *by_class[1]})
    return OnDevice(
        target.id,
        target.name,
        runs[0].question.batch,
        ratios(*runs),
        {name: (float(by_class[0].get(name, 0.0)), float(by_class[1].get(name, 0.0))) for name in names},
        support_of(old, new),
        () if differ is None else tuple(name for name in names if name not in differ),
    )


def _classes(changed: Changes, sides: Sequence[_Side]) -> set[str] | None:
    """Of the operators that differ; None where none does."""
    at = [(side.graph, node) for one in changed.operators for side, node in zip(sides, (one.old, one.new), strict=True)]
    return {OPERATOR_CLASSES[int(OPERATOR_CLASS_OF[g.op[node]])] for g, node in at if node is not None} or None


def _half_width(found: Interval) -> float:
    """Of its logarithm; at most that of an interval which says nothing."""
    widest = math.log(WIDEST_FACTOR)
    return min(0.5 * math.log(found.high / found.low), widest) if found.low > 0 else widest


def _apart(old: Interval, new: Interval) -> float:
    """The half-width of the ratio of two figures that share nothing."""
    # Not hypot, whose last bit depends on the order of the two.
    return math.sqrt(_half_width(old) ** 2 + _half_width(new) ** 2)


def support_of(old: Prediction, new: Prediction) -> Support:
    """The lower level of the two, and the reasons of both, each once."""
    level = max((p.support.level for p in (old, new)), key=SUPPORT_LEVELS.index)
    return Support(level, tuple(dict.fromkeys((*old.support.reasons, *new.support.reasons))))


def _check_confidence(confidence: Any) -> None:
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0.5 <= confidence < 1.0:
        raise ArgumentError(f"confidence must be from 0.5 to below 1, got {shown_value(confidence)}")


def _checked_changes(change: Mapping[str, Any]) -> dict[str, Any]:
    for name in change:
        if name not in CHANGES:
            raise ArgumentError(unknown("change", name, CHANGES))
    replayed = change.get("cuda_graph", False)
    if not isinstance(replayed, bool):
        raise ArgumentError(f"change of cuda_graph to {shown_value(replayed)}: give true or false")
    return dict(change)
