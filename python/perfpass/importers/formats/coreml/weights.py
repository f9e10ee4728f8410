"""Weights that are kept compressed: as they are stored, and dequantised where an operator takes no such weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfpass.importers.draft import Draft
from perfpass.importers.formats.shapes import Shape


@dataclass(frozen=True)
class Compressed:
    """``weight`` holds ``bits`` an element of ``shape``; ``parts``: scales, offsets, tables."""

    weight: int
    shape: Shape
    dtype: str
    parts: tuple[int, ...]
    bits: int


class Weights:
    """Compressed weights of a draft; each is dequantised once at most."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._made: dict[Compressed, int] = {}

    def stored(self, name: str, size_bytes: int, rows: int) -> int:
        """A tensor of so many bytes, in ``rows`` where they divide it."""
        rows = rows if rows > 0 and size_bytes % rows == 0 else 1
        return self.draft.tensor("uint8", (rows, size_bytes // rows), "weight", name)

    def plain(self, packed: Compressed, repeat: float = 1.0) -> int:
        """The dequantised weight."""
        if packed not in self._made:
            made = self.draft.tensor(packed.dtype, packed.shape)
            name = self.draft.tensors[packed.weight].name
            inputs = [packed.weight, *packed.parts]
            attributes = {"weight_bits": packed.bits}
            self.draft.node("dequantize", "constexpr", name, attributes, inputs, [made], repeat)
            self._made[packed] = made
        return self._made[packed]


def bits_of_table(entries: int) -> int:
    """Bits of an index into a table."""
    return max(1, math.ceil(math.log2(max(entries, 2))))
