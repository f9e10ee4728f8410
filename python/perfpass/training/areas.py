"""The areas that `perfpass train` and `perfpass evaluate` know, each a module with ``train`` and ``evaluate``.

``train(folder=None, output=None, *, seed=0, quiet=False)`` fits what ships from the records of ``folder`` (default:
those of the repository), writes the artefact to ``output`` (default: where it ships from, `artefacts.shipped(area)`).
``evaluate(folder=None, seed=0, *, quiet=False)`` returns a `perfpass.training.section.Section`. An area without
anything to fit has no ``train``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from perfpass.errors import ArgumentError
from perfpass.text import unknown

AREAS: dict[str, str] = {
    "operators": "perfpass.training.inference.operators",
    "inference": "perfpass.training.inference",
    "analytic": "perfpass.training.inference.analytic",
    "cpu": "perfpass.training.inference.cpu",
    "training_step": "perfpass.training.training_step",
    "generation": "perfpass.training.generation",
    "calibration": "perfpass.training.calibration",
    "step_calibration": "perfpass.training.calibration.steps",
    "memory": "perfpass.training.memory",
    "energy": "perfpass.training.energy",
    "mig": "perfpass.training.mig",
    "serving": "perfpass.training.serving",
    "engine": "perfpass.training.engine",
    "speculation": "perfpass.training.speculation",
    "llm_training": "perfpass.training.llm_training",
    "nas": "perfpass.training.calibration.nas",
    "kernels": "perfpass.training.kernels",
    "relative": "perfpass.training.relative",
    "decisions": "perfpass.training.decisions",
    "choose": "perfpass.training.decisions.choose",
    "difference": "perfpass.training.difference",
    "data_parallel": "perfpass.training.data_parallel",
}


def module(area: str) -> Any:
    """The module of an area. Raises ArgumentError for an unknown name."""
    if area not in AREAS:
        raise ArgumentError(unknown("area", area, AREAS))
    return import_module(AREAS[area])
