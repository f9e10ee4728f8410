"""Serving runs that are known to have fitted, against the count of `perfpass.llm.memory`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfpass.devices import device
from perfpass.llm import language_model
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.memory import plan
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.serving.dataset import serving_of


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
