"""PredictPerformance: a Relax module pass that attaches a prediction to the module, and the module's graph as tensors.

The attributes (docs/reference/prediction-json.md) are those of the Relay pass. The functions of the module are
not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from perfpass import errors, features
from perfpass.decision import Limits
from perfpass.devices import Device
from perfpass.devices import device as find_device
from tvm_perfpass.attributes import attributes, predict_loaded
from tvm_perfpass.cost_model import calibration_of
from tvm_perfpass.relax.walk import load
from tvm_perfpass.walked import parameter_names

# An exception of a Python pass travels through TVM as its class's name.
for _class in (errors.PerfPassError, *errors.PerfPassError.__subclasses__()):
    tvm_ffi.register_error(_class)


@tvm.transform.module_pass(opt_level=0, name="PredictPerformance")
class PredictPerformance:
    """Predicts what the module's ``main`` costs on ``device`` and attaches the answer to the module.

    ``device``: a name or a ``perfpass.Device``. ``bindings``: a value for every symbolic size of main's inputs, by name
    (``{"n": 8}``). ``precision``: of the floating operators if None. ``batch``: the leading dimension of the first
    input if None. ``params``: the parameters of ``main`` that are weights, by name or as TVM's frontends return them;
    see ``tvm_perfpass.relax.load``. ``layout``: "nchw" or "nhwc", of the convolutions if None. ``schema``: of the
    attached node features. ``calibration``: what was measured on ``device``: tuning records (the folder of a
    MetaSchedule database, or the database), from which the pass learns what tuned schedules reach; a Calibration of
    `perfpass calibrate` or its file; True: what is stored of the device; False: nothing. ``limits``: what a run is to
    keep (`perfpass.Limits`); None: that it fits. Whether it does, here and in each MIG slice of the device, is the
    module's `perfpass.Decision`.

    Usable alone (``PredictPerformance(device="a100-80gb")(mod)``), in ``tvm.transform.Sequential`` and before
    ``relax.build``. Raises what reading the module and ``perfpass.predict`` raise: DeviceError for an unknown device,
    ShapeError for symbolic sizes without a value, UnsupportedError for what has no operator graph.
    """

    def __init__(
        self,
        device: str | Device,
        *,
        bindings: Mapping[str, int] | None = None,
        precision: str | None = None,
        runtime: str = "relax",
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
        self.bindings = dict(bindings or {})
        self.params = parameter_names(params)
        self.options: dict[str, Any] = {"precision": precision, "runtime": runtime, "batch": batch, "layout": layout}
        self.options["calibration"] = calibration_of(calibration)
        self.options["limits"] = Limits() if limits is None else limits

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with attributes; its functions are the same objects."""
        graph = load(mod, self.bindings, self.params)
        prediction = predict_loaded(graph, self.device, **self.options)
        return mod.with_attrs(attributes(graph, prediction, _tensor, self.schema))


def _tensor(array: np.ndarray) -> Any:
    return tvm.runtime.tensor(np.ascontiguousarray(array))
