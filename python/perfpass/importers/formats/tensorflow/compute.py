"""TensorFlow's operators that compute: products, convolutions, norms, element-wise arithmetic, reductions."""

from __future__ import annotations

from collections.abc import Sequence

from perfpass.errors import ShapeError, UnsupportedError
from perfpass.importers.formats.channels_last import AXIS, FOLDED, IMAGE, ROWS, Tensor
from perfpass.importers.formats.shapes import broadcast
from perfpass.importers.formats.spatial import Pads, contraction, convolution, pool, reduced, transposed
from perfpass.importers.formats.tensorflow.graph_def import NodeDef
from perfpass.importers.formats.tensorflow.run import Operator, Run, Value
from perfpass.text import shown_value

_ELEMENTWISE = {
    "add": "Add AddV2 AddN",
    "sub": "Sub SquaredDifference",
    "mul": "Mul MulNoNan Square",
    "div": "RealDiv Div FloorDiv DivNoNan TruncateDiv Xdivy",
    "pow": "Pow",
    "mod": "FloorMod Mod TruncateMod",
    "minimum": "Minimum",
    "maximum": "Maximum",
    "compare": "Equal NotEqual Less LessEqual Greater GreaterEqual ApproximateEqual",
    "logical": "LogicalAnd LogicalOr LogicalNot",
    "bitwise": "BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift RightShift",
    "where": "Select SelectV2",
    "abs": "Abs ComplexAbs",
    "neg": "Neg",
    "exp": "Exp Expm1",
    "log": "Log Log1p Xlogy",
    "sqrt": "Sqrt",
    "rsqrt": "Rsqrt",
    "reciprocal": "Reciprocal Inv",
    "erf": "Erf Erfc Erfinv Ndtri",
    "trigonometric": "Sin Cos Tan Asin Acos Atan Atan2 Sinh Cosh Asinh Acosh Atanh",
    "tanh": "Tanh",
    "round": "Round Rint Floor Ceil",
    "sign": "Sign",
    "is_special": "IsNan IsInf IsFinite",
    "relu": "Relu",
    "clip": "Relu6 ClipByValue",
    "leaky_relu": "LeakyRelu",
    "elu": "Elu",
    "selu": "Selu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "quantize": "FakeQuantWithMinMaxVars FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVarsPerChannel "
    "QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4",
}
_BOOLEAN = ("compare", "logical", "is_special")
_FIRST_DECIDES = ("quantize",)  # the other operands are ranges
_REDUCTIONS = {
    "Sum": "reduce_sum",
    "Mean": "reduce_mean",
    "Max": "reduce_max",
    "Min": "reduce_min",
    "Prod": "reduce_prod",
    "Any": "reduce_any",
    "All": "reduce_any",
    "EuclideanNorm": "reduce_norm",
}


def tensors(node: NodeDef, inputs: Sequence[Value]) -> list[Tensor]:
    """The operands, all of them tensors. Raises UnsupportedError."""
    if not all(isinstance(value, Tensor) for value in inputs):
        raise UnsupportedError(f"node {shown_value(node.name)} ({node.op}) reads what is no tensor")
    return [value for value in inputs if isinstance(value, Tensor)]


def elementwise(kind: str) -> Operator:
    """An operator with NumPy's broadcasting."""

    def compute(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
        given = tensors(node, inputs)
        shape = given[0].shape if kind in _FIRST_DECIDES else broadcast([t.shape for t in given], node.op)
        if kind == "where" and len(given[0].shape) == 1 and len(given[1].shape) > 1:
            shape = given[1].shape  # Select chooses rows
        constant = run.constant_expression(kind, node.op, given, shape)
        if constant is not None:
            return [constant]
        dtype = "bool" if kind in _BOOLEAN else given[-1].dtype if kind == "where" else given[0].dtype
        return [run.program.one(kind, node.op, given, shape, dtype, "each")]

    return compute


def cast(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Cast and Bitcast of equal widths."""
    (x,) = tensors(node, inputs)
    dtype = node.attributes.dtype("DstT", node.attributes.dtype("type", x.dtype))
    if dtype == x.dtype:
        return [x]
    if x.constant or x.role == FOLDED:
        found = run.constant_expression("cast", node.op, [x], x.shape)
        if found is not None:
            found.dtype = dtype
            return [found]
    return [run.program.one("cast", node.op, [x], x.shape, dtype, "each")]


def matmul(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """MatMul, BatchMatMul and their versions."""
    a, b = tensors(node, inputs[:2])
    b = run.weight(b)
    first = node.attributes.flag("transpose_a") or node.attributes.flag("adj_x")
    second = node.attributes.flag("transpose_b") or node.attributes.flag("adj_y")
    if min(len(a.shape), len(b.shape)) < 2:
        raise ShapeError(f"node {shown_value(node.name)} is a product of {a.shape} by {b.shape}")
    rows, length = (a.shape[-1], a.shape[-2]) if first else a.shape[-2:]
    found, columns = b.shape[::-1][:2] if second else b.shape[-2:]
    if found != length:
        raise ShapeError(f"node {shown_value(node.name)} is a product of {a.shape} by {b.shape}, which do not fit")
    shape = (*broadcast([a.shape[:-2], b.shape[:-2]], node.op), rows, columns)
    dense = b.constant and len(b.shape) == 2 and not first
    attributes = {key: 1 for key, there in (("transpose_a", first), ("transpose_b", second)) if there}
    dtype = node.attributes.dtype("Tout", a.dtype)
    return [run.program.one("dense" if dense else "matmul", node.op, [a, b], shape, dtype, columns=attributes)]


def einsum(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Einsum of one operand or two."""
    given = tensors(node, inputs)
    equation = node.attributes.text("equation")
    if len(given) != 2:
        raise UnsupportedError(f"node {shown_value(node.name)} is an einsum of {len(given)} operands; two are read")
    a, b = given
    if a.constant and not b.constant:  # the weight stands second
        left, _, rest = equation.partition(",")
        right, _, out = rest.partition("->")
        a, b, equation = b, a, f"{right},{left}->{out}"
    return [contraction(run.program, node.op, equation, a, run.weight(b))]


def _last(node: NodeDef) -> bool:
    form = node.attributes.text("data_format", "NHWC")
    if form not in ("NHWC", "NDHWC", "NCHW", "NCDHW", "NWC", "NCW"):
        raise UnsupportedError(f"node {shown_value(node.name)} has images as {shown_value(form)}, which is not read")
    return form.endswith("C")


def _spatial(node: NodeDef, name: str, rank: int, last: bool) -> list[int]:
    """The spatial entries of an attribute with one number for each axis."""
    values = node.attributes.integers(name) or [1] * (rank + 2)
    if len(values) != rank + 2 or any(not 1 <= v < 2**31 for v in values):
        raise ShapeError(f"node {shown_value(node.name)} has {name} {values[:8]} for images of {rank} axes")
    return values[1:-1] if last else values[2:]


def _padding(node: NodeDef, last: bool) -> str | Pads:
    how = node.attributes.text("padding", "VALID")
    if how != "EXPLICIT":
        return how.lower()
    cells = node.attributes.integers("explicit_paddings")
    pairs = list(zip(cells[::2], cells[1::2], strict=False))
    return pairs[1:-1] if last else pairs[2:]


def conv(depthwise: bool) -> Operator:
    """Conv2D, Conv3D and DepthwiseConv2dNative."""

    def compute(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
        x, kernel = tensors(node, inputs[:2])
        last, rank = _last(node), len(x.shape) - 2
        return [
            convolution(
                run.program,
                node.op,
                x,
                run.weight(kernel),
                None,
                strides=_spatial(node, "strides", rank, last),
                dilations=_spatial(node, "dilations", rank, last),
                padding=_padding(node, last),
                depthwise=depthwise,
                last=last,
            )
        ]

    return compute


def fused_conv(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """_FusedConv2D and _FusedMatMul of an optimised graph: a bias and an activation behind."""
    product = (matmul if "MatMul" in node.op else conv("Depthwise" in node.op))(run, node, inputs[:2])[0]
    assert isinstance(product, Tensor)
    fused = [t for t in inputs[2:] if isinstance(t, Tensor)]
    if fused:
        run.program.nodes[-1].inputs.append(fused[0])
    return [product]


def conv_transpose(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Conv2DBackpropInput and Conv3DBackpropInput, by which TensorFlow writes transposed convolutions."""
    sizes = run.integers(inputs[0], f"the size that node {shown_value(node.name)} gives")
    kernel, x = tensors(node, inputs[1:3])
    last, rank = _last(node), len(x.shape) - 2
    return [
        transposed(
            run.program,
            node.op,
            x,
            run.weight(kernel),
            None,
            sizes[1:-1] if last else sizes[2:],
            strides=_spatial(node, "strides", rank, last),
            dilations=_spatial(node, "dilations", rank, last),
            last=last,
        )
    ]


def pooled(kind: str) -> Operator:
    """MaxPool, AvgPool, and their forms for volumes."""

    def compute(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
        x = tensors(node, inputs[:1])[0]
        last, rank = _last(node), len(x.shape) - 2
        found = pool(
            run.program,
            kind,
            node.op,
            x,
            kernel=_spatial(node, "ksize", rank, last),
            strides=_spatial(node, "strides", rank, last),
            padding=_padding(node, last),
            last=last,
        )
        if node.op != "MaxPoolWithArgmax":
            return [found]
        at = run.program.tensor(found.shape, node.attributes.dtype("Targmax", "int64"))
        run.program.nodes[-1].outputs.append(at)
        return [found, at]

    return compute


def batch_norm(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """FusedBatchNorm of an inference; statistics of a batch are as large as the factors."""
    x, *factors = tensors(node, inputs[:5])
    layout = IMAGE if _last(node) else ROWS
    found = run.program.one("batch_norm", node.op, [x, *(run.weight(f) for f in factors)], x.shape, layout=layout)
    return [found, *[run.program.tensor(f.shape, f.dtype, "literal") for f in (*factors, factors[0])]]


def bias_add(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """BiasAdd along the channels."""
    x, bias = tensors(node, inputs)
    if len(bias.shape) != 1 or (x.shape[-1] if _last(node) else x.shape[1]) != bias.shape[0]:
        raise ShapeError(f"node {shown_value(node.name)} adds {bias.shape} to {x.shape}")
    return [run.program.one("add", node.op, [x, bias], x.shape, layout="each" if _last(node) else ROWS)]


def along(kind: str, axis: int | None = -1, dtype: str | None = None) -> Operator:
    """An operator along an axis that keeps the shape: the axis given, or the second operand."""

    def compute(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
        x = tensors(node, inputs[:1])[0]
        at = run.integers(inputs[1], f"an axis of node {shown_value(node.name)}")[-1] if axis is None else axis
        rank = len(x.shape)
        return [run.program.one(kind, node.op, [x], x.shape, dtype, AXIS, axis=at % rank if rank else 0)]

    return compute


def reduction(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """Sum, Mean, Max and the like over axes that are an operand."""
    x = tensors(node, inputs[:1])[0]
    axes = run.integers(inputs[1], f"the axes of node {shown_value(node.name)}")
    keep = node.attributes.flag("keep_dims")
    if x.role == FOLDED:
        x = run.weight(x)
    return [reduced(run.program, _REDUCTIONS[node.op], node.op, x, axes, keep)]


def arg_reduction(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """ArgMax and ArgMin."""
    x = tensors(node, inputs[:1])[0]
    axis = run.integer(inputs[1], f"the axis of node {shown_value(node.name)}")
    return [
        reduced(run.program, "arg_reduce", node.op, x, [axis], False, node.attributes.dtype("output_type", "int64"))
    ]


def l2_loss(run: Run, node: NodeDef, inputs: list[Value]) -> list[Value]:
    """L2Loss."""
    x = tensors(node, inputs)[0]
    return [run.program.one("reduce_norm", node.op, [x], ())]


COMPUTE: dict[str, Operator] = {
    **{name: elementwise(kind) for kind, names in _ELEMENTWISE.items() for name in names.split()},
    **dict.fromkeys(_REDUCTIONS, reduction),
    **dict.fromkeys(["MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"], matmul),
    **dict.fromkeys(["_FusedConv2D", "_FusedMatMul", "_FusedDepthwiseConv2dNative"], fused_conv),
    **dict.fromkeys(["Conv2DBackpropInput", "Conv3DBackpropInput", "Conv3DBackpropInputV2"], conv_transpose),
    **dict.fromkeys(["MaxPool", "MaxPoolV2", "MaxPool3D", "MaxPoolWithArgmax"], pooled("max_pool")),
    **dict.fromkeys(["AvgPool", "AvgPool3D"], pooled("avg_pool")),
    **dict.fromkeys(["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"], batch_norm),
    **dict.fromkeys(["ArgMax", "ArgMin"], arg_reduction),
    "Conv2D": conv(False),
    "Conv3D": conv(False),
    "DepthwiseConv2dNative": conv(True),
    "Einsum": einsum,
    "XlaEinsum": einsum,
    "BiasAdd": bias_add,
    "BiasAddV1": bias_add,
    "Cast": cast,
    "Softmax": along("softmax"),
    "LogSoftmax": along("log_softmax"),
    "LRN": along("lrn"),
    "Cumsum": along("cumulative", None),
    "Cumprod": along("cumulative", None),
    "ReverseV2": along("reverse", None),
    "Roll": along("roll", 0),
    "MatrixBandPart": along("triangular"),
    "L2Loss": l2_loss,
}
