"""What TensorRT says of an engine: the JSON of `trtexec --exportLayerInfo` and of IEngineInspector, in full detail.

The graph is as the engine runs it: a layer that TensorRT made of several operators is one operator, and Reformat layers
are copies. Source of the form: "Inspecting engines" in NVIDIA's TensorRT developer guide (8.2 to 10).
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perfpass import _core, json_text
from perfpass.bounded_file import read_file
from perfpass.errors import FormatError, LimitError, PerfPassError, ShapeError, UnsupportedError, shown
from perfpass.graph import DTYPES, OpGraph
from perfpass.importers.formats.batch import scaled
from perfpass.importers.formats.sizes import fixed
from perfpass.importers.onnx import Input

if TYPE_CHECKING:
    from perfpass.importers.formats.sizes import Sizes

Typed = tuple[str, list[int]]  # type and sizes of a tensor
_MOST_BYTES = 1 << 28
_MOST_SIZES = 8  # of a kernel, its strides and the like: as many as a tensor of TensorRT has dimensions
_MOST_LAYERS = 1_000_000
_MOST_AXES = 64
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


# What the lowering of a layer looks at beside its name and its tensors: layers that are alike in these are one.
_MEMBERS = (
    *("ParameterType", "LayerType", "Operation", "ElementWiseOperation", "ActivationType", "Activation"),
    *("PoolingType", "ReduceOperation", "WindowSize", "Kernel", "Stride", "Dilation", "PrePadding", "PostPadding"),
    *("OutMaps", "Groups", "Weights", "Bias", "OpA", "OpB"),
)


def inputs(path: Path) -> tuple[Input, ...]:
    """The tensors that no layer makes. Raises as `read`."""
    return _Reading(_content(path), path).declared()


def read(path: Path, sizes: Sizes) -> OpGraph:
    """The graph of an engine. Raises FileError, FormatError, LimitError, ShapeError, UnsupportedError."""
    content = _content(path)
    graph = _repeated(content)
    if graph is None:
        reading = _Reading(content, path)
        found = fixed(reading.declared(), sizes)
        return scaled(reading.graph(), found.declared_batch, found.batch)
    found = fixed(tuple(_input(graph, int(t)) for t in graph.core.graph_inputs), sizes)
    return scaled(graph, found.declared_batch, found.batch)


def _content(path: Path) -> bytes:
    return read_file(path, "an engine's layers", _MOST_BYTES)


def _input(graph: OpGraph, tensor: int) -> Input:
    name = graph.string(int(graph.tensor_name[tensor]))
    return Input(name, DTYPES[int(graph.core.tensor_dtype[tensor])], graph.shape(tensor))


def _repeated(content: bytes) -> OpGraph | None:
    """The graph by the core, for which one layer of those that are alike is lowered here.

    None where the content is to be parsed: for what is unusual, and for damage, for which `_Reading` has the words.
    """

    def layer(said: str, read: list[Typed], written: list[Typed]) -> tuple[str, str, dict[str, int], list[Any]]:
        before, after = ([Tensor("", dtype, tuple(shape)) for dtype, shape in typed] for typed in (read, written))
        lowered = _lowered(Layer(json_text.parse(said, "a layer", any_number=True), before, after))
        return lowered.kind, lowered.source, lowered.attributes, lowered.weights

    try:
        core = _core.read_engine_layers(content, list(_MEMBERS), _dtype, layer)
    except PerfPassError:
        return None
    return None if core is None else OpGraph(core)


class Tensor(NamedTuple):
    """A tensor as a layer states it. A size below 0 is open: an engine that takes a range of them."""

    name: str
    dtype: str
    stated: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes. Raises ShapeError for an open one."""
        if self.stated and min(self.stated) < 0:
            raise ShapeError(
                f"tensor {self.name[:80]!r} is of {list(self.stated)}: the engine takes a range of sizes. Give them "
                "when the file is written (trtexec --shapes=..., or an execution context set on the inspector)"
            )
        return self.stated


class Layer(NamedTuple):
    """A layer as the file says it, and the tensors that it reads and writes."""

    said: dict[str, Any]
    inputs: list[Tensor]
    outputs: list[Tensor]


def _tensors(layer: dict[str, Any], key: str) -> list[Tensor]:
    found = layer.get(key, [])
    if not isinstance(found, list) or not set(map(type, found)) <= {dict}:
        raise FormatError(f"layer {str(layer.get('Name'))[:80]!r}: {key} are no tensors; write the file again")
    return [_tensor(one) for one in found]


def _tensor(said: dict[str, Any]) -> Tensor:
    name, dims = said.get("Name"), said.get("Dimensions", [])
    if not isinstance(name, str):
        raise FormatError("a tensor of an engine without a name; write the file again")
    if not isinstance(dims, list) or len(dims) > _MOST_AXES or not set(map(type, dims)) <= {int}:
        raise FormatError(f"tensor {name[:80]!r} has the dimensions {str(dims)[:80]}; write the file again")
    if math.prod(dims) >= 1 << 48 and min(dims) >= 0:
        raise LimitError(f"tensor {name[:80]!r} of {dims}; fewer than 2^48 elements are read")
    return Tensor(name, _dtype(str(said.get("Format/Datatype", said.get("Format", "")))), tuple(dims))


@lru_cache(maxsize=256)  # an engine has a few
def _dtype(said: str) -> str:
    said = said.lower()
    return next((dtype for text, dtype in _DTYPES if text in said), "float32")


class _Reading:
    def __init__(self, text: bytes, path: Path) -> None:
        content = json_text.parse(text, shown(path), any_number=True)
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
        self.layers = [Layer(layer, _tensors(layer, "Inputs"), _tensors(layer, "Outputs")) for layer in layers]
        self.builder = _core.GraphBuilder()
        self.made = {t.name for layer in self.layers for t in layer.outputs}

    # -- tensors ---------------------------------------------------------------------------------------------------

    def declared(self) -> tuple[Input, ...]:
        found: dict[str, Input] = {}
        for layer in self.layers:
            for tensor in layer.inputs:
                if tensor.name not in self.made and tensor.name not in found:
                    found[tensor.name] = Input(tensor.name, tensor.dtype, tensor.shape)
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
            for tensor in layer.inputs:
                name = tensor.name
                read.add(name)
                if name not in known:
                    raise FormatError(f"tensor {name[:80]!r} is read before a layer makes it; write the file again")
                if len(known[name]) > 1:
                    known[name] = [self.whole(tensor, known[name])]
                given.append(known[name][0])
            written = []
            for tensor in layer.outputs:
                number = self.builder.add_tensor(tensor.name, tensor.dtype, tensor.shape, "activation")
                known.setdefault(tensor.name, []).append(number)
                written.append(number)
            if given or written:
                self.node(layer, given, written)
        results = [number for name in self.made - read for number in known[name]]
        if not results:
            raise FormatError("an engine without a result: every tensor is read by a layer; write the file again")
        return OpGraph(self.builder.finish(graph_inputs, sorted(results)))

    def whole(self, tensor: Tensor, parts: list[int]) -> int:
        """A tensor that several layers write side by side: TensorRT runs no concatenation then."""
        number = self.builder.add_tensor(tensor.name, tensor.dtype, tensor.shape, "activation")
        self.builder.add_node("concat", "written side by side", "", {"view": 1}, parts, [number])
        return number

    def node(self, read: Layer, given: list[int], written: list[int]) -> None:
        lowered, said = _lowered(read), read.said
        label = str(said.get("Name"))[:80]
        weights = [self.builder.add_tensor(f"{label}.{part}", *typed, "weight") for part, *typed in lowered.weights]
        inputs = [given[0], *weights, *given[1:]] if weights else given
        name = str(said.get("Name", ""))[:4096]
        self.builder.add_node(lowered.kind, lowered.source, name, lowered.attributes, inputs, written)


class Lowered(NamedTuple):
    """What a layer is. ``weights``: (part, type, sizes), which it reads behind its first tensor."""

    kind: str
    source: str
    attributes: dict[str, int]
    weights: list[tuple[str, str, list[int]]]


def _lowered(read: Layer) -> Lowered:
    """By its members alone (`_MEMBERS`), its name in errors aside, and by the types and sizes of its tensors."""
    layer, before, after = read
    source = str(layer.get("ParameterType") or layer.get("LayerType") or "?")[:80]
    kind = _kind(read)
    attributes: dict[str, int] = {}
    weights: list[tuple[str, str, list[int]]] = []
    if kind in ("conv", "conv_transpose", "dense") and before and after:
        kind, attributes, weights = _weighted(layer, kind, after[0].shape)
    elif kind == "matmul":
        kind, attributes = _product(layer, before)
    elif kind.endswith("pool"):
        _windows(layer, "WindowSize", attributes)
    elif kind == "attention" and len(before) < 3:
        kind = "unknown"
    return Lowered(kind, source, attributes, weights)


def _kind(read: Layer) -> str:
    """By ParameterType, then by LayerType; "unknown" for plugins and what is not listed."""
    layer = read.said
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
    if kind == "copy" and read.inputs and read.outputs:
        of, to = read.inputs[0].dtype, read.outputs[0].dtype
        if of != to:
            return "quantize" if to == "int8" else "dequantize" if of == "int8" else "cast"
    return kind


def _windows(layer: dict[str, Any], kernel: str, attributes: dict[str, int]) -> list[int]:
    sizes = _numbers(layer, kernel)
    attributes["spatial_rank"] = min(len(sizes), 3)
    columns = (("kernel", kernel), ("stride", "Stride"), ("dilation", "Dilation"))
    for column, key in (*columns, ("pad_begin", "PrePadding"), ("pad_end", "PostPadding")):
        attributes |= {f"{column}_{i}": value for i, value in enumerate(_numbers(layer, key)[:3])}
    return sizes


def _weighted(
    layer: dict[str, Any], kind: str, out: tuple[int, ...]
) -> tuple[str, dict[str, int], list[tuple[str, str, list[int]]]]:
    """A layer with weights, whose number the engine says: their shape follows from it."""
    attributes: dict[str, int] = {}
    kernel = _windows(layer, "Kernel", attributes) if kind != "dense" else []
    maps, groups = _number(layer, "OutMaps") or (out[1] if len(out) > 1 else 1), max(_number(layer, "Groups"), 1)
    count, dtype = _held(layer, "Weights")
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
    weights = [("weight", dtype, shape)]
    biases, of = _held(layer, "Bias")
    if biases:
        weights.append(("bias", of, [biases]))
    if dtype == "int8" and kind == "conv":
        kind = "quantized_conv"
    elif dtype == "int8" and kind == "dense":
        kind = "quantized_matmul"
    return kind, attributes, weights


def _held(layer: dict[str, Any], key: str) -> tuple[int, str]:
    """How many numbers of which type a layer holds."""
    value = layer.get(key)
    if not isinstance(value, dict):
        return 0, "float32"
    count = value.get("Count", 0)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 48:
        raise FormatError(f"layer {str(layer.get('Name'))[:80]!r} holds {str(count)[:40]} {key}; write the file again")
    return count, _dtype(str(value.get("Type", "")))


def _product(layer: dict[str, Any], before: list[Tensor]) -> tuple[str, dict[str, int]]:
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
    if len(found) > _MOST_SIZES or any(type(v) is not int or abs(v) >= 1 << 30 for v in found):
        raise FormatError(f"layer {str(layer.get('Name'))[:80]!r}: {key} is {str(value)[:80]}; write the file again")
    return found
