"""What is not known of a question about serving: the lacks that make its intervals wide (`learned.spread`).

Every lack is 0 where measurements stand behind the question, about 1 where they do not, and smooth in the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.serving import Serving
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.serving.base import Sizes

# Of which an interval is wide, in words.
WORDS: Mapping[str, str] = {
    "measurement": "runs of one set-up differ",
    "laboratory": "another laboratory's server, requests and way to count",
    "model": "a model that was not learned from",
    "device": "a device that was not learned from",
    "pair": "a model and a device that were not learned from together",
    "architecture": "a GPU architecture that was not learned from",
    "vendor": "a vendor none of whose boards was learned from",
    "set-up": "a set-up (runtime, precision, GPUs) unlike those learned from",
    "precision": "a precision that was not learned from with this runtime",
    "version": "a version older than those learned from",
    "load": "prompts, answers or a load beyond what was learned from",
    "others": "other requests in flight, whose prompts come first",
    "waiting": "requests that wait for room in the cache",
    "split prefill": "prefill on GPUs of its own",
    "unstated workers": "prefill replicas, or requests that a decoder runs at most, that nobody states",
    "pipeline": "pipeline parallelism, which was not learned from",
}
CAUSES = tuple(WORDS)
# Lacks are 1 at this distance of set-ups (a runtime on another, `features.position`), and at so many years.
_SET_UP, _YEARS = 3.0, 2.0
# When minor versions came out, in years, by memory and to about a quarter: between them versions follow evenly.
_RELEASED: Mapping[str, tuple[tuple[float, float], ...]] = {
    "vllm": ((1, 2023.5), (6, 2024.7), (11, 2025.8)),
    "trtllm": ((5, 2023.8), (9, 2024.3), (17, 2025.1), (100, 2025.7)),
    "sglang": ((1, 2024.0), (4, 2024.9), (5, 2025.5)),
}
OLDEST_YEAR = 2025.5
# Lacks of a question whose model and device were not measured together.
_APART = ("model", "device", "pair")
# Those of what a first token waits for, not of how long a prompt takes.
_QUEUES = ("others", "waiting", "unstated workers")
_NO_WORK = ("output_length", "GPUs per replica")


@dataclass(frozen=True)
class Measured:
    """What records hold: families by device, quantizations and versions by runtime, and ranges of sizes."""

    families: Mapping[str, Collection[str]]
    architectures: Collection[str]
    vendors: Collection[str]
    quantizations: Mapping[str, Collection[str]]
    versions: Mapping[str, Collection[str]]
    ranges: Mapping[str, tuple[float, float]]

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Measured:
        """From a manifest."""
        runtimes: Mapping[str, Any] = manifest["runtimes"]
        return cls(
            manifest["measured"],
            manifest["architectures"],
            manifest["vendors"],
            {name: found["quantizations"] for name, found in runtimes.items()},
            {name: found["versions"] for name, found in runtimes.items()},
            {name: (float(low), float(high)) for name, (low, high) in manifest["ranges"].items()},
        )


def year_of(runtime: str, version: str) -> float:
    """About when a version came out; the last years for what is not stated or not read."""
    parts = version.split(".")
    if runtime not in _RELEASED or len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return OLDEST_YEAR
    at, years = zip(*_RELEASED[runtime], strict=True)
    return float(np.interp(100.0 * int(parts[0]) + int(parts[1]), at, years))


def lacks(
    known: Measured,
    family: str,
    model: LanguageModel,
    device: Device,
    serving: Serving,
    sizes: Sizes,
    *,
    apart: float,
    waiting: np.ndarray,
    others: np.ndarray,
    year: float | None = None,
) -> dict[str, np.ndarray | float]:
    """By cause, of N loads of one deployment as a user asks for them: [N], or one number for all.

    ``apart``: distance of its set-up to the nearest measured one (`apart` of `features.Neighbours`); ``waiting`` [N]:
    requests that find no room over those that do; ``others`` [N]: how much a request is beside others
    (`features.beside`); ``year`` of its software, where it is known otherwise than by the version.
    """
    model_seen = any(family in families for families in known.families.values())
    device_seen = device.id in known.families
    pair_seen = device_seen and family in known.families[device.id]
    used = f"{serving.quantization.gemm}/{serving.quantization.moe}".replace("fp16", "bf16")
    version = serving.runtime_version
    if year is None:
        stated = version and version not in known.versions.get(serving.runtime, ())
        year = year_of(serving.runtime, version) if stated else OLDEST_YEAR
    return {
        "measurement": 1.0,
        "laboratory": 1.0,
        "model": float(not model_seen),
        "device": float(not device_seen),
        "pair": float(model_seen and device_seen and not pair_seen),
        "architecture": float(not device_seen and device.architecture not in known.architectures),
        "vendor": float(device.vendor not in known.vendors),
        "set-up": min(apart / _SET_UP, 2.0),
        "precision": float(used not in known.quantizations.get(serving.runtime, ())),
        "version": max(OLDEST_YEAR - year, 0.0) / _YEARS,
        "load": sum(less + more for less, more in _outside(known, model, serving, sizes).values()),
        "others": others,
        "waiting": waiting / (1.0 + waiting),
        "split prefill": float(serving.mode == "disagg"),
        "unstated workers": 0.0,  # of records alone
        "pipeline": float(serving.parallelism.pipeline > 1),
    }


def of_tokens(lacks: Mapping[str, np.ndarray | float]) -> dict[str, np.ndarray | float]:
    """What a time per token lacks of `lacks`: it knows no queue. Where a model and a device were measured together,
    their runs correct it, so that it counts how far the set-up is from theirs. Where not, the base answers alone, whose
    error was found not to grow with that distance: what it lacks are the model and the device.
    """
    alone = sum((np.asarray(lacks[name]) for name in _APART), np.zeros(())) > 0
    return {**lacks, "others": 0.0, "set-up": np.where(alone, 0.0, np.minimum(lacks["set-up"], 1.0))}


def of_prompts(lacks: Mapping[str, np.ndarray | float]) -> dict[str, np.ndarray | float]:
    """What a prompt by itself lacks of `lacks` of a first token: it waits for nobody."""
    return {**lacks, **dict.fromkeys(_QUEUES, 0.0)}


def doublings(known: Measured, model: LanguageModel, serving: Serving, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """By how many doublings the sizes of N questions lie below those measured, and above, [N] each.

    What says nothing of how much work it is (answers, GPUs) counts on both sides.
    """
    found = _outside(known, model, serving, sizes)
    below, above = np.zeros(len(sizes.concurrency)), np.zeros(len(sizes.concurrency))
    for name, (less, more) in found.items():
        either = np.maximum(less, more)
        below, above = below + (either if name in _NO_WORK else less), above + (either if name in _NO_WORK else more)
    return below, above


def _outside(
    known: Measured, model: LanguageModel, serving: Serving, sizes: Sizes
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    out = {}
    for name, value in sizes_of(model, serving, sizes).items():
        low, high = known.ranges[name]
        out[name] = np.maximum(np.log2(low / value), 0.0), np.maximum(np.log2(value / high), 0.0)
    return out


def sizes_of(model: LanguageModel, serving: Serving, sizes: Sizes) -> dict[str, np.ndarray]:
    """What has a measured range, by its name: [N], or [1] of what no load changes."""
    return {
        "input_length": sizes.input_length,
        "output_length": sizes.output_length,
        "concurrency per GPU": sizes.concurrency / serving.gpus,
        "GPUs per replica": np.array([float(serving.parallelism.gpus)]),
        "parameters": np.array([float(model.parameters)]),
    }


def bounds(
    median: np.ndarray,
    spread: Spread,
    lacks: Mapping[str, np.ndarray | float],
    beyond: tuple[np.ndarray, np.ndarray],
    least: np.ndarray | None = None,
    queues: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
) -> Bounds:
    """Of medians [N] in ms. ``beyond``: `doublings`; ``least`` [N]: of what a queue may turn out to be none, the median
    of a request alone, than whose low no load has a lower one; ``queues``: gives log bounds of first tokens from those
    of prompts (`base.first_token_bounds`), what waits for room among them.

    A bound holds for all that it bounds: no work takes less than the low of a smaller one that was measured, nor more
    than the high of a larger one. So low bounds widen below the measured sizes alone, high ones above and where
    requests wait for room.
    """
    below, above = beyond
    if least is None:
        lacks = of_tokens(lacks)
    fewer: dict[str, np.ndarray | float] = {"load": below, "waiting": 0.0}
    more: dict[str, np.ndarray | float] = {"load": above}
    if queues is not None:
        more["waiting"] = 0.0
    low, high = spread.bounds({**lacks, **fewer})[0], spread.bounds({**lacks, **more})[1]
    if queues is not None:
        prompts = of_prompts(lacks)
        slow, slower = queues(spread.bounds({**prompts, **fewer})[0], spread.bounds({**prompts, **more})[1])
        low, high = np.minimum(low, slow), np.maximum(high, slower)
    lowest = median * np.exp(low)
    if least is not None:
        alone = spread.bounds({**lacks, **fewer, "others": 0.0})[0]
        lowest = np.maximum(lowest, np.minimum(least, median) * np.exp(alone))
    return Bounds(median, lowest, median * np.exp(high))
