"""NVIDIA/TensorRT, demo/BERT: latency of TensorRT engines of BERT by release, batch and sequence."""

from __future__ import annotations

from pathlib import Path

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

# 24 layers of 1,024 with 16 heads; the sparse Megatron network has the same layers.
NETWORKS = {"bert base": "bert-base", "bert large": "bert-large", "megatron large with sparsity": "bert-large"}
_SLACK = 1.02


def read(shared: Path) -> Reading:
    """Records of kind ``network``: the mean over 1,000 to 2,000 runs after warm-up, without host copies.

    A point recurs over releases (R1): split by device or model, never by row. The version may be one
    release older (R2).
    """
    reading = Reading("demobert")
    table = table_of(shared, "nvidia_tensorrt_demos", "bert_latency.parquet")
    ordered = (table.latency_avg_ms <= _SLACK * table.latency_p95_ms) & (
        table.latency_p95_ms <= _SLACK * table.latency_p99_ms
    )
    table = reading.keep(table, ordered, "mean and percentiles contradict each other").reset_index(drop=True)
    rows = table[["model", "architecture", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run=table.source_file + "@" + table.commit + ":" + table.source_line.astype(str),
        network=table.model.str.lower().map(NETWORKS),
        domain="language",
        task="question answering",
        runtime="tensorrt",
        runtime_version=table.tensorrt_oss_version,
        precision=table.precision,
        precision_from="stated",
        batch=table.batch_size,
        sequence=table.sequence_length,
        timing="device only, no host copies",
        percentile="mean",
        latency_ms=table.latency_avg_ms,
        software_year=table.commit_date.str[:4].astype(int),
        year_from="stated",
        caveats="version_may_be_one_release_older",
    )
    networks.caveat_where(rows, rows.model.str.contains("Sparsity"), "sparse_2_4")
    networks.caveat_where(rows, (table.precision == "int8"), "int8_falls_back_to_fp16")
    networks.add(reading, rows)
    return reading
