"""The promises: which figures keep which order, how far they may stray from it, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Sums of the same numbers in another order differ so much.
ROUNDING = 1e-9
Order = Literal["rises", "falls", "equal"]


@dataclass(frozen=True)
class Relation:
    """Along a chain of questions each of ``figures`` ``order``s, but for ``tolerance`` of its furthest value so far.

    An absent figure (not predicted for a question) is passed over.
    """

    promise: str
    order: Order
    figures: tuple[str, ...]
    tolerance: float
    reason: str


def _bounds(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}.{part}" for name in names for part in ("median", "low", "high"))


_BY_CONSTRUCTION = "more work cannot take less; only rounding"
_RUN = ("latency_ms", "peak_memory_bytes", "energy_j")
# Throughput that has reached its most: see docs/internals/testing.md.
_SATURATED_GPU, _SATURATED_CPU = 0.10, 0.30

RELATIONS: dict[str, Relation] = {
    # One device, one network.
    "batch": Relation(
        "latency, memory and joules of a run never fall as the batch grows",
        "rises", _bounds(*_RUN), ROUNDING, _BY_CONSTRUCTION,
    ),
    "batch-throughput-gpu": Relation(
        "samples a second never fall much as the batch grows (GPU)",
        "rises", ("throughput_per_s.median",), _SATURATED_GPU,
        "a last wave of thread blocks that is half empty, and activations that leave the L2 cache",
    ),
    "batch-throughput-cpu": Relation(
        "samples a second never fall much as the batch grows (CPU)",
        "rises", ("throughput_per_s.median",), _SATURATED_CPU,
        "activations that leave the L3 cache are read again from memory, which is four times slower",
    ),
    "size": Relation(
        "latency, memory and joules never fall as images or sequences grow",
        "rises", _bounds(*_RUN), ROUNDING, _BY_CONSTRUCTION,
    ),
    "depth": Relation(
        "latency, memory and joules never fall as layers are added or widened",
        "rises", _bounds(*_RUN), ROUNDING, _BY_CONSTRUCTION,
    ),
    "training": Relation(
        "a training step takes no less time and memory than the forward pass in it",
        "rises", ("latency_ms.median", "peak_memory_bytes.median"), ROUNDING, _BY_CONSTRUCTION,
    ),
    "optimizer": Relation(
        "an optimizer with more state takes no less memory: none, sgd, momentum, adam",
        "rises", _bounds("peak_memory_bytes"), ROUNDING, "sgd keeps nothing, momentum one tensor, adam two a weight",
    ),
    "processes": Relation(
        "more processes on one device make none of them faster",
        "rises", _bounds("latency_ms"), ROUNDING, "they share what one had alone",
    ),
    # One network, several devices.
    "slice": Relation(
        "latency never rises as the MIG slice grows, up to the whole GPU",
        "falls", _bounds("latency_ms"), ROUNDING, "a larger slice has every unit of the smaller one",
    ),
    "whole": Relation(
        "a slice with every unit of the GPU is the GPU",
        "equal", _bounds(*_RUN, "throughput_per_s", "power_w"), ROUNDING, "nothing differs that a run could feel",
    ),
    "board": Relation(
        "a board that is behind in no figure of the catalogue is never slower",
        "falls", _bounds("latency_ms"), ROUNDING, "same vendor and host, no older architecture: see scenes.better",
    ),
    # Language models.
    "serving-prompt": Relation(
        "TTFT, TPOT, requests and memory never fall as prompts grow",
        "rises", (*_bounds("ttft_ms", "tpot_ms", "request_ms"), "memory_bytes"), ROUNDING, _BY_CONSTRUCTION,
    ),
    "serving-answer": Relation(
        "TPOT, requests and memory never fall as answers grow",
        # Longer answers mean fewer prefills between two tokens: TPOT may fall by what they took.
        "rises", (*_bounds("request_ms"), "memory_bytes"), ROUNDING, _BY_CONSTRUCTION,
    ),
    "serving-load": Relation(
        "TTFT, TPOT, requests and memory never fall as more requests are in flight",
        "rises", (*_bounds("ttft_ms", "tpot_ms", "request_ms"), "memory_bytes"), ROUNDING, _BY_CONSTRUCTION,
    ),
    "serving-throughput": Relation(
        "tokens a second never fall much as more requests are in flight",
        "rises", ("output_tokens_per_s.median",), _SATURATED_GPU, "requests beyond what the cache holds wait",
    ),
    "serving-split": Relation(
        "more tensor ranks never need more memory on each",
        "falls", ("memory_bytes",), ROUNDING, "each holds a part of what one held",
    ),
    "serving-depth": Relation(
        "a larger model of one family is never served faster or in less memory",
        "rises", (*_bounds("ttft_ms", "tpot_ms"), "memory_bytes"), ROUNDING, _BY_CONSTRUCTION,
    ),
    "serving-board": Relation(
        "a board that is behind in no figure of the catalogue never serves slower",
        "falls", _bounds("ttft_ms", "tpot_ms"), ROUNDING, "same vendor and host, no older architecture",
    ),
    "offline-batch": Relation(
        "a larger batch takes no less time, in its prompt and for each token",
        "rises", _bounds("latency_s", "prompt_s", "token_s"), ROUNDING, _BY_CONSTRUCTION,
    ),
    "offline-prompt": Relation(
        "longer prompts take no less time, in the prompt and for each token",
        "rises", _bounds("latency_s", "prompt_s", "token_s"), ROUNDING, _BY_CONSTRUCTION,
    ),
    "offline-answer": Relation(
        "longer answers take no less time", "rises", _bounds("latency_s"), ROUNDING, _BY_CONSTRUCTION,
    ),
    "offline-depth": Relation(
        "a larger model of one family takes no less time",
        "rises", _bounds("latency_s"), ROUNDING, _BY_CONSTRUCTION,
    ),
    "offline-board": Relation(
        "a board that is behind in no figure of the catalogue is never slower",
        "falls", _bounds("latency_s"), ROUNDING, "same vendor and host, no older architecture",
    ),
    # Every answer by itself.
    "intervals": Relation(
        "low <= median <= high, all finite and at least 0", "equal", (), 0.0, "the meaning of the words",
    ),
    "throughput": Relation(
        "throughput is batch over latency, bounds changing places", "equal", (), ROUNDING, "the same figure twice",
    ),
    "energy": Relation(
        "joules are watts times seconds", "equal", (), ROUNDING, "the same figure twice",
    ),
    "parts": Relation(
        "operator classes add up to the latency, parts of memory to the peak", "equal", (), 1e-6,
        "sums of up to ten thousand rows",
    ),
    "again": Relation(
        "the same question has the same answer", "equal", (), 0.0, "nothing is drawn at random",
    ),
    "doors": Relation(
        "one question has one answer through every door: file, bytes, graph, scorer, template, command", "equal", (),
        ROUNDING, "many at once are summed in another order than one",
    ),
}  # fmt: skip
