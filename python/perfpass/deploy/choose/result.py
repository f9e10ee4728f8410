"""What `choose` finds: the options in order, the decision in one sentence, and what would change it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any, Literal

from perfpass.prediction import Interval
from perfpass.text import WIDTH, columns, digits, item, printable, size

SCHEMA_VERSION = 1
PRICE = "price of "  # begins a note on where a price comes from
Decision = Literal["chosen", "none meets", "cannot say"]
EXIT: dict[Decision, int] = {"chosen": 0, "none meets": 1, "cannot say": 2}
_SHOWN = 8
_WORDS = ("", "device", "precision", "split")  # columns of the table that hold no numbers
_LABELS = {"peak_memory_bytes": "memory in use"}
COMBINED = (
    "P: at least, that all targets are kept together (lower bound of Frechet: 1 less what each leaves out), and that "
    "it fits into memory"
)


@dataclass(frozen=True)
class Option:
    """One way to run the model on a device: how, with what probability it keeps the targets, and what it costs.

    ``replicas`` copies of ``devices`` devices each. ``in_flight``: the most requests at once in a copy, or the batch.
    ``probabilities`` by target. ``figures`` by name, each with its interval: times in ms, rates per second of one copy.
    ``price``: USD of ``price_of`` (a million output tokens, a thousand samples); ``energy_j`` and ``carbon_g`` of as
    many; ``power_w`` of all devices; None: not known. ``split`` of a served copy: ``tp``, ``pp``, ``dp``, ``ep``, and
    ``flags``: how its engine is told. ``why``: why it is not the first, one sentence.
    """

    device: str
    devices: int
    replicas: int
    precision: str
    runtime: str
    in_flight: float
    meets: bool
    probability: float
    probabilities: dict[str, float] = field(hash=False)
    figures: dict[str, Interval] = field(hash=False)
    usd_per_hour: float | None
    price: Interval | None
    price_of: str
    support: str
    energy_j: Interval | None = None
    carbon_g: Interval | None = None
    power_w: Interval | None = None
    split: dict[str, int] = field(default_factory=dict, hash=False)
    flags: tuple[str, ...] = ()
    why: str = ""

    @property
    def count(self) -> int:
        """Devices of all copies."""
        return self.devices * self.replicas

    @property
    def split_as_text(self) -> str:
        """The ways that a copy is split in, as "tp 8, pp 2"; empty where it is not."""
        return ", ".join(f"{name} {ranks}" for name, ranks in self.split.items() if ranks > 1)

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        known = {"price": self.price, "energy_j": self.energy_j, "carbon_g": self.carbon_g, "power_w": self.power_w}
        plain = ("device", "devices", "replicas", "count", "precision", "runtime", "in_flight", "meets", "probability")
        return {
            **{name: getattr(self, name) for name in plain},
            "probabilities": self.probabilities,
            "figures": {name: found.to_dict() for name, found in self.figures.items()},
            "usd_per_hour": self.usd_per_hour,
            **{name: found.to_dict() if found else None for name, found in known.items()},
            "price_of": self.price_of,
            "support": self.support,
            **({"split": self.split, "flags": list(self.flags)} if self.split else {}),
            "why": self.why,
        }


@dataclass(frozen=True)
class Choice:
    """The answer: ``options``, one a device, those that keep the targets first and the cheapest of these foremost.

    ``decision``: "chosen", "none meets" (even the likeliest option misses a target) or "cannot say" (nothing that was
    asked has figures). ``load`` and ``targets`` as asked; ``changes``: what would change the decision, a sentence each.
    ``notes``: of prices and of what is not in the figures.
    """

    model: str
    decision: Decision
    headline: str
    load: dict[str, Any] = field(hash=False)
    targets: dict[str, Any] = field(hash=False)
    options: tuple[Option, ...]
    changes: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def chosen(self) -> Option | None:
        """The first option, where it keeps the targets."""
        return self.options[0] if self.decision == "chosen" else None

    @property
    def exit_code(self) -> int:
        """Of the command: 0 chosen, 1 none meets, 2 cannot say."""
        return EXIT[self.decision]

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, with its ``schema_version``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "decision": self.decision,
            "headline": self.headline,
            "load": self.load,
            "targets": self.targets,
            "options": [option.to_dict() for option in self.options],
            "combined": COMBINED,
            "changes": list(self.changes),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [textwrap.fill(printable(self.headline), WIDTH)]
        if self.options:
            lines += ["", self._table(), *(_figures(self.options[0]))]
        losers = [option for option in self.options[1:_SHOWN] if option.why]
        if losers:
            lines += ["", "  why not the others", *(item(f"{option.device}: {option.why}") for option in losers)]
        if self.changes:
            lines += ["", "  what would change it", *(item(text) for text in self.changes)]
        said = [note for note in self.notes if not note.startswith(PRICE)]
        if self.options:
            said += [note for note in self.notes if note.startswith(f"{PRICE}{self.options[0].device.split(':')[0]}:")]
        return "\n".join([*lines, "", *(item(note) for note in ([COMBINED] if self.options else []) + said)])

    def _table(self) -> str:
        what = "USD per 1M tokens" if "token" in self.options[0].price_of else "USD per 1,000"
        rows: list[tuple[str, ...]] = [
            ("", "device", "count", "copies", "precision", "at once", "P", "USD/h", what, "split")
        ]
        for i, option in enumerate(self.options[:_SHOWN]):
            usd = "no price" if option.usd_per_hour is None else digits(option.usd_per_hour)
            price = "" if option.price is None else digits(option.price.median)
            place = str(i + 1) if option.meets else "-"
            rows.append((place, printable(option.device), str(option.count), str(option.replicas), option.precision,
                         digits(option.in_flight), f"{option.probability:.3f}", usd, price,
                         option.split_as_text or "none"))  # fmt: skip
        more = len(self.options) - _SHOWN
        if not any(option.split for option in self.options):
            rows = [row[:-1] for row in rows]
        numbers = tuple(i for i, name in enumerate(rows[0]) if name not in _WORDS)
        return columns(rows, right=numbers) + (f"\n  and {more} more: --json has all" if more > 0 else "")


def _figures(option: Option) -> list[str]:
    """The first option's figures with their bounds."""
    named = {**option.figures, f"USD per {option.price_of}": option.price, f"J per {option.price_of}": option.energy_j}
    named |= {f"gCO2e per {option.price_of}": option.carbon_g, "power_w, all devices": option.power_w}
    rows = [(f"  {option.device}", "median", "90% interval")]
    for name, found in named.items():
        if found is not None:
            told = size if name == "peak_memory_bytes" else digits
            rows.append((_LABELS.get(name, name), told(found.median), f"{told(found.low)} to {told(found.high)}"))
    flags = [f"  {option.runtime} is told {' '.join(option.flags)}"] if option.split_as_text else []
    return ["", columns(rows, right=(1,)), *flags]
