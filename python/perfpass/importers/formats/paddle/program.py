"""A Paddle program as both of its file forms hold it: blocks of operators over numbered values, in PIR's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MOST_OPERATORS = 1_000_000
MOST_DEPTH = 64  # of blocks within blocks

Slot = int | None | list[int]  # one value, an absent one, or several in one slot


@dataclass
class Value:
    """What an operator makes: ``shape`` has -1 where the file leaves a size open; None is no tensor."""

    dtype: str
    shape: tuple[int, ...] | None
    name: str = ""


@dataclass
class Op:
    """``name``: of PIR, without dialect and in-place underscore; ``source``: as the file has it."""

    name: str
    source: str
    inputs: list[Slot]
    outputs: list[int]
    attributes: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Block:
    """``arguments``: values that a loop hands in. The last operator of an inner block yields its results."""

    operators: list[Op] = field(default_factory=list)
    arguments: list[int] = field(default_factory=list)


@dataclass
class Program:
    values: dict[int, Value] = field(default_factory=dict)
    parameters: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    block: Block = field(default_factory=Block)
