"""Rules of sizes that several formats share: broadcasting, windows that slide over an axis, equations of einsum."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfpass.errors import LimitError, ShapeError

Shape = tuple[int, ...]
_MOST_FOLLOWED = 1 << 22  # 32 MiB; a model's shapes are some thousand numbers


def broadcast(shapes: Sequence[Shape], what: str) -> Shape:
    """The shape of an element-wise result of ``what`` (NumPy's rule). Raises ShapeError where there is none."""
    rank = max(map(len, shapes), default=0)
    found = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and found[axis] not in (1, size):
                raise ShapeError(f"{what} of shapes {', '.join(map(str, shapes))}, which do not go together")
            if size != 1:
                found[axis] = size
    return tuple(found)


def tiled(shape: Sequence[int], times: Sequence[int]) -> Shape:
    """Repeated along each axis; the shorter of both begins with ones (NumPy's rule)."""
    rank = max(len(shape), len(times))
    sizes, counts = ((*[1] * (rank - len(part)), *part) for part in (shape, times))
    return tuple(size * count for size, count in zip(sizes, counts, strict=True))


def places(
    extent: int, kernel: int, stride: int, dilation: int = 1, before: int = 0, after: int = 0, ceil: bool = False
) -> int:
    """How often a window fits an axis with so many cells added; with ``ceil`` a last one that hangs over counts."""
    room = extent + before + after - dilation * (kernel - 1) - 1
    return (-(-room // stride) if ceil else room // stride) + 1


def same_padding(extent: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Cells to add before and after an axis so that a window has ceil(extent / stride) places; the odd one is after."""
    missing = max((-(-extent // stride) - 1) * stride + dilation * (kernel - 1) + 1 - extent, 0)
    return missing // 2, missing - missing // 2


def spread(extent: int, kernel: int, stride: int, dilation: int, before: int, after: int, more: int = 0) -> int:
    """The extent of a transposed convolution's result, with ``more`` cells of output padding."""
    return (extent - 1) * stride + dilation * (kernel - 1) + 1 - before - after + more


def columns(**values: Sequence[int]) -> dict[str, int]:
    """Attributes of a window, such as kernel_0 to kernel_2 of ``kernel``, each within 32 bits."""
    return {
        f"{name}_{axis}": max(-(2**31), min(2**31 - 1, int(value)))
        for name, sizes in values.items()
        for axis, value in enumerate(sizes[:3])
    }


def einsum(equation: str, shapes: Sequence[Shape], strict: bool = True) -> tuple[dict[str, int], str, int]:
    """Size of every label, the labels of the result, and the product of the sizes that are summed.

    Raises ValueError where ``strict`` and operands and labels are not as many.
    """
    left, _, kept = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for term, shape in zip(left.split(","), shapes, strict=strict):
        sizes |= dict(zip(term, shape, strict=strict))
    return sizes, kept, math.prod(size for label, size in sizes.items() if label not in kept)


class Followed:
    """How many numbers are held of those that shape arithmetic of one file makes."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, count: int) -> None:
        """Raises LimitError over 4 million in all."""
        self.count += count
        if self.count > _MOST_FOLLOWED:
            raise LimitError(f"shape arithmetic over more than {_MOST_FOLLOWED:,} numbers; no more are followed")
