"""Serving as other laboratories measured it, asked as a user asks: errors that no fit of times has seen.

A row counts for the time per token, or to the first one, where it states that of a runtime which is served here. What
ran all its requests at once, from one batch of equal ones, states a time per token with its prompt's share in it, as
the time per token of a closed loop has; it counts where answers are no shorter than prompts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.errors import PerfPassError
from perfpass.llm.assumed import OUTPUT_LENGTH
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism
from perfpass.llm.precision import quantization
from perfpass.llm.serving import Serving
from perfpass.predictors.serving.base import RUNTIMES
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.predictors.serving.widths import OLDEST_YEAR
from perfpass.records import schema
from perfpass.records.location import data_directory

if TYPE_CHECKING:
    import pandas

# Of a source in one runtime on one board more rows are thinned, evenly: they tell nothing new.
_MOST = 80
# The version of vLLM where the records do not have it. The models that ML.ENERGY served (Llama 3.1, Mistral Large of
# July 2024) need 0.5.3, and none is younger than 0.6.0 of September. LLM-Inference-Bench was run in the summer of 2024
# (its container builds vLLM on PyTorch of June). Splitwise was published in November 2023, before 0.2.6.
_VERSIONS = {"mlenergy": "0.5.4", "argonne": "0.5.0", "splitwise": "0.2.0"}
_SHORTEST_ANSWER = 64


@dataclass(frozen=True)
class Asked:
    """One measurement as a question: seconds of ``target``. ``at_rate``: requests were sent at a rate, not by a fixed
    number of clients, so that a first token waits as in steady arrivals.
    """

    source: str
    target: str
    measured_s: float
    model: str
    device: str
    serving: Serving
    precision: str
    year: float | None
    at_rate: bool
    server: bool


# Whose rows have set the host of vLLM before 0.6 (`serving.base.host_s`): no laboratories to judge these constants by.
SET_CONSTANTS = ("mlenergy, server, vllm", "argonne, without a server, vllm")


def load(folder: Path | str | None = None, *, thinned: bool = True) -> tuple[list[Asked], Counter[str]]:
    """All questions, and how many rows are left out by reason; ``thinned``: of those that tell nothing new evenly some.

    Raises FileError, FormatError.
    """
    root = (Path(folder) if folder else data_directory()) / "records"
    out: list[Asked] = []
    left: Counter[str] = Counter()
    for file, area in (
        ("generation", "generation"),
        ("generation_outside", "generation"),
        ("serving_outside", "serving"),
    ):
        table = schema.read(root / f"{file}.parquet", area)
        served = table[table.runtime.isin(RUNTIMES)]
        for row in (_thinned(served) if thinned else served).itertuples():
            found = _asked(row)
            if isinstance(found, str):
                left[found] += 1
            else:
                out.extend(found)
    return out, left


def _thinned(table: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    parts = []
    for _, part in table.groupby(["source", "runtime", "device", "mode"], sort=True):
        order = part.sort_values(["model", "n_devices", "batch", "input_tokens", "output_tokens", "run"], kind="stable")
        parts.append(order.iloc[np.unique(np.linspace(0, len(order) - 1, min(len(order), _MOST)).astype(int))])
    return pandas.concat(parts)


def _asked(row: Any) -> list[Asked] | str:
    """The questions of a row, or why there are none."""
    if "power_capped" in row.caveats:
        return "power capped at an unknown height"
    if "requests_wait_for_each_other" in row.caveats:
        return "all requests of a data set at once: how many run together is not stated"
    if "output_length_not_stated" in row.caveats or "whole_time_contradicts_phases" in row.caveats:
        return "lengths are not stated, or times contradict each other"
    if "two_stacks" in row.caveats or "pipeline_over_two_nodes" in row.caveats:
        return "another software stack, or pipelines over nodes"
    prompt, answer = int(row.input_tokens), max(int(row.output_tokens), 1)
    if answer == 1:  # a prompt alone
        answer = OUTPUT_LENGTH
    if row.source == "mlenergy":
        from perfpass.predictors.energy.features import PROMPT_TOKENS
        from perfpass.training.energy.dataset import task_of

        if task_of(row.task) == "mllm":
            return "prompts with images"
        prompt = PROMPT_TOKENS[task_of(row.task)]
    loads = (getattr(row, "concurrency", -1), getattr(row, "mean_batch", -1), row.batch)
    load = next((float(v) for v in loads if v > 0), 0.0)
    if prompt < 1 or load < 1:
        return "prompts or load are not stated"
    found: list[tuple[str, float]] = []
    if np.isfinite(row.tpot_ms):
        found.append(("tpot", row.tpot_ms / 1e3))
    elif np.isfinite(row.throughput_per_s) and answer >= _SHORTEST_ANSWER and answer >= prompt:
        # Latency of the batch, or the rate of all its output tokens.
        whole = row.latency_ms / 1e3 if np.isfinite(row.latency_ms) else load * answer / row.throughput_per_s
        found.append(("tpot", whole / answer))
    if np.isfinite(row.ttft_ms) and (load == 1 or row.mode == "serving"):
        found.append(("ttft", row.ttft_ms / 1e3))
    if not found:
        return "no time per token, nor to the first of one request"
    try:
        name = getattr(row, "network", "") or row.model
        model = language_model(name)
        board = find_device(row.device)
        precision, _ = quantization(model, row.precision, None, board, row.runtime)
        split = Parallelism.of(max(int(row.tensor_parallel), 1), max(int(row.pipeline_parallel), 1))
        if row.tensor_parallel < 1:
            split = Parallelism.of(max(int(row.n_devices), 1))
        version = _VERSIONS.get(row.source, "") if row.runtime == "vllm" else ""
        serving = Serving(prompt, answer, load, row.runtime, version, parallelism=split, quantization=precision)
    except PerfPassError as error:
        return f"not asked: {type(error).__name__}"
    year = int(getattr(row, "software_year", -1))
    part = "server" if row.mode == "serving" else "without a server"
    # What has become faster is the servers' own time.
    when = (float(year) + 0.5 if year > 0 else None) if row.mode == "serving" else OLDEST_YEAR
    # Two campaigns of one publisher are two sources.
    label = f"source:{row.source}, {part}/{row.runtime}"
    rate = bool(np.isfinite(getattr(row, "request_rate", np.nan)))
    return [
        Asked(label, target, value, name, row.device, serving, row.precision, when, rate, row.mode == "serving")
        for target, value in found
    ]


@dataclass(frozen=True, eq=False)
class Answers:
    """[N] of one target: source, medians and measured values in seconds, lacks by cause, and the questions asked."""

    asked: list[Asked]
    source: np.ndarray
    seconds: np.ndarray
    measured_s: np.ndarray
    lacks: list[dict[str, float]]
    model: np.ndarray
    device: np.ndarray


def answers(predictor: ServingPredictor, asked: list[Asked], target: str) -> Answers:
    """What ``predictor`` says of every question about a target."""
    own = [a for a in asked if a.target == target]
    seconds, lacks = [], []
    for a in own:
        model, device = language_model(a.model), find_device(a.device)
        median, lack = predictor.judged(
            model, device, a.serving, target, year=a.year, at_rate=a.at_rate, server=a.server
        )
        seconds.append(median / 1e3)
        lacks.append(lack)
    return Answers(
        own,
        np.array([a.source for a in own], dtype=object),
        np.array(seconds),
        np.array([a.measured_s for a in own]),
        lacks,
        np.array([a.model for a in own], dtype=object),
        np.array([a.device for a in own], dtype=object),
    )
