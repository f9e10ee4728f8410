"""Operators that a user describes: read, counted and named as stated, and refused where they cannot be right."""

from __future__ import annotations

from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper

import perfpass
from perfpass import _core, extensions
from perfpass.errors import ArgumentError, FormatError, LimitError, PerfPassError, ShapeError
from perfpass.graph import OPERATORS, OpGraph, costs
from perfpass.importers import operators

GATED = """
[operator."mine::Gated"]
resembles = "dense"
outputs = [{ shape = ["x[0].shape[0]", "x[0].shape[1]", "units"] }]
macs = "x[0].elements * units"
bytes_read = "x[0].bytes + x[1].bytes"

[operator."mine::Twice"]
resembles = "gelu"
outputs = [{ like = "x[0]" }, { shape = ["x[0].shape[0]"], dtype = "int64" }]
flops = "10 * y[0].elements"
"""


@pytest.fixture(autouse=True)
def _nothing_described(monkeypatch):
    monkeypatch.setattr(extensions, "_registered", dict(extensions._registered))
    operators._of_environment.cache_clear()


def _model(units: int = 24, shapes: bool = False) -> bytes:
    nodes = [
        helper.make_node("Gated", ["x", "w"], ["h"], name="gated", domain="mine", units=units),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Twice", ["r"], ["y", "n"], name="twice", domain="mine"),
    ]
    w = helper.make_tensor("w", TensorProto.FLOAT, [16, units], [0.0] * (16 * units))
    given = ["b", 8, units] if shapes else None
    info = [helper.make_tensor_value_info(n, 1, given) for n in "hr"] if shapes else []
    ends = [
        helper.make_tensor_value_info("y", 1, given),
        helper.make_tensor_value_info("n", 7, ["b"] if shapes else None),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, ["b", 8, 16])], ends, [w], value_info=info
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets).SerializeToString()


def _described(tmp_path: Path, text: str = GATED) -> tuple[operators.Operator, ...]:
    path = tmp_path / "operators.toml"
    path.write_text(text, encoding="utf-8")
    return operators.add_file(path)


def test_a_file_without_shapes_is_read_once_its_operators_are_described(tmp_path):
    with pytest.raises(ShapeError, match="mine::Gated"):
        perfpass.load(_model(), dims={"b": 4})
    _described(tmp_path)
    graph = perfpass.load(_model(), dims={"b": 4})
    assert [graph.shape(int(t)) for t in graph.graph_outputs] == [(4, 8, 24), (4,)]
    assert graph.unknown_operators == {}
    assert graph.stated_operators == {"mine::Gated": 1, "mine::Twice": 1}
    counted = costs.count(graph)
    assert [OPERATORS[i] for i in graph.op] == ["dense", "relu", "gelu"]
    assert counted.macs.tolist() == [4 * 8 * 16 * 24, 0, 0]
    assert counted.flops.tolist() == [2 * 4 * 8 * 16 * 24, 4 * 8 * 24, 10 * 4 * 8 * 24]
    assert counted.bytes_read[0] == 4 * (4 * 8 * 16 + 16 * 24)
    assert counted.parameters.tolist() == [16 * 24, 0, 0]


def test_a_stated_operator_is_named_and_never_in_range(tmp_path):
    unknown = perfpass.predict(_model(shapes=True), "a100", dims={"b": 4}, runtime="onnxruntime")
    assert any("without a cost model" in reason and "mine::Gated" in reason for reason in unknown.support.reasons)
    _described(tmp_path)
    found = perfpass.predict(_model(shapes=True), "a100", dims={"b": 4})
    said = [reason for reason in found.support.reasons if "as their user states them" in reason]
    assert len(said) == 1
    assert "mine::Gated (1)" in said[0]
    assert found.support.level != "in range"
    assert not any("without a cost model" in reason for reason in found.support.reasons)
    assert found.provenance["graph"]["stated_operators"] == {"mine::Gated": 1, "mine::Twice": 1}


def test_what_stays_unknown_is_still_named(tmp_path):
    _described(tmp_path, GATED.split("\n\n")[0])
    graph = perfpass.load(_model(shapes=True), dims={"b": 4})
    assert graph.unknown_operators == {"mine::Twice": 1}
    assert graph.stated_operators == {"mine::Gated": 1}


def test_stated_bytes_shrink_with_the_precision_as_the_tensors_do(tmp_path):
    _described(tmp_path)
    graph = perfpass.load(_model(), dims={"b": 4})
    wide, narrow = (costs.count(graph, float_as=name).bytes_read[0] for name in ("float32", "float16"))
    assert wide == 2 * narrow


def test_every_road_counts_a_stated_operator_alike(tmp_path):
    from perfpass.search import Scorer

    _described(tmp_path)
    path = tmp_path / "model.onnx"
    path.write_bytes(_model())
    alone = perfpass.predict(str(path), "a100", dims={"b": 4}).latency_ms.median
    scored = Scorer("a100").score([str(path)], dims={"b": 4})
    assert scored.latency_ms.median[0] == pytest.approx(alone)
    swept = perfpass.sweep(str(path), ["a100"], batches=[1, 4])
    assert swept.columns["latency_ms"][1] == pytest.approx(alone)
    assert scored.support[0] >= 1


def test_a_description_in_python_holds_for_any_reader():
    b = _core.GraphBuilder()
    x = b.add_tensor("x", "float16", [2, 64, 32], "input")
    y = b.add_tensor("y", "float16", [2, 64, 32], "activation")
    b.add_node("unknown", "mine.mixer", "mix", {}, [x], [y])
    plain = OpGraph(b.finish([x], [y]))
    assert operators.applied(plain) is plain
    perfpass.declare_operator("mine.mixer", resembles="matmul", macs="64 * x[0].elements")
    found = perfpass.load(plain)
    assert found.unknown_operators == {}
    assert costs.count(found).macs.tolist() == [64 * 2 * 64 * 32]
    assert plain.unknown_operators == {"mine.mixer": 1}


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ('[operator.a]\nflops = "1"', FormatError, "resembles"),
        ('[operator.a]\nresembles = "gelo"', FormatError, "gelu"),
        ('[operator.a]\nresembles = "gelu"\nflop = "1"', FormatError, "flops"),
        ('[operator.a]\nresembles = "gelu"\nflops = 1.5', FormatError, "whole number, or a formula"),
        ('[operator.a]\nresembles = "gelu"\nflops = "import os"', ArgumentError, "no formula"),
        ('[operator.a]\nresembles = "gelu"\noutputs = [{}]', ArgumentError, "like"),
        ('[operator.a]\nresembles = "gelu"\noutputs = [{ like = "y[0]" }]', ArgumentError, "like an input"),
        ('[operator.a]\nresembles = "gelu"\nattributes = { heads = 3 }', ArgumentError, "num_heads"),
        ("operator = 3", FormatError, "table"),
        ("[operators.a]", FormatError, "operator"),
    ],
)
def test_a_wrong_description_is_refused_in_one_line_that_names_it(tmp_path, text, error, said):
    with pytest.raises(PerfPassError, match=said) as found:
        _described(tmp_path, text)
    assert isinstance(found.value, (error, ArgumentError))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ('macs = "x[0].elements * unit"', "units"),
        ('macs = "x[0].elements - 99999999"', "0 or more"),
        ('macs = "9" \nflops = "17"', "two FLOPs"),
        ('macs = 4611686018427387904 \nflops = "4611686018427387904 * 4"', "2\\^62"),
        ('bytes_written = "x[0].bytes * 1000000"', "state bytes"),
    ],
)
def test_what_a_description_gives_of_a_node_is_checked(tmp_path, changed, said):
    _described(tmp_path, GATED.replace('macs = "x[0].elements * units"', changed))
    with pytest.raises((ArgumentError, LimitError), match=said):
        perfpass.load(_model(), dims={"b": 4})


def test_another_number_of_outputs_is_refused(tmp_path):
    _described(tmp_path, GATED.replace(', { shape = ["x[0].shape[0]"], dtype = "int64" }', ""))
    with pytest.raises(ShapeError, match="a node of it has 2"):
        perfpass.load(_model(), dims={"b": 4})


def test_the_command_line_reads_a_file_of_operators(tmp_path, capsys):
    from perfpass.cli import main

    (tmp_path / "operators.toml").write_text(GATED, encoding="utf-8")
    (tmp_path / "model.onnx").write_bytes(_model())
    given = [str(tmp_path / "model.onnx"), "--dim", "b=2", "--operators", str(tmp_path / "operators.toml")]
    assert main(["inspect", *given]) == 0
    assert "as stated" in capsys.readouterr().out
    assert main(["inspect", *given[:-1], str(tmp_path / "nothing.toml")]) == 3


def test_the_environment_names_files_of_operators(tmp_path, monkeypatch):
    (tmp_path / "operators.toml").write_text(GATED, encoding="utf-8")
    monkeypatch.setenv(operators.FILES, str(tmp_path / "operators.toml"))
    assert perfpass.load(_model(), dims={"b": 4}).stated_operators


def test_a_torch_operator_without_a_kernel_for_shapes_is_traced_once_it_is_described():
    torch = pytest.importorskip("torch")
    library = torch.library.Library("perfpass_test", "FRAGMENT")
    library.define("widened(Tensor x, int by) -> Tensor")

    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.relu(torch.ops.perfpass_test.widened(x, 3))

    with pytest.raises(PerfPassError):
        perfpass.load(Net(), input_shape=(8, 16))
    perfpass.declare_operator(
        "perfpass_test.widened",
        resembles="concat",
        outputs=[{"shape": ["x[0].shape[0]", "x[0].shape[1]", "x[0].shape[2] * by"]}],
        flops="y[0].elements",
    )
    graph = perfpass.load(Net(), input_shape=(8, 16), batch=2)
    assert [graph.shape(int(t)) for t in graph.graph_outputs] == [(2, 8, 48)]
    assert graph.stated_operators == {"perfpass_test.widened": 1}
    assert costs.count(graph).flops.tolist() == [2 * 8 * 48, 2 * 8 * 48]
