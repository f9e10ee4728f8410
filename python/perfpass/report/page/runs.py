"""Pages of predictions: one run with all its evidence, or several models or devices side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.graph import OPERATORS
from perfpass.prediction import HYPOTHETICAL, Interval, Prediction, read_words
from perfpass.report import interval_charts, memory_charts, mig_charts, run_charts
from perfpass.report.chart import Axis, Chart, Line, Mark, Whisker, around
from perfpass.report.nodes import Nodes, asked_of, workload_line
from perfpass.report.page.blocks import (
    Block,
    Cell,
    Folded,
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
from perfpass.text import count, digits, size

if TYPE_CHECKING:
    from perfpass.deploy.cost import Cost

_SUPPORT: dict[str, Tone] = {"in range": "good", "near": "plain", "outside": "unsure"}
_FITS: dict[str, Tone] = {"yes": "good", "perhaps": "unsure", "no": "bad"}
_ANSWER: dict[str, Tone] = {"yes": "good", "cannot say": "unsure", "no": "bad"}
_MOST_DETAILED = 6


def run_page(prediction: Prediction, cost: Cost | None = None, model: str = "") -> Page:
    """One prediction: the decision, then what stands behind it."""
    name = model or asked_of(prediction)
    headline, tone = _decision(prediction, name)
    device = prediction.provenance["device"]["name"]
    reads = read_words(prediction.workload)
    lead = [workload_line(prediction.workload, device, name), *([f"{reads[0].upper()}{reads[1:]}."] if reads else [])]
    lead.append(
        f"Support: {prediction.support.level}. Figures are medians with the bounds of nine in ten measured values."
    )
    if prediction.memory_verdict and prediction.memory_verdict.fits == "no":
        lead.append(HYPOTHETICAL)
    return Page(
        f"{name or 'model'} on {device}", headline, tone, tuple(lead), _keys(prediction), sections(prediction, cost)
    )


def _decision(p: Prediction, name: str) -> tuple[str, Tone]:
    """What is said first: the decision under limits, whether it fits, else the time."""
    on = f"{name or 'The model'} on {p.provenance['device']['name']}"
    if p.decision is not None and (p.decision.limits.stated or p.decision.answer != "yes"):
        return f"{name or 'The model'} {p.decision.headline}", _ANSWER[p.decision.answer]
    verdict = p.memory_verdict
    if verdict is not None and verdict.fits != "yes":
        return f"{on}: {verdict.headline}", _FITS[verdict.fits]
    fits = "fits, and " if verdict is not None else ""
    return f"{on}: {fits}takes {said(p.latency_ms)} {run_charts.a_run(p)}", "good" if verdict is not None else "plain"


def _keys(p: Prediction) -> tuple[Key, ...]:
    return (
        key("latency", p.latency_ms),
        key("throughput", p.throughput_per_s, "samples/s"),
        key("memory in use", p.memory.in_use),
        key("energy", p.energy_j, f"J {run_charts.a_run(p)}"),
        key("power", p.power_w),
    )


def sections(prediction: Prediction, cost: Cost | None = None) -> tuple[Section, ...]:
    """The evidence, from the figures to what they rest on; what needs the graph is left out where there is none."""
    nodes = Nodes.of(prediction) if hasattr(prediction.asked, "run") else None
    found = [_figures(prediction), _time(prediction, nodes)]
    if nodes is not None:
        found.append(Section("Roofline", (run_charts.roofline(nodes),)))
    found += [_memory(prediction, nodes), _placement(prediction)]
    if cost is not None:
        found.append(cost_section(cost))
    return (*found, _basis(prediction))


def _figures(p: Prediction) -> Section:
    rows = [(name, interval_cell(found)) for name, found in _named(p).items()]
    charts = interval_charts.intervals(p, run_charts.headline(p))
    first = [chart for chart in charts if len(chart.rows) > 1] or list(charts[:1])
    rest = tuple(chart for chart in charts if chart not in first)
    blocks: list[Block] = [
        table(f"All figures of {run_charts.a_run(p)}", ("figure", "median, and bounds of the interval"), rows),
        *first,
    ]
    return Section("Figures", (*blocks, Folded("The other figures as pictures", rest)) if rest else tuple(blocks))


def _named(p: Prediction) -> dict[str, Interval]:
    inner = {"memory reserved by the allocator": p.memory.reserved, "memory alive": p.memory.alive}
    return {
        "latency": p.latency_ms,
        "throughput": _samples(p),
        "memory in use": p.memory.in_use,
        **{name: found for name, found in inner.items() if found is not None},
        f"energy of {run_charts.a_run(p)}": p.energy_j,
        "power": p.power_w,
    }


def _samples(p: Prediction) -> Interval:
    return p.throughput_per_s.scaled(1.0, "samples/s")


def _time(p: Prediction, nodes: Nodes | None) -> Section:
    blocks: list[Block] = [run_charts.operators(p)]
    if nodes is None:
        total = sum(p.breakdown["latency_ms"].values()) or 1.0
        rows = [
            (o["example"], o["operator"], digits(o["count"]), digits(o["ms"]), f"{o['ms'] / total:.1%}")
            for o in p.breakdown["operators"]
        ]
        blocks.append(
            table(
                "Operators that take longest, equal ones together",
                ("first of them", "operator", "runs", "ms", "share"),
                rows,
            )
        )
        return Section("Where the time goes", tuple(blocks))
    blocks.append(run_charts.icicle(nodes))
    blocks.append(_modules(nodes))
    blocks.append(_nodes(nodes))
    return Section("Where the time goes", tuple(blocks))


def _modules(nodes: Nodes) -> Block:
    tree = nodes.tree()
    frames = sorted((f for f in tree.walk() if not f[2].leaf), key=lambda found: -found[2].ms)
    rows = [
        (
            "/".join(path),
            str(depth + 1),
            digits(frame.ms),
            f"{frame.ms / (tree.ms or 1.0):.1%}",
            frame.main_class.replace("_", " "),
        )
        for depth, path, frame in frames
    ]
    what = (
        "Modules of the source model"
        if nodes.by_module
        else "Classes of operators (the names of the nodes say no modules)"
    )
    return table(f"{what}, the longest first", ("module", "depth", "ms", "share", "mostly"), rows)


def _nodes(nodes: Nodes) -> Block:
    """The longest nodes, by the names that they have in the model's file."""
    costs, order = nodes.run.costs, np.argsort(-nodes.ms, kind="stable")
    total = float(nodes.ms.sum()) or 1.0
    rows = []
    for i in order[nodes.ms[order] > 0].tolist():
        moved = int(costs.bytes_read[i]) + int(costs.bytes_written[i])
        figures = (digits(float(nodes.ms[i])), f"{nodes.ms[i] / total:.2%}")
        work = (Cell(count(int(costs.flops[i]), "FLOP"), float(costs.flops[i])), Cell(size(moved), float(moved)))
        rows.append((nodes.name[i], OPERATORS[int(nodes.run.graph.op[i])], *figures, *work))
    return table(
        "Nodes, the longest first, by their names in the model",
        ("node", "operator", "ms", "share", "work", "moved"),
        rows,
    )


def _memory(p: Prediction, nodes: Nodes | None) -> Section:
    blocks: list[Block] = []
    verdict = p.memory_verdict
    if verdict is not None:
        blocks.append(
            Words(
                verdict.headline or f"It fits: {said(p.memory.in_use)} in use of {size(verdict.available_bytes)}.",
                _FITS[verdict.fits],
            )
        )
        if verdict.remedies:
            blocks += [Words("What would help:"), Points(verdict.remedies)]
    blocks.append(memory_charts.holders(p))
    if nodes is not None:
        blocks += [memory_charts.over_time(nodes), memory_charts.at_peak(nodes)]
    return Section("Memory", tuple(blocks))


def _placement(p: Prediction) -> Section:
    hint = f"{p.mig.profile}, {p.mig.instances_per_gpu} a GPU: " if p.mig.profile else ""
    blocks: list[Block] = [Words(f"MIG: {hint}{p.mig.reason}.")]
    if p.decision is not None:
        blocks.insert(0, Words(p.decision.headline, _ANSWER[p.decision.answer]))
        if p.decision.slices:
            blocks.append(mig_charts.slices(p.decision, run_charts.headline(p)))
    return Section("MIG and placement", tuple(blocks))


def cost_section(found: Cost) -> Section:
    """Energy, carbon and money of many runs."""
    named = {"energy": found.energy_j, "carbon (grams of CO2 equivalents)": found.carbon_g, "money (USD)": found.usd}
    rows = [(name, interval_cell(value)) for name, value in named.items() if value is not None]
    caption = f"Of {found.count:,} {found.of}, at a PUE of {found.pue:g}"
    return Section(
        "Cost and carbon", (table(caption, ("figure", "median, and bounds of the interval"), rows), Points(found.notes))
    )


def _basis(p: Prediction) -> Section:
    graph = p.provenance.get("graph", {})
    facts = [(k, f"{v:,}") for k, v in graph.items() if isinstance(v, (int, float))]
    rows = [
        *facts,
        *((k.replace("_", " "), _flat(v)) for k, v in p.provenance.items() if k != "graph" and v is not None),
    ]
    blocks = support_blocks(p.support.level, p.support.reasons)
    unknown, notes = graph.get("unknown_operators") or {}, graph.get("notes") or ()
    if unknown:
        blocks.append(
            table("Operators without a cost model", ("operator", "nodes"), [(k, str(v)) for k, v in unknown.items()])
        )
    if notes:
        blocks += [Words("Notes of the graph:"), Points(tuple(map(str, notes)))]
    blocks.append(Folded("Provenance", (table("What the figures come from", ("what", "value"), rows),)))
    return Section("Support and provenance", tuple(blocks))


def support_blocks(level: str, reasons: Sequence[str]) -> list[Block]:
    """How far measurements stand behind figures, and why."""
    return [Words(f"Support: {level}", _SUPPORT.get(level, "plain")), *([Points(tuple(reasons))] if reasons else [])]


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_flat(v)}" for k, v in value.items() if v not in (None, "", []))
    if isinstance(value, (list, tuple)):
        return ", ".join(_flat(v) for v in value)
    return digits(value) if isinstance(value, float) else str(value)


def compared_page(predictions: Sequence[Prediction], costs: Sequence[Cost | None], names: Sequence[str]) -> Page:
    """Several predictions side by side, and each of the first ones with its evidence."""
    labels = _labels(predictions, names)
    best = min(range(len(predictions)), key=lambda i: predictions[i].latency_ms.median)
    least = predictions[best].latency_ms
    others = [i for i, p in enumerate(predictions) if i != best and p.latency_ms.low <= least.high]
    sure = (
        "its interval overlaps none of the others"
        if not others
        else f"{len(others)} of the others may be as fast: their intervals overlap"
    )
    misfits = [labels[i] for i, p in enumerate(predictions) if p.memory_verdict and p.memory_verdict.fits == "no"]
    headline = f"Fastest by the median: {labels[best]}, {said(least)} a run; {sure}"
    lead = [f"{len(predictions)} predictions side by side."]
    if misfits:
        lead.append(f"Does not fit: {', '.join(misfits)}.")
    rows = [
        (
            label,
            *(interval_cell(f) for f in (p.latency_ms, _samples(p), p.memory.in_use, p.energy_j)),
            _fit(p),
            _usd(c),
            p.support.level,
        )
        for label, p, c in zip(labels, predictions, costs, strict=True)
    ]
    head = (
        "run",
        "latency",
        "samples a second",
        "memory in use",
        "energy of a run",
        "fits",
        "USD per 1,000",
        "support",
    )
    charts = [
        whiskers("Latency of a run", "ms", [(n, p.latency_ms) for n, p in zip(labels, predictions, strict=True)]),
        whiskers("Memory in use", "bytes", [(n, p.memory.in_use) for n, p in zip(labels, predictions, strict=True)]),
        whiskers("Energy of a run", "J", [(n, p.energy_j) for n, p in zip(labels, predictions, strict=True)]),
    ]
    found = [Section("Side by side", (table("All runs", head, rows), *charts))]
    for label, p, c in list(zip(labels, predictions, costs, strict=True))[:_MOST_DETAILED]:
        blocks = tuple(Folded(one.title, one.blocks) for one in sections(p, c))
        found.append(Section(label, blocks))
    return Page(f"{len(predictions)} predictions", headline, "plain", tuple(lead), (), tuple(found))


def _labels(predictions: Sequence[Prediction], names: Sequence[str]) -> list[str]:
    """What tells the runs apart: model and device, and the workload where these do not."""
    found = [f"{n or 'model'} on {p.workload['device']}" for n, p in zip(names, predictions, strict=True)]
    if len(set(found)) == len(found):
        return found
    ways = (f"batch {p.workload['batch']}, {p.workload['precision']}, {p.workload['runtime']}" for p in predictions)
    longer = [f"{label}, {way}" for label, way in zip(found, ways, strict=True)]
    return longer if len(set(longer)) == len(longer) else [f"{i}. {label}" for i, label in enumerate(longer, 1)]


def _fit(p: Prediction) -> str:
    return "" if p.memory_verdict is None else p.memory_verdict.fits


def _usd(found: Cost | None) -> Cell:
    return interval_cell(found.usd if found else None)


def whiskers(
    title: str, unit: str, found: Sequence[tuple[str, Interval]], room: Sequence[float] = (), called: str = ""
) -> Chart:
    """Intervals of one figure under one another; ``room``: what each may reach at most, ``called`` so."""
    marks: list[Mark] = []
    names = []
    for i, (name, value) in enumerate(found):
        y = float(len(found) - i)
        names.append((y, name))
        marks.append(Whisker(y, value.low, value.median, value.high, 0, f"{name}: {said(value)}"))
    for i, limit in enumerate(room):
        y = float(len(found) - i)
        marks.append(Line(((limit, y - 0.35), (limit, y + 0.35)), "ink", called, True))
    values = [*room, *(v for _, value in found for v in (value.low, value.median, value.high))]
    x = around(unit, values, log=min(values) > 0, form="size" if unit == "bytes" else "number")
    least = min(found, key=lambda item: item[1].median)
    known = any(value.low < value.high for _, value in found)
    intervals = f"with {least[1].coverage:.0%} intervals".replace("%", " %") if known else "counted"
    description = f"{title}, {intervals}. "
    if len({value.median for _, value in found}) > 1:
        description += f"Least by the median: {least[0]}, {said(least[1])}."
    else:
        description += f"By the median {said(least[1])}{' on each' if len(found) > 1 else ''}."
    rows = tuple((name, said(value)) for name, value in found)
    return Chart(
        title,
        f"medians {intervals}" if known else "counted, without an interval",
        x,
        Axis("", 0.3, len(found) + 0.7, names=tuple(names)),
        tuple(marks),
        description,
        ("run", unit),
        rows,
        height=30.0 * len(found) + 10,
    )
