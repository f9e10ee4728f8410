"""The questions by name: which function answers each, and an example of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from perfpass.errors import ArgumentError
from perfpass.serve import questions
from perfpass.serve.questions import Question

_Asked = TypeVar("_Asked", bound=Question)


@dataclass(frozen=True)
class Explained:
    """A prediction with what stands behind it in words."""

    prediction: Any

    def to_dict(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"schema_version": 1, "text": str(self), "prediction": self.prediction.to_dict()}

    def __str__(self) -> str:
        from perfpass.prediction import explanation

        return f"{self.prediction}\n\n{explanation(self.prediction)}"


@dataclass(frozen=True)
class Kind:
    """One question: ``answer`` takes its models and the other arguments; what it gives has ``to_dict``.

    ``examples`` by name; ``file``: arguments of an example whose models come as files, None where no file is taken.
    ``required``: keys that every answer has; of one that was asked to search, ``searched``.
    """

    name: str
    asked: type[Question]
    answer: Callable[..., Any]
    examples: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]
    file: Mapping[str, Any] | None = None
    searched: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The question in a line."""
        return " ".join((self.asked.__doc__ or "").split())

    @property
    def answer_schema(self) -> dict[str, Any]:
        """JSON schema of the keys that an answer has."""
        kept: dict[str, Any] = {"required": list(self.required)}
        if self.searched:
            kept = {"anyOf": [kept, {"required": list(self.searched)}]}
        return {"type": "object", **kept}

    def read(self, content: Any, *, strict: bool = True) -> Question:
        """The question that ``content`` is; ``strict``: numbers are no texts. Raises ArgumentError."""
        return read(self.asked, content, strict=strict)


def read(asked: type[_Asked], content: Any, *, strict: bool = True) -> _Asked:
    """A question of this type. Raises ArgumentError."""
    try:
        return asked.model_validate(content, strict=strict)
    except ValidationError as error:
        raise ArgumentError(_wrong(error)) from None


def _wrong(error: ValidationError) -> str:
    """The first thing that is wrong with a question, in a line."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("function-", "constrained-")))
    more = error.error_count() - 1
    return f"{place or 'the question'}: {first['msg'].lower()}{f' (and {more} more)' * bool(more)}"


def _predict(model: Any, *, limits: Any = None, **given: Any) -> Any:
    from perfpass.decision import Limits
    from perfpass.predictors import predict

    return predict(model, **given, limits=None if limits is None else Limits(**limits.model_dump()))


def _explain(model: Any, **given: Any) -> Explained:
    return Explained(_predict(model, **given))


def _fit(model: Any, **given: Any) -> Any:
    from perfpass.deploy.fit import fit

    return fit(model, **given)


def _choose(model: Any, **given: Any) -> Any:
    from perfpass.deploy.choose import choose

    return choose(model, **given)


def _advise(model: Any, *, limits: Any = None, **given: Any) -> Any:
    from perfpass.decision import Limits
    from perfpass.deploy.advise import advise

    # No file of others is run, and nothing is written.
    kept = None if limits is None else Limits(**limits.model_dump())
    return advise(model, **given, limits=kept, rewrites=False)


def _llm(model: Any, **given: Any) -> Any:
    from perfpass.llm.costs import Parallelism
    from perfpass.predictors.serving.predictor import predict_llm

    if isinstance(model, bytes):
        raise ArgumentError("serving is asked of a language model by its name or its config.json, not of a file")
    if (split := given.get("prefill")) is not None:
        given["prefill"] = Parallelism.of(split.tp, split.pp, split.dp, split.ep)
    return predict_llm(model, **given)


def _diff(old: Any, new: Any, **given: Any) -> Any:
    from perfpass.deploy.difference import diff

    return diff(old, new, **given)


def _train_cost(model: Any, *, search: bool = False, **given: Any) -> Any:
    from perfpass.deploy.train_answer import train_answer, train_layouts

    return (train_layouts if search else train_answer)(model, **given)


_RESNET = {"device": "a100-80gb", "batch": 32, "precision": "amp"}
_CHAT = {"model": "llama-3.1-8b", "device": "h100"}
_INTERVALS = ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w")
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "predict",
            questions.Predict,
            _predict,
            {"a network by name": {"model": "resnet50", **_RESNET}},
            ("schema_version", "workload", *_INTERVALS, "memory", "mig", "support", "breakdown", "provenance"),
            _RESNET,
        ),
        Kind(
            "explain",
            questions.Explain,
            _explain,
            {"why a network takes as long": {"model": "resnet50", "device": "t4", "batch": 8}},
            ("schema_version", "text", "prediction"),
            {"device": "t4"},
        ),
        Kind(
            "fit",
            questions.Fit,
            _fit,
            {
                "a language model on one GPU": {**_CHAT, "context": 8192, "concurrency": 16},
                "the smallest devices that hold it": {"model": "llama-3.1-70b"},
            },
            ("schema_version", "answer", "headline", "answers"),
            {"device": "t4", "batch": 64},
        ),
        Kind(
            "choose",
            questions.Choose,
            _choose,
            {
                "devices for a rate": {
                    "model": "llama-3.1-8b",
                    "devices": ["h100", "l4"],
                    "rate": 4.0,
                    "input_length": 1024,
                    "output_length": 128,
                    "ttft_ms": 1000.0,
                    "tpot_ms": 50.0,
                }
            },
            ("schema_version", "decision", "headline", "options"),
            {"devices": ["t4", "l4"], "rate": 100.0, "latency_ms": 50.0},
        ),
        Kind(
            "advise",
            questions.Advise,
            _advise,
            {"what runs faster on a GPU": {"model": "resnet18", "device": "t4", "batch": 8}},
            ("schema_version", "headline", "target", "asked", "steps", "total", "settings", "declined"),
            {"device": "t4", "batch": 8},
        ),
        Kind(
            "llm",
            questions.Llm,
            _llm,
            {"a server under load": {**_CHAT, "input_length": 1024, "output_length": 128, "concurrency": 16}},
            ("schema_version", "ttft_ms", "tpot_ms", "memory", "support"),
        ),
        Kind(
            "diff",
            questions.Diff,
            _diff,
            {"two networks": {"old": "resnet18", "new": "resnet34", "device": "t4"}},
            ("schema_version", "headline", "answer", "exact", "devices", "limits", "changes"),
            {"device": "t4", "fail": {"latency": "5%"}},
        ),
        Kind(
            "train-cost",
            questions.TrainCost,
            _train_cost,
            {
                "a run of 10 billion tokens": {**_CHAT, "gpus": 8, "sharding": "zero3", "tokens": 1e10},
                "a network on eight GPUs": {"model": "resnet50", "device": "a100", "gpus": 8, "micro_batch": 64},
                "what takes less memory": {"model": "resnet50", "device": "a100", "micro_batch": 64, "advise": True},
                "the quickest layout": {**_CHAT, "gpus": 8, "global_batch": 64, "search": True},
            },
            ("schema", "fits_probability", "step_s", "step_parts_s", "notes"),
            {"device": "t4", "micro_batch": 4},
            ("schema", "tried", "fit", "best", "do_not_fit"),
        ),
    )
}


def document(kind: Kind, question: Question, models: Mapping[str, Any]) -> Any:
    """What answers a question. ``models``: by the name of the field, names, configurations, paths or bytes.

    Raises ArgumentError for a missing model, and what the function raises.
    """
    for name in kind.asked.uploads:
        if models.get(name) is None:
            raise ArgumentError(
                f"{name} is missing; give a name, the content of a config.json, or upload a model's file"
            )
    return kind.answer(*(models[name] for name in kind.asked.uploads), **question.given())
