"""DeepSpeed's configuration (JSON; https://www.deepspeed.ai/docs/config-json/)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfpass.deploy.training_files.settings import Keys, Settings, stated, unread_note
from perfpass.errors import FormatError

_KEYS = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")
_OPTIMIZERS = {
    "adamw": "adamw",
    "adam": "adam",
    "fusedadam": "adamw",
    "deepspeedcpuadam": "adamw",
    "onebitadam": "adam",
    "lion": "lion",
    "muon": "muon",
    "sgd": "sgd",
}
# Buckets, logging, learning rates, checkpoints.
_HARMLESS = (
    *("scheduler", "steps_per_print", "wall_clock", "gradient_clipping", "prescale", "tensorboard", "wandb", "csv_"),
    *("flops_profiler", "checkpoint", "dump_state", "data_types", "amp", "comet", "communication_data_type", "comms_"),
    *("zero_allow_untested", "zero_force", "elasticity", "aio", "memory_breakdown", "gradient_predivide", "seed"),
    *("contiguous_gradients", "overlap_comm", "reduce_", "allgather_", "sub_group_size", "round_robin", "stage3_"),
    *("load_from_fp32", "elastic_", "ignore_unused", "legacy_", "use_multi_rank", "reduce_scatter", "memory_efficient"),
)


def recognised(content: Mapping[str, Any]) -> bool:
    """Whether a JSON document is one."""
    return any(name in content for name in _KEYS)


def read(content: Mapping[str, Any], where: str) -> Settings:
    """The layout and recipe. Raises FormatError."""
    whole = Keys(where, content)
    zero = whole.table("zero_optimization")
    notes: list[str] = []
    stage = zero.whole("stage") or 0
    if stage > 3:
        raise FormatError(f"{where}: zero_optimization.stage is {stage}; 0 to 3 are read")
    micro = whole.whole("train_micro_batch_size_per_gpu", least=1)
    passes = whole.whole("gradient_accumulation_steps", least=1)
    batch = whole.whole("train_batch_size", least=1)
    split = whole.table("tensor_parallel").whole("autotp_size") or 1
    devices = batch // (micro * passes) * max(split, 1) if batch and micro and passes else None
    if batch and micro and passes and batch % (micro * passes):
        raise FormatError(f"{where}: train_batch_size {batch} is no multiple of {micro} x {passes} sequences a device")
    asked = {
        "gpus": devices,
        "tensor": max(split, 1),
        "sharding": f"zero{stage}" if stage else "none",
        "micro_batch": micro,
        "global_batch": batch,
        "precision": _precision(whole, notes),
        "optimizer": _optimizer(whole.table("optimizer"), notes),
        "framework": "deepspeed",
        "offload": offload(zero.table("offload_optimizer").text("device"), zero.table("offload_param").text("device")),
    }
    if "nvme" in (zero.table("offload_optimizer").text("device"), zero.table("offload_param").text("device")):
        notes.append("what waits on NVMe is timed as in the host's memory")
    for name in ("zero_quantized_weights", "zero_quantized_gradients", "zero_hpz_partition_size"):
        if zero.get(name) not in (None, False, 1):
            notes.append(f"zero_optimization.{name}: messages are counted in 16 bits between all replicas")
    if whole.table("activation_checkpointing").flag("partition_activations", "cpu_checkpointing"):
        notes.append("activation_checkpointing: what is checkpointed is up to the program; say it with --recompute")
    if passes and not batch:
        notes.append(f"gradient_accumulation_steps is {passes}: give --global-batch, or train_batch_size here")
    notes += unread_note((whole, zero), _HARMLESS)
    return Settings("DeepSpeed", None, stated(asked), tuple(notes))


def offload(optimizer: str, parameters: str) -> str | None:
    """What waits in the host's memory, by the devices that optimizer and parameters are offloaded to."""
    if parameters not in ("", "none"):
        return "parameters"
    return "optimizer" if optimizer not in ("", "none") else None


def _precision(whole: Keys, notes: list[str]) -> str:
    for name in ("bf16", "fp16"):
        section = whole.table(name)
        if section.flag("enabled"):
            return name
        if str(section.content.get("enabled")).lower() == "auto":
            notes.append(f"{name}.enabled is auto: taken as bf16; say it with --precision")
            return "bf16"
    return "fp32"


def _optimizer(found: Keys, notes: list[str]) -> str | None:
    name = found.text("type")
    if not name:
        return None
    if name not in _OPTIMIZERS:
        notes.append(f"the optimizer {name} is taken as AdamW")
    return _OPTIMIZERS.get(name, "adamw")
