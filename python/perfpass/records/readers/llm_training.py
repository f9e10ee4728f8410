"""Language models in training: torchtitan, torchtune, litgpt, fsdp_qlora and peft (B9); mosaicml's llm-foundry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

_LICENCES = {"pytorch": "BSD-3-Clause"}
# What each source's peak is: torchtitan's is the allocator's reserve, litgpt's what its tensors took.
_KINDS = {"pytorch/torchtitan": "reserved", "Lightning-AI/litgpt": "allocated"}
_DEVICES = {
    "NVIDIA H100 96GB HBM2e (500 W)": "NVIDIA H100 96GB HBM2e",
    "NVIDIA GeForce RTX 3090 (280 W limit)": "NVIDIA GeForce RTX 3090",
    "NVIDIA A100-SXM4-80GB (see caveat)": "NVIDIA A100-SXM4-80GB",
    "NVIDIA A100-SXM4-80GB (80 GB assumed)": "NVIDIA A100-SXM4-80GB",
    "NVIDIA A100 (40 or 80 GB not stated)": "NVIDIA A100 (memory size not stated)",
}
NETWORKS = {
    "Llama 3.1 8B": "llama-3.1-8b",
    "Llama 3.1 70B": "llama-3.1-70b",
    "Llama 2 7 B": "llama-2-7b",
    "gemma-2b": "gemma-2b",
    "gemma-7b": "gemma-7b",
    "phi-2": "phi-2",
    "llama-2-7b": "llama-2-7b",
    "Llama-2 7B": "llama-2-7b",
    "Llama-2 70B": "llama-2-70b",
    "Llama 2 70 B": "llama-2-70b",
    "CodeLlama 34 B": "codellama-34b",
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama-3.2-1b": "llama-3.2-1b",
    "llama-3.2-3b": "llama-3.2-3b",
    "gemma-2-2b": "gemma-2-2b",
    "gemma-2-9b": "gemma-2-9b",
    "Phi-3-mini-4k-instruct": "phi-3-mini-4k",
    "falcon-7b": "tiiuae/falcon-7b",
    "Falcon 40 B": "tiiuae/falcon-40b",
    "Yi 34B": "01-ai/Yi-34B",
    "phi-1.5 1.3 B": "microsoft/phi-1_5",
    "StableLM Alpha 3 B": "stabilityai/stablelm-base-alpha-3b",
    "stablelm-base-alpha-3b": "stabilityai/stablelm-base-alpha-3b",
    "llama-3.1-8b": "llama-3.1-8b",
    "tiny-llama": "tinyllama-1.1b",
}


def read(shared: Path) -> Reading:
    """Records of kind ``network``: memory and rate of training steps; ``batch`` is that of one device and one step."""
    reading = Reading("llm_training")
    table = table_of(shared, "llm_training_memory", "training_memory_throughput.csv")
    table = reading.keep(table, table.oom.astype(str) != "True", "did not fit")
    table = reading.keep(table, table.memory_as_reported.fillna("") != "Not supported", "did not run")
    table = reading.keep(table, table.device != "see section", "the device is not named")
    table = reading.keep(table, _named(table.model), "the model is not named")
    whole = table.latency_ms.isna() & table.memory_mib.isna()
    whole &= table.throughput_tok_per_s.isna() & table.throughput_tok_per_s_per_gpu.isna()
    table = reading.keep(table, ~whole, "the time of a whole run alone")
    inference = table["mode"] == "infer"
    table = reading.keep(table, inference | table.micro_batch_size.notna(), "no batch stated")
    lone = (table["mode"] == "infer") | table.method.fillna("").str.contains("1 GPU")
    table = reading.keep(table, lone | table.n_gpus.notna(), "number of devices not stated").reset_index(drop=True)
    networks.add(reading, _pages(table))
    networks.add(reading, _foundry(table_of(shared, "llm_foundry", "mpt_training.csv")))
    return reading


def _named(models: pandas.Series) -> pandas.Series:
    """Sections stand in the model's place where a table names none."""
    text = models.fillna("").str.lower()
    sized = text.str.contains(r"\d\s?b\b|tiny-llama|phi|falcon|stablelm|t0|mt0|bloom|diffusers", regex=True)
    return sized & ~text.str.contains("benchmarks$")


def _pages(table: pandas.DataFrame) -> pandas.DataFrame:
    repository = table.repo.str.split("@").str[0]
    owner = repository.str.split("/").str[0]
    text = table.method.fillna("") + " " + table.variant.fillna("") + " " + table.quantisation.fillna("")
    inference = table["mode"] == "infer"
    each = table.throughput_tok_per_s_per_gpu * table.n_gpus
    rate = table.throughput_tok_per_s.fillna(each)
    larger = (table.device == "NVIDIA A100 (40 or 80 GB not stated)") & (table.memory_mib > 40 * 1024)
    device = table.device.replace(_DEVICES).mask(larger, "NVIDIA A100-SXM4-80GB")
    named = table.precision.fillna("").replace({"see README": "", "bf16 + float8": "fp8"})
    # fsdp_qlora's sections: "Llama-2 7B with Context Length of 2048".
    network = table.model.str.replace(r" with .*", "", regex=True)
    # litgpt's second Gemma stands in the first one's section.
    second = table.method.fillna("").str.match(r"gemma2-?2?b/") & (network == "gemma-2b")
    network = network.mask(second, "gemma-2-2b")
    told = table.model.str.extract(r"Context Length of (\d+)")[0].map(float, na_action="ignore")
    rows = table[["model"]].assign(
        device=device,
        device_as_reported=table.device_as_reported.fillna(table.device),
        device_from=np.where(table.device.str.contains("caveat|assumed|not stated"), "inferred", "stated"),
        licence=owner.map(_LICENCES).fillna("Apache-2.0"),
        run=table.repo + ":" + table.source_file + ":" + table.index.astype(str),
        network=network.map(NETWORKS).fillna(""),
        domain="language",
        task=np.where(inference, "text generation", "language modelling"),
        n_devices=table.n_gpus.fillna(1),
        runtime="torch",
        variant=table.framework.str.removeprefix("PyTorch ") + "; " + text.str.strip(),
        precision=named,
        precision_from=np.where(named == "", "unknown", "stated"),
        quantization=table.quantisation.fillna(""),
        mode=np.where(inference, "inference", "training"),
        batch_scope=np.where(inference, "", "device"),
        batch=table.micro_batch_size.mask(inference & table.micro_batch_size.isna(), 1),
        sequence=table.sequence_length.fillna(told),
        timing=np.where(inference, "a generation", "a training step"),
        percentile=np.where(table.latency_ms.notna(), "mean", ""),
        latency_ms=table.latency_ms,
        throughput_per_s=rate,
        throughput_unit=np.where(rate.notna(), "tokens", ""),
        peak_memory_bytes=table.memory_mib * 2.0**20,
        memory_kind=repository.map(_KINDS).fillna("reported").where(table.memory_mib.notna(), ""),
        caveats="",
    )
    networks.caveat_where(rows, rows.sequence.isna(), "sequence_not_stated")
    networks.caveat_where(rows, table.device.str.contains("caveat|assumed"), "memory_size_not_stated")
    networks.caveat_where(rows, table.device.str.contains("280 W"), "power_capped")
    networks.caveat_where(rows, table.device.str.contains("500 W"), "not_the_usual_h100")
    networks.caveat_where(rows, text.str.contains("(?i)lora|adapter"), "most_weights_frozen")
    return rows


def _foundry(table: pandas.DataFrame) -> pandas.DataFrame:
    saved = table.activation_checkpointing.map({True: "; activation checkpointing", False: ""})
    steps = table.grad_accum.map("; {:.0f} steps accumulated".format)
    return table[["model", "device", "device_as_reported", "precision"]].assign(
        licence="Apache-2.0",
        run=table.repo + ":" + table.source_file + ":" + table.index.astype(str),
        network=table.model.str.lower(),
        domain="language",
        task="language modelling",
        n_devices=table.n_gpus,
        runtime="torch",
        precision=table.precision,
        precision_from="stated",
        variant="llm-foundry; FSDP " + table.sharding + saved + steps,
        mode="training",
        batch_scope="device",
        batch=table.micro_batch_size,
        sequence=table.sequence_length,
        timing="training steps",
        throughput_per_s=table.throughput_tok_per_s,
        throughput_unit="tokens",
        caveats="form_factor_not_stated",
    )
