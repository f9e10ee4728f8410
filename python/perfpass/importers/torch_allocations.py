"""What a PyTorch program takes from its CPU allocator and gives back, event by event, as PyTorch's profiler sees it.

Nothing is run differently for it: no tensor has a subclass and no mode sees an operator, so gradients are taken over
and added in place as ever. Blocks are as large as they were asked for; `perfpass.graph.allocators.caching` says what
PyTorch's allocator of CUDA devices would make of the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.graph.allocators import FREE, Events


@dataclass(frozen=True, eq=False)
class Allocations:
    """``events`` of a run; the first of them stand for ``earlier_bytes`` that were there before and went away in it."""

    events: Events
    earlier_bytes: int

    @property
    def live_bytes(self) -> np.ndarray:
        """[E] bytes alive after each event, over what was alive before the run."""
        return self.events.live_by_use().sum(axis=1) - self.earlier_bytes

    @property
    def peak_bytes(self) -> int:
        """The most that was alive at once, over what was alive before the run."""
        return int(self.live_bytes.max(initial=0))

    @property
    def left_bytes(self) -> int:
        """What the run left alive, less what it freed of before."""
        return int(self.live_bytes[-1]) if len(self.events.block) else 0


def allocations(run: Callable[[], Any]) -> Allocations:
    """Runs ``run`` once under the profiler. A program's first run in a process takes caches of its libraries, too."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    found = sorted(_found(profiler.profiler.kineto_results.experimental_event_tree()))
    block: list[int] = []
    size: list[int] = []
    earlier: list[int] = []
    live: dict[int, int] = {}
    made = 0
    for _, pointer, change in found:
        if change > 0:
            live[pointer] = made
            made += 1
        elif pointer not in live:
            earlier.append(-change)
            live[pointer] = -len(earlier)
        block.append(live.pop(pointer) if change < 0 else live[pointer])
        size.append(change if change > 0 else FREE)
    blocks = np.array([*range(-1, -len(earlier) - 1, -1), *block], dtype=np.int64)
    return Allocations(
        Events.from_columns(np.where(blocks < 0, made - 1 - blocks, blocks), [*earlier, *size]), sum(earlier)
    )


def _found(nodes: Any) -> Iterator[tuple[int, int, int]]:
    for node in nodes:
        fields = node.extra_fields
        if hasattr(fields, "alloc_size"):
            yield node.start_time_ns, fields.ptr, fields.alloc_size
        yield from _found(node.children)
