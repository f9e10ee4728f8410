"""What `advise` found: the path of changes with their gains, and what was tried and is not advised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perfpass.deploy.difference.ratio import Ratio
from perfpass.prediction import Interval, Prediction, Support
from perfpass.text import columns, digits, item, paragraph, printable, size

SCHEMA_VERSION = 1
FIGURES = ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j")
UNITS = {"latency": "ms", "throughput": "samples/s", "memory": "byte", "energy": "J a sample", "price": "USD a million"}
_BETTER = {
    "latency": "faster", "throughput": "more", "memory": "less", "energy": "less", "price": "cheaper"
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change: in ``words``, what to ask `perfpass.predict` for (``changes``; "rewrite": of the file), what it then
    answers (``figures`` by name, with their ``support``), and the ``ratio`` of the target's figure over what was.

    ``error``: of rewrites, the measured error of the outputs (`perfpass.deploy.advise.outputs`); None where nothing was
    run. ``why`` it is not advised; "" where it is. ``nodes``: of the file, before and after a rewrite.
    """

    words: str
    changes: dict[str, Any] = field(hash=False)
    changes_numbers: bool
    figures: dict[str, Interval] | None = field(default=None, hash=False)
    support: Support | None = None
    ratio: Ratio | None = None
    error: float | None = None
    nodes: tuple[int, int] | None = None
    why: str = ""

    @property
    def probability(self) -> float | None:
        """That the target's figure is no worse than before."""
        return None if self.ratio is None else self.ratio.probability_within(0.0)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        figures = self.figures
        return {
            "words": self.words,
            "changes": self.changes,
            "changes_numbers": self.changes_numbers,
            "output_error": self.error,
            "nodes": None if self.nodes is None else list(self.nodes),
            "figures": None if figures is None else {name: found.to_dict() for name, found in figures.items()},
            "support": None if self.support is None else self.support.to_dict(),
            "gain": None if self.ratio is None else _gain(self.ratio),
            "why_not": self.why or None,
        }


@dataclass(frozen=True)
class Advice:
    """What was asked, the changes that are kept, in order (``steps``), and those that are not (``declined``).

    ``alone``: every change that was tried first, from what was asked; ``total``: of all steps together. ``settings``:
    how it runs in the end. ``file``: where the rewritten model is, None where nothing was written.
    """

    model: str
    target: str
    confidence: float
    asked: Prediction
    start: Ratio
    steps: tuple[Change, ...]
    alone: tuple[Change, ...]
    declined: tuple[Change, ...]
    total: Ratio
    settings: dict[str, Any] = field(hash=False)
    notes: tuple[str, ...] = ()
    file: str | None = None

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        where = f"{printable(self.model)} on {self.asked.workload['device']}"
        if not self.steps:
            return f"{where}: nothing tried is surely better in {self.target} (confidence {self.confidence:g})"
        old, new = (_figure(self.target, value) for value in (self.total.old, self.total.new))
        words = ", then ".join(step.words for step in self.steps)
        probability = self.total.probability_within(0.0)
        return f"{where}: {self.target} {old} to {new} by {words}; P({_BETTER[self.target]}) {probability:.2f}"

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, with its ``schema_version``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "headline": self.headline,
            "target": self.target,
            "unit": UNITS[self.target],
            "confidence": self.confidence,
            "asked": self.asked.to_dict(),
            "start": _gain(self.start),
            "steps": [one.to_dict() for one in self.steps],
            "total": _gain(self.total),
            "settings": self.settings,
            "alone": [one.to_dict() for one in self.alone],
            "declined": [one.to_dict() for one in self.declined],
            "notes": list(self.notes),
            "file": self.file,
        }

    def __str__(self) -> str:
        better = f"P({_BETTER[self.target]})"
        rows = [("", self.target, "change", "90% interval", better)]
        w = self.asked.workload
        asked = f"as it is ({w['runtime']}, {w['precision']}, batch {w['batch']})"
        rows.append((asked, _figure(self.target, self.start.new), "", "", ""))
        for number, step in enumerate(self.steps, 1):
            assert step.ratio is not None
            marked = f"{number} {step.words}{' *' * step.changes_numbers}"
            rows.append((marked, _figure(self.target, step.ratio.new), *_cells(step.ratio)))
        if len(self.steps) > 1:
            rows.append(("all together", _figure(self.target, self.total.new), *_cells(self.total)))
        parts = [self.headline, "", columns(rows, right=(1, 2, 4))]
        if any(step.changes_numbers for step in self.steps):
            parts.append("* changes numbers: " + "; ".join(_errors(self.steps)))
        if self.file:
            parts.append(f"written: {printable(self.file)}")
        if self.declined:
            parts += ["", "  tried and not advised", *(item(f"{one.words}: {one.why}") for one in self.declined)]
        parts += ["", *(paragraph("note", note) for note in self.notes)] if self.notes else []
        return "\n".join(parts)


def _errors(steps: tuple[Change, ...]) -> list[str]:
    return [
        f"{step.words}: "
        + ("not measured here" if step.error is None else f"outputs are off by {100 * step.error:.2g} %")
        for step in steps
        if step.changes_numbers
    ]


def _figure(target: str, value: float) -> str:
    return size(value) if target == "memory" else f"{digits(value)} {UNITS[target]}"


def _cells(ratio: Ratio) -> tuple[str, str, str]:
    found = ratio.interval
    if found is None:
        return "", "", ""
    return (
        percent(found.median),
        f"{percent(found.low)} to {percent(found.high)}",
        f"{ratio.probability_within(0.0):.2f}",
    )


def percent(ratio: float) -> str:
    """A ratio as a change."""
    return f"{100 * (ratio - 1):+.0f} %" if abs(ratio - 1) < 10 else f"x {digits(ratio)}"


def _gain(ratio: Ratio) -> dict[str, Any]:
    found: Interval | None = ratio.interval
    return {
        "metric": ratio.metric,
        "old": ratio.old,
        "new": ratio.new,
        "ratio": None if found is None else found.median,
        "low": None if found is None else found.low,
        "high": None if found is None else found.high,
        "log_ratio": ratio.log_ratio,
        "log_half_width": ratio.log_half_width,
        "causes": [{"cause": cause, "share": share} for cause, share in ratio.causes],
        "probability_better": ratio.probability_within(0.0),
    }
