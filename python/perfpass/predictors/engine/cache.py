"""A replica's paged cache: blocks that requests own, and blocks of prefixes that they share, by the prefix's id.

An id stands for a prefix up to and with its block, so equal ids are equal prefixes (as of vLLM's block hashes and of
the nodes of SGLang's radix tree). What nobody reads any more stays until its room is needed; the longest unused goes
first, of one request its end before its beginning.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PagedCache:
    """``capacity`` blocks; a shared id takes ``unit`` of them. ``used``: those that running requests hold."""

    __slots__ = ("capacity", "idle", "readers", "unit", "used")

    def __init__(self, capacity: int, unit: int = 1) -> None:
        self.capacity = capacity
        self.unit = unit
        self.used = 0
        self.readers: dict[int, int] = {}  # of ids, also of those in idle (0)
        self.idle: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that can be taken: free ones and those that nobody reads."""
        return self.capacity - self.used

    @property
    def filled(self) -> int:
        """Blocks with something in them."""
        return self.used + self.unit * len(self.idle)

    def found(self, ids: Sequence[int], most: int) -> int:
        """How many of the first ``most`` ids are here, from the first one on."""
        readers = self.readers
        for i in range(min(most, len(ids))):
            if ids[i] not in readers:
                return i
        return min(most, len(ids))

    def unread(self, ids: Sequence[int], count: int) -> int:
        """Blocks of the first ``count`` ids that nobody reads now."""
        idle = self.idle
        return self.unit * sum(1 for i in range(count) if ids[i] in idle)

    def read(self, ids: Sequence[int]) -> None:
        """One more reader of ids that are here."""
        for one in ids:
            if not self.readers[one]:
                del self.idle[one]
                self.used += self.unit
            self.readers[one] += 1

    def take(self, blocks: int) -> None:
        """Blocks of a request's own; the caller has asked `available`."""
        self.used += blocks
        while self.filled > self.capacity:
            gone, _ = self.idle.popitem(last=False)
            del self.readers[gone]

    def share(self, ids: Sequence[int]) -> list[int]:
        """Own blocks of a request become shared where nobody else has the id: those ids."""
        new = [one for one in ids if one not in self.readers]
        for one in new:
            self.readers[one] = 1
        return new

    def release(self, own: int, shared: Sequence[int]) -> None:
        """What a request held: its own blocks are free, shared ones stay."""
        self.used -= own
        for one in reversed(shared):
            self.readers[one] -= 1
            if not self.readers[one]:
                self.idle[one] = None
                self.used -= self.unit
