"""Counted figures of the rows whose model is a language model that generates."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfpass.devices import Device, device
from perfpass.errors import ArgumentError, DeviceError, PerfPassError
from perfpass.llm import LanguageModel, language_model
from perfpass.llm.configuration import from_content
from perfpass.llm.costs import ELEMENT_BYTES, PRECISIONS
from perfpass.predictors.generation.engines import PIECE_TOKENS
from perfpass.predictors.generation.features import Batch
from perfpass.predictors.relative import work

# Names of sources for models whose configuration ships under another.
_NAMES = {"llama-7b": "llama-2-7b", "huggyllama/llama-7b": "llama-2-7b", "metaai/llama-7B": "llama-2-7b",
          "llama2-70b": "llama-2-70b", "metaai/llama-13B": "llama-2-13b", "llama-13b": "llama-2-13b"}  # fmt: skip
# Decoders stated by their sizes: "head_num = 48; size_per_head = 128; num_layers = 44; ...; vocab_size = 51200".
_STATED = re.compile(r"head_num = (\d+); size_per_head = (\d+); num_layers = (\d+).*vocab_size = (\d+)")
# Tokens of a prompt and of an answer that a source does not state.
_PROMPT_TOKENS, _ANSWER_TOKENS = 128, 128
_WEIGHTS = {"gptq": "int4_wo", "awq": "int4_wo", "bnb-4bit": "int4_wo", "int4": "int4_wo", "int8": "int8"}
# llama.cpp's option: tokens of a prompt at a time.
_PIECE = re.compile(r"-ub (\d+)")
_FLOATS = ("fp16", "bf16", "fp32")
# ExLlamaV2's bits a weight, as those of the nearest integer type.
_BITS = {"exl2-2.5": "int2_wo", "exl2-3.0": "int3_wo", "exl2-4.0": "int4_wo", "exl2-5.0": "int4_wo"}


@dataclass(frozen=True)
class Found:
    """What was counted of a row."""

    parameters: float
    active_parameters: float
    work: dict[str, float]


class Language:
    """Counts rows; models that cannot be read are in ``failures``."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()

    def of(self, row: Any) -> Found | None:
        """The figures of a row of `rows.everything`; None where its model or device is not known."""
        target = _device(row.device)
        if target is None or target.kind == "cpu" or not row.batch > 0:
            return None
        # A prompt alone ends with its first token.
        answer = row.output_tokens if row.output_tokens > 0 else 1 if row.ttft_ms > 0 else _ANSWER_TOKENS
        model = _model(_NAMES.get(row.model, row.model)) or _model(row.network) or _stated(row.architecture)
        if model is None:
            self.failures[row.model] += 1
            return None
        precision = weights(row)
        if precision is None:
            self.failures[f"precision {row.precision!r} {row.quantization}"] += 1
            return None
        try:
            batch = Batch(
                model,
                target,
                row.runtime,
                int(row.devices) if row.devices > 0 else 1,
                _at_once(row),
                int(row.input_tokens) if row.input_tokens > 0 else _PROMPT_TOKENS,
                int(answer),
                precision,
            )
            counted = work.of_served(batch) if row.kind == "serving" else work.of_batch(batch)
        except PerfPassError as error:
            self.failures[f"{row.model}: {str(error)[:80]}"] += 1
            return None
        return Found(float(model.parameters), float(model.active_parameters), counted)


def _at_once(row: Any) -> int:
    """Sequences of a batch; of llama.cpp, which runs one, the tokens of its prompt at a time."""
    if row.runtime != "llama.cpp" or "batch_is_prompt_chunk" in row.caveats:
        return max(1, round(row.batch))
    stated = _PIECE.search(row.variant)
    return int(stated[1]) if stated else PIECE_TOKENS


def weights(row: Any) -> str | None:
    """The precision of a row's weights by the names of `ELEMENT_BYTES`; None for another."""
    if row.precision in _BITS:
        return _BITS[row.precision]
    if row.precision in ELEMENT_BYTES and row.precision not in _FLOATS:
        return str(row.precision)
    if row.quantization:
        return next((known for word, known in _WEIGHTS.items() if word in row.quantization.lower()), None)
    if row.precision in ELEMENT_BYTES:
        return str(row.precision)
    found = PRECISIONS.get(row.precision or "fp16")
    return found[1] if found else None


@lru_cache(maxsize=1024)
def _model(name: str) -> LanguageModel | None:
    if not name:
        return None
    try:
        return language_model(name)
    except PerfPassError:
        return None


@lru_cache(maxsize=256)
def _stated(architecture: str) -> LanguageModel | None:
    found = _STATED.search(architecture)
    if found is None:
        return None
    heads, each, layers, vocabulary = map(int, found.groups())
    content = {"model_type": "gpt2", "n_layer": layers, "n_head": heads, "n_embd": heads * each}
    content |= {"vocab_size": vocabulary, "n_positions": 2048}
    try:
        return from_content(content, architecture[:40])
    except PerfPassError:
        return None


@lru_cache(maxsize=512)
def _device(name: str) -> Device | None:
    try:
        return device(name)
    except (DeviceError, ArgumentError):
        return None
