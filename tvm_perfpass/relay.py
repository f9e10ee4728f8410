"""PredictPerformance: a Relay pass that attaches a prediction to the module, and the module's graph as tensors.

The attributes (docs/relay.md) are read as ``mod.attrs["perfpass.latency_ms"]["median"]`` and survive
``tvm.ir.save_json``. The functions of the module are not touched.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tvm

from perfpass import costs, features
from perfpass.devices import Device
from perfpass.devices import device as find_device
from perfpass.errors import GraphError
from perfpass.graph import ATTRIBUTES, DTYPES, OPERATORS, OpGraph
from perfpass.prediction import Interval, Prediction
from perfpass.predictors import predict_graph
from tvm_perfpass.walk import Walk, import_module, parameter_names, walk

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

PREFIX = "perfpass."
METRICS = ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w")
_PRECISION_OF = {"float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}


@tvm.transform.module_pass(opt_level=0, name="PredictPerformance", required=["InferType"])
class PredictPerformance:
    """Predicts what the module's ``main`` costs on ``device`` and attaches the answer to the module.

    ``device``: a name or a ``perfpass.Device``. ``precision``: of the floating operators if None. ``batch``: the
    leading dimension of the first input if None. ``params``: the parameters of ``main`` that are weights, by name or as
    TVM's frontends return them; without it, variables in weight slots count as weights. ``layout``: "nchw" or "nhwc",
    of the convolutions if None. ``schema``: of the attached node features.

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
    ) -> None:
        self.device = find_device(device)
        features.names(schema)  # an unknown schema is an error here, not in the middle of a build
        self.schema = schema
        self.params = parameter_names(params)
        self.options: dict[str, Any] = {"precision": precision, "runtime": runtime, "batch": batch, "layout": layout}

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with attributes; its functions are the same objects."""
        graph = import_module(mod, self.params)
        prediction = predict_module(graph, self.device, **self.options)
        return mod.with_attrs(attributes(graph, prediction, self.schema))


def predict_module(
    model: tvm.IRModule | OpGraph,
    device: str | Device,
    *,
    precision: str | None = None,
    runtime: str = "tvm",
    batch: int | None = None,
    layout: str | None = None,
) -> Prediction:
    """``perfpass.predict`` for a Relay module or its graph, with precision and layout taken from it where not given."""
    graph = model if isinstance(model, OpGraph) else import_module(model)
    return predict_graph(
        graph,
        device,
        batch=batch,
        precision=_precision(graph) if precision is None else precision,
        mode="inference",
        runtime=runtime,
        layout=_layout(graph) if layout is None else layout,
    )


def attributes(graph: OpGraph, prediction: Prediction, schema: str = "operator") -> dict[str, Any]:
    """Module attributes by full name, for ``mod.with_attrs``.

    Every metric is a Map of ``median``, ``low``, ``high``, ``coverage`` (floats) and ``unit``;
    ``perfpass.node_features`` is [N, F] float32 and ``perfpass.edge_index`` [2, E] int32.
    """
    table = features.extract(graph, schema, costs.count(graph))
    whole = prediction.to_dict()
    provenance = {**whole["provenance"], "features": {"schema": table.schema, "version": table.version}}
    values: dict[str, Any] = {name: _interval(getattr(prediction, name)) for name in METRICS}
    values |= {
        "mig": {
            "profile": prediction.mig.profile or "",
            "instances_per_gpu": prediction.mig.instances_per_gpu,
            "reason": prediction.mig.reason,
        },
        "support": {"level": prediction.support.level, "reasons": list(prediction.support.reasons)},
        "workload": json.dumps(whole["workload"]),
        "provenance": json.dumps(provenance),
        "prediction": json.dumps(whole),
        "node_features": tvm.nd.array(np.ascontiguousarray(table.nodes, dtype=np.float32)),
        "edge_index": tvm.nd.array(np.ascontiguousarray(table.edge_index, dtype=np.int32)),
    }
    return {PREFIX + name: value for name, value in values.items()}


def prediction_of(mod: tvm.IRModule) -> dict[str, Any]:
    """The prediction that the pass left, as ``Prediction.to_dict`` gives it. Raises GraphError without one."""
    found = mod.attrs[PREFIX + "prediction"] if mod.attrs and PREFIX + "prediction" in mod.attrs else None
    if found is None:
        raise GraphError("the module has no prediction; run tvm_perfpass.PredictPerformance(device=...) on it first")
    return json.loads(str(found))


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "median": float(interval.median),
        "low": float(interval.low),
        "high": float(interval.high),
        "coverage": float(interval.coverage),
        "unit": interval.unit,
    }


def _precision(graph: OpGraph) -> str:
    """The precision in which most of the graph's floating operators produce their results; fp32 where none does."""
    produced = graph.tensor_dtype[graph.producer >= 0]
    kinds = Counter(DTYPES[int(d)] for d in produced.tolist())
    floating = {name: count for name, count in kinds.items() if name.startswith(("float", "bfloat"))}
    return _PRECISION_OF.get(max(floating, key=lambda name: floating[name]), "fp32") if floating else "fp32"


def _layout(graph: OpGraph) -> str:
    convolutions = graph.op == OPERATORS.index("conv")
    last = graph.attributes[convolutions, ATTRIBUTES.index("channels_last")]
    return "nhwc" if len(last) and last.mean() > 0.5 else "nchw"
