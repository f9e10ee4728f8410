"""What is asked of measured relatives: one run, or one load of a language model, with its counted figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.late import dataclass

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.llm import LanguageModel, Serving
    from perfpass.predictors.estimate import Run
    from perfpass.predictors.generation.features import Batch

# Of graphs: a run of inference, a training step. Of language models: requests to a server, one batch without one. Of a
# model that cannot be read: whatever bears its name.
KINDS = ("inference", "step", "serving", "generation", "named")
NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked, in the terms of the records.

    ``batch``: samples of a run; requests in flight on one replica (serving), sequences at once (generation).
    ``size``: of a language model, its parameters and those that a token passes. ``fingerprint`` [P] of a graph
    (`perfpass.predictors.learned.ratios.fingerprints`), None where it is not counted. ``names``: under which sources
    may know the model, as `plain` writes them. ``work``: by name of `work.WORK`; what is absent was not counted.
    ``timed``: a scope of `scope`, "" for whatever was timed; ``memory_kind`` as records state it, "" likewise.
    """

    kind: str
    device: Device
    runtime: str
    precision: str
    batch: float
    names: frozenset[str]
    work: Mapping[str, float]
    layout: str = ""
    version: str = ""
    devices: int = 1
    processes: int = 1
    input_tokens: float = NAN
    output_tokens: float = NAN
    size: tuple[float, float] | None = None
    fingerprint: np.ndarray | None = None
    model: str = ""
    timed: str = ""
    memory_kind: str = ""


def plain(name: str) -> str:
    """A model's name without owner, folder, ending and everything that sources write differently."""
    last = PurePath(name.replace("\\", "/")).name.rpartition(":")[2].lower()
    for ending in (".onnx", ".json", "-hf"):
        last = last.removesuffix(ending)
    if last == "config":
        last = PurePath(name).parent.name.lower()
    return re.sub(r"[^a-z0-9]+", "", last)


def of_run(run: Run, mode: str, model: str = "", processes: int | None = None) -> Question:
    """The question that a counted graph on a device is."""
    from perfpass.predictors.relative import scope, work

    counted, fingerprint, _ = work.of_run(run, mode)
    way = run.way
    return Question(
        kind="step" if mode == "training" else "inference",
        device=way.device,
        runtime=way.runtime,
        precision=way.precision,
        layout=way.layout,
        batch=float(run.batch),
        processes=processes or 1,
        names=frozenset({plain(model)} - {""}),
        model=model,
        work=counted,
        fingerprint=fingerprint,
        timed=scope.NETWORK,
        memory_kind=scope.HOST if way.device.kind == "cpu" else scope.IN_USE,
    )


def of_batch(batch: Batch) -> Question:
    """The question that one batch of equal requests to a language model is."""
    return _of_language(batch, "generation", batch.sequences)


def of_serving(model: LanguageModel, device: Device, serving: Serving) -> Question:
    """The question that a served language model is; of a deployment, one replica with its share of the load."""
    return _of_language(served_batch(model, device, serving), "serving", serving.decoded)


def served_batch(model: LanguageModel, device: Device, serving: Serving) -> Batch:
    """What runs at once on one replica."""
    from perfpass.predictors.generation.features import Batch

    q, split = serving.quantization, serving.parallelism
    return Batch(
        model,
        device,
        serving.runtime,
        split.gpus,
        min(max(1, round(serving.decoded)), 65536),
        serving.input_length,
        serving.output_length,
        q.moe if model.expert_parameters else q.gemm,
    )


def _of_language(batch: Batch, kind: str, at_once: float) -> Question:
    from perfpass.predictors.relative import work

    return Question(
        kind=kind,
        device=batch.device,
        runtime=batch.runtime,
        precision=batch.precision,
        batch=float(at_once),
        devices=int(batch.devices),
        input_tokens=float(batch.input_tokens),
        output_tokens=float(batch.output_tokens),
        names=frozenset({plain(batch.model.name)}),
        model=batch.model.name,
        work=work.of_served(batch) if kind == "serving" else work.of_batch(batch),
        size=(float(batch.model.parameters), float(batch.model.active_parameters)),
    )


class Asked:
    """The question behind a prediction from a graph, counted when it is first looked at.

    It keeps the graph, for pictures of the run; pickled or copied, it keeps the question alone.
    """

    def __init__(self, counted: Callable[[], Run], mode: str, model: str, processes: int | None) -> None:
        """``counted`` gives the graph as it runs, counted and planned."""
        self._counted: Callable[[], Run] | None = counted
        self._rest = (mode, model, processes)
        self._question: Question | None = None

    @property
    def model(self) -> str:
        """The name that was asked with; empty for a graph."""
        return self._rest[1]

    def called(self, model: str) -> Asked:
        """The same under another name, for whoever shows it: the content of a file has none."""
        mode, _, processes = self._rest
        return Asked(self.run, mode, model, processes)

    def question(self) -> Question:
        """The question. Raises what counting the graph raises."""
        if self._question is None:
            self._question = of_run(self.run(), *self._rest)
        return self._question

    def run(self) -> Run:
        """The run that was predicted, counted and planned.

        Raises UnsupportedError where the prediction was copied from another process.
        """
        if self._counted is None:
            raise UnsupportedError("this prediction was copied without its graph; predict it anew to see into it")
        return self._counted()

    def __getstate__(self) -> Question:
        return self.question()

    def __setstate__(self, question: Question) -> None:
        self._counted, self._question = None, question
        self._rest = ("", question.model, question.processes)


class kept:
    """Inside, a refusal to predict keeps what was asked: `perfpass.evidence.of` takes it as it takes a prediction."""

    def __init__(self, asked: Any) -> None:
        self._asked = asked

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, refusal: BaseException | None, trace: Any) -> None:
        if isinstance(refusal, UnsupportedError):
            refusal.asked = self._asked


@dataclass(frozen=True)
class AskedServing:
    """The question behind a prediction of serving."""

    model: LanguageModel
    device: Device
    serving: Serving

    def question(self) -> Question:
        """The question."""
        return _of_text(of_serving(self.model, self.device, self.serving))


@dataclass(frozen=True)
class AskedBatch:
    """The question behind a prediction of one batch without a server."""

    batch: Batch

    def question(self) -> Question:
        """The question."""
        return _of_text(of_batch(self.batch))


def _of_text(asked: Question) -> Question:
    """As somebody asks it. The baseline that copies records asks a record's own question, of whatever task that is."""
    from perfpass.predictors.relative.scope import REQUESTS_OF_TEXT

    return replace(asked, timed=REQUESTS_OF_TEXT)
