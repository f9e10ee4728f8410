"""NVIDIA/NeMo: performance pages of releases 24.03 to 25.04, FP8, sequences of 4k to 1M tokens (C4)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks, training_layouts
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of


def read(shared: Path) -> Reading:
    """Records of kind ``llm_training``: tokens a second, over all devices."""
    reading = Reading("nemo")
    table = table_of(shared, "nemo", "performance.csv")
    table = reading.keep(table, table.did_not_run.astype(str) != "True", "did not run")
    table = reading.keep(table, table.tokens_per_s_per_gpu.notna(), "FLOP/s alone, without the FLOPs of a token")
    table = table.reset_index(drop=True)
    table["revised"] = table.groupby(["model", "task", "device", "n_gpus"]).tokens_per_s_per_gpu.transform("size") > 1
    rows = table[["model", "task", "device", "device_as_reported", "precision"]].assign(
        licence="Apache-2.0",
        run="NVIDIA/NeMo@"
        + table.source_commit.str[:12]
        + ":"
        + table.source_file
        + ":"
        + table.source_line.map("{:.0f}".format),
        device_from="inferred",
        n_devices=table.n_gpus,
        runtime="nemo",
        runtime_version=table.framework_version,
        batch=table.global_batch_size,
        micro_batch=table.micro_batch_size,
        sequence=table.sequence_length,
        timing="training steps",
        tensor=table.tp,
        pipeline=table.pp,
        virtual=table.vp,
        context=table.cp,
        sharding=np.where(table.task == "lora", "", "zero1"),
        throughput_per_s=table.tokens_per_s_per_gpu * table.n_gpus,
        model_flop_s=table.tflops_per_gpu * 1e12,
        caveats="",
    )
    networks.caveat_where(rows, table.revised, "a_page_that_was_revised")
    training_layouts.add(reading, rows)
    return reading
