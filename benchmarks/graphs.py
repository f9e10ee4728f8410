"""Large decoders, built operator by operator, in ONNX and in Relay.

The ONNX one has what an exporter writes for a Llama-style layer (RMS norm, rotary embedding, grouped keys and values,
gated MLP) decomposed into primitive operators, 60 nodes a layer; the Relay one what its importer makes of a GPT-style
layer. Deep and narrow, so that the weights of 167 layers (10,029 nodes) take half a gigabyte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

if TYPE_CHECKING:
    import tvm

HIDDEN, HEADS, KV_HEADS, HEAD, INTERMEDIATE, VOCABULARY = 256, 4, 1, 64, 704, 32000


@dataclass
class _Writer:
    """Appends nodes; a constant and a weight are initializers, a weight without data."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [f"{op}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=f"{op}_{len(self.nodes)}", **attributes))
        return names[0]

    def weight(self, *dims: int) -> str:
        name = f"weight_{len(self.initializers)}"
        self.initializers.append(TensorProto(name=name, dims=dims, data_type=TensorProto.FLOAT))
        return name

    def constant(self, values: list[int] | float) -> str:
        name = f"constant_{len(self.initializers)}"
        array = np.array(values, dtype=np.float32 if isinstance(values, float) else np.int64)
        self.initializers.append(onnx.numpy_helper.from_array(array, name))
        return name


def _rms_norm(g: _Writer, x: str, two: str, epsilon: str) -> str:
    mean = g("ReduceMean", g("Pow", x, two), axes=[-1], keepdims=1)
    scale = g("Reciprocal", g("Sqrt", g("Add", mean, epsilon)))
    return g("Mul", g.weight(HIDDEN), g("Mul", x, scale))


def _heads(g: _Writer, x: str, heads: int, batch: int, length: int) -> str:
    projected = g("MatMul", x, g.weight(HIDDEN, heads * HEAD))
    shape = g.constant([batch, length, heads, HEAD])
    return g("Transpose", g("Reshape", projected, shape), perm=[0, 2, 1, 3])


def _rotary(g: _Writer, x: str, cos: str, sin: str, bounds: dict[str, str]) -> str:
    first = g("Slice", x, bounds["zero"], bounds["half"], bounds["axis"])
    second = g("Slice", x, bounds["half"], bounds["end"], bounds["axis"])
    rotated = g("Concat", g("Neg", second), first, axis=-1)
    return g("Add", g("Mul", x, cos), g("Mul", rotated, sin))


def _repeated(g: _Writer, x: str, batch: int, length: int) -> str:
    copies = g(
        "Expand", g("Unsqueeze", x, g.constant([2])), g.constant([batch, KV_HEADS, HEADS // KV_HEADS, length, HEAD])
    )
    return g("Reshape", copies, g.constant([batch, HEADS, length, HEAD]))


def onnx_decoder(layers: int, batch: int = 1, length: int = 128) -> onnx.ModelProto:
    """A Llama-style decoder's prefill, 60 nodes a layer; without value_info and without weights."""
    g = _Writer()
    two, epsilon, scale = g.constant(2.0), g.constant(1e-5), g.constant(HEAD**-0.5)
    bounds = {
        "zero": g.constant([0]),
        "half": g.constant([HEAD // 2]),
        "end": g.constant([HEAD]),
        "axis": g.constant([-1]),
    }
    cos, sin, mask = g.weight(1, 1, length, HEAD), g.weight(1, 1, length, HEAD), g.weight(1, 1, length, length)
    x = g("Gather", g.weight(VOCABULARY, HIDDEN), "input_ids")
    for _ in range(layers):
        normed = _rms_norm(g, x, two, epsilon)
        query = _rotary(g, _heads(g, normed, HEADS, batch, length), cos, sin, bounds)
        key = _rotary(g, _heads(g, normed, KV_HEADS, batch, length), cos, sin, bounds)
        value = _repeated(g, _heads(g, normed, KV_HEADS, batch, length), batch, length)
        key = g("Transpose", _repeated(g, key, batch, length), perm=[0, 1, 3, 2])
        scores = g("Softmax", g("Add", g("Mul", g("MatMul", query, key), scale), mask), axis=-1)
        context = g("Transpose", g("MatMul", scores, value), perm=[0, 2, 1, 3])
        merged = g("Reshape", context, g.constant([batch, length, HIDDEN]))
        x = g("Add", x, g("MatMul", merged, g.weight(HIDDEN, HIDDEN)))
        normed = _rms_norm(g, x, two, epsilon)
        gate = g("MatMul", normed, g.weight(HIDDEN, INTERMEDIATE))
        gate = g("Mul", gate, g("Sigmoid", gate))
        gated = g("Mul", gate, g("MatMul", normed, g.weight(HIDDEN, INTERMEDIATE)))
        x = g("Add", x, g("MatMul", gated, g.weight(INTERMEDIATE, HIDDEN)))
    logits = g("MatMul", _rms_norm(g, x, two, epsilon), g.weight(HIDDEN, VOCABULARY))
    graph = helper.make_graph(
        g.nodes,
        "decoder",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [batch, length])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, None)],
        g.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def onnx_decoder_macs(layers: int, batch: int = 1, length: int = 128) -> int:
    """Multiply-accumulates of `onnx_decoder`, by hand: projections, scores, context, MLP, logits."""
    tokens = batch * length
    projections = tokens * HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD + tokens * HIDDEN * HIDDEN
    attention = 2 * batch * HEADS * length * length * HEAD
    mlp = 3 * tokens * HIDDEN * INTERMEDIATE
    return layers * (projections + attention + mlp) + tokens * HIDDEN * VOCABULARY


def relay_decoder(layers: int, batch: int = 1, length: int = 128) -> tvm.IRModule:
    """A GPT-style decoder in Relay, 60 calls a layer, types inferred."""
    import tvm
    from tvm import relay

    hidden, heads, head = 768, 12, 64
    parameters: list[relay.Var] = []

    def weight(*shape: int) -> relay.Var:
        parameters.append(relay.var(f"weight_{len(parameters)}", shape=shape, dtype="float32"))
        return parameters[-1]

    def norm(x: relay.Expr) -> relay.Expr:
        mean = relay.mean(x, axis=-1, keepdims=True)
        centered = relay.subtract(x, mean)
        variance = relay.mean(relay.multiply(centered, centered), axis=-1, keepdims=True)
        scaled = relay.divide(centered, relay.sqrt(relay.add(variance, relay.const(1e-5))))
        return relay.add(relay.multiply(scaled, weight(hidden)), weight(hidden))

    def dense(x: relay.Expr, inputs: int, outputs: int) -> relay.Expr:
        flat = relay.reshape(x, (batch * length, inputs))
        return relay.add(relay.nn.dense(flat, weight(outputs, inputs)), weight(outputs))

    def split(x: relay.Expr, axes: tuple[int, ...]) -> relay.Expr:
        divided = relay.transpose(relay.reshape(x, (batch, length, heads, head)), axes)
        return relay.reshape(divided, (batch * heads, *(length, head)))

    data = relay.var("data", shape=(batch, length, hidden), dtype="float32")
    mask = relay.var("mask", shape=(1, length, length), dtype="float32")
    x: relay.Expr = data
    for _ in range(layers):
        normed = norm(x)
        query, key, value = (split(dense(normed, hidden, hidden), (0, 2, 1, 3)) for _ in range(3))
        scores = relay.add(relay.multiply(relay.nn.batch_matmul(query, key), relay.const(head**-0.5)), mask)
        values = relay.transpose(value, (0, 2, 1))
        context = relay.nn.batch_matmul(relay.nn.softmax(scores), values)
        merged = relay.transpose(relay.reshape(context, (batch, heads, length, head)), (0, 2, 1, 3))
        x = relay.add(x, relay.reshape(dense(merged, hidden, hidden), (batch, length, hidden)))
        inner = dense(norm(x), hidden, 4 * hidden)
        inner = relay.multiply(inner, relay.sigmoid(relay.multiply(inner, relay.const(1.702))))
        x = relay.add(x, relay.reshape(dense(inner, 4 * hidden, hidden), (batch, length, hidden)))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data, mask, *parameters], x)))


def relay_decoder_macs(layers: int, batch: int = 1, length: int = 128) -> int:
    """Multiply-accumulates of `relay_decoder`, by hand: four projections, two batched products, the MLP."""
    hidden, heads, head = 768, 12, 64
    tokens = batch * length
    return layers * (12 * tokens * hidden * hidden + 2 * batch * heads * length * length * head)
