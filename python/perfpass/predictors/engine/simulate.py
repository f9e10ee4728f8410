"""A deployment of a language model under requests that arrive: its engines run on predicted steps, event by event."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.serving import Serving
from perfpass.prediction import Support
from perfpass.predictors.engine import arrivals as drawn
from perfpass.predictors.engine.arrivals import Lengths
from perfpass.predictors.engine.deployment import Deployment
from perfpass.predictors.engine.events import Ran
from perfpass.predictors.engine.limits import limits
from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.engine.settings import ENGINES, EngineSettings, settings_of
from perfpass.predictors.engine.tails import ArrivalPrediction, Goodput, Tails, Use, Window, bounded
from perfpass.predictors.engine.traces import read_trace
from perfpass.predictors.serving.energy import energy_per_token
from perfpass.predictors.serving.prediction import LlmPrediction, Transformation
from perfpass.predictors.serving.predictor import predict_llm
from perfpass.text import unknown

REQUESTS = 1000
_WINDOWS = 12


def simulate_llm(
    model: str | os.PathLike[str] | Mapping[str, Any] | LanguageModel,
    device: str | Device,
    *,
    rate: float | None = None,
    trace: str | os.PathLike[str] | Requests | None = None,
    requests: int | None = None,
    arrivals: str = "poisson",
    burstiness: float = 1.0,
    concurrency: int | None = None,
    input_length: float | None = None,
    output_length: float | None = None,
    length_cv: float = 0.0,
    turns: int = 1,
    pause_s: float = 0.0,
    seed: int = 0,
    prefix_hit: float | None = None,
    router: str = "round-robin",
    settings: EngineSettings | None = None,
    max_sequences: int | None = None,
    max_batched_tokens: int | None = None,
    ttft_target_ms: float | None = None,
    tpot_target_ms: float | None = None,
    window_s: float | None = None,
    schedule: tuple[tuple[float, int], ...] = (),
    runtime: str | None = None,
    runtime_version: str = "",
    precision: str | Quantization | None = None,
    kv_precision: str | None = None,
    tp: int | None = None,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    workers: int = 1,
    prefill: Parallelism | None = None,
    prefill_workers: int = 0,
    decode_batch: int = 0,
    switches: Transformation | None = None,
) -> ArrivalPrediction:
    """Tails of a deployment under requests that arrive, what limits it and how its engines are used.

    ``trace``: a file (`perfpass.predictors.engine.traces`) or Requests, at its own times, or at ``rate`` requests a
    second if that is given too; without one, ``requests`` (1,000) are drawn as `perfpass.predictors.engine.arrivals`
    says, with ``length_cv`` for both lengths. ``arrivals="closed"`` has ``concurrency`` users. ``prefix_hit``: share of
    every prompt that the cache has. ``settings`` of the engine, by default what ``runtime`` takes by itself.
    ``ttft_target_ms``, ``tpot_target_ms``: what counts as goodput. ``schedule``: (second, replicas) that get new
    requests from then on, of the ``workers`` there are at most (`perfpass.deploy.autoscale`). ``window_s``: of the
    stretches of ``windows`` (a trace has twelve without it). ``switches``: what is switched on in the engines' steps
    (`perfpass.Switches`); of drafts each token has its share of a step. The rest is as of `perfpass.predict_llm`.

    Raises as `perfpass.predict_llm` and `read_trace`; ArgumentError where weights leave no room for a cache, LimitError
    where no request fits.
    """
    read = model if isinstance(model, LanguageModel) else language_model(model)
    target = find_device(device) if not isinstance(device, Device) else device
    if runtime is not None and runtime not in ENGINES:
        raise ArgumentError(unknown("runtime of arriving requests", runtime, ENGINES))
    asked, source = _requests(trace, requests, rate)
    mean = _lengths(asked, input_length, output_length)
    options: dict[str, Any] = {
        "runtime": runtime,
        "runtime_version": runtime_version,
        "precision": precision,
        "kv_precision": kv_precision,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "ep": ep,
        "workers": workers,
        "prefill": prefill,
        "prefill_workers": prefill_workers,
        "decode_batch": decode_batch,
        "switches": switches,
    }

    def closed(in_flight: float) -> LlmPrediction:
        return predict_llm(read, target, concurrency=in_flight, input_length=mean[0], output_length=mean[1], **options)

    single = closed(1.0)
    serving = single.serving
    if asked is None:
        arrivals = "closed" if rate is None else arrivals
        lengths = Lengths(serving.input_length, length_cv), Lengths(serving.output_length, length_cv)
        asked = drawn.requests(
            *(requests or REQUESTS, *lengths), rate_per_s=rate, arrivals=arrivals, burstiness=burstiness,
            concurrency=concurrency or 1, turns=turns, pause_s=pause_s, seed=seed,
        )  # fmt: skip
        source = _words(arrivals, rate, burstiness, concurrency or 1, turns, length_cv, serving)
    taken = settings or settings_of(target, serving)
    taken = replace(
        taken,
        max_sequences=max_sequences or taken.max_sequences,
        max_batched_tokens=max_batched_tokens or taken.max_batched_tokens,
    )
    deployment = Deployment.of(read, target, serving, taken, switches)

    def ran(factor: float) -> Ran:
        return deployment.run(asked, factor=factor, router=router, prefix_hit=prefix_hit, schedule=schedule)

    median = ran(1.0)
    in_flight = max(_in_flight(median) * deployment.pool.replicas, 1.0)
    loaded = closed(in_flight)
    tpot = loaded.tpot_ms
    runs = [median, ran(tpot.low / tpot.median), ran(tpot.high / tpot.median)]
    tokens_per_s = bounded("tokens/s", *(_tokens_per_s(asked, r) for r in runs))
    energy = energy_per_token(loaded.serving, tokens_per_s, tpot, read, target)
    reasons = tuple(r for r in energy.support.reasons if r not in loaded.support.reasons)
    span = window_s
    if span is None and trace is not None:
        span = float(np.nextafter(np.nanmax(median.arrival_s) / _WINDOWS, np.inf))
    return ArrivalPrediction(
        **_times(asked, runs),
        requests_per_s=bounded("1/s", *(float(_served(r).sum() / np.nanmax(r.end_s)) for r in runs)),
        output_tokens_per_s=tokens_per_s,
        goodput=_goodput(asked, runs, ttft_target_ms, tpot_target_ms),
        use=_use(asked, median),
        limits=limits(
            median, deployment.pool.steps, read, target, serving,
            asked_per_s=None if arrivals == "closed" else _rate(asked), issued_s=deployment.issued_s,
        ),
        windows=_windows(asked, median, span) if span else (),
        requests=len(asked),
        support=Support(loaded.support.level, (*loaded.support.reasons, *reasons)),
        model=single.model,
        device=single.device,
        serving=loaded.serving,
        arrivals={"words": source, "rate_per_s": rate, "seed": seed, "requests": len(asked), "prefix_hit": prefix_hit},
        settings={**taken.to_dict(), "router": router, "cache_tokens": deployment.pool.cache_tokens},
        provenance={
            "kind": "simulated",
            "steps": type(deployment.pool.steps).__name__,
            "bounds": {"low": tpot.low / tpot.median, "high": tpot.high / tpot.median},
            "energy": {"kind": energy.kind, "support": energy.support.to_dict()},
        },
        assumed={n: v for n, v in single.assumed.items() if n not in ("concurrency", *(_LENGTHS if trace else ()))},
        energy_per_token_j=energy.value,
        switched=loaded.switched,
    )  # fmt: skip


_LENGTHS = ("input_length", "output_length")


def _requests(
    trace: str | os.PathLike[str] | Requests | None, most: int | None, rate: float | None
) -> tuple[Requests | None, str]:
    if trace is None:
        return None, ""
    if isinstance(trace, Requests):
        found, words = (trace if most is None else trace.first(most)), "as given"
    else:
        found, words = read_trace(trace, most=most), f"of {os.path.basename(os.fspath(trace))}"
    if rate is not None:
        own = _rate(found)
        if not own:
            raise ArgumentError("a trace whose requests all come at once has no rate to change; leave out the rate")
        return found.at_rate(rate / own), f"{words}, at {rate:g} requests/s instead of {own:.3g}"
    return found, words


def _rate(requests: Requests) -> float | None:
    last = float(np.max(requests.arrival_s))
    return (len(requests) - 1) / last if last > 0 else None


def _lengths(asked: Requests | None, prompt: float | None, answer: float | None) -> tuple[int | None, int | None]:
    if asked is not None:
        if prompt is not None or answer is not None:
            raise ArgumentError("a trace has its own lengths; leave out input_length and output_length")
        return round(float(asked.prompt_tokens.mean())), max(round(float(asked.output_tokens.mean())), 1)
    return (None if prompt is None else round(prompt)), (None if answer is None else round(answer))


def _words(
    arrivals: str, rate: float | None, burstiness: float, users: int, turns: int, cv: float, serving: Serving
) -> str:
    how = f"closed loop of {users:,}" if arrivals == "closed" else f"{arrivals} at {rate:g} a second"
    how += f" (burstiness {burstiness:g})" if arrivals == "gamma" else ""
    how += f", {turns} turns a conversation" if turns > 1 else ""
    return f"{how}, {serving.input_length} -> {serving.output_length} tokens" + (f" (cv {cv:g})" if cv else "")


def _served(ran: Ran) -> np.ndarray:
    return np.isfinite(ran.end_s)


def _in_flight(ran: Ran) -> float:
    """Requests in a replica while it works, from admission to end."""
    return ran.work.sequence_s / max(ran.work.busy_s, 1e-12)


def _tokens_per_s(asked: Requests, ran: Ran) -> float:
    return float(asked.output_tokens[_served(ran)].sum() / np.nanmax(ran.end_s))


def _tpot_ms(asked: Requests, ran: Ran) -> np.ndarray:
    """[N] ms a token after the first; NaN where there is none."""
    steps = np.asarray(asked.output_tokens) - 1
    return np.asarray(1e3 * np.where(steps > 0, (ran.end_s - ran.first_s) / np.maximum(steps, 1), np.nan))


def _times(asked: Requests, runs: list[Ran]) -> dict[str, Any]:
    def tails(values: Callable[[Ran], np.ndarray]) -> Tails | None:
        found = [values(r) for r in runs]
        kept = [v[np.isfinite(v)] for v in found]
        return Tails.of([(v, None) for v in kept], "ms") if len(kept[0]) else None

    gaps = [(1e3 * r.gaps_s, r.gap_counts.astype(np.float64)) for r in runs]
    return {
        "ttft_ms": tails(lambda r: 1e3 * (r.first_s - r.arrival_s)),
        "tpot_ms": tails(lambda r: _tpot_ms(asked, r)),
        "itl_ms": Tails.of(gaps, "ms") if len(gaps[0][0]) else None,
        "request_ms": tails(lambda r: 1e3 * (r.end_s - r.arrival_s)),
    }


def _goodput(asked: Requests, runs: list[Ran], ttft: float | None, tpot: float | None) -> Goodput | None:
    if ttft is None and tpot is None:
        return None
    for name, value in (("ttft", ttft), ("tpot", tpot)):
        if value is not None and not 0 < value < 1e9:
            raise ArgumentError(f"a target of {name} must be above 0 ms, got {value!r}")
    shares, rates = [], []
    for r in runs:
        kept = _served(r)
        if ttft is not None:
            kept &= 1e3 * (r.first_s - r.arrival_s) <= ttft
        if tpot is not None:
            per_token = _tpot_ms(asked, r)
            kept &= np.isnan(per_token) | (per_token <= tpot)
        shares.append(float(kept.mean()))
        rates.append(float(kept.sum() / np.nanmax(r.end_s)))
    return Goodput(ttft, tpot, bounded("", *shares), bounded("1/s", *rates))


def _use(asked: Requests, ran: Ran) -> Use:
    work, span = ran.work, float(np.nanmax(ran.end_s))
    prompts = work.prompt_tokens + (ran.prefill.prompt_tokens if ran.prefill else 0)
    return Use(
        busy=work.busy_s / work.replicas / span,
        prefill_busy=ran.prefill.busy_s / ran.prefill.replicas / span if ran.prefill else None,
        cache=work.block_s / max(work.busy_s, 1e-12) / work.capacity_blocks,
        cache_peak=work.peak_blocks / work.capacity_blocks,
        prefix_hit=float(ran.found_tokens.sum() / asked.prompt_tokens[_served(ran)].sum()),
        batch=work.decoded_tokens / max(work.decode_steps, 1.0),
        in_flight=_in_flight(ran),
        preemptions=work.preemptions,
        recomputed=work.recomputed_tokens / max(prompts, 1),
        refused=int(ran.refused.sum()),
    )


def _windows(asked: Requests, ran: Ran, span_s: float) -> tuple[Window, ...]:
    if not 0 < span_s < np.inf:
        raise ArgumentError(f"a window must be a finite number of seconds above 0, got {span_s!r}")
    served = _served(ran)
    place = np.floor(ran.arrival_s / span_s)
    count = int(np.nanmax(place)) + 1
    if count > 100_000:
        raise ArgumentError(
            f"windows of {span_s:g} s make {count:,} of them; at most 100,000 are told: take longer ones"
        )
    ttft, tpot = 1e3 * (ran.first_s - ran.arrival_s), _tpot_ms(asked, ran)
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(count + 1))
    found = []
    for i in range(count):
        rows = order[bounds[i] : bounds[i + 1]]
        rows = rows[served[rows]]
        told = tpot[rows][np.isfinite(tpot[rows])]
        found.append(
            Window(
                i * span_s,
                (i + 1) * span_s,
                len(rows),
                float(asked.output_tokens[rows].sum() / span_s),
                float(ttft[rows].mean()) if len(rows) else None,
                float(np.percentile(ttft[rows], 99)) if len(rows) else None,
                float(told.mean()) if len(told) else None,
            )
        )
    return tuple(found)
