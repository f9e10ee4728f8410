"""How many tokens an image becomes, by family: what the processors of transformers do to its width and height.

Each rule is that of the family's processor (transformers, models/*/processing_*.py and image_processing_*.py) with the
limits of its published preprocessor_config.json; patches are what the vision tower sees, tokens what the language model
reads, separators included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perfpass.errors import ArgumentError

_MOST_ASPECT, _MOST_SIDE = 200, 100_000


@dataclass(frozen=True)
class Grid:
    """The facts of a processor: ``patch`` and ``tile`` in pixels (the tile is the tower's square, 0 where it takes any
    size), ``merge`` patches a side that become one token, ``most_tiles``; ``least_pixels`` and ``most_pixels`` of an
    image, or its longest side in ``most_side``.
    """

    patch: int
    tile: int = 0
    merge: int = 1
    most_tiles: int = 1
    least_pixels: int = 0
    most_pixels: int = 0
    most_side: int = 0


@dataclass(frozen=True)
class Seen:
    """One image: ``tiles`` of ``patches`` each pass the tower, ``tokens`` enter the language model."""

    tiles: int
    patches: int
    tokens: int


def _merged(grid: Grid, width: int, height: int) -> Seen:
    """Qwen2-VL and after: sides rounded to whole tokens, pixels within limits."""
    factor = grid.patch * grid.merge
    if max(width, height) > _MOST_ASPECT * min(width, height):
        raise ArgumentError(f"an image of {width}x{height} is longer than {_MOST_ASPECT} times its width")
    sides = [round(side / factor) * factor for side in (height, width)]
    if sides[0] * sides[1] > grid.most_pixels:
        shrink = math.sqrt(height * width / grid.most_pixels)
        sides = [max(factor, math.floor(side / shrink / factor) * factor) for side in (height, width)]
    elif sides[0] * sides[1] < grid.least_pixels:
        grow = math.sqrt(grid.least_pixels / (height * width))
        sides = [math.ceil(side * grow / factor) * factor for side in (height, width)]
    patches = (sides[0] // grid.patch) * (sides[1] // grid.patch)
    return Seen(1, patches, patches // grid.merge**2)


def _fixed(grid: Grid, width: int, height: int) -> Seen:
    """LLaVA 1.5, Gemma 3: the tower's square, whatever the image."""
    side = grid.tile // grid.patch
    return Seen(1, side**2, (side // grid.merge) ** 2)


def _rows(grid: Grid, width: int, height: int) -> Seen:
    """Pixtral, Mistral Small 3: shrunk to the longest side, whole patches, and a token at the end of every row."""
    factor = grid.patch * grid.merge
    shrink = max(height / grid.most_side, width / grid.most_side)
    if shrink > 1:
        height, width = math.floor(height / shrink), math.floor(width / shrink)
    rows, columns = ((side - 1) // factor + 1 for side in (height, width))
    return Seen(1, rows * columns * grid.merge**2, (columns + 1) * rows)


def _anyres(grid: Grid, width: int, height: int) -> Seen:
    """LLaVA-NeXT: the best of some canvases in tiles, without its padding, a token at the end of every row, and the
    whole image as one more tile.
    """
    canvas = _best_canvas(grid, width, height)
    side = grid.tile // grid.patch
    rows, columns = (side * (edge // grid.tile) for edge in canvas)
    if width / height > columns / rows:
        rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
    tiles = canvas[0] * canvas[1] // grid.tile**2
    return Seen(tiles + 1, side**2, rows * columns + rows + side**2)


def _best_canvas(grid: Grid, width: int, height: int) -> tuple[int, int]:
    """Of the canvases of LLaVA-NeXT (1 x 2, 2 x 1, 2 x 2, 3 x 1 and 1 x 3 tiles): the most of the image, the least
    waste.
    """
    best, least = (grid.tile, grid.tile), (math.inf, math.inf)
    for rows, columns in ((1, 2), (2, 1), (2, 2), (3, 1), (1, 3)):
        high, wide = rows * grid.tile, columns * grid.tile
        scale = min(wide / width, high / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        if (found := (-kept, high * wide - kept)) < least:
            best, least = (high, wide), found
    return best


def _nearest_tiles(most: int, tile: int, width: int, height: int) -> int:
    """Tiles of the grid whose shape is nearest the image's; of equal ones the larger that it fills by half."""
    best, least = 1, math.inf
    grids = [(w, h) for w in range(1, most + 1) for h in range(1, most + 1) if w * h <= most]
    for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        off = abs(width / height - columns / rows)
        fills = width * height > 0.5 * tile**2 * columns * rows
        if off < least or (off == least and fills):
            best, least = columns * rows, off
    return best


def _tiled(grid: Grid, width: int, height: int) -> Seen:
    """InternVL: tiles of the nearest shape and, of several, the whole image as one more; two tokens around them."""
    tiles = _nearest_tiles(grid.most_tiles, grid.tile, width, height)
    tiles += 1 if tiles > 1 else 0
    side = grid.tile // grid.patch
    return Seen(tiles, side**2, 2 + tiles * (side // grid.merge) ** 2)


def _canvases(most: int) -> Iterator[tuple[int, int]]:
    for count in range(most, 0, -1):
        yield from ((rows, count // rows) for rows in range(1, count + 1) if count % rows == 0)


def _separated(grid: Grid, width: int, height: int) -> Seen:
    """Llama 4: the canvas that scales the image least, a token after every tile, and the whole image as one more."""
    rows, columns = _fitting(grid, width, height)
    each = (grid.tile // grid.patch // grid.merge) ** 2
    tiles = rows * columns
    separators = rows * columns if tiles > 1 else 0  # one between tiles of a row, and one after every row
    tiles += 1 if tiles > 1 else 0
    return Seen(tiles, (grid.tile // grid.patch) ** 2, 3 + tiles * each + separators)


def _fitting(grid: Grid, width: int, height: int) -> tuple[int, int]:
    scales = {
        canvas: min(canvas[0] * grid.tile / height, canvas[1] * grid.tile / width)
        for canvas in _canvases(grid.most_tiles)
    }
    upward = [scale for scale in scales.values() if scale >= 1]
    chosen = min(upward) if upward else max(scales.values())
    return min((canvas for canvas, scale in scales.items() if scale == chosen), key=lambda c: c[0] * c[1])


def _across(grid: Grid, width: int, height: int) -> Seen:
    """Llama 3.2 vision: tiles are attended across, and one token stands for the image in the text."""
    rows, columns = _fitting(grid, width, height)
    return Seen(rows * columns, (grid.tile // grid.patch) ** 2 + 1, 1)


def _cropped(grid: Grid, width: int, height: int) -> Seen:
    """Phi-3.5-vision: as many tiles as fit in the image's shape, row ends, a divider and the whole image
    (processing_phi3_v.py of the checkpoint).
    """
    ratio = max(width, height) / min(width, height)
    scale = 1
    while scale * math.ceil(scale / ratio) <= grid.most_tiles:
        scale += 1
    long, short = scale - 1, math.ceil(int((scale - 1) * grid.tile / ratio) / grid.tile)
    rows = short if width >= height else long
    side = grid.tile // grid.patch
    each = (side // grid.merge) ** 2
    tokens = (long * short + 1) * each + 1 + (rows + 1) * (side // grid.merge)
    return Seen(long * short + 1, side**2, tokens)


# Limits of the published preprocessors: Qwen2-VL and Qwen2.5-VL 3,136 to 12,845,056 pixels, Qwen3-VL 65,536 to
# 16,777,216; InternVL2 and 3 at most 12 tiles, Llama 4 16, Llama 3.2 4, Phi-3.5 4 (of several images; 16 of one).
_Rule = Callable[[Grid, int, int], Seen]
RULES: dict[str, tuple[_Rule, Grid]] = {
    "qwen2_vl": (_merged, Grid(14, merge=2, least_pixels=3136, most_pixels=12_845_056)),
    "qwen2_5_vl": (_merged, Grid(14, merge=2, least_pixels=3136, most_pixels=12_845_056)),
    "qwen3_vl": (_merged, Grid(16, merge=2, least_pixels=65_536, most_pixels=16_777_216)),
    "qwen3_vl_moe": (_merged, Grid(16, merge=2, least_pixels=65_536, most_pixels=16_777_216)),
    "llava": (_fixed, Grid(14, tile=336)),
    "llava_next": (_anyres, Grid(14, tile=336)),
    "internvl": (_tiled, Grid(14, tile=448, merge=2, most_tiles=12)),
    "internvl_chat": (_tiled, Grid(14, tile=448, merge=2, most_tiles=12)),
    "gemma3": (_fixed, Grid(14, tile=896, merge=4)),
    "llama4": (_separated, Grid(14, tile=336, merge=2, most_tiles=16)),
    "mllama": (_across, Grid(14, tile=560, most_tiles=4)),
    "pixtral": (_rows, Grid(16, most_side=1024)),
    "mistral3": (_rows, Grid(14, merge=2, most_side=1540)),
    "phi3_v": (_cropped, Grid(14, tile=336, merge=2, most_tiles=16)),
}


def seen(family: str, grid: Grid, width: int, height: int) -> Seen:
    """What an image of ``width`` x ``height`` pixels becomes in a family of RULES.

    Raises ArgumentError for sizes that no image has.
    """
    for side in (width, height):
        if isinstance(side, bool) or not isinstance(side, int) or not 1 <= side <= _MOST_SIDE:
            raise ArgumentError(
                f"an image's sides are whole numbers from 1 to {_MOST_SIDE:,}, got {width!r}x{height!r}"
            )
    return RULES[family][0](grid, width, height)
