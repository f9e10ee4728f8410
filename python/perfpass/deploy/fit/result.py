"""What `perfpass fit` answers: a decision, its figures with their intervals, the reason, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfpass.decision import Answer, Change, percent
from perfpass.prediction import Interval, notebook_html
from perfpass.text import columns, item, paragraph, size
from perfpass.text import interval as cells

SAID: Mapping[Answer, str] = {"yes": "fits", "no": "does not fit", "cannot say": "cannot say"}
STATUS: Mapping[Answer, int] = {"yes": 0, "no": 1, "cannot say": 2}
SCHEMA_VERSION = 1
_NAMED = 12  # boards in a text


@dataclass(frozen=True)
class Largest:
    """What still fits with the asked confidence: ``concurrency`` sequences of the asked ``context`` (of a network: the
    ``batch``), and the longest ``context`` of as many as were asked. None: not asked, or none does.
    """

    concurrency: int | None = None
    context: int | None = None
    batch: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class DeviceFit:
    """The answer for one device (each of ``gpus`` equal ones): bytes, on the fullest of them.

    ``needed`` against ``limit_bytes``, of which ``probability`` is made (None where a part is not
    known); ``limit`` says what sets the limit. ``parts``:
    weights, cache, activations and runtime, and the ``cache`` by kind; ``host_bytes`` stay in the host's memory, as
    ``host`` says.
    ``in_use``: what the device will show, and ``basis`` what stands behind that figure.
    """

    device: str
    device_name: str
    gpus: int
    answer: Answer
    probability: float | None
    needed: Interval
    limit_bytes: int
    limit: str
    memory_bytes: int
    parts: Mapping[str, int] = field(hash=False)
    cache: Mapping[str, int] = field(hash=False)
    host_bytes: int = 0
    host: str = ""
    in_use: Interval | None = None
    basis: str = ""
    largest: Largest = field(default_factory=Largest)
    reason: str = ""
    changes: tuple[Change, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            **vars(self),
            "needed": self.needed.to_dict(),
            "parts": dict(self.parts),
            "cache": dict(self.cache),
            "in_use": self.in_use.to_dict() if self.in_use else None,
            "largest": self.largest.to_dict(),
            "changes": [change.to_dict() for change in self.changes],
        }

    @property
    def where(self) -> str:
        """The device, and how many of it."""
        return self.device if self.gpus == 1 else f"{self.gpus} x {self.device}"


@dataclass(frozen=True)
class Board:
    """A board that holds a model, with ``usd_per_hour`` where the shipped table of prices has it."""

    device: str
    memory_bytes: int
    probability: float
    needed_bytes: int
    usd_per_hour: float | None

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Fit:
    """Whether a model fits. ``print(fit)`` gives the decision with its figures, ``to_dict()`` strict JSON.

    ``answers``: one for each device that was asked; where none was (``asked`` False), the smallest devices that hold
    it, ``boards``: all of the catalogue that do, and ``below``: the largest that does not and is smaller than they,
    with what would make it. ``load`` and ``settings`` are what was counted, ``assumed`` the names of those that nobody
    stated.
    """

    model: str
    kind: str
    parameters: int
    runtime: str
    confidence: float
    answers: tuple[DeviceFit, ...]
    load: Mapping[str, Any] = field(hash=False)
    settings: Mapping[str, Any] = field(hash=False)
    weights_basis: str = ""
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asked: bool = True
    boards: tuple[Board, ...] = ()
    below: DeviceFit | None = None

    @property
    def answer(self) -> Answer:
        """For all devices that were asked together: yes where it fits each, no where it does not fit one of them."""
        every = [one.answer for one in self.answers]
        if not self.asked:
            return "yes" if "yes" in every else "no"
        return next((a for a in ("no", "cannot say") if a in every), "yes")  # type: ignore[return-value]

    @property
    def exit_status(self) -> int:
        """Of the command: 0 yes, 1 no, 2 cannot say."""
        return STATUS[self.answer]

    @property
    def probability(self) -> float | None:
        """The least over the devices that were asked; None where one is not known."""
        known = [one.probability for one in self.answers if one.probability is not None]
        return min(known, default=0.0) if len(known) == len(self.answers) else None

    @property
    def cheapest(self) -> Board | None:
        """Of ``boards`` the one with the lowest price; None where none has one."""
        priced = [one for one in self.boards if one.usd_per_hour is not None]
        return min(priced, key=lambda one: (one.usd_per_hour or 0.0, one.memory_bytes), default=None)

    @property
    def headline(self) -> str:
        """The decision in a sentence."""
        if not self.asked:
            held = [one.where for one in self.answers if one.answer == "yes"]
            if not held:
                return f"{self.model} fits on no single device of the catalogue with {self.runtime}"
            cheapest = self.cheapest
            paid = f"; the cheapest is {cheapest.device}, {cheapest.usd_per_hour:g} USD an hour" if cheapest else ""
            return f"{self.model} fits on {' or '.join(held)} and on what has more memory, with {self.runtime}{paid}"
        if len(self.answers) > 1:
            held = [one.where for one in self.answers if one.answer == "yes"]
            if not held:
                unsure = [one.where for one in self.answers if one.answer == "cannot say"]
                may = f"; it may or may not on {', '.join(unsure)}" if unsure else ""
                return f"{self.model} fits on none of {len(self.answers)} devices{may}"
            return f"{self.model} fits on {len(held)} of {len(self.answers)} devices: {', '.join(held)}"
        (one,) = self.answers
        said = {"yes": "fits on", "no": "does not fit on", "cannot say": "may or may not fit on"}[one.answer]
        each = " on each" if one.gpus > 1 else ""
        return (
            f"{self.model} {said} {one.where} with {self.runtime}: P(fits) {percent(one.probability)}, "
            f"{size(one.needed.median)} of {size(one.limit_bytes)} needed{each}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, with its ``schema_version``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "answer": self.answer,
            "exit_status": self.exit_status,
            "headline": self.headline,
            "model": self.model,
            "kind": self.kind,
            "parameters": self.parameters,
            "runtime": self.runtime,
            "confidence": self.confidence,
            "probability": self.probability,
            "weights_basis": self.weights_basis,
            "load": dict(self.load),
            "settings": dict(self.settings),
            "assumed": list(self.assumed),
            "asked": self.asked,
            "answers": [one.to_dict() for one in self.answers],
            "boards": [one.to_dict() for one in self.boards],
            "cheapest": self.cheapest.to_dict() if self.cheapest else None,
            "below": self.below.to_dict() if self.below else None,
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        return notebook_html(self)

    def __str__(self) -> str:
        blocks = [self.headline, _line(self)]
        if len(self.answers) > 1:
            blocks.append(_overview(self.answers))
        if self.boards:
            named = ", ".join(one.device for one in self.boards[:_NAMED])
            more = len(self.boards) - _NAMED
            said = f"{named}, and {more} more (--json names all)" if more > 0 else named
            blocks.append(paragraph("held by", f"{len(self.boards)} of the catalogue's boards: {said}"))
        if self.below is not None:
            blocks.append(_block(self.below, many=True))
        if self.asked:
            blocks += [_block(one, many=len(self.answers) > 1) for one in self.answers]
        if self.notes:
            blocks.append("\n".join(paragraph("note", note) for note in self.notes))
        return "\n\n".join(blocks)


def _line(found: Fit) -> str:
    """What was counted: the load and the settings."""
    said = [f"{name.replace('_', ' ')} {value:,}" for name, value in found.load.items() if isinstance(value, int)]
    said += [f"{name.replace('_', ' ')} {value}" for name, value in found.settings.items() if value not in (None, "")]
    text = ", ".join(said)
    if found.assumed:
        text += f" (assumed: {', '.join(name.replace('_', ' ') for name in found.assumed)})"
    return paragraph("counted", text)


def _overview(answers: tuple[DeviceFit, ...]) -> str:
    rows = [("device", "", "P(fits)", "needed", "up to", "may be filled")]
    rows += [
        (
            one.where,
            SAID[one.answer],
            percent(one.probability),
            size(one.needed.median),
            size(one.needed.high),
            size(one.limit_bytes),
        )
        for one in answers
    ]
    return columns(rows, right=(2, 3, 4, 5))


def _block(one: DeviceFit, *, many: bool) -> str:
    """The figures of one device, the reason and what would help."""
    rows: list[tuple[str, ...]] = []
    for name, value in one.parts.items():
        kinds = one.cache if name == "cache" else {}
        rows.append((name, *size(value).split(), next(iter(kinds)) if len(kinds) == 1 else ""))
        rows += [("", *size(v).split(), kind) for kind, v in kinds.items() if len(kinds) > 1]
    median, unit, bounds = cells(one.needed.median, one.needed.low, one.needed.high, "byte")
    limit = f" ({one.limit})" if one.limit else ""
    rows.append(("needed", median, unit, f"{bounds}; it may fill {size(one.limit_bytes)}{limit}"))
    if one.in_use is not None:
        median, unit, bounds = cells(one.in_use.median, one.in_use.low, one.in_use.high, "byte")
        rows.append(("in use", median, unit, f"{bounds}{f' ({one.basis})' if one.basis else ''}"))
    if one.host_bytes:
        rows.append(("on the host", *size(one.host_bytes).split(), one.host))
    lines = [f"{one.where} ({one.device_name})"] if many else []
    lines.append(columns(rows, right=(1,)))
    if most := _most(one.largest):
        lines.append(paragraph("still fits", most))
    if one.reason:
        lines.append(paragraph("why", one.reason))
    if one.changes:
        lines.append(paragraph("would fit", "with one of these"))
        lines += [
            item(f"{c.text}: P(fits) {percent(c.probability)}, {size(c.needed_bytes)} needed") for c in one.changes
        ]
    return "\n".join(lines)


def _most(largest: Largest) -> str:
    said = []
    if largest.batch is not None:
        said.append(f"batch {largest.batch:,}")
    if largest.concurrency is not None:
        several = "s" if largest.concurrency > 1 else ""
        said.append(f"{largest.concurrency:,} sequence{several} of this context at once")
    if largest.context is not None:
        said.append(f"a context of {largest.context:,} tokens for as many as asked")
    return "; ".join(said)
