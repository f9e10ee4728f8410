"""Files that training frameworks are started with, in every format that is read, and steps that perfpass learned."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import perfpass
from perfpass.deploy import training_files
from perfpass.errors import PerfPassError
from perfpass.predictors.calibration import steps

from .documents import Binary, Json, Toml, vouched
from .oracle import figures, naming
from .target import Target, file

_TITAN = b"""\
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[optimizer]
name = "AdamW"
[training]
local_batch_size = 2
seq_len = 2048
global_batch_size = 64
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
context_parallel_degree = 1
expert_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"""
_SCRIPT = b"""\
TP=2
NODES=${NODES:-2}
torchrun --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py --num-layers 4 --hidden-size 256 --num-attention-heads 4 \\
  --group-query-attention --num-query-groups 2 --swiglu --seq-length 512 --max-position-embeddings 512 \\
  --num-experts 8 --moe-router-topk 2 --moe-layer-freq '([0]*1+[1]*3)' --expert-model-parallel-size 2 \\
  --tensor-model-parallel-size $TP --micro-batch-size 1 --global-batch-size=64 --bf16 --use-distributed-optimizer
"""
_DEEPSPEED = {
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "optimizer": {"type": "AdamW"},
}
_YAML: tuple[dict[str, Any], ...] = (
    {
        "distributed_type": "FSDP",
        "fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD", "fsdp_activation_checkpointing": True},
        "parallelism_config": {"parallelism_config_tp_size": 2},
        "mixed_precision": "bf16",
        "num_machines": 2,
        "num_processes": 16,
    },
    {
        "trainer": {"devices": 8, "num_nodes": 2, "precision": "bf16"},
        "model": {
            "num_layers": 4,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "micro_batch_size": 1,
            "global_batch_size": 64,
            "tensor_model_parallel_size": 2,
            "encoder_seq_length": 512,
            "max_position_embeddings": "${.encoder_seq_length}",
            "activation": "swiglu",
            "optim": {"name": "distributed_fused_adam"},
        },
    },
)
_WORDS = (
    "stage",
    "num_processes",
    "model",
    "num_layers",
    "hidden_size",
    "zero_stage",
    "fsdp_version",
    "moe_layer_freq",
)
_VALUES = ("auto", "FSDP", "DEEPSPEED", "MEGATRON_LM", "${model.x}", "SHARD_GRAD_OP", "full", 3, -1, 2**40, True, None)


def _asked(data: bytes) -> None:
    """Read, and what was read is asked: figures, or a refusal in one line."""
    path = file("training-file", data)
    with naming(path):
        found = training_files.read(path)
    try:
        cost = perfpass.train_cost(found.model or "llama-3.2-1b", "h100", **({"sequence": 512} | found.asked))
    except PerfPassError:
        return
    figures(cost.predicted.step_s.to_dict())
    figures(cost.predicted.in_use.to_dict())


def _yaml(data: bytes) -> None:
    """JSON is YAML too, behind a comment."""
    _asked(b"#\n" + data)


@cache
def _steps_seed() -> bytes:
    digest = {"llm_training": steps.digest_of("llm_training")}
    points = tuple(
        steps.StepPoint("llm_training", metric, "llama-3.2-1b", ratio, {"products": 0.7, "weights": 0.3})
        for metric in steps.METRICS
        for ratio in (0.1, -0.2)
    )
    made = steps.StepCalibration("h100-sxm5-80gb", digest, points, {"records": "runs.jsonl"})
    return json.dumps(made.to_dict()).encode()


def _steps(data: bytes) -> None:
    """With the digest of its content, whatever that is."""
    path = file("h100-sxm5-80gb.steps.json", vouched(data))
    with naming(path):
        found = steps.read(path)
    one = perfpass.Interval(2.0, 1.0, 4.0, "s")
    for metric in steps.METRICS:
        figures(found.corrected("llm_training", metric, one, "llama-3.2-1b", {"products": 1.0})[0].to_dict())


_READ = ("deploy/training_files/read.py", "deploy/training_files/settings.py")


def _p(*names: str) -> tuple[str, ...]:
    return tuple(f"python/perfpass/{name}" for name in names)


TARGETS = (
    Target(
        "training-toml",
        _asked,
        lambda: [_TITAN],
        Toml(("data_parallel_shard_degree", "batch_size", "mode", "flavor", *_WORDS), ("selective", "70B", -1, 10**9)),
        _p("deploy/training_files/torchtitan.py", *_READ),
    ),
    Target(
        "training-json",
        _asked,
        lambda: [json.dumps(_DEEPSPEED).encode()],
        Json((*_DEEPSPEED, *_WORDS), _VALUES),
        _p("deploy/training_files/deepspeed.py", *_READ),
    ),
    Target(
        "training-yaml",
        _yaml,
        lambda: [json.dumps(one).encode() for one in _YAML],
        Json(("fsdp_config", "deepspeed_config", "megatron_lm_config", "trainer", *_WORDS), _VALUES),
        _p("deploy/training_files/accelerate.py", "deploy/training_files/megatron.py", "llm/megatron.py", *_READ),
    ),
    Target("training-script", _asked, lambda: [_SCRIPT], Binary(), _p("deploy/training_files/megatron.py", *_READ)),
    Target(
        "steps-calibration",
        _steps,
        lambda: [_steps_seed()],
        Json(("points", "shares", "log_ratio", "model", "metric", "predictor", "provenance", "device")),
        _p("predictors/calibration/steps.py"),
    ),
)
