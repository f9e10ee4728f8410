"""facebookresearch/detectron2: one image in inference, one iteration and peak memory in training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of


def read(shared: Path) -> Reading:
    """Records of kind ``network``; ``architecture`` is the configuration. Training: 2 images on each device (B6)."""
    reading = Reading("detectron2")
    table = table_of(shared, "detectron2_model_zoo", "model_zoo.csv")
    training = table["mode"] == "train"
    precision, precision_from = networks.precisions(table.precision)
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run=table.repo + ":" + table.source_file + ":" + table.index.astype(str),
        network="",
        architecture=table.config.fillna("").where(table.config.notna(), table.section.fillna("").str.strip(": ")),
        domain="vision",
        task=table.task,
        mode=np.where(training, "training", "inference"),
        n_devices=table.n_gpus,
        runtime="torch",
        precision=precision,
        precision_from=precision_from.mask(precision == "fp32", "inferred"),
        batch=np.where(training, table.global_batch_size // table.n_gpus.clip(lower=1), table.global_batch_size),
        batch_scope=np.where(training, "device", ""),
        timing=np.where(training, "one iteration, data loading included", "network and post-processing of one image"),
        percentile=np.where(table.latency_ms.notna(), "mean", ""),
        latency_ms=table.latency_ms,
        peak_memory_bytes=table.memory_mib * 2.0**20,
        memory_kind=np.where(table.memory_mib.notna(), "allocated", ""),
        caveats="",
    )
    networks.caveat_where(rows, table.model.str.contains("R50|R101|X101|RCNN", regex=True), "time_depends_on_proposals")
    networks.add(reading, rows)
    return reading
