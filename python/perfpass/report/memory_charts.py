"""Charts of memory: over the time of a run, what is alive at the peak, and what holds the memory in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass import _core
from perfpass.graph import DTYPES
from perfpass.predictors.memory import allocation
from perfpass.report.chart import Axis, Band, Box, Chart, Line, Mark, Note, Whisker, around
from perfpass.report.nodes import Nodes
from perfpass.report.run_charts import a_run, headline, said
from perfpass.text import digits, size

if TYPE_CHECKING:
    from perfpass.predictors.estimate import PlannedRun

_MOST_POINTS = 500
_TENSORS = 12
_LETTERS = 40  # of a tensor's maker: the end of its name tells it from others
_HOLDERS = ("weights", "gradients", "optimizer", "activations", "cache", "allocator", "workspace", "runtime")


def over_time(nodes: Nodes) -> Chart:
    """What is alive while each node runs: weights, and the buffers of the plan; of training what autograd keeps."""
    training = len(nodes.times.phases) > 1
    ms, layers = _training(nodes) if training else _inference(nodes)
    top = sum(layers.values(), np.zeros(len(ms)))
    peak = int(np.argmax(top))
    kept = _thinned(top)
    marks: list[Mark] = []
    below = np.zeros(len(ms))
    for colour, (name, held) in enumerate(layers.items()):
        above = below + held
        points = tuple(zip(ms[kept].tolist(), below[kept].tolist(), above[kept].tolist(), strict=True))
        marks.append(Band(points, _colour(name, colour), name))
        marks.append(Line(tuple((x, high) for x, _, high in points), _colour(name, colour), width=1.2))
        below = above
    alive = nodes.prediction.memory.alive
    reach = float(top[peak])
    if alive is not None:
        bounds = (alive.low, alive.median, alive.high)
        tip, label = f"alive: {said(alive)}", "alive at the peak, predicted"
        marks.append(Whisker(float(ms[peak]), *bounds, "ink", tip, label, True))
        reach = max(reach, alive.high)
    x = Axis(f"milliseconds of {a_run(nodes.prediction)} (median)", 0.0, float(ms[-1]) or 1.0)
    y = around("bytes alive", [reach], log=False, form="size", margin=0.12)
    where = _peak_name(nodes, peak, training)
    at_left = ms[peak] < 0.6 * (ms[-1] or 1.0)
    most = size(top[peak] if alive is None else alive.median)
    marks.append(Note(float(ms[peak]), reach, f"peak {most}, in {where}"[:60], "start" if at_left else "end", "ink"))
    rows = tuple((name, size(float(held[peak])), size(float(held.max()))) for name, held in layers.items())
    how = (
        "what autograd keeps grows in the forward pass and is given back in the order of the backward pass, while the "
        "gradients of the weights grow"
        if training
        else "a tensor lives from the node that makes it to the last one that reads it"
    )
    description = (
        f"Planned from the graph: {how}. Most is alive in {where}: {size(top[peak])}, "
        f"{size(float(top[0]))} at the start. In use on the device, with what the runtime and its allocator hold "
        f"besides: {said(nodes.prediction.memory.in_use)}; plan for the upper bound."
    )
    return Chart(
        "Memory over time",
        headline(nodes.prediction),
        x,
        y,
        tuple(marks),
        description,
        ("what", "at the peak", "at most"),
        rows,
        height=260,
    )


def _colour(name: str, place: int) -> int:
    return _HOLDERS.index(name) % 8 if name in _HOLDERS else place


def _inference(nodes: Nodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    plan = nodes.run.plan
    end = np.cumsum(nodes.ms)
    ms = np.stack([end - nodes.ms, end], axis=1).ravel() if len(end) else np.zeros(1)
    live = np.repeat(np.asarray(plan.live_bytes, dtype=np.float64), 2) if len(end) else np.full(1, plan.input_bytes)
    weights = nodes.prediction.breakdown["memory_bytes"].get("weights", plan.weight_bytes)  # with autocast's copies
    return ms, {"weights": np.full(len(ms), float(weights)), "activations": live}


def _training(nodes: Nodes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Two points a node and pass; the saved tensors sum to what `allocation.saved` counts."""
    run, parts = nodes.run, nodes.prediction.breakdown["memory_bytes"]
    saved = allocation.saved(run)
    made = np.zeros(len(nodes.name))
    for t in saved.tensors.tolist():
        made[max(int(run.graph.producer[t]), 0)] += _kept_bytes(run, t)
    made *= saved.saved / max(float(made.sum()), 1.0)
    gradients = np.asarray(run.costs.weight_bytes, dtype=np.float64)
    forward, backward = nodes.times.ms[0], nodes.times.ms[1][::-1]
    update = float(nodes.times.rest_ms[2] + nodes.times.ms[2].sum())
    spans = np.concatenate(
        [forward, [float(nodes.times.rest_ms[0])], backward, [float(nodes.times.rest_ms[1]), update]]
    )
    held = np.concatenate(
        [np.cumsum(made), [saved.saved], saved.saved - np.cumsum(made[::-1]) + made[::-1], [0.0, 0.0]]
    )
    grown = np.concatenate([np.zeros(len(made) + 1), np.cumsum(gradients[::-1]), [gradients.sum()] * 2])
    end = np.cumsum(spans)
    ms = np.stack([end - spans, end], axis=1).ravel()
    constant = {name: np.full(len(ms), float(parts.get(name, 0.0))) for name in ("weights", "optimizer")}
    moving = {"activations": np.repeat(np.maximum(held, 0.0), 2), "gradients": np.repeat(grown, 2)}
    return ms, {**constant, **moving}


def _peak_name(nodes: Nodes, peak: int, training: bool) -> str:
    if training:
        forward = peak // 2 <= len(nodes.name)
        return "the forward pass" if forward else "the backward pass"
    node = nodes.run.plan.peak_node
    return nodes.name[node] if node >= 0 else "the inputs"


def _thinned(top: np.ndarray) -> np.ndarray:
    """Indices of at most so many points: ends, and the lowest and highest of each stretch."""
    if len(top) <= _MOST_POINTS:
        return np.arange(len(top))
    parts = np.array_split(np.arange(len(top)), _MOST_POINTS // 2)
    chosen = {0, len(top) - 1, *(int(p[np.argmax(top[p])]) for p in parts), *(int(p[np.argmin(top[p])]) for p in parts)}
    return np.array(sorted(chosen))


def _dtype(run: PlannedRun, tensor: int) -> str:
    """The type that a tensor is kept in: that of the run where it is floating, else its own."""
    own = DTYPES[int(run.graph.tensor_dtype[tensor])]
    return run.float_as if run.float_as and own.startswith(("float", "bfloat")) else own


def _kept_bytes(run: PlannedRun, tensor: int) -> float:
    """Of one tensor in its `_dtype`."""
    bits: int = _core.DTYPE_BITS[DTYPES.index(_dtype(run, tensor))]
    return bits / 8 * float(np.prod(run.graph.shape(tensor)))


def at_peak(nodes: Nodes) -> Chart:
    """The largest buffers alive at the peak, with the nodes that made them; of training those that autograd keeps."""
    run, plan = nodes.run, nodes.run.plan
    if len(nodes.times.phases) > 1:
        saved = allocation.saved(run)
        kept = [(t, int(run.graph.producer[t]), _kept_bytes(run, t)) for t in saved.tensors[:_TENSORS].tolist()]
        words = f"Of {size(saved.saved)} that autograd keeps between the passes, in {len(saved.tensors)} buffers"
        return _buffers(nodes, "Kept for the backward pass", kept, words, saved.saved)
    columns = (plan.peak_tensors, plan.peak_producers, plan.peak_bytes)
    alive = list(zip(*(column[:_TENSORS].tolist() for column in columns), strict=True))
    whole = plan.peak_activation_bytes
    words = f"Of {size(whole)} of activations alive at the peak, in {len(plan.peak_tensors)} buffers"
    return _buffers(nodes, "Alive at the peak", alive, words, whole)


def _buffers(nodes: Nodes, title: str, buffers: list[tuple[int, int, float]], words: str, whole: float) -> Chart:
    """``buffers``, the largest of ``whole`` bytes: tensor, its producer (-1: an input), its bytes."""
    graph = nodes.run.graph
    found = []
    for t, producer, held in buffers:
        shape = "x".join(map(str, graph.shape(t))) or "scalar"
        maker = nodes.name[producer] if producer >= 0 else f"input {graph.string(int(graph.tensor_name[t]))}"
        found.append((maker, f"{shape} {_dtype(nodes.run, t)}", float(held)))
    marks: list[Mark] = []
    longest = max((held for *_, held in found), default=1.0)
    names = []
    for i, (maker, shape, held) in enumerate(found):
        y = float(len(found) - i)
        names.append((y, maker if len(maker) <= _LETTERS else f"…{maker[1 - _LETTERS :]}"))
        marks.append(Box(0.0, held, y - 0.36, y + 0.36, 3, tip=f"{maker}, {shape}: {size(held)}"))
        marks.append(Note(held, y, f"{size(held)}, {shape}", colour="ink", stands="beside", short=size(held)))
    rest = whole - sum(held for *_, held in found)
    description = f"{words}, these are the largest; all others hold {size(max(rest, 0))}."
    rows = tuple((maker, shape, size(held)) for maker, shape, held in found)
    x = Axis("bytes", 0.0, longest * 1.8, form="size")
    y_axis = Axis("", 0.3, len(found) + 0.7, names=tuple(names))
    return Chart(
        title,
        headline(nodes.prediction),
        x,
        y_axis,
        tuple(marks),
        description,
        ("made by", "shape", "bytes"),
        rows,
        height=22.0 * max(len(found), 1) + 14,
    )


def holders(prediction: Any) -> Chart:
    """Memory in use by what holds it, with its interval; of a prediction that was read too."""
    parts = {name: held for name, held in prediction.breakdown["memory_bytes"].items() if held > 0}
    whole, in_use = sum(parts.values()), prediction.memory.in_use
    marks: list[Mark] = []
    start = 0.0
    for i, (name, held) in enumerate(parts.items()):
        text = f"{name} {size(held)}"
        tip = f"{text}, {held / whole:.1%}"
        marks.append(Box(start, start + held, 0.55, 1.45, _colour(name, i), text, name, tip, name))
        start += held
    bounds = (in_use.low, in_use.median, in_use.high)
    marks.append(Whisker(0.2, *bounds, "ink", f"in use: {said(in_use)}", "in use, with its interval"))
    x = around("bytes in use on the device", [whole, in_use.high], log=False, form="size")
    verdict = prediction.memory_verdict
    room = f" The device has {size(verdict.available_bytes)}." if verdict else ""
    main = max(parts, key=lambda name: parts[name], default="nothing")
    description = (
        f"{main.capitalize()} holds most, {size(parts.get(main, 0.0))}. The interval is one-sided: 98 in 100 runs stay "
        f"below its upper bound, {size(in_use.high)}.{room}"
    )
    rows = tuple((name, size(held), f"{held / whole:.1%}") for name, held in parts.items())
    y = Axis("", -0.2, 1.6, names=((1.0, "parts"), (0.2, "in use")))
    return Chart(
        "Memory in use, by what holds it",
        f"in use {said(in_use)}",
        x,
        y,
        tuple(marks),
        description,
        ("what", "bytes", "share"),
        rows,
        height=92,
    )


def holders_of_a_served_model(found: Any) -> Chart:
    """Memory of each GPU of a served language model, by what holds it, beside what an engine may use."""
    m = found.memory
    parts = {
        "weights": m.weights_bytes,
        "cache": m.cache_bytes,
        "activations": m.activation_bytes,
        "runtime": m.runtime_bytes,
    }
    marks: list[Mark] = []
    start = 0.0
    for name, held in parts.items():
        colour = _colour(name, 0)
        text = f"{name} {size(held)}"
        marks.append(Box(start, start + held, 0.6, 1.4, colour, text, name, text, name))
        start += held
    usable = float(m.usable_bytes)
    marks.append(Line(((usable, -0.1), (usable, 1.6)), "ink", "what the engine may use", True))
    reach, names, needed = [start, usable], [(1.0, "per GPU")], ""
    if m.needed is not None:
        bounds = (m.needed.low, m.needed.median, m.needed.high)
        marks.append(Whisker(0.2, *bounds, "ink", f"needed: {said(m.needed)}", "needed, with its interval"))
        reach.append(m.needed.high)
        names.append((0.2, "needed"))
        needed = f" Needed by this load: {said(m.needed)}."
    x = around("bytes on each GPU", reach, log=False, form="size")
    description = (
        f"{size(start)} of {size(m.usable_bytes)} usable bytes are taken on each GPU; {m.most_requests:,} requests of "
        f"this load fit at once. {digits(100 * m.cache_bytes / (start or 1))} % is the cache of those in flight. "
        f"Weights, cache and activations are counted.{needed}"
    )
    rows = tuple((name, size(held)) for name, held in parts.items())
    return Chart(
        "Memory of each GPU",
        f"{found.model['name']} on {found.device['name']}" + (f": needs {said(m.needed)}" if m.needed else ""),
        x,
        Axis("", -0.2, 1.6, names=tuple(names)),
        tuple(marks),
        description,
        ("what", "bytes"),
        rows,
        height=92,
    )
