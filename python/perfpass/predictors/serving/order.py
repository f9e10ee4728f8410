"""The order of devices and models: what was measured of one bounds what is said of another.

A device that is behind another in no figure of the catalogue serves no faster, and neither does a larger model of one
family. Predictions follow that by themselves (base by counts, rising trees) but where known trees answer, or kernels
that were measured on a device: those of one model on several devices are put in order, where they are not near to what
was measured, which stands; and all that was not measured stays between what was.

A better board than one that a model was measured on takes at most as much of that one's time as the bases of both say:
what was measured tells how fast the model's software is, the base what the board changes. Without that it would be told
the very time of the lesser one wherever its base lies above what was measured there. Beside a Grace processor a board
may take a tenth more than that: its host is another, its chip is not.

Tokens of a batch that runs short of memory come faster than those of one that has room for all: of the time per output
token only workloads compare in which no request waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, Protocol

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.devices.order import host, host_but_grace, no_better
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import lacking, peak_flops
from perfpass.llm.order import no_larger
from perfpass.llm.serving import Serving
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.serving.base import Sizes, Terms
from perfpass.predictors.step_time.setup import kernel_boards

InOrder = Callable[["tuple[Alone, ...]", str], list[np.ndarray]]


class Predictor(Protocol):
    """What answers for loads of one deployment by themselves, and says what was measured."""

    manifest: dict[str, Any]

    def alone(self, model: LanguageModel, device: Device, serving: Serving, sizes: Sizes) -> Alone:
        """The loads by themselves."""


# A set-up measured at this distance (features.position) speaks for a device: another version, or twice as many
# GPUs. By hand.
_NEAR = 1.0
# How much longer than by its chip a board may take whose host is a Grace processor, or the other way. By hand: of
# DeepSeek-V3 with prefill and decode apart GB200s take 0.98 of the base's time per token, B200s 0.96, H200s 1.03.
_OTHER_HOST = 1.1


@dataclass(frozen=True, eq=False)
class Alone:
    """N loads (``sizes``) of one deployment by themselves: ``bounds`` of its targets (ms), ``terms`` of its base
    [N], ``waits`` [N]: whether a request finds no room in the cache, ``distance``: to the nearest measured set-up,
    whatever its load, where known trees answer; ``lacks``: what is not known, by cause; ``base``: gives what the base
    says of each target [K] under usual loads, NaN where requests wait.
    """

    model: LanguageModel
    family: str
    device: Device
    serving: Serving
    sizes: Sizes
    evidence: str
    bounds: dict[str, Bounds]
    terms: Terms
    waits: np.ndarray
    distance: float
    lacks: dict[str, np.ndarray | float]
    base: Callable[[], dict[str, np.ndarray]]

    def parts(self, target: str) -> np.ndarray:
        """[3, N] medians, lows and highs in ms."""
        found = self.bounds[target]
        return np.stack([found.median, found.low, found.high])

    def compares(self, target: str) -> np.ndarray:
        """[N] whether a load compares with others."""
        return ~self.waits if target == "tpot" else np.ones(len(self.waits), dtype=bool)


def in_order(known: tuple[Alone, ...], target: str) -> list[np.ndarray]:
    """[3, N] of each, put in order, the best known first (`perfpass.predictors.learned.order.in_order`)."""
    out: dict[int, np.ndarray] = {}
    heed = [a.compares(target) for a in known]
    for i in sorted(range(len(known)), key=lambda k: known[k].distance):
        places = list(out) if known[i].distance > _NEAR else []
        others, values = [known[j] for j in places], [out[j] for j in places]
        found = _carried(known[i], known[i].parts(target), others, values, target)
        out[i] = _between(known[i], found, others, values, [heed[j] for j in places])
    return [out[i] for i in range(len(known))]


def ordered(predictor: Predictor, own: Alone, put: InOrder = in_order) -> dict[str, Bounds]:
    """[N] bounds of ``own`` by target, in order with those of all that was measured and compares with it; ``put``:
    `in_order`, or what keeps its answers, where several deployments compare with the same.
    """
    families = _families(own.model, own.family, tuple(predictor.manifest["families"]))
    measured = {family: tuple(_measured(predictor, own, family)) for family in families}
    return {target: _among(own, measured, target, put) for target in own.bounds}


def _among(own: Alone, measured: dict[str, tuple[Alone, ...]], target: str, put: InOrder) -> Bounds:
    alone = found = own.parts(target)
    compares = own.compares(target)
    for family, known in measured.items():
        values, heed = put(known, target), [a.compares(target) for a in known]
        boards = [a.device.id for a in known]
        if family == own.family and own.device.id in boards:
            found = values[boards.index(own.device.id)]
        else:
            found = _between(own, _carried(own, found, known, values, target), known, values, heed)
    return Bounds(*np.where(compares, found, alone))


def _between(
    own: Alone, found: np.ndarray, known: Sequence[Alone], values: list[np.ndarray], heed: list[np.ndarray]
) -> np.ndarray:
    """``found`` [3, N], no part of it above what takes no less time, nor below what takes no more, where ``heed``."""
    for other, value, counts in zip(known, values, heed, strict=True):
        if _no_more(own, other):
            found = np.where(counts, np.minimum(found, value), found)
        if _no_more(other, own):
            found = np.where(counts, np.maximum(found, value), found)
    return found


def _carried(
    own: Alone, found: np.ndarray, known: Sequence[Alone], values: list[np.ndarray], target: str
) -> np.ndarray:
    """``found`` [3, N] of a board without runs near to what is asked: where it is better than one that the model was
    measured on, of ``known``, no more of that one's time than their bases say. Bounds follow their median.
    """
    if own.distance <= _NEAR:
        return found
    most = np.full(found.shape[1], np.inf)
    for other, value in zip(known, values, strict=True):
        if other.evidence != "measured" or other.family != own.family:
            continue
        alike = _no_more(own, other)
        if alike or _no_more(own, other, host_but_grace):
            share = _share(own, other, target) * (1.0 if alike else _OTHER_HOST)
            most = np.where(other.compares(target), np.minimum(most, share * value[0]), most)
    return found * np.minimum(most / found[0], 1.0)


def _share(better: Alone, lesser: Alone, target: str) -> float:
    """How much of the lesser board's time the better one takes at most, by their bases: one share for all loads, so
    that times still grow with them.
    """
    shares = better.base()[target] / lesser.base()[target]
    return min(float(np.nanmax(shares)), 1.0) if np.isfinite(shares).any() else 1.0


def _measured(predictor: Predictor, own: Alone, family: str) -> list[Alone]:
    """``own``'s loads of a family on each device that it was measured on, or the own one on each whose kernels were
    measured, and that can run it.
    """
    model = own.model if family == own.family else _model(family)
    measured = predictor.manifest["measured"]
    names = [name for name, families in measured.items() if family in families]
    if family == own.family:
        names += [name for name in kernel_boards() if name not in names]
    out = []
    for name in names:
        device = own.device if name == own.device.id else find_device(name)
        mine = family == own.family and name == own.device.id
        if not (mine or _compares(device, own.device)) or (_lacks(device, own.serving) and not mine):
            continue
        out.append(own if mine else predictor.alone(model, device, own.serving, own.sizes))
    return out


def _compares(one: Device, other: Device) -> bool:
    """Whether two devices may be in order at all: TensorRT-LLM has no others' boards."""
    return one.vendor == other.vendor


def _lacks(device: Device, serving: Serving) -> bool:
    q = serving.quantization
    return any(lacking(device.peak_flops, precision) for precision in (q.gemm, q.moe))


def _rate(precision: str, device: Device) -> float:
    return peak_flops(device.peak_flops, precision)


def _no_more(one: Alone, other: Alone, hosts: Callable[[Device], str] = host) -> bool:
    """Whether ``one`` takes no longer than ``other``: no larger a model on a device that is behind in nothing, in a
    host that is alike by ``hosts``.
    """
    split, q = one.serving.parallelism, one.serving.quantization
    rates: list[Callable[[Device], float]] = [partial(_rate, precision) for precision in (q.gemm, q.moe)]
    if split.gpus > 1 or one.serving.mode != "agg":
        rates += [lambda d: d.link_bytes_s(split.stage), lambda d: d.pcie_bandwidth_bytes_s]
    smaller = one.family == other.family or no_larger(one.model, other.model)
    return smaller and no_better(other.device, one.device, *rates, hosts=hosts)


@cache
def _model(family: str) -> LanguageModel:
    return language_model(family)


@lru_cache(maxsize=1024)
def _families(model: LanguageModel, family: str, measured: tuple[str, ...]) -> tuple[str, ...]:
    """The measured families that compare with a model, and its own: first where it was not measured, so that what was
    bounds it.
    """
    return tuple(
        name
        for name in (measured if family in measured else (family, *measured))
        if name == family or no_larger(model, _model(name)) or no_larger(_model(name), model)
    )
