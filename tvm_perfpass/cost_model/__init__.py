"""Cost models for TVM's autotuners, built on what perfpass knows of the device and on what was measured before.

``cost_model`` is for MetaSchedule (TVM 0.19 and 0.27), ``PerfpassTuner`` for autotvm (0.19), ``rank_tasks`` and
``allot`` say which tasks of a network are worth tuning, ``read_schedules`` what tuned schedules reach. Importing this
package imports neither TVM nor XGBoost.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_perfpass.cost_model.autotvm import AutotvmCostModel, PerfpassTuner
    from tvm_perfpass.cost_model.hardware import Hardware, detect
    from tvm_perfpass.cost_model.meta_schedule import cost_model
    from tvm_perfpass.cost_model.tasks import RankedTask, allot, rank_tasks
    from tvm_perfpass.cost_model.tuning_records import calibration_of, read_schedules

_HOME = {
    "AutotvmCostModel": "autotvm",
    "Hardware": "hardware",
    "PerfpassTuner": "autotvm",
    "RankedTask": "tasks",
    "allot": "tasks",
    "calibration_of": "tuning_records",
    "cost_model": "meta_schedule",
    "detect": "hardware",
    "rank_tasks": "tasks",
    "read_schedules": "tuning_records",
}
__all__ = [
    "AutotvmCostModel",
    "Hardware",
    "PerfpassTuner",
    "RankedTask",
    "allot",
    "calibration_of",
    "cost_model",
    "detect",
    "rank_tasks",
    "read_schedules",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tvm_perfpass.cost_model.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tvm_perfpass.cost_model' has no attribute {name!r}")
