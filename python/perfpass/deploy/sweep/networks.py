"""Points of a network that runs whole: batches on devices, in precisions and runtimes, scored as `perfpass.search`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.deploy.sweep.result import joined, spread_out
from perfpass.devices import Device
from perfpass.errors import PerfPassError
from perfpass.graph import OpGraph
from perfpass.prediction import Interval
from perfpass.predictors.estimate import Bounds
from perfpass.predictors.workload import check
from perfpass.search import Scorer, Scores, Template
from perfpass.text import size

BATCH = "batch"
SETTINGS = ("device", "precision", "runtime", "layout", BATCH)
FIGURES = ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w", "fits")
PRICED = "usd_per_thousand_samples"
REPLAYED = "kernels are captured once and replayed as a CUDA graph"
_BOUNDED = FIGURES[:-1]


@dataclass(frozen=True)
class Way:
    """How a network is run on any device."""

    precision: str
    runtime: str
    layout: str
    cuda_graph: bool = False

    def arguments(self) -> dict[str, Any]:
        """As `Scorer` takes them."""
        return {**vars(self), "mode": "inference"}


def graphs(
    model: Any, batches: Sequence[int], dims: Mapping[str, int] | None, input_shape: Any
) -> list[OpGraph | PerfPassError]:
    """The model at every batch, or why it is none there. Raises what `Template` raises of the model itself."""
    template = Template(model, dims=dims, input_shape=input_shape)
    out: list[OpGraph | PerfPassError] = []
    for batch in batches:
        try:
            out.append(template.at(batch))
        except PerfPassError as error:
            out.append(error)
    return out


def answered(
    models: Sequence[OpGraph | PerfPassError],
    batches: Sequence[int],
    devices: Sequence[Device],
    way: Way,
    usd_per_hour: Mapping[str, float],
) -> dict[str, np.ndarray]:
    """The points of one way on D devices: columns of SETTINGS and FIGURES, of price, ``support`` and ``problem``."""
    problems: dict[str, PerfPassError] = {}
    for device in devices:
        try:
            check(device, batch=None, **way.arguments())
        except PerfPassError as error:
            problems[device.id] = error
    scores = _scores(models, [d for d in devices if d.id not in problems], way, problems)
    return joined(
        [_of_device(d, way, models, batches, scores.get(d.id), problems, usd_per_hour[d.id]) for d in devices]
    )


def _scores(
    models: Sequence[OpGraph | PerfPassError], devices: list[Device], way: Way, problems: dict[str, PerfPassError]
) -> dict[str, Scores]:
    """By device; what cannot be asked of all of them together is asked of each."""
    good = [model for model in models if isinstance(model, OpGraph)]
    groups = [devices] if devices else []
    out: dict[str, Scores] = {}
    while groups:
        group = groups.pop()
        try:
            found = Scorer(group, **way.arguments()).score(good)
        except PerfPassError as error:
            if len(group) == 1:
                problems[group[0].id] = error
            else:
                groups += [[device] for device in group]
            continue
        if len(group) > 1 and any(found.problems):  # one device's problem is not the others'
            groups += [[device] for device in group]
            continue
        out |= {device.id: _column(found, i) for i, device in enumerate(group)}
    return out


def _column(found: Scores, i: int) -> Scores:
    metrics = {
        name: Bounds(*(getattr(getattr(found, name), b)[:, i] for b in ("median", "low", "high"))) for name in _BOUNDED
    }
    return Scores(**metrics, support=found.support[:, i], problems=found.problems)


def _of_device(
    device: Device,
    way: Way,
    models: Sequence[OpGraph | PerfPassError],
    batches: Sequence[int],
    scores: Scores | None,
    problems: Mapping[str, PerfPassError],
    usd_per_hour: float,
) -> dict[str, np.ndarray]:
    rows = len(batches)
    problem = np.full(rows, str(problems.get(device.id, "")), dtype=object)
    good = np.array([isinstance(model, OpGraph) for model in models], dtype=bool)
    problem[~good] = [str(model) for model in models if not isinstance(model, OpGraph)]
    found = {name: Bounds(*(np.full(rows, np.nan) for _ in range(3))) for name in _BOUNDED}
    support = np.full(rows, -1, dtype=np.int64)
    if scores is not None:
        for name, bounds in found.items():
            for b in ("median", "low", "high"):
                getattr(bounds, b)[good] = getattr(getattr(scores, name), b)
        support[good] = scores.support
        problem[good] = ["" if p is None else str(p) for p in scores.problems]
    fits = np.array([_fits(device, found["peak_memory_bytes"], i) for i in range(rows)])
    full = (problem == "") & (found["peak_memory_bytes"].low > device.usable_bytes)
    problem[full] = [_too_much(device, v) for v in found["peak_memory_bytes"].median[full]]
    has = problem == ""
    settings = {"device": device.id, "precision": way.precision, "runtime": way.runtime, "layout": way.layout}
    out = {name: np.full(rows, value, dtype=object) for name, value in settings.items()}
    out["batch"] = np.array(batches, dtype=np.int64)
    for name, bounds in found.items():
        out |= {column: np.where(has, values, np.nan) for column, values in spread_out(name, bounds).items()}
    rate = found["throughput_per_s"]
    price = Bounds(*(usd_per_hour / 3600 / getattr(rate, b) * 1e3 for b in ("median", "high", "low")))
    out |= {"fits": np.where(has, fits, 0.0), "usd_per_hour": np.full(rows, usd_per_hour)}
    out |= {column: np.where(has, values, np.nan) for column, values in spread_out(PRICED, price).items()}
    return {**out, "support": np.where(has, support, -1), "problem": problem}


def _fits(device: Device, peak: Bounds, i: int) -> float:
    if not np.isfinite(peak.median[i]):
        return 0.0
    found = Interval(float(peak.median[i]), float(peak.low[i]), float(peak.high[i]), "byte")
    return found.probability_fits(device.usable_bytes)


def _too_much(device: Device, peak_bytes: float) -> str:
    return f"it needs {size(peak_bytes)}, and {device.id} has {size(device.usable_bytes)}"
