"""Which operators a roofline is measured on: a quick set of under a minute on two cores, and a full one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfpass.measure.operators import ELEMENTWISE, Convolution, Copy, Elementwise, Gemm, Operator, Triad

PRECISIONS = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "tf32", "fp16", "bf16")}
# Sides of square products, by kind of device and care.
_SIDES = {
    ("cpu", True): (64, 256, 512, 1024),
    ("cpu", False): (32, 64, 128, 256, 512, 1024, 2048, 4096),
    ("cuda", True): (512, 2048, 8192),
    ("cuda", False): (128, 256, 512, 1024, 2048, 4096, 8192, 16384),
}
# Thin operands [m, n, k]: a linear layer on few tokens, a thin inner dimension, a narrow result.
_SKINNY = {
    "cpu": ((1, 2048, 2048), (8, 2048, 2048), (64, 2048, 2048), (2048, 2048, 32), (2048, 32, 2048)),
    "cuda": (
        (1, 8192, 8192),
        (8, 8192, 8192),
        (64, 8192, 8192),
        (256, 8192, 8192),
        (8192, 8192, 64),
        (8192, 64, 8192),
        (8192, 1024, 1024),
    ),
}
# Footprints in bytes, as powers of two: from the first-level cache (or what one launch of a GPU hides) to memory.
_FOOTPRINTS = {
    ("cpu", True): (14, 16, 18, 20, 22, 24, 26, 28),
    ("cpu", False): tuple(range(12, 30)),
    ("cuda", True): (20, 22, 24, 26, 28, 30),
    ("cuda", False): tuple(range(16, 34)),
}
_BASE: dict[str, dict[str, int]] = {
    "cpu": {"batch": 4, "channels": 64, "height": 28, "width": 28, "filters": 64},
    "cuda": {"batch": 32, "channels": 128, "height": 56, "width": 56, "filters": 128},
}
# Large convolutions whose FLOPs are counted exactly: another library than GEMM's runs them, at times a faster one.
# [batch, channels, side], filters, kernel, stride.
_CONVOLVED = {
    "cpu": ((4, 256, 28, 256, 1, 1), (8, 512, 28, 512, 1, 1), (4, 128, 56, 256, 3, 2), (8, 256, 28, 512, 3, 2)),
    "cuda": (
        (32, 512, 56, 512, 1, 1),
        (64, 2048, 28, 2048, 1, 1),
        (64, 256, 112, 512, 3, 2),
        (64, 512, 56, 1024, 3, 2),
    ),
}
# What is varied around the base, one field at a time.
_AXES: dict[tuple[str, bool], dict[str, tuple[int, ...]]] = {
    ("cpu", True): {"batch": (1, 4, 16), "stride": (1, 2), "kernel": (1, 3, 7), "filters": (8, 64, 256)},
    ("cpu", False): {
        "batch": (1, 2, 4, 8, 16, 32),
        "stride": (1, 2, 4),
        "kernel": (1, 3, 5, 7, 11),
        "filters": (1, 8, 16, 32, 64, 128, 256, 512),
    },
    ("cuda", True): {"batch": (1, 32, 256), "stride": (1, 2), "kernel": (1, 3, 7), "filters": (16, 128, 512)},
    ("cuda", False): {
        "batch": (1, 2, 4, 8, 16, 32, 64, 128, 256),
        "stride": (1, 2, 4),
        "kernel": (1, 3, 5, 7, 11),
        "filters": (1, 8, 16, 32, 64, 128, 256, 512, 1024),
    },
}
_ELEMENTS = {
    ("cpu", True): (2**14, 2**23),
    ("cpu", False): (2**12, 2**16, 2**20, 2**24),
    ("cuda", True): (2**20, 2**27),
    ("cuda", False): (2**16, 2**20, 2**24, 2**28),
}


def sweep(kind: str, quick: bool) -> list[Operator]:
    """The operators of a kind of device (cpu, cuda), each once: roofs first, so that an early end has them."""
    found = [*_bandwidth(kind, quick), *_squares(kind, quick), *_convolutions(kind, quick), *_others(kind, quick)]
    return list(dict.fromkeys(found))


def _bandwidth(kind: str, quick: bool) -> Iterator[Operator]:
    for power in _FOOTPRINTS[kind, quick]:
        yield Copy(elements=2**power // 8)
        yield Triad(elements=2**power // 12)


def _squares(kind: str, quick: bool) -> Iterator[Operator]:
    for precision in PRECISIONS[kind]:
        for side in _SIDES[kind, quick]:
            yield Gemm(m=side, n=side, k=side, precision=precision)
        for batch, channels, side, filters, kernel, stride in _CONVOLVED[kind]:
            yield Convolution(
                batch=batch,
                channels=channels,
                height=side,
                width=side,
                filters=filters,
                kernel=kernel,
                stride=stride,
                precision=precision,
                layout=_layout(precision),
            )


def _layout(precision: str) -> str:
    """On tensor cores a convolution's own layout is nhwc; in nchw it would be transposed at every call."""
    return "nhwc" if precision in ("fp16", "bf16") else "nchw"


def _convolutions(kind: str, quick: bool) -> Iterator[Operator]:
    precisions = PRECISIONS[kind][:1] if quick and kind == "cpu" else PRECISIONS[kind]
    for precision in precisions:
        base: dict[str, Any] = {**_BASE[kind], "precision": precision, "layout": _layout(precision)}
        for axis, values in _AXES[kind, quick].items():
            for value in values:
                yield Convolution(**(base | {axis: value}))
        for kernel in (3, 7):
            yield Convolution(**(base | {"groups": base["channels"], "kernel": kernel}))


def _others(kind: str, quick: bool) -> Iterator[Operator]:
    precisions = PRECISIONS[kind][:1] if quick else [p for p in PRECISIONS[kind] if p != "tf32"]
    for precision in PRECISIONS[kind][:1] if quick and kind == "cpu" else PRECISIONS[kind]:
        for m, n, k in _SKINNY[kind]:
            yield Gemm(m=m, n=n, k=k, precision=precision)
    for precision in precisions:
        for function in ELEMENTWISE:
            for elements in _ELEMENTS[kind, quick]:
                yield Elementwise(function=function, elements=elements, precision=precision)
