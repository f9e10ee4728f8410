"""What TensorRT says of an engine: the JSON of `trtexec --exportLayerInfo` and of IEngineInspector, in full detail.

The graph is as the engine runs it: a layer that TensorRT made of several operators is one operator, and Reformat layers
are copies. Source of the form: "Inspecting engines" in NVIDIA's TensorRT developer guide (8.2 to 10).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpass import _core, json_text
from perfpass.errors import FormatError, LimitError, ShapeError, UnsupportedError
from perfpass.graph import OpGraph
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.sizes import fixed
from perfpass.importers.onnx import Input

if TYPE_CHECKING:
    from perfpass.importers.formats.sizes import Sizes

_MOST_BYTES = 1 << 28
_MOST_SIZES = 8  # of a kernel, its strides and the like: as many as a tensor of TensorRT has dimensions
_MOST_LAYERS = 1_000_000
# ParameterType, or LayerType where a layer has none, in lower case -> canonical kind.
_KINDS = {
    name: kind
    for kind, names in {
        "conv": "convolution caskconvolution cudnnconvolution",
        "conv_transpose": "deconvolution caskdeconvolution caskdeconvolutionv2",
        "dense": "fullyconnected caskfullyconnected",
        "matmul": "matrixmultiply caskgemmmatrixmultiply matrixmultiplication gemm cask_gemm xmma_gemm cublas_gemm",
        "einsum": "einsum",
        "attention": "fmha mha _gemm_mha_v2 fused_mha flashattention",
        "max_pool": "pooling caskpooling tiledpooling cudapooling",
        "add": "elementwise pointwise pointwisev2 kgen scale",
        "relu": "activation",
        "exp": "unary",
        "softmax": "softmax softmaxv2 casksoftmaxv2 extendedsoftmax raggedsoftmax",
        "reshape": "noop shuffle identity squeeze unsqueeze",
        "transpose": "transpose",
        "copy": "reformat move",
        "slice": "slice stridedslice",
        "concat": "concatenation concat",
        "reduce_mean": "reduce reduction",
        "gather": "gather",
        "scatter": "scatter",
        "top_k": "topk",
        "where": "select",
        "resize": "resize",
        "grid_sample": "gridsample",
        "layer_norm": "normalization layernorm",
        "batch_norm": "batchnorm",
        "lrn": "lrn",
        "non_max_suppression": "nms",
        "non_zero": "nonzero",
        "fill": "fill",
        "one_hot": "onehot",
        "pad": "padding",
        "quantize": "quantize",
        "dequantize": "dequantize",
        "cast": "cast",
        "shape_of": "shape",
        "constant": "constant",
        "cumulative": "cumulative",
    }.items()
    for name in names.split()
}
_OPERATIONS = {
    "sum": "add",
    "prod": "mul",
    "max": "maximum",
    "min": "minimum",
    "sub": "sub",
    "div": "div",
    "pow": "pow",
    "floor_div": "div",
    "equal": "compare",
    "greater": "compare",
    "less": "compare",
    "and": "logical",
    "or": "logical",
    "xor": "logical",
}
_ACTIVATIONS = {
    "relu": "relu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "leaky_relu": "leaky_relu",
    "elu": "elu",
    "selu": "selu",
    "softsign": "softsign",
    "softplus": "softplus",
    "clip": "clip",
    "hard_sigmoid": "hard_sigmoid",
    "gelu_erf": "gelu",
    "gelu_tanh": "gelu",
}
_REDUCED = {"avg": "reduce_mean", "sum": "reduce_sum", "max": "reduce_max", "min": "reduce_min", "prod": "reduce_prod"}
# What the text of a format says, the longer names first.
_DTYPES = (
    ("bf16", "bfloat16"),
    ("bfloat16", "bfloat16"),
    ("fp16", "float16"),
    ("half", "float16"),
    ("fp8", "float8"),
    ("int8", "int8"),
    ("int4", "int4"),
    ("int64", "int64"),
    ("int32", "int32"),
    ("bool", "bool"),
    ("uint8", "uint8"),
    ("fp32", "float32"),
    ("float", "float32"),
)


def inputs(path: Path) -> tuple[Input, ...]:
    """The tensors that no layer makes. Raises as `read`."""
    return _Reading(path).declared()


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The graph of an engine. Raises FileError, FormatError, LimitError, ShapeError, UnsupportedError."""
    reading = _Reading(path)
    found = fixed(reading.declared(), sizes)
    return scaled(reading.graph(), found.declared_batch, found.batch)


class _Reading:
    def __init__(self, path: Path) -> None:
        content = json_text.read_json(path, "an engine's layers", _MOST_BYTES, any_number=True)
        layers = content.get("Layers") if isinstance(content, dict) else None
        if not isinstance(layers, list) or not layers:
            raise FormatError("no layers of an engine in it; write it with trtexec --exportLayerInfo")
        if len(layers) > _MOST_LAYERS:
            raise LimitError(f"an engine of {len(layers)} layers; up to {_MOST_LAYERS} are read")
        if any(not isinstance(layer, dict) for layer in layers):
            raise UnsupportedError(
                "it lists the names of layers alone, without shapes: build the engine with detailed verbosity "
                "(trtexec --profilingVerbosity=detailed --exportLayerInfo=FILE) and pass that file"
            )
        self.layers: list[dict[str, Any]] = layers
        self.builder = _core.GraphBuilder()
        self.made = {self.name(t) for layer in layers for t in self.tensors(layer, "Outputs")}

    # -- tensors ---------------------------------------------------------------------------------------------------

    def tensors(self, layer: dict[str, Any], key: str) -> list[dict[str, Any]]:
        found = layer.get(key, [])
        if not isinstance(found, list) or any(not isinstance(t, dict) for t in found):
            raise FormatError(f"layer {str(layer.get('Name'))[:80]!r}: {key} are no tensors; write the file again")
        return found

    def name(self, tensor: dict[str, Any]) -> str:
        name = tensor.get("Name")
        if not isinstance(name, str):
            raise FormatError("a tensor of an engine without a name; write the file again")
        return name

    def shape(self, tensor: dict[str, Any]) -> tuple[int, ...]:
        dims = tensor.get("Dimensions", [])
        if (
            not isinstance(dims, list)
            or len(dims) > 64
            or any(isinstance(d, bool) or not isinstance(d, int) for d in dims)
        ):
            raise FormatError(
                f"tensor {self.name(tensor)[:80]!r} has the dimensions {str(dims)[:80]}; write the file again"
            )
        if any(d < 0 for d in dims):
            raise ShapeError(
                f"tensor {self.name(tensor)[:80]!r} is of {dims}: the engine takes a range of sizes. Give them when "
                "the file is written (trtexec --shapes=..., or an execution context set on the inspector)"
            )
        if math.prod(dims) >= 1 << 48:
            raise LimitError(f"tensor {self.name(tensor)[:80]!r} of {dims}; fewer than 2^48 elements are read")
        return tuple(dims)

    def dtype(self, tensor: dict[str, Any]) -> str:
        said = str(tensor.get("Format/Datatype", tensor.get("Format", ""))).lower()
        return next((dtype for text, dtype in _DTYPES if text in said), "float32")

    def declared(self) -> tuple[Input, ...]:
        found: dict[str, Input] = {}
        for layer in self.layers:
            for tensor in self.tensors(layer, "Inputs"):
                name = self.name(tensor)
                if name not in self.made and name not in found:
                    found[name] = Input(name, self.dtype(tensor), self.shape(tensor))
        return tuple(found.values())

    # -- the graph -------------------------------------------------------------------------------------------------

    def graph(self) -> OpGraph:
        known: dict[str, list[int]] = {}  # name -> the tensors that layers wrote under it: parts of a concatenation
        graph_inputs = []
        for item in self.declared():
            number = self.builder.add_tensor(item.name, item.dtype, [int(d) for d in item.shape or ()], "input")
            known[item.name] = [number]
            graph_inputs.append(number)
        read: set[str] = set()
        for layer in self.layers:
            given = []
            for tensor in self.tensors(layer, "Inputs"):
                name = self.name(tensor)
                read.add(name)
                if name not in known:
                    raise FormatError(f"tensor {name[:80]!r} is read before a layer makes it; write the file again")
                if len(known[name]) > 1:
                    known[name] = [self.whole(tensor, known[name])]
                given.append(known[name][0])
            written = []
            for tensor in self.tensors(layer, "Outputs"):
                number = self.builder.add_tensor(
                    self.name(tensor), self.dtype(tensor), list(self.shape(tensor)), "activation"
                )
                known.setdefault(self.name(tensor), []).append(number)
                written.append(number)
            if given or written:
                self.node(layer, given, written)
        results = [number for name in self.made - read for number in known[name]]
        if not results:
            raise FormatError("an engine without a result: every tensor is read by a layer; write the file again")
        return OpGraph(self.builder.finish(graph_inputs, sorted(results)))

    def whole(self, tensor: dict[str, Any], parts: list[int]) -> int:
        """A tensor that several layers write side by side: TensorRT runs no concatenation then."""
        number = self.builder.add_tensor(self.name(tensor), self.dtype(tensor), list(self.shape(tensor)), "activation")
        self.builder.add_node("concat", "written side by side", "", {"view": 1}, parts, [number])
        return number

    def node(self, layer: dict[str, Any], given: list[int], written: list[int]) -> None:
        source = str(layer.get("ParameterType") or layer.get("LayerType") or "?")[:80]
        kind = self.kind(layer)
        attributes: dict[str, int] = {}
        before, after = self.tensors(layer, "Inputs"), self.tensors(layer, "Outputs")
        if kind in ("conv", "conv_transpose", "dense") and before and after:
            kind, attributes, weights = self.weighted(layer, kind, self.shape(before[0]), self.shape(after[0]))
            given = [given[0], *weights, *given[1:]]
        elif kind == "matmul":
            kind, attributes = self.product(layer, before)
        elif kind.endswith("pool"):
            self.windows(layer, "WindowSize", attributes)
        elif kind == "attention" and len(before) < 3:
            kind = "unknown"
        self.builder.add_node(kind, source, str(layer.get("Name", ""))[:4096], attributes, given, written)

    def kind(self, layer: dict[str, Any]) -> str:
        """By ParameterType, then by LayerType; "unknown" for plugins and what is not listed."""
        words = [str(layer.get(key, "")).lower() for key in ("ParameterType", "LayerType")]
        kind = next((_KINDS[w] for w in words if w in _KINDS), "unknown")
        if kind == "add":
            return _OPERATIONS.get(_word(layer, "Operation", "ElementWiseOperation"), kind)
        if kind == "relu":
            return _ACTIVATIONS.get(_word(layer, "ActivationType", "Activation"), kind)
        if kind == "max_pool":
            return "avg_pool" if "average" in _word(layer, "PoolingType") else kind
        if kind == "reduce_mean":
            return _REDUCED.get(_word(layer, "ReduceOperation", "Operation"), kind)
        if kind == "copy":
            first, second = (self.tensors(layer, key)[:1] for key in ("Inputs", "Outputs"))
            if first and second and self.dtype(first[0]) != self.dtype(second[0]):
                to = self.dtype(second[0])
                return "quantize" if to == "int8" else "dequantize" if self.dtype(first[0]) == "int8" else "cast"
        return kind

    def windows(self, layer: dict[str, Any], kernel: str, attributes: dict[str, int]) -> list[int]:
        sizes = _numbers(layer, kernel)
        attributes["spatial_rank"] = min(len(sizes), 3)
        columns = (("kernel", kernel), ("stride", "Stride"), ("dilation", "Dilation"))
        for column, key in (*columns, ("pad_begin", "PrePadding"), ("pad_end", "PostPadding")):
            attributes |= {f"{column}_{i}": value for i, value in enumerate(_numbers(layer, key)[:3])}
        return sizes

    def weighted(
        self, layer: dict[str, Any], kind: str, data: tuple[int, ...], out: tuple[int, ...]
    ) -> tuple[str, dict[str, int], list[int]]:
        """A layer with weights, whose number the engine says: their shape follows from it."""
        attributes: dict[str, int] = {}
        kernel = self.windows(layer, "Kernel", attributes) if kind != "dense" else []
        maps, groups = _number(layer, "OutMaps") or (out[1] if len(out) > 1 else 1), max(_number(layer, "Groups"), 1)
        count, dtype = self.held(layer, "Weights")
        area = math.prod(kernel)
        label = str(layer.get("Name"))[:80]
        if count == 0 or maps < 1 or area < 1 or count % (maps * area):
            raise FormatError(
                f"layer {label!r} has {count} weights for {maps} channels out and a kernel of {kernel}; write the file "
                "with detailed verbosity"
            )
        each = count // (maps * area)
        if kind == "dense":
            shape: list[int] = [maps, each]
            attributes = {"transpose_b": 1}
        elif kind == "conv_transpose":
            shape = [each * groups, maps // groups, *kernel]
            if each * groups >= 1 << 48:
                raise LimitError(f"layer {label!r} reads {each * groups} channels; fewer than 2^48 are read")
            attributes |= {"groups": groups, "weight_layout": 2}
        else:
            shape = [maps, each, *kernel]
            attributes |= {"groups": groups}
        weights = [self.builder.add_tensor(f"{label}.weight", dtype, shape, "weight")]
        biases, of = self.held(layer, "Bias")
        if biases:
            weights.append(self.builder.add_tensor(f"{label}.bias", of, [biases], "weight"))
        if dtype == "int8" and kind == "conv":
            kind = "quantized_conv"
        elif dtype == "int8" and kind == "dense":
            kind = "quantized_matmul"
        return kind, attributes, weights

    def held(self, layer: dict[str, Any], key: str) -> tuple[int, str]:
        """How many numbers of which type a layer holds."""
        value = layer.get(key)
        if not isinstance(value, dict):
            return 0, "float32"
        count = value.get("Count", 0)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 48:
            raise FormatError(
                f"layer {str(layer.get('Name'))[:80]!r} holds {str(count)[:40]} {key}; write the file again"
            )
        return count, self.dtype({"Format": value.get("Type", "")})

    def product(self, layer: dict[str, Any], before: list[dict[str, Any]]) -> tuple[str, dict[str, int]]:
        if len(before) < 2:  # a product of Myelin whose weight is not shown
            return "unknown", {}
        flags = [_word(layer, key) for key in ("OpA", "OpB")]
        return "matmul", {f"transpose_{name}": 1 for name, f in zip("ab", flags, strict=True) if f == "transpose"}


def _word(layer: dict[str, Any], *keys: str) -> str:
    """A word without the k that constants of TensorRT begin with, in lower case."""
    found = next((v for key in keys if isinstance(v := layer.get(key), str)), "")
    return found.removeprefix("k").lower()


def _number(layer: dict[str, Any], key: str) -> int:
    value = layer.get(key, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else 0


def _numbers(layer: dict[str, Any], key: str) -> list[int]:
    value = layer.get(key, [])
    found = value if isinstance(value, list) else [value]
    whole = all(isinstance(v, int) and not isinstance(v, bool) and abs(v) < 1 << 30 for v in found)
    if len(found) > _MOST_SIZES or not whole:
        raise FormatError(f"layer {str(layer.get('Name'))[:80]!r}: {key} is {str(value)[:80]}; write the file again")
    return found
