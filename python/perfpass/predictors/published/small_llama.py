"""The forward pass of a small Llama in NumPy: embeddings in, last hidden state out.

Architecture and names of weights as in transformers' LlamaModel (Touvron et al., arXiv:2302.13971): RMS norm before
each block, rotary positions in halves, gated SiLU, no biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama; heads have ``hidden / heads`` dimensions each."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    epsilon: float = 1e-6
    theta: float = 10000.0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Shape:
        """From an artefact's manifest."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})


def last_hidden(shape: Shape, weights: Mapping[str, np.ndarray], embeddings: np.ndarray) -> np.ndarray:
    """[R, H] the hidden state after the last token of ``embeddings`` [R, T, H], rows of equal length."""
    x = embeddings.astype(np.float32)
    rows, tokens, hidden = x.shape
    width = hidden // shape.heads
    cos, sin = _rotary(tokens, width, shape.theta)
    mask = np.triu(np.full((tokens, tokens), -np.inf, dtype=np.float32), 1)
    for layer in range(shape.layers):
        name = f"layers.{layer}."
        normed = _norm(x, weights[name + "input_layernorm.weight"], shape.epsilon)
        q, k, v = (
            (normed @ weights[f"{name}self_attn.{p}_proj.weight"].T)
            .reshape(rows, tokens, shape.heads, width)
            .transpose(0, 2, 1, 3)
            for p in "qkv"
        )
        q, k = q * cos + _half(q) * sin, k * cos + _half(k) * sin
        score = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width)) + mask
        score = np.exp(score - score.max(axis=-1, keepdims=True))
        mixed = (score / score.sum(axis=-1, keepdims=True)) @ v
        mixed = mixed.transpose(0, 2, 1, 3).reshape(rows, tokens, hidden)
        x = x + mixed @ weights[name + "self_attn.o_proj.weight"].T
        normed = _norm(x, weights[name + "post_attention_layernorm.weight"], shape.epsilon)
        gate = normed @ weights[name + "mlp.gate_proj.weight"].T
        up = normed @ weights[name + "mlp.up_proj.weight"].T
        x = x + (gate / (1.0 + np.exp(-gate)) * up) @ weights[name + "mlp.down_proj.weight"].T
    return _norm(x[:, -1], weights["norm.weight"], shape.epsilon)


def _norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def _half(x: np.ndarray) -> np.ndarray:
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], axis=-1)


def _rotary(tokens: int, width: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    frequency = 1.0 / theta ** (np.arange(0, width, 2) / width)
    angle = np.arange(tokens)[:, None] * frequency[None]
    angle = np.concatenate([angle, angle], axis=1)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
