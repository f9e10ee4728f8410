"""Memory of llama.cpp: which layers of a model its devices hold, and which it leaves to the host.

It fills no share of a device: weights, the cache of its one context, a compute buffer and a context are all that it
takes. Layers go to the devices whole; where they do not fit, `-ngl` says how many do, and the others are computed on
the host. The input embedding stays on the host (a tied one is copied). Measured by lhl/strix-halo-testing on a Ryzen AI
Max+ 395 (HIP and Vulkan, models of 7 to 235 x 10^9 parameters): docs/predictors/memory.md.
"""

from __future__ import annotations

import math

from perfpass.devices import Device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import Parallelism, Quantization, packed_format, routed_bytes, weight_bytes
from perfpass.llm.in_use import Parts, given_by_default, held_whole, whole_bytes
from perfpass.llm.memory import sequence_bytes, workspace_bytes
from perfpass.llm.serving import MemoryFit
from perfpass.text import size

# Tokens that pass the layers at once (-ub, by default 512), and at least; the cache grows in steps (ggml's padding).
STEP_TOKENS, STEP_LOW_TOKENS = 512, 32
BLOCK_TOKENS = 256
# A device's context and libraries: of the measured peaks, what is left beside weights, cache and step.
RUNTIME_BYTES, RUNTIME_LOW_BYTES = 0.5e9, 0.15e9

# Types of a file in which every matrix has them; those of K types and others are mixtures that differ by the model.
_UNIFORM = frozenset({"fp32", "bf16", "fp16", "q8_0", "mxfp4"})


def is_uniform(quantization: Quantization) -> bool:
    """Whether the bytes of a file follow from its types to the byte."""
    return quantization.gemm in _UNIFORM and quantization.moe in _UNIFORM


# What GPTQ, AWQ and bitsandbytes make, which no GGUF file holds.
_OTHERS = frozenset({"int2_wo", "int3_wo", "int4_wo", "int8_wo"})


def check_file(precision: str | None, stored_as: str = "") -> None:
    """Raises ArgumentError for a format that llama.cpp does not read: one asked for by a method's name, or where none
    is asked for the one that a checkpoint is ``stored_as``.
    """
    asked = precision if packed_format(precision) else ""
    if asked or (precision is None and stored_as in _OTHERS):
        found = f"precision {asked}" if asked else f"a checkpoint in {stored_as.removesuffix('_wo')}"
        raise ArgumentError(
            f"llama.cpp reads GGUF files, not {found}; ask for a type of its files, as --precision q4_k_m or q8_0, or "
            "for another runtime"
        )


def layers_alone(
    model: LanguageModel, device: Device, devices: int, quantization: Quantization, *, context: int,
    host_layers: int = 0, host_experts: int = 0,
) -> MemoryFit:  # fmt: skip
    """The memory of each of ``devices`` that hold layers of a model and one context of ``context`` tokens.

    ``host_layers``, and the experts of ``host_experts`` layers, are left to the host as asked. Where the devices do not
    hold the rest and have memory of their own, the answer says how many layers are left to the host by themselves.
    """
    split = Parallelism(pipeline=devices)
    # One memory holds the host's table as well.
    tables = None if device.unified_memory else 1
    weights = weight_bytes(model, split, quantization, tables=tables, towers=False)
    cache = sequence_bytes(model, split, quantization, context, block_tokens=BLOCK_TOKENS)
    kept, hosted = 1.0 - host_layers / model.layer_count, _experts_bytes(model, quantization, host_experts) / devices
    # What reads a device's memory does not count the host's table where both are one; the head is left to the host
    # with the first layer (llama-model.cpp, load_tensors: it counts as the layer behind the last).
    own = weight_bytes(model, split, quantization, tables=int(not host_layers), towers=False)
    weights, certain = kept * (weights - hosted), kept * max(0.0, own - hosted) * is_uniform(quantization)
    cache *= kept
    usual, least = (
        workspace_bytes(
            model, split, min(tokens, context), min(tokens, context), element_bytes=quantization.activation_bytes
        )
        for tokens in (STEP_TOKENS, STEP_LOW_TOKENS)
    )
    whole, by_itself = whole_bytes(device), given_by_default(device)
    fits = weights + cache + least + RUNTIME_LOW_BYTES <= whole
    reason, left_to_host = "", host_layers
    if not fits:
        reason = f"weights of {size(weights)} and {size(cache)} of cache do not fit into {size(whole)}"
        if device.unified_memory:
            reason += "; take fewer bits per weight or a shorter context"
        else:
            held = _layers_held(model, device, devices, quantization, usual, context)
            left_to_host = model.layer_count - held
            reason += f"; llama.cpp would leave {left_to_host} of {model.layer_count} layers to the host (-ngl {held})"
    elif weights + cache + usual + RUNTIME_BYTES > whole:
        reason = f"it fits only with steps shorter than {STEP_TOKENS} tokens (-ub) and nothing else on the device"
    elif weights + cache + usual + RUNTIME_BYTES > by_itself.bytes:
        reason = f"it fits into {size(device.usable_bytes)}, but {by_itself.words}"
    single = (weights, weights, weights), (least, usual, usual), (RUNTIME_LOW_BYTES, RUNTIME_BYTES, RUNTIME_BYTES)
    use = held_whole(Parts(single[0], cache, cache, workspace=single[1], runtime=single[2], certain=certain))
    if fits and not reason and use.least.high > by_itself.bytes:
        reason = "it fits only where it takes no more than usual"
    return MemoryFit(
        **vars(use),
        weights_bytes=int(weights),
        cache_bytes=int(cache),
        activation_bytes=int(usual),
        runtime_bytes=int(RUNTIME_BYTES),
        usable_bytes=int(by_itself.bytes),
        most_requests=int(fits),
        fits=fits,
        reason=reason,
        layers=model.layer_count,
        host_layers=left_to_host,
    )


def _experts_bytes(model: LanguageModel, quantization: Quantization, layers: int) -> float:
    """Of the experts of so many layers."""
    mixtures = sum(count for count, layer in model.layers if layer.experts)
    share = min(layers, mixtures) / mixtures if mixtures else 0.0
    return share * sum(count * routed_bytes(layer, quantization.moe) for count, layer in model.layers)


def _layers_held(
    model: LanguageModel, device: Device, devices: int, quantization: Quantization, step: float, context: int
) -> int:
    """Layers that the devices hold together, with their cache, by default settings; the head is left to the host."""
    together = Parallelism()
    outside = weight_bytes(model, together, quantization, tables=0, towers=False)
    cache = sequence_bytes(model, together, quantization, context, block_tokens=BLOCK_TOKENS)
    each = (outside + cache) / model.layer_count
    room = devices * (device.usable_bytes - RUNTIME_BYTES - step)
    return min(max(0, math.floor(room / each)), model.layer_count - 1)
