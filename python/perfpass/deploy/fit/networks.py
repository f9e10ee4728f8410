"""Whether a network that is no language model fits: by the figures of `perfpass.predict`, whose bounds are measured.

What is in use and its upper bound come from the plan of the graph (`perfpass.predictors.memory`). The graph at two
batches gives it at every other (`perfpass.graph.at_batch`), so the largest batch that keeps the confidence is found by
asking the same model of memory again, without reading the network again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfpass.decision import Answer, answer_on_fit
from perfpass.deploy.fit.result import DeviceFit, Largest
from perfpass.devices import Device
from perfpass.errors import PerfPassError
from perfpass.graph import OpGraph
from perfpass.importers import load
from perfpass.importers.model_argument import opened
from perfpass.prediction import Interval, Prediction
from perfpass.predictors import predict, remedies
from perfpass.predictors.assemble import peak_memory
from perfpass.predictors.remedies import Question
from perfpass.predictors.workload import leading_dim
from perfpass.text import size


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
        self._at = remedies.AtBatch(self.graph, self._load)

    def _load(self, batch: int | None) -> OpGraph:
        return load(self._model, batch=batch, **self._sizes)

    def predicted(self, device: Device, batch: int | None = None, **changed: Any) -> Prediction:
        """As `perfpass.predict` answers, which records a training step of a module. Raises as it does."""
        sizes = {name: value for name, value in self._workload.sizes.items() if value is not None}
        if batch is not None and batch != self.batch:
            sizes["batch"] = batch
        return predict(self._asked, device, **sizes, **{**self._workload.how, **changed})

    def runs_on(self, device: Device) -> bool:
        """Whether a device has the arithmetic and the runtime; of a step, which takes seconds to record, it is so."""
        try:
            return self.trains or bool(self.predicted(device))
        except PerfPassError:
            return False

    @property
    def trains(self) -> bool:
        """Whether a training step is asked."""
        return bool(self._workload.how.get("mode") == "training")

    def question(self, on: Device, here: Interval | None = None) -> Question:
        """Its memory on a device and with changes. ``here``: what is known of it there, where a step is asked."""

        def memory(*, device: Device | None = None, batch: int | None = None, precision: str | None = None) -> Interval:
            changed = {} if precision is None else {"precision": precision}
            how, n = {**self._workload.how, **changed}, batch or self.batch
            if not self.trains:
                named = {name: how[name] for name in ("precision", "runtime", "layout") if name in how}
                return peak_memory(self._at(n), device or on, batch=n, **named)
            # A step's memory is recorded anew on each device, which takes seconds; it hardly differs between boards.
            if here is not None and n == self.batch and precision is None:
                return here
            return self.predicted(device or on, n, **changed).memory.in_use

        precision = str(self._workload.how.get("precision", "fp32"))
        how: dict[str, Any] = {"training": self.trains, "slow": self.trains, "confidence": self._workload.confidence}
        return Question(memory, on, self.batch, precision, **how)


def fitted(network: Network, device: Device, workload: Workload) -> tuple[DeviceFit, Prediction]:
    """The answer, and the prediction that it is made of. Raises as `perfpass.predict`."""
    found = network.predicted(device)
    need = found.memory.in_use
    chance = found.memory.probability_fits(device.usable_bytes)
    answer = answer_on_fit(chance, workload.confidence, possible=need.low <= device.usable_bytes)
    asked = network.question(device, need)
    most = asked.largest_batch()
    fit = DeviceFit(
        device=device.id,
        device_name=device.name,
        gpus=1,
        answer=answer,
        probability=chance,
        needed=need,
        limit_bytes=device.usable_bytes,
        limit="",
        memory_bytes=device.usable_bytes,
        parts={name: int(value) for name, value in found.breakdown["memory_bytes"].items() if value >= 1},
        cache={},
        largest=Largest(batch=most),
        reason=_reason(need, device, answer),
        changes=() if answer == "yes" else tuple(remedies.changes(asked, most)),
    )
    return fit, found


def _reason(need: Interval, device: Device, answer: Answer) -> str:
    if answer == "yes":
        return ""
    has = size(device.usable_bytes)
    if answer == "no":
        return f"{size(need.median)} are likely in use, and there are {has}"
    return f"{size(need.median)} are likely in use, but up to {size(need.high)} possible in {has}"
