"""What a training program holds of a device beside the tensors that are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Number = Any  # a float, or an array [N] of them

# Where sequences differ in length PyTorch's allocator keeps blocks that later steps are too long for, over what the
# longest step makes. By `perfpass.graph.allocators.caching` on steps of decoders with vocabularies of 32,000 to 152,000
# whose lengths are drawn: 0.9 in the middle, and less than this in 19 of 20; with expandable segments 0.02 to 0.18.
# Megatron-LM packs sequences to one length.
UNEQUAL_MORE = 1.4
PACKING = ("megatron",)


@dataclass(frozen=True)
class Held:
    """``beside_bytes`` whatever is counted (buckets, communicators, libraries), and ``share`` of what is counted.

    ``low`` and ``high``: the 5th and the 98th percentile of what was measured over their sum. Below ``least_bytes``,
    the least that was counted of a run that was measured, the ratio is what it is there, and the lower bound is no
    more than what is counted. ``alike``: programs that it may be like, whose upper bounds it reaches.
    """

    beside_bytes: float
    share: float
    low: float
    high: float
    least_bytes: float
    alike: tuple[Held, ...] = ()

    def of(self, counted: Number) -> tuple[Number, Number, Number]:
        """Lower bound, median and upper bound of the bytes, of ``counted`` ones."""
        middle = self.beside_bytes * np.minimum(counted / self.least_bytes, 1.0) + self.share * counted
        low = np.where(counted < self.least_bytes, np.minimum(self.low * middle, counted), self.low * middle)
        high = self.high * middle
        for one in self.alike:
            high = np.maximum(high, one.of(counted)[2])
        return low, middle, high
