"""The blocks of a network, as its names tell them: what FSDP wraps, and what is checkpointed, one at a time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations

import numpy as np

# What numbers a module: itself, what follows an underscore, or, where neither is a block, the digits at its end.
_NUMBERED = (re.compile(r"(?:.*_)?\d+"), re.compile(r".*\d"))


def blocks(names: Iterable[str]) -> tuple[str, ...]:
    """The modules that are blocks, by the dotted ``names`` of parameters (or of operators), in their order.

    A block is a numbered module of several parts, one of which is a module itself, that holds no other such module:
    ``layer1.0``, ``blocks.3``, ``encoder.layers.encoder_layer_0``; ``denselayer2`` where none is numbered so. Numbered
    modules beside each other of which no two are alike are parts of a block (``block.0.layer.1`` of T5, its attention
    and its layer of products). Empty where the names tell none.
    """
    parts: dict[str, set[str]] = defaultdict(set)
    modules: dict[str, None] = {}
    for name in names:
        words = name.split(".")
        for depth in range(1, len(words)):
            parts[".".join(words[:depth])].add(words[depth])
            modules.setdefault(".".join(words[:depth]))
    several = [m for m in modules if len(parts[m]) > 1 and any(f"{m}.{part}" in parts for part in parts[m])]
    ways = ([m for m in several if pattern.fullmatch(m.rpartition(".")[2])] for pattern in _NUMBERED)
    found = next((way for way in ways if way), [])
    outer = {inner[:cut] for inner in found for cut in range(len(inner)) if inner[cut] == "."}
    inner = [module for module in found if module not in outer]
    return tuple(dict.fromkeys(_whole(module, inner, parts) for module in inner))


def _whole(module: str, inner: list[str], parts: dict[str, set[str]]) -> str:
    """``module``, or the numbered one around it of which all that is in ``inner`` is unlike."""
    place, _, _ = module.rpartition(".")
    while place and not _NUMBERED[0].fullmatch(place.rpartition(".")[2]):
        place, _, _ = place.rpartition(".")
    within = [parts[m] for m in inner if m.startswith(f"{place}.")]
    # Alike are two that share more than half of their parts.
    unlike = len(within) > 1 and not any(2 * len(a & b) > len(a | b) for a, b in combinations(within, 2))
    return place if place and unlike else module


def places(names: Iterable[str], among: tuple[str, ...]) -> np.ndarray:
    """[K] the index in ``among`` of the block that each of ``names`` lies in, -1 for none."""
    number = {block: i for i, block in enumerate(among)}

    def place(name: str) -> int:
        cuts = [cut for cut in range(len(name)) if name[cut] == "."]
        return next((number[name[:cut]] for cut in cuts if name[:cut] in number), -1)

    return np.array([place(name) for name in names], dtype=np.intp)
