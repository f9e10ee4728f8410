"""What is inferred once for nodes that are alike, and memory that one model's reading leaves to the next."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from perfpass.graph import DTYPES
from perfpass.importers import onnx as importer


def _model(nodes, inputs, outputs, constants=()):
    """Inputs and outputs: a name, element type and shape each; of outputs None for the shape."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*given) for given in inputs],
        [helper.make_tensor_value_info(*made) for made in outputs],
        [numpy_helper.from_array(np.array(values, dtype=np.int64), name) for name, values in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_nodes_alike_but_for_one_thing_have_their_own_shapes():
    """Each pair differs in an attribute, in a content, in a shape, in a type, or in being a constant's."""
    floats, halves = TensorProto.FLOAT, TensorProto.FLOAT16
    nodes = []
    expected = {}
    for again in range(2):  # what is known by then is asked once more

        def node(op, inputs, shape, dtype="float32", again=again, **attributes):
            name = f"y{len(nodes)}_{again}"
            nodes.append(helper.make_node(op, inputs, [name], **attributes))
            expected[name] = (dtype, shape)

        node("Transpose", ["x"], (4, 3, 2), perm=[2, 1, 0])
        node("Transpose", ["x"], (3, 2, 4), perm=[1, 0, 2])
        node("Transpose", ["wide"], (6, 5, 4), perm=[2, 1, 0])
        node("Transpose", ["half"], (4, 3, 2), "float16", perm=[2, 1, 0])
        node("Reshape", ["x", "flat"], (24,))
        node("Reshape", ["x", "square"], (6, 4))
        node("Reshape", ["half", "square"], (6, 4), "float16")
        node("Concat", ["x", "x"], (4, 3, 4), axis=0)
        node("Concat", ["x", "x"], (2, 6, 4), axis=1)
        node("Concat", ["x", "x", "x"], (6, 3, 4), axis=0)
        node("Cast", ["x"], (2, 3, 4), "float16", to=halves)
        node("Cast", ["x"], (2, 3, 4), "int64", to=TensorProto.INT64)
        node("Add", ["x", "x"], (2, 3, 4))
        node("Add", ["x", "row"], (2, 3, 4))
        node("Unsqueeze", ["x", "first"], (1, 2, 3, 4))
        node("Unsqueeze", ["x", "last"], (2, 3, 4, 1))
    inputs = [
        ("x", floats, [2, 3, 4]),
        ("wide", floats, [4, 5, 6]),
        ("half", halves, [2, 3, 4]),
        ("row", floats, [4]),
    ]
    outputs = [(name, TensorProto.UNDEFINED, None) for name in expected]
    constants = [("flat", [-1]), ("square", [6, 4]), ("first", [0]), ("last", [-1])]
    model = _model(nodes, inputs, outputs, constants)
    for output in model.graph.output:
        output.ClearField("type")
    graph = importer.read(model)
    found = {
        graph.string(int(graph.tensor_name[t])): (DTYPES[graph.tensor_dtype[t]], tuple(graph.shape(int(t))))
        for t in range(graph.tensor_count)
    }
    assert {name: found[name] for name in expected} == expected


def test_an_attribute_that_a_function_takes_from_its_caller_is_not_that_of_another_call():
    body = [helper.make_node("Transpose", ["x"], ["y"])]
    body[0].attribute.add(name="perm", ref_attr_name="order", type=onnx.AttributeProto.INTS)
    function = helper.make_function("own", "turn", ["x"], ["y"], body, [helper.make_opsetid("", 17)], ["order"])
    nodes = [
        helper.make_node("turn", ["x"], ["a"], domain="own", order=[2, 1, 0]),
        helper.make_node("turn", ["x"], ["b"], domain="own", order=[1, 0, 2]),
    ]
    shapes = {"a": (4, 3, 2), "b": (3, 2, 4)}
    outputs = [(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    model = _model(nodes, [("x", TensorProto.FLOAT, [2, 3, 4])], outputs)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    graph = importer.read(model)
    assert [graph.shape(int(t)) for t in graph.graph_outputs] == list(shapes.values())


_READ = """
import resource, sys
from perfpass import features
from perfpass.graph import costs
from perfpass.importers import onnx

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def read():
    graph = onnx.read(sys.argv[1])
    features.extract(graph, "operator", costs.count(graph))

for _ in range(4):
    read()
before = faults()
for _ in range(10):
    read()
print((faults() - before) / 10)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's heap, and its faults as Linux counts them")
def test_memory_of_one_model_serves_the_next(tmp_path):
    """Some 9 MB are written for each reading: over 2,000 pages, of which a few are new each time."""
    path = tmp_path / "chain.onnx"
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name=f"node_{i}") for i in range(10_000)]
    ends = [("t0", TensorProto.FLOAT, [4, 8])], [("t10000", TensorProto.FLOAT, [4, 8])]
    onnx.save(_model(nodes, *ends), path)
    run = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 100
