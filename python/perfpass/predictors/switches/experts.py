"""Uneven experts as a transformation of a load: a step waits for the rank that most tokens are sent to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfpass.errors import ArgumentError
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch, StepTime
from perfpass.llm.memory import NOTHING
from perfpass.predictors.switches.load import Change, Deployment, Load

_SPREAD = 0.1


@dataclass(frozen=True)
class UnevenSteps:
    """A `StepTime` between that of ``fewer`` and of ``more`` active experts, at ``share`` of the way."""

    fewer: StepTime
    more: StepTime
    share: float

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps."""
        low, high = self.fewer.seconds(batch), self.more.seconds(batch)
        return np.asarray(low + self.share * (high - low))

    def one(self, *sizes: float) -> float:
        """Seconds of one step."""
        low, high = self.fewer.one(*sizes), self.more.one(*sizes)
        return low + self.share * (high - low)

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds of ``steps`` decode steps in a row."""
        run = decodes, decode_context, steps
        low, high = self.fewer.decode_run(*run), self.more.decode_run(*run)
        return low + self.share * (high - low)


def imbalance(deployment: Deployment, load: Load, factor: float) -> Change:
    """The busiest expert group gets ``factor`` times the mean of the tokens: as if each token went to so many more
    experts. Without expert parallelism every GPU has a part of every expert, and nothing changes.

    Raises ArgumentError for a model without experts, and a factor below 1.
    """
    model, split = deployment.model, deployment.serving.parallelism
    if not model.is_mixture:
        raise ArgumentError(f"{model.name} has no experts that could be uneven; leave the imbalance out")
    if not 1.0 <= factor <= split.expert:
        if factor < 1.0 or split.expert > 1:
            raise ArgumentError(
                f"the busiest of {split.expert} expert groups gets 1 to {split.expert} times the mean, not {factor:g}"
            )
        return Change(load, "uneven experts: every GPU has a part of every expert, so it waits for none", NOTHING)
    said = f"uneven experts, the busiest group with {factor:g} times the mean"
    return Change(
        replace(load, steps=_uneven(deployment, factor)),
        said,
        NOTHING,
        _SPREAD if factor > 1.0 else 0.0,
        "no record states how uneven its experts were" if factor > 1.0 else "",
    )


def _uneven(deployment: Deployment, factor: float) -> StepTime:
    """Work grows by the factor between whole numbers of active experts."""
    most = [layer.experts for _, layer in deployment.model.layers if layer.experts]
    active = min(factor * most[0].active, most[0].count)
    low = int(np.floor(active))
    steps = deployment.steps(_active(deployment.model, low / most[0].active))
    if active == low:
        return steps
    return UnevenSteps(steps, deployment.steps(_active(deployment.model, (low + 1) / most[0].active)), active - low)


def _active(model: LanguageModel, factor: float) -> LanguageModel:
    layers = []
    for count, layer in model.layers:
        if layer.experts:
            active = min(round(factor * layer.experts.active), layer.experts.count)
            layer = replace(layer, experts=replace(layer.experts, active=active))
        layers.append((count, layer))
    return replace(model, layers=tuple(layers))
