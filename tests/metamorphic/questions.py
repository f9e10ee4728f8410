"""What can be asked through the public doors, and the answer as figures by name."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

import perfpass
from perfpass.errors import PerfPassError
from perfpass.prediction import Support
from perfpass.predictors import predict_graph

from . import networks

Figures = dict[str, float]


class Refusal(Exception):
    """An answer that is no figure of the device that was asked about."""


@dataclass(frozen=True)
class Answer:
    """Every figure, an interval's median, low and high as ``name.median`` and so on.

    ``evidence`` is what the answer says of the measurements behind it: its support and the reasons, without numbers.
    """

    figures: Figures
    evidence: str


class Question(ABC):
    """One question; equal ones are asked once a process."""

    @abstractmethod
    def answer(self) -> Answer:
        """What the public door says. Raises PerfPassError or Refusal."""

    def __str__(self) -> str:
        defaults = {f.name: f.default for f in fields(self)}
        given = {k: v for k, v in asdict(self).items() if v != defaults[k]}
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

    def answer(self) -> Answer:
        """As `perfpass.predict` answers, with the sums of the parts."""
        how = {k: getattr(self, k) for k in ("precision", "runtime", "layout", "mode", "optimizer", "processes")}
        graph = networks.graph(self.network, self.batch, self.size)
        return of_prediction(predict_graph(graph, self.device, batch=self.batch, calibration=False, **how))


def of_prediction(found: perfpass.Prediction) -> Answer:
    """The figures of a prediction, and the sums of its parts."""
    out = _every(found, ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w"))
    out["parts.latency_ms"] = sum(found.breakdown["latency_ms"].values())
    out["parts.peak_memory_bytes"] = sum(found.breakdown["memory_bytes"].values())
    return Answer(out, _evidence(found.support))


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

    def answer(self) -> Answer:
        """As `perfpass.predict_llm` answers; memory is that of one device, where no request waits for room in it.

        A full cache holds whole requests, so what it takes goes up and down with their length; and where requests
        wait, more room runs more of them at once, each more slowly: "running_tpot_ms" is TPOT where none waits. Raises
        Refusal for a model that does not fit: its times are those of a larger device.
        """
        found = perfpass.predict_llm(**asdict(self))
        if not found.memory.fits:
            raise Refusal(f"does not fit: {found.memory.reason}")
        out = _every(found, found.INTERVALS)
        if found.memory.most_requests >= self.concurrency:
            out["memory_bytes"] = float(found.memory.total_bytes)
            out |= {f"running_{name}": value for name, value in out.items() if name.startswith("tpot_ms")}
        return Answer(out, _evidence(found.support))


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

    def answer(self) -> Answer:
        """As `perfpass llm --offline` answers."""
        from perfpass.predictors.generation.predictor import batch_of, offline

        found = offline(batch_of(**asdict(self)))
        names = ("latency_s", "tokens_per_s", "output_tokens_per_s", "prompt_s", "token_s")
        return Answer(_every(found, names), _evidence(found.support))


def _every(found: Any, names: Iterable[str]) -> Figures:
    """The parts of all intervals that were predicted."""
    intervals = {name: getattr(found, name) for name in names}
    return {f"{n}.{p}": getattr(i, p) for n, i in intervals.items() if i for p in ("median", "low", "high")}


def _evidence(support: Support) -> str:
    return re.sub(r"\d[\d.,]*", "#", "; ".join((support.level, *support.reasons)))


@cache
def ask(question: Question) -> Answer | str:
    """The answer, or the reason of a refusal."""
    try:
        return question.answer()
    except (PerfPassError, Refusal) as error:
        return f"{type(error).__name__}: {error}"


def asked() -> int:
    """How many different questions were asked in this process."""
    return ask.cache_info().currsize


def as_json(question: Question) -> dict[str, Any]:
    """The question with its kind."""
    return {"kind": type(question).__name__, **asdict(question)}
