"""open-mmlab's model zoos: frames per second in PyTorch and latency elsewhere, batch 1; peak memory of training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

_RUNTIMES = {"PyTorch eager": "torch", "TensorRT": "tensorrt", "ONNX Runtime": "onnxruntime", "ncnn": "ncnn"}


def read(shared: Path) -> Reading:
    """Records of kind ``network``; ``architecture`` is the configuration's name (B5).

    The V100 stands in one section of one document, not with each table. The size is that of the test's image, not of
    the training crop.
    """
    reading = Reading("openmmlab")
    table = table_of(shared, "openmmlab_model_zoo", "infer.csv")
    table = reading.keep(table, table.device != "not stated", "no device stated").reset_index(drop=True)
    eager = table.framework == "PyTorch eager"
    scale = table.test_or_train_scale_in_config.fillna("").str.replace("\n", " ", regex=False)
    one_scale = scale.str.fullmatch(r"\(\d+, \d+\)")
    width, height = networks.pixels(scale.where(one_scale, "").str.replace(", ", "x", regex=False))
    stated_height, stated_width = networks.pixels(table.img_size.fillna("").str.replace("\\*", "x", regex=False))
    v100 = table.device == "NVIDIA V100"
    crop = table.task == "semantic segmentation"
    # Networks of segmentation that were trained in mixed precision were timed in fp32: as fast as their twins to 0.5 %.
    precision, precision_from = networks.precisions(table.precision.mask(eager & crop, "fp32"))
    rows = table[["model"]].assign(
        licence="Apache-2.0",
        run=table.repo + ":" + table.source_file,
        network="",
        architecture=table.config.fillna(table.model_family),
        domain="vision",
        task=table.task,
        device=table.device.mask(v100, "V100-SXM2-32GB"),
        device_from=np.where(v100, "inferred", "stated"),
        device_as_reported=table.device_as_reported.fillna(table.latency_basis),
        runtime=table.framework.map(_RUNTIMES),
        precision=precision,
        precision_from=precision_from.mask(eager & (precision == "fp32"), "inferred"),
        batch=table.batch_size_per_gpu,
        img_height=height.where(height > 0, stated_height.where(~crop, -1)),
        img_width=width.where(width > 0, stated_width.where(~crop, -1)),
        timing=np.where(eager, "network and post-processing, without data loading", "the exported model"),
        percentile=np.where(eager, "over_throughput", "reported"),
        latency_ms=table.latency_ms,
        throughput_per_s=table.throughput_samples_per_s,
        throughput_unit=np.where(table.throughput_samples_per_s.notna(), "images", ""),
        software_year=np.where(table.repo.str.startswith("SwinTransformer"), 2021, -1),
        year_from=np.where(table.repo.str.startswith("SwinTransformer"), "inferred", "unknown"),
        caveats="",
    )
    networks.caveat_where(rows, v100, "device_not_with_the_table")
    networks.caveat_where(rows, eager & ~crop, "ends_with_post_processing")
    # Crops of 769 of Cityscapes' images, and of 480 of Pascal Context's.
    networks.caveat_where(rows, crop & table.img_size.fillna("").str.match("769|480"), "sliding_window")
    networks.caveat_where(rows, ~one_scale, "test_size_not_single")
    networks.add(reading, rows)
    _add_training(reading, table_of(shared, "openmmlab_model_zoo", "train.parquet"))
    return reading


def _add_training(reading: Reading, table: pandas.DataFrame) -> None:
    """Peak allocated memory of the fullest device, ``batch`` samples on each; the time of a step in a few rows (B5)."""
    table = reading.keep(table, table.device != "not stated", "training: no device stated")
    table = reading.keep(table, table.batch_size_per_gpu.notna(), "training: no batch stated")
    table = reading.keep(table, table.n_gpus.notna(), "training: no number of devices stated").reset_index(drop=True)
    v100 = table.device == "NVIDIA V100"
    precision, precision_from = networks.precisions(table.precision)
    scale = table.test_or_train_scale_in_config.fillna("").str.replace("\n", " ", regex=False)
    one_scale = scale.str.fullmatch(r"\(\d+, \d+\)")
    crop = table.task == "semantic segmentation"
    height, width = networks.pixels(table.img_size.fillna(""))
    scaled = networks.pixels(scale.where(one_scale & ~crop, "").str.replace(", ", "x", regex=False))
    rows = table[["model"]].assign(
        licence="Apache-2.0",
        run=table.repo + ":" + table.source_file + ":" + table.index.astype(str),
        network="",
        architecture=table.config.fillna(table.model_family),
        domain="vision",
        task=table.task,
        device=table.device.mask(v100, "V100-SXM2-32GB"),
        device_from=np.where(v100, "inferred", "stated"),
        device_as_reported=table.device_as_reported.where(table.device_as_reported != "", table.device),
        n_devices=table.n_gpus,
        runtime="torch",
        mode="training",
        batch_scope="device",
        batch=table.batch_size_per_gpu,
        precision=precision,
        precision_from=precision_from.mask(precision == "fp32", "inferred"),
        img_height=height.where(height > 0, scaled[1]),
        img_width=width.where(width > 0, scaled[0]),
        timing="a training step",
        percentile=np.where(table.latency_ms.notna(), "reported", ""),
        latency_ms=table.latency_ms,
        peak_memory_bytes=table.memory_mib * 2.0**20,
        memory_kind=np.where(table.memory_mib.notna(), "allocated", ""),
        allocated_bytes=table.memory_mib * 2.0**20,
        software_year=np.where(table.repo.str.startswith("SwinTransformer"), 2021, -1),
        year_from=np.where(table.repo.str.startswith("SwinTransformer"), "inferred", "unknown"),
        caveats="",
    )
    networks.caveat_where(rows, v100, "device_not_with_the_table")
    networks.caveat_where(rows, table.batch_basis.str.contains("file differs"), "batch_of_the_name")
    networks.caveat_where(rows, ~one_scale & (height < 0), "size_not_single")
    networks.add(reading, rows)
