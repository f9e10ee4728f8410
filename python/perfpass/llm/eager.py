"""Generation in eager PyTorch (transformers' `generate`): what it allocates, through the simulated caching allocator.

A cache of keys and values grows by concatenation: each step makes a block that is larger by one token and lets the old
one go, which the next, larger, step cannot use. So the allocator reserves far more than is alive, until the device is
full and it gives cached blocks back. Releases of transformers up to 4.41 hand the whole cache of a step to the next one
as a tuple and hold both (``held_twice``); those from 4.42 (June 2024) on replace it layer by layer, and keep the logits
of the prompt's last token alone (read in modeling_llama.py and generation/utils.py of 4.35.2, 4.41.2 and 4.44.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.graph.allocators import FREE, USES, Events, caching
from perfpass.llm.costs import ELEMENT_BYTES, Parallelism, Quantization, weight_bytes
from perfpass.llm.in_use import CONTEXT_BYTES, CONTEXT_SHARES, DOCUMENTED, MEASURED, MOST_ABOVE, interval, whole_bytes
from perfpass.llm.memory import sequence_bytes
from perfpass.llm.serving import MemoryFit
from perfpass.llm.versions import release
from perfpass.prediction import Interval
from perfpass.text import size

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.llm.architecture import Attention, LanguageModel, Layer

_WEIGHTS, _ACTIVATIONS = USES.index("weights"), USES.index("activations")
_MATRICES = 7  # of a layer: how its weights are cut into blocks
_FLOAT_BYTES = 4.0
_MOST_EVENTS = 1_500_000  # of a simulation; a longer answer is taken in steps of several tokens


@dataclass
class _Stream:
    """Events being written. ``per_token`` of an event are bytes for every token that the cache holds by then."""

    block: list[int] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)
    per_token: list[float] = field(default_factory=list)
    blocks: int = 0

    def make(self, size: float, per_token: float = 0.0) -> int:
        self.block.append(self.blocks)
        self.bytes.append(size)
        self.per_token.append(per_token)
        self.blocks += 1
        return self.blocks - 1

    def free(self, *blocks: int) -> None:
        for block in blocks:
            self.block.append(block)
            self.bytes.append(FREE)
            self.per_token.append(0.0)


def generation(
    model: LanguageModel,
    quantization: Quantization,
    *,
    sequences: int,
    prompt: int,
    answer: int,
    devices: int = 1,
    held_twice: bool = False,
) -> Events:
    """The allocations on the fullest of ``devices`` that hold a part of the layers each.

    ``sequences`` prompts of ``prompt`` tokens, ``answer`` tokens generated for each, greedily.
    """
    layers = _stage(model, devices)
    weights = weight_bytes(model, Parallelism(pipeline=devices), quantization)
    start = _Stream()
    pieces = max(1, len(layers)) * _MATRICES
    for _ in range(pieces):
        start.make(weights / pieces)
    kept = len(start.block)
    past = _pass(start, model, layers, quantization, sequences, prompt, prompt, [], held_twice)
    # One step of decoding, over and over: the cache of the step before is what the first blocks stand for.
    step = _Stream(blocks=len(past))
    made = _pass(step, model, layers, quantization, sequences, 1, 0, list(range(len(past))), held_twice)
    times = answer - 1
    stride = max(1, math.ceil(times * len(step.block) / _MOST_EVENTS))
    lengths = prompt + np.arange(1, times + 1, stride, dtype=np.float64) + (stride - 1)
    lengths = np.minimum(lengths, prompt + times)
    decoding = _repeated(step, made, past, start.blocks, lengths)
    block = np.concatenate([np.array(start.block, np.int64), decoding[0]])
    size = np.concatenate([np.array(start.bytes) + prompt * np.array(start.per_token), decoding[1]])
    use = np.full(len(block), _ACTIVATIONS)
    use[:kept] = _WEIGHTS
    return Events.from_columns(block, np.where(size >= 0, np.ceil(size), FREE), use)


def _repeated(
    step: _Stream, made: list[int], past: list[int], first: int, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[E] blocks and bytes of one step for every length; block ``i`` < len(past) of a step is the cache before it."""
    held, fresh = len(past), step.blocks - len(past)
    block, size, grows = np.array(step.block), np.array(step.bytes), np.array(step.per_token)
    at = np.arange(len(lengths))[:, None]
    blocks = first + at * fresh + (block - held)[None, :]
    old = block < held
    if old.any() and len(lengths):
        slot = block[old]
        blocks[1:, old] = first + (at[1:] - 1) * fresh + (np.array(made)[slot] - held)[None, :]
        blocks[0, old] = np.array(past)[slot]
    sizes = size[None, :] + np.where(size[None, :] >= 0, grows[None, :] * lengths[:, None], 0.0)
    return blocks.ravel(), sizes.ravel()


def _stage(model: LanguageModel, devices: int) -> list[Layer]:
    """The layers of the fullest stage."""
    every = [layer for count, layer in model.layers for _ in range(count)]
    return every[: math.ceil(len(every) / devices)]


def _cached_elements(a: Attention) -> tuple[int, int]:
    """Elements of a token's keys and of its values. Latents are kept as the heads that they stand for."""
    heads = a.heads if a.is_latent else a.kv_heads
    return heads * a.head_dim, heads * a.value_dim


def _pass(
    s: _Stream,
    model: LanguageModel,
    layers: list[Layer],
    quantization: Quantization,
    sequences: int,
    tokens: int,
    context: int,
    past: list[int],
    held_twice: bool,
) -> list[int]:
    """One forward pass over ``tokens`` tokens of each sequence, whose cache then holds them; its cache blocks.

    ``context``: tokens in the cache, 0 where events are to grow with them.
    """
    e, rows, hidden = quantization.activation_bytes, sequences * tokens, model.hidden
    cached = ELEMENT_BYTES[quantization.kv_cache] * sequences
    made: list[int] = []
    stream = s.make(rows * hidden * e)

    def held(elements: float) -> int:
        size = elements * cached
        return s.make(context * size) if context else s.make(0.0, size)

    for layer in layers:
        x = _norm(s, rows * hidden, e)
        if layer.attention:
            a = layer.attention
            q = s.make(rows * a.heads * a.head_dim * e)
            k, v = (s.make(rows * n * e) for n in _cached_elements(a))
            turned = [s.make(rows * a.heads * a.head_dim * e) for _ in range(3)]
            s.free(*turned[1:], q)
            if past:
                before = past[len(made) : len(made) + 2]
                for own, elements, old in zip((k, v), _cached_elements(a), before, strict=True):
                    made.append(held(elements))
                    s.free(own, *([] if held_twice else [old]))
            else:
                made += [k, v]
            repeated = [] if a.is_latent or a.kv_heads == a.heads else [held(a.heads * d) for d in _widths(a)]
            out = s.make(rows * a.heads * a.value_dim * e)
            s.free(turned[0], *repeated)
            mixed = s.make(rows * hidden * e)
            s.free(out)
        elif layer.recurrence:
            inner = s.make(2 * rows * layer.recurrence.projections / max(hidden, 1) / 3 * e)
            mixed = s.make(rows * hidden * e)
            s.free(inner)
        else:
            mixed = s.make(rows * hidden * e)
        s.free(x)
        stream = _added(s, stream, mixed, rows * hidden * e)
        wide = _wide(layer)
        if wide:
            x = _norm(s, rows * hidden, e)
            gate, activated, up = (s.make(rows * wide * e) for _ in range(3))
            s.free(gate)
            product = s.make(rows * wide * e)
            s.free(activated, up)
            mixed = s.make(rows * hidden * e)
            s.free(product, x)
            stream = _added(s, stream, mixed, rows * hidden * e)
    if past and held_twice:
        s.free(*past)
    x = _norm(s, rows * hidden, e)
    told = sequences * (tokens if held_twice else 1)
    logits = s.make(told * model.vocabulary * e)
    exact = s.make(told * model.vocabulary * _FLOAT_BYTES)
    s.free(logits, exact, x, stream)
    return made


def _widths(a: Attention) -> tuple[int, int]:
    return a.head_dim, a.value_dim


def _wide(layer: Layer) -> float:
    """Elements of a token between the matrices of the feed-forward block."""
    wide = float(layer.dense.width) if layer.dense else 0.0
    if layer.experts:
        wide += layer.experts.active * layer.experts.width + layer.experts.shared_width
    return wide


def _norm(s: _Stream, elements: float, e: float) -> int:
    """A normalization computes in fp32."""
    copies = [s.make(elements * _FLOAT_BYTES) for _ in range(2)]
    out = s.make(elements * e)
    s.free(*copies)
    return out


def _added(s: _Stream, stream: int, mixed: int, size: float) -> int:
    found = s.make(size)
    s.free(mixed, stream)
    return found


@dataclass(frozen=True)
class Peaks:
    """Bytes of tensors on a device at the peaks of a generation: alive, and reserved by the allocator.

    ``fits``: whether the allocator found room for every block; where not, the peaks are those of a larger device.
    """

    alive: float
    reserved: float
    fits: bool


@lru_cache(maxsize=64)
def peaks(
    model: LanguageModel,
    quantization: Quantization,
    *,
    sequences: int,
    prompt: int,
    answer: int,
    devices: int = 1,
    held_twice: bool = False,
    room_bytes: float,
) -> Peaks:
    """The peaks of `generation` where a device has ``room_bytes`` for its tensors."""
    events = generation(
        model,
        quantization,
        sequences=sequences,
        prompt=prompt,
        answer=answer,
        devices=devices,
        held_twice=held_twice,
    )
    found = caching(events, limit_bytes=int(max(0.0, room_bytes)))
    report = found if found.fits else caching(events)
    return Peaks(float(report.peak_allocated), float(report.peak_reserved), found.fits)


# What optimum-benchmark measured over the count, 226 runs of four architectures: 16-bit weights 0.99 to 1.18 where the
# device was not full; packed ones 0.9 to 1.5, whose kernels unpack into memory of their own (this is their middle).
_PACKED = 1.08
_LOW = 0.85
_ONCE_SINCE = (4, 42)
_SPLIT_SINCE = (4, 53)
# Decoders that releases before that read too (CONFIG_MAPPING_NAMES of 4.41.2, and code of repositories of that time).
_READ_BEFORE = frozenset({
    "baichuan", "bart", "bloom", "chatglm", "codegen", "cohere", "dbrx", "falcon", "gemma", "gpt2",
    "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "internlm", "internlm2", "jamba", "jetmoe", "llama", "mistral",
    "mixtral", "mpt", "olmo", "opt", "persimmon", "phi", "phi3", "qwen", "qwen2", "qwen2_moe", "stablelm",
    "starcoder2", "t5", "xglm",
})  # fmt: skip


def holds_twice(version: str) -> bool:
    """Whether that release of transformers holds the cache twice while it grows; a present one where none is stated."""
    return release(version) < _ONCE_SINCE


def _looking(model: LanguageModel, quantization: Quantization, prompts: int, tokens: int, version: str) -> float:
    """What a tower holds where all ``tokens`` of each prompt are pictures; up to 4.52 with a mask of every two patches,
    in bits and as numbers (modeling_qwen2_vl.py of 4.52.4, and of 4.53.3, which splits pictures instead).

    Where no release is stated the mask is that of one prompt: of a batch it is quadratic in all of its prompts, which
    is no bound for one who did not say that they are pictures, nor that the release is old.
    """
    if model.sight is None:
        return 0.0
    size = quantization.activation_bytes
    every = float(prompts * tokens)
    masked = float(tokens) if not version else every if release(version) < _SPLIT_SINCE else 0.0
    return every * model.sight.elements * size + model.sight.pairs * masked**2 * (1 + size)


def in_eager_pytorch(
    model: LanguageModel,
    device: Device,
    devices: int,
    quantization: Quantization,
    *,
    sequences: int,
    prompt: int,
    answer: int,
    version: str = "",
) -> MemoryFit:
    """The memory of the fullest of ``devices`` that hold layers of a model and generate with transformers.

    ``version``: of transformers; where none is stated the middle is that of a present release, and the upper bounds
    hold those up to 4.41 where they read the model. Those hold the cache twice and were measured; some programs of
    theirs did not, so that their lower bounds allow for that. It fits where the allocator finds room for all sequences
    at once with the cache held once.
    """
    asked: dict[str, Any] = {"sequences": sequences, "prompt": prompt, "answer": answer, "devices": devices}
    whole, least = float(device.usable_bytes), CONTEXT_SHARES[0] * CONTEXT_BYTES
    # A program may have all of a device but its context.
    usual, spare = whole_bytes(device) - CONTEXT_BYTES, whole_bytes(device) - least
    once = peaks(model, quantization, **asked, room_bytes=usual)
    old = holds_twice(version)
    may_be_old = old or (not version and model.model_type in _READ_BEFORE)
    most = peaks(model, quantization, **asked, held_twice=True, room_bytes=usual) if may_be_old else once
    taken = most if old else once
    pictures = _looking(model, quantization, sequences, prompt, version)
    single = peaks(model, quantization, **(asked | {"sequences": 1}), room_bytes=usual)
    fits = peaks(model, quantization, **asked, room_bytes=spare).fits
    share = _PACKED if ELEMENT_BYTES[quantization.gemm] < quantization.activation_bytes else 1.0

    split = Parallelism(pipeline=devices)
    weights = weight_bytes(model, split, quantization)
    # Of one device that holds them unpacked, those of the language model are known: no run has less.
    read = weight_bytes(model, split, quantization, towers=False)
    certain = read if devices == 1 and share == 1.0 else 0.0
    # bitsandbytes packs towers as it does all linear layers; published files of GPTQ and AWQ keep them in 16 bits.
    element = dict(model.packed_bytes).get(quantization.gemm, ELEMENT_BYTES[quantization.gemm])
    spared = (weights - read) * max(0.0, 1.0 - element / quantization.activation_bytes)

    def around(
        low: float, median: float, high: float, context: tuple[float, float], limit: float = math.inf, seen: float = 0.0
    ) -> Interval:
        middle, above = (share * taken + context[1] for taken in (median, high))
        above = max(above, weights + seen + context[1] if seen else 0.0)
        return interval(max(_LOW * (low - spared), certain) + context[0], middle, MOST_ABOVE * above, limit)

    cache = sequences * sequence_bytes(model, split, quantization, prompt + answer, block_tokens=1)
    none, context = (0.0, 0.0), (least, CONTEXT_BYTES)
    full = max(whole, share * most.alive + CONTEXT_BYTES)
    reason = ""
    if not fits:
        reason = f"{size(weights)} of weights and {size(cache)} of cache leave the allocator no room in {size(whole)}"
    elif not most.fits:
        reason = (
            "releases of transformers up to 4.41, which hold the cache twice, run out of memory"
            if may_be_old
            else f"beside a context of {size(CONTEXT_BYTES)}, which is usual, it runs out of memory"
        )
    return MemoryFit(
        weights_bytes=int(weights),
        cache_bytes=int(cache),
        activation_bytes=int(max(0.0, once.alive - weights - cache)),
        runtime_bytes=int(CONTEXT_BYTES),
        usable_bytes=int(whole_bytes(device)),
        most_requests=sequences if fits else 0,
        fits=fits,
        reason=reason,
        alive=around(once.alive, taken.alive, most.alive, none, seen=pictures),
        reserved=around(once.alive, taken.reserved, most.reserved, none, full - least, pictures),
        in_use=around(once.alive, taken.reserved, most.reserved, context, full, pictures),
        needed=around(once.alive, taken.alive, most.alive, context, seen=pictures),
        least=around(single.alive, single.alive, single.alive, context),
        basis=MEASURED if old else DOCUMENTED,
    )
