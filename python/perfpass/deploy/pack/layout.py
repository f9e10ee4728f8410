"""What `pack` answers: GPUs with their slices and models, the proof or the gap, what is left over, and what changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from perfpass.deploy.pack.change import Step
from perfpass.deploy.pack.fleet import WHOLE, Fleet, Model
from perfpass.deploy.pack.options import Option
from perfpass.deploy.pack.problem import Status
from perfpass.devices import Device
from perfpass.prediction import plots_of
from perfpass.text import columns, count, digits, item, paragraph, size

SCHEMA_VERSION = 1
_CELL = 12  # characters of a memory slice in a picture
_MOST_PICTURES = 40  # GPUs that are drawn; the rest are in the JSON
_MOST_STEPS = 40


@dataclass(frozen=True)
class Instance:
    """One instance: its profile ("whole": the GPU without MIG), first memory slice, and the model it was made for."""

    profile: str
    start: int
    model: str
    option: Option

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"start": self.start, "model": self.model, **self.option.to_dict()}


@dataclass(frozen=True)
class Gpu:
    """One GPU that is used: its name in the fleet, node and index there, and its instances by first memory slice.

    ``free_compute`` and ``free_memory``: slices that no instance takes; ``could_hold``: profiles that each would still
    fit; ``stranded_compute`` and ``stranded_memory``: of the free slices those that no further instance can use.
    """

    name: str
    node: str
    index: int
    device: Device
    instances: tuple[Instance, ...]
    free_compute: int
    free_memory: int
    stranded_compute: int
    stranded_memory: int
    could_hold: tuple[str, ...]

    @property
    def mig(self) -> bool:
        """Whether it runs in MIG mode."""
        return all(one.profile != WHOLE for one in self.instances)

    def picture(self) -> str:
        """Its memory slices in a line, as wide as what they hold."""
        if not self.mig:
            one = self.instances[0]
            return f"[{_cell(f'whole {one.model}{_times(one)}', 8 * _CELL - 1)}]"
        slices = self.device.mig.memory_slices if self.device.mig else 1
        parts, at = [], 0
        for one in self.instances:
            parts += ["." * (_CELL - 1)] * (one.start - at)
            width = self.device.mig.profile(one.profile).memory_slices if self.device.mig else 1
            parts.append(_cell(f"{one.profile} {one.model}{_times(one)}", width * _CELL - 1))
            at = one.start + width
        parts += ["." * (_CELL - 1)] * (slices - at)
        return f"[{'|'.join(parts)}]"

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "name": self.name,
            "node": self.node,
            "index": self.index,
            "device": self.device.id,
            "mig": self.mig,
            "instances": [one.to_dict() for one in self.instances],
            "free_compute": self.free_compute,
            "free_memory": self.free_memory,
            "stranded_compute": self.stranded_compute,
            "stranded_memory": self.stranded_memory,
            "could_hold": list(self.could_hold),
        }


def _times(one: Instance) -> str:
    return f" x{one.option.processes}" if one.option.processes > 1 else ""


def _cell(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[: width - 2]}.."


@dataclass(frozen=True)
class Problems:
    """Why a fleet cannot be packed: sentences on what stands against it, and on the changes that would do."""

    reasons: tuple[str, ...]
    would_do: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"reasons": list(self.reasons), "would_do": list(self.would_do)}


@dataclass(frozen=True)
class Layout:
    """Models on GPUs. ``print(layout)`` gives a table with a picture of every GPU, ``to_dict()`` strict JSON.

    ``status``: "optimal" (proven), "feasible" (the best found in time; ``gap`` says how far from the least it may be),
    "unsatisfiable" (``problems`` say why) or "unknown" (nothing was found in time). ``value``: GPUs, or USD an hour, as
    the fleet's objective is; no layout has less than ``bound``. ``steps``: from today's layout to this one.
    """

    status: Status
    fleet: Fleet
    gpus: tuple[Gpu, ...]
    value: float
    bound: float
    seconds: float
    steps: tuple[Step, ...] = ()
    problems: Problems | None = None
    notes: tuple[str, ...] = ()
    usd_per_hour: float | None = None
    options: tuple[tuple[Option, ...], ...] = field(default=(), repr=False, compare=False)

    @property
    def gap(self) -> float:
        """How far the value may be above the least, as a share of it."""
        return (self.value - self.bound) / self.value if self.value else 0.0

    @property
    def found(self) -> bool:
        """Whether there is a layout."""
        return self.status in ("optimal", "feasible")

    @property
    def headline(self) -> str:
        """The decision in one sentence."""
        if self.status == "unknown":
            return f"CANNOT SAY: no layout was found in {digits(self.seconds)} s, and none was ruled out"
        if self.status == "unsatisfiable":
            first = self.problems.reasons[0] if self.problems and self.problems.reasons else "no layout holds it"
            return f"CANNOT BE PACKED: {first}"
        many = f"{len(self.gpus)} GPU{'s' * (len(self.gpus) != 1)}"
        of = ", ".join(f"{n} {name}" for name, n in sorted(Counter(g.device.id for g in self.gpus).items()))
        proof = "proven least" if self.status == "optimal" else f"at most {self.gap:.1%} above the least"
        price = "" if self.usd_per_hour is None else f", {digits(self.usd_per_hour)} USD an hour"
        what = "models" if len(self.fleet.models) != 1 else "model"
        return f"PACKED: {len(self.fleet.models)} {what} on {many} ({of}){price}; {proof}"

    def instances_of(self, model: str) -> tuple[tuple[Gpu, Instance], ...]:
        """Where a model runs."""
        return tuple((gpu, one) for gpu in self.gpus for one in gpu.instances if one.model == model)

    @property
    def plot(self) -> Any:
        """Pictures, a `perfpass.report.FleetPlots`."""
        return plots_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "headline": self.headline,
            "objective": self.fleet.objective,
            "value": self.value,
            "bound": self.bound,
            "gap": self.gap,
            "usd_per_hour": self.usd_per_hour,
            "seconds": self.seconds,
            "confidence": self.fleet.confidence,
            "memory_confidence": self.fleet.memory_confidence,
            "utilisation": self.fleet.utilisation,
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "models": [self._model(model) for model in self.fleet.models],
            "steps": [step.to_dict() for step in self.steps],
            "problems": self.problems.to_dict() if self.problems else None,
            "notes": list(self.notes),
        }

    def _model(self, model: Model) -> dict[str, Any]:
        mine = self.instances_of(model.name)
        return {
            "name": model.name,
            "instances": len(mine),
            "copies": sum(one.option.processes for _, one in mine),
            "rate_per_s": model.rate or None,
            "capacity_per_s": sum(one.option.rate_per_s for _, one in mine),
            "p_meets": min((one.option.p_meets for _, one in mine), default=None),
            "p_fits": min((one.option.p_fits for _, one in mine), default=None),
        }

    def __str__(self) -> str:
        return table(self)


def table(layout: Layout) -> str:
    """The layout for people."""
    lines = [layout.headline]
    if layout.problems:
        lines += ["", *rest] if (rest := [item(one) for one in layout.problems.reasons[1:]]) else []
        if layout.problems.would_do:
            alone = "one for each model" if rest else "each alone"
            lines += ["", f"  would do, {alone}:", *(item(one) for one in layout.problems.would_do)]
    if layout.found:
        lines += ["", *_pictures(layout), "", _models(layout), "", *_left_over(layout)]
    if layout.steps:
        lines += ["", "  from today's layout, in this order:"]
        lines += [f"    {n}. {step}" for n, step in enumerate(layout.steps[:_MOST_STEPS], 1)]
        if len(layout.steps) > _MOST_STEPS:
            lines.append(f"    ... and {len(layout.steps) - _MOST_STEPS} more (--json has all)")
    return "\n".join([*lines, *(paragraph("note", one) for one in layout.notes)])


def _pictures(layout: Layout) -> list[str]:
    lines = []
    for gpu in layout.gpus[:_MOST_PICTURES]:
        lines += [f"  {gpu.name}  {gpu.device.id}", f"  {gpu.picture()}"]
    if len(layout.gpus) > _MOST_PICTURES:
        lines.append(f"  ... and {len(layout.gpus) - _MOST_PICTURES} more GPUs (--json has all)")
    return lines


def _models(layout: Layout) -> str:
    rows = [("model", "copies", "latency ms", "P(meets)", "P(fits)", "memory", "asked/s", "serves/s", "slices")]
    for model in layout.fleet.models:
        mine = [one for _, one in layout.instances_of(model.name)]
        slices = Counter(one.profile for one in mine)
        slow = max((one.option for one in mine), key=lambda o: o.latency_ms.high)
        rows.append(
            (
                model.name,
                str(sum(one.option.processes for one in mine)),
                f"{digits(slow.latency_ms.median)}, up to {digits(slow.latency_ms.high)}",
                f"{min(one.option.p_meets for one in mine):.3f}" if _targets(model) else "-",
                f"{min(one.option.p_fits for one in mine):.3f}",
                size(max(one.option.memory_bytes.high for one in mine)),
                count(model.rate) if model.rate else "-",
                count(sum(one.option.rate_per_s for one in mine)),
                ", ".join(f"{n} x {name}" if n > 1 else name for name, n in sorted(slices.items())),
            )
        )
    return columns(rows, right=(1, 3, 4, 5, 6, 7))


def _targets(model: Model) -> bool:
    return any(t is not None for t in (model.latency_ms, model.ttft_ms, model.tpot_ms))


def _left_over(layout: Layout) -> list[str]:
    compute, memory = sum(g.free_compute for g in layout.gpus), sum(g.free_memory for g in layout.gpus)
    stranded = sum(g.stranded_compute for g in layout.gpus), sum(g.stranded_memory for g in layout.gpus)
    room = Counter(name for g in layout.gpus for name in g.could_hold)
    text = f"{compute} compute and {memory} memory slices; stranded: {stranded[0]} compute, {stranded[1]} memory"
    if room:
        text += f"; room for one more of {', '.join(f'{name} (on {n})' for name, n in sorted(room.items()))}"
    return [paragraph("left over", text)]
