"""`choose`: the cheapest devices, slices, counts, splits and batches that keep targets with a stated probability."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfpass.deploy import carbon, cost
from perfpass.deploy.choose.candidates import NO_CHANCE, Candidate, Load, Points
from perfpass.deploy.choose.explain import changed, explained, remedies
from perfpass.deploy.choose.result import Choice, Option
from perfpass.deploy.choose.targets import OPTION, Targets
from perfpass.deploy.sweep import served_model, sweep
from perfpass.deploy.sweep.served import SPLIT, Deployment
from perfpass.deploy.tune import split_words
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.llm import LanguageModel
from perfpass.llm.costs import Parallelism
from perfpass.llm.serving import CONCURRENCY
from perfpass.prediction import SUPPORT_LEVELS, Interval
from perfpass.predictors.engine.queueing import expected
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.text import digits, shown_value

# Requests in flight on a copy of a served model, and batches of a network, that are tried.
IN_FLIGHT = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_COPIES_IN_FLIGHT = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_RATE = (1e-6, 1e9)
_WITH_ENERGY = 8  # options, those that a table shows
_TIMES = {True: ("ttft_ms", "tpot_ms", "request_ms", "requests_per_s", "output_tokens_per_s"),
          False: ("latency_ms", "throughput_per_s", "peak_memory_bytes")}  # fmt: skip


def choose(
    model: Any,
    devices: Sequence[str | Device] | None = None,
    *,
    rate: float | None = None,
    concurrency: float | None = None,
    input_length: int | None = None,
    output_length: int | None = None,
    ttft_ms: float | None = None,
    tpot_ms: float | None = None,
    latency_ms: float | None = None,
    p99_ms: float | None = None,
    max_usd_per_hour: float | None = None,
    max_power_w: float | None = None,
    confidence: float = 0.9,
    slices: bool = False,
    precisions: Sequence[str] | None = None,
    runtimes: Sequence[str] | None = None,
    tensor_parallel: Sequence[int] | None = None,
    pipeline_parallel: Sequence[int] | None = None,
    data_parallel: Sequence[int] | None = None,
    expert_parallel: Sequence[int] | None = None,
    batches: Sequence[int] | None = None,
    layouts: Sequence[str] | None = None,
    cuda_graph: bool = False,
    dims: Mapping[str, int] | None = None,
    input_shape: Any = None,
    where: cost.Options | None = None,
    progress: bool = False,
) -> Choice:
    """The cheapest way to run a model that keeps the targets with probability ``confidence``, and why not the others.

    ``model``, ``devices`` and what may vary: as `perfpass.sweep` takes them; ``slices``: MIG slices too, each at
    its part of the price of a GPU. Where no split is given, all are tried that are worth asking of a device
    (`perfpass.deploy.sweep.splits`). A served
    language model is asked with its lengths and ``rate`` (requests a second over all copies) or ``concurrency``
    (requests in flight over all copies, always); a network with ``rate`` in samples a second. Without either the
    devices are busy all the time, and the load of one copy is chosen too. Targets: `Targets`. ``where``: carbon, PUE
    and price tables.

    At a rate a copy is held to at most as many requests in flight as it is said with: what it then answers a second
    must be no less than what comes, and its times under that load, which no lighter one exceeds, must keep the targets.
    ``p99_ms`` of a network is a closed form (`perfpass.deploy.choose.queue`); of a served model at a rate a note says
    what 99 in 100 first tokens keep on the best option (`perfpass.predictors.engine.queueing`), without an interval, so
    it is no target.

    Raises ArgumentError for targets that contradict each other or the kind of model, and what `sweep` raises.
    """
    targets = Targets(ttft_ms, tpot_ms, latency_ms, p99_ms, max_usd_per_hour, max_power_w, confidence)
    for name, value, (least, most) in (("rate", rate, _RATE), ("concurrency", concurrency, CONCURRENCY)):
        if value is not None and (isinstance(value, bool) or not least <= value <= most):
            raise ArgumentError(f"--{name} must be from {least:g} to {most:g}, got {shown_value(value)}")
    if rate is not None and concurrency is not None:
        raise ArgumentError("--rate and --concurrency are two loads; give one of them")
    options = where or cost.Options()
    options.check()
    how: dict[str, Any] = {
        "slices": slices,
        "precisions": precisions,
        "runtimes": runtimes,
        "price_table": options.price_table,
        "cuda_graph": cuda_graph,
    }
    of_network = {"layouts": layouts, "dims": dims, "input_shape": input_shape, "batches": batches}
    asked = {name: value for name, value in of_network.items() if value is not None}
    read = served_model(model, asked)
    served = read is not None
    ranks = (tensor_parallel, pipeline_parallel, data_parallel, expert_parallel)
    _check_kind(read, targets, rate, (concurrency, input_length, output_length, *ranks))
    if read is not None:
        how |= {**dict(zip(SPLIT, ranks, strict=True)), "every_split": True, "energy": max_power_w is not None}
        lengths = {"input_lengths": input_length, "output_lengths": output_length}
        how |= {name: None if value is None else (value,) for name, value in lengths.items()}
        found = sweep(read, devices, **how, concurrencies=_in_flight(concurrency), progress=progress)
    else:
        found = sweep(model, devices, **how, **{"batches": BATCHES, **asked}, progress=progress)
    tokens = int(found.columns["output_length"][0]) if served else 1
    load = Load(rate, concurrency, tokens)
    points = Points(found, load, targets, served=served)
    best, nothing = _by_device(points)
    said = {"rate_per_s": rate, "concurrency": concurrency, "served": served}
    if served:
        said |= {"input_length": int(found.columns["input_length"][0]), "output_length": tokens}
    ranked = sorted(best.values(), key=lambda c: _order(c, targets.confidence))
    drawn = {c.row: _drawn(points, c, read, how) for c in ranked[:_WITH_ENERGY]}
    chosen = [_option(points, c, options, drawn.get(c.row)) for c in ranked]
    whys, headline, decision = explained(points, ranked, chosen)
    chosen = [replace(option, why=why) for option, why in zip(chosen, whys, strict=True)]
    if decision == "chosen":
        changes = changed(points, ranked, chosen)
    elif decision == "none meets":
        changes = remedies(points)
    else:
        changes = ()
    notes = [f"{device}: {why}" for device, why in nothing.items()]
    if not chosen and notes:
        headline = f"{headline} {notes.pop(0)}."
    if read is not None and ranked:
        notes += _beyond_records(points, ranked[0], read)
    if served and rate is not None:
        notes.append("times are means with the stated number in flight, the most there are")
        notes += [_first_tokens(points, ranked[0], read, rate)] if ranked and read is not None else []
    if any(option.runtime == "trtllm" and option.split.get("dp", 1) > 1 for option in chosen):
        notes.append("TensorRT-LLM reads dp in its file of options (`enable_attention_dp: true`), not in a flag")
    notes.append("energy and power: with as many at once as stated; copies with less to do draw less, more for each")
    grid = options.grid()
    notes += [f"carbon: {grid}; {grid.source}"] if grid else []
    return Choice(
        found.model, decision, headline, said, targets.to_dict(), tuple(chosen), changes, (*notes, *found.notes)
    )


def _in_flight(concurrency: float | None) -> tuple[float, ...]:
    """What is tried of requests in flight on a copy: any, or parts of those that are asked for over all copies."""
    if concurrency is None:
        return IN_FLIGHT
    return tuple(concurrency / copies for copies in _COPIES_IN_FLIGHT if copies == 1 or concurrency / copies >= 1.0)


def _check_kind(read: LanguageModel | None, targets: Targets, rate: float | None, of_served: tuple[Any, ...]) -> None:
    """Raises ArgumentError for what is asked of the other kind of model."""
    if read is not None and targets.p99_ms is not None:
        raise ArgumentError(
            "--p99 of a served language model is no target here: its times are known as means. Ask for --ttft, --tpot "
            "or --latency; at a --rate a note says 99 in 100 first tokens; `perfpass llm --rate` has all tails"
        )
    if read is None:
        given = [OPTION[name] for name in ("ttft_ms", "tpot_ms") if name in targets.limits()]
        named = ("--concurrency", "--input-length", "--output-length", "--tp", "--pp", "--dp", "--ep")
        given += [name for name, value in zip(named, of_served, strict=True) if value is not None]
        if given:
            raise ArgumentError(
                f"{given[0]} is of a served language model, and this is a network; see --latency, --rate"
            )
        if targets.p99_ms is not None and rate is None:
            raise ArgumentError("--p99 needs --rate: without arrivals no request waits, and --latency is what is asked")


def _by_device(points: Points) -> tuple[dict[str, Candidate], dict[str, str]]:
    """The best candidate of each device, and why others have none."""
    best: dict[str, Candidate] = {}
    nothing: dict[str, list[str]] = {}
    for row, problem in enumerate(points.found.columns["problem"].tolist()):
        device = str(points.value(row, "device"))
        if problem:
            nothing.setdefault(device, []).append(problem)
            continue
        one = points.best(row)
        confidence = points.targets.confidence
        if device not in best or _order(one, confidence) < _order(best[device], confidence):
            best[device] = one
    why = {d: max(dict.fromkeys(said), key=said.count) for d, said in nothing.items() if d not in best}
    return best, why


def _order(one: Candidate, confidence: float) -> tuple[Any, ...]:
    """What keeps the targets first, then what has a price, then the cheapest, without one the fewest devices for the
    work; of what does not keep them, the likeliest.
    """
    meets, priced = one.probability >= confidence, one.price == one.price
    if not meets:
        chances = [0.0 if p < NO_CHANCE else -p for p in (one.probability, one.worst)]
        kept = sum(term.probability for term in one.terms)  # what is lost anyway need not cost the other targets
        return (1, 0, *chances, one.over, -kept, one.price if priced else math.inf)
    return (0, 0 if priced else 1, one.price if priced else one.device_s, -one.probability)


def _drawn(
    points: Points, one: Candidate, read: LanguageModel | None, how: Mapping[str, Any]
) -> tuple[Interval, Interval] | None:
    """Joules of a token or sample, and watts of a device, of a candidate under its load."""
    row = one.row
    if read is None:
        batch = points.value(row, "batch")
        return points.interval(row, "energy_j").scaled(1 / batch, "J"), points.interval(row, "power_w")
    place = ("device", "precision", "runtime", "concurrency", "input_length", "output_length")
    device, precision, runtime, load, prompt, answer = (points.value(row, name) for name in place)
    again: dict[str, Any] = {name: (points.value(row, name),) for name in SPLIT}
    again |= {"runtimes": (runtime,), "concurrencies": (load,), "energy": True}
    again |= {"input_lengths": (prompt,), "output_lengths": (answer,), "slices": False}
    found = sweep(read, (device,), **{**how, **again})
    other = Points(found, points.load, points.targets, served=True)
    for i, name in enumerate(found.columns["precision"].tolist()):
        if name == precision and found.ok[i]:
            return other.interval(i, "energy_per_token_j"), other.interval(i, "power_w")
    return None


def _beyond_records(points: Points, one: Candidate, read: LanguageModel) -> list[str]:
    """What no record stands behind of a candidate, in words; its intervals are wider by it."""
    place = ("device", "precision", "runtime", "concurrency", "input_length", "output_length")
    device, precision, runtime, load, prompt, answer = (points.value(one.row, name) for name in place)
    named = None if precision == "stored" else str(precision)
    serving = Deployment(find_device(device), named, str(runtime), points.split(one.row)).serving(read)
    serving = replace(serving, input_length=int(prompt), output_length=int(answer), concurrency=float(load))
    found = ServingPredictor.load().predict(read, find_device(device), serving).support
    return [] if found.level == "in range" else [f"{device}, {found.level}: {'; '.join(found.reasons)}"]


def _first_tokens(points: Points, one: Candidate, read: LanguageModel, rate: float) -> str:
    """How single requests that come at a rate fare on a candidate, in words: the closed form of its engine's queue."""
    place = ("device", "precision", "runtime", "input_length", "output_length")
    device, precision, runtime, prompt, answer = (points.value(one.row, name) for name in place)
    name = f"{one.copies} x {points.devices(one.row)} {device}"
    try:
        named = None if precision == "stored" else str(precision)
        serving = Deployment(find_device(device), named, str(runtime), points.split(one.row)).serving(read)
        serving = replace(serving, input_length=int(prompt), output_length=int(answer), workers=one.copies)
        found = expected(read, find_device(device), serving, rate)
    except PerfPassError as error:
        return f"first tokens at this rate on {name}: {error}"
    if found is None:
        return f"first tokens at this rate on {name}: the engine's queue grows by its steps; see `perfpass llm --rate`"
    return (
        f"first tokens at this rate on {name}: {digits(1e3 * found.ttft_mean_s)} ms on average, 99 in 100 within "
        f"{digits(1e3 * found.ttft_p99_s)} ms, by a closed form; `perfpass llm --rate` has the tails"
    )


def _option(points: Points, one: Candidate, options: cost.Options, drawn: tuple[Interval, Interval] | None) -> Option:
    """A candidate with its figures."""
    row, served, load = one.row, points.served, points.load
    figures = {name: points.interval(row, name) for name in _TIMES[served]}
    each, units = (1e6, "million output tokens") if served else (1e3, "thousand samples")
    priced = one.price == one.price
    price: Interval | None = None
    if priced and load.rate_per_s is None:
        found = points.interval(row, "usd_per_million_tokens" if served else "usd_per_thousand_samples")
        price = replace(found, unit="USD")
    elif priced:
        price = Interval(one.price, one.price, one.price, "USD")
    joules, watts, grams = None, None, None
    if drawn is not None:
        of_building = carbon.drawn(drawn[0].scaled(each, "J"), options.pue)
        assert isinstance(of_building, Interval)
        joules, watts = of_building, drawn[1].scaled(one.copies * points.devices(row), "W")
        grid = options.grid()
        if grid is not None:
            emitted = carbon.emitted(drawn[0].scaled(each, "J"), grid, options.pue)
            assert isinstance(emitted, Interval)
            grams = emitted
    return Option(
        device=str(points.value(row, "device")),
        devices=points.devices(row),
        replicas=one.copies,
        precision=str(points.value(row, "precision")),
        runtime=str(points.value(row, "runtime")),
        in_flight=points.at_once(row),
        meets=one.probability >= points.targets.confidence,
        probability=one.probability,
        probabilities={term.name: term.probability for term in one.terms},
        figures=figures,
        usd_per_hour=one.usd_per_hour if one.usd_per_hour == one.usd_per_hour else None,
        price=price,
        price_of=units,
        support=SUPPORT_LEVELS[int(points.value(row, "support"))],
        energy_j=joules,
        carbon_g=grams,
        power_w=watts,
        **_told(points, row),
    )


def _told(points: Points, row: int) -> dict[str, Any]:
    """How a copy is split, and its engine's words for it."""
    if not points.served:
        return {}
    found, engine = points.split(row), str(points.value(row, "runtime"))
    parallel = Parallelism.of(found.tensor, found.pipeline, found.data, found.expert)
    return {
        "split": {"tp": found.tensor, "pp": found.pipeline, "dp": found.data, "ep": found.expert},
        "flags": split_words(engine, parallel),
    }
