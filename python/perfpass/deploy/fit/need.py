"""What a runtime needs of one device for a load, and how likely there is room: its own accounting, without predictions.

Weights, cache and activations are counted; what lies beside them (context, libraries, graph pools, workspaces) has the
bounds of `perfpass.llm.memory` and `perfpass.llm.in_use`, and so has the sum. Room is what the runtime may fill:

- vLLM: weights, activations of a step, context and cache within ``gpu_memory_utilization`` of the device.
- SGLang: weights and cache within ``mem_fraction_static``; activations, graphs and context within the rest.
- TensorRT-LLM: cache within ``free_gpu_memory_fraction`` of what the loaded engine leaves.
- llama.cpp: layers, their cache, one compute buffer and a context, all at once; the rest on the host.
- transformers: everything it allocates, and a layer's cache once more while it grows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfpass.decision import Answer, answer_on_fit
from perfpass.deploy.fit.settings import SERVERS, Load, Settings, Stored, cache_type, cache_types, stored
from perfpass.deploy.fit.subject import Subject
from perfpass.devices import Device
from perfpass.llm import cache, in_use, memory
from perfpass.llm import llama_cpp as ggml
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.costs import ELEMENT_BYTES, LEAST_BYTES, Parallelism, Quantization, routed_bytes, weight_bytes
from perfpass.llm.in_use import Parts
from perfpass.prediction import Interval

_GIB = 2.0**30
_PADDING = 0.02  # as `perfpass.llm.memory` has it


@dataclass(frozen=True)
class Need:
    """Bytes on the fullest device. ``cache``: by kind, of all sequences. ``needed`` against ``limit_bytes`` (what the
    runtime may fill) decides; ``host_bytes``: what stays in the host's memory. ``least``: with one sequence alone.
    ``possible``: whether the lower bound is within what may be filled, by a share of the memory that is set by hand
    where none was asked for.
    """

    weights: float
    cache: Mapping[str, float]
    activations: float
    runtime: float
    host_bytes: float
    needed: Interval
    least: Interval
    limit_bytes: float
    probability: float
    possible: bool
    binding: str
    parts: Parts
    precision: str
    cache_type: str

    @property
    def cache_bytes(self) -> float:
        """All kinds."""
        return cache.total(self.cache)

    def answer(self, confidence: float) -> Answer:
        """Whether the load fits, by the one rule."""
        return answer_on_fit(self.probability, confidence, possible=self.possible)


def need(subject: Subject, device: Device, settings: Settings, load: Load) -> Need:
    """What the fullest of the devices needs. ``subject`` is a language model.

    Raises ArgumentError for a split or a cache type that the model does not have.
    """
    language = subject.language
    assert language is not None
    loaded = stored(language, settings, device)
    kind = cache_type(language, settings, loaded, device)
    if settings.runtime == "llama.cpp":
        return _llama_cpp(subject, language, device, settings, load, loaded, kind)
    if settings.runtime == "transformers":
        return _transformers(language, device, settings, load, loaded, kind)
    return _server(language, device, settings, load, loaded, kind)


def _weights(model: LanguageModel, split: Parallelism, loaded: Stored, tables: int | None = None) -> tuple[float, ...]:
    """Low, median and high."""
    used = loaded.quantization
    # Of a file's own bytes towers are a part.
    towers = not model.stored_bytes
    size = weight_bytes(model, split, used, sizes=loaded.sizes, tables=tables, towers=towers)
    beside = 0.0
    if model.stored_bytes and not loaded.as_stored and model.stored_as in ("bf16", "fp16", "fp32"):
        # Towers and further heads, which the configuration does not count, are in the type of activations.
        own = Quantization(model.stored_as, model.experts_stored_as)
        counted = weight_bytes(replace(model, stored_bytes=0), Parallelism(), own, towers=False)
        beside = max(0.0, model.stored_bytes - counted) / split.gpus
        beside *= loaded.quantization.activation_bytes / ELEMENT_BYTES[model.stored_as]
    least = LEAST_BYTES if loaded.sizes == ELEMENT_BYTES else loaded.sizes
    if loaded.as_stored and model.stored_bytes:
        least = loaded.sizes
    low = weight_bytes(model, split, used, sizes=least, tables=tables, towers=False)
    return low + beside, size + beside, (1 + _PADDING) * size + beside


def _paged(model: LanguageModel, split: Parallelism, context: int, element: float) -> dict[str, float]:
    """A sequence's cache by kind, in blocks, on the fullest GPU."""
    share = math.ceil(model.layer_count / split.pipeline) / model.layer_count
    found: dict[str, float] = {}
    for count, layer in model.layers:
        if a := layer.keeps:
            tokens = min(context, a.window + memory.BLOCK_TOKENS) if a.window else context
            paged = math.ceil(tokens / memory.BLOCK_TOKENS) * memory.BLOCK_TOKENS
            each = a.served_bytes(element)
            if not a.is_latent:
                each *= math.ceil(a.kv_heads / split.tensor) / a.kv_heads
            found[cache.kind_of(a)] = found.get(cache.kind_of(a), 0.0) + count * paged * each * share
            if a.top_k:
                found["indexer keys"] = found.get("indexer keys", 0.0) + count * paged * a.indexer_bytes * share
        for kind, size in cache.states(layer, element if element >= 2 else 2.0):
            found[kind] = found.get(kind, 0.0) + count * size * share / split.tensor
    return found


def _server(model: LanguageModel, device: Device, settings: Settings, load: Load, loaded: Stored, kind: str) -> Need:
    split = settings.split
    offload = settings.offload_gib * _GIB
    padding = memory.padding_bytes(model, split, loaded.quantization, device)
    sizes = zip(_weights(model, split, loaded), (0.0, padding, padding), strict=True)
    low, usual, high = (max(0.0, size + more - offload) for size, more in sizes)
    each = _paged(model, split, load.context, cache.TYPES[kind])  # checked where it is asked for
    kept = {name: load.sequences * size for name, size in each.items()}
    wide = loaded.quantization.activation_bytes
    chunk, short = (min(n, load.context) for n in (memory.CHUNK_TOKENS, memory.CHUNK_LOW_TOKENS))
    step, least = (memory.workspace_bytes(model, split, n, element_bytes=wide) for n in (chunk, short))
    workspace = memory.server_workspace_bytes(
        model, device, settings.runtime, step, settings.runtime_version, settings.max_sequences, load.context
    )
    parts = Parts(
        weights=(low, usual, high),
        cache=cache.total(kept),
        each=cache.total(each),
        workspace=(least, *workspace),
        runtime=memory.server_runtime_bytes(split, settings.runtime),
    )
    room = in_use.room(settings.runtime, device, settings.gpus, parts, settings.utilization, settings.runtime_version)
    host = max(0.0, min(offload, weight_bytes(model, split, loaded.quantization, sizes=loaded.sizes))) * split.gpus
    return Need(
        weights=usual,
        cache=kept,
        activations=workspace[0],
        runtime=parts.runtime[1],
        host_bytes=host,
        needed=room.needed,
        least=room.least,
        limit_bytes=room.limit_bytes,
        probability=room.probability,
        possible=room.possible,
        binding=room.binding,
        parts=parts,
        precision=loaded.name,
        cache_type=kind,
    )


def layers_on_gpu(model: LanguageModel, settings: Settings) -> int:
    """Layers that llama.cpp's -ngl puts on the devices; the head is one more."""
    asked = settings.gpu_layers
    return model.layer_count if asked is None else min(asked, model.layer_count)


def _llama_cpp(
    subject: Subject,
    model: LanguageModel,
    device: Device,
    settings: Settings,
    load: Load,
    loaded: Stored,
    kind: str,
) -> Need:
    on_gpu, layers = layers_on_gpu(model, settings), model.layer_count
    with_head = settings.gpu_layers is None or settings.gpu_layers > layers
    each, head, table, experts = _by_layer(subject, model, loaded)
    hosted = min(settings.host_experts, layers)
    # The last layers go to the GPU; --n-cpu-moe leaves the experts of the first ones on the host.
    first = layers - on_gpu
    kept_experts = sum(experts[first:hosted])
    whole_weights = sum(each) + head + (table if not device.unified_memory else 0.0)
    gpu = sum(each[first:]) - kept_experts + (head if with_head else 0.0)
    known = ggml.is_uniform(loaded.quantization) or (subject.placed is not None and loaded.as_stored)
    certain = gpu if known else 0.0
    if device.unified_memory and on_gpu:
        gpu += table  # one memory holds the host's table as well
    share = _fullest(settings.gpus, on_gpu)
    weights = gpu * share
    step_tokens = ggml.STEP_TOKENS if settings.step_tokens is None else settings.step_tokens
    key, value = cache_types(kind, "llama.cpp")
    of: dict[str, Any] = {"types": (key, value), "step_tokens": step_tokens}
    kept = cache.in_llama_cpp(model, load.context, load.sequences, **of)
    one = cache.in_llama_cpp(model, load.context, **of)
    held = 0.0 if settings.cache_on_host else share * on_gpu / layers
    split, wide = settings.split, loaded.quantization.activation_bytes
    usual, least = (
        memory.workspace_bytes(model, split, n, n, element_bytes=wide) if on_gpu else 0.0
        for n in (min(step_tokens, load.context), min(ggml.STEP_LOW_TOKENS, load.context))
    )
    beside = (ggml.RUNTIME_LOW_BYTES, ggml.RUNTIME_BYTES, ggml.RUNTIME_BYTES) if on_gpu else (0.0, 0.0, 0.0)
    parts = Parts(
        weights=(weights, weights, weights),
        cache=held * cache.total(kept),
        each=held * cache.total(one),
        workspace=(least, usual, usual),
        runtime=beside,
        certain=share * certain,
    )
    found = in_use.held_whole(parts)
    whole = in_use.whole_bytes(device)
    given = in_use.given_by_default(device)
    return Need(
        weights=weights,
        cache={name: held * size for name, size in kept.items()},
        activations=usual,
        runtime=beside[1],
        host_bytes=max(0.0, whole_weights - gpu) + (cache.total(kept) - held * cache.total(kept) / share),
        needed=found.needed,
        least=found.least,
        limit_bytes=given.bytes,
        probability=in_use.chance(found.needed, given.bytes),
        # Weights are known to the byte: they, the cache and the shortest step have to be there.
        possible=in_use.needed(parts, parts.cache).low <= whole,
        binding=given.rule,
        parts=parts,
        precision=loaded.name,
        cache_type=kind,
    )


def _fullest(devices: int, layers: int) -> float:
    """The share of the layers on the fullest of the devices, which get whole ones."""
    return math.ceil(layers / devices) / layers if layers else 1.0


def _by_layer(subject: Subject, model: LanguageModel, loaded: Stored) -> tuple[list[float], float, float, list[float]]:
    """Bytes of each layer, of the head, of the input table, and of each layer's experts."""
    at = subject.placed
    if at is not None and loaded.as_stored and len(at.layers) == model.layer_count:
        head = float(at.head or at.table) + at.rest
        return [float(v) for v in at.layers], head, float(at.table), [float(v) for v in at.experts]
    alone = replace(model, layers=(), stored_bytes=0)
    of: dict[str, Any] = {"quantization": loaded.quantization, "sizes": loaded.sizes, "towers": False}
    outside = weight_bytes(alone, Parallelism(), tables=0, **of)
    table = weight_bytes(alone, Parallelism(), tables=1, **of) - outside
    layers, experts = [], []
    # Where dense layers and mixtures are both there, the dense ones come first.
    for count, layer in sorted(model.layers, key=lambda pair: pair[1].experts is not None):
        one = weight_bytes(replace(alone, layers=((1, layer),)), Parallelism(), tables=0, **of) - outside
        layers += [one] * count
        experts += [routed_bytes(layer, loaded.quantization.moe, loaded.sizes)] * count
    return layers, table + outside, table, experts


def _transformers(
    model: LanguageModel, device: Device, settings: Settings, load: Load, loaded: Stored, kind: str
) -> Need:
    split = settings.split
    low, usual, high = _weights(model, split, loaded)
    element = cache.type_bytes(kind, "transformers")
    share = math.ceil(model.layer_count / split.pipeline) / model.layer_count
    # Of a window of sound the decoder keeps what it wrote; of other prompts either side may have the whole context.
    prompt = (model.window or load.context) if model.is_encoder_decoder else 0
    one = cache.in_transformers(model, load.context - model.window, prompt=prompt, element_bytes=element)
    kept = {name: share * load.sequences * size for name, size in one.items()}
    whole = cache.total(kept)
    grown = whole / max(1, math.ceil(model.layer_count / split.pipeline))
    tokens = load.sequences * load.context
    wide = loaded.quantization.activation_bytes
    step = memory.workspace_bytes(model, split, tokens, load.sequences, element_bytes=wide)
    # Of one sequence: its prompt's activations are a share of those of all.
    alone = memory.workspace_bytes(model, split, load.context, 1, element_bytes=wide)
    context = [part * in_use.CONTEXT_BYTES for part in (in_use.CONTEXT_SHARES[0], 1.0, in_use.CONTEXT_SHARES[1])]
    # Releases up to 4.41 hold the cache twice while it grows; kernels of packed weights unpack into their own memory.
    packed = loaded.sizes[loaded.quantization.gemm] < loaded.quantization.activation_bytes
    parts = Parts(
        weights=(low, usual, high + (0.08 * usual if packed else 0.0)),
        cache=whole,
        each=whole / load.sequences,
        workspace=(0.0, step + grown, 2 * step + whole),
        runtime=(context[0], context[1], context[2]),
    )
    limit = in_use.whole_bytes(device)
    needed = in_use.needed(parts, whole)
    return Need(
        weights=usual,
        cache=kept,
        activations=step + grown,
        runtime=context[1],
        host_bytes=0.0,
        needed=needed,
        least=in_use.needed(
            replace(parts, workspace=(0.0, alone + grown / load.sequences, 2 * alone + parts.each)), parts.each
        ),
        limit_bytes=limit,
        probability=in_use.chance(needed, limit),
        possible=needed.low <= limit,
        binding="",
        parts=parts,
        precision=loaded.name,
        cache_type=kind,
    )


def shown_in_use(subject: Subject, device: Device, settings: Settings, load: Load, found: Need) -> tuple[Interval, str]:
    """What the device shows in use (nvidia-smi), and what stands behind it."""
    if settings.runtime in SERVERS:
        of = (settings.gpus, found.parts, settings.utilization, settings.runtime_version)
        shown = in_use.filled(settings.runtime, device, *of)
        return shown.in_use, shown.basis
    if settings.runtime == "llama.cpp":
        return in_use.held_whole(found.parts).in_use, in_use.MEASURED
    # Imported here: it plans an allocator's memory, which no other runtime asks for.
    from perfpass.llm.eager import in_eager_pytorch

    assert subject.language is not None
    prompt, answer = load.lengths
    kept = replace(stored(subject.language, settings, device).quantization, kv_cache=found.cache_type)
    sizes: dict[str, Any] = {"sequences": load.sequences, "prompt": prompt, "answer": answer}
    eager = in_eager_pytorch(subject.language, device, settings.gpus, kept, **sizes)
    one, whole = eager.in_use or found.needed, float(device.usable_bytes)
    # An allocator that runs out gives back what it holds beyond live tensors, so no more than the device is shown.
    median, low, high = (min(bound, whole) for bound in (one.median, one.low, one.high))
    return Interval(median, low, high, one.unit, one.coverage), eager.basis
