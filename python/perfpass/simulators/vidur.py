"""Vidur (MLSys 2024) and simulators that read its profiles: tables of kernel times that it measures on a GPU.

Sources: microsoft/vidur, docs/profiling.md (the folders) and execution_time_predictor/ (the columns that it trains on).
Here the kernels are predicted, as `perfpass operator` does. Vidur adds its own layers, batches and host to them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.llm.architecture import Attention, LanguageModel, Mlp
from perfpass.predictors.kernels import predictor
from perfpass.predictors.kernels.physics import LAUNCH_S
from perfpass.simulators.deployed import Deployed

TOKENS = np.unique(np.concatenate([2.0 ** np.arange(0, 7), np.arange(96, 1025, 32), 2.0 ** np.arange(10, 14)]))
CONTEXTS = np.concatenate([[16.0], 2.0 ** np.arange(5, 17)])
BATCHES = 2.0 ** np.arange(0, 10)
CHUNKS = 2.0 ** np.arange(5, 14)
CACHED = np.concatenate([[0.0], 2.0 ** np.arange(7, 17, 2)])
MESSAGES = 2.0 ** np.arange(10, 31)
SPLITS = (1, 2, 4, 8)
BLOCK_TOKENS = 16
# Kernels back to back wait for nothing; what Vidur measured so is a median of times in ms.
_MS = 1e3
_FP32 = 4.0


def profiles(one: Deployed) -> dict[str, str]:
    """The files by their place in Vidur's folder of profiles, for every split that the model takes.

    Raises UnsupportedError for a model that is no plain decoder: mixtures, latent or windowed attention, states.
    """
    attention, mlp = _plain(one.model)
    splits = [n for n in SPLITS if attention.heads % n == 0]
    place = f"compute/{one.device.id}/{one.model.name}"
    network = f"network/{one.device.id}"
    return {
        f"{place}/mlp.csv": _csv([row for n in splits for row in _layer_rows(one, attention, mlp, n)]),
        f"{place}/attention.csv": _csv([row for n in splits for row in _attention_rows(one, attention, n)]),
        f"{network}/allreduce.csv": _csv([row for n in SPLITS[1:] for row in _reductions(one, n)]),
        f"{network}/send_recv.csv": _csv(_sends(one)),
    }


def _plain(model: LanguageModel) -> tuple[Attention, Mlp]:
    kinds = {(layer.attention, layer.dense) for _, layer in model.layers}
    other = any(layer.experts or layer.recurrence for _, layer in model.layers)
    attention, mlp = next(iter(kinds))
    if len(kinds) > 1 or other or attention is None or mlp is None or attention.is_latent or attention.window:
        raise UnsupportedError(
            f"{model.name}: Vidur's profiles are of equal layers of full attention and one dense MLP; take another "
            "simulator, as sglang or dynamo, which ask for whole steps"
        )
    return attention, mlp


def _layer_rows(one: Deployed, attention: Attention, mlp: Mlp, ranks: int) -> list[dict[str, object]]:
    hidden, width, q = one.model.hidden, mlp.width // ranks, one.serving.quantization
    heads, kv = attention.heads // ranks, max(attention.kv_heads // ranks, 1)
    projected = heads * attention.head_dim + kv * (attention.head_dim + attention.value_dim)
    kernels = predictor.load()

    def product(n: int, k: int) -> np.ndarray:
        return _MS * kernels.gemm(one.device, TOKENS, n, k, q.gemm).seconds

    def rows_of(operator: str, elements: int) -> np.ndarray:
        return _moving(one, operator, TOKENS, elements)

    times = {
        "attn_pre_proj": product(projected, hidden),
        "attn_post_proj": product(hidden, heads * attention.value_dim),
        "mlp_up_proj": product((mlp.matrices - 1) * width, hidden),
        "mlp_down_proj": product(hidden, width),
        "mlp_act": rows_of("mul" if mlp.matrices == 3 else "gelu", width),
        "input_layernorm": rows_of("ln", hidden),
        "post_attention_layernorm": rows_of("ln", hidden),
        "attn_rope": rows_of("mul", (heads + kv) * attention.head_dim),
        "add": rows_of("add", hidden),
    }
    shape = {
        "n_head": attention.heads,
        "n_kv_head": attention.kv_heads,
        "n_embd": hidden,
        "n_expanded_embd": mlp.width,
        "vocab_size": one.model.vocabulary,
        "use_gated_mlp": mlp.matrices == 3,
        "num_tensor_parallel_workers": ranks,
    }
    return _rows({**shape, "num_tokens": TOKENS.astype(int)}, times)


def _attention_rows(one: Deployed, attention: Attention, ranks: int) -> list[dict[str, object]]:
    heads, kv, q = attention.heads // ranks, max(attention.kv_heads // ranks, 1), one.serving.quantization
    kernels, shape = predictor.load(), (heads, kv, attention.head_dim)
    types = {"dtype": q.activations, "kv_dtype": q.kv_cache}

    def prefill(tokens: np.ndarray) -> np.ndarray:
        found = kernels.attention_prefill(one.device, 1, np.maximum(tokens, 1.0), *shape, **types).seconds
        return np.where(tokens > 0, found, 0.0)

    chunk, cached = (grid.ravel() for grid in np.meshgrid(CHUNKS, CACHED))
    # No kernel with a cached prefix was measured: the whole prompt without what its first part takes.
    chunked = np.maximum(prefill(chunk + cached) - prefill(cached), prefill(chunk))
    batch, context = (grid.ravel() for grid in np.meshgrid(BATCHES, CONTEXTS))
    decode = kernels.attention_decode(one.device, batch, context, *shape, **types).seconds
    saved, written = np.concatenate([chunk, batch]), kv * (attention.head_dim + attention.value_dim)
    columns = {
        "n_embd": one.model.hidden,
        "n_q_head": attention.heads,
        "n_kv_head": attention.kv_heads,
        "block_size": BLOCK_TOKENS,
        "num_tensor_parallel_workers": ranks,
        "batch_size": np.concatenate([np.ones_like(chunk), batch]).astype(int),
        "prefill_chunk_size": np.concatenate([chunk, np.zeros_like(batch)]).astype(int),
        "kv_cache_size": np.concatenate([cached, context]).astype(int),
    }
    times = {
        "attn_kv_cache_save": _moving(one, "add", saved, written),
        "attn_prefill": _MS * np.concatenate([chunked, np.full(len(batch), np.nan)]),
        "attn_decode": _MS * np.concatenate([np.full(len(chunk), np.nan), decode]),
    }
    return _rows(columns, times)


def _moving(one: Deployed, operator: str, tokens: np.ndarray, elements: int) -> np.ndarray:
    """Ms [N] of a kernel that is bound by what it moves, ``elements`` a token: the time of an fp32 operator on as many
    bytes beyond that of an empty one, and a launch from a graph.
    """
    kernels, width = predictor.load(), one.serving.quantization.activation_bytes / _FP32
    sizes = np.stack([tokens, np.full_like(tokens, max(round(elements * width), 1))], axis=1)
    empty = kernels.torch_operator(one.device, operator, [1, 1]).seconds
    found = kernels.torch_operator(one.device, operator, sizes).seconds
    return _MS * (np.maximum(found - empty, 0.0) + LAUNCH_S)


def _reductions(one: Deployed, ranks: int) -> list[dict[str, object]]:
    found = predictor.load().collective(one.device, "all_reduce", ranks, MESSAGES / 2)
    columns = {"size": MESSAGES.astype(int), "num_workers": ranks, "devices_per_node": ranks}
    return _rows({**columns, "collective": "all_reduce"}, {"all_reduce": _MS * found.seconds})


def _sends(one: Deployed) -> list[dict[str, object]]:
    """Between two GPUs of one node: each sends half of a gathered message to the other."""
    found = predictor.load().collective(one.device, "all_gather", 2, MESSAGES)
    columns = {"size": MESSAGES.astype(int), "num_workers": 2, "devices_per_node": 2}
    return _rows({**columns, "collective": "send_recv"}, {"send_recv": _MS * found.seconds})


def _rows(columns: dict[str, object], times: dict[str, np.ndarray]) -> list[dict[str, object]]:
    named = {**columns, **{f"time_stats.{name}.median": ms for name, ms in times.items()}}
    count = len(next(iter(times.values())))
    return [{n: v[i] if isinstance(v, np.ndarray) else v for n, v in named.items()} for i in range(count)]


def _csv(rows: Sequence[dict[str, object]]) -> str:
    lines = [",".join(rows[0])]
    lines += [",".join(_cell(value) for value in row.values()) for row in rows]
    return "\n".join([*lines, ""])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.6g}"
    return str(value)
