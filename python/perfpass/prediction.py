"""What a prediction is: every metric with an interval, and what it rests on."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from typing import Any, Literal

from perfpass.decision import Decision, FitAnswer
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.interval import ABOVE_MEMORY as ABOVE_MEMORY
from perfpass.interval import COVERAGE as COVERAGE
from perfpass.interval import WIDEST_FACTOR as WIDEST_FACTOR
from perfpass.interval import Interval as Interval
from perfpass.late import dataclass
from perfpass.text import WIDTH, columns, count, digits, interval, paragraph, printable, size

SCHEMA_VERSION = 1

SupportLevel = Literal["in range", "near", "outside"]
SUPPORT_LEVELS: tuple[SupportLevel, ...] = ("in range", "near", "outside")
# One rule for every area: a level says what is missing of the evidence, counted in what that costs in error. The bounds
# of a time are made of it, cause by cause; up to so many times apart they may be "in range", or "near".
LEVEL_WIDTHS = (1.5, 2.5)


@dataclass(frozen=True)
class MigHint:
    """The MIG profile to rent or create for this workload; None where there is none, with the reason in words."""

    profile: str | None
    instances_per_gpu: int
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"profile": self.profile, "instances_per_gpu": self.instances_per_gpu, "reason": self.reason}


@dataclass(frozen=True)
class Support:
    """How far measurements stand behind the prediction, and what is missing where they do not."""

    level: SupportLevel
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in SUPPORT_LEVELS:
            raise ArgumentError(f"support level {self.level!r}; allowed are {', '.join(SUPPORT_LEVELS)}")

    def at_most(self, level: SupportLevel, reason: str) -> Support:
        """The support with one more reason, and no better than ``level``."""
        worst = max(self.level, level, key=SUPPORT_LEVELS.index)
        return Support(worst, (*self.reasons, reason))

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"level": self.level, "reasons": list(self.reasons)}


@dataclass(frozen=True)
class MemoryFigures:
    """Device memory of one process, in bytes, as three things that are measured by three means.

    ``alive``: the largest sum of live tensors (`torch.cuda.max_memory_allocated`). ``reserved``: the most that the
    runtime's allocator holds of the device (`max_memory_reserved`; an arena). Both are None where only the whole is
    predicted. ``in_use``: what the device has in use while this process alone runs on it: reserved, the context, loaded
    modules and workspaces, and on a whole GPU what the driver keeps for itself (NVML's "used", total less free). Its
    ``high`` is one-sided: plan for it, 98 in 100 stay below. ``gradients_bytes``: what inference in PyTorch would hold
    beyond these figures if autograd were left on (no `torch.no_grad`); no bound covers it. None where it is not asked.
    """

    in_use: Interval
    alive: Interval | None = None
    reserved: Interval | None = None
    gradients_bytes: float | None = None

    def probability_fits(self, available_bytes: float) -> float:
        """Probability (0 to 1) that what is in use stays within ``available_bytes``."""
        return self.in_use.probability_fits(available_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        figures = {"alive": self.alive, "reserved": self.reserved, "in_use": self.in_use}
        found: dict[str, Any] = {name: None if f is None else f.to_dict() for name, f in figures.items()}
        return {**found, "gradients_bytes": self.gradients_bytes}


# Inputs that a table names: a decoder that reads a cache has two a layer.
_FEW = 4


@dataclass(frozen=True)
class MemoryVerdict:
    """Whether a workload fits into the memory of its device, and what would help where it may not.

    ``needed_bytes`` is the median, ``needed_high_bytes`` the upper bound, of all processes on the device (of one of its
    GPUs, where there are several); ``probability``: that it fits, 0 to 1, None where no interval says; ``remedies``:
    each a change that makes it fit, with its figure.
    """

    fits: FitAnswer
    needed_bytes: int
    needed_high_bytes: int
    available_bytes: int
    remedies: tuple[str, ...] = ()
    holder: str = "in the device"
    probability: float | None = None

    @property
    def headline(self) -> str:
        """One line; empty where it fits."""
        needed, most, has = (size(v) for v in (self.needed_bytes, self.needed_high_bytes, self.available_bytes))
        if self.fits == "no":
            more = f", up to {most}" if self.needed_high_bytes > self.needed_bytes else ""
            return f"DOES NOT FIT: it needs {needed} of memory{more}; there are {has} {self.holder}"
        if self.fits == "perhaps":
            chance = "" if self.probability is None else f"; P(fits) {100 * self.probability:.0f} %"
            return f"MAY NOT FIT: it needs {needed} of memory, but up to {most}; there are {has} {self.holder}{chance}"
        return ""

    def lines(self) -> list[str]:
        """The headline and what would help, for people; none where it fits."""
        if self.fits == "yes":
            return []
        helps = "; ".join(self.remedies) or "nothing that is known here; split it over several devices"
        return [self.headline, paragraph("would help", helps)]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "fits": self.fits,
            "headline": self.headline,
            "needed_bytes": self.needed_bytes,
            "needed_high_bytes": self.needed_high_bytes,
            "available_bytes": self.available_bytes,
            "holder": self.holder,
            "probability": self.probability,
            "remedies": list(self.remedies),
        }


HYPOTHETICAL = "The figures below are hypothetical: those of the same device with enough memory."


def check_width(what: str, found: Interval, support: Support) -> None:
    """Raises UnsupportedError for an interval that says nothing, with what is missing as the reason."""
    if not found.says_something:
        raise UnsupportedError(
            f"{what} cannot be predicted: bounds of {found.low:.2g} to {found.high:.2g} {found.unit} are wider than "
            f"a factor of {WIDEST_FACTOR:g} either way. {'; '.join(support.reasons)}. "
            "Choose a runtime, device or load that is nearer to what was measured"
        )


@dataclass(frozen=True)
class Prediction:
    """What a workload costs on a device. ``print(prediction)`` gives a table, ``to_dict()`` strict JSON.

    ``latency_ms`` is one run of the whole batch, ``throughput_per_s`` samples per second, ``energy_j`` joules per run,
    ``power_w`` the device's mean power during it. ``memory`` are its three figures, ``peak_memory_bytes`` the one in
    use. ``breakdown`` holds ``latency_ms`` and ``memory_bytes`` by class,
    the ``operators`` that take longest and the tensors alive at the ``peak``. ``memory_verdict``: whether it fits, and
    what would help where it does not; the other figures are then those of a device with enough memory. ``decision``:
    with which probability limits are kept, here and in the device's MIG slices; None where no limits were given.
    ``asked`` is for `evidence`: what was asked, with a method ``question``.
    """

    latency_ms: Interval
    throughput_per_s: Interval
    memory: MemoryFigures
    energy_j: Interval
    power_w: Interval
    mig: MigHint
    support: Support
    breakdown: dict[str, Any] = field(hash=False)
    provenance: dict[str, Any] = field(hash=False)
    workload: dict[str, Any] = field(hash=False)
    memory_verdict: MemoryVerdict | None = None
    decision: Decision | None = None
    asked: Any = field(default=None, repr=False, compare=False)

    @property
    def evidence(self) -> Any:
        """The measured records nearest to what was asked, a `perfpass.evidence.Evidence`; looked up when asked for.

        Raises UnsupportedError without pyarrow (extra ``evidence``), and for a prediction made by hand.
        """
        return evidence_of(self)

    @property
    def plot(self) -> Any:
        """Pictures of the run, a `perfpass.report.RunPlots`: ``prediction.plot.roofline().save("roofline.svg")``."""
        return plots_of(self)

    @property
    def peak_memory_bytes(self) -> Interval:
        """Memory in use on the device: `MemoryFigures.in_use`."""
        return self.memory.in_use

    @property
    def handed_over(self) -> float:
        """Share (0 to 1) of the time that is priced operator by operator because of operators nothing was learned of.

        0: they take too little of the time, there are none, or what predicts would not speak of the network anyway.
        """
        return float(self.provenance.get("handed_over", 0.0))

    def to_dict(self) -> dict[str, Any]:
        """The prediction as strict JSON (no NaN, no infinity), with its ``schema_version``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": self.workload,
            "memory_verdict": self.memory_verdict.to_dict() if self.memory_verdict else None,
            "latency_ms": self.latency_ms.to_dict(),
            "throughput_per_s": self.throughput_per_s.to_dict(),
            "peak_memory_bytes": self.peak_memory_bytes.to_dict(),
            "memory": self.memory.to_dict(),
            "energy_j": self.energy_j.to_dict(),
            "power_w": self.power_w.to_dict(),
            "mig": self.mig.to_dict(),
            "support": self.support.to_dict(),
            "breakdown": self.breakdown,
            "provenance": self.provenance,
            **({} if self.decision is None else {"decision": self.decision.to_dict()}),
        }

    def __str__(self) -> str:
        return prediction_table(self)

    def _repr_html_(self) -> str:
        return notebook_html(self)


def evidence_of(prediction: Any) -> Any:
    """The measured records nearest to a prediction's question.

    The records stand above everything that predicts; as the face of perfpass does, this names their room and imports it
    when it is asked for.
    """
    return import_module("perfpass.evidence").of(prediction)


def plots_of(result: Any) -> Any:
    """The pictures of a result; what draws them stands above everything that predicts, as the records do."""
    return import_module("perfpass.report").plots_of(result)


def notebook_html(result: Any) -> str:
    """A result as a notebook shows it, by the same way."""
    found: str = import_module("perfpass.report").notebook_html(result)
    return found


def prediction_table(prediction: Prediction) -> str:
    """The prediction for people: metrics with intervals, MIG hint and support."""
    p = prediction
    coverage = f"{p.latency_ms.coverage:.0%} interval"
    rows = [
        ("", "median", "", coverage),
        ("latency", *_cells(p.latency_ms, "ms")),
        ("throughput", *_cells(p.throughput_per_s, "samples/s")),
        ("memory in use", *_memory_cells(p.memory.in_use)),
        *((f"  {name}", *_cells(found)) for name, found in _inner_memory(p.memory)),
        ("energy", *_cells(p.energy_j, "J/run")),
        ("power", *_cells(p.power_w, "W")),
    ]
    w = p.workload
    device = p.provenance["device"]
    mig = f"{p.mig.profile}, {p.mig.instances_per_gpu} per GPU" if p.mig.profile else "none"
    optimizer = f" with {w['optimizer']}" if "optimizer" in w else ""
    verdict = p.memory_verdict.lines() if p.memory_verdict else []
    lines = [
        f"{printable(device['name'])} ({device['id']})",
        f"batch {w['batch']}, {w['precision']}, {w['mode']}{optimizer}, {w['runtime']}, {w['layout']}",
        *([textwrap.fill(reads, WIDTH, subsequent_indent="  ")] if (reads := read_words(w)) else []),
        *understood_line(device),
        *(["", *verdict] if verdict else []),
        *([HYPOTHETICAL] if p.memory_verdict and p.memory_verdict.fits == "no" else []),
        "",
        columns(rows, right=(1,)),
        "",
        paragraph("MIG profile", f"{mig}: {p.mig.reason}"),
        *([] if p.decision is None else [paragraph("decision", p.decision.headline)]),
        *_gradients_lines(p.memory),
        paragraph("support", p.support.level),
        *(paragraph("", f"- {reason}") for reason in p.support.reasons),
    ]
    return "\n".join(lines)


def read_words(workload: Mapping[str, Any]) -> str:
    """What the run reads, with the sizes that nobody asked for; "" of a prediction that does not say."""
    inputs, left = workload.get("inputs") or (), workload.get("assumed") or ()
    if not inputs:
        return ""
    shown = [f"{printable(i['name'])} {'x'.join(map(str, i['shape'])) or 'scalar'} {i['dtype']}" for i in inputs[:_FEW]]
    text = "reads " + ", ".join(shown) + (f" and {len(inputs) - _FEW} more" if len(inputs) > _FEW else "")
    if not left:
        return text
    by = " ".join(f"--dim {name}=N" for name in left)
    return f"{text}; {' and '.join(left)} {'is' if len(left) == 1 else 'are'} assumed ({by})"


def _gradients_lines(memory: MemoryFigures) -> list[str]:
    if not memory.gradients_bytes:
        return []
    return [
        paragraph("gradients", f"not kept: without torch.no_grad() it holds {size(memory.gradients_bytes)} more memory")
    ]


def understood_line(device: Mapping[str, Any]) -> list[str]:
    """The device that was understood, in a line, where the name asked for means others too; none where it is clear."""
    if not (others := device.get("others")):
        return []
    # All are in the JSON; a line has room for three.
    named = ", ".join(others) if len(others) <= 3 else f"{', '.join(others[:2])} and {len(others) - 2} more"
    text = f"read as {device['id']}; also of that name: {named}"
    return [textwrap.fill(f"device {text}", WIDTH, subsequent_indent="  ")]


def explanation(prediction: Prediction) -> str:
    """What stands behind a prediction: time and memory by class, the longest operators, the peak, sources."""
    p = prediction
    graph = p.provenance["graph"]
    total = sum(p.breakdown["latency_ms"].values()) or 1.0
    classes = [("operator class", "ms", "share")]
    classes += [(name, digits(ms), f"{ms / total:.1%}") for name, ms in p.breakdown["latency_ms"].items()]
    phases = p.breakdown.get("phase_ms", {}) | p.breakdown.get("component_ms", {})
    classes += [(f"({name})", digits(ms), f"{ms / total:.1%}") for name, ms in phases.items()]
    memory = [("part", "size")] + [(name, size(value)) for name, value in p.breakdown["memory_bytes"].items()]
    operators = [("operator", "runs", "ms", "share", "output", "example")]
    operators += [
        (
            o["operator"],
            digits(o["count"]),
            digits(o["ms"]),
            f"{o['ms'] / total:.1%}",
            "x".join(map(str, o["output_shape"])) or "scalar",
            printable(o["example"])[-40:],
        )
        for o in p.breakdown["operators"]
    ]
    peak = p.breakdown["peak"]
    tensors = [("tensor", "dtype", "shape", "made by")]
    tensors += [
        (
            printable(t["tensor"])[-36:] or "(unnamed)",
            t["dtype"],
            "x".join(map(str, t["shape"])) or "scalar",
            printable(t["producer"])[-36:],
        )
        for t in peak["largest"]
    ]
    lines = [
        f"Graph: {graph['nodes']} nodes, {graph['edges']} edges, {count(graph['macs'], 'MAC')}, "
        f"{count(graph['flops'], 'FLOP')}, {count(graph['parameters'])} parameters",
        "",
        "Time by operator class",
        columns(classes, right=(1, 2)),
        "",
        f"The {len(operators) - 1} operators that take longest (equal ones together)",
        columns(operators, right=(1, 2, 3)),
        "",
        "Memory at the peak",
        columns(memory, right=(1,)),
        paragraph("reached in", f"{peak['operator'] or 'the inputs'}, with {peak['live_tensors']} tensors alive"),
        columns(tensors),
    ]
    if graph["unknown_operators"]:
        lines += ["", "Operators without a cost model"]
        lines += [columns([(printable(n), str(c)) for n, c in graph["unknown_operators"].items()], right=(1,))]
    if graph["notes"]:
        lines += ["", "Notes of the graph", *(paragraph("", f"- {note}") for note in graph["notes"])]
    lines += ["", "Where the figures come from", *_provenance_lines(p.provenance)]
    return "\n".join(lines)


def _provenance_lines(provenance: dict[str, Any]) -> list[str]:
    device = provenance["device"]
    plain = {k: v for k, v in provenance.items() if k not in ("device", "graph") and v is not None}
    lines = [paragraph(key.replace("_", " "), _flat(value)) for key, value in plain.items()]
    if device["estimated_figures"]:
        lines.append(paragraph("estimated", f"{', '.join(device['estimated_figures'])} of {device['id']}"))
    return lines + [paragraph("device", note) for note in device["notes"]]


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_flat(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_flat(v) for v in value)
    return digits(value) if isinstance(value, float) else str(value)


def _cells(found: Interval, unit: str = "") -> tuple[str, str, str]:
    return interval(found.median, found.low, found.high, unit or found.unit)


def _inner_memory(memory: MemoryFigures) -> list[tuple[str, Interval]]:
    """Of what is in use, what the allocator holds and what of that is alive; nothing where they are not known."""
    found = (("reserved", memory.reserved), ("alive", memory.alive))
    return [(name, interval) for name, interval in found if interval is not None]


def _memory_cells(found: Interval) -> tuple[str, str, str]:
    median, unit, bounds = _cells(found)
    return median, unit, f"{bounds} (plan for the upper)"


def interval_row(label: str, found: Interval) -> str:
    """One metric as a line: median, unit, bounds and their coverage."""
    median, unit, bounds = _cells(found)
    return f"  {label:<22} {median:>10} {unit:<10} {bounds} ({found.coverage:.0%})"
