"""NVIDIA/FasterTransformer: encoders, decoders, GPT, Swin, ViT and XLNet in frameworks and in its own kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

NETWORKS = {
    "BERT-base-sized encoder": "bert-base",
    "Transformer encoder-decoder": "",
    "XLNet": "xlnet-base",
    "Swin-Tiny V1": "swin_tiny_patch4_window7_224",
    "Swin TINY": "swin_tiny_patch4_window7_224",
    "Swin SMALL": "swin_small_patch4_window7_224",
    "Swin BASE": "swin_base_patch4_window7_224",
    "Swin LARGE": "swin_large_patch4_window7_224",
    "Swin-Tiny V2": "",
    "ViT-B_16, 384": "vit_base_patch16_384",
    "ViT B_16-224": "vit_base_patch16_224",
    "ViT L_16-224": "vit_large_patch16_224",
}
_PIXELS = {
    "ViT-B_16, 384": 384,
    "ViT B_16-224": 224,
    "ViT L_16-224": 224,
    "Swin-Tiny V1": 224,
    "Swin TINY": 224,
    "Swin-Tiny V2": 256,
}
_TASKS = {
    "BERT": ("language", "encoder"),
    "Transformer encoder-decoder": ("language", "translation"),
    "GPT": ("language", "text generation"),
    "XLNet": ("language", "encoder"),
    "Swin": ("vision", "image classification"),
    "ViT": ("vision", "image classification"),
}
_RUNTIMES = {
    "TensorFlow": "tensorflow",
    "TensorFlow XLA": "tensorflow",
    "TorchScript": "torchscript",
    "PyTorch": "torch",
    "Megatron-LM (PyTorch)": "torch",
    "FasterTransformer TensorRT plugin": "tensorrt",
}
# Clock of the memory in the page's note, and the board that has it (F1).
_CLOCKS = (("A100 (with mclk 1593", "A100-SXM4-80GB"), ("A100 (with mclk 1215", "A100-SXM4-40GB"))
_MIG = "NVIDIA A100 MIG instance (profile not stated)"
# Pages whose figures are those of version 4.0 (F2).
_CARRIED_FORWARD = ("BERT-base-sized encoder", "Transformer encoder-decoder", "GPT-175B", "GPT-89B")


# GPT models by their configuration that ships: layers, heads and widths are the page's.
GPT_NETWORKS = {
    **{f"GPT-{size}": f"megatron-gpt-{size.lower()}" for size in ("350M", "1.3B", "6.7B", "20B", "89B", "175B")},
    "Megatron-530B": "megatron-gpt-530b",
}


def read(shared: Path) -> Reading:
    """Records of kind ``network``. GPT's latency is that of the prompt and ``output_tokens`` tokens (F5), and is a
    record of kind ``generation`` as well.
    """
    reading = Reading("fastertransformer")
    table = table_of(shared, "nvidia_fastertransformer", "performance.parquet")
    table = reading.keep(table, ~table.oom.astype(bool), "did not fit")
    table = reading.keep(table, table.batch_size.notna(), "no batch stated").reset_index(drop=True)
    effective = table.runtime.str.contains("padding removed") | table.runtime.str.contains("effective")
    clocks = _device(table)
    mig = (table.device == _MIG).to_numpy()
    domain = table.model_family.map(lambda family: _TASKS[family][0])
    side = table.image_size.fillna(table.model.map(_PIXELS))
    beams = table.decoding.str.extract(r"beam_width=(\d+)")[0]
    rows = table[["model", "architecture", "device_as_reported", "precision"]].assign(
        licence="Apache-2.0",
        run=table.source_file + ":" + table.source_line.astype(str) + ":" + table.column,
        network=table.model.map(NETWORKS).fillna(table.model.str.lower().where(table.model_family == "GPT", "")),
        domain=domain,
        task=table.model_family.map(lambda family: _TASKS[family][1]),
        device=clocks,
        device_from=np.where(clocks == table.device, "stated", "inferred"),
        n_devices=table.n_gpus,
        mig_profile=np.where(mig, "1g.10gb", ""),
        runtime=table.runtime.map(_RUNTIMES).fillna("faster_transformer"),
        runtime_version=table.doc_version.where(~table.runtime.isin(_RUNTIMES), ""),
        variant=table.runtime + table.decoding.map(lambda d: f"; {d}", na_action="ignore").fillna(""),
        precision_from="stated",
        tensor_parallel=table.tensor_parallel,
        pipeline_parallel=table.pipeline_parallel,
        batch=table.batch_size,
        sequence=table.sequence_length,
        mean_sequence=np.where(effective, table.sequence_length / 2, np.nan),
        padding_removed=effective,
        output_tokens=table.output_length,
        beams=beams,
        img_height=side,
        img_width=side,
        timing="not stated",
        percentile=np.where(table.latency_ms.notna(), "reported", ""),
        latency_ms=table.latency_ms,
        throughput_per_s=np.where(mig, np.nan, table.throughput),
        throughput_unit=np.where(mig, "", table.throughput_unit.fillna("").str.removesuffix("/s")),
        peak_memory_bytes=table.memory_mib * 2.0**20,
        memory_kind=np.where(table.memory_mib.notna(), "reported", ""),
        software_year=np.where(table.model.isin(_CARRIED_FORWARD), 2021, -1),
        year_from=np.where(table.model.isin(_CARRIED_FORWARD), "inferred", "unknown"),
        caveats="",
    )
    rows["beams"] = rows.beams.map(float, na_action="ignore")
    networks.caveat_where(rows, mig, "seven_instances_at_once")
    networks.caveat_where(rows, effective, "half_the_padded_length")
    networks.caveat_where(rows, table.runtime.str.contains("sparse"), "sparse_2_4")
    networks.caveat_where(rows, table.runtime.str.contains("layer in framework"), "decoder_layers_only_accelerated")
    networks.caveat_where(rows, side.isna() & (rows.domain == "vision"), "image_size_not_stated")
    networks.caveat_where(rows, (rows.sequence < 0) & (table.model_family == "BERT"), "sequence_not_stated")
    networks.add(reading, rows)
    _add_generation(reading, rows)
    return reading


def _add_generation(reading: Reading, rows: pandas.DataFrame) -> None:
    """GPT of FasterTransformer, and of Megatron beside it, as batches of equal requests."""
    rows = rows[rows.task == "text generation"].reset_index(drop=True)
    kept = ["model", "licence", "run", "device", "device_as_reported", "n_devices", "runtime_version", "variant"]
    kept += ["precision", "precision_from", "batch", "output_tokens", "latency_ms", "software_year", "year_from"]
    batches = rows[[*kept, "tensor_parallel", "pipeline_parallel", "caveats"]].assign(
        network=rows.model.map(GPT_NETWORKS),
        runtime=np.where(rows.variant.str.startswith("Megatron"), "megatron", "fastertransformer"),
        timing="the whole batch, prompt and all tokens",
        input_tokens=rows.sequence,
        throughput_per_s=rows.batch * rows.output_tokens / rows.latency_ms * 1e3,
        throughput_unit="output tokens",
    )
    language_models.add(reading, batches)


def _device(table: pandas.DataFrame) -> pandas.Series:
    """The A100 by the clock of its memory; V100 of a DGX-1, of unknown memory, as `networks.READINGS` reads it."""
    device = table.device.str.replace(_MIG, "NVIDIA A100 (memory size not stated)", regex=False)
    unknown = device == "NVIDIA A100 (memory size not stated)"
    in_dgx = table.hardware_note.fillna("").str.contains("dgx-1")
    v100 = device == "NVIDIA Tesla V100 (variant not stated)"
    device = device.mask(v100 & in_dgx, "NVIDIA Tesla V100-SXM2 (memory size not stated)")
    for clock, board in _CLOCKS:
        device = device.mask(unknown & table.hardware_note.fillna("").str.startswith(clock), board)
    return device
