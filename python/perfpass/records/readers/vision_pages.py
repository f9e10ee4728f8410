"""Small published tables: cnn-benchmarks, YOLOX, RT-DETR, EfficientDet, jetson-inference."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

_LICENCES = {"jcjohnson/cnn-benchmarks": "MIT", "dusty-nv/jetson-inference": "MIT"}
NETWORKS = {
    "AlexNet": "",
    "VGG-16": "vgg16",
    "VGG-19": "vgg19",
    "ResNet-18": "resnet18",
    "ResNet-34": "resnet34",
    "ResNet-50": "resnet50-torch7",
    "ResNet-101": "resnet101-torch7",
    "ResNet-152": "resnet152-torch7",
    "ResNet-200": "resnet200-torch7",
}
_TORCH7_YEAR = 2016


def read(shared: Path) -> Reading:
    """Records of kind ``network``. Torch7's training is a forward and a backward pass, without an optimizer (B14)."""
    reading = Reading("vision_pages")
    table = table_of(shared, "vision_misc", "latency.csv")
    table = reading.keep(table, table["mode"] != "backward only", "a backward pass alone")
    table = reading.keep(table, ~table.device.str.contains("not stated"), "no device stated").reset_index(drop=True)
    repo = table.repo.str.split("@").str[0]
    torch7 = table.framework.str.startswith("Torch7")
    training = table["mode"].str.startswith("train")
    precision, precision_from = networks.precisions(table.precision)
    width, height = networks.pixels(table.image_size)
    rate = table.latency_basis.str.startswith("derived")
    runtime = table.framework.str.replace(r"^Torch7.*", "torch7", regex=True)
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence=repo.map(_LICENCES).fillna("Apache-2.0"),
        run=table.repo + ":" + table.source_file + ":" + table.index.astype(str),
        network=table.model.where(torch7).map(NETWORKS).fillna(""),
        domain="vision",
        task=table.task,
        mode=np.where(training, "training", "inference"),
        n_devices=table.n_gpus.clip(lower=1),
        runtime=runtime.str.lower().replace("pytorch eager", "torch"),
        runtime_version=table.framework.where(torch7, ""),
        precision=precision,
        precision_from=precision_from,
        batch=table.batch_size,
        img_height=height,
        img_width=width,
        timing=table.latency_basis,
        percentile=np.where(rate, "over_throughput", "mean"),
        latency_ms=table.latency_ms,
        throughput_per_s=table.throughput_samples_per_s,
        throughput_unit=np.where(table.throughput_samples_per_s.notna(), "images", ""),
        software_year=np.where(torch7, _TORCH7_YEAR, -1),
        year_from=np.where(torch7, "inferred", "unknown"),
        caveats="",
    )
    networks.caveat_where(rows, training, "no_optimizer_step")
    networks.add(reading, rows)
    return reading
