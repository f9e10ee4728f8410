"""Pages of a sweep, a fleet, a difference, a fit and a choice, from what their `to_dict` gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfpass.errors import FormatError, UnsupportedError
from perfpass.interval import Interval
from perfpass.report import mig_charts, sweep_charts
from perfpass.report.chart import Axis, Chart, Line, Mark, Whisker, around
from perfpass.report.page.blocks import Block, Cell, Page, Points, Section, Tone, Words, interval_cell, table
from perfpass.report.page.runs import support_blocks, whiskers
from perfpass.report.page.training import layouts_page, training_page
from perfpass.text import count, digits, size

if TYPE_CHECKING:
    from perfpass.deploy.sweep import Sweep

_TONES: dict[str, Tone] = {
    "yes": "good",
    "held": "good",
    "chosen": "good",
    "optimal": "good",
    "feasible": "plain",
    "no": "bad",
    "broken": "bad",
    "unsatisfiable": "bad",
    "none meets": "bad",
    "cannot say": "unsure",
    "unknown": "unsure",
}
_MOST_POINTS = 500
# What a choice is asked, in words.
_ASKED = {
    "rate_per_s": "{} requests a second", "concurrency": "{} requests in flight",
    "input_length": "prompts of {} tokens", "output_length": "answers of {} tokens",
    "ttft_ms": "first token within {} ms", "tpot_ms": "a token within {} ms",
    "latency_ms": "a run or request within {} ms", "p99_ms": "99 in 100 within {} ms",
    "max_usd_per_hour": "at most {} USD an hour", "max_power_w": "at most {} W", "confidence": "with probability {}",
}  # fmt: skip


def sweep_page(found: Sweep) -> Page:
    """A sweep: its front first, then figures by batch or load, then the points."""
    x, y = sweep_charts.objectives(found)
    asked = int(found.ok.sum())
    blocks: list[Block] = []
    front = sweep_charts.pareto(found, x, y)
    first, last = front.rows[0], front.rows[-1]
    least = [
        f"{row[0]}, with the least {name}: {row[i]}"
        for row, name, i in ((first, front.head[1], 1), (last, front.head[2], 2))
    ]
    headline = (
        f"{found.model}: {len(front.rows)} of {len(found):,} points are on the front, from {least[0]}, to {least[1]}"
        if len(front.rows) > 1
        else f"{found.model}: of {len(found):,} points {first[0]} has the least of both, {front.head[1]}: {first[1]}, "
        f"{front.head[2]}: {first[2]}"
    )
    sections = [Section("Pareto front", (front,))]
    try:
        lines = (sweep_charts.against_batch(found),) if "batch" in found.settings else sweep_charts.against_load(found)
        sections.append(Section("By batch" if "batch" in found.settings else "By load", lines))
    except Exception as error:
        if not isinstance(error, (UnsupportedError, ValueError)):
            raise
        blocks.append(Words(str(error)))
    figures = [name for name in found.figures if name != "fits"]
    rows = [
        (
            ", ".join(str(point[s]) for s in found.settings[:4]),
            *(_cell(point[s]) for s in found.settings[4:]),
            *(_figure(point, f) for f in figures),
        )
        for point in found.rows()
        if not point["problem"]
    ]
    settings = [name.replace("_", " ") for name in found.settings[4:]]
    head = (
        ", ".join(name.replace("_", " ") for name in found.settings[:4]),
        *settings,
        *(sweep_charts.label_of(f) for f in figures),
    )
    blocks.append(table(f"Points with figures ({asked:,} of {len(found):,})", head, rows, _MOST_POINTS))
    if problems := found.problems():
        blocks += [Words("Without figures:"), Points(tuple(line.strip() for line in problems))]
    if found.notes:
        blocks.append(Points(found.notes))
    sections.append(Section("Points", tuple(blocks)))
    lead = (f"{sweep_charts.label_of(x)} against {sweep_charts.label_of(y)}; every figure has a 90 % interval.",)
    return Page(f"Sweep of {found.model}", headline, "plain", lead, (), tuple(sections))


def _cell(value: Any) -> Cell:
    return Cell(digits(float(value)), float(value)) if isinstance(value, (int, float)) else Cell(str(value))


def _figure(point: Mapping[str, Any], name: str) -> Cell:
    value = point.get(name)
    if value is None:
        return Cell("not known", float("inf"))
    show = size if name == "peak_memory_bytes" else digits
    low, high = point.get(f"{name}_low"), point.get(f"{name}_high")
    bounds = "" if low is None or high is None else f" ({show(low)} to {show(high)})"
    return Cell(f"{show(value)}{bounds}", float(value))


def fleet_page(found: Mapping[str, Any]) -> Page:
    """A packed fleet: the GPUs, the models, what is left over, the steps from today."""
    sections: list[Section] = []
    if found["gpus"]:
        chart = mig_charts.fleet(found)
        free = sum(g["free_compute"] for g in found["gpus"]), sum(g["free_memory"] for g in found["gpus"])
        left = Words(f"Left over: {free[0]} compute and {free[1]} memory slices.")
        times = mig_charts.fleet_times(found)
        sections.append(Section("GPUs", (chart, left, table("Instances", chart.head, chart.rows), times)))
    if problems := found.get("problems"):
        blocks: list[Block] = [Points(tuple(problems["reasons"]))]
        if problems["would_do"]:
            blocks += [Words("Each of these alone would do:"), Points(tuple(problems["would_do"]))]
        sections.append(Section("Why it cannot be packed", tuple(blocks)))
    names = ("instances", "copies", "rate_per_s", "capacity_per_s", "p_meets", "p_fits")
    rows = [(m["name"], *(_known(m[name]) for name in names)) for m in found["models"]]
    head = ("model", "instances", "copies", "asked per second", "serves per second", "P(meets)", "P(fits)")
    sections.append(Section("Models", (table("Models, and what they are given", head, rows),)))
    if found.get("steps"):
        sections.append(Section("From today's layout", (Points(tuple(_step(step) for step in found["steps"])),)))
    if found.get("notes"):
        sections.append(Section("Notes", (Points(tuple(found["notes"])),)))
    lead = (
        f"Targets are met with P >= {found['confidence']:g}, memory fits with P >= {found['memory_confidence']:g}; at "
        f"most {found['utilisation']:.0%} of what an instance serves is asked of it.",
    )
    return Page("Fleet", found["headline"], _TONES.get(found["status"], "plain"), lead, (), tuple(sections))


def _known(value: Any) -> Cell:
    return Cell("-") if value is None else _cell(value)


def _step(step: Any) -> str:
    return step if isinstance(step, str) else ", ".join(f"{k} {v}" for k, v in step.items() if v not in (None, "", []))


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def diff_page(found: Mapping[str, Any]) -> Page:
    """What changed from one model to another, as ratios with their intervals."""
    said = {"batch": lambda value: f"batch {value}", "cuda_graph": lambda value: "as a CUDA graph"}
    way = ", ".join(said.get(name, str)(value) for name, value in found["workload"].items() if value is not None)
    changed = "".join(f", {name} {_word(value)}" for name, value in found["change"].items())
    tone: Tone = _TONES.get(found["answer"], "plain") if found["limits"] else "plain"
    lead = (f"{found['old']} -> {found['new']}{changed}", f"Ratios are new over old; {way}.")
    sections = [
        Section(
            f"On {on['name']}",
            (
                _ratios(on),
                _ratio_table(on["ratios"]),
                _moved(on),
                *support_blocks(on["support"]["level"], on["support"]["reasons"]),
            ),
        )
        for on in found["devices"]
    ]
    sections.append(Section("What is counted", (_ratio_table(found["exact"]),)))
    if found["limits"]:
        rows = [
            (v["device"] or "", v["metric"], f"{v['allowed_pct']:g} %", f"{v['probability_within']:.2f}", v["answer"])
            for v in found["limits"]
        ]
        sections.insert(
            0,
            Section(
                "Limits",
                (
                    table(
                        "Each limit on each device", ("device", "figure", "allowed worse", "P(within)", "answer"), rows
                    ),
                ),
            ),
        )
    changes = found["changes"]
    differ = [
        (c["name"], c["kind"], c["what"], ", ".join(c["differences"]))
        for c in (*changes["operators"], *changes["tensors"])
    ]
    what: list[Block] = [Words(f"{changes['same_operators']} operators are the same.")]
    if differ:
        what.append(table("What differs", ("name", "kind", "what", "how"), differ))
    sections.append(Section("What changed", tuple(what)))
    return Page(f"{found['old']} -> {found['new']}", found["headline"], tone, lead, (), tuple(sections))


def _ratios(on: Mapping[str, Any]) -> Chart:
    known = [(name, r) for name, r in on["ratios"].items() if r["ratio"] is not None and r["low"] > 0]
    marks: list[Mark] = [Line(((1.0, 0.2), (1.0, len(known) + 0.8)), "soft", "unchanged", True, 1.5)]
    names = []
    for i, (name, r) in enumerate(known):
        y = float(len(known) - i)
        names.append((y, name))
        marks.append(
            Whisker(y, r["low"], r["ratio"], r["high"], 0, f"{name}: {_ratio(r)}", "new over old, 90 % interval")
        )
    values = [1.0, *(r[k] for _, r in known for k in ("low", "high"))]
    x = around("new over old", values, log=True)
    description = f"Right of 1 the new model has more. {'; '.join(f'{name} {_ratio(r)}' for name, r in known)}."
    rows = tuple((name, _ratio(r)) for name, r in known)
    return Chart(
        f"Ratios on {on['name']}",
        f"batch {on['batch']}",
        x,
        Axis("", 0.3, len(known) + 0.7, names=tuple(names)),
        tuple(marks),
        description,
        ("figure", "ratio"),
        rows,
        height=30.0 * len(known) + 10,
    )


def _ratio(r: Mapping[str, Any]) -> str:
    if r["ratio"] is None:
        return "from 0"
    return (
        f"{digits(r['ratio'])}x" if r["exact"] else f"{digits(r['ratio'])}x ({digits(r['low'])} to {digits(r['high'])})"
    )


def _ratio_table(ratios: Mapping[str, Any]) -> Block:
    rows = [
        (name, _unit(r["old"], r["unit"]), _unit(r["new"], r["unit"]), Cell(_ratio(r), r["ratio"]))
        for name, r in ratios.items()
    ]
    return table("Figures", ("figure", "old", "new", "ratio, 90 % interval"), rows)


def _unit(value: float, unit: str) -> Cell:
    text = size(value) if unit == "byte" else count(value) if value >= 1e4 else f"{digits(value)} {unit}".strip()
    return Cell(text, value)


def _moved(on: Mapping[str, Any]) -> Block:
    moved = on["latency_ms_by_class"]
    order = sorted(moved, key=lambda name: -abs(moved[name]["new"] - moved[name]["old"]))
    rows = [
        (
            n.replace("_", " "),
            digits(moved[n]["old"]),
            digits(moved[n]["new"]),
            Cell(f"{moved[n]['new'] - moved[n]['old']:+.3g}", moved[n]["new"] - moved[n]["old"]),
        )
        for n in order
    ]
    return table("Milliseconds by class of operator", ("class", "old", "new", "change"), rows)


def fit_page(found: Mapping[str, Any]) -> Page:
    """Whether a model fits, by device, and what would change it."""
    answers = found["answers"]
    intervals = [
        (f"{a['gpus']} x {a['device']}" if a["gpus"] > 1 else a["device"], _interval(a["needed"])) for a in answers
    ]
    rows = [
        (
            name,
            a["answer"],
            _known(a["probability"]),
            interval_cell(needed),
            Cell(size(a["limit_bytes"]), a["limit_bytes"]),
            Cell(a["reason"]),
        )
        for (name, needed), a in zip(intervals, answers, strict=True)
    ]
    blocks: list[Block] = [table("By device", ("device", "fits", "P(fits)", "needed", "of", "because"), rows)]
    if intervals:
        room = [float(a["limit_bytes"]) for a in answers]
        blocks.append(whiskers("Memory needed on each device", "bytes", intervals, room, "what may be filled"))
    changes = [
        (a["device"], c["kind"], c["text"], _known(c["probability"]), Cell(size(c["needed_bytes"]), c["needed_bytes"]))
        for a in answers
        for c in a["changes"]
    ]
    sections = [Section("Memory", tuple(blocks))]
    if changes:
        head = ("device", "kind", "change", "P(fits)", "needed")
        sections.append(Section("What would make it fit", (table("Each change alone", head, changes),)))
    counted = [
        (k.replace("_", " "), str(v)) for k, v in {**found["load"], **found["settings"]}.items() if v is not None
    ]
    basis: list[Block] = [table("What was counted", ("what", "value"), counted)]
    basis += [Points(tuple(found["notes"]))] if found["notes"] else []
    sections.append(Section("What it rests on", tuple(basis)))
    lead = (
        f"{found['model']}, {found['kind']}, {count(found['parameters'])} parameters, {found['runtime']}; "
        f"confidence {found['confidence']:g}.",
    )
    tone = "plain" if len({a["answer"] for a in answers}) > 1 else _TONES.get(found["answer"], "plain")
    return Page(f"{found['model']}: fit", found["headline"], tone, lead, (), tuple(sections))


def choice_page(found: Mapping[str, Any]) -> Page:
    """The devices that keep targets, the cheapest first."""
    options = found["options"]
    rows = [
        (
            o["device"],
            _cell(o["count"]),
            o["precision"],
            _cell(o["in_flight"]),
            "yes" if o["meets"] else "no",
            _cell(o["probability"]),
            _known(o["usd_per_hour"]),
            interval_cell(_interval(o["price"]) if o["price"] else None),
            Cell(o["why"]),
        )
        for o in options
    ]
    price = options[0]["price_of"] if options else ""
    head = (
        "device",
        "devices",
        "precision",
        "at once",
        "keeps",
        "P",
        "USD an hour",
        f"USD per {price}",
        "why not first",
    )
    priced = [(o["device"], _interval(o["price"])) for o in options if o["price"] and o["price"]["low"] > 0]
    blocks: list[Block] = [table("Options, those that keep the targets first", head, rows)]
    if len({name for name, _ in priced}) == len(priced) and priced:
        blocks.append(whiskers(f"USD per {price}", "USD", priced[:20]))
    sections = [Section("Options", tuple(blocks))]
    if found["changes"]:
        sections.append(Section("What would change it", (Points(tuple(found["changes"])),)))
    if found["notes"]:
        sections.append(Section("Notes", (Points(tuple(found["notes"])),)))
    asked = ", ".join(
        _ASKED[name].format(value) if name in _ASKED else f"{name.replace('_', ' ')} {value}"
        for name, value in {**found["load"], **found["targets"]}.items()
        if value is not None and not isinstance(value, bool)
    )
    return Page(
        f"{found['model']}: choice",
        found["headline"],
        _TONES.get(found["decision"], "plain"),
        (asked,),
        (),
        tuple(sections),
    )


def _interval(found: Mapping[str, Any]) -> Interval:
    return Interval(**found)


PAGES = {
    "fleet": fleet_page,
    "diff": diff_page,
    "fit": fit_page,
    "choice": choice_page,
    "training": training_page,
    "layouts": layouts_page,
}


def stored_page(kind: str, document: Mapping[str, Any], where: str) -> Page:
    """The page of a document of one of `PAGES`. Raises FormatError where it is not as `to_dict` gives it."""
    try:
        return PAGES[kind](document)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise FormatError(
            f"{where}: not a whole {kind} ({type(error).__name__}: {error}); write it anew with --json"
        ) from error
