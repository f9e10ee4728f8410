"""What would make a network fit that does not, each tried by the figures that say so: batch, precision, devices.

One search for all who offer it: the verdict of a prediction, `perfpass fit`, and a session of ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from perfpass.decision import CONFIDENCE, Change, percent
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.devices.larger import nearest
from perfpass.errors import PerfPassError, ShapeError
from perfpass.graph import OpGraph, at_batch
from perfpass.interval import Interval
from perfpass.predictors.workload import MAX_BATCH, PRECISIONS, leading_dim
from perfpass.text import size

# What takes less memory, by the precision asked for, the widest first; training keeps fp32 weights (autocast).
_NARROWER = {
    "fp64": ("fp32", "bf16", "fp16", "fp8", "int8"),
    **dict.fromkeys(("fp32", "tf32"), ("bf16", "fp16", "fp8", "int8")),
    **dict.fromkeys(("amp", "amp_bf16"), ("bf16", "fp16", "fp8", "int8")),
    **dict.fromkeys(("fp16", "bf16"), ("fp8", "int8")),
}
_NARROWER_TRAINING = {"fp64": ("fp32", "amp_bf16", "amp"), **dict.fromkeys(("fp32", "tf32"), ("amp_bf16", "amp"))}
_MOST_TRIES = 4  # of a batch whose memory is slow to ask
_FINE = 100  # the largest batch is found to this share of it


class MemoryOf(Protocol):
    """The memory in use of a run with one thing changed, bytes. Raises PerfPassError where it cannot be asked."""

    def __call__(
        self, *, device: Device | None = None, batch: int | None = None, precision: str | None = None
    ) -> Interval: ...


@dataclass(frozen=True)
class Question:
    """A run, and the memory that it has on its ``device``. ``batch``: None where it is not free to set; ``slow``:
    whether its memory at another batch takes more than milliseconds to ask.
    """

    memory: MemoryOf
    device: Device
    batch: int | None
    precision: str
    training: bool = False
    slow: bool = False
    available_bytes: float = 0.0
    confidence: float = CONFIDENCE

    def holds(
        self, *, device: Device | None = None, batch: int | None = None, precision: str | None = None
    ) -> tuple[float, float] | None:
        """Probability and bytes where it fits; None where it does not or cannot be so."""
        try:
            found = self.memory(device=device, batch=batch, precision=precision)
        except PerfPassError:
            return None
        chance = found.probability_fits(self._available(device))
        return (chance, found.median) if chance >= self.confidence else None

    def _available(self, device: Device | None) -> float:
        return device.usable_bytes if device is not None else self.available_bytes or self.device.usable_bytes

    def largest_batch(self) -> int | None:
        """The largest batch that fits; None where 1 does not, or the batch is not free."""
        if self.batch is None:
            return None
        return self._on_a_line(self.batch) if self.slow else self._by_halves(self.batch)

    def _by_halves(self, batch: int) -> int | None:
        def fits(n: int) -> bool:
            return self.holds(batch=n) is not None

        low = next((n for n in (batch, 1) if fits(n)), None)
        if low is None or not (fits(low + 1) or fits(2 * low) or low < batch):
            return low
        high = 2 * low
        while high < MAX_BATCH and fits(high):
            low, high = high, 2 * high
        while high - low > max(1, low // _FINE):
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _on_a_line(self, batch: int) -> int | None:
        """On lines through two batches. Of what is alive at one moment of a step or another the most counts, so memory
        lies above the line through two batches beyond them, and below it between: after the first guess it is asked
        between the largest that fits and the least that does not.
        """
        other = max(1, batch // 2) if batch > 1 else 2
        room = self._available(None)
        try:
            known = {n: self._sure_bytes(n) for n in (batch, other)}
        except PerfPassError:
            return None
        slope = (known[other] - known[batch]) / (other - batch)
        guess = min(int(batch + (room - known[batch]) / max(slope, 1.0)), MAX_BATCH)
        for _ in range(_MOST_TRIES):
            if guess < 1 or guess in known:
                break
            try:
                known[guess] = self._sure_bytes(guess)
            except PerfPassError:
                known[guess] = math.inf
            low = max((n for n, most in known.items() if most <= room), default=0)
            high = min((n for n, most in known.items() if most > room), default=0)
            if not high:
                break
            if not low:
                guess = 1
            elif math.isinf(known[high]):
                guess = math.isqrt(low * high)
            else:
                guess = low + int((high - low) * (room - known[low]) / (known[high] - known[low]))
        return max((n for n, most in known.items() if most <= room), default=None)

    def _sure_bytes(self, batch: int) -> float:
        """What the memory at a batch stays below with the confidence asked for, by the distribution of its interval."""
        return self.memory(batch=batch).room_for(self.confidence)


def changes(asked: Question, most: int | None = None) -> Iterator[Change]:
    """All that would do, the cheapest first. ``most``: the largest batch, where it is known."""
    most = asked.largest_batch() if most is None else most
    if most is not None and asked.batch and most < asked.batch and (held := asked.holds(batch=most)):
        yield Change("load", f"batch {most:,}", {"batch": most}, held[0], int(held[1]))
    for name in (_NARROWER_TRAINING if asked.training else _NARROWER).get(asked.precision, ()):
        held = asked.holds(precision=name) if PRECISIONS[name][1] in asked.device.peak_flops else None
        if held is not None:
            yield Change("quantization", f"precision {name}", {"precision": name}, held[0], int(held[1]))
            break
    yield from devices(asked)


def devices(asked: Question, beyond_bytes: int | None = None) -> Iterator[Change]:
    """The devices with the least memory that hold the run; ``beyond_bytes`` as `perfpass.devices.larger` takes it."""
    for other, held in nearest(asked.device, lambda one: asked.holds(device=one), beyond_bytes):
        yield device_change(other, *held)


def device_change(other: Device, probability: float, needed_bytes: float) -> Change:
    """Another device."""
    text = f"{other.id} ({size(other.usable_bytes)})"
    return Change("device", text, {"device": other.id}, probability, int(needed_bytes))


def in_words(found: Iterable[Change]) -> Iterator[str]:
    """Changes for one line: each with what it needs, larger slices by their profile, other devices together."""
    profile, boards = None, []
    for one in found:
        if one.kind != "device":
            each = " on each" if one.kind == "split" else ""
            yield f"{one.text} ({size(one.needed_bytes)}{each}, P(fits) {percent(one.probability)})"
            continue
        other = find_device(one.options["device"])
        if other.mig_profile is None:
            boards.append(one.text)
        elif profile is None:
            profile = f"the MIG profile {other.mig_profile} ({size(other.memory_bytes)})"
    if profile is not None:
        yield profile
    if boards:
        yield f"device {' or '.join(boards)}"


class AtBatch:
    """A graph at any batch, from it and the same at twice its batch, which is read when it is first needed."""

    def __init__(self, graph: OpGraph, load: Callable[[int], OpGraph]) -> None:
        self._graph, self._load = graph, load
        self._batch = leading_dim(graph)
        self._other: OpGraph | None = None

    def __call__(self, batch: int) -> OpGraph:
        """Raises ShapeError where the batch is not free to set, and what `perfpass.graph.at_batch` does."""
        if batch == self._batch:
            return self._graph
        if self._other is None:
            other = self._load(2 * self._batch)
            if leading_dim(other) != 2 * self._batch:
                raise ShapeError(f"the model's batch is not set by batch={2 * self._batch}")
            self._other = other
        return at_batch(self._graph, self._other, (self._batch, 2 * self._batch), batch)
