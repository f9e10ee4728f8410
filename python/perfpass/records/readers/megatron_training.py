"""NVIDIA/Megatron-LM: iteration time and peak memory of its functional tests, with all their arguments (C2)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.json_text import parse
from perfpass.records import networks, training_layouts
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

_SYSTEMS = {
    "dgx_h100": "NVIDIA H100 80GB HBM3",
    "dgxh100_dgxc": "NVIDIA H100 80GB HBM3",
    "dgx_gb200": "NVIDIA GB200",
    "dgx_a100": "NVIDIA A100-SXM4-80GB",
    "dgxa100_dracooci": "NVIDIA A100-SXM4-80GB",
    "dgxa100_dracooci-ord": "NVIDIA A100-SXM4-80GB",
}
_ZERO = {"optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "zero3"}


def read(shared: Path) -> Reading:
    """Records of kind ``llm_training``. ``peak_memory_bytes`` is that of the rank that logs: the last one."""
    reading = Reading("megatron_lm")
    table = table_of(shared, "megatron_lm", "mcore_ci_training.parquet")
    given = table.args_json.map(lambda text: parse(text, "arguments of a run"))
    table = reading.keep(table, table.device.notna(), "the device is not named")
    pictures = table.model_group.isin(("mimo", "multimodal-llava"))
    table = reading.keep(table, ~pictures, "pictures beside text: the tower that reads them is not described")
    written = given[table.index].map(lambda a: "perform-rl-step" in a)
    table = reading.keep(table, ~written, "reinforcement learning: the step writes its own text")
    taught = given[table.index].map(lambda a: "export-kd-cfg" in a or "flextron" in a)
    table = reading.keep(table, ~taught, "a teacher's or a router's pass beside the step")
    sized = table.global_batch_size.notna() & table.sequence_length.notna()
    table = reading.keep(table, sized, "no batch stated")
    divides = table.n_gpus.isna() | (table.dp_derived % 1 == 0)
    table = reading.keep(table, divides, "the layout does not divide the devices")
    arguments = given[table.index].tolist()
    training_layouts.add(reading, _rows(table.reset_index(drop=True), arguments))
    return reading


def _rows(table: pandas.DataFrame, arguments: list[dict[str, Any]]) -> pandas.DataFrame:
    def argument(name: str, otherwise: Any = None) -> list[Any]:
        return [given.get(name, otherwise) for given in arguments]

    gathered = np.array([bool(given.get("use-distributed-optimizer")) for given in arguments])
    shards = np.where(gathered, "zero1", "none")
    shards = np.where(table.zero_strategy.notna(), table.zero_strategy.map(_ZERO).fillna("zero3"), shards)
    inferred = table.n_gpus_from.fillna("").str.startswith("default")
    known_devices = np.where(inferred, "inferred", np.where(table.n_gpus.isna(), "unknown", "stated"))
    chunks = table.vp.fillna(table.num_layers / (table.pp.fillna(1) * table.vp_layers_per_stage))
    rows = table[["precision"]].assign(
        model=table.test_case,
        network="",
        task="pretrain",
        licence="BSD-3-Clause",
        run="NVIDIA/Megatron-LM@" + table.source_commit.str[:12] + ":" + table.source_file,
        device=table.device_as_reported.map(_SYSTEMS).fillna(table.device),
        device_as_reported=table.device_as_reported,
        device_from="inferred",
        n_devices=table.n_gpus,
        n_devices_from=known_devices,
        n_nodes=table.n_nodes,
        runtime="megatron-lm",
        batch=table.global_batch_size,
        micro_batch=table.micro_batch_size,
        sequence=table.sequence_length,
        timing="an iteration, data loading and logging included; median of iterations from the tenth on",
        layers=table.num_layers,
        hidden=table.hidden_size,
        intermediate=table.ffn_hidden_size,
        heads=table.num_attention_heads,
        kv_heads=table.num_query_groups,
        experts=table.num_experts,
        active_experts=table.moe_topk,
        tensor=table.tp.fillna(1),
        pipeline=table.pp.fillna(1),
        virtual=chunks,
        context=table.cp.fillna(1),
        expert=table.ep,
        expert_tensor=table.etp,
        sharding=shards,
        sequence_parallel=_set(table.sequence_parallel),
        recompute=table.recompute_granularity.fillna("none"),
        optimizer=argument("optimizer", "adam"),
        attention=table.attention_backend.fillna(""),
        deterministic=_set(table.deterministic),
        variant=table.environment + np.where(table.second_run, "; restarted from a checkpoint", ""),
        arguments=table.args_json,
        latency_ms=table.iteration_time_s_median * 1e3,
        latency_p10_ms=table.iteration_time_s_p10 * 1e3,
        latency_p90_ms=table.iteration_time_s_p90 * 1e3,
        n_samples=table.n_iterations,
        peak_memory_bytes=table.memory_max_allocated_mib * 2.0**20,
        memory_kind=np.where(table.memory_max_allocated_mib.notna(), "allocated", ""),
        allocated_bytes=table.memory_allocated_mib * 2.0**20,
        caveats="",
    )
    networks.caveat_where(rows, rows.device.str.contains("A100"), "memory_size_not_stated")
    networks.caveat_where(rows, _set(table.deterministic), "deterministic_kernels")
    networks.caveat_where(rows, table.second_run, "restarted")
    networks.caveat_where(rows, table.n_iterations < 10, "few_iterations")
    networks.caveat_where(rows, table.iteration_time_s_p90 > 1.5 * table.iteration_time_s_median, "unsteady")
    return rows


def _set(flags: pandas.Series) -> pandas.Series:
    return flags.fillna("").astype(str) == "True"
