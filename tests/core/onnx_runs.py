"""Models of a few operators run by ONNX Runtime, and what perfpass reads from them: for tests of ONNX shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import settings
from onnx import helper, numpy_helper

from perfpass.errors import PerfPassError, ShapeError
from perfpass.graph import ATTRIBUTES, DTYPES, OpGraph
from perfpass.importers import onnx as importer

PROPERTY = settings(max_examples=60)
MICROSOFT = "com.microsoft"
Array = np.ndarray


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, Array], constants: dict[str, Array], opset: int = 21
) -> onnx.ModelProto:
    """A model without any shape but those of its inputs; every result of a node is an output."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output if name]
    initializers = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, outputs, initializers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def found_shapes(graph: OpGraph) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every tensor by name."""
    core = graph.core
    return {
        core.string(int(core.tensor_name[t])): (graph.shape(t), DTYPES[core.tensor_dtype[t]])
        for t in range(graph.tensor_count)
    }


def attributes_of(graph: OpGraph, node: int = 0) -> dict[str, int]:
    return dict(zip(ATTRIBUTES, (int(v) for v in graph.attributes[node]), strict=True))


def run(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array] | None:
    """Results by ONNX Runtime, node by node as the model says; None where it refuses the model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = session.run(None, inputs)
    except Exception:
        return None
    return {o.name: r for o, r in zip(session.get_outputs(), results, strict=True)}


COMPARED = {"runs": 0}


@pytest.fixture(autouse=True)
def something_was_compared(request: pytest.FixtureRequest):
    """A test whose every model ONNX Runtime refuses would show nothing."""
    before = COMPARED["runs"]
    yield
    assert COMPARED["runs"] > before or "run" not in request.node.name


def check(
    nodes: list[onnx.NodeProto] | onnx.NodeProto,
    inputs: dict[str, Array],
    constants: dict[str, Array] | None = None,
    opset: int = 21,
) -> OpGraph | None:
    """Shapes and types equal those of a run. What ONNX Runtime refuses may be refused, in one typed error."""
    model = model_of(nodes if isinstance(nodes, list) else [nodes], inputs, constants or {}, opset)
    expected = run(model, inputs)
    if expected is None:
        try:
            return importer.read(model)
        except PerfPassError:
            return None
    COMPARED["runs"] += 1
    try:
        graph = importer.read(model)
    except ShapeError as error:  # a window larger than its padded input runs there, on nothing; it is refused here
        assert "needs an input at least as large" in str(error)
        return None
    found = found_shapes(graph)
    for name, result in expected.items():
        assert found[name] == (result.shape, str(result.dtype)), (name, str(model.graph.node))
    return graph


def node(op: str, inputs: list[str], outputs: int = 1, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    names = [f"y{i}" for i in range(outputs)]
    return helper.make_node(op, inputs, names, domain=domain, **{k: v for k, v in attributes.items() if v is not None})


def f32(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)
