"""Shapes that a file declares beside those that its operators make, and models whose declarations are loose."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_runs import found_shapes

from perfpass import errors
from perfpass.graph import DTYPES
from perfpass.importers import onnx as importer

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def value(name: str, shape: list | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def integers(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def make(
    nodes: list, inputs: list, outputs: list, constants: list | None = None, inner: list | None = None
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants or [], value_info=inner or [])
    opsets = [
        helper.make_opsetid("", 17),
        helper.make_opsetid("ai.onnx.ml", 3),
        helper.make_opsetid("com.microsoft", 1),
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def convolution(inner: list | None, output: list | None, image: list) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["y"], "relu"),
    ]
    infos = [] if inner is None else [value("h", inner)]
    return make(nodes, [value("x", image)], [value("y", output)], [weight("w", 64, 3, 3, 3)], infos)


def shape(model: onnx.ModelProto, name: str = "y", **sizes: Any) -> tuple[int, ...]:
    return found_shapes(importer.read(model, **sizes))[name][0]


# ---- Declarations that contradict the operators


@pytest.mark.parametrize("declared", [[1, 1, 1, 1], [1, 64, 8000, 8000], [1, 64, 800], [1, 64, 0, 800]])
@pytest.mark.parametrize("place", ["inner", "output"])
def test_a_declared_shape_that_the_operators_do_not_make_is_refused(declared: list[int], place: str) -> None:
    true = [1, 64, 800, 800]
    model = convolution(
        declared if place == "inner" else true, declared if place == "output" else true, [1, 3, 800, 800]
    )
    with pytest.raises(errors.ShapeError) as raised:
        importer.read(model)
    message = str(raised.value)
    assert f"tensor '{'h' if place == 'inner' else 'y'}': the file declares {declared}" in message
    assert "makes [1, 64, 800, 800] from its inputs" in message and "remove the file's value_info" in message


def test_one_fixed_dimension_that_contradicts_is_enough() -> None:
    with pytest.raises(errors.ShapeError, match=r"declares \[\?, 64, 1, \?\].*makes \[1, 64, 800, 800\]"):
        importer.read(convolution(["n", 64, 1, None], [1, 64, 800, 800], [1, 3, 800, 800]))


@pytest.mark.parametrize(
    ("inner", "output"),
    [
        (None, None),
        ([1, 64, 800, 800], [1, 64, 800, 800]),
        (["n", 64, "height", None], ["n", None, "a", "b"]),
        ([None, None, None, None], [1, 64, 800, 800]),
    ],
)
def test_looser_declarations_are_filled_in(inner: list | None, output: list | None) -> None:
    assert shape(convolution(inner, output, ["n", 3, 800, 800]), dims={"n": 1}) == (1, 64, 800, 800)


def test_a_symbol_counts_less_than_the_operators() -> None:
    # Exporters name one dimension after another: nobody checks the names.
    assert shape(convolution(["n", 64, "n", "n"], ["n", 64, "n", "n"], ["n", 3, 80, 80]), batch=2) == (2, 64, 80, 80)


def test_shapes_declared_for_another_batch_are_not_held_against_the_one_asked_for() -> None:
    model = convolution([1, 64, 80, 80], [1, 64, 80, 80], [1, 3, 80, 80])
    assert shape(model, batch=4) == (4, 64, 80, 80)


def test_operands_that_no_run_accepts_are_refused_whatever_the_file_declares() -> None:
    model = convolution([1, 64, 80, 80], [1, 64, 80, 80], [1, 4, 80, 80])
    with pytest.raises(errors.ShapeError, match="found 4 input channels"):
        importer.read(model)


def test_a_view_by_unknown_contents_keeps_its_elements() -> None:
    def model(declared: list[int]) -> onnx.ModelProto:
        nodes = [helper.make_node("Reshape", ["x", "t"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
        inputs = [value("x", [4, 6]), value("t", [2], INT64)]
        return make(nodes, inputs, [value("y", declared)], inner=[value("h", declared)])

    assert shape(model([3, 8])) == (3, 8)
    with pytest.raises(errors.ShapeError, match=r"declares \[1, 1\].*as many elements as \[4, 6\] has"):
        importer.read(model([1, 1]))


def test_a_resized_extent_may_be_rounded_as_the_exporter_does() -> None:
    def model(extent: int) -> onnx.ModelProto:
        scales = numpy_helper.from_array(np.array([1, 1, 1.5], np.float32), "s")
        nodes = [helper.make_node("Resize", ["x", "", "s"], ["y"])]
        return make(nodes, [value("x", [1, 1, 5])], [value("y", [1, 1, extent])], [scales])

    assert shape(model(7)) == (1, 1, 7)
    assert shape(model(8)) == (1, 1, 8)
    with pytest.raises(errors.ShapeError, match=r"declares \[1, 1, 9\]"):
        importer.read(model(9))


def test_how_many_boxes_are_left_is_the_word_of_the_file() -> None:
    def model(boxes: int | str) -> onnx.ModelProto:
        nodes = [helper.make_node("NonMaxSuppression", ["b", "s", "m"], ["y"])]
        inputs = [value("b", [1, 100, 4]), value("s", [1, 5, 100])]
        return make(nodes, inputs, [value("y", [boxes, 3], INT64)], [integers("m", 30)])

    assert shape(model(40)) == (40, 3)
    assert shape(model("boxes")) == (150, 3)


# ---- Dimensions without a name


@pytest.mark.parametrize("mark", ["?", "", "??", " ", "-1"])
def test_a_placeholder_is_an_unknown_dimension_and_no_symbol(mark: str) -> None:
    model = convolution(None, None, ["n", 3, 1, 1])
    for axis in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[axis].Clear()
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = mark
    assert shape(model, input_shapes={"x": (1, 3, 48, 192)}) == (1, 64, 48, 192)
    assert shape(model, dims={"n": 1, "x:2": 48, "x:3": 192}) == (1, 64, 48, 192)
    with pytest.raises(errors.ShapeError, match="--dim x:2=N --dim x:3=N"):
        importer.read(model, batch=1)


# ---- Branches that cannot run


def branch(bad: bool, name: str, then: str = "Add") -> onnx.GraphProto:
    """A sum whose operands fit, or do not."""
    node = helper.make_node(then, ["x", "five" if bad else "three"], [name], name)
    return helper.make_graph([node], name, [], [value(name, None)])


def choice(condition: str, then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.ModelProto:
    node = helper.make_node("If", [condition], ["y"], "choice", then_branch=then, else_branch=other)
    constants = [weight("three", 3), weight("five", 5), numpy_helper.from_array(np.array(True), "always")]
    return make([node], [value("x", [2, 3]), value("c", [], TensorProto.BOOL)], [value("y", None)], constants)


def test_a_branch_that_a_constant_rules_out_is_not_read() -> None:
    assert shape(choice("always", branch(False, "a"), branch(True, "b"))) == (2, 3)


@pytest.mark.parametrize("then_fits", [True, False])
def test_a_branch_that_does_not_fit_the_shapes_is_not_the_one_that_runs(then_fits: bool) -> None:
    graph = importer.read(choice("c", branch(not then_fits, "a"), branch(then_fits, "b")))
    assert found_shapes(graph)["y"][0] == (2, 3)
    assert float(graph.repeat.sum()) == 2  # the If and the one Add
    (note,) = graph.notes
    assert f"the {'then' if then_fits else 'else'} branch is counted, the other does not fit the shapes" in note
    assert "needs shapes that broadcast" in note


def test_a_model_whose_every_branch_does_not_fit_is_refused() -> None:
    with pytest.raises(errors.ShapeError, match="needs shapes that broadcast"):
        importer.read(choice("c", branch(True, "a"), branch(True, "b")))


def test_a_branch_whose_shape_is_only_unknown_is_not_left_out() -> None:
    with pytest.raises(errors.ShapeError, match="depends on data"):
        importer.read(choice("c", branch(False, "a"), branch(False, "b", then="Reshape")))


# ---- Classical machine learning and sequences


def classifier(op: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["x"], ["label", "scores"], "model", domain="ai.onnx.ml", **attributes)


def test_a_linear_classifier_with_open_outputs_is_read() -> None:
    node = classifier("LinearClassifier", classlabels_ints=[0, 1, 2], coefficients=[0.5] * 12, intercepts=[0.0] * 3)
    model = make([node], [value("x", ["n", 4])], [value("label", [None], INT64), value("scores", [None, 3])])
    assert shape(model, "scores", batch=7) == (7, 3)
    assert shape(model, "label", batch=7) == (7,)


def test_maps_of_classical_models_are_named_as_the_reason() -> None:
    node = classifier("LinearClassifier", classlabels_ints=[0, 1], coefficients=[0.5] * 8, intercepts=[0.0] * 2)
    zipped = helper.make_node("ZipMap", ["scores"], ["y"], "zip", domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    model = make([node, zipped], [value("x", [1, 4])], [value("label", [None], INT64), onnx.ValueInfoProto(name="y")])
    with pytest.raises(errors.UnsupportedError, match=r"'zip' \(ai.onnx.ml::ZipMap\).*maps.*'zipmap': False"):
        importer.read(model)


def test_trees_that_say_their_classes_are_kept_and_named_as_unknown() -> None:
    node = classifier("TreeEnsembleClassifier", classlabels_int64s=[0, 1, 2])
    model = make([node], [value("x", ["n", 4])], [value("label", [None], INT64), value("scores", [None, 3])])
    assert shape(model, "scores", batch=7) == (7, 3)
    assert set(importer.read(model, batch=7).unknown_operators) == {"ai.onnx.ml::TreeEnsembleClassifier"}


def test_an_ensemble_of_trees_gives_its_targets_a_row() -> None:
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=3)
    model = make([node], [value("x", ["n", 4])], [value("y", [None, None])])
    assert shape(model, "y", batch=7) == (7, 3)
    assert set(importer.read(model, batch=7).unknown_operators) == {"ai.onnx.ml::TreeEnsemble"}


@pytest.mark.parametrize(
    ("attributes", "dtype"),
    [
        ({"keys_strings": ["a", "b"], "values_int64s": [0, 1]}, "int64"),
        ({"keys_strings": ["a", "b"], "values_floats": [0.0, 1.0]}, "float32"),
        ({"keys_tensor": helper.make_tensor("k", onnx.TensorProto.STRING, [2], [b"a", b"b"]),
          "values_tensor": helper.make_tensor("v", onnx.TensorProto.INT16, [2], [0, 1])}, "int16"),
        ({"classes_strings": ["a", "b"]}, "int64"),
    ],
)  # fmt: skip
def test_labels_are_looked_up_one_by_one(attributes: dict[str, Any], dtype: str) -> None:
    encoder = helper.make_node("LabelEncoder", ["x"], ["labels"], domain="ai.onnx.ml", **attributes)
    inputs = [value("x", ["n", 4], onnx.TensorProto.STRING)]
    graph = importer.read(make([encoder], inputs, [onnx.ValueInfoProto(name="labels")]), batch=7)
    (labels,) = graph.graph_outputs.tolist()
    assert graph.shape(labels) == (7, 4) and DTYPES[graph.tensor_dtype[labels]] == dtype
    assert not graph.unknown_operators


def test_a_category_is_a_row_of_its_own() -> None:
    node = helper.make_node("OneHotEncoder", ["x"], ["y"], domain="ai.onnx.ml", cats_strings=["a", "b", "c"])
    model = make([node], [value("x", ["n", 2], onnx.TensorProto.STRING)], [value("y", [None, None, None])])
    assert shape(model, "y", batch=7) == (7, 2, 3)
    assert not importer.read(model, batch=7).unknown_operators


def test_trees_with_open_outputs_are_named_as_the_reason() -> None:
    node = classifier("TreeEnsembleClassifier")
    model = make([node], [value("x", [1, 4])], [value("label", [None], INT64), value("scores", [None, 3])])
    with pytest.raises(errors.UnsupportedError, match=r"classical machine learning.*'label' open"):
        importer.read(model)


def test_a_sequence_of_unlike_tensors_is_named_as_the_reason() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "z"], ["s"]),
        helper.make_node("SequenceAt", ["s", "i"], ["h"], "pick"),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    inputs = [value("x", [2, 3]), value("z", [4]), value("i", [], INT64)]
    with pytest.raises(errors.ShapeError, match="is part of a sequence: how many tensors"):
        importer.read(make(nodes, inputs, [value("y", None)]))


def node(op: str, read: str, written: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, read.split(), [written], **attributes)


SEQUENCES = {
    "parts of given lengths": [node("SplitToSequence", "x lengths", "s", axis=1), node("SequenceAt", "s one", "y")],
    "parts of one length and a rest": [
        node("SplitToSequence", "x two", "s", axis=1),
        node("SequenceAt", "s last", "y"),
    ],
    "rows": [node("SplitToSequence", "x", "s", keepdims=0), node("SequenceAt", "s one", "y")],
    "put in, taken out, joined": [
        node("SequenceEmpty", "", "e"),
        node("SequenceInsert", "e x", "a"),
        node("SequenceInsert", "a z zero", "b"),
        node("SequenceConstruct", "z x x", "c"),
        node("SequenceErase", "c one", "d"),
        node("SequenceAt", "d last", "f"),
        node("SequenceInsert", "b f", "g"),
        node("ConcatFromSequence", "g", "y", axis=0),
    ],
    "stacked": [node("SequenceConstruct", "x x", "s"), node("ConcatFromSequence", "s", "y", axis=-1, new_axis=1)],
    "as many zeros": [
        node("SplitToSequence", "x two", "s", axis=1),
        node("SequenceLength", "s", "n"),
        node("Reshape", "n minus", "m"),
        node("ConstantOfShape", "m", "y"),
    ],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_keeps_the_shape_of_each_of_its_tensors(name: str) -> None:
    held = {"lengths": [2, 4, 1], "minus": [-1], "zero": 0, "one": 1, "two": 2, "last": -1}
    constants = [numpy_helper.from_array(np.array(number, np.int64), key) for key, number in held.items()]
    nodes = [*SEQUENCES[name], helper.make_node("Abs", ["y"], ["out"])]
    model = make(nodes, [value("x", [3, 7]), value("z", [5, 7])], [value("out", None)])
    model.graph.initializer.extend(constants)
    given = {"x": np.zeros((3, 7), np.float32), "z": np.zeros((5, 7), np.float32)}
    assert shape(model, "out") == ReferenceEvaluator(model).run(None, given)[0].shape


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("SplitToSequence", "x lengths", "s", axis=1)], r"parts of \[2, 4\] along an axis of 7"),
        ([node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s far", "y")], "position 9 of a sequence of 2"),
        ([node("SequenceConstruct", "x z", "s"), node("ConcatFromSequence", "s", "y", axis=1)], "in one sequence"),
    ],
)
def test_a_sequence_that_does_not_fit_is_refused(nodes: list[onnx.NodeProto], said: str) -> None:
    model = make(nodes, [value("x", [3, 7]), value("z", [5, 7])], [value(nodes[-1].output[0], None)])
    for key, number in {"lengths": [2, 4], "far": 9}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(number, np.int64), key))
    with pytest.raises(errors.ShapeError, match=said):
        importer.read(model)
