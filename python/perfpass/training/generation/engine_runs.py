"""What was measured of engines without a server, as steps that are counted and the seconds that they took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import PerfPassError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import ELEMENT_BYTES, Parallelism
from perfpass.predictors.generation.engines import PIECE_TOKENS, Steps, engine_of, is_packed, prompt, token
from perfpass.predictors.generation.features import Batch
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.generation import dataset

if TYPE_CHECKING:
    import pandas

# The laboratory whose builds of llama.cpp are the newest.
NEWEST = "strix_halo"
# The longest pieces of a prompt in LLM-Inference-Bench.
_LONGEST_PIECE = 64
_RUNTIMES = {
    "torch": "transformers",
    "megatron": "megatron",
    "fastertransformer": "fastertransformer",
    "lmdeploy": "lmdeploy",
    "exllama": "exllama",
    "exllamav2": "exllamav2",
}
# Megatron of 2021 reads its weights once for every sequence of a batch; releases since do not (a batch of 32 of
# megatron_lm takes no longer than one of 1).
_OLD_MEGATRON_MOST = 2
# Tokens of a prompt where none are stated: half of the mean prompt of ShareGPT, which leaderboards ask with.
_PROMPT = 100
_NOT_ASKED = (
    "requests_wait_for_each_other",  # how many run together is not stated
    "weights_off_the_device",
    "several_devices_not_counted",
    "two_kinds_of_device",
    "no_token_generated",
)


@dataclass(frozen=True)
class Run:
    """Steps and the seconds that they took; ``kind``: "prompt" or "token", by what takes longer."""

    kind: str
    source: str
    engine: str
    model: str
    device: str
    packed: bool
    steps: Steps
    seconds: float


def load(folder: Path | str | None = None) -> list[Run]:
    """All measured times. Raises FileError, FormatError."""
    root = (Path(folder) if folder else data_directory()) / "records"
    outside = schema.read(root / "generation_outside.parquet", "generation")
    return [
        *_of_pages(outside),
        *_one_by_one(schema.read(root / "generation.parquet", "generation")),
        *_alone_on_a_server(schema.read(root / "serving_load.parquet", "serving")),
        *_strix_halo(outside),
        *_argonne(folder),
    ]


def run_of(kind: str, source: str, batch: Batch, steps: Steps, seconds: float) -> Run:
    """A run of a batch's engine."""
    packed = is_packed(batch.precision)
    return Run(kind, source, engine_of(batch), batch.model.name, batch.device.id, packed, steps, float(seconds))


@cache
def _model(name: str) -> LanguageModel | None:
    try:
        found = language_model(name)
    except PerfPassError:
        return None
    return None if found.is_encoder_decoder else found


@cache
def _device(name: str) -> Device | None:
    try:
        return find_device(name)
    except PerfPassError:
        return None


def _of_pages(table: pandas.DataFrame) -> Iterator[Run]:
    """Prompts, tokens and whole batches of engines' own pages, of FasterTransformer's and optimum-benchmark."""
    for row in table[table.runtime.isin(list(_RUNTIMES))].itertuples():
        model, device = _model(row.network), _device(row.device)
        precision = _precision(row)
        if model is None or device is None or precision is None or any(c in row.caveats for c in _NOT_ASKED):
            continue
        if row.source == "fastertransformer" and row.runtime == "megatron" and row.batch > _OLD_MEGATRON_MOST:
            continue
        yield from _asked(row, model, device, precision)


def _precision(row: Any) -> str | None:
    """Of the weights; None where it is not known. ExLlamaV2's bits are those of the nearest integer type."""
    if row.precision.startswith("exl2-"):
        bits = float(row.precision.removeprefix("exl2-"))
        return "int4_wo" if bits >= 3.5 else "int3_wo" if bits > 2.7 else "int2_wo"
    if row.precision in ("int4", ""):  # bitsandbytes in 4 bits says none
        return "int4_wo"
    return row.precision if row.precision in ELEMENT_BYTES else None


def _asked(row: Any, model: LanguageModel, device: Device, precision: str) -> Iterator[Run]:
    tensor, stages = max(int(row.tensor_parallel), 1), max(int(row.pipeline_parallel), 1)
    split = Parallelism(tensor=tensor, pipeline=stages, expert_tensor=tensor)
    runtime = "bitsandbytes" if "bnb" in f"{row.quantization} {row.variant}" else _RUNTIMES[row.runtime]
    inputs, outputs, depth = int(row.input_tokens), int(row.output_tokens), int(row.context_tokens)
    many = max(int(row.batch), 1)
    batch = Batch(
        model, device, runtime, max(int(row.n_devices), 1), many, max(inputs, 1), max(outputs, 1), precision
    )  # fmt: skip
    first = prompt(batch, split, many)
    each = token(batch, split, many, max(inputs, 0) + outputs / 2 if inputs > 0 else max(depth, _LONGEST_PIECE))
    if row.mode == "prefill":
        if inputs > 0 and row.throughput_per_s > 0:
            yield run_of("prompt", row.source, batch, first, many * inputs / row.throughput_per_s)
    elif row.mode == "decode":
        yield run_of("token", row.source, batch, ((1.0, each),), row.tpot_ms / 1e3)
    elif row.runtime in ("torch", "lmdeploy"):
        if row.ttft_ms > 0 and inputs > 1:
            yield run_of("prompt", row.source, batch, first, row.ttft_ms / 1e3)
        if row.tpot_ms > 0:
            yield run_of("token", row.source, batch, ((1.0, each),), row.tpot_ms / 1e3)
    elif row.latency_ms > 0 and inputs > 0:
        steps = (*first, (float(outputs - 1), each))
        # At 16 tokens of prompt for each of the answer, and many sequences, most of the time is the prompt's.
        kind = "prompt" if inputs * many >= _MOSTLY_PROMPT * outputs else "token"
        yield run_of(kind, row.source, batch, steps, row.latency_ms / 1e3)


_MOSTLY_PROMPT = 256


def _one_by_one(table: pandas.DataFrame) -> Iterator[Run]:
    """The leaderboard of ml-energy's first edition: eager transformers, one request at a time."""
    table = table[(table.source == "mlenergy") & (table.runtime == "torch") & (table.output_tokens > 0)]
    for row in table.itertuples():
        model, device = _model(row.model), _device(row.device)
        if model is not None and device is not None:
            outputs = int(row.output_tokens)
            batch = Batch(model, device, "transformers", 1, 1, _PROMPT, outputs, "fp16")
            steps = (
                *prompt(batch, Parallelism(), 1.0),
                (outputs - 1.0, token(batch, Parallelism(), 1.0, _PROMPT + outputs / 2)),
            )
            yield run_of("token", row.source, batch, steps, row.latency_ms / 1e3)


def _alone_on_a_server(table: pandas.DataFrame) -> Iterator[Run]:
    """One user of LLM-Pilot's server: nobody waits for others."""
    for row in table[table.concurrency == 1].itertuples():
        model, device = _model(row.model), _device(row.device)
        if model is None or device is None:
            continue
        devices, inputs, outputs = int(row.n_devices), int(row.input_tokens), int(row.output_tokens)
        split = Parallelism(tensor=devices, expert_tensor=devices)
        batch = Batch(model, device, "tgis", devices, 1, inputs, outputs, "fp16")
        yield run_of("prompt", row.source, batch, prompt(batch, split, 1.0), row.ttft_ms / 1e3)
        yield run_of(
            "token", row.source, batch, ((1.0, token(batch, split, 1.0, inputs + outputs / 2)),), row.tpot_ms / 1e3
        )


def _strix_halo(table: pandas.DataFrame) -> Iterator[Run]:
    table = table[(table.source == NEWEST) & ~table.caveats.str.contains("mean_rate_and_mean_time_differ")]
    table = table.assign(backend=np.where(table.variant.str.startswith("Vulkan"), "Vulkan", ""))
    keys = ["network", "device", "precision", "backend", "mode", "input_tokens", "output_tokens", "context_tokens"]
    for key, part in table.groupby(keys, sort=True):
        network, board, precision, stack, mode, inputs, outputs, context = key
        model, device, past = _model(network), _device(board), max(int(context), 0)
        assert model is not None and device is not None
        batch = Batch(
            model, device, "llama.cpp", 1, PIECE_TOKENS, max(int(inputs), 1), max(int(outputs), 1), precision, stack
        )  # fmt: skip
        # Drivers and kernels differ: the quantiles stand for them.
        for measured in np.quantile(part.latency_ms / 1e3, (0.1, 0.5, 0.9)):
            if mode == "prefill":
                kind = "prompt" if inputs > 1 else "token"
                yield run_of(kind, NEWEST, batch, prompt(batch, Parallelism(), 1.0, past), measured)
            else:
                each = token(batch, Parallelism(), 1.0, past + outputs / 2)
                yield run_of("token", NEWEST, batch, ((1.0, each),), measured / outputs)


def _argonne(folder: Path | str | None) -> Iterator[Run]:
    """Its runs hold a prompt and as many tokens. Token by token, both are tokens; of longer pieces nothing is told: the
    tokens that are written take longer than those that are read, by more than the prompt does.
    """
    data = dataset.load(str(folder) if folder else None)
    rows = [
        (b, float(measured))
        for b, measured in zip(data.batches, data.quantity.measured, strict=True)
        if b.runtime == "llama.cpp" and not b.stack and b.input_tokens == b.output_tokens
    ]
    fewest: dict[tuple[str, str], int] = {}
    for b, _ in rows:
        key = (b.model.name, b.device.id)
        fewest[key] = min(fewest.get(key, b.devices), b.devices)
    for b, measured in rows:
        tokens = b.input_tokens
        if b.devices != fewest[b.model.name, b.device.id]:
            continue
        # Several devices share the rows of matrices where a piece is one token; else they hold layers each.
        if b.batch == 1 and b.devices == 1:
            yield run_of("token", "argonne", b, ((1.0, token(b, Parallelism(), 1.0, tokens)),), measured / (2 * tokens))
        elif b.batch == _LONGEST_PIECE and b.devices > 1:
            each = token(b, Parallelism(), 1.0, 1.5 * tokens)
            yield run_of("token", "argonne", b, ((1.0, each),), measured / tokens)


def reached_by_vllm(folder: Path | str | None = None) -> float:
    """The median share of the peak that NVIDIA's boards reach in prompts with vLLM (splitwise-sim; two devices, one
    prompt of 512 tokens or more).
    """
    root = (Path(folder) if folder else data_directory()) / "records"
    table = schema.read(root / "generation.parquet", "generation")
    table = table[(table.source == "splitwise") & (table.batch == 1) & (table.n_devices == 2)]
    table = table[table.input_tokens >= PIECE_TOKENS]
    shares = []
    for row in table.itertuples():
        model, device = language_model(row.model), find_device(row.device)
        batch = Batch(model, device, "fastertransformer", 1, 1, int(row.input_tokens), 1)
        flops = float(np.sum(prompt(batch, Parallelism(), 1.0)[0][1].flops))
        shares.append(flops / row.n_devices / (row.ttft_ms / 1e3))
    return float(np.median(shares))
