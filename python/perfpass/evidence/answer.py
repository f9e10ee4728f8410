"""What the records say of a question: the nearest of each quantity, as a table for a terminal and as strict JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.prediction import read_words
from perfpass.predictors.relative.nearest import (
    DIMENSIONS,
    FAR,
    FAR_FACTOR,
    QUANTITIES,
    QUANTITIES_OF,
    Nearest,
    nearest,
)
from perfpass.text import WIDTH, digits, interval, printable, size

if TYPE_CHECKING:
    from collections.abc import Collection

    from perfpass.prediction import Interval
    from perfpass.predictors.relative.question import Question
    from perfpass.predictors.relative.relatives import Relatives

SCHEMA_VERSION = 1
LIMIT = 3
_TITLES = {
    "time": "Time of a run",
    "first token": "Time to the first token",
    "token": "Time per output token",
    "memory": "Peak memory of a device",
    "energy": "Energy of a run",
    "request energy": "Energy of a request",
}
OF_REQUESTS = ("serving", "generation")  # kinds of records and questions
# Columns of a record that JSON gives as they are.
_TEXTS = (
    "source", "repository", "commit", "licence", "run", "model", "network", "task", "device", "runtime",
    "runtime_version", "cuda_version", "precision", "layout", "optimizer", "quantization", "variant", "timing",
    "memory_kind", "caveats",
)  # fmt: skip
_NUMBERS = (
    "devices", "batch", "processes", "sequence", "input_tokens", "output_tokens", "concurrency", "img_height",
    "img_width",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Part:
    """The records nearest in one quantity; ``predicted`` is what perfpass says of it, where it does.

    ``records``: each with its conditions, what was ``measured``, what it says when ``copied`` and scaled (None where
    the network was not counted), the ``factor`` between, and its ``distance`` by dimension and in ``total``.
    """

    quantity: str
    unit: str
    predicted: Interval | None
    records: tuple[dict[str, Any], ...]
    note: str
    next: dict[str, Any] | None

    @staticmethod
    def far(record: Mapping[str, Any]) -> bool:
        """Whether a record is so far away that a copy of it is a guess."""
        return bool(record["distance"]["total"] > FAR)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "quantity": self.quantity,
            "unit": self.unit,
            "predicted": self.predicted.to_dict() if self.predicted else None,
            "records": list(self.records),
            "note": self.note,
            "measure_next": self.next,
        }


@dataclass(frozen=True, eq=False)
class Evidence:
    """The measured records nearest to a question. ``print(evidence)`` gives a table, ``to_dict()`` strict JSON.

    ``said``: where perfpass refuses to predict, its reason.
    """

    question: dict[str, Any]
    parts: tuple[Part, ...]
    said: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON (no NaN, no infinity), with its ``schema_version``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "question": self.question,
            "refused": self.said,
            "quantities": [part.to_dict() for part in self.parts],
        }

    def __str__(self) -> str:
        return evidence_table(self)


def look_up(
    question: Question,
    relatives: Relatives,
    *,
    limit: int = LIMIT,
    predicted: Mapping[str, Interval] | None = None,
    leave_out: Mapping[str, Collection[str]] | None = None,
    said: str = "",
    read: Mapping[str, Any] | None = None,
) -> Evidence:
    """The ``limit`` records nearest to a question in each quantity. Raises ArgumentError.

    ``predicted``: intervals by quantity; ``leave_out`` as of `perfpass.predictors.relative.nearest.nearest`; ``read``:
    the workload of a prediction, whose inputs, and the sizes that nobody asked for, the question then says.
    """
    if limit < 1:
        raise ArgumentError(f"limit must be at least 1, got {limit}")
    parts = []
    for name in QUANTITIES_OF[question.kind]:
        found = nearest(question, relatives, name, limit=limit, leave_out=leave_out)
        records = tuple(_record(relatives, found, i) for i in range(len(found.rows)))
        unit = QUANTITIES[name].unit
        note, following = _note(question, found), _next(question, found)
        parts.append(Part(name, unit, (predicted or {}).get(name), records, note, following))
    if question.kind == "named":  # of such a model it is not known what it could be asked
        parts = [part for part in parts if part.records]
    inputs = {name: (read or {}).get(name, []) for name in ("inputs", "assumed")}
    return Evidence(_described(question) | inputs, tuple(parts), said)


def _described(q: Question) -> dict[str, Any]:
    def known(value: float) -> float | None:
        return value if np.isfinite(value) else None

    return {
        "kind": q.kind,
        "model": q.model,
        "device": q.device.id,
        "devices": q.devices,
        "runtime": q.runtime,
        "precision": q.precision,
        "layout": q.layout,
        "batch": known(q.batch),
        "processes": q.processes,
        "input_tokens": known(q.input_tokens),
        "output_tokens": known(q.output_tokens),
        "work": {name: float(value) for name, value in q.work.items() if np.isfinite(value)},
    }


def _record(relatives: Relatives, found: Nearest, place: int) -> dict[str, Any]:
    row = int(found.rows[place])
    numbers = {name: relatives.number(name, row) for name in _NUMBERS}
    copied, factor = float(found.copied[place]), float(found.factor[place])
    apart = {name: round(float(d), 4) for name, d in zip(DIMENSIONS, found.distances[place], strict=True)}
    return {
        "row": row,
        "kind": relatives.texts["kind"][row],
        **{name: relatives.texts[name][row] for name in _TEXTS},
        **{name: value if np.isfinite(value) else None for name, value in numbers.items()},
        "measured": relatives.number(QUANTITIES[found.quantity].figure, row),
        "copied": copied if np.isfinite(copied) else None,
        "factor": factor if np.isfinite(factor) else None,
        "distance": {**apart, "total": round(float(found.total[place]), 4)},
    }


def _note(question: Question, found: Nearest) -> str:
    """What is to be said where nothing is near; empty where a record is."""
    if not len(found.rows):
        return "no record of this kind measured it of a network that is counted, or of this name"
    factor = float(found.factor[0])
    if not np.isfinite(factor):
        return "the network was not counted on one of the two sides: what was measured is shown, and nothing is scaled"
    if found.total[0] > FAR:
        worst = DIMENSIONS[int(np.argmax(found.distances[0]))]
        return (
            f"nothing near: the nearest record is {found.total[0]:.2f} away, most of it by {worst}; a copy is a guess"
        )
    within = np.abs(np.log(found.factor[np.isfinite(found.factor)])) <= np.log(FAR_FACTOR)
    if not within.any():
        return f"no record shown is within a factor of {FAR_FACTOR:g} of this work; the copies are far-fetched"
    return ""


def _next(question: Question, found: Nearest) -> dict[str, Any] | None:
    """What to measure to narrow the figure: that in which the nearest record is farthest."""
    if not len(found.rows):
        apart = dict.fromkeys(DIMENSIONS, 0.0)
        worst, how_far = "model", float("inf")
    else:
        apart = dict(zip(DIMENSIONS, found.distances[0].tolist(), strict=True))
        worst = max(apart, key=lambda name: apart[name])
        how_far = apart[worst]
    if how_far < 0.005:
        return None
    on = question.device.name
    what = {
        "device": f"the same run on {on}",
        "software": f"the same run in {question.runtime}",
        "precision": f"the same run in {question.precision}",
        "model": f"this model, or one of its kind, on {on}",
        "batch": f"the same run at {_load(question)}",
        "scope": _alone(question, found.quantity),
    }[worst]
    return {"dimension": worst, "distance": None if np.isinf(how_far) else round(how_far, 4), "text": what}


def _alone(question: Question, quantity: str) -> str:
    if quantity == "memory":
        return "the memory in use"
    if question.kind in OF_REQUESTS:
        return f"the same run at {_load(question)}, text alone"
    return "the network alone"


def _load(q: Question) -> str:
    parts = [f"batch {q.batch:g}" if q.kind != "serving" else f"{q.batch:g} in flight"]
    if np.isfinite(q.input_tokens):
        parts.append(f"{q.input_tokens:g} -> {q.output_tokens:g} tokens")
    if q.processes > 1:
        parts.append(f"{q.processes} processes")
    return ", ".join(parts)


def evidence_table(found: Evidence) -> str:
    """Text of the evidence, at most `WIDTH` columns wide."""
    q = found.question
    device = f"{q['devices']} x {q['device']}" if q["devices"] > 1 else q["device"]
    at = [f"batch {q['batch']:g}"] if q["batch"] else []
    if q["input_tokens"]:
        at = [f"{q['input_tokens']:g} -> {q['output_tokens']:g} tokens", f"{q['batch']:g} at once"]
    words = [{"named": "by its name"}.get(q["kind"], q["kind"]), q["runtime"], q["precision"], *at]
    lines = [_wrapped(f"{printable(q['model'] or 'model')} on {device}: {', '.join(filter(None, words))}", "")]
    if reads := read_words(q):
        lines.append(_wrapped(reads, "  "))
    if found.said:
        lines.append(_wrapped(f"perfpass predicts nothing here: {found.said}", "  "))
    for part in found.parts:
        lines += ["", *_part_lines(part)]
    return "\n".join(lines)


def _part_lines(part: Part) -> list[str]:
    title = _TITLES[part.quantity]
    if part.predicted is not None:
        p = part.predicted
        median, unit, bounds = interval(p.median, p.low, p.high, p.unit)
        between = f" ({bounds}, {p.coverage:.0%})" if p.high > p.low else ""
        title += f"; perfpass says {median} {unit}{between}"
    lines = [title]
    if part.records:
        lines.append(f"  {'':>2}  {'away':>5}  {'copied and scaled':>17}  {'measured':>12}  record")
    for i, record in enumerate(part.records, 1):
        copied = "not scaled" if record["copied"] is None else _figure(record["copied"], part.unit)
        far, measured = record["distance"]["total"], _figure(record["measured"], part.unit)
        head = f"  {i:>2}  {far:>5.2f}  {copied:>17}  {measured:>12}  "
        lines.append(textwrap.fill(_conditions(record), WIDTH, initial_indent=head, subsequent_indent=" " * 11))
        apart = [f"{name} {record['distance'][name]:.2f}" for name in DIMENSIONS if record["distance"][name] >= 0.005]
        scaled = "" if record["factor"] is None else f"; scaled by {digits(record['factor'])}"
        lines.append(_wrapped(f"away by {', '.join(apart) or 'nothing'}{scaled}", " " * 11))
        lines.append(_wrapped(_origin(record), " " * 11))
    if part.note:
        lines.append(_wrapped(part.note, "  "))
    if part.next is not None:
        far = f" ({part.next['dimension']} {part.next['distance']:.2f} away)" if part.next["distance"] else ""
        lines.append(_wrapped(f"to narrow it, measure {part.next['text']}{far}", "  "))
    return lines


def _conditions(r: Mapping[str, Any]) -> str:
    device = f"{r['devices']:g} x {r['device']}" if (r["devices"] or 1) > 1 else r["device"]
    shape = []
    if r["batch"]:
        shape.append(f"batch {r['batch']:.4g}")
    if r["sequence"]:
        shape.append(f"{r['sequence']:g} tokens")
    if r["input_tokens"] or r["output_tokens"]:
        shape.append(f"{r['input_tokens'] or 0:g} -> {r['output_tokens'] or 0:g} tokens")
    if r["img_height"]:
        shape.append(f"{r['img_height']:g}x{r['img_width'] or r['img_height']:g}")
    if (r["processes"] or 1) > 1:
        shape.append(f"{r['processes']:g} processes")
    software = f"{r['runtime']} {r['runtime_version']}".strip()
    task = r["task"] if r["kind"] in OF_REQUESTS and r["task"] != "text generation" else ""
    parts = [r["model"], task, device, software, r["precision"] or "precision not stated", *shape, r["quantization"]]
    return printable(", ".join(p for p in parts if p))


def _origin(r: Mapping[str, Any]) -> str:
    commit = f" @ {r['commit']}" if r["commit"] else ""
    kind = f"memory {r['memory_kind']}" if r["memory_kind"] else ""
    parts = [f"{r['repository']}{commit}", r["licence"], kind, r["timing"], r["caveats"].replace(",", ", ")]
    return printable("; ".join(p for p in parts if p))


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _figure(value: float, unit: str) -> str:
    return size(value) if unit == "byte" else f"{digits(value)} {unit}"
