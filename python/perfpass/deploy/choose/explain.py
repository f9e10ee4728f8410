"""The words of a choice: the decision, why the others lose, what would change it, what would do where none meets."""

from __future__ import annotations

from collections.abc import Sequence

from perfpass.deploy.choose import queue
from perfpass.deploy.choose.candidates import NO_CHANCE, Candidate, Points, Term
from perfpass.deploy.choose.result import Decision, Option
from perfpass.deploy.choose.targets import OPTION, limit_of, rounded_up
from perfpass.text import digits

_FIGURE = {
    "ttft_ms": "time to the first token",
    "tpot_ms": "time per token",
    "latency_ms": "latency",
    "p99_ms": "99th percentile",
    "max_usd_per_hour": "price an hour",
    "max_power_w": "power",
    "memory": "memory",
    "rate": "rate",
}
_UNIT = {"max_usd_per_hour": "USD", "max_power_w": "W"}
_MOST_REMEDIES = 4


def explained(
    points: Points, ranked: Sequence[Candidate], options: Sequence[Option]
) -> tuple[list[str], str, Decision]:
    """Why each option is not the first ("" of the first), the decision in a sentence, and the decision."""
    if not options:
        return [], "No device that was asked can be judged.", "cannot say"
    first, best = options[0], ranked[0]
    confidence = points.targets.confidence
    whys = [""] + [_why(points, one, best, option, first) for one, option in zip(ranked[1:], options[1:], strict=True)]
    if not first.meets:
        whys[0] = missed(points, best)
        which = "likeliest" if best.worst >= NO_CHANCE else "nearest"
        said = f"No option keeps all targets with probability {confidence:g}. The {which} is {_deployment(first)}: "
        return whys, said + whys[0] + ".", "none meets"
    if first.price is None:
        return whys, "Options keep the targets, but none of their devices has a price in the table.", "cannot say"
    price = f"{digits(first.price.median)} USD per {first.price_of}"
    hour = f", {digits(first.usd_per_hour)} USD an hour" if first.usd_per_hour is not None else ""
    targets = "keeps all targets" if points.targets.limits() or points.load.rate_per_s else "fits"
    said = f"Take {_deployment(first)}: {price}{hour}; it {targets} with probability {first.probability:.3f} at least."
    return whys, said, "chosen"


def _deployment(option: Option) -> str:
    at_once = f"{digits(option.in_flight)} at once" if option.in_flight != 1 else "one at a time"
    split = f", split over {option.devices}" if option.devices > 1 else ""
    split += f": {option.split_as_text}" if option.devices > option.split.get("tp", 1) else ""
    copies = f", {option.replicas} copies" if option.replicas > 1 else ""
    return f"{option.count} x {option.device} ({option.precision}, {option.runtime}{split}{copies}, {at_once})"


def _why(points: Points, one: Candidate, best: Candidate, option: Option, first: Option) -> str:
    if not option.meets:
        return missed(points, one)
    if option.price is None:
        return "it keeps the targets, and the price table has no price of it"
    if first.price is None:
        return ""
    ratio = option.price.median / first.price.median
    count = f" with {option.count} of it" if option.count > 1 else ""
    dearer = f"{ratio:.3g} times the price" if ratio >= 1.005 else "the same price, with a lower probability"
    return f"{dearer}: {digits(option.price.median)} USD per {option.price_of}{count}"


def missed(points: Points, one: Candidate) -> str:
    """The target that a candidate is least likely to keep, in a sentence."""
    worst = min(one.terms, key=lambda term: term.probability)
    at = (
        f"with probability {worst.probability:.2g}" if worst.probability >= NO_CHANCE else "with next to no probability"
    )
    if worst.name == "memory":
        return f"memory holds it {at}"
    if worst.name == "rate":
        load = f"{digits(points.load.rate_per_s or 0.0)} a second"
        return f"{load} are answered {at}, by {one.copies * points.devices(one.row)} of it"
    asked = points.targets.limits()[worst.name]
    if worst.name == "max_usd_per_hour":
        return f"--max-price {asked:g}: it costs {digits(one.usd_per_hour)} USD an hour"
    if worst.found is None:
        return f"{OPTION[worst.name]} {asked:g} is kept {at}"
    predicted = _predicted(points, one, worst)
    if worst.probability < NO_CHANCE:
        return f"{OPTION[worst.name]} {asked:g} is out of reach: {predicted} are predicted"
    return f"{OPTION[worst.name]} {asked:g} is kept {at} (predicted {predicted})"


def _predicted(points: Points, one: Candidate, term: Term) -> str:
    assert term.found is not None
    value = term.found.median
    if term.name == "p99_ms":
        value = _p99(points, one, value)
    return f"{digits(value)} {_UNIT.get(term.name, 'ms')}"


def _p99(points: Points, one: Candidate, run_ms: float) -> float:
    assert points.load.rate_per_s is not None
    return queue.p99_ms(run_ms, int(points.at_once(one.row)), points.load.rate_per_s / one.copies)


def changed(points: Points, ranked: Sequence[Candidate], options: Sequence[Option]) -> tuple[str, ...]:
    """What would change a decision that was made."""
    first, out = options[0], []
    if first.probability < 1.0:
        out.append(f"more than --confidence {_down(first.probability)}, which this option does not reach")
    for option in options[1:]:
        if option.meets and option.price is not None and first.price is not None and option.usd_per_hour:
            hour = option.usd_per_hour / option.count * first.price.median / option.price.median
            out.append(f"{option.device} below {digits(hour)} USD an hour for each: it would be the cheapest")
            break
    tight = min(ranked[0].terms, key=lambda term: term.probability)
    if tight.name in _FIGURE and tight.probability < 1.0:
        out.append(f"the tightest target is {_FIGURE[tight.name]}: kept with probability {tight.probability:.3f}")
    return tuple(out)


def _down(probability: float) -> str:
    return f"{int(probability * 1000) / 1000:g}"


def remedies(points: Points) -> tuple[str, ...]:
    """Of each target, what would do where all others are kept; where no one alone would, that."""
    needed: dict[str, tuple[float, Candidate]] = {}
    for row in range(len(points.found)):
        if points.value(row, "problem"):
            continue
        for one in points.reachable(row):
            for term in one.terms:
                limit = _needed(points, one, term)
                if limit is not None and (term.name not in needed or limit < needed[term.name][0]):
                    needed[term.name] = (limit, one)
    out = []
    for name, (limit, one) in needed.items():
        if name == "rate":
            out.append(f"a rate of at most {digits(limit)} a second, of one copy")
            continue
        more = rounded_up(limit)
        device = points.value(one.row, "device")
        count = one.copies * points.devices(one.row)
        out.append(f"{OPTION[name]} {more:g} in place of {points.targets.limits()[name]:g}, on {count} x {device}")
    if not out:
        return ("no one target alone: several have to be loosened, or other devices, precisions or lengths be asked",)
    return tuple(out[:_MOST_REMEDIES])


def _needed(points: Points, one: Candidate, term: Term) -> float | None:
    """The limit of ``term`` with which a candidate keeps all targets; None for none."""
    if term.name not in OPTION or term.found is None:
        return None
    left_out = sum(1.0 - other.probability for other in one.terms if other is not term)
    wanted = points.targets.confidence + left_out
    if wanted >= 1.0 - 1e-9:
        return None
    if term.name == "max_usd_per_hour":
        return term.found.median
    limit = limit_of(term.found, wanted)
    if term.name != "p99_ms":
        # The same figure may have a second limit, by the rate that has to be kept up with.
        most = points.keeps_up_ms(one) if term.name == "latency_ms" else None
        return None if most is not None and limit > most else limit
    value = _p99(points, one, limit)
    return value if value < float("inf") else None
