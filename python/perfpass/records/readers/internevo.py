"""InternLM/InternEvo: a 7B model on 8 to 1,024 GPUs, memory of 7B and 20B (C5)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks, training_layouts
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

# Of the published InternLM-7B and InternLM-20B (config.json of both); the table states billions of parameters alone.
_SIZES = {
    "InternLM-7B": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "intermediate": 11008},
    "InternLM-20B": {"layers": 60, "hidden": 5120, "heads": 40, "kv_heads": 40, "intermediate": 13824},
}
_VOCABULARY = 103_168


def read(shared: Path) -> Reading:
    """Records of kind ``llm_training``: tokens a second over all devices, or memory in whole GB."""
    reading = Reading("internevo")
    table = table_of(shared, "internevo", "train_performance.csv")
    memory = table.memory_mib.notna()
    sharded = table.fsdp.astype(str) == "True"
    group = table.zero1_group.where(table.zero1_group > 0)
    sizes = {name: table.model.map(lambda model, n=name: _SIZES[model][n]) for name in _SIZES["InternLM-7B"]}
    # The memory rows run the repository's configs/7B_sft.py, where a sequence has 2,048 tokens.
    sequence = table.sequence_length.fillna(2048)
    replicas = table.n_gpus / (table.tp * table.pp)
    whole = table.n_gpus % (table.tp * table.pp) == 0
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run="InternLM/InternEvo@"
        + table.source_commit.str[:12]
        + ":"
        + table.source_file
        + ":"
        + table.source_line.astype(str),
        task=np.where(memory, "sft", "pretrain"),
        n_devices=table.n_gpus,
        n_nodes=table.n_nodes,
        runtime="internevo",
        precision="bf16",
        precision_from=np.where(table.precision.str.contains("assumed"), "inferred", "stated"),
        batch=(replicas * table.micro_batch_size * table.grad_accum).where(whole),
        micro_batch=table.micro_batch_size,
        sequence=sequence,
        timing="training steps",
        vocabulary=_VOCABULARY,
        parameters=table.params_b * 1e9,
        tensor=table.tp,
        pipeline=table.pp,
        context=1,
        sharding=np.where(sharded, "zero3", "zero1"),
        sharding_group=group,
        recompute=np.where(table.activation_checkpointing, "full", "none"),
        optimizer="adamw",
        attention="flash",
        variant=np.where(table.pack_sample_into_one.astype(str) == "True", "samples packed into one", ""),
        throughput_per_s=table.tokens_per_s_per_gpu * table.n_gpus,
        model_flop_s=table.tflops_per_gpu * 1e12,
        peak_memory_bytes=table.memory_gb_as_reported * 1e9,
        memory_kind=np.where(memory, "reported", ""),
        caveats="",
        **sizes,
    )
    networks.caveat_where(rows, table.sequence_length.isna(), "sequence_of_the_configuration")
    networks.caveat_where(rows, memory, "memory_in_whole_gb")
    recomputed = table.tflops_per_gpu.notna() & table.activation_checkpointing
    networks.caveat_where(rows, recomputed, "flops_count_recomputation")
    training_layouts.add(reading, rows)
    return reading
