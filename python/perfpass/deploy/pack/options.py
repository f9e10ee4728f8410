"""What each model costs on each slice that it may get, and which of them are good enough: predictions, not thresholds.

A slice is good enough where the model meets its targets and fits with the probabilities that the fleet asks for, read
off the predictions' intervals (`Interval.probability_below`, `MemoryFigures.probability_fits`). What an instance serves
is the throughput that it reaches with the same probability, times the utilisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfpass.deploy.pack.fleet import WHOLE, Fleet, Model, Pool
from perfpass.devices import Device, MigProfile
from perfpass.errors import DeviceError, PerfPassError, UnsupportedError
from perfpass.prediction import Interval
from perfpass.predictors.memory.allowance import driver_bytes

_STEPS = 60  # of a bisection; doubles have 52 bits
_MOST_IN_FLIGHT = 256  # requests to one server of a language model, where none are asked for


@dataclass(frozen=True)
class Option:
    """A model in one kind of instance: what it costs, and the probabilities that it meets its targets and fits.

    ``latency_ms``: one run; of a language model the time to first token, ``tpot_ms`` the time per token after it.
    ``concurrency``: requests in flight to a language model's server. ``rate_per_s``: what it serves for sure enough.
    """

    pool: int
    profile: str
    processes: int
    latency_ms: Interval
    rate_per_s: float
    p_meets: float
    p_fits: float
    memory_bytes: Interval
    available_bytes: int
    support: str
    tpot_ms: Interval | None = None
    concurrency: int | None = None

    def good(self, fleet: Fleet) -> bool:
        """Whether it is good enough for the fleet."""
        return self.p_meets >= fleet.confidence and self.p_fits >= fleet.memory_confidence

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON, without the pool's number."""
        return {
            "profile": self.profile,
            "processes": self.processes,
            "latency_ms": self.latency_ms.to_dict(),
            "tpot_ms": None if self.tpot_ms is None else self.tpot_ms.to_dict(),
            "concurrency": self.concurrency,
            "rate_per_s": self.rate_per_s,
            "p_meets": self.p_meets,
            "p_fits": self.p_fits,
            "memory_bytes": self.memory_bytes.to_dict(),
            "available_bytes": self.available_bytes,
            "support": self.support,
        }


def assured(found: Interval, probability: float) -> float:
    """The value that is reached or passed with ``probability``: `Interval.probability_below` turned round."""
    low, high = 0.0, found.high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if 1.0 - found.probability_below(middle) >= probability else (low, middle)
    return low


def options(fleet: Fleet) -> list[list[Option]]:
    """For each model of the fleet, every instance that it could be given, good enough or not.

    Raises what reading and predicting a model raise, with the model's name before it; a slice whose prediction is
    refused (no such rate, no such runtime) is left out, and where all are the refusal is raised.
    """
    found: list[list[Option]] = []
    known: dict[tuple[Any, ...], _Asker] = {}
    for model in fleet.models:
        key = (model.model, model.content, model.kind, repr(sorted(model.options.items())))
        try:
            if key not in known:
                known[key] = _Asker(model)
            mine, refused = known[key].ask(fleet, model)
        except PerfPassError as error:
            raise type(error)(f"{model.name}: {error}") from error
        if not mine and refused is not None:
            raise type(refused)(f"{model.name}: {refused}") from refused
        found.append(mine)
    return found


def instances(pool: Pool, media: bool) -> Iterator[tuple[str, Device]]:
    """Name and device of every instance of a pool's GPU; with ``media``, of those with a decoder."""
    geometry = pool.device.mig
    if pool.mode != "mig" or geometry is None:
        yield WHOLE, pool.device
    if pool.mode == "whole" or geometry is None:
        return
    for profile in geometry.profiles:
        if _with_media(profile) if media else profile in geometry.plain:
            yield profile.name, pool.device.mig_slice(profile.name)


def _with_media(profile: MigProfile) -> bool:
    """Those with graphics or every media engine only take from others."""
    return profile.engines.decoders > 0 and not profile.name.endswith(("+gfx", "+me.all"))


class _Asker:
    """Predictions of one model, each asked once."""

    def __init__(self, model: Model) -> None:
        self._options = dict(model.options)
        self._known: dict[tuple[Any, ...], Any] = {}
        self._graph: Any = None
        if model.kind == "graph":
            from perfpass.importers import load

            sizes = {k: self._options.pop(k) for k in ("batch", "dims") if k in self._options}
            self._graph = load(model.model if model.content is None else model.content, **sizes)
            self._options["batch"] = sizes.get("batch")

    def ask(self, fleet: Fleet, model: Model) -> tuple[list[Option], PerfPassError | None]:
        """Every instance, and the last refusal."""
        found: list[Option] = []
        refused: PerfPassError | None = None
        for number, pool in enumerate(fleet.pools):
            if model.devices and pool.device.id not in model.devices:
                continue
            for profile, device in instances(pool, model.media):
                try:
                    ways = self._llm(device, model, fleet) if model.kind == "llm" else self._runs(device, model, fleet)
                    found += [Option(number, profile, **one) for one in ways]
                except (DeviceError, UnsupportedError) as error:
                    refused = error
        return found, refused

    def _runs(self, device: Device, model: Model, fleet: Fleet) -> Iterator[dict[str, Any]]:
        from perfpass.predictors import predict_graph

        for processes in range(1, model.mps + 1):
            key = (device.id, processes)
            if key not in self._known:
                shared: dict[str, Any] = {"processes": processes} if processes > 1 else {}
                self._known[key] = predict_graph(self._graph, device, **self._options, **shared)
            found = self._known[key]
            meets = 1.0 if model.latency_ms is None else found.latency_ms.probability_below(model.latency_ms)
            driver = driver_bytes(device)
            each = driver + (device.usable_bytes - driver) / processes
            yield {
                "processes": processes,
                "latency_ms": found.latency_ms,
                "rate_per_s": fleet.utilisation * assured(found.throughput_per_s, fleet.confidence),
                "p_meets": meets,
                "p_fits": found.memory.probability_fits(each),
                "memory_bytes": found.memory.in_use,
                "available_bytes": int(each),
                "support": found.support.level,
            }

    def _llm(self, device: Device, model: Model, fleet: Fleet) -> Iterator[dict[str, Any]]:
        """The server at the load that it serves most at while it meets its targets; else at its smallest load."""
        from perfpass.llm import language_model
        from perfpass.llm.in_use import chance
        from perfpass.llm.memory import served
        from perfpass.predictors.serving.predictor import predict_llm

        asked = {"tp": 1, **self._options}  # an instance is one GPU, or a slice of one
        loads = [asked.pop("concurrency")] if "concurrency" in asked else _doubled(_MOST_IN_FLIGHT)
        best: dict[str, Any] | None = None
        for concurrency in loads:
            key = (device.id, concurrency)
            if key not in self._known:
                self._known[key] = predict_llm(model.model, device, concurrency=concurrency, **asked)
            found = self._known[key]
            misses = 0.0
            for target, time in ((model.ttft_ms, found.ttft_ms), (model.tpot_ms, found.tpot_ms)):
                misses += 0.0 if target is None else 1.0 - time.probability_below(target)
            # vLLM profiles its memory for the requests that it is told to run at once (--max-num-seqs).
            memory = served(language_model(model.model), device, found.serving, sequences=concurrency)
            total = float(memory.total_bytes)
            needed = memory.needed or Interval(total, total, total, "byte")
            fits = chance(needed, memory.usable_bytes)
            requests = found.request_ms.inverse(1e3 * concurrency, "1/s")
            now = {
                "processes": 1,
                "latency_ms": found.ttft_ms,
                "tpot_ms": found.tpot_ms,
                "concurrency": concurrency,
                "rate_per_s": fleet.utilisation * assured(requests, fleet.confidence),
                # Both targets: the probabilities of missing either, added, are the most that missing any can be.
                "p_meets": max(0.0, 1.0 - misses),
                "p_fits": fits if memory.fits else 0.0,
                "memory_bytes": needed,
                "available_bytes": int(memory.usable_bytes),
                "support": found.support.level,
            }
            good = now["p_meets"] >= fleet.confidence and now["p_fits"] >= fleet.memory_confidence
            if best is None or (good and now["rate_per_s"] > best["rate_per_s"]):
                best = now
            if not good or (model.rate and best["rate_per_s"] >= model.rate):
                break
        if best is not None:
            yield best


def _doubled(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length())]
