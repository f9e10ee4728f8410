"""PaddlePaddle's PaddleClas, PaddleDetection and PaddleSeg: latency tables of their model zoos."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import INPUT_COPIED, Reading
from perfpass.records.sources import table_of

_TASKS = {"Clas": "image classification", "Detection": "detection", "Seg": "segmentation"}
# PaddleClas names whose definition is that of torchvision or timm.
_PLAIN = re.compile(
    r"ResNet(?:18|34|50|101|152)|VGG(?:11|13|16|19)|DenseNet(?:121|161|169|201)|InceptionV3|MobileNetV2"
)
_RENAMED = {"InceptionV3": "inception_v3", "MobileNetV2": "mobilenet_v2"}
_RULES = (
    (re.compile(r"ResNet(\d+)_vd"), "resnet{}d"),
    (re.compile(r"ResNeXt(\d+)_(\d+x\d+d)"), "resnext{}_{}"),
    (re.compile(r"EfficientNetB(\d)"), "efficientnet_b{}"),
    (re.compile(r"SqueezeNet1_([01])"), "squeezenet1_{}"),
    (re.compile(r"HRNet_W(\d+)_C"), "hrnet_w{}"),
    (re.compile(r"DPN(\d+)"), "dpn{}"),
)


def network_of(model: str) -> str:
    """Our name of a PaddleClas model; weights trained by distillation ("_ssld") run the same operators."""
    name = model.strip().removesuffix("_ssld")
    if _PLAIN.fullmatch(name):
        return _RENAMED.get(name, name.lower())
    for rule, made in _RULES:
        if found := rule.fullmatch(name):
            return made.format(*found.groups())
    return ""


def read(shared: Path) -> Reading:
    """Records of kind ``network``. Of frames per second ``latency_ms`` is the inverse (B4).

    PaddleClas' script for TensorRT (tools/infer/predict.py) starts its clock before pictures are copied to the device.
    """
    reading = Reading("paddle_zoo")
    table = table_of(shared, "paddle_model_zoo", "infer_latency.parquet")
    table = reading.keep(table, table.device != "NVIDIA Jetson", "the board is not named")
    table = reading.keep(table, ~table.column.str.contains("ARM CPU"), "a column of another device")
    rate = table.latency_basis.str.startswith("derived")
    batch = table.batch_size.map({"1": 1.0, "4": 4.0, "8": 8.0})
    lite = table.framework.str.contains("Lite")
    batch = batch.mask(batch.isna() & (rate | lite | (table.task != "Clas")), 1.0)
    table = reading.keep(table.assign(batch=batch), batch.notna(), "no batch stated").reset_index(drop=True)
    rate = table.latency_basis.str.startswith("derived")
    precision, precision_from = networks.precisions(table.precision)
    height, width = networks.pixels(table.image_size)
    from_figures = table.device_as_reported.str.contains("figures of the page")
    v100 = (table.device == "NVIDIA V100").to_numpy()
    tensorrt = table.framework.str.contains("TensorRT") | from_figures
    rows = table[["model", "device"]].assign(
        licence="Apache-2.0",
        run=table.repo + ":" + table.source_file + ":" + table.column,
        network=[network_of(m) if t == "Clas" else "" for m, t in zip(table.model, table.task, strict=True)],
        architecture=table.backbone.map(lambda b: f"backbone {b}", na_action="ignore").fillna(""),
        domain="vision",
        task=table.task.map(_TASKS),
        device_from=np.where(from_figures | v100, "inferred", "stated"),
        device_as_reported=(table.device + "; " + table.section).str[:120],
        runtime=np.where(
            tensorrt, "paddle+tensorrt", np.where(table.framework.str.contains("Lite"), "paddle-lite", "paddle")
        ),
        variant=table.threads.map(lambda t: f"{t} threads", na_action="ignore").fillna(""),
        precision=precision,
        precision_from=precision_from,
        batch=table.batch,
        img_height=height,
        img_width=width,
        timing=np.where((table.task == "Clas") & tensorrt, INPUT_COPIED, "not stated"),
        percentile=np.where(rate, "over_throughput", "reported"),
        latency_ms=table.latency_ms,
        throughput_per_s=table.throughput_samples_per_s,
        throughput_unit=np.where(table.throughput_samples_per_s.notna(), "images", ""),
        caveats="",
    )
    networks.caveat_where(rows, table.batch_size.isna(), "batch_taken_as_1")
    networks.caveat_where(rows, from_figures, "device_from_figures")
    networks.add(reading, rows)
    return reading
