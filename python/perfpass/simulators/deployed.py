"""What is simulated: one replica of a model on a device, whose steps are asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from perfpass.devices import Device
from perfpass.errors import UnsupportedError
from perfpass.llm import EngineBatch, LanguageModel, Serving, StepTime
from perfpass.predictors.step_time import steps


@dataclass(frozen=True)
class Deployed:
    """``serving``: split, precision and runtime of the replica; its lengths are those that figures are made for."""

    model: LanguageModel
    device: Device
    serving: Serving

    @cached_property
    def steps(self) -> StepTime:
        """The step times of the replica."""
        return steps.Steps(self.model, self.device, self.serving)

    @cached_property
    def prefill_alone(self) -> Deployed:
        """The replica that prefills: another one where serving is disaggregated."""
        split = self.serving.prefill
        return replace(self, serving=replace(self.serving, parallelism=split)) if split else self

    def prompt_s(self, tokens: np.ndarray) -> np.ndarray:
        """Seconds [N] to prefill one prompt of ``tokens`` [N]."""
        attended = tokens * (tokens + 1) / 2
        return self.prefill_alone.steps.seconds(EngineBatch(tokens, np.ones_like(tokens), attended))

    def decode_s(self, requests: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Seconds [N] of a decode step of ``requests`` [N] with ``context`` [N] cached tokens each."""
        return self.steps.seconds(EngineBatch(decodes=requests, decode_context=requests * context))

    def only_replicas_alike(self, simulator: str) -> None:
        """Raises UnsupportedError where prefill stands apart, which ``simulator`` does not take."""
        if self.serving.mode == "disagg":
            raise UnsupportedError(
                f"{simulator} is given one kind of replica; leave out --prefill-workers, or write one for each kind"
            )
