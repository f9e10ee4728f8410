"""Language models: their architecture from a config.json, the work of serving them, and what a prediction of it is."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from perfpass.llm.architecture import LanguageModel
from perfpass.llm.batch import EngineBatch, StepTime
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism, Quantization, Step, StepCosts, cache_bytes, step_costs, weight_bytes
from perfpass.llm.serving import MemoryFit, Serving

__all__ = [
    "EngineBatch",
    "LanguageModel",
    "MemoryFit",
    "Parallelism",
    "Quantization",
    "Serving",
    "Step",
    "StepCosts",
    "StepTime",
    "adapters",
    "answer_lengths",
    "architecture",
    "assumed",
    "batch",
    "cache",
    "cache_bytes",
    "configuration",
    "costs",
    "eager",
    "families",
    "image_tokens",
    "in_use",
    "language_model",
    "llama_cpp",
    "megatron",
    "memory",
    "order",
    "precision",
    "prefix",
    "recipe",
    "serving",
    "speculation",
    "step_costs",
    "step_time",
    "stored",
    "stored_bytes",
    "table",
    "training",
    "versions",
    "vision",
    "weight_bytes",
]


def __getattr__(name: str) -> Any:
    # A predictor's, which this room does not know: brought where it is asked for, as `Prediction.evidence` is.
    if name == "step_time":
        return import_module("perfpass.predictors.step_time.prediction").step_time
    raise AttributeError(f"module 'perfpass.llm' has no attribute {name!r}")
