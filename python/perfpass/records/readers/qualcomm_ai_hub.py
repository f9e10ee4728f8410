"""quic/ai-hub-models: networks on phones and boards of Snapdragon, one sample at a time, on NPU, CPU or GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

# The source's id, our name: those whose checkpoint and number of parameters are the public definition's.
NETWORKS = {
    "albert_base_v2_hf": "albert-base-v2",
    "bert_base_uncased_hf": "bert-base",
    "electra_bert_base_discrim_google": "electra-base",
    "mobile_bert_uncased_google": "mobilebert",
    "convnext_base": "convnext_base",
    "convnext_tiny": "convnext_tiny",
    "densenet121": "densenet121",
    "efficientnet_b0": "efficientnet_b0",
    "efficientnet_b4": "efficientnet_b4",
    "efficientnet_v2_s": "efficientnet_v2_s",
    "googlenet": "googlenet",
    "inception_v3": "inception_v3",
    "mnasnet05": "mnasnet0_5",
    "mobilenet_v2": "mobilenet_v2",
    "mobilenet_v3_large": "mobilenet_v3_large",
    "mobilenet_v3_small": "mobilenet_v3_small",
    "regnet_y_800mf": "regnet_y_800mf",
    "resnet101": "resnet101",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "resnext101": "resnext101_32x8d",
    "resnext50": "resnext50_32x4d",
    "shufflenet_v2": "shufflenet_v2_x0_5",
    "squeezenet1_1": "squeezenet1_1",
    "vit": "vit_b_16",
    "wideresnet50": "wide_resnet50_2",
    "detr_resnet50": "facebook/detr-resnet-50",
    "detr_resnet101": "facebook/detr-resnet-101",
}
_LANGUAGE_MODELS = {
    "llama_v2_7b_chat": "llama-2-7b",
    "llama_v3_1_8b_instruct": "llama-3.1-8b",
    "llama_v3_8b_instruct": "meta-llama/Meta-Llama-3-8B",
    "llama_v3_2_1b_instruct": "llama-3.2-1b",
    "llama_v3_2_3b_instruct": "llama-3.2-3b",
    "mistral_7b_instruct_v0_3": "mistral-7b-v0.3",
    "qwen2_5_1_5b_instruct": "qwen2.5-1.5b",
    "qwen2_5_7b_instruct": "qwen2.5-7b",
    "phi_3_5_mini_instruct": "phi-3-mini-128k",
}
_DOMAINS = {"Computer Vision": "vision", "Audio": "speech", "Multimodal": "multimodal"}
_IMAGES = r"^(\d+x\d+|(?:1 ?x ?)(?:3 ?x ?)\d+ ?x ?\d+)$"
_MEGABYTE = 2.0**20
_PRECISIONS = {"w8a8": "int8"}


def read(shared: Path) -> Reading:
    """Records of kind ``network``, and of kind ``generation`` for language models (Q1 to Q3).

    Float networks run in 16 bits on NPU and GPU and in 32 on the CPU: inferred. The memory is the upper end of an
    estimated range.
    """
    reading = Reading("qualcomm_ai_hub")
    table = table_of(shared, "qualcomm_ai_hub", "perf.parquet")
    chats = table[table.tokens_per_second.notna()].reset_index(drop=True)
    language_models.add(reading, _chats(chats))
    table = table[table.tokens_per_second.isna()].reset_index(drop=True)
    table = reading.keep(table, table.latency_ms.notna(), "no time stated").reset_index(drop=True)
    plain = table.precision == "float"
    width = np.where(table.primary_compute_unit == "CPU", "fp32", "fp16")
    resolution = table.input_resolution.fillna("")
    pictures = resolution.where(resolution.str.fullmatch(_IMAGES), "").str.replace(" ", "")
    tokens = (table.use_case == "Text Generation") & resolution.str.fullmatch(r"1x\d+")
    height, first_width = networks.pixels(pictures.where(~tokens, ""))
    memory = table.peak_memory_max_mb.where(table.peak_memory_max_mb > 0) * _MEGABYTE
    domain = table.domain.map(_DOMAINS)
    domain = domain.mask(table.use_case == "Text Generation", "language")
    rows = table[["model", "device"]].assign(
        device_as_reported=table.device,
        licence="BSD-3-Clause",
        run=table.source_file + ":" + table.index.astype(str),
        network=table.model_id.map(NETWORKS).fillna(""),
        architecture=table.component + table.checkpoint.map(lambda c: f", {c}", na_action="ignore").fillna(""),
        domain=domain.fillna("image generation"),
        task=table.use_case.str.lower(),
        runtime=table.runtime,
        runtime_version=table.tool_versions,
        variant=table.primary_compute_unit,
        precision=table.precision.replace(_PRECISIONS).mask(plain, width),
        precision_from=np.where(plain, "inferred", "stated"),
        quantization=table.precision.where(~plain, ""),
        batch=1,
        sequence=resolution.where(tokens, "").str.extract(r"1x(\d+)")[0].map(float, na_action="ignore"),
        img_height=height,
        img_width=first_width,
        timing="the compiled network on the device",
        percentile="reported",
        latency_ms=table.latency_ms,
        peak_memory_bytes=memory,
        memory_kind=np.where(memory.notna(), "reported", ""),
        software_year=2025,
        year_from="inferred",
        caveats="",
    )
    networks.caveat_where(rows, memory.notna(), "memory_estimated")
    networks.caveat_where(rows, table.device.str.contains("Proxy"), "another_device_with_this_chip")
    networks.caveat_where(rows, table.component != table.model, "a_component")
    mixed = table.layers_total > table.layers_npu
    networks.caveat_where(rows, (table.primary_compute_unit == "NPU") & mixed, "some_layers_elsewhere")
    networks.add(reading, rows)
    return reading


def _chats(table: pandas.DataFrame) -> pandas.DataFrame:
    return table[["model", "device"]].assign(
        device_as_reported=table.device,
        licence="BSD-3-Clause",
        run=table.source_file + ":" + table.index.astype(str),
        network=table.model_id.map(_LANGUAGE_MODELS).fillna(""),
        runtime=table.runtime,
        runtime_version=table.tool_versions,
        variant="NPU; context of " + table.context_length.map("{:.0f} tokens".format),
        precision=table.precision.mask(table.precision.isin(["w4a16", "w4"]), "int4"),
        precision_from="stated",
        quantization=table.precision,
        mode="decode",
        batch=1,
        timing="output tokens alone",
        software_year=2025,
        year_from="inferred",
        tensor_parallel=1,
        pipeline_parallel=1,
        tpot_ms=1e3 / table.tokens_per_second,
        ttft_ms=table.ttft_min_ms,
        throughput_per_s=table.tokens_per_second,
        throughput_unit="output tokens",
        caveats="context_not_stated,first_token_of_the_shortest_prompt",
    )
