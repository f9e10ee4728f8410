"""Servers of language models: command lines of vLLM, SGLang and llama.cpp, one script for every kind of instance.

Sources: vLLM 0.33 (engine/arg_utils.py), SGLang 0.5.23 (srt/arg_groups), llama.cpp (common/arg.cpp), whose flags
tests/deploy/engine_flags.json holds.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable

from perfpass.deploy.outputs.deployed import Deployment, deployments
from perfpass.deploy.pack import Layout
from perfpass.devices import device
from perfpass.errors import ArgumentError

# As `perfpass llm` assumes them, where the fleet does not say.
_INPUT, _OUTPUT = 1024, 128
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_QUANTIZATIONS = {"fp8": "fp8"}
MODELS = "/models"  # the folder of models, which pods have as a volume


def files(layout: Layout, name: str) -> dict[str, str]:
    """A script for every language model's kind of instance. Raises ArgumentError for a fleet without one."""
    served = [one for one in deployments(layout) if one.model.kind == "llm"]
    if not served:
        raise ArgumentError(f"{name} serves language models, and the fleet has none (kind = 'llm')")
    lines: dict[str, Callable[[Deployment], list[str]]] = {
        "vllm": lambda one: ["vllm", "serve", *vllm_arguments(one)[1:]],
        "sglang": lambda one: ["python", "-m", "sglang.launch_server", *_sglang(one)],
        "llama.cpp": lambda one: ["llama-server", *_llama_cpp(one)],
    }
    return {f"{one.name}.sh": _script(one, lines[name](one)) for one in served}


def _script(one: Deployment, command: list[str]) -> str:
    """One server on one instance, whose UUID the caller gives, as `nvidia-smi -L` lists it."""
    return (
        f"#!/bin/sh\n# Made by perfpass pack: {one.model.name} on {one.device} {one.profile}, {one.replicas} of it.\n"
        'CUDA_VISIBLE_DEVICES="${1:?give the UUID of the instance, as nvidia-smi -L lists it}"\n'
        "export CUDA_VISIBLE_DEVICES\n"
        f"exec {shlex.join(command)}\n"
    )


def _tokens(one: Deployment) -> int:
    asked = one.model.options
    return int(asked.get("input_length", _INPUT)) + int(asked.get("output_length", _OUTPUT))


def _share(one: Deployment) -> str:
    """What the server may take of the instance's memory, two digits, rounded down."""
    whole = device(one.device if one.profile == "whole" else f"{one.device}:{one.profile}")
    return f"{int(100 * min(1.0, one.option.available_bytes / whole.usable_bytes)) / 100:g}"


def served_from(model: str) -> str:
    """Where a server takes a model from: a path or a repository as it stands; what has neither form is a name of ours,
    which no server knows, and is looked for in `MODELS`.
    """
    return model if "/" in model or os.path.exists(model) else f"{MODELS}/{model}"


def precision_words(precision: str) -> list[str]:
    """What vLLM and SGLang are told of a precision: none where the checkpoint says it."""
    if precision in _DTYPES:
        return ["--dtype", _DTYPES[precision]]
    return ["--quantization", _QUANTIZATIONS[precision]] if precision in _QUANTIZATIONS else []


def vllm_arguments(one: Deployment) -> list[str]:
    """Those of vLLM's server in a container, where the model is an option and not a place."""
    settings = {
        "--max-model-len": _tokens(one),
        "--max-num-seqs": one.option.concurrency or 1,
        "--gpu-memory-utilization": _share(one),
    }
    rest = [str(word) for pair in settings.items() for word in pair]
    return [
        "--model",
        served_from(one.model.model),
        *rest,
        *precision_words(str(one.model.options.get("precision", ""))),
    ]


def _sglang(one: Deployment) -> list[str]:
    settings = {
        "--model-path": served_from(one.model.model),
        "--context-length": _tokens(one),
        "--max-running-requests": one.option.concurrency or 1,
        "--mem-fraction-static": _share(one),
    }
    rest = [str(word) for pair in settings.items() for word in pair]
    return [*rest, *precision_words(str(one.model.options.get("precision", "")))]


def _llama_cpp(one: Deployment) -> list[str]:
    """llama.cpp's context is that of all its slots together; every layer goes to the GPU."""
    slots = one.option.concurrency or 1
    return ["-m", served_from(one.model.model), "-c", str(slots * _tokens(one)), "-np", str(slots), "-ngl", "999"]
