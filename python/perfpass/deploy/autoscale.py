"""Replicas by time: how many a load needs, what an autoscaler does with it, what users see and what it costs.

A replica takes the rate at which 99 in 100 first tokens and the time per token keep their targets, by the closed form
(`perfpass.predictors.engine.queueing`). Of each stretch of time the replicas needed follow from its rate. "ahead": they
are there when the stretch begins, since its rate is known (yesterday's, a schedule). "reactive": what the stretch
before needed is asked for when it ends, as autoscalers on a measured rate do; a new replica serves ``scale_up_s`` later
and is paid from when it is asked for. Replicas that are given up answer what they have. The requests then run event by
event.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfpass.deploy import money
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError, DeviceError
from perfpass.predictors.engine.arrivals import Lengths, profile
from perfpass.predictors.engine.queueing import most_rate
from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.engine.simulate import simulate_llm
from perfpass.predictors.engine.tails import ArrivalPrediction
from perfpass.predictors.engine.traces import read_trace
from perfpass.predictors.serving.predictor import predict_llm
from perfpass.text import columns, digits, unknown

POLICIES = ("reactive", "ahead")
DAY_S = 86_400.0
SCALE_UP_S = 120.0  # a node that is there, an image that is pulled, weights from its disk; by hand
_MOST_REPLICAS = 1000
_STRETCHES = 48


@dataclass(frozen=True)
class Scaled:
    """Replicas by time. ``steps``: (second, replicas that serve, replicas that are paid) from then on.

    ``rate_per_replica``: requests a second of one within the targets. ``scaled`` and ``fixed``: what users see with
    these replicas and with as many as the busiest stretch needs, all the time; USD of both where the device has a
    price.
    """

    policy: str
    scale_up_s: float
    stretch_s: float
    rate_per_replica: float
    steps: tuple[tuple[float, int, int], ...]
    replica_hours: float
    fixed_replicas: int
    fixed_hours: float
    scaled: ArrivalPrediction
    fixed: ArrivalPrediction
    usd: float | None
    fixed_usd: float | None
    price: str

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        plain = {name: value for name, value in vars(self).items() if name not in ("steps", "scaled", "fixed")}
        steps = [dict(zip(("from_s", "serving", "paid"), step, strict=True)) for step in self.steps]
        return {**plain, "steps": steps, "scaled": self.scaled.to_dict(), "fixed": self.fixed.to_dict()}

    def __str__(self) -> str:
        rows = [("", "TTFT p50", "p99 ms", "TPOT mean", "goodput", "replica hours", "USD")]
        for name, found, hours, usd in (
            (f"scaled, {self.policy}", self.scaled, self.replica_hours, self.usd),
            (f"fixed, {self.fixed_replicas}", self.fixed, self.fixed_hours, self.fixed_usd),
        ):
            goodput, tpot = found.goodput, found.tpot_ms
            rows.append(
                (
                    name,
                    digits(found.ttft_ms.p50.median),
                    digits(found.ttft_ms.p99.median),
                    digits(tpot.mean.median) if tpot else "-",
                    f"{goodput.share.median:.1%}" if goodput else "-",
                    digits(hours),
                    "-" if usd is None else digits(usd),
                )
            )
        gpus = self.scaled.serving.parallelism.gpus
        lines = [
            f"{self.scaled.model['name']} on replicas of {gpus} x {self.scaled.device['name']}, "
            f"{self.scaled.requests:,} requests",
            f"  a replica keeps the targets up to {digits(self.rate_per_replica)} requests/s; stretches of "
            f"{digits(self.stretch_s)} s, {digits(self.scale_up_s)} s until a new one serves",
            "",
            columns(rows, right=(1, 2, 3, 4, 5, 6)),
            "",
            columns(
                [("from s", "serving", "paid"), *((digits(s), str(a), str(p)) for s, a, p in self.steps)],
                right=(0, 1, 2),
            ),
        ]
        return "\n".join([*lines, *([f"  {self.price}"] if self.price else [])])


def autoscale(
    model: Any,
    device: str | Device,
    *,
    trace: str | os.PathLike[str] | Requests | None = None,
    rates: tuple[float, ...] | None = None,
    requests: int | None = None,
    ttft_target_ms: float | None = None,
    tpot_target_ms: float | None = None,
    policy: str = "reactive",
    scale_up_s: float = SCALE_UP_S,
    stretch_s: float | None = None,
    input_length: int | None = None,
    output_length: int | None = None,
    length_cv: float = 0.0,
    seed: int = 0,
    router: str = "least-loaded",
    price_table: str | os.PathLike[str] | None = None,
    **served: Any,
) -> Scaled:
    """Replicas by time for a ``trace`` (a file or Requests), or for ``rates``, requests a second of parts of a day.

    At least one target is needed. ``stretch_s``: how often the number is decided on (default: a 48th of the time).
    ``served``: runtime, precision, tp and what else `perfpass.predict_llm` takes of a replica.

    Raises ArgumentError for options out of range, and targets that no replica keeps at any rate; and what reading a
    trace and `perfpass.simulate_llm` raise.
    """
    target = find_device(device)
    if (trace is None) == (rates is None):
        raise ArgumentError("autoscaling needs a trace, or rates over a day; give one of them")
    if policy not in POLICIES:
        raise ArgumentError(unknown("policy", policy, POLICIES))
    if ttft_target_ms is None and tpot_target_ms is None:
        raise ArgumentError(
            "how much a replica takes follows from targets: give ttft_target_ms, tpot_target_ms or both"
        )
    if not 0 <= scale_up_s <= DAY_S or (stretch_s is not None and not 1 <= stretch_s <= DAY_S):
        raise ArgumentError(
            f"a time to scale up is 0 to 86,400 s and a stretch 1 to 86,400 s, got {scale_up_s}, {stretch_s}"
        )
    if served.get("workers", 1) != 1 or served.get("prefill_workers"):
        raise ArgumentError(
            "autoscaling counts replicas that prefill and decode; leave out workers and prefill workers"
        )
    served.pop("workers", None)
    if isinstance(trace, Requests):
        asked = trace
    elif trace is not None:
        asked = read_trace(trace, most=requests)
    else:
        assert rates is not None
        single = predict_llm(model, target, input_length=input_length, output_length=output_length, **served).serving
        lengths = Lengths(single.input_length, length_cv), Lengths(single.output_length, length_cv)
        asked = profile(rates, DAY_S, *lengths, seed=seed)
    means = [round(float(np.mean(v))) for v in (asked.prompt_tokens, asked.output_tokens)]
    one = predict_llm(model, target, input_length=means[0], output_length=max(means[1], 1), **served)
    limits = tuple(None if v is None else v / 1e3 for v in (ttft_target_ms, tpot_target_ms))
    each = most_rate(model, target, one.serving, *limits)
    span = float(np.max(asked.arrival_s)) or 1.0
    stretch = stretch_s or span / _STRETCHES
    needed = _needed(asked, stretch, each)
    steps = _steps(needed, stretch, scale_up_s, policy)
    most = max(serving for _, serving, _ in steps)
    how: dict[str, Any] = {
        **served,
        "trace": asked,
        "ttft_target_ms": ttft_target_ms,
        "tpot_target_ms": tpot_target_ms,
        "router": router,
    }
    schedule = tuple((second, serving) for second, serving, _ in steps)
    scaled = simulate_llm(model, target, workers=most, schedule=schedule, **how)
    peak = int(needed.max())
    fixed = simulate_llm(model, target, workers=peak, **how)
    ends = [*(second for second, _, _ in steps[1:]), max(span, steps[-1][0])]
    hours = sum((end - begin) * paid for (begin, _, paid), end in zip(steps, ends, strict=True)) / 3600
    fixed_hours = peak * span / 3600
    try:
        found = money.price(target, money.read_prices(price_table))
        usd = found.usd_per_hour * one.serving.parallelism.gpus
        said: tuple[float | None, float | None, str] = (
            usd * hours,
            usd * fixed_hours,
            f"money: {found}; {found.source}",
        )
    except DeviceError as error:
        said = (None, None, f"money: {error}")
    return Scaled(policy, scale_up_s, stretch, each, steps, hours, peak, fixed_hours, scaled, fixed, *said)


def _needed(asked: Requests, stretch_s: float, each: float) -> np.ndarray:
    """Replicas [stretches] that the requests of each need; at least one."""
    counts = np.bincount((np.asarray(asked.arrival_s) // stretch_s).astype(np.int64))
    needed = np.maximum(np.ceil(counts / stretch_s / each), 1).astype(np.int64)
    if needed.max() > _MOST_REPLICAS:
        raise ArgumentError(
            f"{needed.max():,} replicas would be needed, of {each:.3g} requests/s each; at most {_MOST_REPLICAS:,} are "
            "modelled: take larger replicas or looser targets"
        )
    return np.asarray(needed)


def _steps(needed: np.ndarray, stretch_s: float, scale_up_s: float, policy: str) -> tuple[tuple[float, int, int], ...]:
    """(second, serving, paid) wherever one of them changes."""
    wanted = needed if policy == "ahead" else np.concatenate([needed[:1], needed[:-1]])
    begins = np.arange(len(wanted)) * stretch_s
    lead = scale_up_s if policy == "ahead" else 0.0
    late = 0.0 if policy == "ahead" else scale_up_s

    def at(second: float) -> tuple[int, int]:
        """Who serves and who is paid at a moment: new ones serve ``late`` after they are wanted and are paid ``lead``
        before.
        """
        now = int(np.searchsorted(begins, second, side="right") - 1)
        old = int(np.searchsorted(begins, second - late, side="right") - 1)
        # A replica serves if it was wanted ever since it was asked for, so long ago.
        serving = int(wanted[max(old, 0) : now + 1].min())
        soon = int(np.searchsorted(begins, second + lead, side="right") - 1)
        return serving, int(wanted[now : soon + 1].max())

    moments = sorted({0.0, *begins.tolist(), *(begins[1:] + late).tolist(), *np.maximum(begins - lead, 0.0).tolist()})
    found: list[tuple[float, int, int]] = []
    for second in moments:
        if second < len(wanted) * stretch_s:
            state = at(second)
            if not found or found[-1][1:] != state:
                found.append((second, *state))
    return tuple(found)
