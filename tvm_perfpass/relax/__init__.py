"""perfpass for today's TVM (Relax): predictions as a module pass, beside what is built, and at points of a build.

Importing this package does not import TVM; using it does. Relay (TVM up to 0.19) is in ``tvm_perfpass`` itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_perfpass.relax.instrument import PerformanceInstrument
    from tvm_perfpass.relax.library import build, read_prediction
    from tvm_perfpass.relax.passes import PredictPerformance
    from tvm_perfpass.relax.walk import load

_HOME = {
    "build": "tvm_perfpass.relax.library",
    "load": "tvm_perfpass.relax.walk",
    "read_prediction": "tvm_perfpass.relax.library",
    "PerformanceInstrument": "tvm_perfpass.relax.instrument",
    "PredictPerformance": "tvm_perfpass.relax.passes",
}
__all__ = ["PerformanceInstrument", "PredictPerformance", "build", "load", "read_prediction"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tvm_perfpass.relax' has no attribute {name!r}")
    from tvm_perfpass.releases import need

    need("relax")
    return getattr(import_module(_HOME[name]), name)
