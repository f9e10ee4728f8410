"""PerformanceInstrument: predictions at chosen points of a Relax build, and how they move from one to the next.

An exception in a pass instrument aborts TVM's build; here every failure is caught, kept in ``errors`` and shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from perfpass.devices import Device
from perfpass.graph import OpGraph
from tvm_perfpass.cost_model import calibration_of
from tvm_perfpass.fusion import fused
from tvm_perfpass.points import INPUT, Instrument, Points
from tvm_perfpass.relax.walk import walk
from tvm_perfpass.walked import parameter_names


@tvm.instrument.pass_instrument
class PerformanceInstrument(Instrument):
    """Predicts for the module as a build enters it ("input") and after the passes named in ``at``.

    Use: ``with tvm.transform.PassContext(instruments=[instrument]):`` around the passes and ``relax.build``, then
    ``print(instrument.report())``. After FuseOps every fused function counts as one kernel, after FuseTIR every lowered
    one, so the move from "input" shows what fusion saves (``relax.get_pipeline("zero")`` fuses; the default pipeline of
    relax.build for CPUs does not). A pass that runs several times leaves several points.
    ``bindings``, ``params`` and ``calibration``: as for PredictPerformance. ``points`` and ``errors`` hold the outcome.
    """

    def __init__(
        self,
        device: str | Device,
        at: Sequence[str] = (INPUT, "LegalizeOps", "FuseOps", "FuseTIR"),
        *,
        bindings: Mapping[str, int] | None = None,
        params: Mapping[str, Any] | Iterable[str] | None = None,
        precision: str | None = None,
        batch: int | None = None,
        layout: str | None = None,
        calibration: Any = True,
    ) -> None:
        sizes, weights = dict(bindings or {}), parameter_names(params)

        def load(mod: tvm.IRModule) -> OpGraph | None:
            return fused(walk(mod, sizes, weights)) if _has_relax_main(mod) else None

        options = {"runtime": "relax", "precision": precision, "batch": batch, "layout": layout}
        super().__init__(Points(device, at, options | {"calibration": calibration_of(calibration)}, load))


def _has_relax_main(mod: tvm.IRModule) -> bool:
    return any(
        var.name_hint == "main" and isinstance(function, relax.Function) for var, function in mod.functions.items()
    )
