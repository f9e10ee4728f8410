"""Low-rank adapters (LoRA): the matrices that they stand beside, and what they hold, read and compute.

An adapter adds x A B to a matrix's x W: A [in, rank], B [rank, out] (Hu et al. 2021, arXiv:2106.09685). Requests
with different adapters share a step: each adapter among them is read once, each token is multiplied by its own
(Punica, arXiv:2310.18547). A matrix that is split by columns keeps A whole on every GPU, one split by rows B.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.llm.architecture import Attention, LanguageModel, Layer
from perfpass.llm.costs import Number
from perfpass.text import unknown

TARGETS = ("all", "attention", "mlp")
_BYTES = 2.0  # adapters are kept in 16 bits, whatever the model is in (vLLM, lora_dtype)
_MOST_RANK, _MOST_COUNT = 4096, 1_000_000


@dataclass(frozen=True)
class Adapters:
    """``count`` adapters of one ``rank``, asked for equally often, of which ``resident`` fit on the GPU at once (None:
    all). ``targets``: of TARGETS; of a mixture, "mlp" are its dense blocks. A rank or count of 0 is no adapter.
    """

    rank: int
    count: int = 1
    resident: int | None = None
    targets: str = "all"

    def __post_init__(self) -> None:
        for name, value, most in (("rank", self.rank, _MOST_RANK), ("count", self.count, _MOST_COUNT)):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise ArgumentError(f"the {name} of adapters is a whole number from 0 to {most:,}, got {value!r}")
        if self.resident is not None and not 1 <= self.resident <= max(self.count, 1):
            raise ArgumentError(f"of {self.count} adapters 1 to {self.count} are resident, not {self.resident!r}")
        if self.targets not in TARGETS:
            raise ArgumentError(unknown("target of adapters", self.targets, TARGETS))

    @property
    def held(self) -> int:
        """Adapters on the GPU."""
        return self.count if self.resident is None else self.resident

    @property
    def swapped_share(self) -> float:
        """Share of requests whose adapter is fetched from the host first."""
        return 1.0 - self.held / self.count if self.count else 0.0

    def elements(self, model: LanguageModel, tensor: int = 1) -> float:
        """Elements of one adapter on a GPU of ``tensor``."""
        if not self.count:
            return 0.0
        widths = [
            count * (rows / tensor + columns if by_rows else rows + columns / tensor)
            for count, layer in model.layers
            for rows, columns, by_rows, _ in self._of_layer(layer, model.hidden)
        ]
        return self.rank * float(sum(widths))

    def held_bytes(self, model: LanguageModel, tensor: int = 1) -> float:
        """Bytes of the adapters on a GPU."""
        return self.held * self.elements(model, tensor) * _BYTES

    def read_bytes(self, model: LanguageModel, requests: Number, tensor: int = 1) -> Number:
        """Bytes read in a step of ``requests`` that choose their adapters independently: each that is chosen, once."""
        if not self.count:
            return 0.0 * np.asarray(requests, dtype=np.float64)
        chosen = self.count * (1.0 - (1.0 - 1.0 / self.count) ** np.asarray(requests, dtype=np.float64))
        return np.minimum(chosen, np.maximum(requests, 0.0)) * self.elements(model, tensor) * _BYTES

    def flops(self, model: LanguageModel, tokens: Number, tensor: int = 1) -> Number:
        """FLOPs of ``tokens`` on a GPU."""
        return 2.0 * self.elements(model, tensor) * np.asarray(tokens, dtype=np.float64)

    def launches(self, model: LanguageModel) -> int:
        """Kernels of a step: two for each matrix, those that runtimes join (queries, keys and values; gate and up)
        together.
        """
        if not self.count or not self.rank:
            return 0
        kernels = [(n, {joined for *_, joined in self._of_layer(layer, model.hidden)}) for n, layer in model.layers]
        return 2 * sum(n * len(joined) for n, joined in kernels)

    def _of_layer(self, layer: Layer, hidden: int) -> Iterator[tuple[float, float, bool, str]]:
        """Inputs, outputs, whether split by rows, and the kernel that each matrix's adapter shares."""
        if layer.attention and self.targets != "mlp":
            yield from _projections(layer.attention, hidden)
        if layer.dense and self.targets != "attention":
            for _ in range(layer.dense.matrices - 1):
                yield hidden, layer.dense.width, False, "up"
            yield layer.dense.width, hidden, True, "down"


def _projections(a: Attention, hidden: int) -> Iterator[tuple[float, float, bool, str]]:
    queries = a.heads * a.head_dim * (2 if a.gated else 1)
    if a.q_rank:
        yield hidden, a.q_rank, False, "query down"
        yield a.q_rank, queries, False, "query"
    else:
        yield hidden, queries, False, "in"
    if a.is_latent:
        yield hidden, a.kv_rank + a.rope_dim, False, "latent down"
        yield a.kv_rank, a.heads * (a.head_dim - a.rope_dim + a.value_dim), False, "latent up"
    elif not a.borrows:
        yield hidden, a.kv_heads * a.head_dim, False, "in"
        if not a.keys_are_values:
            yield hidden, a.kv_heads * a.value_dim, False, "in"
    yield a.heads * a.value_dim, hidden, True, "out"
