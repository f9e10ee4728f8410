"""Steps by the physical base of serving: the constants that its closed loops were fitted with."""

from __future__ import annotations

import numpy as np

from perfpass.devices import Device
from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch
from perfpass.llm.serving import Serving
from perfpass.predictors.serving.base import decode_seconds, prompt_seconds
from perfpass.predictors.serving.predictor import ServingPredictor


class Steps:
    """A `StepTime` of one deployment."""

    def __init__(self, model: LanguageModel, device: Device, serving: Serving) -> None:
        """``serving``: its split, precision and runtime count, its load does not."""
        self._asked = (model, device, serving.parallelism, serving.quantization)
        self._runtime = serving.runtime
        self._constants = ServingPredictor.load().constants

    def seconds(self, batch: EngineBatch) -> np.ndarray:
        """Seconds [N] of N steps."""
        sizes = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in vars(batch).values()))
        batch = EngineBatch(*sizes)
        prompt = prompt_seconds(*self._asked, batch.prefill(), self._constants)
        decode = decode_seconds(*self._asked, batch.decode(), self._constants, self._runtime)
        has_prompt, has_decode = np.asarray(batch.prompt_tokens) > 0, np.asarray(batch.decodes) > 0
        return np.where(has_prompt, prompt, 0.0) + np.where(has_decode, decode, 0.0)

    def one(
        self,
        prompt_tokens: float,
        prompts: float,
        prompt_attended: float,
        prompt_cached: float,
        decodes: float,
        decode_context: float,
    ) -> float:
        """Seconds of one step."""
        batch = EngineBatch(prompt_tokens, prompts, prompt_attended, prompt_cached, decodes, decode_context)
        return float(self.seconds(batch)[0])

    def decode_run(self, decodes: float, decode_context: float, steps: float) -> float:
        """Seconds of ``steps`` decode steps in a row: a step grows linearly with its context, so the middle counts."""
        return steps * self.one(0.0, 0.0, 0.0, 0.0, decodes, decode_context + decodes * (steps - 1) / 2)
