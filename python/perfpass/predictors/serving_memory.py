"""Memory of one GPU that serves a language model: weights, cache, activations, runtime; and how many requests fit."""

from __future__ import annotations

import math

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import Parallelism, cache_bytes, weight_bytes
from perfpass.llm.prediction import MemoryFit, Serving

# Share of the memory that serving stacks fill (vLLM's default of gpu_memory_utilization), and what context, graphs and
# communication buffers take of it.
USABLE_SHARE = 0.9
RUNTIME_BYTES = 3e9
# The most that a deployment tuned by hand fills, and the least that its context takes.
MOST_SHARE = 0.97
LEAST_RUNTIME_BYTES = 1e9
# Tokens that a stack prefills together: vLLM's default max_num_batched_tokens for online serving on recent GPUs.
CHUNK_TOKENS = 8192
_BYTES = 2


def activation_bytes(model: LanguageModel, split: Parallelism, tokens: int) -> int:
    """Peak of one layer's activations for ``tokens`` tokens: stream, projections or feed-forward block, logits."""
    widest = 0.0
    for _, layer in model.layers:
        width = 0.0
        if layer.attention:
            a = layer.attention
            width = 2 * a.heads * (a.head_dim + a.value_dim) / split.tensor
        if layer.dense:
            width = max(width, layer.dense.matrices * layer.dense.width / split.tensor)
        if layer.experts:
            e = layer.experts
            visits = e.active * (e.matrices * e.width / split.expert_tensor + 2 * e.model_width)
            width = max(width, visits / split.expert)
        if layer.recurrence:
            width = max(width, 2 * layer.recurrence.projections / model.hidden / split.tensor)
        widest = max(widest, width)
    return int(tokens * (3 * model.hidden + widest) * _BYTES)


def room(model: LanguageModel, device: Device, serving: Serving) -> int:
    """Requests of full length whose cache fits at once on one attention-data rank; 0 where the weights do not fit."""
    split, q = serving.parallelism, serving.quantization
    taken = weight_bytes(model, split, q) + activation_bytes(model, split, CHUNK_TOKENS) + RUNTIME_BYTES
    each = cache_bytes(model, split, q, serving.input_length + serving.output_length)
    return max(0, math.floor((USABLE_SHARE * device.memory_bytes - taken) / max(each, 1.0)))


def likely_room(model: LanguageModel, device: Device, serving: Serving) -> float:
    """The same without reserves: what a well-tuned stack fits, with requests half-way through their output.

    Whether requests wait is a cliff: where `room` alone says so, measured runs mostly did not.
    """
    split, q = serving.parallelism, serving.quantization
    free = MOST_SHARE * device.memory_bytes - weight_bytes(model, split, q) - LEAST_RUNTIME_BYTES
    each = cache_bytes(model, split, q, serving.input_length + serving.output_length / 2)
    return max(0.0, free / max(each, 1.0))


def plan(model: LanguageModel, device: Device, serving: Serving) -> MemoryFit:
    """The memory of one GPU that decodes (and prefills, where aggregated)."""
    split, q = serving.parallelism, serving.quantization
    weights = weight_bytes(model, split, q)
    length = serving.input_length + serving.output_length
    each = cache_bytes(model, split, q, length)
    activations = activation_bytes(model, split, CHUNK_TOKENS)
    usable = USABLE_SHARE * device.memory_bytes
    free = usable - weights - activations - RUNTIME_BYTES
    ranks = serving.workers * split.attention_data
    most = room(model, device, serving)
    wanted = math.ceil(serving.concurrency / ranks)
    fits = most >= 1
    reason = ""
    if free < 0:
        reason = f"weights of {weights / 1e9:.0f} GB leave no room in {usable / 1e9:.0f} GB; split over more GPUs"
    elif not fits:
        reason = f"one request of {length} tokens needs {each / 1e9:.1f} GB of cache, {free / 1e9:.1f} GB are left"
    elif most < wanted:
        reason = f"of {wanted} requests per rank {most} fit at once; the others wait"
    return MemoryFit(
        weights_bytes=int(weights),
        cache_bytes=int(each * min(wanted, max(most, 1))),
        activation_bytes=activations,
        runtime_bytes=int(RUNTIME_BYTES),
        usable_bytes=int(usable),
        most_requests=most * ranks,
        fits=fits,
        reason=reason,
    )
