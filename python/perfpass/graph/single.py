"""Tensors that stay in single precision where everything else of a run is in fp16, whose range they would leave.

A library keeps some modules so (`_keep_in_fp32_modules` of transformers; decoders of diffusers that are upcast), and a
reader marks their tensors in `OpGraph.single`. Counting narrows every floating tensor (``float_as``), so these become
what has as many bytes and is never narrowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from perfpass import _core
from perfpass.graph.joined import appended
from perfpass.graph.opgraph import DTYPES, ROLES, OpGraph

_FLOATING = frozenset(i for i, name in enumerate(DTYPES) if name in ("float32", "float16", "bfloat16"))
_WEIGHT = ROLES.index("weight")
_FOUR_BYTES = "int32"


def weights_of(graph: OpGraph, modules: Iterable[str]) -> frozenset[int]:
    """The weights of ``graph`` below a module of one of these names (a part of a dotted name), as tensor ids."""
    named = set(modules)
    return frozenset(
        t
        for t in range(graph.tensor_count)
        if graph.tensor_role[t] == _WEIGHT and named & set(graph.string(int(graph.tensor_name[t])).split("."))
    )


def all_of(graph: OpGraph) -> frozenset[int]:
    """Every floating tensor."""
    return frozenset(t for t in range(graph.tensor_count) if int(graph.tensor_dtype[t]) in _FLOATING)


def keeps(precision: str, runtime: str, mode: str) -> bool:
    """Whether a run keeps what its libraries mark: PyTorch's inference in fp16. Engines choose types by themselves."""
    return mode == "inference" and precision == "fp16" and runtime in ("torch", "torch.compile")


def kept(graph: OpGraph) -> OpGraph:
    """``graph`` whose `OpGraph.single` tensors have 4 bytes an element whatever floating tensors are counted as."""
    held = {t for t in graph.single if int(graph.tensor_dtype[t]) in _FLOATING}
    if not held:
        return graph
    builder = _core.GraphBuilder()
    appended(builder, graph, types=dict.fromkeys(held, _FOUR_BYTES))
    builder.add_notes(graph.core)
    return replace(graph, core=builder.finish(graph.graph_inputs.tolist(), graph.graph_outputs.tolist()))


def sentence(graph: OpGraph) -> str:
    """What of ``graph`` is kept so, for the support; empty where nothing is."""
    wide = [t for t in graph.single if DTYPES[int(graph.tensor_dtype[t])] == _FOUR_BYTES]
    if not wide:
        return ""
    weights = sum(prod(graph.shape(t)) for t in wide if graph.tensor_role[t] == _WEIGHT)
    beside = ", and what is computed from them" if any(graph.tensor_role[t] != _WEIGHT for t in wide) else ""
    return f"in fp32 beside fp16, as its libraries keep them: {4 * weights / 2**30:.3g} GiB of weights{beside}"
