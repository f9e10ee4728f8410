"""Every operator that the reader knows: its shape agrees with ONNX Runtime, its attributes with the definition."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_runs import (
    MICROSOFT,
    Array,
    attributes_of,
    check,
    f32,
    i64,
    model_of,
    node,
    something_was_compared,  # noqa: F401  # applies to every test here
)

from perfpass.errors import ShapeError
from perfpass.importers import onnx as importer

# --- com.microsoft and quantized operators ---


def u8(*shape: int) -> Array:
    return np.ones(shape, np.uint8)


def i8(*shape: int) -> Array:
    return np.ones(shape, np.int8)


SCALE = {"s": np.array(0.5, np.float32), "z": np.array(3, np.uint8)}
LSTM = {"W": i8(2, 5, 16), "R": i8(2, 4, 16), "ws": f32(2), "wz": i8(2), "rs": f32(2), "rz": i8(2)}

CASES: dict[str, tuple[onnx.NodeProto, dict[str, Array], dict[str, Array]]] = {
    "QuantizeLinear": (node("QuantizeLinear", ["x", "s", "z"]), {"x": f32(2, 3)}, SCALE),
    "DequantizeLinear": (node("DequantizeLinear", ["x", "s", "z"]), {"x": u8(2, 3)}, SCALE),
    "QuantizeLinear output_dtype": (node("QuantizeLinear", ["x", "s"], output_dtype=3), {"x": f32(2, 3)}, SCALE),
    "DynamicQuantizeLinear": (node("DynamicQuantizeLinear", ["x"], 3), {"x": f32(2, 3)}, {}),
    "QLinearConv": (
        node("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], pads=[1, 1, 1, 1], strides=[2, 2]),
        {"x": u8(1, 3, 9, 8)},
        {"w": u8(4, 3, 3, 3), **SCALE},
    ),
    "QLinearConv channels last": (
        node("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], domain=MICROSOFT, channels_last=1),
        {"x": u8(1, 9, 8, 3)},
        {"w": u8(4, 3, 3, 3), **SCALE},
    ),
    "ConvInteger": (node("ConvInteger", ["x", "w"], pads=[1, 1, 1, 1]), {"x": u8(1, 3, 9, 8)}, {"w": u8(4, 3, 3, 3)}),
    "QLinearMatMul": (
        node("QLinearMatMul", ["a", "s", "z", "b", "s", "z", "s", "z"]),
        {"a": u8(2, 3, 4)},
        {"b": u8(4, 5), **SCALE},
    ),
    "QGemm": (
        node("QGemm", ["a", "s", "z", "b", "s", "z", "", "s", "z"], domain=MICROSOFT, transB=1),
        {"a": u8(3, 4)},
        {"b": u8(5, 4), **SCALE},
    ),
    "QGemm to float": (
        node("QGemm", ["a", "s", "z", "b", "s", "z"], domain=MICROSOFT),
        {"a": u8(3, 4)},
        {"b": u8(4, 5), **SCALE},
    ),
    "MatMulIntegerToFloat": (
        node("MatMulIntegerToFloat", ["a", "b", "s", "s"], domain=MICROSOFT),
        {"a": u8(2, 3, 4)},
        {"b": u8(4, 5), **SCALE},
    ),
    "DynamicQuantizeMatMul": (
        node("DynamicQuantizeMatMul", ["a", "b", "s"], domain=MICROSOFT),
        {"a": f32(2, 3, 4)},
        {"b": u8(4, 5), **SCALE},
    ),
    "QLinearAdd": (
        node("QLinearAdd", ["a", "s", "z", "b", "s", "z", "s", "z"], domain=MICROSOFT),
        {"a": u8(2, 1, 4), "b": u8(3, 1)},
        SCALE,
    ),
    "QLinearMul": (
        node("QLinearMul", ["a", "s", "z", "b", "s", "z", "s", "z"], domain=MICROSOFT),
        {"a": u8(2, 1, 4), "b": u8(3, 1)},
        SCALE,
    ),
    "QLinearConcat": (
        node("QLinearConcat", ["s", "z", "a", "s", "z", "b", "s", "z"], domain=MICROSOFT, axis=-1),
        {"a": u8(2, 3), "b": u8(2, 5)},
        SCALE,
    ),
    "QLinearAveragePool": (
        node(
            "QLinearAveragePool",
            ["x", "s", "z", "s", "z"],
            domain=MICROSOFT,
            kernel_shape=[3, 3],
            strides=[2, 2],
            ceil_mode=1,
        ),
        {"x": u8(1, 2, 8, 9)},
        SCALE,
    ),
    "QLinearGlobalAveragePool": (
        node("QLinearGlobalAveragePool", ["x", "s", "z", "s", "z"], domain=MICROSOFT, channels_last=1),
        {"x": u8(1, 8, 9, 2)},
        SCALE,
    ),
    "QLinearLeakyRelu": (node("QLinearLeakyRelu", ["x", "s", "z", "s", "z"], domain=MICROSOFT), {"x": u8(2, 3)}, SCALE),
    "QLinearSigmoid": (node("QLinearSigmoid", ["x", "s", "z", "s", "z"], domain=MICROSOFT), {"x": u8(2, 3)}, SCALE),
    "QLinearSoftmax": (
        node("QLinearSoftmax", ["x", "s", "z", "s", "z"], domain=MICROSOFT, opset=13),
        {"x": u8(2, 3)},
        SCALE,
    ),
    "QLinearWhere": (
        node("QLinearWhere", ["c", "a", "s", "z", "b", "s", "z", "s", "z"], domain=MICROSOFT),
        {"c": u8(3, 1) > 0, "a": u8(2, 1, 4), "b": u8(1)},
        SCALE,
    ),
    "MatMulNBits": (
        node("MatMulNBits", ["a", "b", "s"], domain=MICROSOFT, K=64, N=6, bits=4, block_size=32),
        {"a": f32(2, 3, 64)},
        {"b": u8(6, 2, 16), "s": f32(12)},
    ),
    "GatherBlockQuantized": (
        node(
            "GatherBlockQuantized",
            ["d", "i", "s"],
            domain=MICROSOFT,
            bits=8,
            block_size=16,
            gather_axis=0,
            quantize_axis=1,
        ),
        {"i": np.zeros((2, 3), np.int64)},
        {"d": u8(7, 32), "s": f32(7, 2)},
    ),
    "DynamicQuantizeLSTM": (
        node(
            "DynamicQuantizeLSTM",
            ["x", "W", "R", "", "", "", "", "", "ws", "wz", "rs", "rz"],
            3,
            domain=MICROSOFT,
            hidden_size=4,
            direction="bidirectional",
        ),
        {"x": f32(6, 2, 5)},
        LSTM,
    ),
    "FusedConv": (
        node("FusedConv", ["x", "w"], domain=MICROSOFT, activation="Relu", auto_pad="SAME_UPPER", strides=[2, 2]),
        {"x": f32(1, 3, 9, 8)},
        {"w": f32(4, 3, 3, 3)},
    ),
    "FusedGemm": (
        node("FusedGemm", ["a", "b"], domain=MICROSOFT, activation="Relu", transA=1),
        {"a": f32(4, 3)},
        {"b": f32(4, 5)},
    ),
    "FusedMatMul with batch transposed": (
        node("FusedMatMul", ["a", "b"], domain=MICROSOFT, transBatchA=1, transB=1),
        {"a": f32(3, 2, 4)},
        {"b": f32(2, 5, 4)},
    ),
    "Attention": (
        node("Attention", ["x", "w", "b", "", "p"], 2, domain=MICROSOFT, num_heads=2, unidirectional=1),
        {"x": f32(2, 3, 8), "p": f32(2, 2, 2, 5, 4)},
        {"w": f32(8, 24), "b": f32(24)},
    ),
    "QAttention": (
        node("QAttention", ["x", "w", "b", "s", "s", "", "z", "z"], domain=MICROSOFT, num_heads=2),
        {"x": u8(2, 3, 8)},
        {"w": u8(8, 24), "b": f32(24), **SCALE},
    ),
    "MultiHeadAttention": (
        node("MultiHeadAttention", ["q", "k", "v"], domain=MICROSOFT, num_heads=2),
        {"q": f32(2, 3, 8), "k": f32(2, 5, 8), "v": f32(2, 5, 6)},
        {},
    ),
    "MultiHeadAttention with past": (
        node("MultiHeadAttention", ["q", "k", "v", "", "", "", "pk", "pv"], 3, domain=MICROSOFT, num_heads=2),
        {"q": f32(2, 3, 8), "k": f32(2, 3, 8), "v": f32(2, 3, 8), "pk": f32(2, 2, 7, 4), "pv": f32(2, 2, 7, 4)},
        {},
    ),
    "GroupQueryAttention": (
        node(
            "GroupQueryAttention",
            ["q", "k", "v", "pk", "pv", "l", "t"],
            3,
            domain=MICROSOFT,
            num_heads=4,
            kv_num_heads=2,
        ),
        {"q": f32(1, 1, 32), "k": f32(1, 1, 16), "v": f32(1, 1, 16), "pk": f32(1, 2, 9, 8), "pv": f32(1, 2, 9, 8)},
        {"l": np.array([9], np.int32), "t": np.array(10, np.int32)},
    ),
    "SkipLayerNormalization": (
        node("SkipLayerNormalization", ["x", "k", "g"], 4, domain=MICROSOFT),
        {"x": f32(2, 3, 8), "k": f32(2, 3, 8)},
        {"g": f32(8)},
    ),
    "SkipSimplifiedLayerNormalization": (
        helper.make_node("SkipSimplifiedLayerNormalization", ["x", "k", "g"], ["y0", "", "", "y3"], domain=MICROSOFT),
        {"x": f32(2, 3, 8), "k": f32(2, 3, 8)},
        {"g": f32(8)},
    ),
    "SimplifiedLayerNormalization": (
        node("SimplifiedLayerNormalization", ["x", "g"], axis=-1),
        {"x": f32(2, 3, 8)},
        {"g": f32(8)},
    ),
    "EmbedLayerNormalization": (
        node("EmbedLayerNormalization", ["i", "i", "w", "p", "t", "g", "g"], 2, domain=MICROSOFT),
        {"i": np.zeros((2, 5), np.int32)},
        {"w": f32(9, 8), "p": f32(6, 8), "t": f32(2, 8), "g": f32(8)},
    ),
    "RotaryEmbedding": (
        node("RotaryEmbedding", ["x", "i", "c", "c"], domain=MICROSOFT),
        {"x": f32(2, 2, 3, 8), "i": np.zeros((2, 3), np.int64)},
        {"c": f32(9, 4)},
    ),
    "BiasGelu": (node("BiasGelu", ["x", "b"], domain=MICROSOFT), {"x": f32(2, 3, 8)}, {"b": f32(8)}),
    "FastGelu": (node("FastGelu", ["x", "b"], domain=MICROSOFT), {"x": f32(2, 3, 8)}, {"b": f32(8)}),
    "QuickGelu": (node("QuickGelu", ["x"], domain=MICROSOFT), {"x": f32(2, 3, 8)}, {}),
    "MoE": (
        node("MoE", ["x", "r", "w", "", "v"], domain=MICROSOFT, k=2, activation_type="relu"),
        {"x": f32(5, 8), "r": f32(5, 4)},
        {"w": f32(4, 16, 8), "v": f32(4, 8, 16)},
    ),
    "ExpandDims": (node("ExpandDims", ["x", "a"], domain=MICROSOFT), {"x": f32(2, 3)}, {"a": np.array(-1, np.int32)}),
    "CDist": (node("CDist", ["a", "b"], domain=MICROSOFT), {"a": f32(3, 4), "b": f32(5, 4)}, {}),
    "CropAndResize": (
        node("CropAndResize", ["x", "r", "b", "z"], domain=MICROSOFT),
        {"x": f32(2, 3, 9, 9), "r": f32(4, 4), "b": np.zeros(4, np.int32)},
        {"z": np.array([5, 6], np.int32)},
    ),
    "Inverse": (node("Inverse", ["x"], domain=MICROSOFT), {"x": np.eye(3, dtype=np.float32)[None]}, {}),
    "NGramRepeatBlock": (
        node("NGramRepeatBlock", ["i", "x"], domain=MICROSOFT, ngram_size=2),
        {"i": np.zeros((2, 5), np.int64), "x": f32(2, 9)},
        {},
    ),
    "GRU": (
        node("GRU", ["x", "W", "R"], 2, hidden_size=4, direction="bidirectional"),
        {"x": f32(6, 2, 5)},
        {"W": f32(2, 12, 5), "R": f32(2, 12, 4)},
    ),
    "LSTM batch first": (
        node("LSTM", ["x", "W", "R"], 3, hidden_size=4, layout=0),
        {"x": f32(2, 6, 5)},
        {"W": f32(1, 16, 5), "R": f32(1, 16, 4)},
    ),
    "DFT one-sided": (node("DFT", ["x"], onesided=1), {"x": f32(2, 9, 1)}, {}),
    "STFT": (node("STFT", ["x", "t", "w"]), {"x": f32(2, 40)}, {"t": np.array(4, np.int64), "w": f32(16)}),
    "MaxUnpool": (
        node("MaxUnpool", ["x", "i"], kernel_shape=[2, 2], strides=[2, 2]),
        {"x": f32(1, 1, 3, 2), "i": np.zeros((1, 1, 3, 2), np.int64)},
        {},
    ),
    "RoiAlign": (
        node("RoiAlign", ["x", "r", "b"], output_height=3, output_width=4),
        {"x": f32(1, 2, 9, 9), "r": f32(5, 4), "b": np.zeros(5, np.int64)},
        {},
    ),
    "Col2Im": (node("Col2Im", ["x", "m", "b"]), {"x": f32(1, 5, 5)}, {"m": i64(5, 5), "b": i64(1, 5)}),
    "GridSample": (node("GridSample", ["x", "g"]), {"x": f32(2, 3, 4, 4), "g": f32(2, 5, 6, 2)}, {}),
    "AffineGrid": (node("AffineGrid", ["t", "z"]), {"t": f32(2, 2, 3)}, {"z": i64(2, 3, 5, 6)}),
    "CenterCropPad": (node("CenterCropPad", ["x", "z"], axes=[1, 2]), {"x": f32(2, 3, 4)}, {"z": i64(5, 2)}),
    "Attention of ai.onnx": (
        node("Attention", ["q", "k", "v", "", "pk", "pv"], 3, q_num_heads=4, kv_num_heads=2),
        {"q": f32(2, 3, 32), "k": f32(2, 5, 16), "v": f32(2, 5, 16), "pk": f32(2, 2, 7, 8), "pv": f32(2, 2, 7, 8)},
        {},
    ),
    "RMSNormalization": (node("RMSNormalization", ["x", "g"]), {"x": f32(2, 3, 8)}, {"g": f32(8)}),
    "LayerNormalization": (node("LayerNormalization", ["x", "g"], 3, axis=1), {"x": f32(2, 3, 8)}, {"g": f32(3, 8)}),
}
"""Opset 21, but for the operators that came later."""
LATER = {"Attention of ai.onnx": 23, "RMSNormalization": 23}


@pytest.mark.parametrize("case", sorted(CASES))
def test_operators_of_one_case_have_the_shape_that_runs(case: str) -> None:
    one, inputs, constants = CASES[case]
    graph = check(one, inputs, constants, LATER.get(case, 21))
    assert graph is not None and graph.op_name(0) != "unknown"


# --- the vocabulary ---

WITHOUT_COUNTERPART = {
    "ImageDecoder": "decodes JPEG and other files; its result depends on the file's bytes",
}


def test_every_standard_operator_has_a_canonical_counterpart() -> None:
    """All of ai.onnx that is not deprecated, but for what is listed with a reason."""
    missing = set()
    for schema in onnx.defs.get_all_schemas():
        if schema.domain != "" or schema.deprecated or schema.name in ("If", "Loop", "Scan", "Constant"):
            continue
        one = helper.make_node(schema.name, ["x"] * max(1, schema.min_input), ["y"])
        # With every shape declared the operator is named without its inference, which would miss attributes here.
        info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 1, 1]) for n in ("x", "y")]
        graph = helper.make_graph([one], "g", info[:1], info[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=10)
        try:
            known = importer.read(model).op_name(0) != "unknown"
        except ShapeError:  # a required attribute is missing: the operator is known
            known = True
        if not known:
            missing.add(schema.name)
    assert missing == set(WITHOUT_COUNTERPART)


def test_views_move_nothing_and_copies_do() -> None:
    x, target, axes = f32(1, 3), i64(3, 1), i64(0)
    expected = {"Reshape": 1, "Squeeze": 1, "Unsqueeze": 1, "Flatten": 1, "Identity": 1, "Transpose": 0, "Relu": 0}
    second = {"Reshape": target, "Squeeze": axes, "Unsqueeze": axes}
    for op, view in expected.items():
        constants = {"c": second[op]} if op in second else {}
        graph = importer.read(model_of([node(op, ["x", *constants])], {"x": x}, constants))
        assert attributes_of(graph)["view"] == view, op


def test_attributes_of_few_bit_weights_and_heads_are_read() -> None:
    one, inputs, constants = CASES["MatMulNBits"]
    found = attributes_of(importer.read(model_of([one], inputs, constants)))
    assert (found["weight_bits"], found["block_size"]) == (4, 32)
    one, inputs, constants = CASES["GroupQueryAttention"]
    found = attributes_of(importer.read(model_of([one], inputs, constants)))
    assert (found["num_heads"], found["num_kv_heads"], found["causal"]) == (4, 2, 1)
    one, inputs, constants = CASES["DynamicQuantizeLSTM"]
    found = attributes_of(importer.read(model_of([one], inputs, constants)))
    assert (found["hidden_size"], found["directions"]) == (4, 2)


@pytest.mark.parametrize("hidden", [0, -4, 3, 5, 2**40, -(2**62)])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_hidden_size_that_contradicts_the_weights_is_refused(op: str, gates: int, hidden: int) -> None:
    weights = {"W": f32(1, gates * 4, 5), "R": f32(1, gates * 4, 4)}
    with pytest.raises(ShapeError, match=rf"found hidden_size {hidden} and recurrent weights .* needs their 4"):
        importer.read(model_of([node(op, ["x", "W", "R"], 1, hidden_size=hidden)], {"x": f32(6, 2, 5)}, weights))
    one = node(op, ["x", "W", "R"], 1)
    assert attributes_of(importer.read(model_of([one], {"x": f32(6, 2, 5)}, weights)))["hidden_size"] == 4


def test_the_complement_of_the_error_function_that_tf2onnx_leaves_has_the_shape_of_its_input() -> None:
    made = helper.make_node("Erfc", ["x"], ["y"])
    fed = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    given = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([made], "g", [fed], [given]))
    graph = importer.read(model.SerializeToString())
    assert graph.op_name(0) == "erf"
    assert graph.shape(int(graph.node_outputs(0)[0])) == (2, 3)
