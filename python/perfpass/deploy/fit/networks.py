"""Whether a network that is no language model fits: by the figures of `perfpass.predict`, whose bounds are measured.

What is in use and its upper bound come from the plan of the graph (`perfpass.predictors.memory`). The graph at two
batches gives it at every other (`perfpass.graph.at_batch`), so the largest batch that keeps the confidence is found by
asking the same model of memory again, without reading the network again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perfpass.decision import answer_of
from perfpass.deploy.fit import candidates
from perfpass.deploy.fit.result import Change, DeviceFit, Largest
from perfpass.devices import Device
from perfpass.errors import PerfPassError, ShapeError
from perfpass.graph import OpGraph, at_batch
from perfpass.importers import load
from perfpass.importers.model_argument import opened
from perfpass.prediction import MemoryFigures, Prediction
from perfpass.predictors import predict
from perfpass.predictors.assemble import peak_memory
from perfpass.predictors.workload import PRECISIONS, leading_dim
from perfpass.text import size

# What takes less memory, the widest first; a training step keeps fp32 weights (autocast).
_NARROWER = ("bf16", "fp16", "fp8", "int8")
_NARROWER_TRAINING = ("amp_bf16", "amp")
_MOST_DEVICES, _MOST_BATCH, _TRIES = 3, 1 << 20, 3


@dataclass(frozen=True)
class Workload:
    """How a network is asked: its sizes as `perfpass.load` takes them, and the rest as `predict_graph` does."""

    sizes: Mapping[str, Any]
    how: Mapping[str, Any]
    confidence: float


class Network:
    """A network's memory on any device, at any batch and precision, read once."""

    def __init__(self, model: Any, workload: Workload) -> None:
        """Reads the network. Raises what reading it does."""
        self._workload, self._asked = workload, model
        self._model, shapes, dims = opened(model, workload.sizes.get("input_shape"), workload.sizes.get("dims"))
        self._sizes = {"input_shape": shapes, "dims": dims}
        self.graph = self._load(workload.sizes.get("batch"))
        self.batch = leading_dim(self.graph)
        self._other: OpGraph | None = None

    def _load(self, batch: int | None) -> OpGraph:
        return load(self._model, batch=batch, **self._sizes)

    def at(self, batch: int) -> OpGraph:
        """The graph at a batch. Raises PerfPassError where the batch is not free to set."""
        if batch == self.batch:
            return self.graph
        if self._other is None:
            other = self._load(2 * self.batch)
            if leading_dim(other) != 2 * self.batch:
                raise ShapeError(f"the model's batch is not set by batch={2 * self.batch}")
            self._other = other
        return at_batch(self.graph, self._other, (self.batch, 2 * self.batch), batch)

    def figures(self, device: Device, batch: int | None = None, **changed: Any) -> MemoryFigures:
        """Memory on a device. Raises PerfPassError as `predict_graph` and `at` do."""
        size_of = self.batch if batch is None else batch
        how = {**self._workload.how, **changed}
        if how.get("mode", "inference") == "inference":
            named = {name: how[name] for name in ("precision", "runtime", "layout") if name in how}
            return MemoryFigures(peak_memory(self.at(size_of), device, batch=size_of, **named))
        return self.predicted(device, size_of, **changed).memory

    def predicted(self, device: Device, batch: int | None = None, **changed: Any) -> Prediction:
        """As `perfpass.predict` answers, which records a training step of a module. Raises as it does."""
        sizes = {name: value for name, value in self._workload.sizes.items() if value is not None}
        if batch is not None and batch != self.batch:
            sizes["batch"] = batch
        return predict(self._asked, device, **sizes, **{**self._workload.how, **changed})

    @property
    def trains(self) -> bool:
        """Whether a training step is asked."""
        return bool(self._workload.how.get("mode") == "training")

    def holds(self, device: Device, batch: int | None = None, **changed: Any) -> tuple[float, float] | None:
        """Probability and bytes where it fits; None where it does not or cannot be so."""
        try:
            found = self.figures(device, batch, **changed)
        except PerfPassError:
            return None
        return self.held(found, device)

    def held(self, figures: MemoryFigures, device: Device) -> tuple[float, float] | None:
        """Probability and bytes where figures fit a device; else None."""
        chance = figures.probability_fits(device.memory_bytes)
        return (chance, figures.in_use.median) if chance >= self._workload.confidence else None


def fitted(network: Network, device: Device, workload: Workload) -> tuple[DeviceFit, Prediction]:
    """The answer, and the prediction that it is made of. Raises as `perfpass.predict`."""
    found = network.predicted(device)
    chance = found.memory.probability_fits(device.memory_bytes)
    answer = answer_of(chance, workload.confidence)
    if network.trains:
        most = _most_of_steps(network, device, found.memory.in_use.high)
    else:
        most = _most(lambda n: network.holds(device, n) is not None, network.batch)
    fit = DeviceFit(
        device=device.id,
        device_name=device.name,
        gpus=1,
        answer=answer,
        probability=chance,
        needed=found.memory.in_use,
        limit_bytes=device.memory_bytes,
        limit="",
        memory_bytes=device.memory_bytes,
        parts={name: int(value) for name, value in found.breakdown["memory_bytes"].items() if value >= 1},
        cache={},
        largest=Largest(batch=most),
        reason=_reason(found, device, answer),
        changes=() if answer == "yes" else tuple(_changes(network, device, workload, most, found)),
    )
    return fit, found


def _reason(found: Prediction, device: Device, answer: str) -> str:
    if answer == "yes":
        return ""
    need, has = found.memory.in_use, size(device.memory_bytes)
    if answer == "no":
        return f"{size(need.median)} are likely in use, and there are {has}"
    return f"{size(need.median)} are likely in use, but up to {size(need.high)} possible in {has}"


def _most(fits: Callable[[int], bool], batch: int) -> int | None:
    """The largest batch that fits, by doubling and halving; None where 1 does not, or the batch is not free."""
    low = next((n for n in (batch, 1) if fits(n)), None)
    if low is None or not (fits(low + 1) or fits(2 * low) or low < batch):
        return low
    high = 2 * low
    while high < _MOST_BATCH and fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 100):  # to a hundredth
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _most_of_steps(network: Network, device: Device, high: float) -> int | None:
    """The same of a training step, which is slow to ask: on the line through two batches, and down where it is over."""
    batch, other = network.batch, max(1, network.batch // 2) if network.batch > 1 else 2
    try:
        slope = (network.figures(device, other).in_use.high - high) / (other - batch)
    except PerfPassError:
        return None
    guess = int(batch + (device.memory_bytes - high) / max(slope, 1.0))
    for _ in range(_TRIES):
        if guess < 1 or guess == batch:
            break
        if network.holds(device, guess):
            return guess
        guess = min(guess - 1, guess * 9 // 10)
    return batch if network.holds(device) else None


def _changes(
    network: Network, device: Device, workload: Workload, most: int | None, found: Prediction
) -> Iterator[Change]:
    if most is not None and most < network.batch and (held := network.holds(device, most)):
        yield Change("load", f"batch {most:,}", {"batch": most}, held[0], int(held[1]))
    ladder = _NARROWER_TRAINING if workload.how.get("mode") == "training" else _NARROWER
    now = workload.how.get("precision", "fp32")
    for name in ladder[ladder.index(now) + 1 :] if now in ladder else ladder:
        held = network.holds(device, precision=name) if PRECISIONS[name][1] in device.peak_flops else None
        if held is not None:
            yield Change("quantization", f"precision {name}", {"precision": name}, held[0], int(held[1]))
            break
    told = 0
    for other in candidates.larger(device):
        if told == _MOST_DEVICES:
            return
        # A step's memory is recorded anew on each device, which takes seconds; it hardly differs between boards.
        held = network.held(found.memory, other) if network.trains else network.holds(other)
        if held:
            text = f"{other.id} ({size(other.memory_bytes)})"
            yield Change("device", text, {"device": other.id}, held[0], int(held[1]))
            told += 1
