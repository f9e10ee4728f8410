"""A small convolutional network in 8 bits, as the bytes of an ONNX file of integer operators."""

from __future__ import annotations

from onnx import TensorProto, helper


def convolutions_of_8_bits() -> bytes:
    """Eight convolutions (QLinearConv) of 3 x 3 over 64 channels of 56 x 56."""
    ends = [helper.make_tensor_value_info(name, TensorProto.UINT8, [1, 64, 56, 56]) for name in ("q0", "q8")]
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("QLinearConv", [f"q{i}", "s", "z", "w", "s", "zw", "s", "z"], [f"q{i + 1}"], **same)
        for i in range(8)
    ]
    stored = [
        helper.make_tensor("w", TensorProto.INT8, [64, 64, 3, 3], bytes(64 * 64 * 9), raw=True),
        helper.make_tensor("s", TensorProto.FLOAT, [], [0.1]),
        helper.make_tensor("z", TensorProto.UINT8, [], [128]),
        helper.make_tensor("zw", TensorProto.INT8, [], [0]),
    ]
    graph = helper.make_graph(nodes, "integers", ends[:1], ends[1:], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    content: bytes = made.SerializeToString()
    return content
