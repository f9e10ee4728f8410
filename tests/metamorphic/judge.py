"""What breaks a promise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .questions import Figures, Question, as_json, ask
from .relations import RELATIONS


@dataclass(frozen=True)
class Violation:
    """``excess``: how far the second answer is beyond the first, as a share of it, on the forbidden side."""

    relation: str
    figure: str
    first: Question
    second: Question
    before: float
    after: float
    excess: float

    def __str__(self) -> str:
        values = f"{self.figure} {self.before:.6g} -> {self.after:.6g} ({self.excess:+.2%})"
        return f"{self.relation}: {values}\n    {self.first}\n    {self.second}"

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**vars(self), "first": as_json(self.first), "second": as_json(self.second)}


@dataclass
class Verdict:
    """Of one relation: figures compared, questions refused, and what broke it."""

    compared: int = 0
    refused: int = 0
    violations: list[Violation] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.violations = []


def excess(order: str, before: float, after: float) -> float:
    """By which share ``after`` is on the wrong side of ``before``; at most 0 where it is not."""
    if order == "equal":
        return abs(after - before) / max(abs(before), 1e-300)
    wrong = before - after if order == "rises" else after - before
    return wrong / max(abs(before), 1e-300)


def chain(relation: str, questions: Sequence[Question], verdict: Verdict) -> None:
    """Judges the answers in order, each against the furthest before it."""
    promise = RELATIONS[relation]
    furthest: dict[str, tuple[Question, float]] = {}
    for question in questions:
        found = ask(question)
        if isinstance(found, str):
            verdict.refused += 1
            continue
        for figure in promise.figures:
            if figure not in found:
                continue
            value = found[figure]
            if figure in furthest:
                first, before = furthest[figure]
                over = excess(promise.order, before, value)
                verdict.compared += 1
                if not over <= promise.tolerance:
                    verdict.violations.append(Violation(relation, figure, first, question, before, value, over))
                if promise.order == "equal" or over > 0:
                    continue
            furthest[figure] = (question, value)


def alone(question: Question, found: Figures, verdicts: dict[str, Verdict]) -> None:
    """Judges one answer by itself."""
    names = {name.rpartition(".")[0] for name in found if name.endswith(".median")}
    for name in names:
        low, median, high = (found[f"{name}.{part}"] for part in ("low", "median", "high"))
        broken = not (0 <= low <= median <= high and math.isfinite(high))
        _add(verdicts, "intervals", name, question, median, low if low > median else high, float(broken))
    if "latency_ms.median" not in found:
        return
    samples = 1e3 * question.batch * (question.processes or 1)  # type: ignore[attr-defined]
    for part, other in (("median", "median"), ("low", "high"), ("high", "low")):
        expected, got = samples / found[f"latency_ms.{other}"], found[f"throughput_per_s.{part}"]
        _same(verdicts, "throughput", f"throughput_per_s.{part}", question, expected, got)
    joules = found["latency_ms.median"] * 1e-3 * found["power_w.median"]
    _same(verdicts, "energy", "energy_j.median", question, joules, found["energy_j.median"])
    for name in ("latency_ms", "peak_memory_bytes"):
        _same(verdicts, "parts", name, question, found[f"{name}.median"], found[f"parts.{name}"])


def same(
    relation: str, first: Question, one: Figures, second: Question, other: Figures, verdicts: dict[str, Verdict]
) -> None:
    """Judges two answers to one question: every figure that both have."""
    for name in one.keys() & other.keys():
        over = excess("equal", one[name], other[name])
        _add(verdicts, relation, name, first, one[name], other[name], over, second)


def _same(
    verdicts: dict[str, Verdict], relation: str, figure: str, question: Question, one: float, other: float
) -> None:
    _add(verdicts, relation, figure, question, one, other, excess("equal", one, other))


def _add(
    verdicts: dict[str, Verdict],
    relation: str,
    figure: str,
    question: Question,
    one: float,
    other: float,
    over: float,
    second: Question | None = None,
) -> None:
    verdict = verdicts.setdefault(relation, Verdict())
    verdict.compared += 1
    if not over <= RELATIONS[relation].tolerance:
        verdict.violations.append(Violation(relation, figure, question, second or question, one, other, over))


def worst(verdicts: Iterable[Verdict], most: int) -> list[Violation]:
    """The violations that go furthest, over all relations."""
    return sorted((v for verdict in verdicts for v in verdict.violations), key=lambda v: -v.excess)[:most]
