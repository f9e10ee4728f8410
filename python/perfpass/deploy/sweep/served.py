"""Points of a served language model: what is swept, and its figures, many loads of one deployment at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from perfpass.deploy.sweep.result import joined, spread_out
from perfpass.deploy.sweep.splits import Split, asked, sensible
from perfpass.devices import Device
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.llm import assumed
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.precision import quantization
from perfpass.llm.serving import Serving, check_gpu, check_runtime
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.serving.base import RUNTIMES, Sizes
from perfpass.predictors.serving.loads import Loads, Once, energy_per_token, predict_loads
from perfpass.text import unknown

SPLIT = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
SETTINGS = ("device", "precision", "runtime", *SPLIT, "input_length", "output_length", "concurrency")
FIGURES = ("ttft_ms", "tpot_ms", "request_ms", "requests_per_s", "output_tokens_per_s", "fits")
ENERGY = ("energy_per_token_j", "power_w")
PRICED = "usd_per_million_tokens"
_BOUNDED = FIGURES[:-1]


@dataclass(frozen=True)
class Deployment:
    """One replica: a device, the precision asked for (None: what is stored), a runtime and how it is split."""

    device: Device
    precision: str | None
    runtime: str
    split: Split

    def serving(self, model: LanguageModel) -> Serving:
        """How it serves ``model``, of one request. Raises ArgumentError, DeviceError for what cannot be."""
        plain = _plain(model, self.device, self.precision, self.runtime)
        assumed.check_together(self.device, self.split.gpus)
        return replace(plain, parallelism=self.split.parallelism(model))


def check_runtimes(runtimes: Sequence[str]) -> None:
    """Raises ArgumentError for one whose loads are not predicted."""
    for runtime in runtimes:
        if runtime not in RUNTIMES:
            raise ArgumentError(
                f"{unknown('runtime', runtime, RUNTIMES)}. What runs without a server is asked one device at a time, "
                "with `perfpass llm --runtime`"
            )


def _plain(model: LanguageModel, device: Device, precision: str | None, runtime: str) -> Serving:
    """One request on one GPU. Raises ArgumentError, DeviceError for what cannot be."""
    check_gpu(device)
    check_runtime(runtime, device)
    used, _ = quantization(model, precision, None, device, runtime)
    return Serving(1, 1, 1.0, runtime, quantization=used)


def deployments(
    model: LanguageModel,
    device: Device,
    precision: str | None,
    runtime: str,
    ranks: Sequence[Sequence[int]],
    length: int | None = None,
) -> list[Deployment]:
    """All on a device: every combination of ``ranks`` (of SPLIT), or what is worth asking for requests of ``length``
    tokens; of what cannot be asked one, which says why.
    """
    splits = asked(device, ranks)
    if length is not None:
        try:
            splits = sensible(model, device, replace(_plain(model, device, precision, runtime), input_length=length))
        except PerfPassError:
            splits = [Split()]
    return [Deployment(device, precision, runtime, split) for split in splits]


def loads(inputs: Sequence[float], outputs: Sequence[float], in_flight: Sequence[float]) -> Sizes:
    """Every prompt with every answer and load."""
    grid = np.array(list(product(inputs, outputs, in_flight)), dtype=np.float64)
    return Sizes(*grid.T)


def answered(
    model: LanguageModel,
    deployments: Sequence[Deployment],
    sizes: Sizes,
    usd_per_hour: Mapping[str, float],
    *,
    energy: bool = False,
) -> dict[str, np.ndarray]:
    """The points of deployments under loads [N], one deployment after the other: columns of SETTINGS and FIGURES, of
    ENERGY if asked, of price (``usd_per_hour`` by device), ``support`` and ``problem``.

    Those that differ in the device alone share what was measured of others.
    """
    once = Once()
    return joined([_answered(model, one, sizes, usd_per_hour[one.device.id], once, energy) for one in deployments])


def _answered(
    model: LanguageModel, deployment: Deployment, sizes: Sizes, usd_per_hour: float, once: Once, energy: bool
) -> dict[str, np.ndarray]:
    rows = len(sizes.concurrency)
    said: dict[str, Any] = {
        "device": deployment.device.id,
        "precision": deployment.precision or "stored",
        "runtime": deployment.runtime,
        **dict(zip(SPLIT, vars(deployment.split).values(), strict=True)),
    }
    nothing = Bounds(*(np.full(rows, np.nan) for _ in range(3)))
    found = dict.fromkeys((*_BOUNDED, *(ENERGY if energy else ())), nothing)
    fits, most = np.zeros(rows), np.zeros(rows, dtype=np.int64)
    support, problem = np.full(rows, -1, dtype=np.int8), np.full(rows, "", dtype=object)
    try:
        serving = deployment.serving(model)
        said["precision"] = assumed.precision_name(serving.quantization)
        known = predict_loads(model, deployment.device, serving, sizes, once)
        found |= {name: getattr(known, name) for name in _BOUNDED}
        fits, most, support, problem = known.fits, known.most_requests, known.support, known.problem
        if energy:
            found |= _energy(model, deployment, serving, sizes, known)
    except PerfPassError as error:
        problem = np.full(rows, str(error), dtype=object)
    has = problem == ""
    out = {name: np.full(rows, value, dtype=object if isinstance(value, str) else None) for name, value in said.items()}
    out |= {"input_length": sizes.input_length.astype(np.int64), "output_length": sizes.output_length.astype(np.int64)}
    out["concurrency"] = sizes.concurrency
    for name, bounds in found.items():
        out |= {column: np.where(has, values, np.nan) for column, values in spread_out(name, bounds).items()}
    hour = usd_per_hour * deployment.split.gpus
    out |= {"fits": fits, "most_requests": most, "usd_per_hour": np.full(rows, hour)}
    rate = found["output_tokens_per_s"]
    per_million = Bounds(*(hour / 3600 / getattr(rate, b) * 1e6 for b in ("median", "high", "low")))
    out |= {column: np.where(has, values, np.nan) for column, values in spread_out(PRICED, per_million).items()}
    return {**out, "support": np.where(has, support, -1), "problem": problem}


def _energy(
    model: LanguageModel, deployment: Deployment, serving: Serving, sizes: Sizes, known: Loads
) -> dict[str, Bounds]:
    rate = known.output_tokens_per_s
    joules = energy_per_token(model, deployment.device, serving, sizes, rate, known.tpot_ms)
    ends = deployment.device.idle_power_w, deployment.device.power_limit_w
    scale = rate.median / deployment.split.gpus
    watts = Bounds(*(np.clip(getattr(joules, b) * scale, *ends) for b in ("median", "low", "high")))
    return {"energy_per_token_j": joules, "power_w": watts}
