"""Prompts longer than answers, of which no batch was measured: what the longer prompt adds, counted.

LLM-Inference-Bench's prompts are as long as its answers, so no fit tells the one from the other: a token that is read
takes the share of the peak of one that is written, and a prompt alone comes out four to five times as long as
TensorRT-LLM's engines take. So the batch stands whose prompt is as long as its answer, and the tokens beyond take their
prefill and the reading of their cache, at the shares of peaks that serving was fitted with (`serving.base`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from perfpass.llm.costs import Parallelism, Quantization, Step
from perfpass.predictors.generation.features import ONE_SEQUENCE, Batch
from perfpass.predictors.learned import artefacts
from perfpass.predictors.serving.base import prompt_seconds


def counted(b: Batch, axes: tuple[np.ndarray, ...], median: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of seconds [inputs, outputs, batches], those of prompts longer than their answers counted; and the
    share of each that is counted, not learned.

    ``median``: as learned, at ``axes`` (inputs and outputs alike). llama.cpp's prompts, in small pieces, stay as they
    are.
    """
    share = np.zeros(median.shape)
    if b.runtime in ONE_SEQUENCE:
        return median, share
    constants = _constants()
    tokens, batches = axes[0].astype(np.float64), axes[2].astype(np.float64)
    length, at_once = (v.ravel() for v in np.meshgrid(tokens, batches, indexing="ij"))
    split = Parallelism.of(b.devices)
    stored = Quantization(b.precision, b.precision, "fp32" if b.precision == "fp32" else "fp16")
    step = Step.of_prefill(at_once, length)
    prompt = prompt_seconds(b.model, b.device, split, stored, step, constants).reshape(len(tokens), len(batches))
    read = b.device.memory_bandwidth_bytes_s * b.devices * constants["memory_cache"]
    out = median.copy()
    for j, answer in enumerate(tokens):
        longer = tokens > answer
        context = tokens[longer, None] + answer / 2
        kept = b.cache_bytes * np.asarray(
            b.model.cache_elements(context, batches[None, :]) - b.model.cache_elements(1.5 * answer, batches[None, :])
        )
        more = np.maximum(prompt[longer] - prompt[j] + answer * kept / read, 0.0)
        whole = np.exp(median[j, j]) + more
        out[longer, j], share[longer, j] = np.log(whole), more / whole
    return out, share


@lru_cache(maxsize=1)
def _constants() -> dict[str, float]:
    """Those of the shipped base of serving."""
    return dict(artefacts.Artefact(artefacts.shipped("serving")).manifest["constants"])
