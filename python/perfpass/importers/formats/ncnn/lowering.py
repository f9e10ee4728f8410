"""From ncnn's layers to the operator graph: canonical operators over [batch, ...], and the sizes of the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfpass import _core
from perfpass.errors import FormatError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import OpGraph
from perfpass.importers.formats.ncnn.layers import gemm_sizes, results, window
from perfpass.importers.formats.ncnn.param import Layer
from perfpass.importers.formats.shapes import Shape, einsum

# Layers that are one operator without weights of their own.
_KINDS = {
    name: kind
    for kind, names in {
        "abs": "AbsVal",
        "arg_reduce": "ArgMax",
        "softplus": "BNLL Softplus",
        "concat": "Concat",
        "slice": "Crop",
        "elu": "ELU",
        "celu": "CELU",
        "selu": "SELU",
        "gelu": "GELU",
        "silu": "Swish",
        "mish": "Mish",
        "hard_sigmoid": "HardSigmoid",
        "hard_swish": "HardSwish",
        "sigmoid": "Sigmoid",
        "tanh": "TanH",
        "clip": "Clip Shrink Threshold",
        "exp": "Exp",
        "log": "Log",
        "erf": "Erf",
        "pow": "Power",
        "reshape": "Reshape Flatten Squeeze ExpandDims",
        "lrn": "LRN",
        "instance_norm": "MVN",
        "l2_norm": "Normalize",
        "transpose": "Permute ShuffleChannel",
        "pad": "Padding",
        "depth_to_space": "PixelShuffle",
        "space_to_depth": "Reorg",
        "split": "Slice",
        "softmax": "Softmax",
        "tile": "Tile",
        "resize": "Interp",
        "cast": "Cast",
        "copy": "DeepCopy CopyTo Packing",
        "matmul": "MatMul",
        "einsum": "Einsum",
        "glu": "GLU",
        "unfold": "Unfold",
        "fold": "Fold",
        "grid_sample": "GridSample",
        "cumulative": "CumulativeSum",
        "eye": "Diag",
        "reverse": "Flip",
        "roi_pool": "ROIPooling ROIAlign PSROIPooling",
        "attention": "SDPA",
        "rotary_embedding": "RotaryEmbed",
        "reduce_mean": "StatisticsPooling",
        "quantize": "Quantize Requantize",
        "dequantize": "Dequantize",
    }.items()
    for name in names.split()
}
_UNARY = (
    "abs neg round round mul sqrt rsqrt exp log trigonometric trigonometric trigonometric trigonometric trigonometric "
    "trigonometric reciprocal tanh log round round"
)
_BINARY = "add sub mul div maximum minimum pow sub div pow trigonometric trigonometric"
_REDUCED = (
    "reduce_sum reduce_norm reduce_norm reduce_mean reduce_max reduce_min reduce_prod reduce_norm reduce_norm "
    "reduce_log_sum_exp reduce_log_sum_exp"
)
_ACTIVATIONS = {1: "relu", 2: "leaky_relu", 3: "clip", 4: "sigmoid", 5: "mish", 6: "hard_swish", 7: "gelu"}
_ELTWISE = {0: "mul", 1: "add", 2: "maximum"}
_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "ExpandDims"})
_SAME_BLOB = frozenset({"Split", "Noop"})
_BY_VALUES = frozenset({"DetectionOutput", "YoloDetectionOutput", "Yolov3DetectionOutput", "Proposal"})


def lowered(layers: list[Layer], shapes: Mapping[str, Shape], batch: int) -> OpGraph:
    """The graph of a batch of inputs. ``shapes``: of the blobs of Input layers, without the batch.

    Raises ShapeError, FormatError, UnsupportedError, GraphError, LimitError.
    """
    return _Lowering(shapes, batch).graph(layers)


class _Lowering:
    def __init__(self, shapes: Mapping[str, Shape], batch: int) -> None:
        self.given, self.batch = shapes, batch
        self.builder = _core.GraphBuilder()
        self.shape: dict[str, Shape] = {}  # blob -> its shape without the batch
        self.tensor: dict[str, int] = {}
        self.alone: set[str] = set()  # blobs that the file holds: no batch
        self.inputs: list[int] = []
        self.names: set[str] = set()
        self.sizes: dict[tuple[Any, ...], list[Shape]] = {}  # of outputs, of layers that are alike

    # -- tensors ---------------------------------------------------------------------------------------------------

    def activation(self, shape: Shape, name: str = "") -> int:
        return self.builder.add_tensor(name, "float32", [self.batch, *shape], "activation")

    def weight(self, layer: Layer, what: str, *shape: int, dtype: str = "float32") -> int:
        if any(size < 0 or size >= 1 << 48 for size in shape):
            raise FormatError(f"{layer}: a weight of sizes {shape}; convert the model again")
        return self.builder.add_tensor(f"{layer.name}.{what}", dtype, list(shape), "weight")

    def node(self, kind: str, layer: Layer, inputs: list[int], outputs: list[int], **attributes: int) -> None:
        name = layer.name if layer.name not in self.names else ""
        self.names.add(layer.name)
        self.builder.add_node(kind, layer.type, name, attributes, inputs, outputs)

    # -- the graph -------------------------------------------------------------------------------------------------

    def graph(self, layers: list[Layer]) -> OpGraph:
        read = {blob for layer in layers for blob in layer.bottoms}
        for layer in layers:
            try:
                self.layer(layer)
            except PerfPassError:
                raise
            except (IndexError, ValueError, OverflowError, ZeroDivisionError) as error:
                given = [self.shape[blob] for blob in layer.bottoms]
                raise ShapeError(f"{layer}: its parameters do not fit inputs of {given}; check input_shape") from error
        outputs = [
            self.tensor[top] for layer in layers for top in layer.tops if top not in read and layer.type != "Input"
        ]
        if not outputs:
            raise FormatError("an ncnn model without a result: every blob is read by a layer; convert the model again")
        return OpGraph(self.builder.finish(self.inputs, list(dict.fromkeys(outputs))))

    def layer(self, layer: Layer) -> None:
        for blob in layer.bottoms:
            if blob not in self.tensor:
                raise FormatError(f"{layer} reads blob {blob[:80]!r} before a layer makes it; convert the model again")
        if any(top in self.tensor for top in layer.tops):
            raise FormatError(f"{layer} writes a blob that another layer has written; convert the model again")
        if layer.type == "Input":
            for top in layer.tops:
                self.shape[top] = self.given[top]
                self.tensor[top] = self.builder.add_tensor(top, "float32", [self.batch, *self.given[top]], "input")
                self.inputs.append(self.tensor[top])
            return
        shapes = [self.shape[blob] for blob in layer.bottoms]
        made = self._sizes(layer, shapes)
        self.shape |= zip(layer.tops, made, strict=True)
        inputs = [self.tensor[blob] for blob in layer.bottoms]
        if layer.type in _SAME_BLOB or (layer.type == "Dropout" and layer.real(0, 1.0) == 1.0):
            self.tensor |= dict.fromkeys(layer.tops, inputs[0])
            return
        if layer.type == "MemoryData":
            (top,) = layer.tops
            self.tensor[top] = self.weight(layer, "data", *made[0])
            self.alone.add(top)
            return
        outputs = [self.activation(shape, top) for top, shape in zip(layer.tops, made, strict=True)]
        self.tensor |= zip(layer.tops, outputs, strict=True)
        self._lower(layer, shapes, made, inputs, outputs)

    def _sizes(self, layer: Layer, shapes: list[Shape]) -> list[Shape]:
        """Shapes of the outputs, worked out once of layers of one kind that share parameters and read like shapes."""
        alike = layer.type, id(layer.parameters), len(layer.tops), *shapes
        found = self.sizes.get(alike)
        if found is None:
            found = self.sizes[alike] = self._worked_out(layer, shapes)
        return found

    def _worked_out(self, layer: Layer, shapes: list[Shape]) -> list[Shape]:
        hints = layer.list_of(30)  # dimensions, w, h and c of every output, where the file has them
        found = results(layer, shapes)
        if found is None and len(hints) == 4 * len(layer.tops):
            rows = [hints[4 * i : 4 * i + 4] for i in range(len(layer.tops))]
            found = [tuple(row[1:][: max(row[0], 1)][::-1]) for row in rows]
        if found is None:
            why = (
                "how many detections it makes depends on values"
                if layer.type in _BY_VALUES
                else "its rule is not known here, and an ncnn file holds no shapes"
            )
            raise UnsupportedError(
                f"{layer}: the shape of its output is open: {why}; cut the model before it, or write shape hints into "
                "the file (ncnnoptimize with the input's shape)"
            )
        if len(found) != len(layer.tops):
            raise FormatError(f"{layer} has {len(layer.tops)} outputs where its parameters make {len(found)}")
        if any(len(shape) > 4 for shape in found):
            raise ShapeError(f"{layer}: an output of {found}; blobs have up to four axes")
        return found

    def _lower(
        self, layer: Layer, shapes: list[Shape], made: list[Shape], inputs: list[int], outputs: list[int]
    ) -> None:
        kind = layer.type
        if kind.startswith(("Convolution", "Deconvolution", "DeformableConv")):
            self._convolution(layer, shapes, made[0], inputs, outputs)
        elif kind.startswith("Pooling"):
            self._pool(layer, shapes[0], inputs, outputs)
        elif kind == "InnerProduct":
            self._dense(layer, made[0], inputs, outputs)
        elif kind == "Gemm":
            self._gemm(layer, shapes, inputs, outputs)
        elif kind == "MultiHeadAttention":
            self._attention(layer, shapes, made[0], inputs, outputs)
        elif kind in ("LSTM", "GRU", "RNN"):
            self._recurrent(layer, shapes[0], inputs, outputs)
        elif kind == "BinaryOp":
            self.node(_of(_BINARY.split(), layer), layer, inputs, outputs)
        elif kind == "UnaryOp":
            self.node(_of(_UNARY.split(), layer), layer, inputs, outputs)
        elif kind == "Reduction":
            self.node(_of(_REDUCED.split(), layer), layer, inputs, outputs)
        elif kind == "Eltwise":
            self.node(_ELTWISE.get(layer.whole(0), "unknown"), layer, inputs, outputs)
        elif kind == "ReLU":
            self.node("leaky_relu" if layer.real(0, 0.0) else "relu", layer, inputs, outputs)
        elif not self._scaled(layer, inputs, outputs):
            self._plain(layer, shapes, inputs, outputs)

    def _plain(self, layer: Layer, shapes: list[Shape], inputs: list[int], outputs: list[int]) -> None:
        attributes: dict[str, int] = {}
        if layer.type in _VIEWS:
            attributes["view"] = 1
        elif layer.type in ("Softmax", "Concat", "GLU"):
            attributes["axis"] = layer.whole(0) % max(len(shapes[0]), 1) + 1
        elif layer.type == "MatMul" and layer.whole(0):
            attributes["transpose_b"] = 1
        elif layer.type == "Interp":
            attributes["spatial_rank"] = len(shapes[0]) - 1
        elif layer.type == "SDPA":
            heads = [shape[0] for shape in shapes[:2]]
            attributes |= {"num_heads": heads[0], "num_kv_heads": heads[1]}
        elif layer.type == "Einsum":
            attributes["contraction"] = einsum(layer.text(0), shapes, strict=False)[2]
        self.node(_KINDS.get(layer.type, "unknown"), layer, inputs, outputs, **attributes)

    def _scaled(self, layer: Layer, inputs: list[int], outputs: list[int]) -> bool:
        """Layers with one vector of weights or a few; False for others."""
        kind = layer.type
        if kind == "BatchNorm":
            channels = layer.whole(0)
            given = [self.weight(layer, what, channels) for what in ("slope", "bias", "mean", "var")]
            self.node("batch_norm", layer, [*inputs, *given], outputs)
        elif kind in ("LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm"):
            first = layer.whole(1 if kind == "GroupNorm" else 0)
            affine = layer.whole(3 if kind == "GroupNorm" else 2, 1)
            what = ("gamma",) if kind == "RMSNorm" else ("gamma", "beta")
            given = [self.weight(layer, name, first) for name in what] if affine and first else []
            name = {"LayerNorm": "layer_norm", "GroupNorm": "group_norm", "RMSNorm": "rms_norm"}.get(
                kind, "instance_norm"
            )
            more = {"groups": layer.whole(0, 1)} if kind == "GroupNorm" else {}
            self.node(name, layer, [*inputs, *given], outputs, **more)
        elif kind in ("Scale", "Bias"):
            size = layer.whole(0)
            given = [] if size == -233 else [self.weight(layer, "scale", size)]
            if kind == "Scale" and layer.whole(1):
                given.append(self.weight(layer, "bias", size))
            self.node("mul" if kind == "Scale" else "add", layer, [*inputs, *given], outputs)
        elif kind == "PReLU":
            self.node("prelu", layer, [*inputs, self.weight(layer, "slope", layer.whole(0))], outputs)
        elif kind == "Embed":
            table = [self.weight(layer, "table", layer.whole(1), layer.whole(0))]
            bias = [self.weight(layer, "bias", layer.whole(0))] if layer.whole(2) else []
            self.node("embedding", layer, [*table, *inputs, *bias], outputs)
        elif kind == "Dropout":
            self.node("mul", layer, inputs, outputs)
        else:
            return False
        return True

    def _activated(self, layer: Layer, shape: Shape, outputs: list[int]) -> tuple[list[int], str]:
        """Where a layer writes before the activation that is part of it, and that activation."""
        kind = _ACTIVATIONS.get(layer.whole(9), "")
        return ([self.activation(shape)], kind) if kind else (outputs, "")

    def _convolution(
        self, layer: Layer, shapes: list[Shape], made: Shape, inputs: list[int], outputs: list[int]
    ) -> None:
        transposed, deformed = layer.type.startswith("Deconvolution"), layer.type.startswith("Deformable")
        rank = 1 if "1D" in layer.type else 3 if "3D" in layer.type else 2
        if len(shapes[0]) <= rank:
            raise ShapeError(f"{layer}: an input of {shapes[0]}, which has no channels; check input_shape")
        sizes = shapes[0][-rank:]
        windows = window(layer, sizes)
        kernel = [w[0] for w in windows]
        groups = layer.whole(7, 1) if "DepthWise" in layer.type else 1
        attributes = {"spatial_rank": rank, "groups": groups, "weight_layout": 2 if transposed else 0}
        columns = ("kernel", "stride", "dilation", "pad_begin", "pad_end")
        for i, values in enumerate(windows):
            attributes |= {f"{column}_{i}": v for column, v in zip(columns, values, strict=True)}
        out, given = layer.whole(0), shapes[0][0]
        eight = layer.whole(8) != 0 and not transposed and not deformed
        dtype = "int8" if eight else "float32"
        if layer.whole(19 if rank < 3 else 28) and len(inputs) > 1:  # the weight is computed
            weights = inputs[1:]
        else:
            size, area = layer.whole(6), math.prod(kernel)
            each = size // max(out * area, 1)
            if each * out * area != size or each * groups != given:
                raise ShapeError(
                    f"{layer}: {size} weights for {given} channels in and {out} out with a kernel of {kernel}; give "
                    "input_shapes that the model was made for"
                )
            shape = (given, out // groups, *kernel) if transposed else (out, each, *kernel)
            weights = [self.weight(layer, "weight", *shape, dtype=dtype)]
            weights += inputs[1:] if deformed else []
            if layer.whole(5):
                weights.append(self.weight(layer, "bias", out))
        written, activation = self._activated(layer, made, outputs)
        kind = "conv_transpose" if transposed else "deform_conv" if deformed else "quantized_conv" if eight else "conv"
        self.node(kind, layer, [inputs[0], *weights], written, **attributes)
        if activation:
            self.node(activation, layer, written, outputs, in_place=1)

    def _pool(self, layer: Layer, shape: Shape, inputs: list[int], outputs: list[int]) -> None:
        rank = 1 if "1D" in layer.type else 3 if "3D" in layer.type else 2
        kind = "avg_pool" if layer.whole(0) else "max_pool"
        sizes = shape[-rank:]
        attributes = {"spatial_rank": rank}
        if layer.whole(4) or (layer.whole(7) and layer.whole(8) == 1):
            attributes |= {f"kernel_{i}": size for i, size in enumerate(sizes)}
            self.node(f"global_{kind}", layer, inputs, outputs, **attributes)
            return
        if not layer.whole(7):
            for i, values in enumerate(window(layer, sizes, pooling=True)):
                columns = ("kernel", "stride", "dilation", "pad_begin", "pad_end")
                attributes |= {f"{column}_{i}": v for column, v in zip(columns, values, strict=True)}
        self.node(kind, layer, inputs, outputs, **attributes)

    def _dense(self, layer: Layer, made: Shape, inputs: list[int], outputs: list[int]) -> None:
        out, size = layer.whole(0), layer.whole(2)
        shape = self.shape[layer.bottoms[0]]
        columns = size // max(out, 1)
        flat = len(made) == 1
        if columns * out != size or columns != (math.prod(shape) if flat else shape[-1]):
            raise ShapeError(f"{layer}: {size} weights for an input of {shape} and {out} outputs; check input_shape")
        if flat and len(shape) > 1:
            inputs = [self.activation((columns,))]
            self.builder.add_node("reshape", "Flatten", "", {"view": 1}, [self.tensor[layer.bottoms[0]]], inputs)
        weights = [self.weight(layer, "weight", out, columns, dtype="int8" if layer.whole(8) else "float32")]
        if layer.whole(1):
            weights.append(self.weight(layer, "bias", out))
        written, activation = self._activated(layer, made, outputs)
        kind = "quantized_matmul" if layer.whole(8) else "dense"
        self.node(kind, layer, [*inputs, *weights], written, transpose_b=1)
        if activation:
            self.node(activation, layer, written, outputs, in_place=1)

    def _gemm(self, layer: Layer, shapes: list[Shape], inputs: list[int], outputs: list[int]) -> None:
        m, n, k = gemm_sizes(layer, shapes)
        given = list(inputs)
        a = self.weight(layer, "a", *((k, m) if layer.whole(2) else (m, k))) if layer.whole(4) else given.pop(0)
        b = self.weight(layer, "b", *((n, k) if layer.whole(3) else (k, n))) if layer.whole(5) else given.pop(0)
        if not layer.whole(4) and not layer.whole(5) and shapes[0][-2 if layer.whole(2) else -1] != k:
            raise ShapeError(f"{layer}: inputs of {shapes}; check input_shape")
        if layer.whole(6) and (kind := layer.whole(10)) >= 0:
            sizes = {0: (1,), 1: (m,), 2: (m, 1), 3: (m, n), 4: (n,)}.get(kind, (n,))
            given = [self.weight(layer, "c", *sizes)]
        flags = {"transpose_a": int(bool(layer.whole(2))), "transpose_b": int(bool(layer.whole(3)))}
        self.node("dense" if layer.whole(5) else "matmul", layer, [a, b, *given[:1]], outputs, **flags)

    def _attention(self, layer: Layer, shapes: list[Shape], made: Shape, inputs: list[int], outputs: list[int]) -> None:
        """The layer is four products by weights and the attention between them."""
        width, heads = layer.whole(0), max(layer.whole(1, 1), 1)
        queries = layer.whole(2) // max(width, 1)
        blobs = len(inputs) - (1 if layer.whole(5) else 0)
        at = {1: (0, 0, 0), 2: (0, 1, 1)}.get(blobs, (0, 1, 2))
        columns = (queries, layer.whole(3, width), layer.whole(4, width))
        parts = []
        for what, source, size in zip("qkv", at, columns, strict=True):
            weights = [self.weight(layer, f"{what}_weight", width, size), self.weight(layer, f"{what}_bias", width)]
            parts.append(self.activation((*shapes[source][:-1], width)))
            self.node("dense", layer, [inputs[source], *weights], [parts[-1]], transpose_b=1)
        between = self.activation((*shapes[0][:-1], width))
        self.node("attention", layer, [*parts, *inputs[blobs:]], [between], num_heads=heads, num_kv_heads=heads)
        weights = [self.weight(layer, "out_weight", queries, width), self.weight(layer, "out_bias", queries)]
        self.node("dense", layer, [between, *weights], outputs, transpose_b=1)

    def _recurrent(self, layer: Layer, shape: Shape, inputs: list[int], outputs: list[int]) -> None:
        gates = {"LSTM": 4, "GRU": 3}.get(layer.type, 1)
        directions = 2 if layer.whole(2) == 2 else 1
        out = layer.whole(0)
        hidden = layer.whole(3, out) if layer.type == "LSTM" else out
        rows = gates * hidden
        weights = [
            self.weight(layer, "weight_xc", directions, rows, shape[-1]),
            self.weight(layer, "weight_hc", directions, rows, out),
            self.weight(layer, "bias_c", directions, 4 if layer.type != "RNN" else 1, hidden),
        ]
        if hidden != out:
            weights.append(self.weight(layer, "weight_hr", directions, out, hidden))
        attributes = {"hidden_size": hidden, "directions": directions}
        self.node(layer.type.lower(), layer, [inputs[0], *weights, *inputs[1:]], outputs, **attributes)


def _of(names: list[str], layer: Layer) -> str:
    at = layer.whole(0)
    return names[at] if 0 <= at < len(names) else "unknown"
