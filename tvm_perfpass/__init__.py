"""perfpass for Apache TVM: predictions as a Relay pass, inside a build, and at points of a build.

Importing this package does not import TVM; using it does. From then on Triton, which PyTorch's CUDA build imports
unasked, can be loaded beside TVM. Its names serve Relay (TVM 0.19); ``tvm_perfpass.relax``
serves today's TVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tvm_perfpass import readers as _readers  # noqa: F401  (makes TVM known to perfpass)
from tvm_perfpass import triton_beside as _triton_beside

if TYPE_CHECKING:
    from tvm_perfpass.cost_model import read_schedules
    from tvm_perfpass.relay import PredictPerformance
    from tvm_perfpass.relay.instrument import PerformanceInstrument
    from tvm_perfpass.relay.library import build, read_prediction
    from tvm_perfpass.relay.module_walk import import_module as import_relay

_HOME = {
    "build": ("tvm_perfpass.relay.library", "build"),
    "read_prediction": ("tvm_perfpass.relay.library", "read_prediction"),
    "PerformanceInstrument": ("tvm_perfpass.relay.instrument", "PerformanceInstrument"),
    "PredictPerformance": ("tvm_perfpass.relay", "PredictPerformance"),
    "import_relay": ("tvm_perfpass.relay.module_walk", "import_module"),
}
_OF_EVERY_TVM = {"read_schedules": "tvm_perfpass.cost_model"}
__all__ = ["PerformanceInstrument", "PredictPerformance", "build", "import_relay", "read_prediction", "read_schedules"]

_triton_beside.install()


def __getattr__(name: str) -> Any:
    if name in _OF_EVERY_TVM:
        return getattr(import_module(_OF_EVERY_TVM[name]), name)
    if name in _HOME:
        from tvm_perfpass.releases import need

        need("relay")
        home, attribute = _HOME[name]
        return getattr(import_module(home), attribute)
    raise AttributeError(f"module 'tvm_perfpass' has no attribute {name!r}")
