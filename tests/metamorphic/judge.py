"""What breaks a promise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .questions import Figures, Question, Run, Served, as_json, ask
from .relations import RELATIONS


@dataclass(frozen=True)
class Violation:
    """``excess``: how far the second answer is on the forbidden side of the first, as a share of it."""

    relation: str
    figure: str
    first: Question
    second: Question
    before: float
    after: float
    excess: float

    def __str__(self) -> str:
        values = f"{self.figure} {self.before:.6g} -> {self.after:.6g} ({self.excess:.2%})"
        return f"{self.relation}: {values}\n    {self.first}\n    {self.second}"

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**vars(self), "first": as_json(self.first), "second": as_json(self.second)}


@dataclass
class Verdict:
    """Of one relation: figures compared, questions refused, and what broke it."""

    compared: int = 0
    refused: int = 0
    violations: list[Violation] = field(default_factory=list)


Verdicts = dict[str, Verdict]


def excess(order: str, before: float, after: float) -> float:
    """By which share ``after`` is on the wrong side of ``before``; at most 0 where it is not."""
    if order == "equal":
        return abs(after - before) / max(abs(before), 1e-300)
    wrong = before - after if order == "rises" else after - before
    return wrong / max(abs(before), 1e-300)


def chain(relation: str, questions: Sequence[Question], verdict: Verdict) -> None:
    """Judges the answers in order, each against the furthest before it (of equal evidence, where that is asked)."""
    promise = RELATIONS[relation]
    furthest: dict[tuple[str, str], tuple[Question, float]] = {}
    for question in questions:
        found = ask(question)
        if isinstance(found, str):
            verdict.refused += 1
            continue
        for figure in promise.figures:
            if figure not in found.figures:
                continue
            value, key = found.figures[figure], (figure, found.evidence if promise.equal_evidence else "")
            if key in furthest:
                first, before = furthest[key]
                over = excess(promise.order, before, value)
                verdict.compared += 1
                if not over <= promise.tolerance:
                    verdict.violations.append(Violation(relation, figure, first, question, before, value, over))
                if promise.order == "equal" or over > 0:
                    continue
            furthest[key] = (question, value)


def alone(question: Question, found: Figures, verdicts: Verdicts) -> None:
    """Judges one answer by itself."""
    for name in {name.rpartition(".")[0] for name in found if name.endswith(".median")}:
        low, median, high = (found[f"{name}.{part}"] for part in ("low", "median", "high"))
        ordered = 0 <= low <= median <= high and math.isfinite(high)
        _add(verdicts, "intervals", name, question, median, low if low > median else high, float(not ordered))
    if isinstance(question, Run):
        samples = 1e3 * question.batch * (question.processes or 1)
        for part, other in (("median", "median"), ("low", "high"), ("high", "low")):
            expected = samples / found[f"latency_ms.{other}"]
            same("throughput", question, {f"throughput_per_s.{part}": expected}, found, verdicts)
        joules = found["latency_ms.median"] * 1e-3 * found["power_w.median"]
        same("energy", question, {"energy_j.median": joules}, found, verdicts)
        for name in ("latency_ms", "peak_memory_bytes"):
            same("parts", question, {f"parts.{name}": found[f"{name}.median"]}, found, verdicts)
    if isinstance(question, Served):
        tokens = 1e3 * question.concurrency * question.output_length
        for part, other in (("median", "median"), ("low", "high"), ("high", "low")):
            request = found[f"ttft_ms.{part}"] + (question.output_length - 1) * found[f"tpot_ms.{part}"]
            same("requests", question, {f"request_ms.{part}": request}, found, verdicts)
            rate = tokens / found[f"request_ms.{other}"]
            same("requests", question, {f"output_tokens_per_s.{part}": rate}, found, verdicts)


def same(relation: str, question: Question, one: Figures, other: Figures, verdicts: Verdicts) -> None:
    """Judges two answers to one question: every figure that both have."""
    for name in one.keys() & other.keys():
        _add(verdicts, relation, name, question, one[name], other[name], excess("equal", one[name], other[name]))


def _add(
    verdicts: Verdicts, relation: str, figure: str, question: Question, one: float, other: float, over: float
) -> None:
    verdict = verdicts.setdefault(relation, Verdict())
    verdict.compared += 1
    if not over <= RELATIONS[relation].tolerance:
        verdict.violations.append(Violation(relation, figure, question, question, one, other, over))


def worst(verdicts: Iterable[Verdict], most: int, each: int) -> list[Violation]:
    """The violations that go furthest, at most ``each`` of one relation."""
    furthest = [sorted(verdict.violations, key=lambda v: -v.excess)[:each] for verdict in verdicts]
    return sorted((v for found in furthest for v in found), key=lambda v: -v.excess)[:most]
