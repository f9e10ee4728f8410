"""Models that the tests of pictures and pages share: where they are, one of hostile names, one of any size."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DEVICE = "a100-sxm4-80gb"
# What a model file may call a node.
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&]]>--><!--\x1b[31m\u202e"


def hostile(path: Path) -> Path:
    """A network whose every name is made to harm whoever shows it."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(EXAMPLES / "resnet50.onnx")
    model.graph.name = HOSTILE
    outputs, renamed = {o.name for o in model.graph.output}, {}
    for i, node in enumerate(model.graph.node):
        node.name = f"{HOSTILE}{i}/{HOSTILE}"
        for k, name in enumerate(node.output):
            if name not in outputs:
                renamed[name] = node.output[k] = f"{HOSTILE}{i}.{k}"
        for k, name in enumerate(node.input):
            node.input[k] = renamed.get(name, name)
    onnx.save(model, path)
    return path


def large(path: Path, nodes: int) -> Path:
    """A network of so many nodes in modules of its own, with long names."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    made, before = [], "x"
    for i in range(nodes):
        name = f"/model/encoder/stage.{i // 1000}/block.{i // 10}/act_{i}/Relu"
        made.append(helper.make_node(["Relu", "Sigmoid", "Tanh"][i % 3], [before], [f"t{i}"], name=name))
        before = f"t{i}"
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 72, 8]) for n in ("x", before)]
    onnx.save(helper.make_model(helper.make_graph(made, "large", value[:1], value[1:])), path)
    return path
