"""The plain twin of the native lowering (``native/shared/lower.cpp``): from a call's attributes to canonical ones."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from perfpass.errors import LimitError
from tvm_perfpass.rules import Rule


class AttributeReader(Protocol):
    """The attributes of one call."""

    def integers(self, name: str) -> list[int]:
        """An array of numbers, or one number; empty for None and for sizes that are not known."""

    def text(self, name: str) -> str:
        """Empty for None and for what is no text."""


@dataclass
class Tensor:
    """A tensor that a walk has met; ``constant``: its elements are in the module."""

    dtype: str
    shape: tuple[int, ...]
    role: str
    name: str = ""
    constant: bool = False


class Lowering:
    """The canonical operator and the attributes of one call; may show blocked tensors by their logical shape."""

    def __init__(
        self, tensors: list[Tensor], rule: Rule, attrs: AttributeReader | None, inputs: list[int], outputs: list[int]
    ) -> None:
        self.tensors = tensors
        self.op = rule.op
        self.attributes: dict[str, int] = dict(rule.fixed)
        if attrs is None:
            return
        self.attrs = attrs
        for name, how, column in rule.reads:
            if how == "equation":
                self.attributes[column] = contraction(attrs.text(name), [tensors[t].shape for t in inputs])
            elif how != "pads":
                self.read(name, how, column)
        if rule.form in ("conv", "conv_transpose") and inputs and outputs:
            self.lower_conv(rule.form == "conv_transpose", inputs, outputs[0])
        elif rule.form in ("pool", "global_pool", "adaptive_pool") and inputs and outputs:
            self.lower_pool(rule.form == "adaptive_pool", inputs[0], outputs[0])
        elif rule.form == "dense_pack" and len(inputs) > 1:
            weight = tensors[inputs[1]]
            if len(weight.shape) == 3:
                weight.shape = (weight.shape[0] * weight.shape[2], weight.shape[1])
        elif rule.form == "attention" and len(inputs) > 1:
            heads = [shape[2] if len(shape := tensors[t].shape) == 4 else 0 for t in inputs[:2]]
            self.attributes |= {"num_heads": heads[0], "num_kv_heads": heads[1]}
            self.attributes["causal"] = int(attrs.text("causal_mask") != "")
        for name, how, column in rule.reads:
            if how == "pads":
                self.read(name, how, column)

    def read(self, name: str, how: str, column: str) -> None:
        values = self.attrs.integers(name)
        if any(abs(value) > 2**31 - 1 for value in values):
            raise LimitError(f"attribute {name} is {values}; it must fit in 32 bits")
        if how in ("int", "axis"):
            if len(values) == 1:
                self.attributes[column] = values[0]
        elif how == "ints":
            self.attributes |= {f"{column}_{i}": value for i, value in enumerate(values[:3])}
        else:
            rank = self.attributes.get("spatial_rank", 0) or 2
            if len(values) == 1:
                values = values * (2 * rank)
            elif len(values) == rank:
                values = values * 2
            if len(values) >= 2 * rank:
                for i in range(rank):
                    self.attributes[f"pad_begin_{i}"] = values[i]
                    self.attributes[f"pad_end_{i}"] = values[rank + i]

    def lower_conv(self, transposed: bool, inputs: list[int], output: int) -> None:
        data_layout = self.attrs.text("data_layout")
        data, result = self.tensors[inputs[0]], self.tensors[output]
        letters = unblock(data, data_layout)
        out_letters = unblock(result, self.attrs.text("out_layout") or data_layout)
        self.set_layout(letters, len(data.shape))
        if len(inputs) < 2:
            return
        weight = self.tensors[inputs[1]]
        blocks, order = parse_layout(self.attrs.text("kernel_layout"))
        logical = logical_shape(blocks, order, weight.shape)
        if not logical:
            return
        spatial = tuple(size for letter, size in zip(order, logical, strict=True) if letter not in "OI")
        for i, size in enumerate(spatial[:3]):
            self.attributes.setdefault(f"kernel_{i}", size)
        blocked = len(blocks) != len(order)
        if not blocked and order[:2] == ("IO" if transposed else "OI"):
            self.attributes["weight_layout"] = 2 if transposed else 0
            return
        if not blocked and not transposed and order[2:] and order[-2:] == "IO":
            self.attributes["weight_layout"] = 1
            return
        self.attributes["weight_layout"] = 2 if transposed else 0
        source, source_letters = (data, letters) if transposed else (result, out_letters)
        at = source_letters.find("C")
        channels = source.shape[at] if 0 <= at < len(source.shape) else 0
        known = channels * math.prod(spatial)
        shape = (channels, math.prod(logical) // known if known else 0, *spatial)
        if math.prod(shape) == math.prod(logical):
            weight.shape = shape

    def lower_pool(self, adaptive: bool, data_id: int, result_id: int) -> None:
        layout = self.attrs.text("layout")
        data, result = self.tensors[data_id], self.tensors[result_id]
        letters = unblock(data, layout)
        unblock(result, layout)
        self.set_layout(letters, len(data.shape))
        if not adaptive or len(data.shape) != len(result.shape):
            return
        first = 1 if self.attributes["channels_last"] else 2
        rank = self.attributes["spatial_rank"]
        sizes = list(zip(data.shape[first : first + rank], result.shape[first : first + rank], strict=True))
        if all(out == 1 for _, out in sizes):
            self.op = "global_" + self.op
            return
        for i, (before, after) in enumerate(sizes):
            self.attributes[f"kernel_{i}"] = -(-before // max(after, 1))
            self.attributes[f"stride_{i}"] = max(before // max(after, 1), 1)

    def set_layout(self, letters: str, rank: int) -> None:
        self.attributes["channels_last"] = int(rank > 2 and letters.endswith("C"))
        self.attributes["spatial_rank"] = min(rank - 2, 3) if rank > 2 else 0


def parse_layout(text: str) -> tuple[str, str]:
    """(letter of every dimension, letters of the unblocked layout): NCHW8c is ("NCHWC", "NCHW")."""
    return "".join(c for c in text if c.isalpha()).upper(), "".join(c for c in text if c.isupper())


def logical_shape(blocks: str, order: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape by the letters of the unblocked layout; empty if the layout does not fit the rank."""
    if len(blocks) != len(shape):
        return ()
    sizes = dict.fromkeys(order, 1)
    for letter, size in zip(blocks, shape, strict=True):
        if letter not in sizes:
            return ()
        sizes[letter] *= size
    return tuple(sizes[letter] for letter in order)


def unblock(tensor: Tensor, layout: str) -> str:
    """Shows a tensor by its logical shape; returns the letters of the unblocked layout."""
    blocks, order = parse_layout(layout)
    if len(blocks) != len(order):
        tensor.shape = logical_shape(blocks, order, tensor.shape) or tensor.shape
    return order


def contraction(equation: str, shapes: list[tuple[int, ...]]) -> int:
    """Product of the sizes of the labels of an einsum that its result does not have."""
    left, arrow, kept = equation.partition("->")
    if not arrow:
        kept = "".join(c for c, n in Counter(left).items() if c.isalpha() and n == 1)
    sizes: dict[str, int] = {}
    for term, shape in zip(left.replace(" ", "").split(","), shapes, strict=False):
        before, _, after = term.partition("...")
        if len(before) + len(after) <= len(shape):
            sizes |= dict(zip(before, shape, strict=False))
            sizes |= dict(zip(after, shape[len(shape) - len(after) :], strict=True))
    return math.prod(size for label, size in sizes.items() if label not in kept)
