"""Frozen parameters are seen on every road: no gradients, no optimizer states, no time for their gradients."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import perfpass
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph import OPERATORS, frozen
from perfpass.importers import torchvision_schemas

torch = pytest.importorskip("torch")
torchvision_schemas.define()

BOARD, BATCH, SIZE = "a100-80gb", 4, 32
SHAPE = (3, SIZE, SIZE)


class Classifier(torch.nn.Module):
    """A backbone of convolutions and a head."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.backbone = nn.Sequential(
            *(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
            *(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU()),
        )
        self.head = nn.Linear(128, 100)

    def forward(self, x: Any) -> Any:
        return self.head(self.backbone(x).mean((2, 3)))


def parts(model: Any, **more: Any) -> tuple[float, float, float]:
    """Bytes of gradients and of optimizer states, and milliseconds of a step."""
    asked = {"batch": BATCH, "mode": "training", "optimizer": "adamw"} | more
    found = perfpass.predict(model, BOARD, **asked)
    memory = found.breakdown["memory_bytes"]
    return memory["gradients"], memory["optimizer"], found.latency_ms.median


def without_gradients(module: Any, *children: str) -> Any:
    for child in children:
        for parameter in getattr(module, child).parameters():
            parameter.requires_grad_(False)
    return module


def assert_less(held: tuple[float, float, float], whole: tuple[float, float, float]) -> None:
    assert held[1] < 0.9 * whole[1] and held[0] <= whole[0] and held[2] < whole[2]


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = {"backbone.weight": [256, 256], "neck.weight": [256, 256], "head.weight": [256, 10]}
    tensors = [helper.make_tensor(n, kind, s, np.zeros(s, np.float32).tobytes(), raw=True) for n, s in weights.items()]
    names, nodes, last = list(weights), [], "x"
    for i, name in enumerate(names):
        nodes += [helper.make_node("MatMul", [last, name], [f"p{i}"]), helper.make_node("Relu", [f"p{i}"], [f"y{i}"])]
        last = f"y{i}"
    ends = [helper.make_tensor_value_info(n, kind, [64, d]) for n, d in (("x", 256), (last, 10))]
    path = tmp_path_factory.mktemp("frozen") / "model.onnx"
    graph = helper.make_graph(nodes, "three", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)


def test_module_given_directly() -> None:
    whole = parts(Classifier(), input_shape=SHAPE)
    held = without_gradients(Classifier(), "backbone")
    assert_less(parts(held, input_shape=SHAPE), whole)
    assert [p.requires_grad for p in held.parameters()].count(True) == 2  # left as it was
    named = parts(Classifier(), input_shape=SHAPE, frozen=["backbone"])
    assert named == parts(held, input_shape=SHAPE)


def test_graph_of_a_module_and_what_torch_exported() -> None:
    held = without_gradients(Classifier(), "backbone")
    graphs = [perfpass.load(m, input_shape=SHAPE, batch=BATCH) for m in (held, Classifier())]
    assert graphs[0].frozen and not graphs[1].frozen
    assert_less(parts(graphs[0]), parts(graphs[1]))
    exported = [torch.export.export(m.eval(), (torch.zeros(BATCH, *SHAPE),)) for m in (held, Classifier())]
    found = [perfpass.load(e, input_shape=SHAPE, batch=BATCH) for e in exported]
    assert found[0].frozen and not found[1].frozen
    assert_less(*(parts(e, input_shape=SHAPE) for e in exported))


def test_models_by_name() -> None:
    shape = {"dims": {"image_size": 64}}
    assert_less(
        parts("torchvision:alexnet", frozen=["features", "classifier.1"], **shape),
        parts("torchvision:alexnet", **shape),
    )


def test_configuration_by_name_of_its_layers(tmp_path) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    dims = {"dims": {"sequence_length": 16}}
    whole, held = parts(str(path), **dims), parts(str(path), frozen=["embeddings", "encoder.layer.0"], **dims)
    assert_less(held, whole)


def test_initializers_of_an_onnx_file(onnx_file) -> None:
    whole = parts(onnx_file, batch=None)
    first, second, both = (
        parts(onnx_file, batch=None, frozen=names)
        for names in (["backbone.weight"], ["neck.weight"], ["backbone", "neck"])
    )
    for held in (first, second, both):
        assert_less(held, whole)
    assert first[:2] == second[:2]  # equal matrices
    assert both[2] < first[2] <= second[2]  # what is frozen at the start needs no gradient of its input either


def test_traced_steps_leave_out_what_is_frozen() -> None:
    traced = [
        perfpass.load(m, input_shape=SHAPE, batch=BATCH, mode="training", frozen=names)
        for m, names in (
            (Classifier(), []),
            (Classifier(), ["backbone"]),
            (without_gradients(Classifier(), "backbone"), []),
        )
    ]
    assert [len(g.gradients) for g in traced] == [10, 2, 2]
    assert traced[1].node_count == traced[2].node_count < traced[0].node_count


def test_marks_follow_the_gradient() -> None:
    graph = perfpass.load(Classifier(), input_shape=SHAPE, batch=BATCH)

    def marks(*names: str) -> dict[str, int]:
        found = frozen.flags(graph, frozen.matching(graph, names))
        return {
            graph.label(n): int(found[n])
            for n in range(graph.node_count)
            if OPERATORS[graph.op[n]] in ("conv", "dense")
        }

    convolutions = ["backbone.0.aten.convolution", "backbone.3.aten.convolution"]
    still = marks("backbone")
    assert [still[name] for name in convolutions] == [frozen.STILL, frozen.STILL]
    assert [m for name, m in still.items() if name.startswith("head")] == [frozen.NO_DATA]
    later = marks("backbone.3", "head")
    assert [later[name] for name in convolutions] == [frozen.NO_DATA, frozen.FROZEN]
    assert [m for name, m in later.items() if name.startswith("head")] == [frozen.FROZEN]


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="every parameter is frozen"):
        parts(without_gradients(Classifier(), "backbone", "head"), input_shape=SHAPE)
    with pytest.raises(UnsupportedError, match="has no floating parameter: there is nothing to train"):
        perfpass.train_network_cost(torch.nn.ReLU(), BOARD, input_shape=SHAPE)
    with pytest.raises(ArgumentError, match="names no parameter"):
        parts(Classifier(), input_shape=SHAPE, frozen=["encoder"])
    with pytest.raises(ArgumentError, match="list of names"):
        perfpass.load(Classifier(), input_shape=SHAPE, frozen="backbone")
    with pytest.raises(ArgumentError, match="needs mode='training'"):
        perfpass.predict(Classifier(), BOARD, input_shape=SHAPE, frozen=["head"])


def test_inference_does_not_care() -> None:
    shape = {"input_shape": SHAPE, "batch": BATCH}
    found = [perfpass.predict(m, BOARD, **shape) for m in (Classifier(), without_gradients(Classifier(), "backbone"))]
    assert found[0].latency_ms == found[1].latency_ms and found[0].peak_memory_bytes == found[1].peak_memory_bytes
