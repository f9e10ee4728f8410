"""A difference for people: the answer in a sentence, the ratios with their intervals, the reason, what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfpass.graph.changes import Change
from perfpass.text import columns, count, digits, paragraph, printable, size

if TYPE_CHECKING:
    from perfpass.deploy.difference.found import Found, OnDevice
    from perfpass.deploy.difference.ratio import Ratio, Verdict

LABELS = {
    "latency": "latency", "throughput": "throughput", "memory": "memory in use", "energy": "energy",
    "parameters": "parameters", "flops": "FLOPs",
}  # fmt: skip
_UNITS = {"latency": "ms", "throughput": "samples/s", "energy": "J/run", "parameters": "", "flops": ""}
# What differs, by the causes of `unlike`.
_CAUSES = {
    "measurement": "noise of measuring",
    "operators": "operators that are not in both",
    "kinds": "another mix of operators",
    "host": "another share of the host's time",
    "tensors": "tensors that are not in both",
    "another road": "operators of one that nothing was learned of: by their share of its time it is priced operator by "
    "operator",
}
_SHOWN = 12
# Of the time by class, what is too little to be named as a reason.
_NAMED_SHARE = 0.05


def headline(found: Found) -> str:
    """The answer in one sentence."""
    if found.same and found.answer == "held":
        return "no change"
    deciding = [v for v in found.verdicts if v.answer == found.answer] if found.answer != "held" else []
    if deciding:
        worst = min(deciding, key=lambda v: v.probability)
        where = f" on {worst.device}" if worst.device else ""
        word = "LIMIT BROKEN" if found.answer == "broken" else "CANNOT SAY"
        return f"{word}: {LABELS[worst.metric]}{where} {times(worst.ratio)}; {said(worst)}"
    if not found.devices:
        return f"{_what_changed(found)}; {', '.join(f'{LABELS[r.metric]} {times(r)}' for r in found.exact)}"
    worst_on = max(found.devices, key=lambda on: on.ratios[0].log_ratio or 0.0)
    within = "within the limits: " if found.verdicts else ""
    return f"{within}latency on {worst_on.device} {times(worst_on.ratios[0])}; {_what_changed(found)}"


def said(verdict: Verdict) -> str:
    """A limit and how probably it holds."""
    return f"{verdict.limit}, within it with P = {verdict.probability:.2f}"


def times(ratio: Ratio) -> str:
    """The ratio in words, with its interval where it has one."""
    found = ratio.interval
    if found is None:
        return f"from 0 to {figure(ratio.new)}"
    if ratio.exact:
        return "unchanged" if ratio.log_ratio == 0.0 else f"{factor(found.median)}x"
    return f"{factor(found.median)}x ({factor(found.low)} to {factor(found.high)})"


def factor(value: float) -> str:
    """A ratio: as many digits as tell it from 1."""
    if value == 1.0:
        return "1"
    return f"{value:.3f}" if 0.95 < value < 1.05 else digits(value) if value >= 100 or value < 0.01 else f"{value:.3g}"


def figure(value: float) -> str:
    """A count or a median."""
    return count(value) if value >= 1e4 else digits(value)


def cells(ratio: Ratio) -> tuple[str, str, str, str, str]:
    """Label, old, new, ratio, interval of one figure."""
    found = ratio.interval
    old, new = _shown(ratio, ratio.old), _shown(ratio, ratio.new)
    if found is None:
        return LABELS[ratio.metric], old, new, "from 0", ""
    bounds = "exact" if ratio.exact else f"{factor(found.low)} to {factor(found.high)}"
    return LABELS[ratio.metric], old, new, factor(found.median), bounds


def _shown(ratio: Ratio, value: float) -> str:
    """One of the two figures with its unit."""
    if ratio.metric == "memory":
        return size(value)
    return f"{figure(value)} {_UNITS[ratio.metric]}".strip()


def table(found: Found) -> str:
    """Headline, figures, limits, reasons, and what changed."""
    lines = [printable(headline(found)), ""]
    lines += [paragraph("old", found.old), paragraph("new", ", ".join([found.new, *otherwise(found.change)])), ""]
    rows = [("", "old", "new", "ratio", "90% interval"), *(cells(ratio) for ratio in found.exact)]
    lines.append(columns(rows, right=(1, 2, 3)))
    for on in found.devices:
        lines += ["", f"{printable(on.name)} ({on.device}), {way(found, on)}"]
        lines.append(columns([cells(ratio) for ratio in on.ratios], right=(1, 2, 3)))
        lines += [paragraph(label, text) for label, text in reasons(on)]
    if found.verdicts:
        limits = [
            (v.answer, v.device or "", v.limit, f"P = {v.probability:.2f}", times(v.ratio)) for v in found.verdicts
        ]
        lines += ["", f"Limits, at a confidence of {found.verdicts[0].confidence:g}", columns(limits)]
    lines += ["", "What changed"]
    lines += [paragraph("", f"- {line}") for line in summary(found)]
    return "\n".join(lines)


def way(found: Found, on: OnDevice) -> str:
    """How both ran on a device."""
    w = found.workload
    replayed = ", as a CUDA graph" if w.get("cuda_graph") else ""
    return f"batch {on.batch}, {w['precision']}, {w['mode']}, {w['runtime']}, {w['layout']}{replayed}"


def otherwise(change: Mapping[str, Any]) -> list[str]:
    """What is otherwise for the new one, in words."""
    replayed = {True: "as a CUDA graph", False: "not as a CUDA graph"}
    return [replayed[value] if name == "cuda_graph" else f"{name} {value}" for name, value in change.items()]


def reasons(on: OnDevice) -> list[tuple[str, str]]:
    """Where the time went, what makes the interval wide, and how far measurements stand behind the figures."""
    found = []
    total = max(sum(old for old, _ in on.by_class.values()), sum(new for _, new in on.by_class.values()), 1e-12)
    moved = sorted(((new - old, name) for name, (old, new) in on.by_class.items()), key=lambda part: -abs(part[0]))
    large = [(d, name) for d, name in moved if abs(d) >= _NAMED_SHARE * total]
    if large:
        told = (
            f"{name} {d:+.3g} ms{' (of operators that are the same)' if name in on.same_classes else ''}"
            for d, name in large[:3]
        )
        found.append(("because", ", ".join(told)))
    latency = on.ratios[0]
    if latency.causes:
        words = (f"{_CAUSES.get(cause, f'another {cause}')} {share:.0%}" for cause, share in latency.causes)
        found.append(("interval", ", ".join(words)))
    if on.support.level != "in range":
        found.append(("support", f"{on.support.level}: {'; '.join(on.support.reasons)}"))
    return found


def _what_changed(found: Found) -> str:
    kinds = Counter(change.kind for change in found.changes.operators)
    if not kinds:
        tensors = len(found.changes.tensors)
        if found.change:
            return ", ".join(otherwise(found.change))
        return f"{tensors} tensors differ" if tensors else "the operators are the same"
    return "operators: " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


def summary(found: Found, most: int = _SHOWN) -> list[str]:
    """Operators and tensors that changed, like ones together, the rest counted."""
    changes = found.changes
    lines = [f"{changes.same_operators} operators are the same"]
    lines += _lines(changes.operators, most)
    lines += _lines([c for c in changes.tensors if c.what != "weight"], most)
    weights = [c for c in changes.tensors if c.what == "weight"]
    lines += _lines(weights, most if not changes.operators else 0)
    return lines


def _lines(changes: Sequence[Change], most: int) -> list[str]:
    lines = [describe(change) for change in changes[:most]]
    if rest := changes[most:]:
        kinds = Counter((change.kind, change.what) for change in rest).most_common(6)
        more = ", ".join(f"{number} {what} {kind}" for (kind, what), number in kinds)
        lines.append(f"{'and ' if lines else ''}{len(rest)} more: {more}" if lines else f"{len(rest)} in all: {more}")
    return lines


def describe(change: Change) -> str:
    """One change in a line."""
    text = f"{change.kind} {change.what} {change.name}"
    return text + (f": {', '.join(change.differences)}" if change.differences else "")
