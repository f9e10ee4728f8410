"""Operator graphs of language models, prefill and decode, at any batch size and number of tokens.

For a fixed number of tokens every dimension is affine in the batch size, and for a fixed batch affine in the tokens, so
four traces give all. They are kept in the cache of traces; a model of 32 layers takes some ten seconds, once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.importers.configuration_names import resolve
from perfpass.records import graph_cache

if TYPE_CHECKING:
    from perfpass.graph import OpGraph

# Source of a `comparison.graphs.Key` -> mode of `importers.huggingface.trace_config`.
MODES = {"llm-prefill": "prefill", "llm-decode": "decode"}
_BATCHES = (2, 3)
_TOKENS = (128, 192)


def is_stored(source: str, model: str) -> bool:
    """Whether the cache holds a model's traces."""
    return all(graph_cache.path(source, _name(model), tokens).is_file() for tokens in _TOKENS)


def ensure(source: str, model: str) -> None:
    """Trace a model unless the cache has it. Raises as `trace_config`, and UnsupportedError for an irregular graph."""
    if is_stored(source, model):
        return
    from perfpass.importers.huggingface import trace_config

    name = resolve(model)
    for tokens in _TOKENS:
        first, second = (
            trace_config(name, batch=b, sequence_length=tokens, mode=MODES[source], dtype="float16") for b in _BATCHES
        )
        graph_cache.save(graph_cache.path(source, _name(model), tokens), first, second, _BATCHES)


def at(source: str, model: str, tokens: int, batch: int) -> OpGraph:
    """The graph of ``model`` that reads ``tokens`` tokens (prefill), or one with ``tokens`` in its cache (decode)."""
    stored, dims, per_sample = _stored(source, model)
    from perfpass.graph import OpGraph

    steps = tokens - _TOKENS[0]
    size = dims[0] + dims[1] * steps + (per_sample[0] + per_sample[1] * steps) * batch
    return OpGraph(stored.graph.core.with_dims(size))


def _name(model: str) -> str:
    return str(resolve(model)).replace("/", "_")


@lru_cache(maxsize=64)
def _stored(
    source: str, model: str
) -> tuple[graph_cache.Stored, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A trace, and its dims and dims per sample: at the first length, and how they grow with each token."""
    ensure(source, model)
    short, long = (graph_cache.Stored.read(graph_cache.path(source, _name(model), tokens)) for tokens in _TOKENS)
    same = (
        np.array_equal(short.graph.op, long.graph.op)
        and np.array_equal(short.graph.inputs, long.graph.inputs)
        and np.array_equal(short.graph.attributes, long.graph.attributes)
        and len(short.dims) == len(long.dims)
    )
    if not same:
        raise UnsupportedError(f"{model}: its graphs at {_TOKENS[0]} and {_TOKENS[1]} tokens differ in more than sizes")
    return short, _line(short.dims, long.dims, model), _line(short.dims_per_sample, long.dims_per_sample, model)


def _line(first: np.ndarray, second: np.ndarray, model: str) -> tuple[np.ndarray, np.ndarray]:
    slope, rest = np.divmod(second - first, _TOKENS[1] - _TOKENS[0])
    if rest.any():
        raise UnsupportedError(f"{model}: a dimension is not affine in the number of tokens")
    return first, slope
