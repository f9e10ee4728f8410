"""What a runtime allocates for keys, values and states, to the byte, by kind.

transformers (`cache_utils` of 5.23, whose objects the tests build): a layer that attends to all keeps every token, one
with a window the last ``window - 1`` (a static cache: ``window``, allocated at once), latent attention the latent and
the rotated part of the keys, an indexer its keys; recurrent layers keep a state in fp32 and a window of convolution in
the activations' type; a decoder's attention across keeps the encoder's tokens. GPT-Neo's local layers keep all.

llama.cpp (`llama-kv-cache`, `ggml_row_size`): as long as its context is said to be, from the start, padded to 256
cells; layers with a window keep it and one step more (`--swa-full`: all); keys and values may have types of blocks of
32. Servers with paged attention: `perfpass.llm.memory.sequence_bytes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from perfpass.errors import ArgumentError
from perfpass.llm.architecture import FP32_BYTES, Attention, LanguageModel, Layer
from perfpass.text import unknown

# Bytes of an element by type of a cache: of servers (one scale for a tensor, which is nothing; nvfp4 in blocks of 16
# with an fp8 one), and of llama.cpp's -ctk and -ctv (blocks of 32: ggml-common.h).
TYPES: dict[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "f32": 4.0,
    "f16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
BLOCKS = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
_BLOCK = 32
# Who takes which: vLLM's --kv-cache-dtype, SGLang's, TensorRT-LLM's KvCacheConfig.dtype, llama.cpp's -ctk and -ctv,
# transformers' own (the activations' type; quantized caches are of packages beside it).
OF_RUNTIME: dict[str, tuple[str, ...]] = {
    "vllm": ("bf16", "fp16", "fp32", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4"),
    "sglang": ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "fp8", "nvfp4"),
    "trtllm": ("bf16", "fp16", "fp8", "int8", "nvfp4"),
    "llama.cpp": ("f16", "f32", "bf16", "fp16", *BLOCKS),
    "transformers": ("bf16", "fp16", "fp32"),
}
CELLS = 256  # llama.cpp rounds a context up to so many
_KEEPS_ALL = ("gpt_neo",)


def type_bytes(name: str, runtime: str) -> float:
    """Bytes of an element of a cache type in a runtime. Raises ArgumentError for a type that it does not have."""
    allowed = OF_RUNTIME[runtime]
    if name not in allowed:
        raise ArgumentError(unknown(f"cache type of {runtime}", name, allowed))
    return TYPES[name]


def in_transformers(
    model: LanguageModel,
    tokens: int,
    sequences: int = 1,
    *,
    prompt: int = 0,
    static: bool = False,
    element_bytes: float = 2.0,
) -> dict[str, float]:
    """Bytes by kind that transformers holds for ``sequences`` with ``tokens`` in the cache (of an encoder-decoder:
    of the decoder, and ``prompt`` of the encoder). ``static``: a StaticCache of so many tokens.
    """
    found: dict[str, float] = {}
    for count, layer in model.layers:
        for kind, size in _kept(model, layer, tokens, prompt, static, element_bytes):
            found[kind] = found.get(kind, 0.0) + count * sequences * size
    return found


def _kept(
    model: LanguageModel, layer: Layer, tokens: int, prompt: int, static: bool, element: float
) -> Iterator[tuple[str, float]]:
    """Bytes that one layer keeps of a sequence, by kind."""
    if layer.keeps:
        a, held = layer.keeps, tokens
        if a.window and model.model_type not in _KEEPS_ALL:
            held = min(tokens, a.window if static else a.window - 1)
        yield kind_of(a), held * a.cache_elements * element
        if a.top_k:
            yield "indexer keys", tokens * a.index_dim * element
    if layer.cross:
        yield "keys and values across", prompt * layer.cross.cache_elements * element
    yield from states(layer, element)


def states(layer: Layer, element: float) -> Iterator[tuple[str, float]]:
    """Bytes of a recurrent layer's states for a sequence, by kind."""
    if layer.recurrence:
        yield "recurrent states", layer.recurrence.state_bytes(element)
        yield "convolution states", layer.recurrence.convolution * element


def kind_of(a: Attention) -> str:
    """What an attention keeps, by name."""
    if a.is_latent:
        return "latents"
    return "keys and values in windows" if a.window else "keys and values"


def in_llama_cpp(
    model: LanguageModel,
    context: int,
    sequences: int = 1,
    *,
    types: tuple[str, str] = ("f16", "f16"),
    step_tokens: int = 512,
    swa_full: bool = False,
) -> dict[str, float]:
    """Bytes by kind that llama.cpp allocates for ``sequences`` (-np) of ``context`` tokens each, on all devices
    together. ``types``: of keys and of values; ``step_tokens``: -ub.

    Raises ArgumentError for a type whose blocks do not divide a layer's keys or values.
    """
    sizes = [type_bytes(kind, "llama.cpp") for kind in types]
    found: dict[str, float] = {}
    cells = padded(context * sequences)
    for count, layer in model.layers:
        if a := layer.keeps:
            held = cells
            if a.window and not swa_full:  # a window of every sequence, and a step (llama_kv_cache_iswa)
                held = min(cells, padded(a.window * sequences + step_tokens))
            widths = _rows(a)
            for kind, width in zip(types, widths, strict=True):
                if kind in BLOCKS and width % _BLOCK:
                    raise ArgumentError(
                        f"{kind} packs {_BLOCK} numbers, and a layer of {model.name} keeps {width} a token; take f16"
                    )
            row = sum(width * size for width, size in zip(widths, sizes, strict=True))
            found[kind_of(a)] = found.get(kind_of(a), 0.0) + count * held * row
            if a.top_k:
                found["indexer keys"] = found.get("indexer keys", 0.0) + count * cells * a.index_dim * sizes[0]
        if layer.cross:
            row = layer.cross.kv_heads * (layer.cross.head_dim * sizes[0] + layer.cross.value_dim * sizes[1])
            found["keys and values across"] = found.get("keys and values across", 0.0) + count * cells * row
        for kind, size in states(layer, FP32_BYTES):  # both are kept in fp32
            found[kind] = found.get(kind, 0.0) + count * sequences * size
    return found


def _rows(a: Attention) -> tuple[int, int]:
    """Numbers of a token's keys and of its values in a layer; latents are kept once, with the keys."""
    if a.is_latent:
        return a.kv_rank + a.rope_dim, 0
    return a.kv_heads * a.head_dim, a.kv_heads * a.value_dim


def padded(tokens: int) -> int:
    """Cells of a context of llama.cpp."""
    return math.ceil(tokens / CELLS) * CELLS


def total(parts: Mapping[str, float]) -> float:
    """All kinds together."""
    return float(sum(parts.values()))
