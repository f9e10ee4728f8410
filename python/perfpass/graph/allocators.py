"""Allocators of frameworks, simulated exactly on a stream of allocations (docs/predictors/memory.md).

`Events` says in order what a program allocates and frees; `caching` (PyTorch's CUDA allocator), `arena` and `pattern`
(onnxruntime) and `storage_sharing` (TVM) say what that takes of the device. The rules are in the compiled core
(cpp_kernels/src/memory/allocators/), with their sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfpass import _core
from perfpass.late import dataclass

if TYPE_CHECKING:
    from perfpass.graph.opgraph import OpGraph

# What a block holds; `Events.use` are indices into this.
USES: tuple[str, ...] = ("weights", "inputs", "activations", "gradients", "optimizer", "temporaries")
FREE = -1


@dataclass(frozen=True, eq=False)
class Events:
    """What a program allocates and frees, in order.

    ``block`` [E] int32: which block; ``bytes`` [E] int64: its size where the event allocates it, -1 where it frees it;
    ``use`` [E] uint8: index into `USES`, of no meaning where the event frees. A block is allocated once, freed at most
    once.
    """

    block: np.ndarray
    bytes: np.ndarray
    use: np.ndarray

    @classmethod
    def of(cls, graph: OpGraph, float_as: str | None = None) -> Events:
        """One forward run of ``graph``: weights, inputs, then every buffer as `perfpass.graph.liveness.plan` has it.

        Raises ArgumentError for a type that is not floating, LimitError past 2^62 bytes in all.
        """
        return cls(*_core.memory_events(graph.core, float_as or ""))

    @classmethod
    def from_columns(cls, block: object, bytes: object, use: object = ()) -> Events:
        """From any sequences of whole numbers; without ``use`` everything is an activation."""
        return cls(
            np.ascontiguousarray(block, dtype=np.int32),
            np.ascontiguousarray(bytes, dtype=np.int64),
            np.ascontiguousarray(use, dtype=np.uint8),
        )

    def live_by_use(self) -> np.ndarray:
        """[E, 6] bytes requested and live after each event, by use."""
        blocks = self.block.max(initial=-1) + 1
        size, use = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
        makes = self.bytes >= 0
        size[self.block[makes]] = self.bytes[makes]
        use[self.block[makes]] = self.use[makes] if len(self.use) else USES.index("activations")
        change = np.zeros((len(self.block), len(USES)), dtype=np.int64)
        change[np.arange(len(self.block)), use[self.block]] = np.where(makes, self.bytes, -size[self.block])
        return change.cumsum(axis=0)


@dataclass(frozen=True)
class Report:
    """Bytes: the largest sum of live requests, of live blocks (rounding included), and of what the device lent.

    ``by_use`` are the live blocks at the allocated peak, ``reserved`` what is held at the end, ``segments`` the
    requests to the device, ``releases`` how often cached memory was given back for want of more. ``failed_event`` is
    the event that found no memory; nothing after it was run.
    """

    peak_requested: int
    peak_allocated: int
    peak_reserved: int
    reserved: int
    segments: int
    releases: int
    failed_event: int | None
    by_use: dict[str, int]

    @property
    def fits(self) -> bool:
        """Whether every allocation was served."""
        return self.failed_event is None


def _report(core: _core.AllocatorReport) -> Report:
    return Report(
        core.peak_requested,
        core.peak_allocated,
        core.peak_reserved,
        core.reserved,
        core.segments,
        core.releases,
        None if core.failed_event < 0 else core.failed_event,
        dict(zip(USES, core.peak_by_use.tolist(), strict=True)),
    )


def caching(
    events: Events,
    *,
    limit_bytes: int | None = None,
    max_split_bytes: int | None = None,
    roundup_power2_divisions: int = 0,
    garbage_collection_threshold: float = 0.0,
    expandable_segments: bool = False,
) -> Report:
    """PyTorch's CUDA caching allocator on one stream; the options are those of PYTORCH_CUDA_ALLOC_CONF.

    ``limit_bytes`` is what the device has for this process; past it, cached segments are given back as the allocator
    does, and where that is not enough `Report.failed_event` names the event. Raises ArgumentError for events that
    free what is not live and for options out of range.
    """
    return _report(
        _core.simulate_caching(
            events.block,
            events.bytes,
            events.use,
            _core.UNLIMITED_BYTES if limit_bytes is None else int(limit_bytes),
            _core.UNLIMITED_BYTES if max_split_bytes is None else int(max_split_bytes),
            roundup_power2_divisions,
            garbage_collection_threshold,
            expandable_segments,
        )
    )


def arena(
    events: Events,
    *,
    power_of_two: bool = True,
    initial_chunk_bytes: int = 1 << 20,
    max_dead_bytes: int = 128 << 20,
    limit_bytes: int | None = None,
) -> Report:
    """Onnxruntime's BFCArena; ``power_of_two`` off is its strategy kSameAsRequested. Raises ArgumentError."""
    limit = np.iinfo(np.int64).max if limit_bytes is None else limit_bytes
    return _report(
        _core.simulate_arena(
            events.block, events.bytes, events.use, initial_chunk_bytes, max_dead_bytes, int(limit), power_of_two
        )
    )


def pattern(events: Events) -> Report:
    """Onnxruntime's memory pattern: all blocks of ``events`` laid out in one buffer, ``peak_reserved`` bytes long."""
    return _report(_core.simulate_pattern(events.block, events.bytes, events.use))


def storage_sharing(events: Events) -> tuple[Report, np.ndarray]:
    """TVM's storage plan, and [blocks] the storage of each block; ``peak_reserved`` is the sum of all storage.

    Activations share storage; every other use keeps its own, as weights and inputs do in a graph executor.
    """
    core, storage = _core.simulate_storage_sharing(events.block, events.bytes, events.use)
    return _report(core), storage
