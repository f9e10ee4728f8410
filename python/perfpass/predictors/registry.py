"""Predictors by name: ours, which is the default for every kind of workload, and published ones beside it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.text import unknown

if TYPE_CHECKING:
    from perfpass.devices import Device
    from perfpass.graph import OpGraph
    from perfpass.prediction import Prediction
    from perfpass.predictors.generation.features import Batch
    from perfpass.predictors.generation.prediction import Offline

DEFAULT = "perfpass"
# Name: (one line, the module with ``answer(found, graph, device) -> Prediction``, which replaces in our prediction
# ``found`` what the predictor speaks of; None: ``found`` is the answer).
PREDICTORS: dict[str, tuple[str, str | None]] = {
    DEFAULT: (
        "roofline by operator and gradient-boosted trees, with planned memory; the default for all workloads",
        None,
    ),
    "dippm": (
        "GraphSAGE over the operator graph (Panner Selvam and Brorsson, Euro-Par 2023), trained on our records",
        "perfpass.predictors.published.dippm",
    ),
    "trappm": (
        "GraphSAGE beside a pre-trained graph autoencoder (Panner Selvam and Brorsson, 2023), trained on our records",
        "perfpass.predictors.published.trappm",
    ),
    "llm-trees": (
        "boosted trees on figures of a language model, for offline generation (Panner Selvam and Brorsson, 2024)",
        "perfpass.predictors.published.llm_trees",
    ),
    "graph-language": (
        "a graph as a soft token of a small language model, for inference (Panner Selvam et al., WANT 2024)",
        "perfpass.predictors.published.graph_language",
    ),
}


def check(name: str) -> str:
    """``name`` if there is such a predictor. Raises ArgumentError, with the list."""
    if name not in PREDICTORS:
        raise ArgumentError(unknown("predictor", name, PREDICTORS))
    return name


def answer(name: str, found: Prediction, graph: OpGraph, device: Device) -> Prediction:
    """What the predictor ``name`` says of the workload that ``found``, our own prediction, is of."""
    home = PREDICTORS[check(name)][1]
    if home is None:
        return found
    module: Any = import_module(home)
    replaced: Prediction = module.answer(found, graph, device)
    return replaced


def offline(name: str, batch: Batch) -> Offline:
    """What the predictor ``name`` says of one batch of equal requests to a language model.

    Raises UnsupportedError for a predictor that knows operator graphs alone.
    """
    home = PREDICTORS[check(name)][1] or "perfpass.predictors.generation.predictor"
    module: Any = import_module(home)
    if not hasattr(module, "offline"):
        raise UnsupportedError(
            f"{name} answers operator graphs (`perfpass predict`), not a language model's generation"
        )
    found: Offline = module.offline(batch)
    return found
