"""Charts of one run: operators under the roofline, time by class of operator, and by module as an icicle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from perfpass.graph import OPERATOR_CLASSES, OPERATORS
from perfpass.interval import Interval
from perfpass.predictors.roofline import RATES
from perfpass.report.chart import SHAPES, Axis, Box, Chart, Dot, Dots, Line, Mark, Note, Whisker, around
from perfpass.report.nodes import Frame, Nodes, asked_of, workload_line
from perfpass.report.palette import CLASSES, GREY, class_colour
from perfpass.text import count, digits
from perfpass.text import interval as cells

_ROWS = 40  # of a chart's table
_THINNEST = 1.5e-3  # share of the whole that a frame must have to be drawn
_FRAME = 24.0  # height of a frame, in pixels
_DEEPEST = 14


def said(found: Interval) -> str:
    """A median with its bounds: "5.9 ms (3.4 to 13.9, 90 %)"; a figure that has none is exact."""
    median, unit, bounds = cells(found.median, found.low, found.high, found.unit)
    if found.low == found.high:
        return f"{median} {unit}"
    return f"{median} {unit} ({bounds}, {found.coverage:.0%})".replace("%", " %")


def headline(prediction: Any) -> str:
    """Workload and time with its interval: what stands under the title of every picture of a run."""
    w, device = prediction.workload, prediction.provenance["device"]["name"]
    return f"{workload_line(w, device, asked_of(prediction))}: {said(prediction.latency_ms)} {a_run(prediction)}"


def a_run(prediction: Any) -> str:
    """What the time is of: a run, or a step of training."""
    return "a step" if prediction.workload["mode"] == "training" else "a run"


def class_shape(name: str) -> Any:
    """The marker of an operator class."""
    return SHAPES[CLASSES[name] % len(SHAPES)] if name in CLASSES else "cross"


def _class_label(name: str) -> str:
    return name.replace("_", " ")


def roofline(nodes: Nodes) -> Chart:
    """FLOP/s that the predicted times mean, by arithmetic intensity, under the roofs of the device.

    Roofs: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.

    Equal operators are one point; of a training step the forward pass is shown.
    """
    p, run, device = nodes.prediction, nodes.run, nodes.run.way.device
    table = run.table
    many = np.asarray(table.count, dtype=np.float64)
    flops = np.asarray(table.flops, dtype=np.float64) * many
    moved = (np.asarray(table.bytes_read, dtype=np.float64) + np.asarray(table.bytes_written, dtype=np.float64)) * many
    known = nodes.times.row >= 0
    ms = np.bincount(nodes.times.row[known], nodes.times.ms[0][known], len(many))
    example = np.asarray(table.first_node).copy()
    example[nodes.times.row[known][::-1]] = np.flatnonzero(known)[::-1]
    shown = np.flatnonzero((flops > 0) & (moved > 0) & (ms > 0))
    whole = max(float(ms.sum()), 1e-300)
    intensity, rate = flops[shown] / moved[shown], flops[shown] / (ms[shown] * 1e-3)
    by_class: dict[str, list[Dot]] = {}
    rows = []
    for i in np.argsort(-ms[shown], kind="stable").tolist():
        r, share = int(shown[i]), float(ms[shown[i]] / whole)
        label, kind = nodes.name[int(example[r])], OPERATOR_CLASSES[int(table.op_class[r])]
        times = f"{digits(many[r])} x " if many[r] != 1 else ""
        tip = f"{times}{OPERATORS[int(table.op[r])]}, {label}: {digits(ms[r])} ms, {count(rate[i], 'FLOP/s')}"
        by_class.setdefault(kind, []).append(Dot(float(intensity[i]), float(rate[i]), share, tip))
        figures = (digits(many[r]), digits(ms[r]), digits(intensity[i]), count(rate[i]), f"{share:.1%}")
        rows.append((label, kind, *figures))
    total, all_moved = float(flops.sum()), float(moved.sum())
    training = len(nodes.times.phases) > 1
    middle = total / all_moved if all_moved else 1.0
    scale = whole / max(float(sum(p.breakdown["latency_ms"].values())), 1e-300) if training else 1.0
    reached = [total / (v * scale * 1e-3) for v in (p.latency_ms.high, p.latency_ms.median, p.latency_ms.low) if v > 0]
    # Convolutions take TF32 of themselves in cuDNN, all products do in TensorRT.
    halved = "convolution" in by_class or run.way.runtime == "tensorrt"
    roofs = _roofs(device, run.way.precision, ("tf32",) if halved else ())
    bandwidth = device.memory_bandwidth_bytes_s
    ridges = [peak / bandwidth for peak in roofs.values()]
    x = around("arithmetic intensity (FLOP per byte moved)", [*intensity.tolist(), middle, *ridges], log=True)
    tops = [*roofs.values(), *rate.tolist(), *reached]
    y = around("FLOP/s", tops, log=True, form="count", margin=0.08)
    marks: list[Mark] = [*_roof_marks(roofs, bandwidth, x, y)]
    for kind in sorted(by_class, key=lambda k: -sum(d.share for d in by_class[k])):
        colour, shape = class_colour(kind), class_shape(kind)
        marks.append(Dots(tuple(by_class[kind]), colour, shape, _class_label(kind)))
    if len(reached) == 3:
        tip = f"whole {'forward pass' if training else 'run'}: {count(reached[1], 'FLOP/s')}"
        marks.append(
            Whisker(middle, reached[0], reached[1], reached[2], "ink", tip, "the whole run, 90 % interval", True)
        )
    above = float(ms[shown][intensity * bandwidth >= max(roofs.values())].sum() / whole)
    idle = 1 - float(ms[shown].sum()) / whole
    description = (
        f"Each point is a kind of operator, its area the share of the time, at the rate that its predicted time means. "
        f"{above:.0%} of the time is in operators right of the ridge, which arithmetic bounds; {idle:.0%} is in "
        "operators without arithmetic, which have no point. The whole reaches "
        f"{count(reached[len(reached) // 2], 'FLOP/s')} of {count(max(roofs.values()), 'FLOP/s')}."
        + (" Of the training step the forward pass is shown." if training else "")
    )
    head = ("operator", "class", "runs", "ms", "FLOP/byte", "FLOP/s", "share")
    return Chart(
        "Roofline with the model's operators",
        headline(p),
        x,
        y,
        tuple(marks),
        description,
        head,
        tuple(rows[:_ROWS]),
        height=360,
    )


def _roofs(device: Any, precision: str, instead_of_fp32: tuple[str, ...]) -> dict[str, float]:
    name = RATES.get(precision, precision)
    names = (name, "fp32", *(instead_of_fp32 if name == "fp32" else ()))
    found = {key: device.peak_flops[key] for key in dict.fromkeys(names) if key in device.peak_flops}
    return found or {"fp32": max(device.peak_flops.values())}


def _roof_marks(roofs: dict[str, float], bandwidth: float, x: Axis, y: Axis) -> Iterator[Mark]:
    highest = max(roofs.values())
    start = max(x.low, y.low / bandwidth)
    yield Line(((start, start * bandwidth), (highest / bandwidth, highest)), "soft", width=1.5)
    yield Note(start, start * bandwidth, f"memory {count(bandwidth, 'B/s')}", stands="below")
    for name, peak in roofs.items():
        yield Line(((peak / bandwidth, peak), (x.high, peak)), "soft", width=1.5, dashed=peak != highest)
        yield Note(
            x.high, peak, f"{name} {count(peak, 'FLOP/s')}", "end", stands="above" if peak == highest else "below"
        )


def operators(prediction: Any) -> Chart:
    """Time by class of operator; of a prediction that was read too."""
    found: dict[str, float] = prediction.breakdown["latency_ms"]
    total = sum(found.values()) or 1.0
    names = list(found)
    places = {name: float(len(names) - i) for i, name in enumerate(names)}
    latency = prediction.latency_ms
    low, high = latency.low / latency.median, latency.high / latency.median
    longest = max(found.values(), default=1.0)
    marks: list[Mark] = []
    for name, ms in found.items():
        text = f"{_class_label(name)}: {digits(ms)} ms, {ms / total:.1%}"
        marks.append(Box(0.0, ms, places[name] - 0.36, places[name] + 0.36, class_colour(name), tip=text))
        marks.append(Note(ms, places[name], f"{digits(ms)} ms, {ms / total:.1%}", colour="ink", stands="beside"))
    x = Axis(f"milliseconds of {a_run(prediction)} (median)", 0.0, longest * 1.28)
    y = Axis("", 0.3, len(names) + 0.7, names=tuple((places[n], _class_label(n)) for n in names))
    main = names[0] if names else "nothing"
    description = (
        f"{_class_label(main).capitalize()} takes most, {found.get(main, 0) / total:.0%} of the time. The interval "
        f"of the whole reaches from {low:.2f} to {high:.2f} times its median; that of one class is not known apart."
    )
    rows = tuple((_class_label(n), digits(ms), f"{ms / total:.1%}") for n, ms in found.items())
    return Chart(
        "Time by class of operator",
        headline(prediction),
        x,
        y,
        tuple(marks),
        description,
        ("class", "ms", "share"),
        rows,
        height=24.0 * len(names) + 12,
    )


def icicle(nodes: Nodes, *, flame: bool = False) -> Chart:
    """Time by module of the source model, the whole at the top; ``flame``: at the bottom."""
    tree = nodes.tree()
    boxes: list[tuple[int, float, Frame, tuple[str, ...]]] = [(0, 0.0, tree, ())]
    boxes += _frames(tree, 1, 0.0, tree.ms, ())
    depth = max(level for level, *_ in boxes) + 1
    marks: list[Mark] = []
    labelled: set[str] = set()
    for level, start, frame, path in boxes:
        share = frame.ms / (tree.ms or 1.0)
        kind = frame.main_class
        where = _where(path, frame) or "the whole run"
        tip = f"{where}: {digits(frame.ms)} ms, {share:.1%}"
        label = _class_label(kind) if level and kind and kind not in labelled else ""
        labelled.add(kind if level else "")
        top = level if flame else depth - level
        y0, y1 = (top, top + 0.94) if flame else (top - 0.94, top)
        name = (
            frame.name.rpartition("/")[2]
            if level
            else f"{asked_of(nodes.prediction) or 'the whole run'}, {digits(frame.ms)} ms"
        )
        colour = class_colour(kind) if level and kind else GREY
        marks.append(Box(start, start + frame.ms, y0, y1, colour, name, "", tip, label))
    x = Axis(f"milliseconds of {a_run(nodes.prediction)} (median)", 0.0, tree.ms or 1.0)
    largest = sorted(tree.walk(), key=lambda found: -found[2].ms)[:_ROWS]
    rows = tuple(
        (_where(path, frame), digits(frame.ms), f"{frame.ms / (tree.ms or 1.0):.1%}", _class_label(frame.main_class))
        for _, path, frame in largest
    )
    what = "module" if nodes.by_module else "class of operator (the names of the nodes say no modules)"
    first = max(tree.children.values(), key=lambda f: f.ms, default=tree)
    description = (
        f"Time by {what}: a frame is as wide as the time of all that is in it, and stands "
        f"{'above' if flame else 'below'} the one that holds it; its colour is the operator class that takes most. "
        f"{first.name} takes most of the first level, {first.ms / (tree.ms or 1.0):.0%}. "
        f"Frames under {_THINNEST:.2%} are left out."
    )
    title = f"Time by module, as {'a flame graph' if flame else 'an icicle'}"
    return Chart(
        title,
        headline(nodes.prediction),
        x,
        Axis("", 0.0, float(depth)),
        tuple(marks),
        description,
        ("module or node", "ms", "share", "mostly"),
        rows,
        height=_FRAME * depth,
        bare=True,
    )


def _where(path: tuple[str, ...], frame: Frame) -> str:
    """A node's own name, or the path of a module."""
    return frame.name if frame.leaf and path else "/".join(path)


def _frames(
    frame: Frame, level: int, start: float, whole: float, path: tuple[str, ...]
) -> list[tuple[int, float, Frame, tuple[str, ...]]]:
    found = []
    for child in frame.children.values():
        if child.ms >= _THINNEST * whole and level < _DEEPEST:
            here = (*path, child.name)
            found.append((level, start, child, here))
            found += _frames(child, level + 1, start, whole, here)
        start += child.ms
    return found
