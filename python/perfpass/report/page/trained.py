"""Pages of training a language model on many devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from perfpass.deploy.train_cost import Layouts, TrainCost, described
from perfpass.interval import Interval
from perfpass.report.chart import Axis, Box, Chart, Line, Mark, Note, Whisker, around
from perfpass.report.page.blocks import (
    Block,
    Cell,
    Key,
    Page,
    Points,
    Section,
    Tone,
    Words,
    interval_cell,
    key,
    table,
)
from perfpass.report.run_charts import said
from perfpass.text import digits, size

_SURE = 0.9  # of fitting: what `perfpass train-cost` calls so
_SHOWN = 12
_J_PER_KWH = 3.6e6
_PARTS = {
    "weights": "weights", "gradients": "gradients", "master": "master copy", "moments": "optimizer",
    "workspace": "workspace", "gathered": "gathered weights", "activations": "activations",
    "working": "loss and layer at work", "update": "update",
}  # fmt: skip
# Of parts beside one another: the palette's two blues are not neighbours.
_COLOURS = (0, 1, 2, 3, 4, 7, 5, 6, 0)


def trained_page(found: TrainCost, among: Layouts | None = None) -> Page:
    """A training run: whether it fits, its step, and what it costs. ``among``: the layouts that it was chosen from."""
    run = found.predicted
    name = f"{found.model} on {found.devices} x {found.device}"
    headline, tone = _decision(found, name, among)
    layout = described(found.layout, found.recipe)
    lead = [f"{found.framework}, {found.precision}, {layout}; {found.tokens_per_step:,} tokens a step."]
    if found.tokens:
        lead[0] += f" The run has {found.tokens:,.0f} tokens."
    lead.append("Figures are medians with the bounds of nine in ten measured values.")
    keys = [key("step", run.step_s), _tokens(found.tokens_per_s), key("memory of a device", run.in_use)]
    keys += [key(label, value) for label, value in (("time", found.hours), ("money", found.usd)) if value is not None]
    keys += [] if found.hours else [key("power of a device", run.power_w)]
    sections = [Section("Figures", (_figures(found),))]
    if among is not None:
        sections.insert(0, Section("Layouts", (_layouts(among),)))
    sections += [
        Section("Where the step goes", (_step(found, name),)),
        Section("Memory", _memory(found, name)),
        Section("What it rests on", _basis(found)),
    ]
    return Page(f"{name}: training", headline, tone, tuple(lead), tuple(keys), tuple(sections))


def _decision(found: TrainCost, name: str, among: Layouts | None) -> tuple[str, Tone]:
    chance, step = found.predicted.fits_probability, said(found.predicted.step_s)
    memory = f"{size(found.predicted.in_use.median)} of {size(found.memory_bytes)}"
    if among is not None and not among.best:
        return f"{name}: none of {among.tried} layouts fits; the nearest needs {memory} a device", "bad"
    best = f"the quickest of {len(among.best)} layouts that fit takes" if among is not None else "a step takes"
    if chance >= _SURE:
        return f"{name}: fits (P = {chance:.2f}), {best} {step}", "good"
    if chance <= 1 - _SURE:
        return f"{name}: does not fit (P = {chance:.2f}), {memory} a device", "bad"
    return f"{name}: may not fit (P = {chance:.2f}), {memory} a device; {best} {step}", "unsure"


def _tokens(found: Interval) -> Key:
    return key("tokens, all devices", found, "tokens/s")


def _figures(found: TrainCost) -> Block:
    run = found.predicted
    of_one = found.tokens_per_s.scaled(1 / found.devices, "tokens/s")
    rows: list[tuple[str, Any]] = [
        ("step", interval_cell(run.step_s)),
        ("tokens of all devices", interval_cell(found.tokens_per_s)),
        ("tokens of one device", interval_cell(of_one)),
        ("power of one device", interval_cell(run.power_w)),
        ("memory of one device", interval_cell(run.in_use)),
        ("model FLOP utilisation (MFU)", Cell(f"{100 * run.mfu:.0f} % of the 16-bit peak", run.mfu)),
    ]
    energy = found.energy_j and found.energy_j.scaled(1 / _J_PER_KWH, "kWh")
    carbon = found.carbon_g and found.carbon_g.scaled(1e-3, "kgCO2e")
    named = {"time": found.hours, "money": found.usd, "energy": energy, "carbon": carbon}
    rows += [(f"{label} of the run", interval_cell(value)) for label, value in named.items() if value is not None]
    return table("All figures", ("figure", "median, and bounds of the interval"), rows)


def _layouts(among: Layouts) -> Block:
    shown = among.best or among.others
    rows = [
        (
            described(one.layout, one.recipe),
            interval_cell(one.predicted.step_s),
            interval_cell(one.tokens_per_s),
            f"{one.predicted.fits_probability:.2f}",
            interval_cell(one.predicted.in_use),
        )
        for one in shown[:_SHOWN]
    ]
    which = "the quickest first" if among.best else "the nearest first"
    caption = f"{len(among.best)} of {among.tried} layouts fit; {which}"
    return table(caption, ("layout", "step", "tokens, all devices", "P(fits)", "memory of a device"), rows)


def _step(found: TrainCost, name: str) -> Chart:
    run = found.predicted
    parts = {f.name.replace("_", " "): float(getattr(run.parts_s, f.name)) for f in fields(run.parts_s)}
    parts = {part: s for part, s in sorted(parts.items(), key=lambda one: -one[1]) if s > 0}
    whole = sum(parts.values()) or 1.0
    marks: list[Mark] = []
    names = []
    for i, (part, seconds) in enumerate(parts.items()):
        y, text = float(len(parts) - i), f"{digits(seconds)} s, {seconds / whole:.1%}"
        names.append((y, part))
        marks += [Box(0.0, seconds, y - 0.36, y + 0.36, 0, tip=f"{part}: {text}"), _beside(seconds, y, text)]
    main = next(iter(parts), "nothing")
    description = (
        f"Most of the step is {main}, {parts.get(main, 0) / whole:.0%}. The interval is that of the whole step; that "
        "of one part is not known apart."
    )
    return Chart(
        "Time of a step, by what takes it",
        f"{name}: {said(run.step_s)} a step",
        Axis("seconds of a step (median)", 0.0, max(parts.values(), default=1.0) * 1.28),
        Axis("", 0.3, len(parts) + 0.7, names=tuple(names)),
        tuple(marks),
        description,
        ("part", "s", "share"),
        tuple((part, digits(s), f"{s / whole:.1%}") for part, s in parts.items()),
        height=24.0 * len(parts) + 12,
    )


def _beside(x: float, y: float, text: str) -> Note:
    return Note(x, y, text, colour="ink", stands="beside")


def _memory(found: TrainCost, name: str) -> tuple[Block, ...]:
    run = found.predicted
    stage = run.memory.stages[run.memory.fullest]
    parts = {label: float(getattr(stage, part)) for part, label in _PARTS.items() if getattr(stage, part) > 0}
    marks: list[Mark] = []
    start = 0.0
    for i, (label, held) in enumerate(parts.items()):
        text = f"{label} {size(held)}"
        marks.append(Box(start, start + held, 0.55, 1.45, _COLOURS[i], text, label, text, label))
        start += held
    bounds = run.in_use
    marks.append(Whisker(0.2, bounds.low, bounds.median, bounds.high, "ink", f"in use: {said(bounds)}", "in use"))
    room = float(found.memory_bytes)
    marks.append(Line(((room, -0.1), (room, 1.6)), "ink", "memory of the device", True))
    description = (
        f"Each device of the fullest stage ({run.memory.fullest + 1} of {found.layout.pipeline}) needs {said(bounds)} "
        f"of {size(room)}; it fits with P = {run.fits_probability:.2f}."
    )
    chart = Chart(
        "Memory of a device, by what holds it",
        name,
        around("bytes on each device", [start, bounds.high, room], log=False, form="size"),
        Axis("", -0.2, 1.7, names=((1.0, "parts"), (0.2, "in use"))),
        tuple(marks),
        description,
        ("what", "bytes"),
        tuple((label, size(held)) for label, held in parts.items()),
        height=92,
    )
    host = (Words(f"Beside it {size(stage.host)} of the host's memory for each device."),) if stage.host else ()
    return (chart, *host)


def _basis(found: TrainCost) -> tuple[Block, ...]:
    rows = [(label.replace("_", " "), str(value)) for label, value in _flat(found.to_dict()) if value is not None]
    notes = (Points(found.notes),) if found.notes else ()
    return (*notes, table("The layout and the recipe", ("what", "value"), rows))


def _flat(document: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found = {**document["layout"], **document["recipe"]}
    return [(label, value) for label, value in found.items() if not isinstance(value, (dict, list))]
