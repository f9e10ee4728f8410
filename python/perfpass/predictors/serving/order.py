"""The order of devices and models: what was measured of one bounds what is said of another.

A device that is behind another in no figure of the catalogue serves no faster, and neither does a larger model of one
family. Predictions follow that by themselves (base, rising trees) but where known trees answer: those of one model on
several devices are put in order, where they are not near to what was measured, which stands; and all that was not
measured stays between what was.

Tokens of a batch that runs short of memory come faster than those of one that has room for all: of the time per output
token only workloads compare in which no request waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.devices.order import no_better
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import lacking, peak_flops
from perfpass.llm.order import no_larger
from perfpass.llm.serving import MemoryFit, Serving
from perfpass.prediction import Interval
from perfpass.predictors.learned.order import between, in_order


class Predictor(Protocol):
    """What answers for one workload by itself, and says what was measured."""

    manifest: dict[str, Any]

    def alone(self, model: LanguageModel, device: Device, serving: Serving) -> Alone:
        """The workload by itself."""


# A set-up measured at this distance (features.position) speaks for a device: another version, or twice as many
# GPUs. By hand.
_NEAR = 1.0


@dataclass(frozen=True)
class Alone:
    """One workload by itself: ``intervals`` of its targets (ms), ``base`` parts in seconds [1], ``waits``: whether a
    request finds no room in the cache, ``beyond``: in what it is outside of all that was measured, ``distance``: to the
    nearest measured set-up, whatever its load, where known trees answer; ``lacks``: what is not known, by cause.
    """

    model: LanguageModel
    family: str
    device: Device
    serving: Serving
    evidence: str
    intervals: dict[str, Interval]
    base: dict[str, np.ndarray]
    waits: bool
    memory: MemoryFit
    beyond: list[str]
    distance: float
    lacks: dict[str, float]


def ordered(predictor: Predictor, own: Alone, target: str) -> Interval:
    """The interval of ``own``, in order with those of all that was measured and compares with it."""
    found = own.intervals[target]
    if own.waits and target == "tpot":
        return found
    for family in _families(own.model, own.family, tuple(predictor.manifest["families"])):
        known = _measured(predictor, own, family, target)
        order = [[_no_more(a, b) for b in known] for a in known]
        values = in_order([a.intervals[target] for a in known], order, [a.distance for a in known], _NEAR)
        if family == own.family and own.evidence == "measured":
            found = values[[a.device.id for a in known].index(own.device.id)]
        else:
            upper, lower = [_no_more(own, a) for a in known], [_no_more(a, own) for a in known]
            found = between(found, values, upper.__getitem__, lower.__getitem__)
    return found


def _measured(predictor: Predictor, own: Alone, family: str, target: str) -> list[Alone]:
    """``own``'s workload of a measured family on each device that it was measured on and that can run it."""
    model = own.model if family == own.family else _model(family)
    out = []
    for name, families in predictor.manifest["measured"].items():
        device = own.device if name == own.device.id else find_device(name)
        mine = family == own.family and name == own.device.id
        if family not in families or (_lacks(device, own.serving) and not mine):
            continue
        one = own if mine else predictor.alone(model, device, own.serving)
        if not (one.waits and target == "tpot"):
            out.append(one)
    return out


def _lacks(device: Device, serving: Serving) -> bool:
    q = serving.quantization
    return any(lacking(device.peak_flops, precision) for precision in (q.gemm, q.moe))


def _rate(precision: str, device: Device) -> float:
    return peak_flops(device.peak_flops, precision)


def _no_more(one: Alone, other: Alone) -> bool:
    """Whether ``one`` takes no longer than ``other``: no larger a model on a device that is behind in nothing."""
    split, q = one.serving.parallelism, one.serving.quantization
    rates: list[Callable[[Device], float]] = [partial(_rate, precision) for precision in (q.gemm, q.moe)]
    if split.gpus > 1 or one.serving.mode != "agg":
        rates += [lambda d: d.nvlink_bandwidth_bytes_s, lambda d: d.pcie_bandwidth_bytes_s]
    smaller = one.family == other.family or no_larger(one.model, other.model)
    return smaller and no_better(other.device, one.device, *rates)


@cache
def _model(family: str) -> LanguageModel:
    return language_model(family)


@cache
def _families(model: LanguageModel, family: str, measured: tuple[str, ...]) -> tuple[str, ...]:
    """The measured families that compare with a model, its own among them."""
    return tuple(
        name for name in measured if name == family or no_larger(model, _model(name)) or no_larger(_model(name), model)
    )
