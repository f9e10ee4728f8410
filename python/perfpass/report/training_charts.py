"""Charts of training a language model on one to many devices, from what `TrainCost.to_dict` gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfpass.interval import Interval
from perfpass.report.chart import Axis, Box, Chart, Line, Mark, Whisker, around
from perfpass.report.run_charts import said
from perfpass.text import digits, size

# What a device holds, by its name in a document, and the colour of its kind in every picture of memory.
HOLDS = {
    "weights": ("weights", 0),
    "gradients": ("gradients", 1),
    "master": ("master copy", 6),
    "moments": ("optimizer", 2),
    "gathered": ("gathered weights", 5),
    "activations": ("activations", 3),
    "working": ("loss, a layer", 4),
    "update": ("update", 7),
    "workspace": ("workspaces", 6),
}
_MOST_STAGES = 16


def stages(found: Mapping[str, Any]) -> Chart:
    """Memory of each pipeline stage at its peak, by what holds it, and what a device shows of the fullest."""
    every, fullest = found["stages"], int(found["fullest_stage"])
    shown = list(range(len(every)))
    if len(shown) > _MOST_STAGES:
        shown = sorted({*shown[: _MOST_STAGES - 2], fullest, shown[-1]})
    marks: list[Mark] = []
    names = []
    for row, stage in enumerate(shown):
        y, start = float(len(shown) - row), 0.0
        names.append((y, f"stage {stage + 1}"))
        for part, (name, colour) in HOLDS.items():
            held = float(every[stage].get(part, 0.0))
            if held > 0:
                text = f"{name} {size(held)}"
                marks.append(Box(start, start + held, y - 0.32, y + 0.32, colour, text, name, text, name))
                start += held
    in_use = Interval(**found["memory_in_use_bytes"])
    limit = float(found["device_memory_bytes"])
    bounds = (in_use.low, in_use.median, in_use.high)
    marks.append(Whisker(0.2, *bounds, "ink", f"in use: {said(in_use)}", "as the device shows it, with its interval"))
    names.append((0.2, "in use"))
    marks.append(Line(((limit, -0.1), (limit, len(shown) + 0.5)), "ink", "the device's memory", True))
    x = around("bytes on each device", [in_use.high, limit], log=False, form="size")
    parts = {name: float(every[fullest].get(part, 0.0)) for part, (name, _) in HOLDS.items()}
    most = max(parts, key=lambda name: parts[name])
    description = (
        f"Stage {fullest + 1} of {len(every)} is the fullest: {size(float(every[fullest]['peak']))} of tensors at its "
        f"peak, most of them {most}, {size(parts[most])}. The device shows {said(in_use)} of {size(limit)}."
    )
    rows = tuple((name, size(held)) for name, held in parts.items() if held > 0)
    return Chart(
        "Memory at the peak, by what holds it",
        f"the fullest stage {size(float(every[fullest]['peak']))}",
        x,
        Axis("", -0.2, len(shown) + 0.6, names=tuple(names)),
        tuple(marks),
        description,
        (f"stage {fullest + 1}", "bytes"),
        rows,
        height=34.0 * len(shown) + 50,
    )


def step(found: Mapping[str, Any]) -> Chart:
    """Seconds of a step by cause."""
    parts = {name.replace("_", " "): float(s) for name, s in found["step_parts_s"].items() if float(s) > 0}
    order = sorted(parts, key=lambda name: -parts[name])
    whole = sum(parts.values())
    marks: list[Mark] = []
    start = 0.0
    for colour, name in enumerate(order):
        text = f"{name} {parts[name] / whole:.0%}"
        tip = f"{name}: {digits(parts[name])} s, {parts[name] / whole:.1%}"
        marks.append(Box(start, start + parts[name], 0.55, 1.45, colour % 8, text, name, tip, name))
        start += parts[name]
    seconds = Interval(**found["step_s"])
    bounds = (seconds.low, seconds.median, seconds.high)
    marks.append(Whisker(0.2, *bounds, "ink", f"a step: {said(seconds)}", "a step, with its interval"))
    rows = tuple((name, f"{digits(parts[name])} s", f"{parts[name] / whole:.1%}") for name in order)
    return Chart(
        "Time of a step, by cause",
        f"a step takes {said(seconds)}",
        around("seconds", [whole, seconds.high], log=False),
        Axis("", -0.2, 1.6, names=((1.0, "causes"), (0.2, "a step"))),
        tuple(marks),
        f"Most goes to {order[0]}, {parts[order[0]] / whole:.0%} of {digits(whole)} s.",
        ("cause", "seconds", "share"),
        rows,
        height=92,
    )
