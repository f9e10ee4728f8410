"""Decoder-only language models as Relay modules, built operator by operator.

``relay.frontend.from_onnx`` takes minutes for graphs of ten thousand nodes; building them directly takes a second.
The layer is that of Llama: RMS normalization, rotary embedding, grouped-query attention and a gated feed-forward block.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay

TEN_K_LAYERS = 140  # 9,000 operators and more


def decoder(
    layers: int,
    *,
    batch: int = 1,
    length: int = 64,
    hidden: int = 256,
    heads: int = 8,
    kv_heads: int = 2,
    feed_forward: int = 688,
    vocabulary: int = 1000,
) -> tvm.IRModule:
    """A typed module whose ``main`` maps token ids [batch, length] int32 to logits [batch, length, vocabulary].

    Weights are variables named ``layer<i>.<name>``, ``embedding`` and ``head``; see ``weight_names``.
    """
    return relay.transform.InferType()(
        tvm.IRModule.from_expr(_Builder(batch, length, hidden, heads, kv_heads, feed_forward, vocabulary).build(layers))
    )


def weight_names(mod: tvm.IRModule) -> list[str]:
    """Names of the parameters of ``main`` that are weights: all but the token ids."""
    return [var.name_hint for var in mod["main"].params if var.name_hint != "tokens"]


class _Builder:
    def __init__(
        self, batch: int, length: int, hidden: int, heads: int, kv_heads: int, feed_forward: int, vocabulary: int
    ) -> None:
        self.batch, self.length, self.hidden = batch, length, hidden
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, hidden // heads
        self.feed_forward, self.vocabulary = feed_forward, vocabulary
        self.weights: list[relay.Var] = []

    def weight(self, name: str, *shape: int) -> relay.Var:
        var = relay.var(name, shape=shape, dtype="float32")
        self.weights.append(var)
        return var

    def build(self, layers: int) -> relay.Function:
        tokens = relay.var("tokens", shape=(self.batch, self.length), dtype="int32")
        x = relay.take(self.weight("embedding", self.vocabulary, self.hidden), tokens, axis=0)
        angle = np.zeros((1, 1, self.length, self.head_dim // 2), "float32")
        self.cos, self.sin = relay.const(angle), relay.const(angle)
        self.mask = relay.const(np.zeros((1, 1, self.length, self.length), "float32"))
        for i in range(layers):
            x = self.layer(x, f"layer{i}")
        x = self.norm(x, "norm")
        logits = self.linear(x, "head", self.hidden, self.vocabulary)
        return relay.Function([tokens, *self.weights], logits)

    def norm(self, x: relay.Expr, name: str) -> relay.Expr:
        mean = relay.mean(relay.multiply(x, x), axis=-1, keepdims=True)
        scale = relay.rsqrt(relay.add(mean, relay.const(1e-6)))
        return relay.multiply(relay.multiply(x, scale), self.weight(f"{name}.weight", self.hidden))

    def linear(self, x: relay.Expr, name: str, inputs: int, outputs: int) -> relay.Expr:
        flat = relay.reshape(x, (-1, inputs))
        product = relay.nn.dense(flat, self.weight(f"{name}.weight", outputs, inputs))
        return relay.reshape(product, (self.batch, self.length, outputs))

    def split_heads(self, x: relay.Expr, heads: int) -> relay.Expr:
        return relay.transpose(relay.reshape(x, (self.batch, self.length, heads, self.head_dim)), (0, 2, 1, 3))

    def rotate(self, x: relay.Expr) -> relay.Expr:
        first, second = relay.split(x, 2, axis=-1)
        return relay.concatenate(
            [
                relay.subtract(relay.multiply(first, self.cos), relay.multiply(second, self.sin)),
                relay.add(relay.multiply(first, self.sin), relay.multiply(second, self.cos)),
            ],
            axis=-1,
        )

    def grouped(self, x: relay.Expr) -> relay.Expr:
        """[batch, kv_heads, length, head_dim] to [batch * heads, length, head_dim]."""
        return relay.reshape(relay.repeat(x, self.heads // self.kv_heads, axis=1), (-1, self.length, self.head_dim))

    def attention(self, x: relay.Expr, name: str) -> relay.Expr:
        kv = self.kv_heads * self.head_dim
        q = self.rotate(self.split_heads(self.linear(x, f"{name}.q", self.hidden, self.hidden), self.heads))
        k = self.rotate(self.split_heads(self.linear(x, f"{name}.k", self.hidden, kv), self.kv_heads))
        v = self.split_heads(self.linear(x, f"{name}.v", self.hidden, kv), self.kv_heads)
        q = relay.reshape(q, (-1, self.length, self.head_dim))
        scores = relay.nn.batch_matmul(q, self.grouped(k))
        scores = relay.multiply(scores, relay.const(self.head_dim**-0.5, "float32"))
        scores = relay.reshape(scores, (self.batch, self.heads, self.length, self.length))
        weights = relay.nn.softmax(relay.add(scores, self.mask), axis=-1)
        weights = relay.reshape(weights, (-1, self.length, self.length))
        mixed = relay.nn.batch_matmul(weights, self.grouped(v), transpose_b=False)
        mixed = relay.reshape(mixed, (self.batch, self.heads, self.length, self.head_dim))
        mixed = relay.reshape(relay.transpose(mixed, (0, 2, 1, 3)), (self.batch, self.length, self.hidden))
        return self.linear(mixed, f"{name}.o", self.hidden, self.hidden)

    def layer(self, x: relay.Expr, name: str) -> relay.Expr:
        x = relay.add(x, self.attention(self.norm(x, f"{name}.norm1"), name))
        y = self.norm(x, f"{name}.norm2")
        gate = self.linear(y, f"{name}.gate", self.hidden, self.feed_forward)
        up = self.linear(y, f"{name}.up", self.hidden, self.feed_forward)
        mixed = relay.multiply(relay.multiply(gate, relay.sigmoid(gate)), up)
        return relay.add(x, self.linear(mixed, f"{name}.down", self.feed_forward, self.hidden))
