"""Writes the StableHLO files of this folder; needs jax and flax of the versions that it prints.

python tests/importers/files/make_stablehlo.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import export, lax

FOLDER = Path(__file__).parent


class Convolutional(nn.Module):
    """A network for images with every kind of layer that compilers fuse."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(16, (3, 3), strides=2, use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.Conv(16, (3, 3), feature_group_count=16)(x)
        x = nn.avg_pool(nn.max_pool(x, (2, 2), strides=(2, 2)), (2, 2), strides=(2, 2))
        x = nn.Dense(8)(x.mean((1, 2)))
        return nn.softmax(nn.gelu(nn.LayerNorm()(x)))


class Encoder(nn.Module):
    """A small BERT."""

    @nn.compact
    def __call__(self, ids: Any, mask: Any) -> Any:
        x = nn.LayerNorm()(nn.Embed(100, 32)(ids) + nn.Embed(64, 32)(jnp.arange(ids.shape[1]))[None])
        for _ in range(2):
            x = nn.LayerNorm()(
                x + nn.MultiHeadDotProductAttention(num_heads=4)(x, x, mask=(mask > 0)[:, None, None, :])
            )
            x = nn.LayerNorm()(x + nn.Dense(32)(nn.gelu(nn.Dense(64)(x), approximate=False)))
        return jnp.tanh(nn.Dense(32)(x[:, 0]))


def control(x: Any, w: Any, flag: Any) -> Any:
    """A scan of five passes, a branch, a loop whose passes only values decide."""
    h, _ = lax.scan(lambda h, z: (jnp.tanh(h @ w + z), h), x, jnp.stack([x] * 5))
    h = lax.cond(flag, lambda q: q @ w, lambda q: q, h)
    return lax.while_loop(lambda s: s[0] < 100.0, lambda s: (s[0] + s[1].max(), s[1] * 2), (0.0, h))[1]


def main() -> None:
    """Writes them."""
    print(f"jax {jax.__version__}, flax {flax.__version__}")
    image, ids = jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.float32), jax.ShapeDtypeStruct((2, 16), jnp.int32)
    network, encoder = Convolutional(), Encoder()
    variables = jax.eval_shape(network.init, jax.random.PRNGKey(0), image)
    words = jax.eval_shape(encoder.init, jax.random.PRNGKey(0), ids, ids)
    lowered = jax.jit(network.apply).lower(variables, image)
    (FOLDER / "convolutional.mlir").write_text(lowered.as_text())
    generic = lowered.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True)
    (FOLDER / "convolutional.generic.mlir").write_text(generic)
    (b,) = export.symbolic_shape("b")
    opened = jax.ShapeDtypeStruct((b, 32, 32, 3), jnp.float32)
    (FOLDER / "convolutional.jax").write_bytes(export.export(jax.jit(network.apply))(variables, opened).serialize())
    (FOLDER / "convolutional.open.mlir").write_text(
        export.export(jax.jit(network.apply))(variables, opened).mlir_module()
    )
    (FOLDER / "encoder.mlir").write_text(jax.jit(encoder.apply).lower(words, ids, ids).as_text())
    square = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    flag = jax.ShapeDtypeStruct((), jnp.bool_)
    (FOLDER / "control.mlir").write_text(jax.jit(control).lower(square, square, flag).as_text())


if __name__ == "__main__":
    main()
