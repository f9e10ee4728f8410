"""Tables of networks that ran on CPUs: one for runtimes that load a model once, one for eager PyTorch."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import perfpass
from perfpass.graph import OpGraph
from perfpass.measure.configuration import Configuration
from perfpass.training.inference import host_tables


def _turned() -> OpGraph:
    """Two transposes alike: PyTorch shows one by strides, the other's result has its axes joined."""
    nodes = [helper.make_node("Transpose", ["x"], [name], perm=[0, 2, 1, 3]) for name in ("shown", "copied")]
    nodes += [helper.make_node("Relu", ["shown"], ["y"]), helper.make_node("Reshape", ["copied", "to"], ["z"])]
    ends = [[("x", [2, 8, 4, 16])], [("y", [2, 4, 8, 16]), ("z", [2, 4, 128])]]
    inputs, outputs = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in end] for end in ends)
    to = helper.make_tensor("to", TensorProto.INT64, [3], [2, 4, 128])
    return perfpass.load(helper.make_model(helper.make_graph(nodes, "turned", inputs, outputs, [to])))


def test_what_pytorch_alone_shows_by_strides_is_a_row_of_eager_pytorch_alone(monkeypatch, tmp_path):
    asked = Configuration(model="timm:resnet18", batch=4)
    monkeypatch.setattr(host_tables, "graph_of", lambda _: _turned())
    (tmp_path / "graphs").mkdir()
    host_tables.write(host_tables.counted(asked), tmp_path / "graphs" / host_tables.FILE)
    ((family, loaded, eager),) = host_tables.load(tmp_path).values()
    assert family == host_tables.family_of(asked.model)
    assert (len(loaded.op), len(eager.op)) == (3, 4)


def test_every_network_has_both_tables_of_the_same_work():
    for size, (_, loaded, eager) in host_tables.load().items():
        products = (sum(table.macs * table.count) for table in (loaded, eager))
        assert next(products) == pytest.approx(next(products)), size
