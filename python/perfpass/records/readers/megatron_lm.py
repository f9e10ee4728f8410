"""NVIDIA/Megatron-LM: what its project's own tests expect of its inference server, static batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

# Layers and widths as the tests' arguments state them (tests/performance_tests/server/model_args).
NETWORKS = {"gpt_583m": "megatron-gpt-583m", "gpt_16b": "megatron-moe-16b"}


def read(shared: Path) -> Reading:
    """Records of kind ``generation``: latency of a request in a full batch; each of ``dp`` replicas has its share."""
    reading = Reading("megatron_lm")
    table = table_of(shared, "megatron_lm", "inference_baselines.csv")
    table = table.assign(batch=np.ceil(table.batch_size / table.dp))
    rows = table[["model", "device", "device_as_reported", "precision"]].assign(
        licence="BSD-3-Clause",
        run=table.test_case + "@" + table.source_commit + ":" + table.batch_size.astype(str),
        network=table.model.map(NETWORKS),
        n_devices=(table.tp * table.pp).astype(int),
        tensor_parallel=table.tp.astype(int),
        pipeline_parallel=table.pp.astype(int),
        runtime="megatron",
        variant=np.where(table.test_case.str.contains("async"), "asynchronous scheduling", ""),
        precision_from="stated",
        batch=table.batch,
        timing="so many requests at once, all tokens",
        software_year=2026,
        year_from="inferred",
        input_tokens=table.input_length.round(),
        output_tokens=table.output_length,
        latency_ms=table.latency_ms,
        tpot_ms=table.tpot_ms,
        throughput_per_s=table.tokens_per_s / table.dp,
        throughput_unit="output tokens",
        caveats="prompt_in_the_time_per_token",
    )
    networks.caveat_where(rows, table.model == "gpt_583m", "width_of_the_blocks_not_stated")
    language_models.add(reading, rows)
    return reading
