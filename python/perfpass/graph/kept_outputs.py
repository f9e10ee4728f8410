"""What a language model's forward pass keeps to its end beside its result: the cache, and the logits once more in fp32.

Importers name graph outputs by these rules, and the memory plan follows them. Keys and values of every layer live to
the end of the pass (transformers' `use_cache` is on by default), so they are outputs of the graph, by names that begin
with `CACHE`, as exported decoders name theirs. Releases of transformers up to 4.44 (later ones for fewer models) cast
the logits of some models to fp32 at the end of the forward pass: with weights of 16 bits both copies are alive then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perfpass.graph.opgraph import ATTRIBUTES, OpGraph

if TYPE_CHECKING:
    from perfpass.graph.liveness import MemoryPlan

CACHE = "present"
FLOAT_LOGITS = "logits.float"
_HALVES = ("float16", "bfloat16")
_FLOAT_BYTES = 4
_VIEW = ATTRIBUTES.index("view")
_IN_PLACE = ATTRIBUTES.index("in_place")


def _outputs(graph: OpGraph, prefix: str) -> list[int]:
    named = ((int(t), graph.string(int(graph.tensor_name[t]))) for t in graph.graph_outputs)
    return [t for t, name in named if name.startswith(prefix)]


def _owner(graph: OpGraph, tensor: int) -> int:
    """The tensor whose buffer ``tensor`` lies in."""
    while (node := int(graph.producer[tensor])) >= 0:
        shares = graph.attributes[node, _VIEW] or graph.attributes[node, _IN_PLACE]
        inputs = graph.node_inputs(node)
        if not shares or not len(inputs) or inputs[0] < 0:
            break
        tensor = int(inputs[0])
    return tensor


def cache_bytes(graph: OpGraph, plan: MemoryPlan) -> int:
    """Bytes of keys, values and states among the buffers that are alive at the peak of ``plan``."""
    kept = {_owner(graph, t) for t in _outputs(graph, CACHE)}
    return int(sum(plan.peak_bytes[np.isin(plan.peak_tensors, list(kept))])) if kept else 0


def float_logits_bytes(graph: OpGraph, float_as: str) -> int:
    """Bytes of the copy in fp32 of the logits; 0 where they are fp32 already, or the model makes no copy."""
    if float_as not in _HALVES:
        return 0
    offset = graph.shape_offset
    shapes = (graph.dims[offset[t] : offset[t + 1]] for t in _outputs(graph, FLOAT_LOGITS))
    return sum(_FLOAT_BYTES * int(np.prod(shape, dtype=np.int64)) for shape in shapes)


def with_float_logits(graph: OpGraph, plan: MemoryPlan, float_as: str) -> MemoryPlan:
    """``plan``, with the copy in fp32 of the logits alive beside what the pass keeps to its end."""
    copy = float_logits_bytes(graph, float_as)
    if not copy:
        return plan
    last = int(graph.node_count) - 1
    live = plan.live_bytes.copy()
    live[last] += copy
    if live[last] <= plan.peak_activation_bytes:
        return replace(plan, live_bytes=live)
    alive = np.isin(plan.peak_tensors, _alive_at(graph, last)) if plan.peak_node != last else slice(None)
    return replace(
        plan,
        peak_activation_bytes=int(live[last]),
        peak_node=last,
        peak_tensors=plan.peak_tensors[alive],
        peak_producers=plan.peak_producers[alive],
        peak_bytes=plan.peak_bytes[alive],
        live_bytes=live,
    )


def _alive_at(graph: OpGraph, last: int) -> list[int]:
    """Owners of what is alive while the last node runs: inputs, outputs, and what that node touches."""
    touched = [*graph.node_inputs(last), *graph.node_outputs(last), *graph.graph_inputs, *graph.graph_outputs]
    return sorted({_owner(graph, int(t)) for t in touched if t >= 0})


def reserved_with_float_logits(graph: OpGraph, float_as: str, weight_copies: int) -> int:
    """What PyTorch's caching allocator holds of a forward pass that ends with the copy of the logits."""
    from perfpass.graph.allocators import Events, caching  # few models end so

    events = Events.of(graph, float_as)
    size = events.bytes.copy()
    size[(events.use == 0) & (size >= 0)] *= weight_copies
    # The results die with the last events, which free them: the copy is made before.
    end = len(size) - int(np.argmax(size[::-1] >= 0))
    block = np.int32(events.block.max(initial=-1) + 1)
    made = Events.from_columns(
        np.insert(events.block, end, block),
        np.insert(size, end, float_logits_bytes(graph, float_as)),
        np.insert(events.use, end, 2),
    )
    return caching(made).peak_reserved
