"""Keras's attention, and products of samples with samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from perfpass.errors import UnsupportedError
from perfpass.importers.formats.channels_last import Tensor
from perfpass.importers.formats.keras.layer import Layer
from perfpass.importers.formats.spatial import contraction, reduced


def dot(layer: Layer, x: Sequence[Tensor], **_: Any) -> Tensor:
    """keras.layers.Dot: samples with samples along one axis of each."""
    a, b = x
    axes = layer.settings.config.get("axes")
    first, second = axes if isinstance(axes, list | tuple) else (axes, axes)
    letters = "abcdefghij"
    left, right = list(letters[: len(a.shape)]), list("a" + letters[5 : 4 + len(b.shape)])
    left[first], right[second] = "z", "z"
    if layer.settings.flag("normalize"):
        a, b = (layer.program.one("l2_norm", "normalize", [t], t.shape) for t in (a, b))
    out = [c for c in left + right[1:] if c != "z"]
    if len(out) == 1:
        out = ["a", "y"]
        product = contraction(layer.program, layer.class_name, f"{''.join(left)},{''.join(right)}->a", a, b)
        return layer.program.reshape(product, (product.shape[0], 1))
    return contraction(layer.program, layer.class_name, f"{''.join(left)},{''.join(right)}->{''.join(out)}", a, b)


def attended(program_layer: Layer, q: Tensor, k: Tensor, v: Tensor, scale: bool) -> Tensor:
    """softmax(q k^T) v of [..., length, width] as three kernels."""
    p = program_layer.program
    scores = p.one("matmul", "matmul", [q, k], (*q.shape[:-1], k.shape[-2]), q.dtype, transpose_b=1)
    if scale:
        scores = p.each("mul", "multiply", scores, p.tensor([], q.dtype, "literal"))
    weights = p.one("softmax", "softmax", [scores], scores.shape, axis=len(scores.shape) - 1)
    return p.one("matmul", "matmul", [weights, v], (*weights.shape[:-1], v.shape[-1]), q.dtype)


def attention(layer: Layer, x: Sequence[Tensor], **kwargs: Any) -> Any:
    """keras.layers.Attention and AdditiveAttention (Luong's and Bahdanau's) of query, value and key."""
    p, q, v = layer.program, x[0], x[1]
    k = x[2] if len(x) > 2 else v
    additive = layer.class_name == "AdditiveAttention" or layer.settings.config.get("score_mode") == "concat"
    scaled = layer.settings.flag("use_scale", additive)
    if not additive:
        return attended(layer, q, k, v, scaled)
    wide = p.reshape(q, (*q.shape[:-1], 1, q.shape[-1]))
    high = p.reshape(k, (*k.shape[:-2], 1, *k.shape[-2:]))
    total = p.each("tanh", "tanh", p.each("add", "add", wide, high))
    if scaled:
        width = [q.shape[-1]] if layer.class_name == "AdditiveAttention" else []
        total = p.each("mul", "multiply", total, layer.weight("scale", width))
    scores = reduced(p, "reduce_sum", "sum", total, [-1], False)
    weights = p.one("softmax", "softmax", [scores], scores.shape, axis=len(scores.shape) - 1)
    return p.one("matmul", "matmul", [weights, v], (*weights.shape[:-1], v.shape[-1]), q.dtype)


def multi_head_attention(layer: Layer, *args: Any, **kwargs: Any) -> Any:
    """keras.layers.MultiHeadAttention and GroupQueryAttention over sequences [N, length, width]."""
    names = ("query", "value", "key")
    given = dict(zip(names, args, strict=False)) | {n: kwargs[n] for n in names if kwargs.get(n) is not None}
    query, value = given["query"], given["value"]
    key = given.get("key") or value
    settings, p = layer.settings, layer.program
    grouped = layer.class_name != "MultiHeadAttention"
    if grouped:
        width = settings.integer("head_dim")
        heads, kv_heads = settings.integer("num_query_heads"), settings.integer("num_key_value_heads")
        out_width, value_width = query.shape[-1], width
    else:
        heads = kv_heads = settings.integer("num_heads")
        width = settings.integer("key_dim")
        value_width = settings.integer("value_dim", width)
        shape = settings.config.get("output_shape")
        out_width = math.prod(settings.shape("output_shape")) if shape else query.shape[-1]
    if any(len(t.shape) != 3 for t in (query, value, key)):
        raise UnsupportedError(
            f"layer {layer.name} attends over {query.shape}, and attention over several axes is not read; reshape them "
            "to one, or export the model (model.export) and pass the folder"
        )
    bias = settings.flag("use_bias", True)

    def projected(name: str, x: Tensor, count: int, size: int) -> Tensor:
        own = layer.own(name, "Dense", {"units": count * size, "use_bias": bias})
        made = p.reshape(own(x), (*x.shape[:-1], count, size))
        return p.transpose(made, [0, 2, 1, 3], view=1)

    q = projected("query", query, heads, width)
    k, v = projected("key", key, kv_heads, width), projected("value", value, kv_heads, value_width)
    mask = kwargs.get("attention_mask")
    causal = int(bool(kwargs.get("use_causal_mask")))
    if settings.config.get("dropout") or kwargs.get("return_attention_scores"):
        if heads != kv_heads:
            k, v = (p.one("tile", "repeat", [t], (t.shape[0], heads, *t.shape[2:])) for t in (k, v))
        context = attended(layer, q, k, v, True)
    else:
        inputs = [q, k, v] + ([mask] if isinstance(mask, Tensor) else [])
        out = (*q.shape[:-1], v.shape[-1])
        context = p.one(
            "attention", layer.class_name, inputs, out, q.dtype, num_heads=heads, num_kv_heads=kv_heads, causal=causal
        )
    rows = p.reshape(p.transpose(context, [0, 2, 1, 3], view=1), (*query.shape[:-1], heads * value_width))
    if settings.flag("use_gate"):
        gate = layer.own("gate", "Dense", {"units": heads * value_width, "use_bias": bias, "activation": "sigmoid"})
        rows = p.each("mul", "multiply", rows, gate(query))
    found = layer.own("attention_output", "Dense", {"units": out_width, "use_bias": bias})(rows)
    if kwargs.get("return_attention_scores"):
        scores = next(n for n in reversed(p.nodes) if n.kind == "softmax").outputs[0]
        return [found, scores]
    return found
