"""Networks of Flax that stand for what is written in JAX: functions of their variables and inputs, as shapes alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

Made = tuple[Callable[..., Any], tuple[Any, ...]]  # a function of the variables and the inputs; those as shapes


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (512, 256):
            x = nn.relu(nn.Dense(width)(x))
        return nn.log_softmax(nn.Dense(10)(x))


class Residual(nn.Module):
    """A ResNet of basic blocks."""

    depths: tuple[int, ...] = (2, 2, 2, 2)

    @nn.compact
    def __call__(self, x):
        conv, norm = partial(nn.Conv, use_bias=False), partial(nn.BatchNorm, use_running_average=True)
        x = nn.relu(norm()(conv(64, (7, 7), 2)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, depth in enumerate(self.depths):
            for block in range(depth):
                width, stride = 64 << stage, 2 if stage and not block else 1
                y = nn.relu(norm()(conv(width, (3, 3), stride)(x)))
                y = norm()(conv(width, (3, 3))(y))
                x = norm()(conv(width, (1, 1), stride)(x)) if x.shape != y.shape else x
                x = nn.relu(x + y)
        return nn.Dense(1000)(x.mean((1, 2)))


class Mobile(nn.Module):
    """Inverted bottlenecks with squeeze and excitation, and hard swish."""

    @nn.compact
    def __call__(self, x):
        norm = partial(nn.BatchNorm, use_running_average=True)
        x = nn.hard_swish(norm()(nn.Conv(16, (3, 3), 2, use_bias=False)(x)))
        for wide, width, stride in ((64, 24, 2), (72, 24, 1), (120, 40, 2), (240, 80, 2), (480, 112, 1)):
            y = nn.hard_swish(norm()(nn.Conv(wide, (1, 1), use_bias=False)(x)))
            y = nn.hard_swish(norm()(nn.Conv(wide, (5, 5), stride, feature_group_count=wide, use_bias=False)(y)))
            gate = nn.Conv(wide, (1, 1))(nn.relu(nn.Conv(wide // 4, (1, 1))(y.mean((1, 2), keepdims=True))))
            y = norm()(nn.Conv(width, (1, 1), use_bias=False)(y * nn.hard_sigmoid(gate)))
            x = x + y if x.shape == y.shape else y
        return nn.Dense(1000)(x.mean((1, 2)))


class ConvNext(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.LayerNorm()(nn.Conv(96, (4, 4), 4)(x))
        for block in range(3):
            y = nn.LayerNorm()(nn.Conv(96, (7, 7), feature_group_count=96)(x))
            y = nn.Dense(96)(nn.gelu(nn.Dense(384)(y), approximate=False))
            x = x + y * self.param(f"scale_{block}", nn.initializers.constant(0.1), (96,))
        return nn.Dense(1000)(nn.LayerNorm()(x.mean((1, 2))))


class Unet(nn.Module):
    """A denoiser: group norms, SiLU, transposed convolutions, skips, an embedding of the time."""

    @nn.compact
    def __call__(self, x, time):
        rates = jnp.exp(-jnp.arange(32) / 32 * 9.2)
        time = jnp.concatenate([jnp.sin(time[:, None] * rates), jnp.cos(time[:, None] * rates)], -1)
        time, skips = nn.swish(nn.Dense(128)(time)), []
        x = nn.Conv(32, (3, 3))(x)
        for width in (32, 64, 128):
            y = nn.Conv(width, (3, 3))(nn.swish(nn.GroupNorm(8)(x))) + nn.Dense(width)(time)[:, None, None]
            skips.append(y)
            x = nn.Conv(width, (3, 3), 2)(y)
        for width, skip in zip((128, 64, 32), skips[::-1], strict=True):
            x = nn.ConvTranspose(width, (2, 2), (2, 2))(x)
            x = nn.Conv(width, (3, 3))(nn.swish(nn.GroupNorm(8)(jnp.concatenate([x, skip], -1))))
        return nn.Conv(3, (3, 3))(x)


class Layer(nn.Module):
    """A layer of a transformer, its norms before or behind."""

    width: int = 192
    heads: int = 3
    before: bool = True

    @nn.compact
    def __call__(self, x, mask=None):
        attend = nn.MultiHeadDotProductAttention(self.heads)
        feed = lambda t: nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(t)))  # noqa: E731
        if self.before:
            y = nn.LayerNorm()(x)
            x = x + attend(y, y, mask=mask)
            return x + feed(nn.LayerNorm()(x))
        x = nn.LayerNorm()(x + attend(x, x, mask=mask))
        return nn.LayerNorm()(x + feed(x))


class Vision(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(192, (16, 16), 16, "VALID")(x).reshape(x.shape[0], -1, 192)
        first = self.param("first", nn.initializers.zeros, (1, 1, 192))
        x = jnp.concatenate([jnp.broadcast_to(first, (x.shape[0], 1, 192)), x], 1)
        x = x + self.param("places", nn.initializers.normal(), (1, x.shape[1], 192))
        for _ in range(4):
            x = Layer()(x)
        return nn.Dense(1000)(nn.LayerNorm()(x)[:, 0])


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, ids, mask):
        x = nn.LayerNorm()(nn.Embed(30522, 256)(ids) + nn.Embed(512, 256)(jnp.arange(ids.shape[1]))[None])
        for _ in range(4):
            x = Layer(256, 4, before=False)(x, (mask > 0)[:, None, None])
        return jnp.tanh(nn.Dense(256)(x[:, 0]))


class Generator(nn.Module):
    """GPT: a causal mask, and the table of words again as the head."""

    @nn.compact
    def __call__(self, ids):
        words = nn.Embed(8000, 192)
        x = words(ids) + nn.Embed(256, 192)(jnp.arange(ids.shape[1]))[None]
        for _ in range(3):
            x = Layer()(x, nn.make_causal_mask(ids))
        return words.attend(nn.LayerNorm()(x))


class Llama(nn.Module):
    """RMS norms, rotary positions, grouped keys, SwiGLU."""

    @nn.compact
    def __call__(self, ids):
        width, heads, shared, size = 256, 8, 2, 32
        angles = jnp.outer(jnp.arange(ids.shape[1]), 10000.0 ** (-jnp.arange(0, size, 2) / size))
        cos, sin = (jnp.concatenate([f(angles)] * 2, -1)[None, :, None] for f in (jnp.cos, jnp.sin))

        def turn(t):
            return t * cos + jnp.concatenate([-t[..., size // 2 :], t[..., : size // 2]], -1) * sin

        dense = partial(nn.Dense, use_bias=False)
        x = nn.Embed(8000, width)(ids)
        for _ in range(3):
            y = nn.RMSNorm()(x)
            q, k, v = (dense(n * size)(y).reshape(*ids.shape, n, size) for n in (heads, shared, shared))
            y = jax.nn.dot_product_attention(turn(q), turn(k), v, is_causal=True)
            x = x + dense(width)(y.reshape(*ids.shape, width))
            y = nn.RMSNorm()(x)
            x = x + dense(width)(nn.silu(dense(3 * width)(y)) * dense(3 * width)(y))
        return dense(8000)(nn.RMSNorm()(x))


class Mixture(nn.Module):
    """Eight experts, two of them for each token, by dense dispatch."""

    @nn.compact
    def __call__(self, x):
        weights, chosen = lax.top_k(nn.softmax(nn.Dense(8)(x)), 2)
        gates = (jax.nn.one_hot(chosen, 8) * weights[..., None]).sum(-2)
        up = self.param("up", nn.initializers.lecun_normal(), (8, 128, 256))
        down = self.param("down", nn.initializers.lecun_normal(), (8, 256, 128))
        y = nn.gelu(jnp.einsum("bsd,edf->besf", x, up))
        return x + jnp.einsum("besf,efd,bse->bsd", y, down, gates)


class Recurrent(nn.Module):
    """A loop of `lax.scan` over the steps."""

    cell: Any = nn.OptimizedLSTMCell

    @nn.compact
    def __call__(self, ids):
        return nn.Dense(5)(nn.RNN(self.cell(96))(nn.Embed(5000, 128)(ids))[:, -1])


class Scanned(nn.Module):
    """Layers stacked and run by one `scan`, as large models are compiled."""

    @nn.compact
    def __call__(self, x):
        class Step(nn.Module):
            @nn.compact
            def __call__(self, carried, _):
                return Layer()(carried), None

        stacked = nn.scan(Step, variable_axes={"params": 0}, split_rngs={"params": True}, length=6)
        return stacked()(x, None)[0]


class StateSpace(nn.Module):
    """A diagonal state space by an associative scan."""

    @nn.compact
    def __call__(self, x):
        rate = self.param("rate", nn.initializers.ones, (128, 16))
        wide, gate = jnp.split(nn.Dense(256)(x), 2, -1)
        kept = jnp.exp(-nn.softplus(nn.Dense(128)(wide))[..., None] * rate)
        added = wide[..., None] * nn.Dense(16)(wide)[:, :, None]
        _, states = lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (kept, added), axis=1)
        y = (states * nn.Dense(16)(wide)[:, :, None]).sum(-1)
        return x + nn.Dense(128)(y * nn.silu(gate))


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(192, (16, 16), 16)(x).reshape(x.shape[0], -1, 192)
        for _ in range(4):
            y = nn.LayerNorm()(x).swapaxes(1, 2)
            x = x + nn.Dense(x.shape[1])(nn.gelu(nn.Dense(96)(y))).swapaxes(1, 2)
            x = x + nn.Dense(192)(nn.gelu(nn.Dense(768)(nn.LayerNorm()(x))))
        return nn.Dense(1000)(x.mean(1))


class Sound(nn.Module):
    """Dilated causal convolutions with gates."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(32, (1,))(x)
        for dilation in (1, 2, 4, 8):
            both = nn.Conv(64, (2,), kernel_dilation=dilation, padding="CAUSAL")(x)
            x = x + nn.Conv(32, (1,))(nn.tanh(both[..., :32]) * nn.sigmoid(both[..., 32:]))
        return nn.Dense(256)(nn.relu(x))


class Film(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (16, 32):
            x = nn.relu(nn.Conv(width, (3, 3, 3), 2)(x))
        return nn.Dense(10)(nn.avg_pool(x, (2, 2, 2), (2, 2, 2)).mean((1, 2, 3)))


class Graph(nn.Module):
    """Messages along edges, summed where they arrive."""

    @nn.compact
    def __call__(self, x, source, target):
        for _ in range(3):
            message = nn.relu(nn.Dense(64)(jnp.concatenate([x[source], x[target]], -1)))
            x = nn.LayerNorm()(nn.Dense(64)(jax.ops.segment_sum(message, target, x.shape[0])) + nn.Dense(64)(x))
        return nn.Dense(3)(x)


def _image(side: int) -> tuple[tuple[int, ...], Any]:
    return (1, side, side, 3), jnp.float32


_IDS = ((1, 64), jnp.int32)
NETWORKS: dict[str, tuple[nn.Module, tuple[tuple[tuple[int, ...], Any], ...]]] = {
    "mlp": (Mlp(), (((1, 784), jnp.float32),)),
    "residual": (Residual(), (_image(224),)),
    "mobile": (Mobile(), (_image(224),)),
    "convnext": (ConvNext(), (_image(224),)),
    "unet": (Unet(), (_image(64), ((1,), jnp.float32))),
    "vision transformer": (Vision(), (_image(224),)),
    "encoder": (Encoder(), (_IDS, _IDS)),
    "generator": (Generator(), (_IDS,)),
    "llama": (Llama(), (_IDS,)),
    "mixture": (Mixture(), (((1, 64, 128), jnp.float32),)),
    "lstm": (Recurrent(), (_IDS,)),
    "gru": (Recurrent(nn.GRUCell), (_IDS,)),
    "scanned layers": (Scanned(), (((1, 64, 192), jnp.float32),)),
    "state space": (StateSpace(), (((1, 64, 128), jnp.float32),)),
    "mixer": (Mixer(), (_image(224),)),
    "sound": (Sound(), (((1, 1000, 1), jnp.float32),)),
    "film": (Film(), (((1, 8, 32, 32, 3), jnp.float32),)),
    "graph": (Graph(), (((100, 16), jnp.float32), ((400,), jnp.int32), ((400,), jnp.int32))),
}


def network(name: str) -> tuple[Made, int]:
    """The function with its arguments, and how many elements Flax says that its variables have."""
    module, inputs = NETWORKS[name]
    shapes = [jax.ShapeDtypeStruct(*each) for each in inputs]
    variables = jax.eval_shape(module.init, jax.random.PRNGKey(0), *shapes)
    elements = sum(leaf.size for leaf in jax.tree.leaves(variables))
    return (module.apply, (variables, *shapes)), elements


def macs(function: Callable[..., Any], *arguments: Any) -> int:
    """MACs of the products and convolutions in JAX's own expression of the function; a scan counts its passes."""
    return _macs(jax.make_jaxpr(function)(*arguments).jaxpr)


def _macs(expression: Any) -> int:
    total = 0
    for equation in expression.eqns:
        made = equation.outvars[0].aval if equation.outvars else None
        parameters = equation.params
        if equation.primitive.name == "dot_general":
            left = equation.invars[0].aval
            (axes, _), _ = parameters["dimension_numbers"]
            total += made.size * prod(left.shape[axis] for axis in axes)
        elif equation.primitive.name == "conv_general_dilated":
            kernel = equation.invars[1].aval
            outputs = kernel.shape[parameters["dimension_numbers"].rhs_spec[0]]
            zeros = prod(parameters["lhs_dilation"])  # a transposed convolution's, between elements of its input
            total += made.size * kernel.size // outputs // zeros
        else:
            inner = [_macs(one) for one in _inside(parameters)]
            passes = parameters.get("length", 1) if equation.primitive.name == "scan" else 1
            total += (max(inner) if "branches" in parameters else passes * sum(inner)) if inner else 0
    return total


def _inside(parameters: dict[str, Any]) -> list[Any]:
    values = [v for value in parameters.values() for v in (value if isinstance(value, (tuple, list)) else (value,))]
    closed = [getattr(value, "jaxpr", value) for value in values]
    return [one for one in closed if hasattr(one, "eqns")]
