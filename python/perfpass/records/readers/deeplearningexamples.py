"""NVIDIA/DeepLearningExamples: every performance table of its READMEs: inference, behind Triton, and training."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.json_text import parse
from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of

if TYPE_CHECKING:
    import pandas

DOMAINS = {
    "Classification": ("vision", "image classification"),
    "Detection": ("vision", "detection"),
    "Segmentation": ("vision", "segmentation"),
    "LanguageModeling": ("language", "language model"),
    "Translation": ("language", "translation"),
    "Recommendation": ("recommendation", "recommendation"),
    "Forecasting": ("forecasting", "forecasting"),
    "SpeechSynthesis": ("speech", "speech synthesis"),
    "FastSpeech": ("speech", "speech synthesis"),
    "SpeechRecognition": ("speech", "speech recognition"),
    "DrugDiscovery": ("science", "molecules"),
}
# By family; what a variant decides is in `network_of`.
NETWORKS = {
    "QuartzNet": "quartznet15x5",
    "ResNet-50": "resnet50",
    "ResNeXt101": "resnext101_32x4d",
    "SE-ResNeXt101": "seresnext101_32x4d",
    "HiFi-GAN": "hifigan",
    "NCF": "neumf",
    "Wide & Deep": "wide-and-deep",
    "Transformer": "transformer-big",
    "SIM": "sim",
    "V-Net": "vnet",
    "U-Net 3D": "unet3d",
    "U-Net medical": "unet-medical",
    "U-Net industrial": "unet-industrial",
    "UNet 3+": "unet3plus",
    "MoFlow": "moflow",
    "VAE-CF": "vae-cf",
    "SE(3)-Transformer": "se3-transformer",
    "TFT": "tft",
    "FastPitch": "fastpitch",
    "Tacotron2/WaveGlow": "tacotron2+waveglow",
}
_BY_VARIANT = {
    ("BERT", "base"): "bert-base",
    ("BERT", "large"): "bert-large",
    ("BERT", "BERT-large"): "bert-large",
    ("BERT", "SQuAD"): "bert-large",
    ("BERT", "Pre-training"): "bert-large",
    ("BERT", "BERT distilled 4 layers, hidden 312"): "bert-4l-312",
    ("BERT", "BERT distilled 6 layers, hidden 768"): "bert-6l-768",
    ("EfficientNet", "efficientnet-b0"): "efficientnet_b0",
    ("EfficientNet", "efficientnet-b4"): "efficientnet_b4",
    ("EfficientNet", "efficientnet-widese-b0"): "efficientnet-widese-b0",
    ("EfficientNet", "efficientnet-widese-b4"): "efficientnet-widese-b4",
    ("EfficientNet", "v1-B0"): "efficientnet_b0",
    ("EfficientNet", "v1-B4"): "efficientnet_b4",
    ("EfficientNet", "v2-S"): "efficientnetv2_s",
    ("Transformer-XL", "Base model"): "transformer-xl-base",
    ("Transformer-XL", "Large model"): "transformer-xl-large",
}
_RUNTIMES = (
    ("HPS", "hps+tensorrt"),
    ("TensorFlow + NVIDIA TensorRT", "tensorflow+tensorrt"),
    ("ONNX Runtime TensorRT", "onnxruntime+tensorrt"),
    ("TF-TRT", "tensorflow+tensorrt"),
    ("Paddle-TRT", "paddle+tensorrt"),
    ("PyTorch+TensorRT", "torch+tensorrt"),
    ("PyT+TRT", "torch+tensorrt"),
    ("TRT", "tensorrt"),
    ("TensorRT", "tensorrt"),
    ("ONNX Runtime", "onnxruntime"),
    ("TensorFlow", "tensorflow"),
    ("DGL", "torch"),
    ("PyT", "torch"),
    ("Paddle", "paddle"),
    ("MXNet", "mxnet"),
    ("CUDA", "cuda"),
)
_SYSTEM = re.compile(r"DGX", re.IGNORECASE)
# D2: by what throughput x latency / batch may be off; a greater contradiction is refused.
_SLACK, _MOST = 0.1, 0.5
_SERVER = r"Triton|Inference Server"  # in the heading of a table whose times a client of the server saw
_MOST_IN_A_STEP = 1024  # sequences: a larger batch of BERT on one board is accumulated
_UNCHECKED_UNITS = ("tok", "frames", "mels", "mol")
_TOTAL_SAMPLES = ("FastPitch", "HiFi-GAN", "Tacotron2/WaveGlow", "FastSpeech")  # samples are of audio (D9)


def network_of(family: str, model: str, variant: str) -> str:
    """Our name of the definition; "" where the README does not pin one down."""
    if family == "GPUNet":
        return (variant or model).lower().replace(" ", "-") if (variant or model) != "GPUNet" else ""
    if family == "DLRM/DCNv2":
        kind = "dcnv2" if "DCNv2" in (variant or model).replace("DLRM_and_DCNv2", "") else "dlrm"
        size = re.search(r"(\d+)B|small|large", variant)
        return f"{kind}-{size[0].lower()}" if size else "dlrm-small" if model == "DLRM" else ""
    return _BY_VARIANT.get((family, variant), "" if family == "EfficientNet" else NETWORKS.get(family, ""))


def read(shared: Path) -> Reading:
    """Records of kind ``network``.

    Behind Triton ``latency_ms`` is the model's own time in the server, ``request_ms`` the client's; where a table has
    the client's alone, that is the latency (``timing`` says so). Where several requests are in flight the server may
    join them, so the batch that ran is unknown: refused (D5). The server runs PyTorch's models as TorchScript and does
    not wait for the board until the outputs are copied (BERT-large's 16 sequences of 384 "infer" in 7.3 ms on a T4, and
    282 ms are of the outputs), so that there the outputs' time belongs to the model's.
    """
    reading = Reading("deeplearningexamples")
    table = table_of(shared, "nvidia_deeplearningexamples", "performance.parquet")
    table = reading.keep(table, table["mode"].notna(), "neither inference nor training stated")
    table = reading.keep(table, table.n_gpus.notna(), "number of devices not stated")
    table["model_variant"] = _sizes_by_order(table)
    table["traced"] = _traced_by_order(table)
    server = table.server_compute_infer_ms.notna()
    several = server & (table.concurrency.fillna(1).astype(int) > 1)
    table = reading.keep(table, ~several, "several requests in flight: the batch that ran is unknown")
    server = table.server_compute_infer_ms.notna()
    # One request in flight, and no client batch: the batch is 1. Two tables have it in the column of that name.
    table = table.assign(batch=table.batch_size.where(~(server & table.batch_size.isna()), 1.0))
    misplaced = table.batch.isna() & table.concurrency.notna() & (table["mode"] == "infer")
    table["batch"] = table.batch.where(~misplaced, table.concurrency.astype(float))
    table = reading.keep(table, table.batch.notna(), "no batch stated")
    table = table.reset_index(drop=True)
    training = (table["mode"] == "train").to_numpy()
    for part, rows in ((_inference, table[~training]), (_training, table[training])):
        if len(rows):
            part(reading, rows.reset_index(drop=True))
    return reading


def _sizes_by_order(table: pandas.DataFrame) -> pandas.Series:
    """``model_variant``, TensorFlow 2's BERT told apart: each point has two tables, BERT-large's and then BERT-base's.

    The README names neither. The later is 1.9 to 3.5 times as fast, and as BERT-large would be above the peak of a T4
    and a V100 in fp32.
    """
    here = (table.model_family == "BERT") & (table.framework == "TensorFlow 2") & (table["mode"] == "infer")
    points = table[here].sort_values("source_line")
    keys = ["device_as_reported", "precision", "sequence_length", "batch_size"]
    later = points.groupby(keys, dropna=False).cumcount() == 1
    return table.model_variant.mask(later.reindex(table.index, fill_value=False), "base")


def _traced_by_order(table: pandas.DataFrame) -> pandas.Series:
    """Whether Transformer-XL ran as TorchScript: its README has two tables of a point, "pure Python" and then that."""
    here = (table.model_family == "Transformer-XL") & (table.framework == "PyTorch") & (table["mode"] == "infer")
    points = table[here].sort_values("source_line")
    keys = ["device_as_reported", "model_variant", "precision", "batch_size"]
    later = points.groupby(keys, dropna=False).cumcount() == 1
    return later.reindex(table.index, fill_value=False)


def _inference(reading: Reading, table: pandas.DataFrame) -> None:
    # GPUNet's own page has this time beside TensorRT's, and does not say what ran.
    unsaid = (table.model_family == "GPUNet") & table.server_compute_infer_ms.isna()
    table = reading.keep(table, ~unsaid, "a time beside TensorRT's: the runtime is not stated").reset_index(drop=True)
    server = table.server_compute_infer_ms.notna()
    latency, percentile = _latency(table)
    ratio = table.throughput * latency / 1e3 / table.batch
    unit = table.throughput_unit_as_reported.fillna("")
    unchecked = table.model_family.isin(_TOTAL_SAMPLES) | unit.str.contains("|".join(_UNCHECKED_UNITS)) | server
    off = np.where(unchecked | ratio.isna(), 0.0, np.abs(np.log(ratio.where(ratio > 0, np.nan)).fillna(0.0)))
    keep = ~(off > np.log(1 + _MOST))
    kept = table.index[keep]
    table = reading.keep(table, keep, "throughput and latency contradict each other").reset_index(drop=True)
    latency, percentile = latency[kept].reset_index(drop=True), percentile[kept].reset_index(drop=True)
    server = table.server_compute_infer_ms.notna()
    client = ~server & table.heading.fillna("").str.contains(_SERVER)
    rows = _common(table)
    rows["runtime"] = rows.runtime.mask(table.traced | (server & (rows.runtime == "torch")), "torchscript")
    rows = rows.assign(
        mode="inference",
        server=np.where(server, "triton", ""),
        batch=table.batch,
        timing=np.select(
            [server & _asynchronous(table), server, client],
            [
                "the model in the server and its outputs' copy, without queue",
                "the model in the server, without queue and copies",
                "a client's request to the server",
            ],
            "the README's benchmark script",
        ),
        percentile=percentile,
        latency_ms=latency,
        latency_p90_ms=table.latency_p90_ms.where(~server, np.nan),
        request_ms=table.latency_avg_ms.where(server, np.nan),
        throughput_per_s=table.throughput,
    )
    inferred_unit = table.latency_unit_from.fillna("").str.startswith("inferred") & latency.notna()
    networks.caveat_where(rows, inferred_unit, "latency_unit_inferred")
    networks.caveat_where(rows, off[keep] > np.log(1 + _SLACK), "throughput_contradicts_latency")
    networks.caveat_where(rows, client, "time_of_a_servers_client")
    networks.caveat_where(rows, server & (table.batch_size.isna()), "batch_from_one_request")
    networks.caveat_where(rows, ~server & table.concurrency.notna(), "batch_in_another_column")
    networks.caveat_where(rows, server & table.runtime.str.contains(r"\+"), "several_models_in_the_server")
    networks.add(reading, rows)


def _latency(table: pandas.DataFrame) -> tuple[pandas.Series, pandas.Series]:
    """The latency to take and its name: the server's, else the mean.

    TensorFlow 1's BERT has slow first iterations in its mean (D2): its median, else batch over throughput.
    """
    server = table.server_compute_infer_ms + table.server_compute_output_ms.where(_asynchronous(table), 0.0)
    slow_first = (table.model_family == "BERT") & (table.framework == "TensorFlow 1") & table.latency_avg_ms.notna()
    rate = table.batch / table.throughput * 1e3
    latency = table.latency_avg_ms.mask(slow_first, table.latency_p50_ms.fillna(rate))
    names = np.where(slow_first, np.where(table.latency_p50_ms.notna(), "p50", "over_throughput"), "mean")
    latency = latency.mask(latency.isna(), table.latency_p50_ms)
    names = np.where(table.latency_avg_ms.isna() & table.latency_p50_ms.notna(), "p50", names)
    latency = server.where(server.notna(), latency)
    names = np.where(server.notna(), "mean", np.where(latency.notna(), names, ""))
    return latency, _series(table, list(names))


def _asynchronous(table: pandas.DataFrame) -> pandas.Series:
    """Whose time of inference in the server is that of issuing it."""
    return table.runtime == "PyTorch"


def _training(reading: Reading, table: pandas.DataFrame) -> None:
    """Throughput of a step over all devices; ``batch`` is that of one device (``batch_scope``)."""
    steps = _accumulation(table)
    whole = (table.batch % steps) == 0
    kept = table.index[whole]
    table = reading.keep(table, whole, "batch, accumulation steps and global batch do not agree").reset_index(drop=True)
    rows = _common(table).assign(
        mode="training",
        batch=(table.batch / steps[kept].reset_index(drop=True)),
        batch_scope=table.batch_size_scope.map({"per GPU": "device"}).fillna(""),
        timing="a whole step; data loading as the README's script has it",
        throughput_per_s=table.throughput,
    )
    networks.caveat_where(rows, rows.batch_scope == "", "batch_scope_not_stated")
    networks.caveat_where(rows, table.n_gpus_from == "heading", "n_devices_from_heading")
    networks.add(reading, rows)


def _accumulation(table: pandas.DataFrame) -> pandas.Series:
    """Steps that the batches of BERT and ELECTRA pre-training are accumulated over (D4); 1 elsewhere.

    Tables that state a global batch have the batch of one step: times steps, and devices, it is that global batch.
    """
    applies = table.model_family.isin(("BERT", "ELECTRA"))
    texts = table.config.where(applies, None)
    rows = zip(texts, table.precision, table.batch, table.n_gpus.astype(float), strict=True)
    steps = _series(table, [_steps(*row) for row in rows])
    unsaid = applies & (steps == 1) & (table.batch > _MOST_IN_A_STEP)
    return steps.mask(unsaid, math.nan)


def _series(table: pandas.DataFrame, values: list[Any]) -> pandas.Series:
    import pandas

    return pandas.Series(values, index=table.index)


def _config(text: Any) -> dict[str, Any]:
    return parse(text.encode(), "a row's config") if isinstance(text, str) and text else {}


def _steps(text: Any, precision: Any, batch: float, devices: float) -> float:
    config = _config(text)
    whole = {float(n) for n in re.findall(r"\d+", str(config.get("global_batch_size", "")))}
    for name, value in config.items():
        numbers = [float(n) for n in re.findall(r"\d+", str(value))]
        if "accumulation" not in name or not numbers:
            continue
        mixed_first = "mixed_precision_" in name
        steps = numbers[0] if (precision in ("amp", "fp16")) == mixed_first else numbers[-1]
        if not whole:
            return steps if batch >= steps else 1.0
        return 1.0 if whole & {batch * steps, batch * steps * devices} else math.nan
    return 1.0


def _runtime(name: str) -> str:
    return next((ours for part, ours in _RUNTIMES if part in name), name.lower())


def _variant(row: dict[str, Any]) -> str:
    said = [str(row["variant"]).strip(" +")] if isinstance(row["variant"], str) else []
    config = _config(row["config"])
    wanted = ("triton: Backend", "triton: Model format", "triton: Number", "triton: NVIDIA", "triton: Dataset")
    said += [f"{k.removeprefix('triton: ')}: {v}" for k, v in config.items() if k.startswith(wanted)]
    said += [f"{k}: {v}" for k, v in config.items() if k in ("xla", "memory_length", "dimension", "wn_channels")]
    return "; ".join(said)


def _common(table: pandas.DataFrame) -> pandas.DataFrame:
    """The columns that do not depend on the mode."""
    records = table[["variant", "config", "model_family", "model", "model_variant", "heading", "context"]]
    variants = records.fillna("").to_dict("records")
    names = [network_of(r["model_family"], r["model"], r["model_variant"]) for r in variants]
    configs = [_config(r["config"]) for r in variants]
    dims = [c.get("dimension", "") for c in configs]
    named = zip(names, dims, table.model_family, strict=True)
    names = [f"nnunet-{dim}d" if family == "nnU-Net" and dim else name for name, dim, family in named]
    vocoder = (table.model_family == "FastPitch") & (table.heading + table.context.fillna("")).str.contains(
        "FastPitch +\\+|WaveGlow|HiFi-GAN", regex=True
    )
    precision, precision_from = networks.precisions(table.precision)
    # Neither the script (TFT's triton/model.py) nor the server halves a model of PyTorch that was exported whole.
    exported = _series(table, [c.get("triton: Export Precision", "") == "FP32" for c in configs])
    whole = (table.runtime == "PyTorch") & exported.astype(bool) & (precision == "fp16")
    precision, precision_from = precision.mask(whole, "fp32"), precision_from.mask(whole, "inferred")
    height, width = networks.pixels(table.image_size_as_reported.str.replace(r"x\d$", "", regex=True))
    volume = table.image_size_as_reported.fillna("").str.count("x") > 2
    system = table.device_as_reported.str.contains(_SYSTEM) & ~table.device.str.contains("T4")
    licence = table.licence.str.split(" ").str[0]
    text = table.context.fillna("") + " " + table.heading
    year = networks.container_year(text)
    # Behind Triton every text is padded to the length that the model was exported for.
    padded = _series(table, [float(c.get("triton: Max Seq Length", "nan")) for c in configs])
    sequence = table.sequence_length.where(table.model_family != "V-Net").astype(float)  # there a volume's side
    sequence = sequence.fillna(padded)
    rows = table[["device_as_reported"]].assign(
        licence=licence,
        device=table.device.mask(table.device == "CPU (as reported)", "2 x Xeon E5-2698 v4"),
        run=table.source_file + ":" + table.source_line.astype(str),
        model=np.where(table.model == "", table.model_family, table.model)
        + table.model_variant.map(lambda v: f" ({v})", na_action="ignore").fillna(""),
        network=names,
        architecture=table.architecture,
        domain=table.task.map(lambda t: DOMAINS[t][0]),
        task=table.task.map(lambda t: DOMAINS[t][1]),
        device_from=np.where(system, "inferred", "stated"),
        n_devices=table.n_gpus,
        runtime=table.runtime.map(_runtime),
        runtime_version=text.str.extract(r"\b((?:1[89]|2[0-4])\.(?:0[1-9]|1[0-2])(?:-[a-z0-9-]+)?)\b")[0],
        variant=[_variant(r) for r in table[["variant", "config"]].to_dict("records")],
        precision=precision,
        precision_from=precision_from,
        sequence=sequence,
        img_height=height.where(~volume, -1),
        img_width=width.where(~volume, -1),
        audio_s=table.audio_seconds,
        throughput_unit=table.throughput_unit_as_reported.fillna("").str.split("/").str[0].str.strip(),
        software_year=year,
        year_from=np.where(year > 0, "stated", "unknown"),
        caveats="",
    )
    rows["network"] = rows.network.mask(vocoder, "fastpitch+vocoder")
    default = table.architecture.fillna("").str.contains("README default")
    ordered = default & (table.framework == "TensorFlow 2") & (table["mode"] == "infer")
    rows["architecture"] = table.architecture.mask(ordered, "")
    rows["caveats"] = add_caveat(rows.caveats, (default & ~ordered).to_numpy(), "size_by_the_readme_default")
    rows["caveats"] = add_caveat(rows.caveats, ordered.to_numpy(), "size_by_the_tables_order")
    return rows
