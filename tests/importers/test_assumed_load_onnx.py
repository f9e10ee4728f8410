"""ONNX detectors, whose sizes behind NonZero and NonMaxSuppression depend on scores."""

from __future__ import annotations

import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper

import perfpass
from perfpass.errors import ArgumentError, ShapeError
from perfpass.search import Scorer

BOXES = 400


def _constant(name: str, value: list, dtype: int = TensorProto.INT64) -> onnx.TensorProto:
    return helper.make_tensor(name, dtype, [len(value)] if len(value) > 1 else [], value)


def _detector(threshold: float = 0.5, how: str = "Greater", most: int = 300) -> bytes:
    """Scores [BOXES] over a threshold, a dense layer on the boxes that pass; suppression beside."""
    nodes = [
        helper.make_node("Sigmoid", ["logits"], ["scores"]),
        helper.make_node("Reshape", ["scores", "flat"], ["flattened"]),
        helper.make_node(how, ["flattened", "threshold"], ["mask"]),
        helper.make_node("NonZero", ["mask"], ["found"]),
        helper.make_node("Squeeze", ["found", "first"], ["index"]),
        helper.make_node("Gather", ["features", "index"], ["kept"]),
        helper.make_node("MatMul", ["kept", "weight"], ["out"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["left"]),
    ]
    given = {"logits": (1, 3, BOXES), "features": (3 * BOXES, 16), "boxes": (1, BOXES, 4)}
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in given.items()],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in (("out", 1), ("left", 7))],
        [
            _constant("threshold", [threshold], TensorProto.FLOAT), _constant("most", [most]),
            helper.make_tensor("flat", TensorProto.INT64, [1], [-1]),
            helper.make_tensor("first", TensorProto.INT64, [1], [0]),
            helper.make_tensor("weight", TensorProto.FLOAT, [16, 8], [0.0] * 128),
        ],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def _sizes(model: bytes, **how: object) -> tuple[int, int]:
    """How many boxes pass the threshold, and are left behind the suppression."""
    graph = perfpass.load(model, **how)
    shapes = {graph.string(int(graph.tensor_name[t])): graph.shape(t) for t in range(graph.tensor_count)}
    return shapes["out"][0], shapes["left"][0]


def test_scores_leave_as_many_boxes_as_are_assumed() -> None:
    assert _sizes(_detector()) == (100, 900)  # of the suppression the node's own limit
    assert _sizes(_detector(), assume={"detections": 20}) == (20, 20)
    assert _sizes(_detector(most=BOXES), assume={"detections": 20}) == (20, 3 * BOXES)  # no limit: proposals
    assert _sizes(_detector(threshold=0.0, how="GreaterOrEqual")) == (3 * BOXES, 900)  # no score is below


def test_the_assumption_is_the_graph_s_and_is_named() -> None:
    (plain,), (stated,) = (perfpass.load(_detector(), assume=a).assumed for a in (None, {"detections": 20}))
    assert (plain.value, plain.stated, stated.value, stated.stated) == (100, False, 20, True)
    found = perfpass.predict(_detector(), "t4")
    assert any("100 boxes of an image pass" in reason for reason in found.support.reasons)
    assert perfpass.load(_detector(threshold=0.0, how="GreaterOrEqual")).assumed == ()


def test_many_at_once_are_supported_no_better_than_their_load() -> None:
    scorer = Scorer("t4")
    models = [_detector(), perfpass.load(_detector()), perfpass.load(_detector(), assume={"detections": 20})]
    levels = scorer.features(models).values[:, scorer.feature_names.index("graph_level")]
    assert levels.tolist() == [1, 1, 0]  # near, but where the load is stated


def test_a_selection_of_something_else_is_refused_as_before() -> None:
    with pytest.raises(ShapeError):
        _sizes(_detector(how="Equal"))
    with pytest.raises(ArgumentError, match="has no meaning"):
        perfpass.load(_detector(threshold=0.0, how="GreaterOrEqual", most=BOXES), assume={"detections": 5})
    with pytest.raises(ArgumentError, match="has no meaning"):
        perfpass.load(_detector(), assume={"experts": 5})


@pytest.mark.parametrize("command", ["inspect", "annotate", "predict", "features", "evidence"])
def test_every_command_that_reads_a_model_takes_the_load(command, tmp_path, capsys) -> None:
    from perfpass.cli.entry import main

    file = tmp_path / "detector.onnx"
    file.write_bytes(_detector())
    more = {
        "inspect": ["--json"],
        "annotate": ["--device", "t4", "--json"],
        "predict": ["--device", "t4", "--json"],
        "features": ["--schema", "dippm", "-o", str(tmp_path / "features.npz")],
        "evidence": ["--device", "t4", "--batch", "1", "--json"],
    }[command]
    assert main([command, str(file), "--assume", "detections=20", *more]) == 0
    if command == "inspect":
        assert '"MatMul"' in capsys.readouterr().out
    assert main([command, str(file), "--assume", "experts=20", *more]) != 0
    assert "experts" in capsys.readouterr().err
