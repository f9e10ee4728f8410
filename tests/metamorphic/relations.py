"""The promises: which figures keep which order, how far they may stray from it, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Order = Literal["rises", "falls", "equal"]

# Sums of the same numbers in another order differ so much.
ROUNDING = 1e-9
_SUMS = "sums in another order; none else"
_HOST = "the less work there is, the more a host of unknown speed counts"
_MORE = "more work cannot take less; rounding alone"


@dataclass(frozen=True)
class Relation:
    """Along a chain of questions each of ``figures`` ``order``s, but for ``tolerance`` of its furthest value so far.

    ``reason`` is that of the tolerance. An absent figure (not predicted for a question) is passed over.
    ``equal_evidence``: only answers that say the same of the measurements behind them are compared, since bounds tell
    how much is known, too: they may widen where a question leaves what was measured, and narrow where it comes back.
    """

    promise: str
    order: Order
    figures: tuple[str, ...]
    tolerance: float
    reason: str
    equal_evidence: bool = False


def _medians(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}.median" for name in names)


def _bounds(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}.{part}" for name in names for part in ("low", "high"))


def _runs(promise: str, tolerance: float, reason: str) -> tuple[Relation, Relation]:
    """Of latency, memory and joules of a run: their medians, and their bounds."""
    names = ("latency_ms", "peak_memory_bytes", "energy_j")
    return (
        Relation(promise, "rises", _medians(*names), tolerance, reason),
        Relation(f"{promise} (bounds)", "rises", _bounds(*names), 0.15, f"{reason}; {_HOST}", equal_evidence=True),
    )


def _served(promise: str, *names: str, also: tuple[str, ...] = ()) -> tuple[Relation, Relation]:
    """Of language models: medians (and ``also`` figures without bounds), and bounds of equal evidence."""
    return (
        Relation(promise, "rises", (*_medians(*names), *also), ROUNDING, _MORE),
        Relation(f"{promise} (bounds)", "rises", _bounds(*names), ROUNDING, _MORE, equal_evidence=True),
    )


_PAIRS: dict[str, tuple[Relation, Relation]] = {
    "batch": _runs(
        "latency, memory and joules of a run never fall as the batch grows", 0.05,
        "a network read at batch 1 or 2 has other operators than one read at 8; between two rungs of the ladder (1, 4, "
        "16, ...) nothing is promised but their bounds; the caching allocator's blocks come in steps",
    ),
    "size": _runs(
        "latency, memory and joules never fall as images or sequences grow", 0.15,
        "trees see sizes that no ladder puts in order; the caching allocator's blocks come in steps",
    ),
    "serving-prompt": _served(
        "TTFT, TPOT, requests and memory never fall as prompts grow",
        *("ttft_ms", "running_tpot_ms", "request_ms"), also=("memory_bytes",),
    ),
    # Longer answers mean fewer prefills between two tokens, so TTFT and TPOT may fall.
    "serving-answer": _served(
        "whole requests and memory never fall as answers grow", "request_ms", also=("memory_bytes",)
    ),
    "serving-load": _served(
        "TTFT, TPOT, requests and memory never fall as more requests are in flight",
        *("ttft_ms", "running_tpot_ms", "request_ms"), also=("memory_bytes",),
    ),
    "offline-batch": _served(
        "a larger batch takes no less time, in its prompt and for each token", "latency_s", "prompt_s", "token_s"
    ),
    "offline-prompt": _served(
        "longer prompts take no less time, in the prompt and for each token", "latency_s", "prompt_s", "token_s"
    ),
    "offline-answer": _served("longer answers take no less time", "latency_s"),
}  # fmt: skip
_TIMES = ("latency_ms", "throughput_per_s", "energy_j", "power_w")
_RUN = ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w")
_BOARDS = "same vendor and host, no older architecture (boards.better); bounds tell how well a board is known"

RELATIONS: dict[str, Relation] = {
    **{name: pair[0] for name, pair in _PAIRS.items()},
    **{f"{name}-bounds": pair[1] for name, pair in _PAIRS.items()},
    # One device.
    "batch-throughput-gpu": Relation(
        "samples a second never fall much as the batch grows (GPU)", "rises", _medians("throughput_per_s"), 0.15,
        "a network read at batch 1 has other operators than one read at 2; half-empty waves of thread blocks, "
        "activations that leave the L2 cache: of 365 measured steps of the batch on slices of an A100 (mig.parquet) "
        "one in a hundred falls by over 4.5 %, the worst by 12 %",
    ),
    "batch-throughput-cpu": Relation(
        "samples a second never fall much as the batch grows (CPU)", "rises", _medians("throughput_per_s"), 0.75,
        "activations that leave the L3 cache are read again from memory, which is four times slower; measured on a "
        "2-core EPYC, one thread beside other work: mobilenetv2 33 images a second at batch 1 and 17 at 256, resnet18 "
        "37 at 8 and 23 at 256",
    ),
    "depth": Relation(
        "latency, memory and joules never fall as layers are added or widened",
        "rises", _medians("latency_ms", "peak_memory_bytes", "energy_j"), 0.06,
        "trees see sizes that no ladder puts in order; bounds tell how well a network is known",
    ),
    "training": Relation(
        "a training step takes no less time and memory than the forward pass in it",
        "rises", _medians("latency_ms", "peak_memory_bytes"), 0.35,
        "a CPU's step has no records and no trees, its forward pass has both: they differ by their error",
    ),
    "optimizer": Relation(
        "an optimizer with more state takes no less memory: none, sgd, momentum, adam",
        "rises", (*_medians("peak_memory_bytes"), *_bounds("peak_memory_bytes")), ROUNDING, _MORE,
    ),
    "processes": Relation(
        "more processes on one device make none of them faster",
        "rises", _medians("latency_ms"), ROUNDING, "they share what one had alone",
    ),
    "processes-bounds": Relation(
        "more processes on one device make none of them faster (bounds)",
        "rises", _bounds("latency_ms"), ROUNDING, "they share what one had alone", equal_evidence=True,
    ),
    # One network, several devices.
    "slice": Relation(
        "latency never rises as the MIG slice grows, up to the whole GPU",
        "falls", _medians("latency_ms"), ROUNDING, "a larger slice has every unit of the smaller one",
    ),
    "slice-bounds": Relation(
        "latency never rises as the MIG slice grows, up to the whole GPU (bounds)",
        "falls", _bounds("latency_ms"), 0.25,
        "the larger the slice, the more a host of unknown speed counts, and the less the slice's own error",
        equal_evidence=True,
    ),
    "whole": Relation(
        "a slice with every unit of the GPU is the GPU",
        "equal", (*_medians(*_TIMES), *_bounds(*_TIMES)), ROUNDING,
        "nothing differs that a run could feel; the driver keeps memory of a whole GPU and not of a slice",
    ),
    "board": Relation(
        "a board that is behind in no figure of the catalogue is never slower",
        "falls", _medians("latency_ms"), 0.10,
        f"{_BOARDS}; the correction of an unmeasured board is not that of a measured one",
    ),
    # Language models.
    "serving-throughput": Relation(
        "tokens a second never fall much as more requests are in flight",
        "rises", _medians("output_tokens_per_s"), 0.15,
        "requests that the cache cannot hold wait: of 472 measured steps of the load (serving.parquet) one in twenty "
        "falls by over 14 %",
    ),
    "serving-split": Relation(
        "more tensor ranks never need more memory on each", "falls", ("memory_bytes",), ROUNDING,
        "each holds a part of what one held",
    ),
    "serving-depth": Relation(
        "a larger model of one family is never served faster or in less memory",
        "rises", (*_medians("ttft_ms", "running_tpot_ms"), "memory_bytes"), ROUNDING,
        f"{_MORE}; bounds tell how well a model is known",
    ),
    "serving-board": Relation(
        "a board that is behind in no figure of the catalogue never serves slower",
        "falls", _medians("ttft_ms", "running_tpot_ms"), ROUNDING, _BOARDS,
    ),
    "offline-depth": Relation(
        "a larger model of one family takes no less time",
        "rises", _medians("latency_s"), ROUNDING, f"{_MORE}; bounds tell how well a model is known",
    ),
    "offline-board": Relation(
        "a board that is behind in no figure of the catalogue answers no batch slower",
        "falls", _medians("latency_s"), ROUNDING, _BOARDS,
    ),
    # Every answer by itself.
    "intervals": Relation("low <= median <= high, all finite and at least 0", "equal", (), 0.0, "what the words mean"),
    "throughput": Relation("throughput is batch over latency, bounds changing places", "equal", (), ROUNDING, _SUMS),
    "requests": Relation(
        "a request is its first token and all others; tokens a second are those in flight over its time",
        "equal", (), ROUNDING, _SUMS,
    ),
    "energy": Relation("joules are watts times seconds", "equal", (), ROUNDING, _SUMS),
    "parts": Relation(
        "operator classes add up to the latency, parts of memory to the peak", "equal", (), 1e-6,
        "sums of up to ten thousand rows",
    ),
    "again": Relation("the same question has the same answer", "equal", (), 0.0, "nothing is drawn at random"),
    "doors": Relation(
        "one question has one answer through every door: file, bytes, module, graph, scorer, template, command",
        "equal", (), ROUNDING, "many at once are summed in another order than one",
    ),
}  # fmt: skip


def with_bounds(*names: str) -> tuple[str, ...]:
    """The relations of these names, each with that of its bounds."""
    return tuple(n for name in names for n in (name, f"{name}-bounds") if n in RELATIONS)
