"""Accelerate's configuration (YAML, as `accelerate config` writes it): FSDP, DeepSpeed, Megatron-LM, plain replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfpass.deploy.training_files.deepspeed import offload
from perfpass.deploy.training_files.settings import Keys, Settings, stated, unread_note
from perfpass.errors import FormatError

_STRATEGIES = {
    "1": "zero3",
    "full_shard": "zero3",
    "2": "zero2",
    "shard_grad_op": "zero2",
    "3": "none",
    "no_shard": "none",
    "4": "zero3",
    "hybrid_shard": "zero3",
    "5": "zero2",
    "hybrid_shard_zero2": "zero2",
}
_HYBRID = ("4", "5", "hybrid_shard", "hybrid_shard_zero2")
_HARMLESS = (
    *("fsdp_auto_wrap", "fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_state_dict", "fsdp_sync_module"),
    *("fsdp_transformer_layer", "fsdp_use_orig", "fsdp_cpu_ram", "fsdp_min_num", "zero3_init", "zero3_save"),
    *("gradient_clipping", "deepspeed_multinode", "deepspeed_hostfile", "deepspeed_inclusion", "deepspeed_exclusion"),
    *("megatron_lm_gradient_clipping", "deepspeed_moe"),
)


def recognised(content: Mapping[str, Any]) -> bool:
    """Whether a YAML document is one."""
    return "distributed_type" in content or "compute_environment" in content


def read(content: Mapping[str, Any], where: str) -> Settings:
    """The layout and recipe. Raises FormatError."""
    whole, notes = Keys(where, content), []
    kind = whole.text("distributed_type") or "no"
    devices = whole.whole("num_processes", least=1) or 1
    asked: dict[str, Any] = {"gpus": devices, "framework": "torch", "sharding": "none"}
    word = whole.text("mixed_precision") or "no"
    # Autocast, with weights in single precision; DeepSpeed and Megatron-LM keep 16 bits and a master copy.
    mixed = {"bf16": "amp", "fp16": "amp", "fp8": "fp8"}.get(word)
    if mixed is None:
        notes.append(
            "mixed_precision is off: taken as single precision; say --precision bf16_true for a model in 16 bits"
        )
    asked["precision"] = mixed or "fp32"
    inside = whole.table({"fsdp": "fsdp_config", "deepspeed": "deepspeed_config"}.get(kind, "megatron_lm_config"))
    if kind == "fsdp":
        asked |= _fsdp(inside, devices, whole.whole("num_machines", least=1) or 1)
    elif kind == "deepspeed":
        asked |= {"framework": "deepspeed"} | _deepspeed(inside, notes)
        asked["precision"] = word if word in ("bf16", "fp16", "fp8") else asked["precision"]
    elif kind == "megatron_lm":
        asked |= {"framework": "megatron"} | _megatron(inside)
        asked["precision"] = word if word in ("bf16", "fp16", "fp8") else asked["precision"]
    elif kind not in ("no", "multi_gpu"):
        raise FormatError(
            f"{where}: distributed_type {kind} is not read; NO, MULTI_GPU, FSDP, DEEPSPEED and MEGATRON_LM are"
        )
    split = whole.table("parallelism_config")
    asked |= _split(split, devices)
    if whole.table("dynamo_config").text("dynamo_backend") not in ("", "no"):
        notes.append("torch.compile: eager layers are what is counted and timed")
    notes += unread_note((inside, split), _HARMLESS)
    return Settings("Accelerate", None, stated(asked), tuple(notes))


def _fsdp(found: Keys, devices: int, machines: int) -> dict[str, Any]:
    strategy = found.text("fsdp_sharding_strategy")
    again = found.text("fsdp_reshard_after_forward")
    if strategy and strategy not in _STRATEGIES:
        raise FormatError(f"{found.where}: fsdp_sharding_strategy {strategy} is not read; {', '.join(_STRATEGIES)} are")
    second = found.whole("fsdp_version") == 2
    sharding = _STRATEGIES[strategy] if strategy and not second else "zero2" if again == "false" else "zero3"
    hybrid = strategy in _HYBRID and machines > 1 and devices % machines == 0
    return {
        "sharding": sharding,
        "sharding_group": devices // machines if hybrid else None,
        "recompute": "full" if found.flag("fsdp_activation_checkpointing") else None,
        "offload": "parameters" if found.flag("fsdp_offload_params") else None,
    }


def _deepspeed(found: Keys, notes: list[str]) -> dict[str, Any]:
    if found.get("deepspeed_config_file"):
        notes.append("deepspeed_config_file: its settings are not read here; give that file as --config")
    stage = found.whole("zero_stage") or 0
    passes = found.whole("gradient_accumulation_steps", least=1)
    if passes and passes > 1:
        notes.append(f"gradient_accumulation_steps is {passes}: say it with --global-batch")
    return {
        "sharding": f"zero{stage}" if 1 <= stage <= 3 else "none",
        "offload": offload(found.text("offload_optimizer_device"), found.text("offload_param_device")),
    }


def _megatron(found: Keys) -> dict[str, Any]:
    recompute = found.flag("megatron_lm_recompute_activations")
    found.get("megatron_lm_sequence_parallelism", "megatron_lm_num_micro_batches")
    return {
        "tensor": found.whole("megatron_lm_tp_degree", least=1),
        "pipeline": found.whole("megatron_lm_pp_degree", least=1),
        "expert": found.whole("megatron_lm_expert_model_parallel_size", least=1),
        "context": found.whole("megatron_lm_context_parallel_size", least=1),
        "sharding": "zero1" if found.flag("megatron_lm_use_distributed_optimizer") else "none",
        "recompute": "selective" if recompute else None,
    }


def _split(found: Keys, devices: int) -> dict[str, Any]:
    if not found.content:
        return {}
    tensor = found.whole("parallelism_config_tp_size", least=1) or 1
    context = found.whole("parallelism_config_cp_size", least=1) or 1
    replicas = found.whole("parallelism_config_dp_replicate_size", least=1) or 1
    shards = found.whole("parallelism_config_dp_shard_size", least=1) or 1
    return {
        "tensor": tensor,
        "context": context,
        "sharding_group": shards * context if replicas > 1 and shards > 1 else None,
    }
