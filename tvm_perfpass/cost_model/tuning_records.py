"""A user's tuning records as `perfpass` takes them for ``calibration=``: the fastest run of every tuned operator."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.bounded_file import read_file
from perfpass.errors import ArgumentError, FormatError
from perfpass.graph import OpGraph, costs
from perfpass.json_text import parse
from perfpass.predictors.calibration.posterior import SUFFIX, Calibration
from perfpass.predictors.calibration.posterior import read as read_calibration
from perfpass.predictors.calibration.schedules import Schedules
from perfpass.predictors.inference.fusion import as_run
from tvm_perfpass.cost_model import tuned_operators
from tvm_perfpass.cost_model.records import open_database, seconds_of, task_key

_MAX_BYTES = 256 << 20
_FAILED_S = 1e9  # what runners write for what did not run
_GPUS = ("cuda", "rocm", "metal", "opencl", "vulkan", "webgpu")

# Operators by what tells workloads apart, with the fastest seconds of each.
_Best = dict[str, tuple[OpGraph, float]]


def calibration_of(given: Any) -> bool | Calibration | Schedules:
    """What ``calibration=`` of the passes may be, as `perfpass.predict` takes it.

    True, False, a Calibration and Schedules are themselves; a path is a file of `perfpass calibrate` or what
    `read_schedules` reads; a database of MetaSchedule is read as it is. Raises what these do.
    """
    if isinstance(given, bool | Calibration | Schedules):
        return given
    if isinstance(given, str | os.PathLike) and str(given).endswith(SUFFIX):
        return read_calibration(Path(given))
    return read_schedules(given)


def read_schedules(source: Any) -> Schedules:
    """What schedules reach, from a MetaSchedule database (its folder, or the object), or an autotvm log (TVM 0.19).

    Of every workload the fastest record counts. Workloads that are no operator of a known class are left out and
    counted in ``provenance``. Raises FileError, FormatError, LimitError, and ArgumentError where none is usable.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        named = str(path)
        found = _of_database(open_database(path)) if path.is_dir() else _of_log(path)
    elif hasattr(source, "get_all_tuning_records"):
        named, found = type(source).__name__, _of_database(source)
    else:
        raise ArgumentError(
            f"calibration is a {type(source).__name__}; allowed are True, False, a perfpass Calibration or its file, "
            "the folder of a MetaSchedule database or the database, and the file of an autotvm log"
        )
    best, left_out, kinds = found
    if not best:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items())) or "it is empty"
        raise ArgumentError(f"{named}: no usable tuning record ({why}); give records of runs that succeeded")
    if len(kinds) > 1:
        raise ArgumentError(f"{named}: records of {' and '.join(sorted(kinds))}; give those of one kind of device")
    # A transpose that was tuned was run, on GPUs too.
    tables = [as_run(graph, costs.count(graph, float_as="float32"), "tvm", "cpu") for graph, _ in best.values()]
    return Schedules.of(
        tables, [seconds for _, seconds in best.values()], kinds.pop(), records=named[-200:], left_out=dict(left_out)
    )


def _of_database(database: Any) -> tuple[_Best, Counter[str], set[str]]:
    best: _Best = {}
    left_out: Counter[str] = Counter()
    kinds: set[str] = set()
    operators: dict[str, OpGraph | None] = {}
    for record in database.get_all_tuning_records():
        seconds, mod = seconds_of(record), record.workload.mod
        if not math.isfinite(seconds):
            left_out["failed runs"] += 1
            continue
        key = task_key(mod)
        if key not in operators:
            operators[key] = tuned_operators.of_loops(_function(mod))
            left_out["workloads that are no known operator"] += operators[key] is None
        _keep(best, key, operators[key], seconds)
        kinds.add(_kind(str(record.target.kind.name)))
    return best, +left_out, kinds


def _function(mod: Any) -> Any:
    functions = {str(name.name_hint): function for name, function in mod.functions.items()}
    return functions.get("main", next(iter(functions.values())))


def _of_log(path: Path) -> tuple[_Best, Counter[str], set[str]]:
    """Lines of `autotvm.callback.log_to_file`: [target, task, arguments, ...] and [[seconds], error, ...]."""
    best: _Best = {}
    left_out: Counter[str] = Counter()
    kinds: set[str] = set()
    for where, line in _lines(path):
        content = parse(line, where, any_number=True, way_out="give an autotvm log or the folder of a database")
        try:
            target, name, args = content["input"][:3]
            times, error = content["result"][:2]
            seconds = float(np.median([float(t) for t in times])) if int(error) == 0 and times else math.inf
            kind, key = _kind(str(target).split()[0]), json.dumps([name, args])
        except (IndexError, KeyError, TypeError, ValueError):
            raise FormatError(
                f"{where}: not a record of autotvm (input: [target, task, arguments, ...], result: [[seconds], error])"
            ) from None
        if not 0 < seconds < _FAILED_S:
            left_out["failed runs"] += 1
            continue
        operator = best[key][0] if key in best else tuned_operators.of_task(str(name), args)
        left_out["tasks that are no known operator"] += operator is None
        _keep(best, key, operator, seconds)
        kinds.add(kind)
    return best, +left_out, kinds


def _keep(best: _Best, key: str, operator: OpGraph | None, seconds: float) -> None:
    if operator is not None and (key not in best or seconds < best[key][1]):
        best[key] = (operator, seconds)


def _kind(target: str) -> str:
    return "gpu" if target in _GPUS else "cpu"


def _lines(path: Path) -> list[tuple[str, bytes]]:
    content = read_file(path, "a tuning log (or give the folder of a MetaSchedule database)", _MAX_BYTES)
    return [(f"{path}, line {i}", line) for i, line in enumerate(content.splitlines(), 1) if line.strip()]
