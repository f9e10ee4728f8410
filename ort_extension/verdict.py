"""Whether a predicted session fits and is quick enough, what a policy makes of the answer, and what to do instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ort_extension.forecast import Forecaster
from ort_extension.placement import Placement
from perfpass.decision import CONFIDENCE, Decision, keeps
from perfpass.decision import fits as fits_in
from perfpass.devices import Device, catalogue
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.prediction import Interval
from perfpass.text import digits, size

Answer = Literal["yes", "perhaps", "no", "unknown"]
POLICIES = ("ignore", "warn", "raise", "require")
_MOST_DEVICES = 3  # named in advice
_MOST_TRIES = 6  # predictions made for advice


class PredictionWarning(UserWarning):
    """A model will probably not fit, misses its target, or could not be predicted."""


class RefusedError(PerfPassError):
    """A session was not created, by its policy. ``verdict`` holds the figures, and with them the decision."""

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict

    @property
    def decision(self) -> Decision | None:
        """That of the verdict."""
        return self.verdict.decision


class DoesNotFitError(RefusedError):
    """The predicted peak memory is over the budget."""


class MissesTargetError(RefusedError):
    """The predicted latency is over the target, or a target is not kept with the confidence asked for."""


class NotPredictedError(RefusedError):
    """Policy "require" asks for a prediction, and none can be made."""


@dataclass(frozen=True)
class Verdict:
    """The prediction of a session beside its budget and its target.

    ``fits``: whether the predicted peak is within ``budget_bytes``, by the rule of every verdict on memory
    (`perfpass.decision.fits`). ``meets_target``: the same of the latency; "yes" without a target. Both are "unknown"
    where nothing could be predicted: ``problem`` says why. ``lower_bound``: dimensions are open, and ``memory`` is that
    of the least sizes. ``budget`` says what the budget is. ``decision``: the probabilities that budget and targets are
    kept (None where nothing is predicted); ``by_confidence``: it is by these that the policy goes.
    """

    device: Device | None
    budget_bytes: int | None
    budget: str
    memory: Interval | None
    latency: Interval | None
    latency_target_ms: float | None
    fits: Answer
    meets_target: Answer
    lower_bound: bool = False
    problem: str | None = None
    decision: Decision | None = None
    by_confidence: bool = False

    @property
    def clear(self) -> bool:
        """Whether it fits by its upper bound and the target, if there is one, is met by the median; by confidence:
        whether all is kept with it.
        """
        if self.by_confidence:
            return self.decision is not None and self.decision.answer == "yes"
        return self.fits == "yes" and self.meets_target in ("yes", "perhaps")

    def __str__(self) -> str:
        if self.memory is None or self.budget_bytes is None:
            return f"not predicted: {self.problem}"
        where = self.device.name if self.device else "the device"
        bound = " with every open dimension at 1" if self.lower_bound else ""
        says = {"yes": "fits", "perhaps": "may not fit", "no": "does not fit", "unknown": "may or may not fit"}
        text = (
            f"{says[self.fits]}: {size(self.memory.median)} of memory predicted{bound} ({size(self.memory.low)} to "
            f"{size(self.memory.high)}) on {where}, {size(self.budget_bytes)} {self.budget}"
        )
        if self.latency_target_ms is not None and self.latency is not None:
            met = {"yes": "meets", "perhaps": "probably meets", "no": "misses", "unknown": "may or may not meet"}
            text += (
                f"; {met[self.meets_target]} the target of {digits(self.latency_target_ms)} ms: "
                f"{digits(self.latency.median)} ms predicted ({digits(self.latency.low)} to "
                f"{digits(self.latency.high)})"
            )
        if self.by_confidence and self.decision is not None:
            text += f"; {self.decision.headline}"
        return f"{text}; {self.problem}" if self.problem else text


Policy = str | Callable[[Verdict], object]


def check_policy(policy: object) -> None:
    """Raises ArgumentError for what is no policy."""
    if not callable(policy) and policy not in POLICIES:
        raise ArgumentError(f"policy {policy!r}; allowed are {', '.join(POLICIES)} and a callable that takes a verdict")


def judge(
    placement: Placement | None,
    memory: Interval | None,
    latency: Interval | None,
    budget_bytes: int | None,
    latency_target_ms: float | None,
    *,
    lower_bound: bool = False,
    problem: str | None = None,
    decision: Decision | None = None,
    by_confidence: bool = False,
) -> Verdict:
    """The verdict on predicted ``memory`` and ``latency``; ``lower_bound``: the memory is that of the least sizes."""
    budget = "stated as the budget" if budget_bytes is not None else "in the device"
    if budget_bytes is None and placement is not None:
        budget_bytes = placement.memory_bytes
    fits: Answer = "unknown"
    if memory is not None and budget_bytes is not None:
        fits = fits_in(memory, budget_bytes)
        if lower_bound and fits != "no":
            fits = "unknown"  # what the least sizes need says nothing of what fits
    meets: Answer = "yes" if latency_target_ms is None else "unknown"
    if latency is not None and latency_target_ms is not None:
        meets = keeps(latency, latency_target_ms)
    return Verdict(
        device=placement.device if placement is not None else None,
        budget_bytes=budget_bytes,
        budget=budget,
        memory=memory,
        latency=latency,
        latency_target_ms=latency_target_ms,
        fits=fits,
        meets_target=meets,
        lower_bound=lower_bound,
        problem=problem,
        decision=decision,
        by_confidence=by_confidence,
    )


def apply(policy: Policy, verdict: Verdict, forecaster: Forecaster | None) -> None:
    """Does what ``policy`` says, before the session exists.

    A callable gets every verdict that is not clear; what it raises passes. Raises DoesNotFitError, MissesTargetError
    (raise, require) and NotPredictedError (require). Warnings about a missing prediction come later (`after`), when
    onnxruntime has accepted the model.
    """
    if policy == "ignore" or verdict.clear:
        return
    if callable(policy):
        policy(verdict)
    elif verdict.by_confidence and (short := _falls_short(verdict.decision)) is not None:
        advice = _memory_advice if short is DoesNotFitError else _latency_advice
        _refuse(policy, short, verdict, advice(verdict, forecaster))
    elif verdict.fits == "no":
        _refuse(policy, DoesNotFitError, verdict, _memory_advice(verdict, forecaster))
    elif verdict.meets_target == "no":
        _refuse(policy, MissesTargetError, verdict, _latency_advice(verdict, forecaster))
    elif verdict.fits == "perhaps":
        _warn(f"the model {verdict}")
    elif policy == "require" and verdict.problem is not None:
        raise NotPredictedError(
            f"no prediction, which the policy 'require' asks for: {verdict.problem}; use policy='raise' to create such "
            "sessions all the same",
            verdict,
        )


def after(policy: Policy, verdict: Verdict) -> None:
    """What is left to say when the session exists: that nothing, or with open dimensions little, vouches for it."""
    unknown = verdict.memory is None or (policy == "raise" and "unknown" in (verdict.fits, verdict.meets_target))
    if policy in ("warn", "raise") and unknown:
        _warn(f"the session was created without a prediction: {verdict.problem}")


def _falls_short(decision: Decision | None) -> type[RefusedError] | None:
    """What a decision that is no yes falls short of most: the memory or a target; None where there is none."""
    if decision is None or decision.probability is None:
        return None
    each = decision.probabilities
    memory = min(each.pop("fits"), each.pop("memory_bytes", 1.0))
    return MissesTargetError if min(each.values(), default=1.0) < memory else DoesNotFitError


def _refuse(policy: Policy, kind: type[RefusedError], verdict: Verdict, advice: list[str]) -> None:
    message = f"the model {verdict}" + (f"; what would do: {'; '.join(advice)}" if advice else "")
    if policy == "warn":
        _warn(message)
    else:
        raise kind(message, verdict)


def _warn(message: str) -> None:
    warnings.warn(message, PredictionWarning, stacklevel=outside())


def outside() -> int:
    """The stack level, for a warning given by the caller of this function, of the first frame beyond this package."""
    import sys

    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("ort_extension."):
        level, frame = level + 1, frame.f_back
    return level


def _memory_advice(verdict: Verdict, forecaster: Forecaster | None) -> list[str]:
    """A smaller batch, a larger slice, another device: each with the figure that says so."""
    device, memory, budget = verdict.device, verdict.memory, verdict.budget_bytes
    if device is None or memory is None or budget is None:
        return []
    confidence = verdict.decision.limits.confidence if verdict.by_confidence and verdict.decision else CONFIDENCE
    if fits_in(memory, budget, confidence) == "yes":
        return []
    from perfpass.predictors import remedies

    peaks = None if forecaster is None or verdict.lower_bound else forecaster.peaks()

    def peak(*, device: Device | None = None, batch: int | None = None, precision: str | None = None) -> Interval:
        return memory if peaks is None else peaks(device, batch)

    batch = forecaster.batch if forecaster is not None and peaks is not None else None
    asked = remedies.Question(peak, device, batch, "", available_bytes=budget, confidence=confidence)
    found = list(remedies.changes(asked))
    smaller = [one for one in found if one.kind == "load"]
    advice = list(remedies.in_words(smaller))
    if verdict.budget.startswith("stated"):
        advice.append(f"a budget of {size(memory.high)}")
        if fits_in(memory, device.usable_bytes, confidence) == "yes":
            return advice
    elsewhere = list(remedies.in_words(one for one in found if one.kind == "device"))
    if not (advice or elsewhere):
        return ["several devices; no single one of the catalogue holds it"]
    return [*advice, *elsewhere]


def _latency_advice(verdict: Verdict, forecaster: Forecaster | None) -> list[str]:
    """Devices of the catalogue that meet the target by the median, the least bandwidth first."""
    if forecaster is None or verdict.latency is None or verdict.latency_target_ms is None or verdict.device is None:
        return []
    device, target = verdict.device, verdict.latency_target_ms
    needed = verdict.latency.median / target
    quick = [
        d
        for d in catalogue()
        if d.is_gpu and d.memory_bandwidth_bytes_s >= min(needed, 20.0) * device.memory_bandwidth_bytes_s
    ]
    found: list[str] = []
    try:
        graph = forecaster.graph()
        for other in sorted(quick, key=lambda d: (d.memory_bandwidth_bytes_s, d.id))[:_MOST_TRIES]:
            there = Forecaster(**{**vars(forecaster), "device": other}).predict(graph)
            if there.latency_ms.median <= target and fits_in(there.peak_memory_bytes, other.usable_bytes) == "yes":
                found.append(f"{other.id} ({digits(there.latency_ms.median)} ms)")
    except PerfPassError:
        pass
    advice = [f"device {' or '.join(found[:_MOST_DEVICES])}"] if found else []
    if forecaster.batch is not None and forecaster.batch > 1:
        advice.append("a smaller batch")
    return advice
