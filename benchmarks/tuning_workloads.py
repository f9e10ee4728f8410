"""What the tuning study tunes, and the other workloads whose measurements warm the cost model up.

The two lists share no shape and, where the operator allows it, no structure: the graded products are row by column
(A B), the others row by row (A B^T) and column by column (A^T B); graded convolutions are dense 3x3 and 1x1 and
depthwise 3x3, stride 1, in NHWC, the others are strided, dilated, grouped, transposed, one- and three-dimensional or
in NCHW; the graded softmax stands against the centering of rows and a norm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tir, topi
from tvm.meta_schedule.testing import te_workload as library


def _dense(m: int, n: int, k: int, epilogue: str = "") -> list[te.Tensor]:
    """X [m, k] times W [n, k] transposed, with bias and an activation where asked for."""
    x, w = te.placeholder((m, k), name="X"), te.placeholder((n, k), name="W")
    r = te.reduce_axis((0, k), name="r")
    y = te.compute((m, n), lambda i, j: te.sum(x[i, r] * w[j, r], axis=r), name="Y")
    if not epilogue:
        return [x, w, y]
    b = te.placeholder((n,), name="B")
    biased = te.compute((m, n), lambda i, j: y[i, j] + b[j], name="biased")
    return [x, w, b, topi.sigmoid(biased) if epilogue == "sigmoid" else topi.nn.relu(biased)]


def _row_center(rows: int, width: int) -> list[te.Tensor]:
    x = te.placeholder((rows, width), name="X")
    r = te.reduce_axis((0, width), name="r")
    total = te.compute((rows,), lambda i: te.sum(x[i, r], axis=r), name="total")
    return [x, te.compute((rows, width), lambda i, j: x[i, j] - total[i] / width, name="centered")]


def _column_product(m: int, n: int, k: int) -> list[te.Tensor]:
    """X [k, m] transposed times Y [k, n]."""
    x, y = te.placeholder((k, m), name="X"), te.placeholder((k, n), name="Y")
    r = te.reduce_axis((0, k), name="r")
    return [x, y, te.compute((m, n), lambda i, j: te.sum(x[r, i] * y[r, j], axis=r), name="Z")]


def _batched_dense(batch: int, m: int, n: int, k: int) -> list[te.Tensor]:
    """X [batch, m, k] times Y [batch, n, k] transposed."""
    x, y = te.placeholder((batch, m, k), name="X"), te.placeholder((batch, n, k), name="Y")
    r = te.reduce_axis((0, k), name="r")
    z = te.compute((batch, m, n), lambda b, i, j: te.sum(x[b, i, r] * y[b, j, r], axis=r), name="Z")
    return [x, y, z]


def _mean_pool(channels: int, side: int) -> list[te.Tensor]:
    x = te.placeholder((1, channels, side, side), name="X")
    return [x, topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "avg")]


def _gated(rows: int, width: int) -> list[te.Tensor]:
    x, y = te.placeholder((rows, width), name="X"), te.placeholder((rows, width), name="Y")
    gate = te.compute((rows, width), lambda i, j: te.exp(x[i, j]) / (te.exp(x[i, j]) + 1.0), name="gate")
    return [x, y, te.compute((rows, width), lambda i, j: gate[i, j] * y[i, j], name="gated")]


# Name -> the tensors of the computation. Nothing of these is graded.
OTHERS: dict[str, Callable[[], Any]] = {
    "dense_96x640x384": lambda: _dense(96, 640, 384),
    "dense_300x300x700": lambda: _dense(300, 300, 700),
    "dense_16x1536x640": lambda: _dense(16, 1536, 640),
    "dense_sigmoid_200x160x320": lambda: _dense(200, 160, 320, "sigmoid"),
    "dense_relu_80x80x1200": lambda: _dense(80, 80, 1200, "relu"),
    "conv1d_256x64x128_s2": lambda: library.conv1d_nlc(1, 256, 64, 128, 3, 2, 1),
    "conv5x5_48x24x48_s2": lambda: library.conv2d_nhwc(1, 48, 48, 24, 48, 5, 2, 2),
    "conv_dilated_30x40x80": lambda: library.conv2d_nhwc(1, 30, 30, 40, 80, 3, 1, 2, 2),
    "conv_grouped_36x96_g8": lambda: library.conv2d_nhwc(1, 36, 36, 96, 96, 3, 1, 1, 1, 8),
    "conv_transposed_8x128x64": lambda: library.conv2d_transpose_nhwc(1, 8, 8, 128, 64, 4, 2, 1),
    "conv3d_6x20x16x32": lambda: library.conv3d_ndhwc(1, 6, 20, 20, 16, 32, 3, 1, 1),
    "conv1x1_40x48x72_s2": lambda: library.conv2d_nhwc(1, 40, 40, 48, 72, 1, 2, 0),
    "depthwise5x5_60x144_s2": lambda: library.depthwise_conv2d_nhwc(1, 60, 60, 144, 5, 2, 2),
    "transposed_batch_matmul_96x8x48": lambda: library.transpose_batch_matmul(1, 96, 8, 48),
    "norm_4x300x300": lambda: library.norm_bmn(4, 300, 300),
    "mean_pool_96x58": lambda: _mean_pool(96, 58),
    "gated_900x700": lambda: _gated(900, 700),
    "row_center_700x600": lambda: _row_center(700, 600),
    "column_product_144x224x288": lambda: _column_product(144, 224, 288),
    "batched_dense_6x96x160x80": lambda: _batched_dense(6, 96, 160, 80),
    "conv5x5_nchw_40x24x36_s2": lambda: library.conv2d_nchw(1, 40, 40, 24, 36, 5, 5, 2, 2),
}

# Name -> the tensors of the computation, all graded with equal trials.
GRADED: dict[str, Callable[[], Any]] = {
    "gemm_256x256x256": lambda: library.matmul(256, 256, 256),
    "gemm_64x1024x768": lambda: library.matmul(64, 1024, 768),
    "gemm_197x768x192": lambda: library.matmul(197, 768, 192),
    "batch_matmul_12x128x128x64": lambda: library.batch_matmul_nkkm(12, 128, 128, 64),
    "conv3x3_28x64x64": lambda: library.conv2d_nhwc(1, 28, 28, 64, 64, 3, 1, 1),
    "conv1x1_14x256x512": lambda: library.conv2d_nhwc(1, 14, 14, 256, 512, 1, 1, 0),
    "depthwise3x3_56x96": lambda: library.depthwise_conv2d_nhwc(1, 56, 56, 96, 3, 1, 1),
    "softmax_512x1024": lambda: library.softmax_mn(512, 1024),
}
NETWORK = "network"


def network() -> tuple[Any, dict[str, Any]]:
    """A small convolutional network in Relay: stem, two depthwise-separable blocks, pooling, classifier, softmax."""
    from tvm import relay
    from tvm.relay.testing import create_workload

    def convolution(x: Any, name: str, shape: tuple[int, int, int, int], strides: int = 1, groups: int = 1) -> Any:
        weight, bias = relay.var(f"{name}_weight", shape=shape), relay.var(f"{name}_bias", shape=shape[:1])
        around, size = (shape[2] // 2, shape[3] // 2), (shape[2], shape[3])
        convolved = relay.nn.conv2d(x, weight, (strides, strides), around, (1, 1), groups, shape[0], size)
        return relay.nn.relu(relay.nn.bias_add(convolved, bias))

    x = relay.var("data", shape=(1, 3, 48, 48))
    y = convolution(x, "stem", (24, 3, 3, 3), 2)
    y = convolution(y, "depthwise1", (24, 1, 3, 3), 1, 24)
    y = convolution(y, "pointwise1", (64, 24, 1, 1))
    y = convolution(y, "depthwise2", (64, 1, 3, 3), 2, 64)
    y = convolution(y, "pointwise2", (128, 64, 1, 1))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    y = relay.nn.dense(y, relay.var("classifier_weight", shape=(100, 128)))
    y = relay.nn.softmax(relay.nn.bias_add(y, relay.var("classifier_bias", shape=(100,))))
    return create_workload(relay.Function(relay.analysis.free_vars(y), y))


def function(name: str) -> tir.PrimFunc:
    """The TIR function of a workload of either list."""
    return te.create_prim_func(list({**OTHERS, **GRADED}[name]()))
