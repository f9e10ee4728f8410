"""Documents back into the dataclasses that wrote them, by the types of their fields.

Only what a server of ours answers is read. A key that is not known is passed over, as later versions add some.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from perfpass.errors import FormatError, PerfPassError

if TYPE_CHECKING:
    from perfpass.deploy.advise import Advice
    from perfpass.deploy.choose import Choice
    from perfpass.deploy.difference import Difference
    from perfpass.deploy.fit import Fit
    from perfpass.deploy.train_advice import Advice as TrainAdvice
    from perfpass.deploy.train_cost import Layouts, TrainCost
    from perfpass.deploy.train_network import NetworkTrainCost
    from perfpass.deploy.train_network_advice import NetworkLayouts
    from perfpass.devices import Device
    from perfpass.prediction import Prediction
    from perfpass.predictors.serving.prediction import LlmPrediction

_T = TypeVar("_T")


def _read_whole(read: Callable[[Any], _T]) -> Callable[[Any], _T]:
    """Raises FormatError for whatever is wrong with a document."""

    @wraps(read)
    def reading(document: Any) -> _T:
        try:
            return read(document)
        except (PerfPassError, AttributeError, LookupError, TypeError, ValueError) as error:
            said = f"{type(error).__name__}: {error}"
            raise FormatError(
                f"the server's answer is none of /{read.__name__} ({said}); is it of this version?"
            ) from error

    return reading


@_read_whole
def prediction(document: Any) -> Prediction:
    """Of /predict."""
    from perfpass.stored_prediction import prediction_of

    return prediction_of(document)


@_read_whole
def explanation(document: Any) -> str:
    """Of /explain: the text."""
    return str(document["text"])


@_read_whole
def fit(document: Any) -> Fit:
    """Of /fit."""
    from perfpass.deploy.fit import Fit

    return _made(Fit, document)


@_read_whole
def choice(document: Any) -> Choice:
    """Of /choose."""
    from perfpass.deploy.choose import Choice

    return _made(Choice, document)


@_read_whole
def llm_prediction(document: Any) -> LlmPrediction:
    """Of /llm."""
    from perfpass.predictors.serving.prediction import LlmPrediction

    return _made(LlmPrediction, document)


@_read_whole
def difference(document: Any) -> Difference:
    """Of /diff."""
    from perfpass.deploy.difference import Difference
    from perfpass.deploy.difference.found import OnDevice
    from perfpass.deploy.difference.ratio import Ratio, Verdict

    def ratio(found: Mapping[str, Any]) -> Ratio:
        return _made(Ratio, found, causes=tuple((one["cause"], one["share"]) for one in found["causes"]))

    def ratios(found: Mapping[str, Any]) -> tuple[Ratio, ...]:
        return tuple(ratio(one) for one in found.values())

    devices = tuple(
        _made(
            OnDevice,
            one,
            ratios=ratios(one["ratios"]),
            by_class={name: (ms["old"], ms["new"]) for name, ms in one["latency_ms_by_class"].items()},
            same_classes=tuple(one.get("same_classes", ())),
        )
        for one in document["devices"]
    )
    exact = ratios(document["exact"])
    every = {(None, one.metric): one for one in exact}
    every |= {(on.device, one.metric): one for on in devices for one in on.ratios}  # type: ignore[misc]
    verdicts = tuple(
        _made(Verdict, one, allowed=one["allowed_pct"] / 100, probability=one["probability_within"],
              ratio=every[one["device"], one["metric"]])
        for one in document["limits"]
    )  # fmt: skip
    return _made(Difference, document, exact=exact, devices=devices, verdicts=verdicts)


@_read_whole
def advice(document: Any) -> Advice:
    """Of /advise."""
    from perfpass.deploy.advise import Advice
    from perfpass.deploy.advise.result import Change
    from perfpass.deploy.difference.ratio import Ratio
    from perfpass.stored_prediction import prediction_of

    def ratio(found: Any) -> Ratio | None:
        if found is None:
            return None
        return _made(Ratio, found, causes=tuple((one["cause"], one["share"]) for one in found["causes"]))

    def changes(found: Any) -> tuple[Change, ...]:
        return tuple(
            _made(Change, one, ratio=ratio(one["gain"]), error=one["output_error"], why=one["why_not"] or "")
            for one in found
        )

    lists = {name: changes(document[name]) for name in ("steps", "alone", "declined")}
    totals = {name: ratio(document[name]) for name in ("start", "total")}
    return _made(Advice, document, asked=prediction_of(document["asked"]), **lists, **totals)


@_read_whole
def train_cost(document: Any) -> TrainCost | NetworkTrainCost:
    """Of /train-cost."""
    if "step_of_a_device" in document:
        return _network_train_cost(document)
    from perfpass.deploy.train_cost import TrainCost
    from perfpass.llm.training import TrainingMemory
    from perfpass.predictors.llm_training.predict import Run

    run = _made(
        Run,
        document,
        memory=_made(TrainingMemory, document),
        in_use=_plain(document["memory_in_use_bytes"]),
        parts_s=_made(typing.get_type_hints(Run)["parts_s"], document["step_parts_s"]),
        step_s=_plain(document["step_s"]),
        power_w=_plain(document["power_w_of_a_device"]),
    )
    optional = {name: document[name] for name in ("hours", "energy_j", "usd", "carbon_g")}
    return _made(
        TrainCost,
        document,
        predicted=run,
        memory_bytes=document["device_memory_bytes"],
        **{name: None if value is None else _plain(value) for name, value in optional.items()},
    )


@_read_whole
def train_advice(document: Any) -> TrainAdvice:
    """Of /train-cost, which was asked for it; what each change then takes is not sent whole."""
    from perfpass.deploy.train_advice import Advice, Change

    names = [one.name for one in dataclasses.fields(Change) if one.name != "found"]
    changes = tuple(Change(found=None, **{name: one[name] for name in names}) for one in document["advice"])
    return Advice(train_cost(document), changes)


@_read_whole
def train_layouts(document: Any) -> Layouts | NetworkLayouts:
    """Of /train-cost, which was asked to search; ``best`` and ``others`` have those that were sent."""
    from perfpass.deploy.train_cost import Layouts
    from perfpass.deploy.train_network_advice import NetworkLayouts

    sent = [*document["best"], *document["do_not_fit"]]
    found: list[Any] = [train_cost(one) for one in sent]
    fit = len(document["best"])
    kind = NetworkLayouts if "step_of_a_device" in sent[0] else Layouts
    return kind(tuple(found[:fit]), tuple(found[fit:]), document["tried"], document["fit"] - fit)


def _network_train_cost(document: Any) -> NetworkTrainCost:
    from perfpass.deploy.train_network import NetworkTrainCost
    from perfpass.deploy.training_run import RunCost
    from perfpass.stored_prediction import prediction_of

    run = {name: document[name] for name in ("hours", "energy_j", "usd", "carbon_g")}
    cost: dict[str, Any] = {name: None if value is None else _plain(value) for name, value in run.items()}
    return _made(
        NetworkTrainCost,
        document,
        step=prediction_of(document["step_of_a_device"]),
        parts_s=document["step_parts_s"],
        memory_in_use_bytes=_plain(document["memory_in_use_bytes_of_a_device"]),
        memory_bytes=document["device_memory_bytes"],
        step_s=_plain(document["step_s"]),
        power_w=_plain(document["power_w_of_a_device"]),
        cost=RunCost(**cost),
    )


@_read_whole
def device(document: Any) -> Device:
    """Of /devices/NAME."""
    from perfpass.devices import Device

    return _made(Device, document["device"])


@_read_whole
def devices(document: Any) -> tuple[Device, ...]:
    """Of /devices."""
    from perfpass.devices import Device

    return tuple(_made(Device, one) for one in document["devices"])


def _plain(document: Mapping[str, Any]) -> Any:
    from perfpass.prediction import Interval

    return _made(Interval, document)


def _made(kind: Callable[..., _T], document: Mapping[str, Any], **found: Any) -> _T:
    """A dataclass of ``found`` fields, and of those that ``document`` has under their names."""
    given = dict(found)
    for name, hint in _fields(kind).items():
        if name not in given and name in document:
            given[name] = _value(hint, document[name])
    return kind(**given)


@cache
def _fields(kind: Any) -> Mapping[str, Any]:
    """Names and types of the fields that can be given."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def _value(hint: Any, value: Any) -> Any:
    """What JSON has of a value of a type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if value is None:
        return None
    if origin in (typing.Union, types.UnionType):
        return _value(next(part for part in parts if part is not type(None)), value)
    if origin is tuple:
        each = parts[0] if parts[-1] is Ellipsis else None
        return tuple(
            _value(each or part, one) for part, one in zip(parts if each is None else value, value, strict=True)
        )
    if origin is dict or origin is Mapping:
        return {name: _value(parts[1], one) for name, one in value.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _made(hint, value)
    return value
