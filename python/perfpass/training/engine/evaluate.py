"""Simulated engines against servers that were measured, at a rate of requests and in closed loops."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.errors import PerfPassError
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Quantization
from perfpass.prediction import Interval
from perfpass.predictors.engine.queueing import expected
from perfpass.predictors.engine.simulate import simulate_llm
from perfpass.predictors.serving.predictor import predict_llm
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.section import Section
from perfpass.training.serving import outside

INTRO = """
Engines run event by event on predicted steps, against servers that other laboratories measured; no fit has seen them,
of steps or of anything else.

"at a rate": NVIDIA's own tables of TensorRT-LLM 0.14 behind Triton on H100 and H200 (Llama-3.1-8B and 70B, 500 requests
of 467 tokens and answers of 16 or 256, 2 to 32 requests a second; what runs all requests at once is left out, as are
rates that the server did not reach). Poisson arrivals and equal lengths are taken, as the page states neither. "closed
loop": vLLM of 2024 as ML.ENERGY ran it, with the mean number of requests in flight that it states, up to 128.
Beside the events: the closed form that `perfpass choose` asks, and the learned prediction of a closed loop
(`perfpass.predict_llm`), at a rate by Little's law from the measured times, which a user does not have.
"""
RATE, CLOSED = "at a rate", "closed loop"
_REQUESTS = 500  # of NVIDIA's runs
# Of closed loops: requests for each that is in flight, at least how many, and beyond how many in flight rows are left
# out, which would take most of an evaluation's time.
_LOOPS, _LEAST, _MOST_IN_FLIGHT = 3, 60, 128


@dataclass(frozen=True)
class Question:
    """One measured run: its load, and medians in ms and requests a second by metric."""

    split: str
    label: str
    device: str
    options: dict[str, Any]
    rate: float | None
    in_flight: float
    measured: dict[str, float]


def questions(folder: Path | str | None = None) -> Iterator[Question]:
    """All of them. Raises FileError, FormatError."""
    root = (Path(folder) if folder else data_directory()) / "records"
    table = schema.read(root / "serving_outside.parquet", "serving")
    for row in table[table.request_rate.to_numpy(float) > 0].itertuples():
        options = {
            "model": row.network or row.model,
            "runtime": row.runtime,
            "precision": row.precision,
            "tp": int(row.tensor_parallel),
            "input_length": int(row.input_tokens),
            "output_length": int(row.output_tokens),
        }
        measured = {
            "TTFT (ms)": row.ttft_ms,
            "TPOT (ms)": row.tpot_ms,
            "output (tokens/s)": row.throughput_per_s,
        }
        label = f"{row.network} {row.device} {row.input_tokens}->{row.output_tokens} at {row.request_rate:g}"
        yield Question(RATE, label, row.device, options, float(row.request_rate), float(row.concurrency), measured)
    for one in outside.load(folder)[0]:
        s = one.serving
        if one.target != "tpot" or not one.source.startswith("source:mlenergy, server"):
            continue
        if s.concurrency > _MOST_IN_FLIGHT:
            continue
        options = {
            "model": one.model,
            "runtime": s.runtime,
            "runtime_version": s.runtime_version,
            "precision": s.quantization,
            "tp": s.parallelism.tensor,
            "pp": s.parallelism.pipeline,
            "input_length": s.input_length,
            "output_length": s.output_length,
        }
        label = f"{one.model} {one.device} x {s.gpus} {s.concurrency:.3g} in flight"
        yield Question(CLOSED, label, one.device, options, None, s.concurrency, {"TPOT (ms)": 1e3 * one.measured_s})


def evaluate(folder: Path | str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """The section of the engines. Raises FileError, FormatError."""
    section = Section("engine", "Engines under requests that arrive", INTRO)
    found: dict[tuple[str, str, str], list[tuple[float, float, float, float]]] = defaultdict(list)
    labels: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    refused = 0
    for asked in questions(folder):
        try:
            answers = {name: answer(asked, seed) for name, answer in METHODS.items()}
        except PerfPassError as error:
            refused += 1
            if not quiet:
                print(f"engine: {asked.label}: {error}", file=sys.stderr)
            continue
        for metric, measured in asked.measured.items():
            if not np.isfinite(measured):
                continue
            labels[asked.split, metric].append((asked.label, str(asked.options["model"])))
            for name, metrics in answers.items():
                value = metrics.get(metric)
                if value is not None:
                    found[asked.split, metric, name].append((value.median, measured, value.low, value.high))
    section.corpus = {split: len(found[split, "TPOT (ms)", "perfpass"]) for split in (RATE, CLOSED)}
    for (split, metric, name), rows in found.items():
        p, y, low, high = (np.array(v) for v in zip(*rows, strict=True))
        bounds = (low, high) if name == "perfpass" else (None, None)
        section.add(metric, "source", name, split, p, y, *bounds)
        if name == "perfpass":
            cases, models = zip(*labels[split, metric], strict=True)
            section.add_worst_groups(f"{metric}, {split}", "source", "model", models, p, y)
            unit = metric.partition("(")[2].rstrip(")")
            section.add_worst_cases(f"{metric}, {split}", unit, "source", cases, p, y)
    if refused:
        section.notes.append(f"{refused} runs are not answered (no room for a cache by the plan of memory).")
    return section


def _events(asked: Question, seed: int) -> dict[str, Interval]:
    options = dict(asked.options)
    users = max(round(asked.in_flight), 1)
    load: dict[str, Any] = {"rate": asked.rate, "requests": _REQUESTS}
    if asked.rate is None:
        load = {"concurrency": users, "requests": max(_LOOPS * users, _LEAST), "arrivals": "closed"}
    found = simulate_llm(options.pop("model"), asked.device, seed=seed, **load, **options)
    tails = {"TTFT (ms)": found.ttft_ms.mean, "output (tokens/s)": found.output_tokens_per_s}
    return {**tails, **({"TPOT (ms)": found.tpot_ms.mean} if found.tpot_ms else {})}


def _closed_form(asked: Question, seed: int) -> dict[str, Interval]:
    if asked.rate is None:
        return {}
    options = dict(asked.options)
    model, board = language_model(options.pop("model")), find_device(asked.device)
    serving = predict_llm(model, board, **options).serving
    found = expected(model, board, serving, asked.rate)
    if found is None:
        return {}
    values = {"TTFT (ms)": 1e3 * found.ttft_mean_s, "TPOT (ms)": 1e3 * found.tpot_s}
    return {name: Interval(v, v, v, "ms") for name, v in values.items()}


def _learned(asked: Question, seed: int) -> dict[str, Interval]:
    options = dict(asked.options)
    precision = options.pop("precision")
    assert isinstance(precision, str | Quantization)
    found = predict_llm(options.pop("model"), asked.device, precision=precision, concurrency=asked.in_flight, **options)
    return {"TTFT (ms)": found.ttft_ms, "TPOT (ms)": found.tpot_ms}


METHODS: dict[str, Callable[[Question, int], dict[str, Interval]]] = {
    "perfpass": _events,
    "closed form": _closed_form,
    "learned closed loop": _learned,
}
