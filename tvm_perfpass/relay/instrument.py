"""PerformanceInstrument: predictions at chosen points of a Relay build, and how they move from one to the next.

An exception in a pass instrument aborts TVM's build; here every failure is caught, kept in ``errors`` and shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relay

from perfpass.devices import Device
from perfpass.graph import OpGraph
from tvm_perfpass.cost_model import calibration_of
from tvm_perfpass.fusion import fused
from tvm_perfpass.points import INPUT, Failure, Instrument, Point, Points
from tvm_perfpass.relay.module_walk import walk
from tvm_perfpass.walked import parameter_names

__all__ = ["INPUT", "Failure", "PerformanceInstrument", "Point"]


@tvm.instrument.pass_instrument
class PerformanceInstrument(Instrument):
    """Predicts for the module as a build enters it ("input") and after the passes named in ``at``.

    Use: ``with tvm.transform.PassContext(opt_level=3, instruments=[instrument]): relay.build(...)``, then
    ``print(instrument.report())``. After FuseOps every fused function counts as one kernel, so the move from "input"
    shows what fusion saves. A pass that runs several times leaves several points. ``params``: as for
    PredictPerformance, and so is ``calibration``. ``points`` and ``errors`` hold the outcome.
    """

    def __init__(
        self,
        device: str | Device,
        at: Sequence[str] = (INPUT, "FuseOps"),
        *,
        params: Mapping[str, Any] | Iterable[str] | None = None,
        precision: str | None = None,
        batch: int | None = None,
        layout: str | None = None,
        calibration: Any = True,
    ) -> None:
        weights = parameter_names(params)

        def load(mod: tvm.IRModule) -> OpGraph | None:
            return fused(walk(mod, weights)) if _has_relay_main(mod) else None

        options = {"precision": precision, "batch": batch, "layout": layout}
        super().__init__(Points(device, at, options | {"calibration": calibration_of(calibration)}, load))


def _has_relay_main(mod: tvm.IRModule) -> bool:
    return any(
        var.name_hint == "main" and isinstance(function, relay.Function) for var, function in mod.functions_items()
    )
