"""Collectives between nodes: DeepEP's dispatch and combine of experts, and NCCL's all_reduce on AWS's p5 instances."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

GPUS_OF_A_NODE = 8
# DeepEP's stated setting: experts that a token goes to, its width; fp8 in blocks of 128 with a scale of 4 bytes.
_ACTIVE, _HIDDEN = 8, 7168
_BYTES = {"dispatch": 1 + 4 / 128, "combine": 2.0}


def read(shared: Path) -> Reading:
    """Records of kind ``network_collective`` of both sources. Raises FileError for a missing table."""
    reading = Reading("deepep")
    reading.add("network_collective", _deepep(table_of(shared, "deepep", "expert_parallel_alltoall.csv"), reading))
    reading.source = "aws_distributed_training"
    nccl = _nccl(table_of(shared, "aws_distributed_training", "nccl_allreduce.csv"))
    reading.add("network_collective", nccl)
    return reading


def _deepep(table: pandas.DataFrame, reading: Reading) -> pandas.DataFrame:
    timed = table.latency_us.notna().to_numpy()
    table = reading.keep(table, timed, "states a bandwidth and no time")
    gpus = table.n_gpus.astype(int)
    sent = table.tokens_per_batch * _ACTIVE * _HIDDEN * table.operation.map(_BYTES)
    return table[["device"]].assign(
        licence="MIT",
        run=table.source_file + ":" + table.source_line.astype(str) + ":" + table.operation,
        n_devices=gpus,
        n_nodes=(gpus // GPUS_OF_A_NODE).clip(lower=1),
        operation="all_to_all",
        network="InfiniBand CX7 400 Gb/s a GPU",
        message_bytes=sent.astype(float),
        stack="deepep",
        kernel=table.kernel + " " + table.operation,
        precision=np.where(table.operation == "dispatch", "fp8", "bf16"),
        mode="kernel",
        timing="as the source states it",
        latency_ms=table.latency_us / 1e3,
        caveats=np.where(gpus > GPUS_OF_A_NODE, "local traffic", "network inside a node"),
    )


def _nccl(table: pandas.DataFrame) -> pandas.DataFrame:
    return table[["device"]].assign(
        licence="MIT-0",
        run=table.source_file + ":" + table.source_line.astype(str),
        n_devices=table.n_gpus.astype(int),
        n_nodes=table.n_nodes.astype(int),
        operation=table.collective,
        network="EFA 3200 Gb/s a node",
        message_bytes=table.size_bytes.astype(float),
        stack="nccl",
        kernel=table.tool,
        precision="fp32",
        mode="kernel",
        timing="nccl-tests, out of place",
        latency_ms=table.time_us / 1e3,
        caveats="device count derived",
    )
