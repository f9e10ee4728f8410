"""ONNX files for servers under load: networks of 500 operators of several widths, and any number of contents."""

from __future__ import annotations

import secrets

OPERATORS = 500
_STAMP = b"stamp-000000000000"


def variants(count: int = 64) -> list[bytes]:
    """Networks of 125 blocks of a convolution, Relu, Sigmoid and Mul, structure only; the n-th of other widths."""
    return [_network(number) for number in range(count)]


def stamped(content: bytes) -> bytes:
    """The same network in a file of another content."""
    return content.replace(_STAMP, b"stamp-" + secrets.token_hex(6).encode(), 1)


def _network(number: int) -> bytes:
    from onnx import TensorProto, helper

    channels, size = 16 + 8 * (number % 8), 14 + 7 * (number // 8)
    x, nodes, inputs = "x", [], [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])]
    for i in range(OPERATORS // 4):
        width = f"w{i}"
        inputs.append(helper.make_tensor_value_info(width, TensorProto.FLOAT, [channels, channels, 3, 3]))
        nodes += [
            helper.make_node("Conv", [x, width], [f"c{i}"], name=f"conv{i}", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"relu{i}"),
            helper.make_node("Sigmoid", [f"r{i}"], [f"s{i}"], name=f"sigmoid{i}"),
            helper.make_node("Mul", [f"r{i}", f"s{i}"], [f"m{i}"], name=f"mul{i}"),
        ]
        x = f"m{i}"
    output = helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, channels, size, size])
    graph = helper.make_graph(nodes, "blocks", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name=_STAMP.decode())
    model.ir_version = 8
    content = bytes(model.SerializeToString())
    assert len(nodes) == OPERATORS and content.count(_STAMP) == 1
    return content
