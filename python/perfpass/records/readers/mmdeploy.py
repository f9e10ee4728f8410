"""open-mmlab/mmdeploy: latency of converted models at batch 1, on 100 real images."""

from __future__ import annotations

from pathlib import Path

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

_TASKS = {
    "mmpretrain": "image classification",
    "mmdet part1": "detection",
    "mmseg": "segmentation",
    "mmagic": "super-resolution",
    "mmocr": "text recognition",
}


def read(shared: Path) -> Reading:
    """Records of kind ``network``; ``architecture`` is the configuration that builds the network."""
    reading = Reading("mmdeploy")
    table = table_of(shared, "mmdeploy", "latency.csv")
    height, width = networks.pixels(table.image_size)
    rows = table[["model", "device", "device_as_reported", "precision"]].assign(
        licence="Apache-2.0",
        run=table.source_file + ":" + table.index.astype(str),
        network="",
        architecture=table.config.str.replace(r"^.*/configs/", "configs/", regex=True),
        domain="vision",
        task=table.task.map(_TASKS),
        runtime=table.framework.str.lower(),
        precision_from="stated",
        batch=table.batch_size,
        img_height=height,
        img_width=width,
        timing="the converted model, after warm-up",
        percentile="mean",
        latency_ms=table.latency_ms,
    )
    networks.add(reading, rows)
    return reading
