"""torchtitan's job configuration (TOML; torchtitan/config/job_config.py of 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfpass.deploy.training_files.settings import Keys, Settings, stated, unread_note
from perfpass.errors import FormatError

_SECTIONS = ("training", "parallelism", "activation_checkpoint")
_MODELS = {
    ("llama3", "8b"): "llama-3.1-8b",
    ("llama3", "70b"): "llama-3.1-70b",
    ("llama3", "405b"): "llama-3.1-405b",
    ("llama4", "17bx16e"): "llama-4-scout",
    ("llama4", "17bx128e"): "llama-4-maverick",
    ("deepseek_v3", "671b"): "deepseek-v3",
    ("qwen3", "0.6b"): "qwen3-0.6b",
    ("qwen3", "1.7b"): "qwen3-1.7b",
    ("qwen3", "8b"): "qwen3-8b",
    ("qwen3", "32b"): "qwen3-32b",
    ("qwen3", "30b-a3b"): "qwen3-30b-a3b",
    ("qwen3", "235b-a22b"): "qwen3-235b-a22b",
}
_OPTIMIZERS = {"adamw": "adamw", "adam": "adam", "muon": "muon", "sgd": "sgd"}
# Data, logging and learning rates: no matter to a step's time or memory.
_HARMLESS = (
    *("dataset", "steps", "max_norm", "seed", "deterministic", "gc_", "warmup_steps", "data_parallel_", "debug"),
    *("enable_profil", "world_size", "disable_loss_parallel", "tensor_parallel_degree", "pipeline_parallel_split"),
    *("pipeline_parallel_layers", "context_parallel_rotate", "preserve_rng_state", "determinism_check", "early_stop"),
    *("fsdp_", "module_", "per_op_", "enable_loss_parallel", "mixed_precision_reduce", "visualize_memory"),
)


def recognised(content: Mapping[str, Any]) -> bool:
    """Whether a TOML document is one."""
    return isinstance(content.get("training"), Mapping) and any(name in content for name in (*_SECTIONS[1:], "job"))


def read(content: Mapping[str, Any], where: str) -> Settings:
    """The layout and recipe. Raises FormatError."""
    whole = Keys(where, content)
    training, split = whole.table("training"), whole.table("parallelism", "experimental")
    anew, model = whole.table("activation_checkpoint"), whole.table("model")
    notes: list[str] = []
    tensor = split.whole("tensor_parallel_degree", least=1) or training.whole("tensor_parallel_degree") or 1
    pipeline = split.whole("pipeline_parallel_degree", least=1) or 1
    context = split.whole("context_parallel_degree", least=1) or 1
    replicas, shards = _data(split, training)
    ranks = tensor * pipeline * context
    devices = None if shards is None else ranks * replicas * shards
    sharded = shards is None or shards > 1
    local = training.whole("local_batch_size", "batch_size", least=1) or 8
    every = training.whole("pipeline_parallel_microbatch_size") or split.whole("pipeline_parallel_microbatch_size")
    micro = min(every or 1, local) if pipeline > 1 else local
    total = training.get("global_batch_size")
    batch = None if total in (None, -1) else training.whole("global_batch_size", least=1)
    asked = {
        "gpus": devices,
        "tensor": tensor,
        "pipeline": pipeline,
        "context": context,
        "expert": split.whole("expert_parallel_degree", least=1) or 1,
        "expert_tensor": split.whole("expert_tensor_parallel_degree", least=1)
        if "expert_parallel_degree" in split.content
        else None,
        "sharding": "zero3" if sharded else "none",
        "sharding_group": shards * context if replicas > 1 and shards is not None and shards > 1 else None,
        "sequence": training.whole("seq_len", least=1) or 2048,
        "micro_batch": micro,
        "global_batch": batch if batch is not None or devices is None else local * replicas * (shards or 1),
        "recompute": _recomputed(anew, notes),
        "optimizer": _optimizer(whole.table("optimizer"), notes),
        "precision": _precision(whole, training, model, notes),
        "framework": "torch",
        "equal_lengths": True,  # its loader cuts one stream of documents (datasets/hf_datasets.py)
        "offload": "parameters" if training.flag("enable_cpu_offload") else None,
    }
    if replicas > 1 and shards is None:
        notes.append(
            "states are counted as sharded over all replicas: give data_parallel_shard_degree for hybrid shards"
        )
    schedule = split.text("pipeline_parallel_schedule", "pipeline_parallel_schedule_csv")
    if pipeline > 1 and schedule and schedule != "1f1b":
        notes.append(f"the pipeline's schedule {schedule} is taken as 1F1B")
    if whole.table("compile").flag("enable") or training.flag("compile"):
        notes.append(
            "compile: the time is that of the frameworks that were measured, whose layers were not compiled by it"
        )
    if split.flag("enable_async_tensor_parallel"):
        notes.append("asynchronous tensor parallelism is not counted")
    name = (model.text("name"), model.text("flavor"))
    notes += unread_note((training, split, anew), _HARMLESS)
    return Settings("torchtitan", _MODELS.get(name), stated(asked), tuple(notes))


def _data(split: Keys, training: Keys) -> tuple[int, int | None]:
    """Replicas, and shards of each; None where they take what devices are left."""
    replicas = split.whole("data_parallel_replicate_degree", least=1) or 1
    shards = split.get("data_parallel_shard_degree")
    if shards is None:
        shards = training.get("data_parallel_shard_degree", "data_parallel_degree")
    if shards in (None, -1):
        return replicas, None
    return replicas, Keys(split.where, {"data_parallel_shard_degree": shards}).whole(
        "data_parallel_shard_degree", least=1
    )


def _recomputed(anew: Keys, notes: list[str]) -> str:
    mode = anew.text("mode") or "selective"
    if mode not in ("none", "selective", "full", "memory_budget"):
        raise FormatError(f"{anew.where}: mode is {mode}; none, selective and full are read")
    option = anew.text("selective_ac_option") or "op"
    if mode in ("selective", "memory_budget"):
        notes.append(
            f"activation_checkpoint {mode} ({option}): memory is that of keeping all activations, an upper bound; none "
            "is computed anew"
        )
        return "none"
    return mode


def _optimizer(found: Keys, notes: list[str]) -> str:
    name = found.text("name") or "adamw"
    if found.text("state_dtype") == "bfloat16":
        return "adamw_bf16"
    if name not in _OPTIMIZERS:
        notes.append(f"the optimizer {name} is taken as AdamW")
    if found.flag("early_step_in_backward"):
        notes.append("optimizer.early_step_in_backward: gradients are counted as kept")
    return _OPTIMIZERS.get(name, "adamw")


def _precision(whole: Keys, training: Keys, model: Keys, notes: list[str]) -> str:
    """FSDP's mixed precision keeps shards in single precision, as autocast does."""
    converters = model.get("converters") or []
    if "float8" in str(converters) or "quantize.linear.float8" in str(converters):
        notes.append("float8 products: weights and their gradients are counted as Transformer Engine keeps them")
        return "fp8"
    if "mx" in str(converters):
        notes.append("MX formats are not counted: products are taken in 16 bits")
    if training.text("dtype") == "bfloat16":
        return "bf16_true"
    return "fp32" if training.text("mixed_precision_param") == "float32" else "amp"
