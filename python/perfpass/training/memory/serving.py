"""Memory of language models: what is in use where a laboratory measured it, and runs that are known to have fitted.

No fit has seen what is graded here: the counts of llama.cpp and of transformers have constants set by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import device
from perfpass.errors import PerfPassError
from perfpass.llm import language_model
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.memory import MemoryFit, plan
from perfpass.predictors.generation.predictor import batch_of, memory
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.section import Section
from perfpass.training.serving.dataset import serving_of

_METRIC = "memory in use, language models (MiB)"
_MIB = 2.0**20
_OLD_TRANSFORMERS = "4.35"
# Runtimes by the name that is asked: each holds the weights and what its requests need, and fills no share of a device.
_HOLD = {"llama.cpp": "llama.cpp", "torch": "transformers", "exllama": "llama.cpp", "exllamav2": "llama.cpp"}
# What holds less than this of its weights' bytes was read before they were loaded: no precision stores so little.
_LEAST_OF_WEIGHTS = 0.6


def add(section: Section, folder: Path | None = None) -> None:
    """Lines and notes of memory in use, by runtime and laboratory. Raises FileError and FormatError."""
    base = (Path(folder) if folder else data_directory()) / "records"
    rows = schema.read(base / "generation_outside.parquet", "generation")
    rows = rows[rows.runtime.isin(list(_HOLD)) & (rows.peak_memory_bytes > 0)]
    # exllama's page states the memory of a full context, beside rates of short ones too.
    rows = rows[~(rows.runtime.str.startswith("exllama") & (rows.input_tokens < 1))]
    for (runtime, source), part in rows.groupby(["runtime", "source"]):
        found, unloaded = [], 0
        for row in part.itertuples():
            prompt = max(int(row.input_tokens), 0) + max(int(row.context_tokens), 0)
            sizes = (max(int(row.n_devices), 1), max(int(row.batch), 1), max(prompt, 1), max(int(row.output_tokens), 1))
            if not row.precision:  # quantized in a way that has no name here
                continue
            # Transformers 4.42, which holds the cache once, came out in 2024.
            version = _OLD_TRANSFORMERS if row.runtime == "torch" and row.software_year < 2024 else ""
            held = _held(row.network or row.model, row.device, _HOLD[row.runtime], *sizes, row.precision, version)
            if held is None or held.in_use is None:
                continue
            if row.peak_memory_bytes < _LEAST_OF_WEIGHTS * held.weights_bytes:
                unloaded += 1
                continue
            in_use = held.in_use
            found.append((row.peak_memory_bytes, in_use.median, in_use.low, in_use.high))
        if not found:
            section.notes.append(f"{_METRIC}, {runtime}, {source}: {len(part)} rows, none of which can be asked.")
            continue
        measured, median, low, high = np.array(found).T / _MIB
        section.add(_METRIC, "none fitted", "perfpass", f"{runtime}, {source}", median, measured, low, high)
        refused = len(part) - len(found) - unloaded
        section.notes.append(
            f"{_METRIC}, {runtime}, {source}: {100 * float(np.mean(measured > high)):.1f} % of {len(measured):,} rows "
            f"above the bound, the bound {float(np.median(high / median)):.2f} of the median; {refused} rows cannot be "
            f"asked, {unloaded} hold less than {_LEAST_OF_WEIGHTS:.0%} of their weights, so that these were not loaded."
        )


@lru_cache(maxsize=1 << 13)
def _held(
    name: str, on: str, runtime: str, devices: int, batch: int, prompt: int, answer: int, precision: str, version: str
) -> MemoryFit | None:
    how: dict[str, Any] = {"runtime": runtime, "precision": precision or None, "runtime_version": version}
    try:
        asked = batch_of(name, on, devices=devices, batch=batch, input_tokens=prompt, output_tokens=answer, **how)
    except PerfPassError:
        return None
    return memory(asked)


def notes(folder: Path | None = None) -> list[str]:
    """A sentence per source: of the runs that were measured, how many the count and the careful count refuse."""
    base = (Path(folder) if folder else data_directory()) / "records"
    return [_served(base), _offline(base)]


def _served(base: Path) -> str:
    rows = schema.read(base / "serving.parquet", "serving")
    rows = rows[~rows.disaggregated]
    models = {family: language_model(family) for family in rows.family.unique()}
    found = []
    for row in rows.itertuples():
        serving = serving_of(row, models[row.family])
        context = serving.input_length + serving.output_length
        memory = plan(
            models[row.family], device(row.device), serving.parallelism, serving.quantization, context=context
        )
        wanted = serving.concurrency / serving.parallelism.attention_data
        found.append((memory.fits, memory.fits_by_default, memory.surely_fits, memory.most_sequences >= wanted))
    return _told("serving (aiconfigurator, aggregated)", found, "all requests in flight at full length")


def _offline(base: Path) -> str:
    rows = schema.read(base / "generation.parquet", "generation")
    rows = rows[(rows.source == "argonne") & rows.listed].drop_duplicates(
        ["model", "device", "n_devices", "batch", "input_tokens", "output_tokens"]
    )
    models = {name: language_model(name) for name in rows.model.unique()}
    found = []
    for row in rows.itertuples():
        split = Parallelism.of(max(1, row.n_devices))
        context = max(1, row.input_tokens) + max(0, row.output_tokens)
        precise = Quantization("fp16", "fp16", "fp16")
        memory = plan(models[row.model], device(row.device), split, precise, context=context)
        found.append((memory.fits, memory.fits_by_default, memory.surely_fits, memory.most_sequences >= row.batch))
    return _told("offline generation (LLM-Inference-Bench)", found, "the whole batch at full length")


def _told(source: str, found: Sequence[tuple[bool, ...]], load: str) -> str:
    fits, usually, surely, whole = (sum(column) for column in zip(*found, strict=True))
    total = len(found)
    return (
        f"Language models, {source}: of {total:,} configurations that ran, the count refuses {total - fits}, with "
        f"default settings {total - usually}, the careful count {total - surely}; {100 * whole / total:.1f} % have "
        f"room for {load} (the others wait or swap)."
    )
