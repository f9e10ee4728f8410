"""The memory plan of a run as a snapshot of PyTorch's allocator, which `torch.cuda._memory_viz` reads.

What is in it is the plan's: each buffer of the graph, allocated where its node runs and freed after its last reader.
Addresses are made up (first fit in one segment), stacks are the node's modules, times are predicted medians; the
allocator's own rounding and caching are not in it.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np

from perfpass import __version__
from perfpass.errors import UnsupportedError
from perfpass.graph.allocators import USES, Events
from perfpass.report.nodes import Nodes
from perfpass.whole_file import replacing

_BASE = 0x7F0000000000  # a plausible address; nothing is at it
_ALIGNMENT = 512  # of PyTorch's allocator


def snapshot(nodes: Nodes) -> dict[str, Any]:
    """As `torch.cuda.memory._snapshot` gives it.

    Raises UnsupportedError for a training step, whose order of allocations is not planned.
    """
    if len(nodes.times.phases) > 1:
        raise UnsupportedError(
            "the plan of a training step says how much autograd keeps, not in which order; record a step in PyTorch "
            "for its snapshot, or ask for the forward pass (mode='inference')"
        )
    graph = nodes.run.graph
    events = Events.of(graph, nodes.run.float_as)
    producer = np.asarray(graph.producer)
    start_us = np.concatenate([[0.0], np.cumsum(nodes.ms)]) * 1e3
    space = _Space()
    live: dict[int, tuple[int, int, list[dict[str, Any]]]] = {}
    trace: list[dict[str, Any]] = []
    now = 0.0
    for block, held, use in zip(events.block.tolist(), events.bytes.tolist(), events.use.tolist(), strict=True):
        if held >= 0:
            node = int(producer[block])
            now = float(start_us[node]) if node >= 0 else 0.0
            frames = _frames(nodes, node, USES[use], graph.string(int(graph.tensor_name[block])))
            address = space.take(held)
            live[block] = (address, held, frames)
            trace.append(_event("alloc", address, held, now, frames))
        else:
            address, held, frames = live.pop(block)
            space.give(address)
            trace += [_event(action, address, held, now, frames) for action in ("free_requested", "free_completed")]
    blocks, at = [], _BASE
    for address, held, frames in sorted(live.values(), key=lambda one: one[0]):
        if address > at:
            blocks.append(_block(at, address - at, 0, "inactive", []))
        blocks.append(_block(address, _rounded(held), held, "active_allocated", frames))
        at = address + _rounded(held)
    total = _rounded(space.most)
    if at < _BASE + total:
        blocks.append(_block(at, _BASE + total - at, 0, "inactive", []))
    active = sum(_rounded(held) for _, held, _ in live.values())
    segment = {
        "device": 0,
        "address": _BASE,
        "total_size": total,
        "allocated_size": active,
        "active_size": active,
        "requested_size": sum(held for _, held, _ in live.values()),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }
    trace.insert(0, _event("segment_alloc", _BASE, total, 0.0, []))
    return {
        "segments": [segment],
        "device_traces": [trace],
        "allocator_settings": {},
        "external_annotations": [],
        "perfpass": {"version": __version__, "made_by": "planned from the graph; addresses are made up"},
    }


def write_snapshot(nodes: Nodes, path: str | os.PathLike[str]) -> None:
    """The snapshot as the pickle that PyTorch's tools read. Raises UnsupportedError, FileError."""
    found = snapshot(nodes)
    with replacing(path) as file:
        pickle.dump(found, file, protocol=4)


class _Space:
    """Addresses by first fit."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []  # (begin, end) by address
        self.most = 0

    def take(self, held: int) -> int:
        size, at = max(_rounded(held), _ALIGNMENT), _BASE
        place = 0
        for place, (begin, end) in enumerate(self._taken):  # noqa: B007 - where the loop stopped is the place
            if begin - at >= size:
                break
            at = end
        else:
            place = len(self._taken)
        self._taken.insert(place, (at, at + size))
        self.most = max(self.most, at + size - _BASE)
        return at

    def give(self, address: int) -> None:
        self._taken = [one for one in self._taken if one[0] != address]


def _rounded(held: int) -> int:
    return -(-held // _ALIGNMENT) * _ALIGNMENT


def _frames(nodes: Nodes, node: int, use: str, tensor: str) -> list[dict[str, Any]]:
    """The innermost first, as PyTorch's stacks are."""
    if node < 0:
        return [{"filename": use, "line": 0, "name": tensor or use}]
    stack = [nodes.name[node], *reversed(nodes.modules[node])]
    return [
        {"filename": nodes.operator[node] if i == 0 else "module", "line": node, "name": n} for i, n in enumerate(stack)
    ]


def _event(action: str, address: int, size: int, now: float, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": int(now), "frames": frames}


def _block(address: int, size: int, requested: int, state: str, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}
