"""What the page asks for: each question with its fields, in the order of use. Names are those of the questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from perfpass.serve import questions
from perfpass.ui.questions import Gpus, Placed, Train

COMMON = (
    "t4",
    "l4",
    "a10",
    "a100-sxm4-80gb",
    "h100-sxm5-80gb",
    "h200-sxm-141gb",
    "b200-sxm-180gb",
    "mi300x",
    "rtx-4090",
)
_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "amp", "amp_bf16", "int8", "fp8")
_ENGINES = ("vllm", "sglang", "trtllm", "llama.cpp", "transformers")
_RUNTIMES = ("torch", "torch.compile", "onnxruntime", "tensorrt", "tvm", "relax", "openvino", "litert")
_FOR_CPUS = ("relax", "openvino", "litert")


@dataclass(frozen=True)
class Field:
    """One field: ``kind`` is text, number, choice, device, devices or flag; ``choices``: value and what it is called.

    ``assumed``: what holds where it is left empty; ``given``: what stands in it at first. ``only``: the kind of a
    fleet's models that have it.
    """

    name: str
    label: str
    kind: str = "text"
    assumed: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    given: str = ""
    hint: str = ""
    only: str = ""


@dataclass(frozen=True)
class Question:
    """One tab: ``does`` stands on its button, ``says`` below its name; ``more``: fields that are folded."""

    name: str
    title: str
    does: str
    says: str
    fields: tuple[Field, ...]
    more: tuple[Field, ...] = ()
    files: bool = True


# Of the folded fields whose names in the questions are no words; the others are called by their names.
_LABELS = {
    "kv_cache": "KV cache held in", "kv_precision": "KV cache held in", "tp": "Tensor parallel (TP)",
    "pp": "Pipeline parallel (PP)", "dp": "Data parallel (DP)", "ep": "Expert parallel (EP)",
    "utilization": "Share of memory used", "step_tokens": "Tokens of a step", "gpu_layers": "Layers on the GPU",
    "host_experts": "Experts on the host", "cache_on_host": "Cache on the host",
    "memory_map": "Weights mapped from the file", "offload_gib": "On the host, GiB", "dims": "Symbolic dimensions",
    "max_sequences": "Requests at most at once",
    "runtime_version": "Version of the engine", "workers": "Replicas", "tensor": "Tensor parallel (TP)",
    "pipeline": "Pipeline parallel (PP)", "virtual": "Virtual stages of a device", "context": "Context parallel (CP)",
    "expert": "Expert parallel (EP)", "expert_tensor": "Tensor parallel of experts",
    "sharding_group": "Devices that shard",
    "micro_batch": "Micro-batch, sequences", "host_gb_s": "To the host, GB/s", "lora_rank": "LoRA rank",
    "lora_targets": "LoRA on", "dora": "DoRA", "fabric_gb_s": "Between nodes, GB/s", "region": "Region of the grid",
    "carbon_intensity": "Carbon, gCO2e/kWh", "pue": "PUE of the building",
}  # fmt: skip


def _choice(name: str, label: str, assumed: str, *values: str) -> Field:
    return Field(name, label, "choice", assumed, tuple((value, value) for value in values))


def _number(name: str, label: str, assumed: str = "", given: str = "", hint: str = "") -> Field:
    return Field(name, label, "number", assumed, given=given, hint=hint)


def _rest(model: type[BaseModel], shown: tuple[Field, ...]) -> tuple[Field, ...]:
    """The other fields of a question, from its schema."""
    properties: Mapping[str, Any] = model.model_json_schema()["properties"]
    seen = {field.name.partition(".")[0] for field in shown} | {"model"}
    return tuple(_of(name, schema) for name, schema in properties.items() if name not in seen)


def _of(name: str, schema: Mapping[str, Any]) -> Field:
    kinds = {one.get("type") for one in schema.get("anyOf", [schema])} - {"null"}
    label, hint = _LABELS.get(name) or name.replace("_", " ").capitalize(), schema.get("description", "")
    if kinds == {"boolean"}:
        return Field(name, label, "flag", hint=hint)
    if kinds <= {"integer", "number"}:
        return Field(name, label, "number", hint=hint)
    if kinds & {"object", "array"}:
        form = '{"batch": 8}' if "object" in kinds else '["name", "name"]'
        return Field(name, label, assumed=form, hint=f"{hint} JSON.".strip())
    return Field(name, label, hint=hint)


_DEVICE = Field(
    "device", "Device", "device", given="h100-sxm5-80gb", hint="a MIG slice after a colon: a100-80gb:1g.10gb"
)
_BATCH = _number("batch", "Batch", "the model's own")
_PRECISION = _choice("precision", "Precision", "fp32", *_PRECISIONS)
_RUNTIME = _choice("runtime", "Runtime", "torch", *_RUNTIMES)
_DIMS = Field(
    "dims", "Symbolic dimensions and lengths", assumed='{"sequence_length": 128}', hint="JSON, by the model's own names"
)
_MODE = _choice("mode", "Mode", "inference", "inference", "training")
_LATENCY = _number("limits.latency_ms", "Latency limit, ms", "none", hint="the answer is then a decision")
_PREDICT = (_DEVICE, _BATCH, _PRECISION, _RUNTIME, _MODE, _LATENCY, _DIMS)
_COMPARE = (Field("device", "Devices", "devices", given="t4,l4,a100-sxm4-80gb"), *_PREDICT[1:])
_FIT = (
    Field("device", "Devices", "device", assumed="the smallest that hold it", hint="several with commas"),
    _number("concurrency", "Sequences at once", "1", hint="of a language model"),
    _number("context", "Context, tokens", "8,192", hint="of a language model: prompt and answer"),
    Field("precision", "Precision", assumed="as stored", hint="bf16, fp8, int4, q4_k_m, ..."),
    _choice("runtime", "Engine or runtime", "vllm, torch", *_ENGINES, *(r for r in _RUNTIMES if r not in _FOR_CPUS)),
    _BATCH,
    _MODE,
)
_SERVE = (
    Field("device", "GPU", "device", given="h100-sxm5-80gb"),
    _number("concurrency", "Requests in flight", "1", "16"),
    _number("input_length", "Prompt, tokens", "1,024"),
    _number("output_length", "Answer, tokens", "128"),
    _choice("runtime", "Engine", "vllm", "vllm", "sglang", "trtllm"),
    _choice("precision", "Precision", "as stored", "bf16", "fp16", "fp8", "int8", "int4"),
    _number("tp", "Tensor parallel", "the fewest GPUs that hold it"),
)
_TRAIN = (
    Field("device", "GPU", "device", given="h100-sxm5-80gb"),
    _number("gpus", "How many", "1", "8"),
    Field("search", "Try every layout, take the quickest that fits", "flag", given="true"),
    _number("global_batch", "Global batch, sequences", "one micro-batch a replica"),
    _number("sequence", "Sequence, tokens", "4,096"),
    _choice("precision", "Precision", "bf16", "bf16", "fp16", "fp8", "nvfp4", "amp", "bf16_true", "fp32"),
    _choice("framework", "Framework", "megatron", "megatron", "torch", "deepspeed", "other"),
    _number("tokens", "Tokens of the run", "none", hint="for hours, energy, money"),
)
_FLEET = (
    Field("objective", "Aim", "choice", "fewest GPUs", (("gpus", "fewest GPUs"), ("price", "lowest price"))),
    _number("confidence", "Targets are met with P of at least", "0.9"),
)
_ROW_LABELS = {
    "device": "GPU", "count": "How many", "mode": "MIG", "model": "Model", "kind": "It is a", "name": "Called",
    "rate": "Runs or requests a second", "copies": "Copies at least", "latency_ms": "Latency, ms",
    "ttft_ms": "First token, ms",
    "tpot_ms": "Per token, ms", "batch": "Batch", "precision": "Precision", "input_length": "Prompt, tokens",
    "output_length": "Answer, tokens",
}  # fmt: skip
_ONLY = {"graph": ("latency_ms", "batch"), "llm": ("ttft_ms", "tpot_ms", "input_length", "output_length")}
_MIG = (("any", "as it suits"), ("mig", "slices alone"), ("whole", "no slices"))
_KINDS = (("graph", "network"), ("llm", "served LLM"))


def _row(model: type[BaseModel], special: Mapping[str, Field]) -> tuple[Field, ...]:
    """The fields of a row of a fleet, in the order of the labels."""
    properties = model.model_json_schema()["properties"]
    found = {name: special.get(name) or _of(name, schema) for name, schema in properties.items()}
    named = [name for name in _ROW_LABELS if name in found]
    return tuple(
        replace(found[name], label=_ROW_LABELS[name], only=next((k for k, of in _ONLY.items() if name in of), ""))
        for name in named
    )


GPU_ROW = _row(
    Gpus,
    {
        "device": Field("device", "", "device", given="a100-sxm4-80gb"),
        "count": _number("count", "", given="4"),
        "mode": Field("mode", "", "choice", "as it suits", _MIG[1:]),
    },
)
MODEL_ROW = _row(
    Placed,
    {
        "model": Field("model", "", "model"),
        "kind": Field("kind", "", "choice", "", _KINDS),
        "name": Field("name", "", assumed="as its model"),
        "batch": _number("batch", "", "the model's own"),
        "precision": Field("precision", "", assumed="fp32, as stored"),
        "input_length": _number("input_length", "", "1,024"),
        "output_length": _number("output_length", "", "128"),
        "ttft_ms": _number("ttft_ms", "", "no target"),
        "tpot_ms": _number("tpot_ms", "", "no target"),
        "latency_ms": _number("latency_ms", "", "no target"),
        "rate": _number("rate", "", "any"),
        "copies": _number("copies", "", "1"),
    },
)
QUESTIONS = (
    Question("fit", "Fit", "Does it fit?", "Whether a model fits, and what would change that.", _FIT,
             _rest(questions.Fit, _FIT)),
    Question("predict", "Predict", "Predict", "One run on a device: time, memory, energy, and where they go.", _PREDICT,
             _rest(questions.Predict, _PREDICT)),
    Question("compare", "Compare devices", "Compare", "The same run on several devices, side by side.", _COMPARE,
             _rest(questions.Predict, _COMPARE)),
    Question("serve", "Serve an LLM", "Predict serving", "First token, time per token and memory of an engine.",
             _SERVE, _rest(questions.Llm, _SERVE), files=False),
    Question("train", "Train", "Predict training", "A language model on many GPUs: layout, step, memory, money.",
             _TRAIN, _rest(Train, _TRAIN), files=False),
    Question("fleet", "Place a fleet", "Place them", "Models with rates and targets onto GPUs and MIG slices.", _FLEET),
)  # fmt: skip
