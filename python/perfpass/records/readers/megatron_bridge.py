"""NVIDIA-NeMo/Megatron-Bridge: NVIDIA's tuned recipes on 8 to 1,024 GPUs, over releases of the container (C1)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks, training_layouts
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

_PRECISIONS = {
    "BF16": "bf16",
    "FP8": "fp8",
    "FP8-CS": "fp8",
    "FP8-MX": "mxfp8",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
}


def read(shared: Path) -> Reading:
    """Records of kind ``llm_training``: tokens a second, over all devices."""
    reading = Reading("megatron_bridge")
    table = table_of(shared, "megatron_bridge", "performance.csv")
    table = reading.keep(table, ~table.superseded_by_later_page, "replaced on a later version of the page")
    table = reading.keep(table, table.sequence_length_as_reported > 0, "a malformed line: cells look shifted")
    table = table.reset_index(drop=True)
    # 0 says that no layers are gathered; later tables leave the column out and take the same recipes.
    sharded = table.fsdp.fillna(0) > 0
    granular = table.value_in_parentheses & table.precision.isna()
    rows = table[["model", "task", "device", "device_as_reported", "n_gpus"]].rename(columns={"n_gpus": "n_devices"})
    rows = rows.assign(
        licence="Apache-2.0",
        run="NVIDIA-NeMo/Megatron-Bridge@"
        + table.source_commit.str[:12]
        + ":"
        + table.source_file
        + ":"
        + table.source_line.astype(str)
        + np.where(table.value_in_parentheses, "b", "a"),
        device_from="inferred",
        runtime="megatron-bridge",
        runtime_version=table.framework_version,
        precision=table.precision.map(_PRECISIONS).fillna("fp8"),
        precision_from=np.where(table.precision.isna(), "inferred", "stated"),
        batch=table.global_batch_size,
        micro_batch=table.micro_batch_size,
        sequence=table.sequence_length,
        timing="training steps",
        tensor=table.tp,
        pipeline=table.pp,
        virtual=table.vp,
        context=table.cp,
        expert=table.ep,
        sharding=np.where(sharded, "zero3", "zero1"),
        sharding_group=table.fsdp.where(sharded),
        variant=table.precision.fillna("") + np.where(granular, "FP8 by blocks", ""),
        throughput_per_s=table.tokens_per_s_per_gpu * table.n_gpus,
        model_flop_s=table.tflops_per_gpu * 1e12,
        caveats="",
    )
    networks.caveat_where(rows, table.precision.isna(), "precision_not_stated")
    counted = (table.tflop_per_token_over_model_median - 1).abs() > 0.1
    networks.caveat_where(rows, counted, "flops_counted_otherwise")
    networks.caveat_where(rows, ~table.latest_page, "an_older_release")
    training_layouts.add(reading, rows)
    return reading
