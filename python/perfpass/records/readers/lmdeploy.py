"""InternLM/lmdeploy: Llama 2 in TurboMind on A100, static batches."""

from __future__ import annotations

from pathlib import Path

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

# From so many requests at once on, prompts wait for each other (C10: first tokens after up to 116 s).
_WAITING = 64


def read(shared: Path) -> Reading:
    """Records of kind ``generation``; memory holds the cache that is allocated beforehand (C10)."""
    reading = Reading("lmdeploy")
    table = table_of(shared, "lmdeploy", "a100_fp16.csv")
    table = reading.keep(table, table.input_length.notna(), "lengths of ShareGPT, not stated").reset_index(drop=True)
    # One page in three versions: the oldest stated version is kept of equal figures.
    table = table.sort_values("engine_version", kind="stable").reset_index(drop=True)
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run=table.source_file + "@" + table.source_commit + ":" + table.source_line.astype(str),
        network=table.model.str.replace("llama2", "llama-2"),
        device_from="inferred",
        n_devices=table.n_gpus,
        tensor_parallel=table.tp,
        pipeline_parallel=1,
        runtime="lmdeploy",
        runtime_version=table.engine_version,
        cuda_version="11.8",
        variant="TurboMind",
        precision=table.precision,
        precision_from="stated",
        batch=table.batch_size,
        timing="so many requests at once, all tokens",
        software_year=2023,
        year_from="inferred",
        input_tokens=table.input_length,
        output_tokens=table.output_length,
        throughput_per_s=table.output_tokens_per_s,
        throughput_unit="output tokens",
        ttft_ms=table.ttft_avg_ms,
        tpot_ms=table.token_latency_p50_ms,
        peak_memory_bytes=table.memory_gb_as_reported * 2.0**30,
        memory_kind="reported",
        caveats="form_factor_not_stated,median_between_tokens,cache_allocated_beforehand",
    )
    networks.caveat_where(rows, table.batch_size >= _WAITING, "requests_wait_for_each_other")
    language_models.add(reading, rows, ("run", "runtime_version"))
    return reading
