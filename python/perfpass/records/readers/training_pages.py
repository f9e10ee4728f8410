"""Small pages of language-model training: those of `llm_training`, by layout; ColossalAI and Megatron-LM (C17)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import networks, training_layouts
from perfpass.records.readers import llm_training
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

_MISLABELLED_LINE = 72


def read(shared: Path) -> Reading:
    """Records of kind ``llm_training``; rows that `llm_training` refuses are counted there."""
    reading = Reading("training_pages")
    rows = llm_training.read(shared).tables["network"]
    rows = reading.keep(rows, rows["mode"] == "training", "no training step")
    training_layouts.add(reading, _pages(rows.reset_index(drop=True)))
    table = table_of(shared, "training_misc", "training.csv")
    mislabelled = (table.source_repo == "hpcaitech/ColossalAI") & (table.source_line == _MISLABELLED_LINE)
    table = reading.keep(table, ~mislabelled, "mislabelled: the text beside it names another device")
    training_layouts.add(reading, _readmes(table.reset_index(drop=True)))
    return reading


def _pages(rows: pandas.DataFrame) -> pandas.DataFrame:
    text = rows.variant.str.lower()

    def has(pattern: str) -> pandas.Series:
        return text.str.contains(pattern, regex=True)

    def ranks(pattern: str) -> pandas.Series:
        return text.str.extract(pattern)[0].astype(float)

    whole = has(r"full_shard|fsdp") & ~has("ddp=true")
    sharding = np.where(has("shard_grad_op"), "zero2", np.where(whole, "zero3", np.where(has("ddp"), "none", "")))
    task = np.where(
        has("qlora|nf4"), "qlora", np.where(has("lora"), "lora", np.where(has("adapter"), "adapter", "sft"))
    )
    pretrained = has("llm-foundry|torchtitan")
    saved = np.where(has("full activation checkpoint|; activation checkpointing"), "full", "")
    saved = np.where(has("selective activation checkpoint"), "selective", saved)
    saved = np.where(has("llm-foundry") & ~has("activation checkpointing"), "none", saved)
    accumulated = ranks(r"(\d+) steps accumulated")
    split = ranks(r"tp (\d+)").fillna(1) * ranks(r"cp (\d+)").fillna(1) * ranks(r"pp (\d+)").fillna(1)
    stated = rows.n_devices.where(rows.n_devices > 0)
    each_batch = rows.batch.where(rows.batch > 0)
    same = [
        *("model", "network", "device", "device_as_reported", "device_from", "licence", "run", "precision"),
        *("precision_from", "n_devices", "runtime", "sequence", "timing", "quantization", "variant"),
        *("latency_ms", "throughput_per_s", "peak_memory_bytes", "memory_kind", "caveats"),
    ]
    return rows[same].assign(
        task=np.where(pretrained, "pretrain", task),
        batch=(each_batch * accumulated.fillna(1) * stated / split).where(has("llm-foundry")),
        micro_batch=each_batch,
        tensor=ranks(r"tp (\d+)"),
        pipeline=ranks(r"pp (\d+)"),
        context=ranks(r"cp (\d+)"),
        sharding=sharding,
        recompute=saved,
        compiled=has("compile|thunder|cumulative"),
    )


def _readmes(table: pandas.DataFrame) -> pandas.DataFrame:
    colossal = table.source_repo == "hpcaitech/ColossalAI"
    # "zero2": every device holds a shard of one replica.
    tensor, pipeline = table.tp.fillna(1), table.pp.fillna(1)
    replicas = (table.n_gpus / (tensor * pipeline)).where(colossal)
    each = table.batch_size_per_dp.where(table.batch_size_per_dp.notna())
    rate = table.samples_per_s * table.sequence_length
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence=np.where(colossal, "Apache-2.0", "BSD-3-Clause"),
        run=table.source_repo
        + "@"
        + table.source_commit.str[:12]
        + ":"
        + table.source_file
        + ":"
        + table.source_line.astype(str),
        device_from=np.where(colossal, "stated", "inferred"),
        n_devices=table.n_gpus,
        runtime=np.where(colossal, "colossalai", "megatron-lm"),
        precision=table.precision.fillna(""),
        precision_from=np.where(table.precision.isna(), "unknown", "stated"),
        batch=table.global_batch_size.fillna(each * replicas),
        micro_batch=table.micro_batch_size,
        sequence=table.sequence_length,
        timing="training steps",
        parameters=table.params_b * 1e9,
        tensor=tensor,
        pipeline=pipeline,
        virtual=table.vp,
        context=table.cp.fillna(1),
        expert=table.ep,
        sharding=table.zero.map({1.0: "zero1", 2.0: "zero2"}).fillna(""),
        variant=table.framework + "; " + table.layout.fillna(""),
        throughput_per_s=rate.fillna(table.tokens_per_s_per_gpu * table.n_gpus),
        peak_memory_bytes=table.memory_mib * 2.0**20,
        memory_kind=np.where(table.memory_mib.notna(), "reported", ""),
        model_flop_s=table.tflops_per_gpu * 1e12,
        caveats="",
    )
    networks.caveat_where(rows, colossal & table.layout.fillna("").eq("zero2"), "layout_in_part")
    return rows
