"""Formulas of a model's sizes: the same as counting at any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfpass
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.graph import costs, liveness
from perfpass.importers.symbolic import COUNTS, PEAK

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _counted(model, batch, **dims):
    graph = perfpass.load(model, batch=batch, dims=dims or None)
    totals = costs.count(graph).totals
    return {name: totals[name] for name in COUNTS} | {PEAK: liveness.plan(graph).peak_activation_bytes}


def test_formulas_of_a_file_are_its_counts_at_any_batch_and_length():
    path = str(EXAMPLES / "deberta_v3_large_dynamic.onnx")
    found = perfpass.symbolic(path)
    assert {axis.symbol: (axis.first, axis.step) for axis in found.axes} == {"batch": (1, 1), "sequence": (1, 1)}
    assert found.formulas["macs"].degrees == {"batch": 1, "sequence": 2}
    for batch, sequence in ((1, 1), (3, 77), (8, 384), (64, 512)):
        graph = perfpass.load(path, dims={"batch": batch, "sequence": sequence})
        totals = costs.count(graph).totals
        expected = {name: totals[name] for name in COUNTS} | {PEAK: liveness.plan(graph).peak_activation_bytes}
        assert found.at({"batch": batch, "sequence": sequence}) == expected


def test_a_fixed_size_is_no_symbol():
    found = perfpass.symbolic(str(EXAMPLES / "deberta_v3_large_dynamic.onnx"), dims={"sequence": 128})
    assert [axis.symbol for axis in found.axes] == ["batch"]
    assert found.fixed == {"sequence": 128}
    with pytest.raises(ArgumentError, match="nothing"):
        perfpass.symbolic(str(EXAMPLES / "deberta_v3_large_dynamic.onnx"), dims={"sequence": 128, "batch": 2})


def test_a_batch_of_another_name_is_the_batch(tmp_path):
    onnx = pytest.importorskip("onnx")
    real = onnx.TensorProto.FLOAT
    ends = [onnx.helper.make_tensor_value_info(name, real, ["N", 8]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph), str(path := tmp_path / "m.onnx"))
    found = perfpass.symbolic(str(path))
    assert [axis.symbol for axis in found.axes] == ["N"]
    assert found.at({"N": 6})["bytes_written"] == 6 * 8 * 4
    with pytest.raises(ArgumentError, match="nothing"):
        perfpass.symbolic(str(path), batch=4)


def test_an_image_size_holds_where_strides_divide_it():
    pytest.importorskip("torch")
    found = perfpass.symbolic("yolov8n", batch=2)
    (axis,) = found.axes
    assert (axis.symbol, axis.first, axis.step) == ("image_size", 32, 32)
    assert found.at({"image_size": 416}) == _counted("yolov8n", 2, image_size=416)
    with pytest.raises(ArgumentError, match="32"):
        found.at({"image_size": 400})
    assert str(found.formulas["macs"]).count("image_size^2")


@pytest.mark.parametrize("stride", [320, 384])
def test_seconds_of_sound_are_long_enough_to_begin_at(stride, tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    taps = helper.make_tensor("w", real, [4, 1, 1024], [0.0] * 4096)
    nodes = [helper.make_node("Conv", ["sound", "w"], ["frames"], strides=[stride])]
    given = [helper.make_tensor_value_info("sound", real, [1, 1, "samples"])]
    made = [helper.make_tensor_value_info("frames", real, [1, 4, None])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", given, made, [taps])), path := tmp_path / "sound.onnx")
    found = perfpass.symbolic(str(path), batch=1)
    (axis,) = found.axes
    assert (axis.symbol, axis.step) == ("samples", stride)
    size = axis.first + 40 * stride
    assert found.at({"samples": size}) == _counted(str(path), 1, samples=size)


def test_pieces_of_the_peak_are_the_largest_polynomial_at_every_size():
    found = perfpass.symbolic(str(EXAMPLES / "deberta_v3_large_dynamic.onnx"), batch=1)
    for piece in found.pieces:
        for size in (piece.first, piece.last):
            values = [p.at({"sequence": size}) for p in found.peak]
            assert values[piece.formula] == max(values)
    assert [p.first for p in found.pieces][1:] == [p.last + 1 for p in found.pieces][:-1]


def test_the_command_prints_formulas_and_strict_json(capsys):
    import json

    from perfpass.cli import main

    assert main(["inspect", str(EXAMPLES / "resnet50.onnx"), "--symbolic"]) == 0
    assert "4089184256*batch" in capsys.readouterr().out
    assert main(["inspect", str(EXAMPLES / "resnet50.onnx"), "--symbolic", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["formulas"]["macs"]["terms"] == [{"coefficient": "4089184256", "powers": {"batch": 1}}]


def test_bytes_are_a_files_content_and_no_name():
    content = (EXAMPLES / "resnet50.onnx").read_bytes()
    found = perfpass.symbolic(content)
    assert str(found.formulas["macs"]) == "4089184256*batch"


def test_an_operator_graph_has_no_open_size():
    graph = perfpass.load(str(EXAMPLES / "resnet50.onnx"))
    with pytest.raises((ArgumentError, UnsupportedError), match="fixed"):
        perfpass.symbolic(graph)
