"""Accelerate: what a step of a prepared model takes, from what the accelerator knows."""

from __future__ import annotations

from typing import Any

from perfpass.errors import ArgumentError
from perfpass.torch.estimation import Estimate, estimate
from perfpass.torch.inspected import mixed


def estimate_prepared(accelerator: Any, model: Any, optimizer: Any, example_inputs: Any, **more: Any) -> Estimate:
    """`perfpass.torch.estimate` of what ``accelerator.prepare`` gave back.

    Precision, passes to an update, processes and sharding (FSDP, the stage of DeepSpeed) are read from the accelerator
    (an `accelerate.Accelerator`); ``more`` goes on to `perfpass.torch.estimate` and overrules it. ``example_inputs``: a
    batch of one process. Raises as `perfpass.torch.estimate`, and ArgumentError for what is no accelerator.
    """
    if not hasattr(accelerator, "unwrap_model"):
        raise ArgumentError(f"estimate_prepared takes an accelerate.Accelerator, got {type(accelerator).__name__}")
    asked: dict[str, Any] = {
        "optimizer": optimizer,
        "precision": mixed(accelerator.mixed_precision),
        "accumulation": accelerator.gradient_accumulation_steps,
        "devices": accelerator.num_processes,
        "sharding": _sharding(accelerator),
    }
    return estimate(accelerator.unwrap_model(model), example_inputs, **(asked | more))


def _sharding(accelerator: Any) -> str | None:
    kind = str(accelerator.distributed_type).rpartition(".")[2]
    if kind == "DEEPSPEED":
        stage = int(accelerator.state.deepspeed_plugin.zero_stage)
        return f"zero{stage}" if stage else "none"
    return "zero3" if kind == "FSDP" else None
