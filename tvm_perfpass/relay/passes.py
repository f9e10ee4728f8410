"""PredictPerformance: a Relay pass that attaches a prediction to the module, and the module's graph as tensors.

The attributes (docs/reference/prediction-json.md) are read as ``mod.attrs["perfpass.latency_ms"]["median"]``
and survive
``tvm.ir.save_json``. The functions of the module are not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tvm

from perfpass import features
from perfpass.decision import Limits
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.graph import OpGraph
from perfpass.prediction import Prediction
from perfpass.predictors.calibration.posterior import Calibration
from perfpass.predictors.calibration.schedules import Schedules
from tvm_perfpass.attributes import METRICS, PREFIX, attributes, predict_loaded, prediction_of
from tvm_perfpass.cost_model import calibration_of
from tvm_perfpass.relay.module_walk import Walk, import_module, walk
from tvm_perfpass.walked import parameter_names

__all__ = [
    "METRICS",
    "PREFIX",
    "PredictPerformance",
    "Walk",
    "attributes",
    "import_module",
    "predict_module",
    "prediction_of",
    "walk",
]


@tvm.transform.module_pass(opt_level=0, name="PredictPerformance", required=["InferType"])
class PredictPerformance:
    """Predicts what the module's ``main`` costs on ``device`` and attaches the answer to the module.

    ``device``: a name or a ``perfpass.Device``. ``precision``: of the floating operators if None. ``batch``: the
    leading dimension of the first input if None. ``params``: the parameters of ``main`` that are weights, by name or as
    TVM's frontends return them; without it, variables in weight slots count as weights. ``layout``: "nchw" or "nhwc",
    of the convolutions if None. ``schema``: of the attached node features. ``calibration``: what was measured on
    ``device``: tuning records (the folder of a MetaSchedule database, the database, an autotvm log), from which the
    pass learns what tuned schedules reach; a Calibration of `perfpass calibrate` or its file; True: what is stored of
    the device; False: nothing. ``limits``: what a run is to keep (`perfpass.Limits`); None: that it fits. Whether it
    does, here and in each MIG slice of the device, is the module's `perfpass.Decision`.

    Usable alone (``PredictPerformance(device="a100-80gb")(mod)``), in ``tvm.transform.Sequential`` and before
    ``relay.build``. Raises what reading the module and ``perfpass.predict`` raise: DeviceError for an unknown device,
    ShapeError for dynamic shapes, UnsupportedError for what has no operator graph.
    """

    def __init__(
        self,
        device: str | Device,
        *,
        precision: str | None = None,
        runtime: str = "tvm",
        batch: int | None = None,
        params: Mapping[str, Any] | Iterable[str] | None = None,
        layout: str | None = None,
        schema: str = "operator",
        calibration: Any = True,
        limits: Limits | None = None,
    ) -> None:
        self.device = find_device(device)
        features.names(schema)  # an unknown schema is an error here, not in the middle of a build
        self.schema = schema
        self.params = parameter_names(params)
        self.options: dict[str, Any] = {"precision": precision, "runtime": runtime, "batch": batch, "layout": layout}
        self.options["calibration"] = calibration_of(calibration)
        self.options["limits"] = Limits() if limits is None else limits

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with attributes; its functions are the same objects."""
        graph = import_module(mod, self.params)
        prediction = predict_module(graph, self.device, **self.options)
        return mod.with_attrs(attributes(graph, prediction, tvm.nd.array, self.schema))


def predict_module(
    model: tvm.IRModule | OpGraph,
    device: str | Device,
    *,
    precision: str | None = None,
    runtime: str = "tvm",
    batch: int | None = None,
    layout: str | None = None,
    calibration: bool | Calibration | Schedules = True,
    limits: Limits | None = None,
) -> Prediction:
    """``perfpass.predict`` for a Relay module or its graph, with precision and layout taken from it where not given."""
    graph = model if isinstance(model, OpGraph) else import_module(model)
    how: dict[str, Any] = {"precision": precision, "runtime": runtime, "batch": batch, "layout": layout}
    return predict_loaded(graph, device, **how, calibration=calibration, limits=limits)
