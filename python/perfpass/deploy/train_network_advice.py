"""What to switch on where training a network does not fit, and its layouts compared: `perfpass train-cost --advise`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfpass.deploy.train_advice import WORTH, Advice, Change, weighed
from perfpass.deploy.train_network import NetworkTrainCost, check_arguments, check_layout, of_step, train_network_cost
from perfpass.deploy.training_run import Searched
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, PerfPassError, ShapeError
from perfpass.importers import load
from perfpass.predictors import predict
from perfpass.predictors.llm_training.constants import SPREAD
from perfpass.predictors.remedies import AtBatch
from perfpass.predictors.training_step.sharded import OFFLOADS, SHARDINGS
from perfpass.text import size

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph
    from perfpass.prediction import Interval, Prediction

# How far what a change adds to a step may be off, of the logarithm; by hand: what runs twice is the same work on the
# same device, half or half as much again. All else may be off by what a framework that was not measured is.
_OFF = 0.5
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_DEFAULTS: dict[str, Any] = {
    "gpus": 1,
    "precision": "fp32",
    "pue": 1.0,
    **dict.fromkeys(("sharding", "recompute", "offload"), "none"),
    **dict.fromkeys(("global_batch", "fabric_gb_s", "host_gb_s", "samples", "region", "carbon_intensity")),
    "price_table": None,
}


class _Steps:
    """Steps on one device, and the runs that are made of them.

    The first is predicted as if it were asked alone: its network is traced, and its memory recorded, where that can be.
    Every other is asked of that trace, at another micro-batch of it and one more, and has what it differs by from the
    same question of the first: a large network takes seconds to trace, and more to record.
    """

    def __init__(self, model: Any, device: str | Device, asked: dict[str, Any]) -> None:
        self.model, self.device, self.asked = model, device, asked
        self.known: dict[tuple[int, str], Prediction] = {}
        self.first: Prediction | None = None

    def start(self, first: NetworkTrainCost) -> None:
        """With the answer to what is asked."""
        self.first = first.step
        self.known[self._key(first.micro_batch)] = first.step
        self._at = AtBatch(first.step.asked.run().graph, self._load)
        self._plain = self._predicted(*self._key(first.micro_batch))

    def run(self, **changes: Any) -> NetworkTrainCost:
        asked = self.asked | changes
        if self.first is None:
            found = train_network_cost(self.model, self.device, **asked)
            self.asked["micro_batch"] = found.micro_batch
            self.start(found)
            return found
        check_layout(asked.get("sharding", "none"), asked.get("offload", "none"), find_device(self.device))
        beside = {name: asked.get(name, default) for name, default in _DEFAULTS.items()}
        called = self.first.asked.model or type(self.model).__name__
        step = self._step(asked["micro_batch"], beside["precision"])
        return of_step(step, find_device(self.device), called=called, **beside)

    def _key(self, micro_batch: int) -> tuple[int, str]:
        return micro_batch, self.asked.get("precision", _DEFAULTS["precision"])

    def _step(self, micro_batch: int, precision: str) -> Prediction:
        key = micro_batch, precision
        if key not in self.known:
            assert self.first is not None
            found, first, plain = self._predicted(*key), self.first, self._plain

            def moved(name: str, figure: Interval, of: Prediction) -> Interval:
                by = getattr(first, name).median / max(getattr(of, name).median, 1e-300)
                return figure.scaled(by, figure.unit)

            grown = _beside_runtime(first) / _beside_runtime(plain) * _beside_runtime(found)
            in_use = found.memory.in_use
            by = (first.memory.in_use.median - _beside_runtime(first) + grown) / in_use.median
            self.known[key] = replace(
                found,
                latency_ms=moved("latency_ms", found.latency_ms, plain),
                power_w=moved("power_w", found.power_w, plain),
                memory=replace(found.memory, in_use=in_use.scaled(by, in_use.unit)),
            )
        return self.known[key]

    def _predicted(self, micro_batch: int, precision: str) -> Prediction:
        how = {name: self.asked[name] for name in ("optimizer", "layout") if name in self.asked}
        try:
            graph = self._at(micro_batch)
        except (ArgumentError, ShapeError):  # sizes that do not grow along a line
            graph = self._load(micro_batch)
        return predict(graph, self.device, precision=precision, mode="training", calibration=False, **how)

    def _load(self, micro_batch: int) -> OpGraph:
        how = {name: self.asked[name] for name in ("input_shape", "dims", "frozen") if name in self.asked}
        return load(self.model, batch=micro_batch, **how)


def _beside_runtime(step: Prediction) -> float:
    """Bytes in use that grow with the step: all but what the runtime itself holds."""
    return float(step.memory.in_use.median - step.breakdown["memory_bytes"].get("runtime", 0.0))


def train_network_advice(
    model: Any, device: str | Device, *, first: NetworkTrainCost | None = None, **asked: Any
) -> Advice:
    """What less memory would cost; ``asked`` as for `perfpass.train_network_cost`, whose errors it raises, and whose
    answer is ``first`` where it is known.

    As `perfpass.deploy.train_advice.train_advice`: each change alone; where none fits, pairs, then three together.
    """
    first = first or train_network_cost(model, device, **asked)
    # Whatever is changed, a step has as many samples as before.
    steps = _Steps(model, device, asked | {"global_batch": first.global_batch, "micro_batch": first.micro_batch})
    steps.start(first)

    def answer(words: str, changes: dict[str, Any], same: bool) -> Change | None:
        try:
            found = steps.run(**changes)
        except PerfPassError:
            return None  # what the device or the network does not allow is no advice
        return _change(first, found, words, changes, same)

    return Advice(first, weighed(list(_alone(first, asked)), answer))


def _change(
    first: NetworkTrainCost, found: NetworkTrainCost, words: str, changes: dict[str, Any], same: bool
) -> Change | None:
    in_use, step_s = found.memory_in_use_bytes.median, found.step_s.median
    memory, ratio = in_use / first.memory_in_use_bytes.median - 1, step_s / first.step_s.median
    strange = set(changes) != {"recompute"}
    width = math.hypot(_OFF * math.log(ratio), strange * float(SPREAD.high[SPREAD.causes.index("framework")]))
    low, high = (ratio * math.exp(side * width) - 1 for side in (-1, 1))
    change = Change(
        words, changes, found, in_use, step_s, found.fits_probability, memory, ratio - 1, low, high, same
    )  # fmt: skip
    return change if memory < -WORTH else None


def _alone(first: NetworkTrainCost, asked: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Words, what to ask for, and whether the same is trained."""
    if first.devices > 1:
        for sharding in SHARDINGS[SHARDINGS.index(first.sharding) + 1 :]:
            yield f"sharding {sharding}", {"sharding": sharding}, True
    if first.micro_batch > 1 and first.micro_batch % 2 == 0:
        half = first.micro_batch // 2
        # Normalizations over the batch see half of it.
        yield f"micro-batch {half}", {"micro_batch": half}, not _normalizes_batches(first)
    if first.recompute == "none":
        yield "recompute full", {"recompute": "full"}, True
    for offload in OFFLOADS[OFFLOADS.index(first.offload) + 1 :]:
        more = {"sharding": "zero3"} if offload == "parameters" and first.sharding != "zero3" else {}
        yield f"offload {offload}" + ", sharding zero3" * bool(more), {"offload": offload, **more}, True
    precision = asked.get("precision", "fp32")
    if precision in ("fp32", "tf32"):
        yield "autocast to bf16", {"precision": "amp_bf16"}, False
    if precision != "bf16":
        yield "16 bits throughout", {"precision": "bf16"}, False


def _normalizes_batches(first: NetworkTrainCost) -> bool:
    return any(one["operator"] == "batch_norm" for one in first.step.breakdown["operators"])


@dataclass(frozen=True)
class NetworkLayouts(Searched[NetworkTrainCost]):
    """What a search found."""

    def row(self, one: NetworkTrainCost) -> tuple[str, ...]:
        words = [one.sharding, f"mb{one.micro_batch}x{one.micro_batches}"]
        words += ["recompute full"] if one.recompute == "full" else []
        words += [f"offload {one.offload}"] if one.offload != "none" else []
        memory = size(one.memory_in_use_bytes.median)
        return " ".join(words), f"{one.step_s.median:.3g}", "s", f"{one.fits_probability:.2f}", memory


def search_network_layouts(model: Any, device: str | Device, *, gpus: int, **asked: Any) -> NetworkLayouts:
    """Every layout of a step of ``global_batch`` samples on ``gpus`` devices (sharding, micro-batch, recomputation),
    the quickest that fits first. ``asked``: as of `perfpass.train_network_cost`, what is given of a layout stays.

    Raises ArgumentError without a global batch that the devices divide, and what `train_network_cost` raises.
    """
    check_arguments(asked | {"gpus": gpus})
    whole = asked.get("global_batch")
    if whole is None or whole % gpus:
        raise ArgumentError(f"a search needs a global batch of samples that {gpus} devices divide, got {whole}")
    steps = _Steps(model, device, asked | {"gpus": gpus})
    sizes = [m for m in _MICRO_BATCHES if whole % (m * gpus) == 0] or [1]
    shardings = SHARDINGS if gpus > 1 else ("none",)
    fit: list[NetworkTrainCost] = []
    others: list[NetworkTrainCost] = []
    refused: PerfPassError | None = None
    for micro_batch in [asked["micro_batch"]] if asked.get("micro_batch") is not None else sizes:
        for sharding in [asked["sharding"]] if asked.get("sharding") is not None else shardings:
            for recompute in [asked["recompute"]] if asked.get("recompute") is not None else ("none", "full"):
                try:
                    found = steps.run(micro_batch=micro_batch, sharding=sharding, recompute=recompute)
                except PerfPassError as error:
                    refused = error
                    continue
                (fit if found.fits else others).append(found)
    if not fit and not others:
        assert refused is not None
        raise refused
    fit.sort(key=lambda one: one.step_s.median)
    others.sort(key=lambda one: one.memory_in_use_bytes.median)
    return NetworkLayouts(tuple(fit), tuple(others), len(fit) + len(others))
