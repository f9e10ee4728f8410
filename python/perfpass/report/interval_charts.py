"""Charts of intervals: what was predicted, beside the measured records nearest to it, scaled to the same work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfpass.errors import UnsupportedError
from perfpass.interval import Interval
from perfpass.report.chart import Axis, Chart, Dot, Dots, Form, Mark, Whisker, around
from perfpass.report.run_charts import a_run, said
from perfpass.text import digits, size

if TYPE_CHECKING:
    from perfpass.evidence import Part

TITLES = {
    "latency_ms": "Time of a run", "throughput_per_s": "Throughput", "ttft_ms": "Time to the first token",
    "tpot_ms": "Time per output token", "request_ms": "Time of a request", "output_tokens_per_s": "Output, all GPUs",
    "peak_memory_bytes": "Memory in use", "energy_j": "Energy of a run",
    "energy_per_token_j": "Energy per output token", "power_w": "Power",
}  # fmt: skip
# The quantity of the evidence that stands beside a figure.
_QUANTITY = {
    "latency_ms": "time", "peak_memory_bytes": "memory", "energy_j": "energy", "ttft_ms": "first token",
    "tpot_ms": "token",
}  # fmt: skip
_UNITS = {"1/s": "samples/s", "byte": "bytes"}
_GREY = 6
_LETTERS, _FEWEST = 40, 8  # of a record's line at an axis, and of its model there


def figures(prediction: Any) -> dict[str, Interval]:
    """The intervals of a prediction by name, in the order they are shown."""
    found = {name: getattr(prediction, name, None) for name in TITLES}
    return {name: value for name, value in found.items() if isinstance(value, Interval)}


def records(prediction: Any) -> dict[str, Part] | None:
    """Evidence by figure; None where the prediction was read, or pyarrow is not installed, so that none can be told."""
    try:
        parts = {part.quantity: part for part in prediction.evidence.parts}
    except UnsupportedError:
        return None
    found = {name: parts[q] for name, q in _QUANTITY.items() if q in parts}
    if "latency_ms" in found:
        many = prediction.workload["batch"]
        found["throughput_per_s"] = _turned(found["latency_ms"], lambda ms, batch: 1e3 * batch / ms, "batch", many)
    if "request energy" in parts:
        many = prediction.serving.output_length
        per_token = _turned(parts["request energy"], lambda j, tokens: j / tokens, "output_tokens", many)
        found["energy_per_token_j"] = per_token
    return found


def _turned(part: Part, turn: Callable[[float, float], float], setting: str, asked: float) -> Part:
    """The same records in another figure, which ``turn`` gives of the value and its ``setting``; without it none."""
    records = [
        {
            **record,
            "measured": turn(record["measured"], record[setting]),
            "copied": None if record["copied"] is None else turn(record["copied"], asked),
        }
        for record in part.records
        if record["measured"] and record[setting]
    ]
    return replace(part, records=tuple(records))


def intervals(prediction: Any, subtitle: str) -> tuple[Chart, ...]:
    """A chart for each figure, with the records nearest to it."""
    nearest = records(prediction)
    return tuple(
        _one(name, _title(name, prediction), value, subtitle, (nearest or {}).get(name), nearest is not None)
        for name, value in figures(prediction).items()
    )


def _title(name: str, prediction: Any) -> str:
    """A figure's title; of a step where the run is one."""
    whole = "a run"
    return TITLES[name].replace(whole, a_run(prediction)) if TITLES[name].endswith(whole) else TITLES[name]


def _one(name: str, title: str, found: Interval, subtitle: str, part: Part | None, known: bool) -> Chart:
    """``part``: the evidence of this figure; ``known``: whether evidence could be asked for."""
    form: Form = "size" if found.unit == "byte" else "number"
    near = [record for record in (part.records if part else ()) if (record["copied"] or record["measured"])]
    values = [record["copied"] or record["measured"] for record in near]
    x = around(
        _UNITS.get(found.unit, found.unit), [found.low, found.median, found.high, *values], log=found.low > 0, form=form
    )  # type: ignore[arg-type]
    top, words = float(len(near)), said(found.scaled(1.0, "samples/s") if found.unit == "1/s" else found)
    marks: list[Mark] = [
        Whisker(top, found.low, found.median, found.high, 0, f"predicted: {words}", "predicted, 90 % interval")
    ]
    names = [(top, "predicted")]
    rows = [("predicted", words, "", "")]
    scaled: list[Dot] = []
    far: list[Dot] = []
    plain: list[Dot] = []
    for i, (record, value) in enumerate(zip(near, values, strict=True)):
        y = top - 1 - i
        text = (
            f"{_written(value, found.unit)}; measured {_written(record['measured'], found.unit)}, {_conditions(record)}"
        )
        away = part is not None and part.far(record)
        (plain if record["copied"] is None else far if away else scaled).append(Dot(value, y, 0.12, text))
        names.append((y, _short(record)))
        rows.append(
            (
                _conditions(record),
                _written(value, found.unit),
                _written(record["measured"], found.unit),
                digits(record["distance"]["total"]),
            )
        )
    if scaled:
        marks.append(Dots(tuple(scaled), 1, "square", "nearest records, scaled to this work"))
    if far:
        marks.append(Dots(tuple(far), _GREY, "down", "records that are far away, scaled: a guess"))
    if plain:
        marks.append(Dots(tuple(plain), 2, "up", "nearest records as measured, not scaled"))
    inside = sum(found.low <= value <= found.high for value in values)
    beside = f" {inside} of the {len(near)} nearest records lie in it." if near else " No record of it stands near."
    if near and part is not None and part.note:
        beside += f" {part.note[0].upper()}{part.note[1:]}."
    if (part is None and name not in _QUANTITY) or not known:
        beside = ""
    sided = "; plan for the upper bound, 98 in 100 stay below" if name == "peak_memory_bytes" else ""
    description = f"{title}: {words}{sided}.{beside}"
    y_axis = Axis("", -0.7, top + 0.7, names=tuple(names))
    return Chart(
        title,
        subtitle,
        x,
        y_axis,
        tuple(marks),
        description,
        ("what", "figure", "measured", "away"),
        tuple(rows),
        height=30.0 * (len(near) + 1) + 8,
    )


def _written(value: float, unit: str) -> str:
    return size(value) if unit == "byte" else f"{digits(value)} {_UNITS.get(unit, unit)}"


def _short(record: dict[str, Any]) -> str:
    """Of an axis: what tells records of one model apart."""
    model = record["model"].rpartition("/")[2].rpartition(":")[2]
    at = f"b{digits(record['batch'])}" if record["batch"] else ""
    how = ", ".join(filter(None, (record["device"].partition(" (")[0], record["precision"], at)))
    room = max(_FEWEST, _LETTERS - 2 - len(how))
    return f"{model if len(model) <= room else model[: room - 1] + '…'}, {how}"


def _conditions(record: dict[str, Any]) -> str:
    of_requests = record["kind"] in ("serving", "generation")
    parts = [record["model"], record["task"] if of_requests else "", record["device"], record["runtime"]]
    parts += [record["precision"], f"batch {digits(record['batch'])}" if record["batch"] else ""]
    if of_requests:
        told, made = record["input_tokens"], record["output_tokens"]
        parts.append(f"{f'{told:g}' if told else 'unstated'} -> {f'{made:g}' if made else 'unstated'} tokens")
    return ", ".join(part for part in parts if part)
