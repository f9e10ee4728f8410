"""A prediction turned into a decision: what is to be kept, with which probability it is, and in which MIG slices.

One shape for all who carry it: `Prediction.decision`, the attributes of a TVM module and the libraries built from it,
the metadata of an ONNX file, a session's verdict, and what `perfpass pack --from` reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Literal

from perfpass.declared import Anything, Items, Maybe, Number, Table, Text
from perfpass.errors import ArgumentError, FormatError
from perfpass.interval import Interval
from perfpass.late import dataclass
from perfpass.text import digits, shown_value, size

Answer = Literal["yes", "no", "cannot say"]
FitAnswer = Literal["yes", "perhaps", "no"]
CONFIDENCE = 0.9
_MOST = 1e30
_MOST_SLICES = 64


def answer_of(probability: float, confidence: float) -> Answer:
    """Yes where it is kept with at least ``confidence``, no where it is missed with at least that."""
    if probability >= confidence:
        return "yes"
    return "no" if probability <= 1.0 - confidence else "cannot say"


def answer_on_fit(probability: float, confidence: float, *, possible: bool) -> Answer:
    """Whether memory is enough, by the one rule of every command, pass and session.

    As `answer_of`, and no only where it is not ``possible`` either: where even the lower bound of what is needed is
    over what can be had. Runs are known that ran although they were unlikely to, and what ran must fit.
    """
    found = answer_of(probability, confidence)
    return "cannot say" if found == "no" and possible else found


def fits(memory: Interval, available_bytes: float, confidence: float = CONFIDENCE) -> FitAnswer:
    """Whether a peak fits, by `answer_on_fit`; what cannot be said with that ``confidence`` is "perhaps"."""
    found = answer_on_fit(memory.probability_fits(available_bytes), confidence, possible=memory.low <= available_bytes)
    return shown_fit(found)


def keeps(figure: Interval, limit: float, confidence: float = CONFIDENCE) -> FitAnswer:
    """The same of any other figure and its limit."""
    found = answer_on_fit(figure.probability_below(limit), confidence, possible=figure.low <= limit)
    return shown_fit(found)


def shown_fit(answer: Answer) -> FitAnswer:
    """An answer in the words of a memory verdict."""
    return "perhaps" if answer == "cannot say" else answer


def together(each: Iterable[float]) -> float:
    """The least probability that all hold, of the probabilities of each: 1 less what each leaves out.

    The lower bound of Frechet (Fundamenta Mathematicae 25, 1935; Bonferroni's inequality); it holds however their
    errors depend on one another, which no record says.
    """
    return max(0.0, 1.0 - sum(1.0 - p for p in each))


def percent(probability: float | None) -> str:
    """A probability in words that claim neither certainty nor a whole number that it is not: 0.8997 is not "90 %"."""
    if probability is None:
        return "not known"
    if probability >= 0.999:
        return "over 99.9 %"
    if probability <= 0.001:
        return "under 0.1 %"
    whole = f"{100 * probability:.3g}"
    return f"{100 * probability:.4g} %" if "." not in whole else f"{whole} %"


@dataclass(frozen=True)
class Change:
    """One change after which it fits. ``kind``: load, setting, cache, quantization, split, offload or device;
    ``options``: what `perfpass.fit` takes for it; ``probability`` and ``needed_bytes`` are those with the change.
    """

    kind: str
    text: str
    options: Mapping[str, Any] = field(hash=False)
    probability: float
    needed_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**vars(self), "options": dict(self.options)}


@dataclass(frozen=True)
class Limits:
    """What a run is to keep: ms (of one run), bytes in use, joules (of one run); None: not asked.

    That it fits into its device is always asked. ``confidence``: the probability with which all are to be kept
    together, above 0.5 and below 1. Raises ArgumentError for anything else.
    """

    latency_ms: float | None = None
    memory_bytes: float | None = None
    energy_j: float | None = None
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        for name in ("latency_ms", "memory_bytes", "energy_j"):
            value = getattr(self, name)
            if value is not None and not Number(0, _MOST, above=True).fits(value):
                raise ArgumentError(f"{name} {shown_value(value)}; it must be a finite number above 0")
        if not Number(0.5, 1, above=True).fits(self.confidence) or self.confidence >= 1:
            raise ArgumentError(f"confidence must be above 0.5 and below 1, got {shown_value(self.confidence)}")

    @property
    def stated(self) -> bool:
        """Whether anything beside that it fits is asked."""
        return any(v is not None for v in (self.latency_ms, self.memory_bytes, self.energy_j))

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Place:
    """A run in one place: a whole device, or one MIG slice of it with how many ``instances_per_gpu`` there can be.

    Figures as of a `Prediction`: one run, and ``memory_bytes`` in use beside ``available_bytes``. Only the memory is
    always known; ``support``: the level of the prediction, "" where none was made.
    """

    device: str
    profile: str | None
    instances_per_gpu: int
    memory_bytes: Interval
    available_bytes: int
    latency_ms: Interval | None = None
    throughput_per_s: Interval | None = None
    energy_j: Interval | None = None
    support: str = ""

    def probabilities(self, limits: Limits) -> dict[str, float]:
        """That it ``fits`` the device, and that each limit is kept, 0 to 1; without those whose figure is not known."""
        memory = self.memory_bytes
        found = {"fits": memory.probability_fits(self.available_bytes)}
        if limits.memory_bytes is not None:
            found["memory_bytes"] = memory.probability_fits(limits.memory_bytes)
        for name in ("latency_ms", "energy_j"):
            figure, limit = getattr(self, name), getattr(limits, name)
            if figure is not None and limit is not None:
                found[name] = figure.probability_below(limit)
        return found

    def probability(self, limits: Limits) -> float | None:
        """That all is kept together, at least (`together`); None where a limit is stated on a figure not known.

        The device's memory and a limit on memory are limits on one figure: the tighter one counts.
        """
        each = self.probabilities(limits)
        wanted = {name for name in ("latency_ms", "energy_j") if getattr(limits, name) is not None}
        if not wanted <= each.keys():
            return None
        fits = min(each.pop("fits"), each.pop("memory_bytes", 1.0))
        return together([fits, *each.values()])

    def to_dict(self, limits: Limits) -> dict[str, Any]:
        """Strict JSON, with the probabilities under ``limits``."""
        found = {name: value.to_dict() if isinstance(value, Interval) else value for name, value in vars(self).items()}
        return {**found, "probability": self.probability(limits), "probabilities": self.probabilities(limits)}


@dataclass(frozen=True)
class Decision:
    """Whether a run keeps its limits where it was predicted, and which MIG slices would.

    ``place``: where it was predicted. ``slices``: the MIG slices of that GPU, the smallest first, with what the run
    costs in each; none of a device without MIG and of a slice. What is decided follows from these figures:
    `under` gives the same of other limits.
    """

    limits: Limits
    place: Place
    slices: tuple[Place, ...] = ()

    @property
    def probability(self) -> float | None:
        """That all limits are kept where it was predicted; None where a limited figure is not known."""
        return self.place.probability(self.limits)

    @property
    def probabilities(self) -> dict[str, float]:
        """That it ``fits``, and that each limit is kept, there."""
        return self.place.probabilities(self.limits)

    @property
    def answer(self) -> Answer:
        """Yes where all limits are kept with the confidence asked for, no where not all are with that much.

        Memory alone is no reason for a no but by the rule on memory (`fits`).
        """
        found, confidence = self.probability, self.limits.confidence
        if found is None:
            return "cannot say"
        each = self.probabilities
        most = min(each.pop("fits"), each.pop("memory_bytes", 1.0))
        limit = self.limits.memory_bytes
        available = self.place.available_bytes if limit is None else min(limit, self.place.available_bytes)
        possible = self.place.memory_bytes.low <= available
        memory = answer_on_fit(most, confidence, possible=possible)
        missed = answer_of(together(each.values()), confidence) == "no"
        return answer_on_fit(found, confidence, possible=not missed and memory != "no")

    @property
    def kept_in(self) -> tuple[Place, ...]:
        """The MIG slices that keep the limits with the confidence asked for, the smallest first."""
        return tuple(s for s in self.slices if (s.probability(self.limits) or 0.0) >= self.limits.confidence)

    @property
    def smallest(self) -> Place | None:
        """The smallest of them: the MIG hint by probability."""
        return next(iter(self.kept_in), None)

    def under(self, limits: Limits) -> Decision:
        """The same run under other limits."""
        return replace(self, limits=limits)

    @property
    def headline(self) -> str:
        """The decision in a sentence."""
        asked = self.limits
        limits = {
            "memory": None if asked.memory_bytes is None else size(asked.memory_bytes),
            "latency": None if asked.latency_ms is None else f"{digits(asked.latency_ms)} ms",
            "energy": None if asked.energy_j is None else f"{digits(asked.energy_j)} J",
        }
        kept = ", ".join(f"{name} at most {text}" for name, text in limits.items() if text is not None)
        said = {"yes": "keeps", "no": "does not keep", "cannot say": "may or may not keep"}[self.answer]
        if not kept:
            said = {"yes": "fits", "no": "does not fit", "cannot say": "may or may not fit"}[self.answer]
        each = self.probabilities
        names = {"fits": "fits", "memory_bytes": "memory", "latency_ms": "latency", "energy_j": "energy"}
        parts = ", ".join(f"P({names[name]}) {percent(p)}" for name, p in each.items())
        text = (
            f"{said}{f' {kept}' if kept else ''} on {self.place.device} with confidence {asked.confidence:g}: {parts}"
        )
        if self.slices:
            best = self.smallest
            if best is None:
                text += "; no MIG slice does"
            else:
                text += f"; smallest slice {best.profile}, P {percent(best.probability(asked))}"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON: the figures, and what is decided by them."""
        return {
            "answer": self.answer,
            "headline": self.headline,
            "limits": self.limits.to_dict(),
            "probability": self.probability,
            "probabilities": self.probabilities,
            "place": self.place.to_dict(self.limits),
            "slices": [one.to_dict(self.limits) for one in self.slices],
            "smallest": self.smallest.profile if self.smallest else None,
        }

    @classmethod
    def from_dict(cls, document: Any, where: str = "") -> Decision:
        """What `to_dict` gave; what is decided is decided anew from the figures. Raises FormatError for no decision."""
        if not isinstance(document, Mapping):
            raise FormatError(f"{where or 'decision'}: not a decision; give what `Decision.to_dict` made")
        found = _DECISION.take(document, where or "decision")
        try:
            return cls(Limits(**found["limits"]), _place(found["place"]), tuple(_place(one) for one in found["slices"]))
        except ArgumentError as error:
            raise FormatError(f"{where or 'decision'}: {error}") from error


_INTERVAL = Table(
    {
        **dict.fromkeys(("median", "low", "high"), Number(0, _MOST)),
        "unit": Text(10),
        "coverage": Number(0, 1, above=True),
    },
    ("median", "low", "high", "unit", "coverage"),
)
_PLACE = Table(
    {
        "device": Text(200),
        "profile": Maybe(Text(40)),
        "instances_per_gpu": Number(1, 64, whole=True),
        "memory_bytes": _INTERVAL,
        "available_bytes": Number(0, 2**62, whole=True),
        **dict.fromkeys(("latency_ms", "throughput_per_s", "energy_j"), Maybe(_INTERVAL)),
        "support": Text(20, empty=True),
    },
    ("device", "profile", "instances_per_gpu", "memory_bytes", "available_bytes"),
    others=Anything(),
)
_DECISION = Table(
    {
        "limits": Table(
            {
                **dict.fromkeys(("latency_ms", "memory_bytes", "energy_j"), Maybe(Number(0, _MOST))),
                "confidence": Number(0, 1),
            },
            ("confidence",),
        ),
        "place": _PLACE,
        "slices": Items(_PLACE, _MOST_SLICES),
    },
    ("limits", "place", "slices"),
    others=Anything(),
)


def _place(found: Mapping[str, Any]) -> Place:
    figures: dict[str, Any] = {
        name: Interval(**found[name])
        for name in ("memory_bytes", "latency_ms", "throughput_per_s", "energy_j")
        if found.get(name) is not None
    }
    plain = {name: found[name] for name in ("device", "profile", "instances_per_gpu", "available_bytes")}
    return Place(**plain, **figures, support=found.get("support", ""))
