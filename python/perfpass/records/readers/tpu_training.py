"""AI-Hypercomputer: tpu-recipes' training recipes; MaxText's tables, which state FLOP/s alone (C7)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks, training_layouts
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

_PRECISIONS = {"fp8_full": "fp8"}


def read(shared: Path) -> Reading:
    """Records of kind ``llm_training``: time of a step and tokens a second over all chips."""
    reading = Reading("tpu_training")
    maxtext = table_of(shared, "maxtext", "tpu_training.csv")
    reading.refused["MaxText: FLOP/s alone; batch, sequence and layout are not stated"] += len(maxtext)
    table = table_of(shared, "tpu_recipes", "training.csv")
    table = reading.keep(table, table.tokens_per_s_per_gpu.notna(), "a model of videos").reset_index(drop=True)
    chips = table.n_gpus.fillna(table.n_gpus_derived)
    logged = table.n_gpus.isna()
    assumed = table.precision.str.contains("default")
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run="AI-Hypercomputer/tpu-recipes@"
        + table.source_commit.str[:12]
        + ":"
        + table.source_file
        + ":"
        + table.source_line.astype(str),
        n_devices=chips,
        n_devices_from=np.where(logged, "inferred", "stated"),
        runtime="maxtext",
        precision=table.precision.str.split(" ").str[0].replace(_PRECISIONS),
        precision_from=np.where(assumed, "inferred", "stated"),
        batch=table.global_batch_size,
        sequence=table.sequence_length,
        timing=np.where(logged, "one printed step", "training steps"),
        parameters=table.params_b * 1e9,
        variant=np.where(logged, table.tokens_per_step.map("{:.0f} tokens a step".format), ""),
        latency_ms=table.step_time_s * 1e3,
        throughput_per_s=table.tokens_per_s_per_gpu * chips,
        model_flop_s=table.tflops_per_gpu * 1e12,
        caveats="",
    )
    networks.caveat_where(rows, logged, "one_line_of_a_log")
    training_layouts.add(reading, rows)
    return reading
