"""What a simulation says: times at their means and percentiles, rates, use of the engines, what limits; by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfpass.llm.assumed import assumed_line, precision_name
from perfpass.llm.serving import Serving
from perfpass.prediction import COVERAGE, Interval, Support, understood_line
from perfpass.predictors.serving.prediction import Switched
from perfpass.text import columns, digits, item

SCHEMA_VERSION = 1
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Tails:
    """The mean and percentiles of a time, each with its interval."""

    mean: Interval
    p50: Interval
    p90: Interval
    p95: Interval
    p99: Interval

    @classmethod
    def of(cls, runs: Sequence[tuple[np.ndarray, np.ndarray | None]], unit: str, coverage: float = COVERAGE) -> Tails:
        """Of values with weights, of the median run first and then those of its bounds."""
        points = [_points(*run) for run in runs]
        return cls(*(bounded(unit, *values, coverage=coverage) for values in zip(*points, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {name: getattr(self, name).to_dict() for name in ("mean", "p50", "p90", "p95", "p99")}


def bounded(unit: str, median: float, *others: float, coverage: float = COVERAGE) -> Interval:
    """The median run's value within those of the runs at the bounds of the step time."""
    return Interval(median, min(median, *others), max(median, *others), unit, coverage)


def _points(values: np.ndarray, weights: np.ndarray | None) -> list[float]:
    if weights is None:
        return [float(values.mean()), *(float(v) for v in np.percentile(values, PERCENTILES))]
    order = np.argsort(values)
    ranked, upto = values[order], np.cumsum(weights[order])
    places = np.searchsorted(upto, np.array(PERCENTILES) / 100 * upto[-1])
    found = ranked[np.minimum(places, len(ranked) - 1)]
    return [float(np.average(values, weights=weights)), *(float(v) for v in found)]


@dataclass(frozen=True)
class Goodput:
    """Requests that keep both targets: their share, and how many there are a second."""

    ttft_target_ms: float | None
    tpot_target_ms: float | None
    share: Interval
    requests_per_s: Interval

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "ttft_target_ms": self.ttft_target_ms,
            "tpot_target_ms": self.tpot_target_ms,
            "share": self.share.to_dict(),
            "requests_per_s": self.requests_per_s.to_dict(),
        }


@dataclass(frozen=True)
class Window:
    """Requests that arrived in a stretch of time, of the median run: how many, and their times in ms (None: none)."""

    begin_s: float
    end_s: float
    requests: int
    output_tokens_per_s: float
    ttft_mean_ms: float | None
    ttft_p99_ms: float | None
    tpot_mean_ms: float | None

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Use:
    """How the engines were used, of the median run: shares from 0 to 1, means over time, counts.

    ``busy``: of the replicas' time; ``cache``: of its blocks, those that running requests hold, ``cache_peak``
    at most; ``prefix_hit``: of prompt tokens, those found in the cache; ``batch``: decodes of a step that decodes;
    ``in_flight``: requests that hold cache on a replica; ``recomputed``: of prompt tokens computed, those a second
    time.
    """

    busy: float
    prefill_busy: float | None
    cache: float
    cache_peak: float
    prefix_hit: float
    batch: float
    in_flight: float
    preemptions: int
    recomputed: float
    refused: int

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class ArrivalPrediction:
    """Requests that arrive, as users of a deployment see them. ``print(prediction)`` gives a table, ``to_dict()`` JSON.

    ``ttft_ms``: arrival to the first token; ``tpot_ms``: of a request, its mean time per token after the first;
    ``itl_ms``: between two tokens; ``request_ms``: arrival to the last token (``tpot_ms`` and ``itl_ms`` are None where
    every answer has one token). ``requests_per_s`` and ``output_tokens_per_s`` over the whole deployment, from the
    first arrival to the last end. ``limits``: what limits, in words. ``windows``: by time of arrival.
    ``arrivals``: what was asked of the requests. The bounds are those of the same requests with all steps as quick and
    as slow as the bounds of the time per token say.
    """

    ttft_ms: Tails
    tpot_ms: Tails | None
    itl_ms: Tails | None
    request_ms: Tails
    requests_per_s: Interval
    output_tokens_per_s: Interval
    goodput: Goodput | None
    use: Use
    limits: tuple[str, ...]
    windows: tuple[Window, ...]
    requests: int
    support: Support
    model: dict[str, Any] = field(hash=False)
    device: dict[str, Any] = field(hash=False)
    serving: Serving = field(hash=False)
    arrivals: dict[str, Any] = field(hash=False)
    settings: dict[str, Any] = field(hash=False)
    provenance: dict[str, Any] = field(hash=False)
    assumed: dict[str, Any] = field(default_factory=dict, hash=False)
    energy_per_token_j: Interval | None = None
    switched: Switched | None = None

    def to_dict(self) -> dict[str, Any]:
        """The prediction as strict JSON (no NaN, no infinity), with its ``schema_version``."""
        tails = {name: getattr(self, name) for name in ("ttft_ms", "tpot_ms", "itl_ms", "request_ms")}
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "device": self.device,
            "serving": self.serving.to_dict(),
            "arrivals": self.arrivals,
            "settings": self.settings,
            **{name: found.to_dict() if found else None for name, found in tails.items()},
            "requests_per_s": self.requests_per_s.to_dict(),
            "output_tokens_per_s": self.output_tokens_per_s.to_dict(),
            "goodput": self.goodput.to_dict() if self.goodput else None,
            "energy_per_token_j": self.energy_per_token_j.to_dict() if self.energy_per_token_j else None,
            "use": self.use.to_dict(),
            "limits": list(self.limits),
            "windows": [window.to_dict() for window in self.windows],
            "requests": self.requests,
            "assumed": self.assumed,
            **({"switched": self.switched.to_dict()} if self.switched else {}),
            "support": self.support.to_dict(),
            "provenance": self.provenance,
        }

    def __str__(self) -> str:
        return arrival_table(self)


def arrival_table(found: ArrivalPrediction) -> str:
    """Text of a prediction: tails with bounds, rates, use, what limits, support with reasons."""
    s, use = found.serving, found.use
    title = (
        f"{found.model['name']} on {s.gpus} x {found.device['name']}, {s.runtime} {s.runtime_version}".rstrip()
        + f", {precision_name(s.quantization)}"
        + (", disaggregated" if s.mode == "disagg" else "")
    )
    lines = [title, f"{found.requests:,} requests, {found.arrivals['words']}", *understood_line(found.device)]
    if line := assumed_line(found.assumed):
        lines.append(line)
    rows: list[tuple[str, ...]] = [("", "mean", "p50", "p90", "p95", "p99", "p99 of 90%")]
    for label, tails in (
        ("time to first token ms", found.ttft_ms),
        ("time per token ms", found.tpot_ms),
        ("between tokens ms", found.itl_ms),
        ("whole request ms", found.request_ms),
    ):
        if tails:
            cells = [digits(v.median) for v in (tails.mean, tails.p50, tails.p90, tails.p95, tails.p99)]
            rows.append((label, *cells, f"{digits(tails.p99.low)} to {digits(tails.p99.high)}"))
    lines += ["", columns(rows, right=(1, 2, 3, 4, 5)), ""]
    for label, value in (
        ("requests", found.requests_per_s),
        ("output, all GPUs", found.output_tokens_per_s),
        *((("goodput", found.goodput.requests_per_s),) if found.goodput else ()),
        *((("energy per token", found.energy_per_token_j),) if found.energy_per_token_j else ()),
    ):
        bounds = f"{digits(value.low)} to {digits(value.high)}"
        lines.append(f"  {label:<22} {digits(value.median):>10} {value.unit:<10} {bounds}")
    if found.goodput:
        share = found.goodput.share
        lines.append(f"  {'within targets':<22} {share.median:>10.1%} {'':<10} {share.low:.1%} to {share.high:.1%}")
    lines.append(
        f"  {'use':<22} {use.busy:>10.0%} busy, {use.cache:.0%} of the cache (at most {use.cache_peak:.0%}), "
        f"{digits(use.in_flight)} in flight"
    )
    more = [f"{use.prefix_hit:.0%} of prompt tokens in the cache"] if use.prefix_hit else []
    more += [f"{use.preemptions:,} preemptions"] if use.preemptions else []
    more += [f"{use.refused:,} refused: longer than the cache"] if use.refused else []
    if more:
        lines.append(f"  {'':<22} {'':>10} {', '.join(more)}")
    lines.append("  limits")
    lines += [item(limit) for limit in found.limits]
    if len(found.windows) > 1:
        rows = [("from s", "requests", "tokens/s", "TTFT mean", "p99", "TPOT mean")]
        for w in found.windows:
            times = ("-" if v is None else digits(v) for v in (w.ttft_mean_ms, w.ttft_p99_ms, w.tpot_mean_ms))
            rows.append((digits(w.begin_s), f"{w.requests:,}", digits(w.output_tokens_per_s), *times))
        lines += ["  by time of arrival, ms", columns(rows, right=(0, 1, 2, 3, 4, 5), indent="    ")]
    if found.switched:
        lines += found.switched.lines(", in a closed loop of as many requests in flight")
    lines.append(f"  support: {found.support.level}" + "".join(f"\n{item(reason)}" for reason in found.support.reasons))
    return "\n".join(lines)
