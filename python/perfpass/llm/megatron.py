"""Megatron-LM's arguments read as an architecture, a layout and a recipe (megatron/training/arguments.py, v0.12).

Names are those of the command line without their dashes in front ("tensor-model-parallel-size").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from perfpass.errors import ArgumentError
from perfpass.llm.architecture import Attention, Experts, LanguageModel, Layer, Mlp
from perfpass.llm.recipe import Kernels, Layout, Recipe

_VOCABULARY = 50_257  # of GPT-2, the tokenizer of the tests
_VOCABULARIES = (("nemotron_2_256k", 256_000), ("Llama2", 32_000), ("mistral", 32_768), ("qwen", 151_936))
_DIVISOR = 128  # make-vocab-size-divisible-by
OPTIMIZERS = {"adam": "adamw", "muon": "muon", "dist_muon": "muon", "sgd": "momentum"}
# Arguments that change what a step takes and are not counted, and what each brings.
UNCOUNTED = {
    "hybrid-layer-pattern": "recurrent layers",
    "hybrid-override-pattern": "recurrent layers",
    "is-hybrid-model": "recurrent layers",
    "pipeline-model-parallel-layout": "stages that are given as a string",
    "mtp-num-layers": "layers for tokens further on",
    "fine-grained-activation-offloading": "activations on the host",
    "defer-embedding-wgrad-compute": "gradients of the head that wait",
}


@dataclass(frozen=True)
class Run:
    """What a run trains; ``last``: the layers of the last pipeline stage, which logs its memory."""

    model: LanguageModel
    layout: Layout
    recipe: Recipe
    last: tuple[Layer, ...]


def read(arguments: dict[str, Any], *, devices: int, sharding: str, unfused: bool) -> Run:
    """The run of ``arguments`` (names as on the command line) on ``devices``.

    Raises ArgumentError for what is not counted: recurrent layers, stages given as a string, several kinds of layers.
    """
    get = arguments.get
    for name, what in UNCOUNTED.items():
        if get(name):
            raise ArgumentError(f"{what}: not counted")
    model = architecture(arguments)
    layers = [layer for _, layer in model.layers]
    tensor, pipeline = int(get("tensor-model-parallel-size") or 1), int(get("pipeline-model-parallel-size") or 1)
    context = int(get("context-parallel-size") or 1)
    if devices % (tensor * pipeline * context):
        raise ArgumentError("the layout does not divide the devices")
    data = devices // (tensor * pipeline * context)
    expert = int(get("expert-model-parallel-size") or 1)
    instances = int(get("num-distributed-optimizer-instances") or 1)
    layout = Layout(
        tensor=tensor,
        pipeline=pipeline,
        virtual=chunks(arguments, len(layers), pipeline),
        context=context,
        expert=expert,
        expert_tensor=int(get("expert-tensor-parallel-size") or tensor) if get("num-experts") else 0,
        data=data,
        sharding=sharding,
        sharding_group=data * context // instances if instances > 1 else 0,
        sequence_parallel=bool(get("sequence-parallel")),
    )
    micro = _whole(arguments, "micro-batch-size")
    dropout = [float(get(f"{part}-dropout", 0.1)) > 0 for part in ("attention", "hidden")]
    recompute = get("recompute-granularity") or "none"
    modules = str(get("recompute-modules") or "core_attn")
    if recompute == "selective" and "core_attn" not in modules:
        raise ArgumentError("parts of a layer that are computed anew: not counted")
    recipe = Recipe(
        micro_batch=micro,
        sequence=_whole(arguments, "seq-length"),
        micro_batches=max(1, _whole(arguments, "global-batch-size") // (micro * data)),
        precision="fp8" if get("fp8-format") else "bf16" if get("bf16") else "fp16" if get("fp16") else "fp32",
        optimizer=OPTIMIZERS.get(str(get("optimizer", "adam")), "adamw"),
        recompute=recompute,
        kernels=Kernels("unfused" if unfused else "flash", dropout=any(dropout), fused_gates=True),
        loss="scripted"
        if get("cross-entropy-loss-fusion") and get("cross-entropy-fusion-impl") != "te"
        else "parallel",
        gradient_bytes=2.0 if get("grad-reduce-in-bf16") else None,
    )
    return Run(model, layout, recipe, tuple(layers[len(layers) - _last(arguments, len(layers), pipeline) :]))


def architecture(arguments: dict[str, Any]) -> LanguageModel:
    """The model. Raises ArgumentError where its sizes are not stated."""
    get = arguments.get
    if not get("num-layers") or not get("hidden-size"):
        raise ArgumentError("sizes of the model: not stated")
    hidden = _whole(arguments, "hidden-size")
    return LanguageModel(
        name="megatron",
        model_type="gpt",
        hidden=hidden,
        vocabulary=_vocabulary(arguments, int(get("tensor-model-parallel-size") or 1)),
        layers=tuple((1, layer) for layer in _layers(arguments, hidden)),
        tied=not get("untie-embeddings-and-output-weights"),
        embedding_extra=0 if get("position-embedding-type") in ("rope", "none") else _positions(arguments) * hidden,
    )


def _whole(arguments: dict[str, Any], name: str) -> int:
    value = arguments.get(name)
    if value is None:
        raise ArgumentError(f"{name}: not stated")
    return int(value)


def _vocabulary(arguments: dict[str, Any], tensor: int) -> int:
    named = f"{arguments.get('tokenizer-model', '')} {arguments.get('tokenizer-type', '')}"
    size = int(arguments.get("vocab-size") or next((n for key, n in _VOCABULARIES if key in named), _VOCABULARY))
    step = int(arguments.get("make-vocab-size-divisible-by") or _DIVISOR) * tensor
    return -(-size // step) * step


def _positions(arguments: dict[str, Any]) -> int:
    return int(arguments.get("max-position-embeddings") or 0)


def chunks(arguments: dict[str, Any], layers: int, pipeline: int) -> int:
    """Chunks of layers of a stage (interleaved schedule).

    Raises ArgumentError where layers cannot be divided into them; tables that are accounted for count as a layer each.
    """
    each = int(arguments.get("num-layers-per-virtual-pipeline-stage") or 0)
    stages = int(arguments.get("num-virtual-stages-per-pipeline-rank") or 0)
    if not each and not stages:
        return 1
    whole = layers + sum(bool(arguments.get(f"account-for-{part}-in-pipeline-split")) for part in ("embedding", "loss"))
    count = pipeline * (each or stages)
    uneven = any(arguments.get(f"decoder-{end}-pipeline-num-layers") for end in ("first", "last"))
    if whole < count or (whole % count and not uneven):
        of = f"{each} layers" if each else f"layers in {stages} on a stage"
        raise ArgumentError(f"virtual stages of {of}: {pipeline} stages of {whole} layers do not divide into them")
    return whole // count if each else stages


def _last(arguments: dict[str, Any], layers: int, pipeline: int) -> int:
    """Layers of the last stage."""
    ends = [arguments.get(f"decoder-{end}-pipeline-num-layers") for end in ("first", "last")]
    if ends[1]:
        return int(ends[1])
    if ends[0] and pipeline > 1:
        return (layers - int(ends[0])) // (pipeline - 1)
    parts = [bool(arguments.get(f"account-for-{part}-in-pipeline-split")) for part in ("embedding", "loss")]
    return (layers + sum(parts)) // pipeline - parts[1]


def _layers(arguments: dict[str, Any], hidden: int) -> list[Layer]:
    get = arguments.get
    heads = _whole(arguments, "num-attention-heads")
    groups = int(get("num-query-groups") or heads) if get("group-query-attention") else heads
    if heads < 1 or heads % groups:
        raise ArgumentError(f"num-attention-heads {heads}, num-query-groups {groups}: the first is a multiple of these")
    if hidden % heads and not get("kv-channels") and not get("multi-latent-attention"):
        raise ArgumentError(f"hidden-size {hidden} is no multiple of num-attention-heads {heads}; or give kv-channels")
    width = int(get("kv-channels") or hidden // heads)
    biases = 0 if get("disable-bias-linear") else 1
    if get("multi-latent-attention"):
        rope = int(get("qk-pos-emb-head-dim") or 64)
        attention = Attention(
            heads,
            heads,
            int(get("qk-head-dim") or 128) + rope,
            int(get("v-head-dim") or 128),
            q_rank=int(get("q-lora-rank") or 0),
            kv_rank=int(get("kv-lora-rank") or 512),
            rope_dim=rope,
        )
    else:
        extra = biases * ((heads + 2 * groups) * width + hidden)
        attention = Attention(heads, groups, width, width, extra=extra)
    gated = bool(get("swiglu"))
    matrices, norm = (3 if gated else 2), hidden * (1 if get("normalization") == "RMSNorm" else 2)
    ffn = int(get("ffn-hidden-size") or (int(4 * hidden * 2 / 3) // 64 * 64 if gated else 4 * hidden))
    plain = Layer(attention, dense=Mlp(ffn, matrices, biases * (ffn * (matrices - 1) + hidden)), norms=2 * norm)
    count = _whole(arguments, "num-layers")
    if not get("num-experts"):
        return [plain] * count
    active = int(get("moe-router-topk") or 2)
    if not 1 <= active <= _whole(arguments, "num-experts"):
        raise ArgumentError(f"moe-router-topk {active} of num-experts {get('num-experts')}; give at most as many")
    experts = Experts(
        count=_whole(arguments, "num-experts"),
        active=active,
        width=int(get("moe-ffn-hidden-size") or ffn),
        model_width=hidden,
        matrices=matrices,
        shared_width=int(get("moe-shared-expert-intermediate-size") or 0),
    )
    mixed = Layer(attention, experts=experts, norms=2 * norm)
    return [mixed if routed else plain for routed in _pattern(str(get("moe-layer-freq") or "1"), count)]


def _pattern(text: str, count: int) -> list[bool]:
    """Which layers have experts: "2" (every second one), or "([0]*3+[1]*11)"."""
    if text.isdigit():
        return [i % int(text) == 0 for i in range(count)]
    found = [digit == "1" for digit, times in re.findall(r"\[(\d)\](?:\*(\d+))?", text) for _ in range(int(times or 1))]
    if not found or len(found) < count:
        raise ArgumentError(f"a pattern of layers that is not read: {text}")
    return found[:count]
