"""perfpass inside ONNX Runtime: a session that knows what it costs before it reads a weight.

Importing this package does not import onnxruntime; using it does. Its name is generic for one in site-packages: it says
what it extends, perfpass installs it, and another package of that name cannot stand beside it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ort_extension import reader as _reader  # noqa: F401  (makes ONNX Runtime known to perfpass)

if TYPE_CHECKING:
    from ort_extension.run_records import RecordsWarning
    from ort_extension.runs import DriftWarning
    from ort_extension.session import InferenceSession
    from ort_extension.verdict import (
        DoesNotFitError,
        MissesTargetError,
        NotPredictedError,
        PredictionWarning,
        RefusedError,
        Verdict,
    )

_HOME = {
    "DoesNotFitError": "ort_extension.verdict",
    "DriftWarning": "ort_extension.runs",
    "InferenceSession": "ort_extension.session",
    "MissesTargetError": "ort_extension.verdict",
    "NotPredictedError": "ort_extension.verdict",
    "PredictionWarning": "ort_extension.verdict",
    "RecordsWarning": "ort_extension.run_records",
    "RefusedError": "ort_extension.verdict",
    "Verdict": "ort_extension.verdict",
}
__all__ = [
    "DoesNotFitError",
    "DriftWarning",
    "InferenceSession",
    "MissesTargetError",
    "NotPredictedError",
    "PredictionWarning",
    "RecordsWarning",
    "RefusedError",
    "Verdict",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'ort_extension' has no attribute {name!r}")
