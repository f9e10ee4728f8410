"""What can be asked through the public doors, and the answer as figures by name."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

import perfpass
from perfpass.errors import PerfPassError
from perfpass.predictors import predict_graph
from perfpass.prediction import Interval

from . import networks

Figures = dict[str, float]


class Question:
    """One question; equal ones are asked once a process."""

    def figures(self) -> Figures:
        """Every figure of the answer: an interval's median, low and high as ``name.median`` and so on."""
        raise NotImplementedError

    def __str__(self) -> str:
        defaults = {f.name: f.default for f in fields(self)}  # type: ignore[arg-type]
        given = {k: v for k, v in asdict(self).items() if v != defaults[k]}  # type: ignore[call-overload]
        return ", ".join(f"{name} {value}" for name, value in given.items())


@dataclass(frozen=True)
class Run(Question):
    """One run of a network; ``size`` 0 is its usual one."""

    network: str
    device: str
    batch: int
    precision: str = "fp32"
    runtime: str = "torch"
    layout: str = "nchw"
    mode: str = "inference"
    optimizer: str | None = None
    processes: int | None = None
    size: int = 0

    def figures(self) -> Figures:
        """As `perfpass.predict` answers, with the sums of the parts."""
        how = {k: getattr(self, k) for k in ("precision", "runtime", "layout", "mode", "optimizer", "processes")}
        graph = networks.graph(self.network, self.batch, self.size)
        return of_prediction(predict_graph(graph, self.device, batch=self.batch, calibration=False, **how))


def of_prediction(found: perfpass.Prediction) -> Figures:
    """The figures of a prediction, and the sums of its parts."""
    out = {}
    for name in ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w"):
        out |= _flat(name, getattr(found, name))
    out["parts.latency_ms"] = sum(found.breakdown["latency_ms"].values())
    out["parts.peak_memory_bytes"] = sum(found.breakdown["memory_bytes"].values())
    return out


@dataclass(frozen=True)
class Served(Question):
    """A language model behind a server."""

    model: str
    device: str
    input_length: int
    output_length: int
    concurrency: int
    runtime: str = "vllm"
    precision: str | None = None
    tp: int = 1
    workers: int = 1

    def figures(self) -> Figures:
        """As `perfpass.predict_llm` answers; memory is that of one device."""
        found = perfpass.predict_llm(**asdict(self))
        out = {}
        for name in found.INTERVALS:
            if (interval := getattr(found, name)) is not None:
                out |= _flat(name, interval)
        return out | {"memory_bytes": float(found.memory.total_bytes), "fits": float(found.memory.fits)}


@dataclass(frozen=True)
class OfflineBatch(Question):
    """A language model that answers one batch of equal requests."""

    model: str
    device: str
    batch: int
    input_tokens: int
    output_tokens: int
    runtime: str = "vllm"
    devices: int = 1

    def figures(self) -> Figures:
        """As `perfpass llm --offline` answers."""
        from perfpass.predictors.generation.predictor import predict_offline

        found = predict_offline(**asdict(self))
        out = {}
        for name in ("latency_s", "tokens_per_s", "output_tokens_per_s", "prompt_s", "token_s"):
            if (interval := getattr(found, name)) is not None:
                out |= _flat(name, interval)
        return out


def _flat(name: str, found: Interval) -> Figures:
    return {f"{name}.median": found.median, f"{name}.low": found.low, f"{name}.high": found.high}


@lru_cache(maxsize=None)
def ask(question: Question) -> Figures | str:
    """The figures, or the reason of a refusal."""
    try:
        return question.figures()
    except PerfPassError as error:
        return f"{type(error).__name__}: {error}"


def asked() -> int:
    """How many different questions were asked in this process."""
    return ask.cache_info().currsize


def as_json(question: Question) -> dict[str, Any]:
    """The question with its kind."""
    return {"kind": type(question).__name__, **asdict(question)}  # type: ignore[call-overload]
