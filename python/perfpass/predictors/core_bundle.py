"""A predictor bundle: what the core needs to predict one way of running without Python, as strict JSON.

All that depends on the device, the runtime and the precision is worked out here; the core applies the formulas to a
graph (cpp_kernels/src/prediction; docs/guides/cpp.md). Tests hold both to the same figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.graph import OPERATORS
from perfpass.prediction import COVERAGE, LEVEL_WIDTHS
from perfpass.predictors.inference import analytic, cpu_operators, operators
from perfpass.predictors.inference.cpu import CpuPredictor
from perfpass.predictors.inference.engines import ran_as
from perfpass.predictors.inference.fusion import folds, fuses, strided
from perfpass.predictors.lane import predictor_of
from perfpass.predictors.memory import allocation, process
from perfpass.predictors.workload import check

if TYPE_CHECKING:
    from perfpass.devices import Device

FORMAT, VERSION = "perfpass predictor bundle", 1


def core_bundle(device: Device, *, runtime: str, precision: str = "fp32") -> dict[str, Any]:
    """What the core predicts inference from, on ``device`` as nobody has calibrated it.

    Raises ArgumentError and DeviceError as `perfpass.predict`, and UnsupportedError where the formulas are in Python
    alone: the trees of PyTorch on GPUs, other CPUs' rooflines, TVM on GPUs, weights in fewer bits.
    """
    from perfpass import __version__

    work = check(device, batch=None, precision=precision, mode="inference", runtime=runtime, layout="nchw")
    if work.quantised is not None:
        raise UnsupportedError(
            f"{precision} is predicted in Python alone (perfpass.predict); give the precision of what stands between "
            f"the products, here {work.precision}"
        )
    way = work.on(device)
    # A bundle has no words for what stands in for another runtime.
    predictor = predictor_of(way) if way.timed_as is way else None
    found: dict[str, Any] | None = None
    ran, names = way, cpu_operators.FAMILIES
    if isinstance(predictor, CpuPredictor):
        found = predictor.for_core(way) if way.precision == "fp32" else None
    elif isinstance(predictor, analytic.AnalyticPredictor):
        found, ran, names = predictor.for_core(way), ran_as(way), operators.FAMILIES
    if found is None:
        raise UnsupportedError(
            f"{runtime} in {precision} on {device.name} is predicted in Python alone; the core predicts tensorrt "
            "and onnxruntime on GPUs, and onnxruntime, tvm, relax and torch (of CPUs without records) in fp32 on CPUs"
        )
    of_operator, vector_attention = operators.families_for_core(ran)
    found["support"]["level_widths"] = LEVEL_WIDTHS
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "perfpass": __version__,
        "device": {"id": device.id, "name": device.name, "memory_bytes": device.usable_bytes},
        "runtime": runtime,
        "precision": way.precision,
        "coverage": COVERAGE,
        "counting": {
            "float_as": work.float_as,
            "strided": strided(runtime, device.kind),
            "folds": folds(runtime),
            "fuses": fuses(runtime, device.kind),
            "alignment_bytes": allocation.alignment_bytes(runtime),
            "allocator": allocation.allocator(device, runtime),
            "weight_copies": allocation.weight_copies(way.precision, runtime),
        },
        "operators": OPERATORS,
        "families": names,
        "family_of_operator": of_operator,
        "vector_attention": vector_attention,
        "power": analytic.power_for_core(way),
        "memory": process.for_core(way),
        **found,
    }
    plain: dict[str, Any] = _plain(whole)
    return plain


def _plain(value: Any) -> Any:
    """As JSON has it: arrays as lists, their flags as 0 and 1."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return (value.astype(np.int64) if value.dtype == bool else value).tolist()
    if isinstance(value, np.generic):
        return value.item()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
