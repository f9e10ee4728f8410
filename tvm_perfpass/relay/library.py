"""relay.build with the prediction inside what it builds: in the factory, the exported library and what is loaded back.

The graph executor's JSON may end with a key ``metadata``, which the executor skips
(src/runtime/graph_executor/graph_executor.h of TVM 0.19, ``GraphExecutor::Load``); the prediction travels there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relay
from tvm.relay.backend.executor_factory import ExecutorFactoryModule, GraphExecutorFactoryModule

from perfpass.decision import Limits
from perfpass.devices import Device
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.prediction import Prediction
from tvm_perfpass.attributes import prediction_of
from tvm_perfpass.relay.passes import PredictPerformance

_KEY = "perfpass.prediction"
# relay.build's own arguments; all others are the pass's.
_BUILD_ARGUMENTS = frozenset(
    ("target_host", "executor", "runtime", "workspace_memory_pools", "constant_memory_pools", "mod_name")
)


def build(
    mod: tvm.IRModule,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    *,
    device: str | Device,
    precision: str | None = None,
    batch: int | None = None,
    layout: str | None = None,
    calibration: Any = True,
    limits: Limits | None = None,
    **kwargs: Any,
) -> GraphExecutorFactoryModule:
    """``relay.build(mod, target, params=params, **kwargs)``, with the prediction for ``device`` kept in the result.

    Read it with ``read_prediction``, also after ``export_library`` and ``tvm.runtime.load_module``. ``precision``,
    ``batch``, ``layout``, ``calibration`` and ``limits`` are those of PredictPerformance; the library's outputs are
    those of ``relay.build``.
    Raises ArgumentError for arguments that relay.build does not have, UnsupportedError for an executor other than the
    graph executor (its artefacts have no place for metadata), and what the pass raises.
    """
    if not isinstance(mod, tvm.IRModule):
        raise ArgumentError(f"expected a tvm.IRModule, got {type(mod).__name__}; tvm.IRModule.from_expr makes one")
    if unknown := sorted(set(kwargs) - _BUILD_ARGUMENTS):
        raise ArgumentError(
            f"unknown arguments {', '.join(unknown)}; allowed are device, precision, batch, layout, calibration, "
            f"limits and those of relay.build: {', '.join(sorted(_BUILD_ARGUMENTS))}"
        )
    executor = kwargs.get("executor")
    if executor is not None and str(executor.name) != "graph":
        raise UnsupportedError(
            f"the {executor.name} executor has no place for a prediction; use the graph executor, or run "
            "PredictPerformance on the module and relay.build yourself"
        )
    predict: Any = PredictPerformance(
        device,
        precision=precision,
        batch=batch,
        params=params,
        layout=layout,
        calibration=calibration,
        limits=limits,
    )
    annotated = predict(mod)
    factory = relay.build(annotated, target, params=params, **kwargs)
    return with_prediction(factory, prediction_of(annotated))


def with_prediction(
    factory: GraphExecutorFactoryModule, prediction: Prediction | dict[str, Any]
) -> GraphExecutorFactoryModule:
    """A factory like the given one whose graph JSON carries the prediction."""
    found = prediction.to_dict() if isinstance(prediction, Prediction) else prediction
    graph = json.loads(factory.get_graph_json())
    metadata = graph.pop("metadata", {})  # last, as the executor's reader wants it
    graph["metadata"] = {**metadata, _KEY: found} if isinstance(metadata, dict) else {_KEY: found}
    return GraphExecutorFactoryModule(
        factory.ir_mod,
        factory.target,
        factory.executor,
        json.dumps(graph),
        factory.lib,
        factory.libmod_name,
        factory.params,
        factory.function_metadata,
    )


def read_prediction(source: Any) -> dict[str, Any]:
    """The prediction inside a module, a factory or a loaded library, as ``Prediction.to_dict`` gives it.

    ``perfpass.Decision.from_dict(found["decision"])`` is its decision.
    ``source``: a tvm.IRModule that the pass has seen, what ``build`` returned, or what ``tvm.runtime.load_module``
    returned for a library exported from it. Raises GraphError or ArgumentError where there is none.
    """
    if isinstance(source, tvm.IRModule):
        return prediction_of(source)
    if isinstance(source, GraphExecutorFactoryModule):
        text = source.get_graph_json()
    elif isinstance(source, tvm.runtime.Module):
        try:
            text = source["get_graph_json"]()
        except AttributeError as error:
            raise ArgumentError(
                f"a module of kind {source.type_key!r} holds no graph executor; read_prediction needs a library "
                "exported from tvm_perfpass.build"
            ) from error
    elif isinstance(source, ExecutorFactoryModule):
        return prediction_of(source.ir_mod)
    else:
        raise ArgumentError(
            f"expected a tvm.IRModule, an executor factory or a loaded module, got {type(source).__name__}"
        )
    metadata = json.loads(text).get("metadata")
    if not isinstance(metadata, dict) or _KEY not in metadata:
        raise ArgumentError("the library carries no prediction; build it with tvm_perfpass.build")
    return metadata[_KEY]
