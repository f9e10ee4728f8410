"""perfpass for Relay (TVM 0.19): predictions as a module pass, inside a build, and at points of a build.

Importing this package does not import TVM; using it does. Today's TVM is in ``tvm_perfpass.relax``.
"""

from __future__ import annotations

from importlib import import_module as _import
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_perfpass.attributes import METRICS, PREFIX, attributes, prediction_of
    from tvm_perfpass.relay.instrument import PerformanceInstrument
    from tvm_perfpass.relay.library import build, read_prediction
    from tvm_perfpass.relay.module_walk import Walk, import_module, walk
    from tvm_perfpass.relay.passes import PredictPerformance, predict_module

_HOME = {
    "METRICS": "tvm_perfpass.attributes",
    "PREFIX": "tvm_perfpass.attributes",
    "PerformanceInstrument": "tvm_perfpass.relay.instrument",
    "PredictPerformance": "tvm_perfpass.relay.passes",
    "Walk": "tvm_perfpass.relay.module_walk",
    "attributes": "tvm_perfpass.attributes",
    "build": "tvm_perfpass.relay.library",
    "import_module": "tvm_perfpass.relay.module_walk",
    "predict_module": "tvm_perfpass.relay.passes",
    "prediction_of": "tvm_perfpass.attributes",
    "read_prediction": "tvm_perfpass.relay.library",
    "walk": "tvm_perfpass.relay.module_walk",
}
__all__ = [
    "METRICS",
    "PREFIX",
    "PerformanceInstrument",
    "PredictPerformance",
    "Walk",
    "attributes",
    "build",
    "import_module",
    "instrument",
    "library",
    "module_walk",
    "predict_module",
    "prediction_of",
    "read_prediction",
    "walk",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tvm_perfpass.relay' has no attribute {name!r}")
    from tvm_perfpass.releases import need

    need("relay")
    return getattr(_import(_HOME[name]), name)
