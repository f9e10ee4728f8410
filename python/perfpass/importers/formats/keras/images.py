"""Keras's layers over images and sequences of features: convolutions, pools, padding, resizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfpass.errors import ShapeError
from perfpass.importers.formats.channels_last import AXIS, IMAGE, ROWS, Tensor
from perfpass.importers.formats.keras.layer import Layer
from perfpass.importers.formats.spatial import convolution, global_pool, pool, transposed


def convolution_layer(depthwise: bool = False, separable: bool = False) -> Callable[..., Tensor]:
    """keras.layers.Conv1D to Conv3D, depthwise and separable ones."""

    def compute(layer: Layer, x: Tensor, **_: Any) -> Tensor:
        settings, rank = layer.settings, len(x.shape) - 2
        if rank < 1:
            raise ShapeError(f"layer {layer.name} is a convolution of {x.shape}, which has no axis to slide along")
        kernel = settings.integers("kernel_size", rank)
        strides, dilations = settings.integers("strides", rank, 1), settings.integers("dilation_rate", rank, 1)
        padding = (
            settings.text("padding", "valid", ("valid", "same", "causal"))
            if isinstance(settings.config.get("padding", "valid"), str)
            else settings.pairs("padding", rank)
        )
        channels = x.shape[-1] if settings.last else x.shape[1]
        groups = settings.integer("groups", 1)
        given: dict[str, Any] = {"strides": strides, "dilations": dilations, "padding": padding, "last": settings.last}
        plain: dict[str, Any] = {"strides": [1] * rank, "dilations": [1] * rank, "padding": "valid"}
        source = layer.class_name

        def bias(count: int) -> Tensor | None:
            return layer.weight("bias", [count]) if settings.flag("use_bias", True) else None

        if depthwise or separable:
            multiplier = settings.integer("depth_multiplier", 1)
            shape = [*kernel, channels, multiplier]
            if not separable:
                weight = layer.weight("kernel", shape)
                own = bias(channels * multiplier)
                return layer.activate(convolution(layer.program, source, x, weight, own, depthwise=True, **given))
            weight = layer.weight("depthwise_kernel", shape)
            between = convolution(layer.program, source, x, weight, None, depthwise=True, **given)
            filters = settings.integer("filters")
            point = layer.weight("pointwise_kernel", [*[1] * rank, channels * multiplier, filters])
            own = bias(filters)
            return layer.activate(convolution(layer.program, source, between, point, own, last=settings.last, **plain))
        filters = settings.integer("filters")
        if channels % groups:
            raise ShapeError(f"layer {layer.name} has {groups} groups for {channels} channels")
        weight = layer.weight("kernel", [*kernel, channels // groups, filters])
        return layer.activate(convolution(layer.program, source, x, weight, bias(filters), **given))

    return compute


def transposed_convolution(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Conv1DTranspose to Conv3DTranspose."""
    settings, rank = layer.settings, len(x.shape) - 2
    kernel = settings.integers("kernel_size", rank)
    strides, dilations = settings.integers("strides", rank, 1), settings.integers("dilation_rate", rank, 1)
    same = settings.text("padding", "valid", ("valid", "same")) == "same"
    more: Sequence[int | None] = [None] * rank
    if settings.config.get("output_padding") is not None:
        more = settings.integers("output_padding", rank, least=0)
    before = x.shape[1:-1] if settings.last else x.shape[2:]
    sizes = []
    for size, k, s, d, extra in zip(before, kernel, strides, dilations, more, strict=True):
        extent = (k - 1) * d + 1
        if extra is None:
            sizes.append(size * s if same else size * s + max(extent - s, 0))
        else:
            sizes.append((size - 1) * s + extent - (2 * (extent // 2) if same else 0) + extra)
    filters = settings.integer("filters")
    channels = x.shape[-1] if settings.last else x.shape[1]
    weight = layer.weight("kernel", [*kernel, filters, channels])
    bias = layer.weight("bias", [filters]) if settings.flag("use_bias", True) else None
    return layer.activate(
        transposed(
            layer.program,
            layer.class_name,
            x,
            weight,
            bias,
            sizes,
            strides=strides,
            dilations=dilations,
            last=settings.last,
        )
    )


def pooled(kind: str) -> Callable[..., Tensor]:
    """keras.layers.MaxPooling1D to AveragePooling3D."""

    def compute(layer: Layer, x: Tensor, **_: Any) -> Tensor:
        settings, rank = layer.settings, len(x.shape) - 2
        kernel = settings.integers("pool_size", rank, 2)
        given = settings.config.get("strides") is not None
        strides = settings.integers("strides", rank) if given else kernel
        padding = settings.text("padding", "valid", ("valid", "same"))
        return pool(
            layer.program,
            kind,
            layer.class_name,
            x,
            kernel=kernel,
            strides=strides,
            padding=padding,
            last=settings.last,
        )

    return compute


def adaptive(kind: str) -> Callable[..., Tensor]:
    """keras.layers.AdaptiveAveragePooling1D to AdaptiveMaxPooling3D: cells of ceil(in / out) or one more."""

    def compute(layer: Layer, x: Tensor, **_: Any) -> Tensor:
        settings, rank = layer.settings, len(x.shape) - 2
        out = settings.integers("output_size", rank)
        sizes = x.shape[1:-1] if settings.last else x.shape[2:]
        kernel = [-(-s // o) for s, o in zip(sizes, out, strict=True)]
        strides = [max(s // o, 1) for s, o in zip(sizes, out, strict=True)]
        shape = (x.shape[0], *out, x.shape[-1]) if settings.last else (*x.shape[:2], *out)
        columns = {f"kernel_{i}": k for i, k in enumerate(kernel)} | {f"stride_{i}": s for i, s in enumerate(strides)}
        layout = IMAGE if settings.last else ROWS
        return layer.program.one(kind, layer.class_name, [x], shape, layout=layout, spatial_rank=rank, columns=columns)

    return compute


def globally_pooled(kind: str) -> Callable[..., Tensor]:
    """keras.layers.GlobalAveragePooling1D to GlobalMaxPooling3D."""

    def compute(layer: Layer, x: Tensor, mask: Any = None, **_: Any) -> Tensor:
        keep = layer.settings.flag("keepdims")
        return global_pool(layer.program, kind, layer.class_name, x, keep, layer.settings.last)

    return compute


def zero_padding(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.ZeroPadding1D to ZeroPadding3D."""
    rank = len(x.shape) - 2
    pads = layer.settings.pairs("padding", rank)
    first = 1 if layer.settings.last else 2
    shape = list(x.shape)
    for axis, (before, after) in enumerate(pads, first):
        shape[axis] += before + after
    return layer.program.one("pad", layer.class_name, [x], shape, layout=AXIS if layer.settings.last else ROWS)


def cropping(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Cropping1D to Cropping3D."""
    rank = len(x.shape) - 2
    first = 1 if layer.settings.last else 2
    shape = list(x.shape)
    for axis, (before, after) in enumerate(layer.settings.pairs("cropping", rank), first):
        shape[axis] -= before + after
    if min(shape) < 0:
        raise ShapeError(f"layer {layer.name} crops more than there is of {x.shape}")
    return layer.program.one("slice", layer.class_name, [x], shape, layout=AXIS if layer.settings.last else ROWS)


def up_sampling(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.UpSampling1D to UpSampling3D."""
    rank = len(x.shape) - 2
    factors = layer.settings.integers("size", rank, 2)
    how = layer.settings.text("interpolation", "nearest")
    first = 1 if layer.settings.last else 2
    shape = list(x.shape)
    for axis, factor in enumerate(factors, first):
        shape[axis] *= factor
    layout = IMAGE if layer.settings.last else ROWS
    return layer.program.one("resize", f"{layer.class_name}.{how}", [x], shape, layout=layout, spatial_rank=rank)


def resizing(layer: Layer, x: Tensor, **_: Any) -> Tensor:
    """keras.layers.Resizing and CenterCrop of [N, H, W, C], of one image [H, W, C] too."""
    height, width = layer.settings.integer("height"), layer.settings.integer("width")
    first = len(x.shape) - (3 if layer.settings.last else 2)
    shape = list(x.shape)
    shape[first : first + 2] = [height, width]
    how = layer.settings.text("interpolation", "bilinear")
    batched = len(x.shape) == 4 and layer.settings.last
    if layer.class_name != "Resizing" and x.shape[first] >= height and x.shape[first + 1] >= width:
        return layer.program.one("slice", layer.class_name, [x], shape, layout=AXIS if batched else ROWS)
    layout = IMAGE if batched else ROWS
    return layer.program.one("resize", f"{layer.class_name}.{how}", [x], shape, layout=layout, spatial_rank=2)
