"""Choices among ways that other laboratories measured, beyond the load, software and boards of the serving records.

Batches of equal requests without a server (every laboratory asked as a user asks, no fit of times has seen any), and a
server of 2023 under closed-loop load, whose own predictor is fitted without the model or device that is judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from perfpass.deploy import money
from perfpass.devices import device as find_device
from perfpass.errors import DeviceError
from perfpass.llm.configuration import language_model
from perfpass.predictors.serving.features import describe
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.training import spread
from perfpass.training.components.grade import hold_out, usual_splits
from perfpass.training.components.widths import held_out_errors
from perfpass.training.decisions.offers import Method, Offers, graded, questions
from perfpass.training.generation import phases
from perfpass.training.generation import widths as generation_widths
from perfpass.training.serving import outside, widths
from perfpass.training.serving.baselines import at_peaks
from perfpass.training.serving.outside import Answers, Asked
from perfpass.training.spread import Errors

TPOT_LIMITS: tuple[dict[str, float], ...] = tuple({"tpot": limit} for limit in (5.0, 10.0, 20.0, 30.0, 50.0, 100.0))
LOADED_LIMITS: tuple[dict[str, float], ...] = (
    *({"tpot": tpot} for tpot in (20.0, 30.0, 50.0, 100.0)),
    *({"tpot": tpot, "ttft": ttft} for tpot in (30.0, 50.0, 100.0) for ttft in (200.0, 500.0, 1000.0, 2000.0)),
)
# Of one laboratory more questions are thinned, evenly: they cost seconds each.
_MOST_GROUPS = 40
_FEWEST = 3


def without_a_server(others: Answers, held: Sequence[Errors], folder: Any = None) -> Iterator[dict[str, Any]]:
    """Lines by laboratory. ``others``: answers to what all laboratories asked of the time per token; ``held``: errors
    of the serving records, held out. Raises FileError, FormatError.
    """
    asked, usd = _of_groups(folder)
    predictor = ServingPredictor.load()
    found = outside.answers(predictor, asked, "tpot")
    errors, known = widths.outside_errors(found, "tpot"), widths.outside_errors(others, "tpot")
    publisher = np.array([_publisher(a.source) for a in asked])
    of_known = np.array([_publisher(str(name)) for name in known.source])
    low, high = np.zeros(len(asked)), np.zeros(len(asked))
    for name in np.unique(publisher):
        own = publisher == name
        fitted = widths.fitted("tpot")([*held, known.take(of_known != name)])
        lacks = dict(zip(errors.causes, errors.lacks[own].T, strict=True)) | dict(spread.ANOTHER_LABORATORY)
        low[own], high[own] = fitted.bounds(lacks)
    load = np.array([a.serving.concurrency for a in asked])

    def price(ms: Mapping[str, np.ndarray]) -> np.ndarray:
        """USD of a million output tokens of a batch."""
        return np.asarray(usd / 3.6e6 * ms["tpot"] / load * 1e6)

    group, model = (np.array(values) for values in zip(*((_group(a), a.model) for a in asked), strict=True))
    offers = Offers(group, model, {"tpot": 1e3 * found.measured_s}, price)
    median = {"tpot": 1e3 * found.seconds}
    methods = [
        Method("perfpass", median, {"tpot": (low, high)}),
        Method("perfpass, medians alone", median),
        Method("roofline", {"tpot": _roofline(asked)}),
    ]
    for name in np.unique(publisher):
        of = questions(offers, publisher == name, TPOT_LIMITS)
        yield from graded(offers, methods, of, "source", f"{name}, batches")


def on_a_loaded_server(seed: int = 0, folder: Any = None) -> Iterator[dict[str, Any]]:
    """Lines by what was held out of LLM-Pilot's loads. Raises FileError, FormatError."""
    data = phases.load(folder)
    named = {"ttft": data["loaded_first_token"], "tpot": data["loaded_between_tokens"]}
    runs = named["tpot"].phases
    usd = np.array([_usd_per_hour(p.device.id) * p.devices for p in runs])
    load, answers = (np.array([float(value) for value in column]) for column in
                     zip(*((p.batch, p.output_tokens) for p in runs), strict=True))  # fmt: skip

    def price(ms: Mapping[str, np.ndarray]) -> np.ndarray:
        """USD of a million output tokens in a closed loop."""
        return np.asarray(usd / 3600 * (ms["ttft"] + (answers - 1) * ms["tpot"]) / (1e3 * load * answers) * 1e6)

    model = np.array([p.model.name for p in runs])
    group = np.array([f"{p.model.name}|{p.batch}" for p in runs])
    offers = Offers(group, model, {name: 1e3 * of.quantity.measured for name, of in named.items()}, price)
    predicted: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
    bounds: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = defaultdict(dict)
    for name, of in named.items():
        q = of.quantity
        splits = usual_splits(q, seed)
        held = {split: hold_out(q, folds) for split, folds in splits.items()}
        errors = {split: held_out_errors(q, found, splits[split], split) for split, found in held.items()}
        for split, found in held.items():
            predicted[split][name] = 1e3 * found.predicted
            fit = partial(generation_widths.fit, quantity=q.name)
            bounds[split][name] = spread.graded(errors, [], split, len(q), fit)
    for split, median in predicted.items():
        methods = [Method("perfpass", median, bounds[split]), Method("perfpass, medians alone", median)]
        kept = np.isfinite(usd) & methods[0].answers
        yield from graded(offers, methods, questions(offers, kept, LOADED_LIMITS), split, "loaded server")


def _of_groups(folder: Any) -> tuple[list[Asked], np.ndarray]:
    """Questions about a time per token that have several priced ways, and USD an hour of all GPUs of each."""
    every, _ = outside.load(folder, thinned=False)
    groups: dict[str, list[tuple[Asked, float]]] = defaultdict(list)
    for one in every:
        usd = _usd_per_hour(one.device) * one.serving.gpus
        if one.target == "tpot" and np.isfinite(usd):
            groups[_group(one)].append((one, usd))
    several: dict[str, list[str]] = defaultdict(list)
    for name, ways in sorted(groups.items()):
        if len({(a.device, a.serving.gpus, a.serving.runtime, a.precision) for a, _ in ways}) >= _FEWEST:
            several[_publisher(ways[0][0].source)].append(name)
    taken = [
        names[i]
        for names in several.values()
        for i in np.unique(np.linspace(0, len(names) - 1, min(len(names), _MOST_GROUPS)).astype(int))
    ]
    found = [way for name in taken for way in groups[name]]
    return [one for one, _ in found], np.array([usd for _, usd in found])


def _publisher(source: str) -> str:
    return source.removeprefix("source:").split(",")[0]


def _group(a: Asked) -> str:
    """Model and load of one laboratory."""
    s = a.serving
    return f"{_publisher(a.source)}|{a.model}|{s.input_length}|{s.output_length}|{s.concurrency:g}"


def _usd_per_hour(device: str) -> float:
    try:
        return money.price(device, money.read_prices()).usd_per_hour
    except DeviceError:
        return float("nan")


def _roofline(asked: Sequence[Asked]) -> np.ndarray:
    """Ms [N] per token at the peaks of the devices."""
    out = []
    for a in asked:
        model = language_model(a.model)
        w = describe(model, ServingPredictor.load().family(model), find_device(a.device), a.serving)
        out.append(1e3 * at_peaks(w.terms)["tpot"])
    return np.concatenate(out)
