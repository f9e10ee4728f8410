"""The attributes that carry a prediction on a module of TVM, Relay or Relax: keys and values are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from perfpass import features
from perfpass.decision import Limits
from perfpass.devices import Device
from perfpass.errors import GraphError
from perfpass.graph import ATTRIBUTES, OPERATORS, OpGraph, costs
from perfpass.prediction import Interval, Prediction
from perfpass.predictors import predict_graph
from perfpass.predictors.calibration.posterior import Calibration
from perfpass.predictors.calibration.schedules import Schedules
from perfpass.predictors.workload import precision_of

PREFIX = "perfpass."
METRICS = ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w")


def predict_loaded(
    graph: OpGraph,
    device: str | Device,
    *,
    precision: str | None = None,
    runtime: str = "tvm",
    batch: int | None = None,
    layout: str | None = None,
    calibration: bool | Calibration | Schedules = True,
    limits: Limits | None = None,
) -> Prediction:
    """``perfpass.predict`` for a module's graph, with precision and layout taken from it where not given."""
    return predict_graph(
        graph,
        device,
        batch=batch,
        precision=precision_of(graph) if precision is None else precision,
        mode="inference",
        runtime=runtime,
        layout=layout_of(graph) if layout is None else layout,
        calibration=calibration,
        limits=limits,
    )


def attributes(
    graph: OpGraph, prediction: Prediction, tensor: Callable[[np.ndarray], Any], schema: str = "operator"
) -> dict[str, Any]:
    """Module attributes by full name, for ``mod.with_attrs``.

    Every metric is a Map of ``median``, ``low``, ``high``, ``coverage`` (floats) and ``unit``;
    ``perfpass.node_features`` is [N, F] float32 and ``perfpass.edge_index`` [2, E] int32, as ``tensor`` makes them.
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
        **({} if prediction.decision is None else {"decision": json.dumps(whole["decision"])}),
        "node_features": tensor(np.ascontiguousarray(table.nodes, dtype=np.float32)),
        "edge_index": tensor(np.ascontiguousarray(table.edge_index, dtype=np.int32)),
    }
    return {PREFIX + name: value for name, value in values.items()}


def prediction_of(mod: Any) -> dict[str, Any]:
    """The prediction that the pass left, as ``Prediction.to_dict`` gives it. Raises GraphError without one."""
    found = mod.attrs[PREFIX + "prediction"] if mod.attrs and PREFIX + "prediction" in mod.attrs else None
    if found is None:
        raise GraphError("the module has no prediction; run PredictPerformance(device=...) on it first")
    return json.loads(str(found))


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "median": float(interval.median),
        "low": float(interval.low),
        "high": float(interval.high),
        "coverage": float(interval.coverage),
        "unit": interval.unit,
    }


def layout_of(graph: OpGraph) -> str:
    """The layout of most convolutions: nhwc or nchw."""
    convolutions = graph.op == OPERATORS.index("conv")
    last = graph.attributes[convolutions, ATTRIBUTES.index("channels_last")]
    return "nhwc" if len(last) and last.mean() > 0.5 else "nchw"
