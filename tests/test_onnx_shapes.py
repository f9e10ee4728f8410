"""Shapes and attributes of ONNX operators agree with ONNX Runtime, with ONNX and with the definitions."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from perfpass.errors import PerfPassError, ShapeError
from perfpass.graph import ATTRIBUTES, DTYPES, OpGraph
from perfpass.importers import onnx as importer

PROPERTY = settings(derandomize=True, max_examples=60, deadline=None)
MICROSOFT = "com.microsoft"
Array = np.ndarray


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, Array], constants: dict[str, Array], opset: int = 21
) -> onnx.ModelProto:
    """A model without any shape but those of its inputs; every result of a node is an output."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output if name]
    initializers = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, outputs, initializers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def found_shapes(graph: OpGraph) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every tensor by name."""
    core = graph.core
    return {
        core.string(int(core.tensor_name[t])): (graph.shape(t), DTYPES[core.tensor_dtype[t]])
        for t in range(graph.tensor_count)
    }


def attributes_of(graph: OpGraph, node: int = 0) -> dict[str, int]:
    return dict(zip(ATTRIBUTES, (int(v) for v in graph.attributes[node]), strict=True))


def run(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array] | None:
    """Results by ONNX Runtime, node by node as the model says; None where it refuses the model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = session.run(None, inputs)
    except Exception:
        return None
    return {o.name: r for o, r in zip(session.get_outputs(), results, strict=True)}


COMPARED = {"runs": 0}


@pytest.fixture(autouse=True)
def something_was_compared(request: pytest.FixtureRequest):
    """A test whose every model ONNX Runtime refuses would show nothing."""
    before = COMPARED["runs"]
    yield
    assert COMPARED["runs"] > before or "run" not in request.node.name


def check(
    nodes: list[onnx.NodeProto] | onnx.NodeProto,
    inputs: dict[str, Array],
    constants: dict[str, Array] | None = None,
    opset: int = 21,
) -> OpGraph | None:
    """Shapes and types equal those of a run. What ONNX Runtime refuses may be refused, in one typed error."""
    model = model_of(nodes if isinstance(nodes, list) else [nodes], inputs, constants or {}, opset)
    expected = run(model, inputs)
    if expected is None:
        try:
            return importer.read(model)
        except PerfPassError:
            return None
    COMPARED["runs"] += 1
    try:
        graph = importer.read(model)
    except ShapeError as error:  # a window larger than its padded input runs there, on nothing; it is refused here
        assert "needs an input at least as large" in str(error)
        return None
    found = found_shapes(graph)
    for name, result in expected.items():
        assert found[name] == (result.shape, str(result.dtype)), (name, str(model.graph.node))
    return graph


def node(op: str, inputs: list[str], outputs: int = 1, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    names = [f"y{i}" for i in range(outputs)]
    return helper.make_node(op, inputs, names, domain=domain, **{k: v for k, v in attributes.items() if v is not None})


def f32(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


# --- windows ---


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 3))
    each = lambda low, high: draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))  # noqa: E731
    auto = draw(st.sampled_from([None, None, "SAME_UPPER", "SAME_LOWER", "VALID"]))
    kernel = each(1, 4)
    pads = [min(draw(st.integers(0, 2)), k - 1) for k in kernel + kernel]
    return {
        "extent": each(1, 11),
        "kernel": kernel,
        "strides": draw(st.sampled_from([None, each(1, 3)])),
        "dilations": draw(st.sampled_from([None, each(1, 2)])),
        "pads": pads if auto is None and draw(st.booleans()) else None,
        "auto_pad": auto,
    }


@PROPERTY
@given(windows(), st.integers(1, 3), st.sampled_from([1, 2]), st.booleans())
def test_convolutions_have_the_shape_that_runs(w: dict[str, Any], batch: int, groups: int, named: bool) -> None:
    x, weight = f32(batch, 4, *w["extent"]), f32(6, 4 // groups, *w["kernel"])
    keys = {k: w[k] for k in ("strides", "dilations", "pads", "auto_pad")}
    kernel = w["kernel"] if named else None
    graph = check(node("Conv", ["x", "w"], group=groups, kernel_shape=kernel, **keys), {"x": x}, {"w": weight})
    if graph is not None:
        found = attributes_of(graph)
        rank = len(w["kernel"])
        assert [found[f"kernel_{i}"] for i in range(rank)] == w["kernel"]
        assert [found[f"stride_{i}"] for i in range(rank)] == (w["strides"] or [1] * rank)
        assert (found["groups"], found["spatial_rank"]) == (groups, rank)
        # The resolved padding explains the output.
        for i, out in enumerate(graph.shape(int(graph.node_outputs(0)[0]))[2:]):
            reach = (w["kernel"][i] - 1) * found[f"dilation_{i}"] + 1
            room = w["extent"][i] + found[f"pad_begin_{i}"] + found[f"pad_end_{i}"] - reach
            assert out == room // found[f"stride_{i}"] + 1


@PROPERTY
@given(windows(), st.sampled_from([1, 2]), st.booleans(), st.data())
def test_transposed_convolutions_have_the_shape_that_runs(
    w: dict[str, Any], groups: int, extra: bool, data: st.DataObject
) -> None:
    assume(len(w["kernel"]) < 3)
    x, weight = f32(2, 4, *w["extent"]), f32(4, 3, *w["kernel"])
    rank = len(w["kernel"])
    strides = w["strides"] or [1] * rank
    padding = [data.draw(st.integers(0, s - 1)) for s in strides] if extra else None
    keys = {k: w[k] for k in ("strides", "dilations", "pads", "auto_pad")}
    graph = check(
        node("ConvTranspose", ["x", "w"], group=groups, output_padding=padding, **keys), {"x": x}, {"w": weight}
    )
    if graph is not None:
        assert attributes_of(graph)["weight_layout"] == 2


@PROPERTY
@given(windows(), st.sampled_from(["MaxPool", "AveragePool", "LpPool"]), st.booleans())
def test_poolings_have_the_shape_that_runs(w: dict[str, Any], op: str, ceil_mode: bool) -> None:
    keys = {k: w[k] for k in ("strides", "dilations", "pads", "auto_pad")}
    # ONNX Runtime forgets the dilation where it pads automatically; ONNX does not.
    assume(w["dilations"] is None or w["auto_pad"] not in ("SAME_UPPER", "SAME_LOWER"))
    outputs = 2 if op == "MaxPool" else 1
    pool = node(op, ["x"], outputs, kernel_shape=w["kernel"], ceil_mode=int(ceil_mode), **keys)
    check(pool, {"x": f32(1, 2, *w["extent"])})


# --- elements chosen and moved ---


@PROPERTY
@given(st.data())
def test_slices_have_the_shape_and_contents_that_run(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True, min_size=1))
    bound = st.one_of(st.integers(-9, 9), st.sampled_from([-(2**63), 2**63 - 1, -(2**63) + 1]))
    pick = lambda of: [data.draw(of) for _ in axes]  # noqa: E731
    starts, ends = pick(bound), pick(bound)
    steps = pick(st.sampled_from([1, 1, 2, 3, -1, -2, 2**62, -(2**62)]))
    signed = [a - len(shape) if data.draw(st.booleans()) else a for a in axes]
    constants = {"s": i64(*starts), "e": i64(*ends), "a": i64(*signed), "t": i64(*steps)}
    check(node("Slice", ["x", "s", "e", "a", "t"]), {"x": f32(*shape)}, constants)
    if len(shape) == 1:  # the same on contents: a shape sliced and then used
        known = {"d": np.arange(1, shape[0] + 1, dtype=np.int64), "v": f32(1), **constants}
        nodes = [node("Slice", ["d", "s", "e", "a", "t"]), helper.make_node("Expand", ["x", "y0"], ["z"])]
        check(nodes, {"x": f32(1)}, known)


@PROPERTY
@given(st.data())
def test_reshapes_have_the_shape_that_runs(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=0, max_size=4))
    target = data.draw(st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4, 6, 8, 12]), max_size=4))
    allow = data.draw(st.booleans())
    check(node("Reshape", ["x", "t"], allowzero=int(allow)), {"x": f32(*shape)}, {"t": np.array(target, np.int64)})


@PROPERTY
@given(st.data())
def test_pads_tiles_and_transposes_have_the_shape_that_runs(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    rank = len(shape)
    pads = data.draw(st.lists(st.integers(-1, 3), min_size=2 * rank, max_size=2 * rank))
    check(node("Pad", ["x", "p"]), {"x": f32(*shape)}, {"p": i64(*pads)})
    check(node("Pad", ["x"], pads=pads), {"x": f32(*shape)}, opset=10)
    repeats = data.draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))
    check(node("Tile", ["x", "r"]), {"x": f32(*shape)}, {"r": i64(*repeats)})
    perm = data.draw(st.permutations(range(rank)))
    check(node("Transpose", ["x"], perm=perm), {"x": f32(*shape)})
    check(node("Transpose", ["x"]), {"x": f32(*shape)})


@PROPERTY
@given(st.data())
def test_axes_are_squeezed_added_and_flattened_as_run(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=4))
    rank = len(shape)
    ones = [i - rank * data.draw(st.integers(0, 1)) for i, d in enumerate(shape) if d == 1]
    axes = {"a": i64(*ones)}
    check(node("Squeeze", ["x", "a"] if ones else ["x"]), {"x": f32(*shape)}, axes if ones else {})
    check(node("Squeeze", ["x"], axes=ones or None), {"x": f32(*shape)}, opset=11)
    added = data.draw(
        st.lists(st.integers(-rank - 2, rank + 1), min_size=1, max_size=2, unique_by=lambda a: a % (rank + 2))
    )
    if len(added) == 2:
        check(node("Unsqueeze", ["x", "a"]), {"x": f32(*shape)}, {"a": i64(*added)})
        check(node("Unsqueeze", ["x"], axes=added), {"x": f32(*shape)}, opset=12) if min(added) >= 0 else None
    check(node("Flatten", ["x"], axis=data.draw(st.integers(-rank, rank))), {"x": f32(*shape)})


@PROPERTY
@given(st.data())
def test_gathers_have_the_shape_that_runs(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    index = data.draw(st.lists(st.integers(0, 3), max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    zeros = np.zeros(index, np.int64)
    check(node("Gather", ["x", "i"], axis=axis), {"x": f32(*shape), "i": zeros})
    batch = data.draw(st.integers(0, min(len(shape), max(len(index), 1)) - 1))
    lead = shape[:batch] + data.draw(st.lists(st.integers(1, 3), max_size=2))
    depth = data.draw(st.integers(1, len(shape) - batch))
    check(node("GatherND", ["x", "i"], batch_dims=batch), {"x": f32(*shape), "i": np.zeros([*lead, depth], np.int64)})
    k = data.draw(st.integers(0, shape[axis]))
    check(node("TopK", ["x", "k"], 2, axis=axis), {"x": f32(*shape)}, {"k": i64(k)})
    check(node("OneHot", ["i", "d", "v"], axis=-1), {"i": zeros}, {"d": i64(5), "v": f32(2)})
    check(node("GatherElements", ["x", "i"], axis=axis), {"x": f32(*shape), "i": np.zeros(shape, np.int64)})


@PROPERTY
@given(st.data())
def test_concatenations_and_splits_have_the_shape_that_runs(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    other = list(shape)
    other[axis] = data.draw(st.integers(0, 3))
    check(node("Concat", ["x", "z", "x"], axis=axis), {"x": f32(*shape), "z": f32(*other)})
    parts = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    whole = list(shape)
    whole[axis] = sum(parts)
    check(node("Split", ["x", "s"], len(parts), axis=axis), {"x": f32(*whole)}, {"s": i64(*parts)})
    check(node("Split", ["x"], len(parts), axis=axis, split=parts), {"x": f32(*whole)}, opset=11)
    check(node("Split", ["x"], len(parts), axis=axis, num_outputs=len(parts)), {"x": f32(*shape)})


# --- broadcasting, products, reductions ---


@st.composite
def broadcastable(draw: st.DrawFn, count: int) -> list[list[int]]:
    full = draw(st.lists(st.integers(0, 4), max_size=4))
    shapes = []
    for _ in range(count):
        part = full[draw(st.integers(0, len(full))) :]
        shapes.append([1 if draw(st.booleans()) else d for d in part])
    return shapes


@PROPERTY
@given(broadcastable(3), st.sampled_from(["Add", "Div", "Pow", "Max"]), st.sampled_from(["Less", "Equal"]))
def test_elementwise_operators_broadcast_as_run(shapes: list[list[int]], op: str, comparison: str) -> None:
    a, b, c = (f32(*s) for s in shapes)
    check(node(op, ["a", "b"]), {"a": a, "b": b})
    check(node(comparison, ["a", "b"]), {"a": a, "b": b})
    check(node("Where", ["a", "b", "c"]), {"a": a > 0, "b": b, "c": c})
    check(node("Expand", ["a", "s"]), {"a": a}, {"s": np.array(b.shape, np.int64)})


@PROPERTY
@given(broadcastable(2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.sampled_from([0, 1, 2, 3]))
def test_matrix_products_have_the_shape_that_runs(lead: list[list[int]], m: int, k: int, n: int, vectors: int) -> None:
    a = f32(k) if vectors & 1 else f32(*lead[0], m, k)
    b = f32(k) if vectors & 2 else f32(*lead[1], k, n)
    check(node("MatMul", ["a", "b"]), {"a": a, "b": b})
    if not vectors:
        check(node("Gemm", ["a", "b"], transA=1, transB=1), {"a": f32(k, m), "b": f32(n, k)})
        check(node("FusedMatMul", ["a", "b"], domain=MICROSOFT, transA=1), {"a": f32(*lead[0], k, m), "b": b})
        integers = {"a": a.astype(np.uint8), "b": b.astype(np.uint8)}
        check(node("MatMulInteger", ["a", "b"]), integers)


@pytest.mark.parametrize(
    ("equation", "shapes", "contraction"),
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)], 5),
        ("ij,jk", [(2, 3), (3, 4)], 3),
        ("...ij,...jk->...ik", [(5, 2, 3), (1, 3, 4)], 3),
        ("ii->i", [(3, 3)], 1),
        ("ij->", [(3, 4)], 12),
        ("b i , b j -> i j", [(7, 2), (7, 3)], 7),
        ("abc,cd,de->abe", [(2, 3, 4), (4, 5), (5, 6)], 20),
        ("...,...->...", [(2, 1), (1, 3)], 1),
        ("Aa,aB->AB", [(2, 3), (3, 4)], 3),
        ("bhwij,bwhjk", [(2, 2, 2, 3, 4), (2, 2, 2, 4, 3)], 32),
    ],
)
def test_einsum_gives_shape_and_contraction(equation: str, shapes: list[tuple[int, ...]], contraction: int) -> None:
    names = [f"x{i}" for i in range(len(shapes))]
    graph = check(node("Einsum", names, equation=equation), dict(zip(names, (f32(*s) for s in shapes), strict=True)))
    assert graph is not None and attributes_of(graph)["contraction"] == contraction


@PROPERTY
@given(st.data())
def test_reductions_have_the_shape_that_runs(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), max_size=rank, unique_by=lambda a: a % rank))
    keep = int(data.draw(st.booleans()))
    noop = int(data.draw(st.booleans()))
    for op in ("ReduceSum", "ReduceMax", "ReduceL2"):
        check(
            node(op, ["x", "a"], keepdims=keep, noop_with_empty_axes=noop),
            {"x": f32(*shape)},
            {"a": np.array(axes, np.int64)},
        )
    check(node("ReduceMean", ["x"], keepdims=keep, axes=axes or None), {"x": f32(*shape)}, opset=13)
    axis = data.draw(st.integers(-rank, rank - 1))
    check(node("ArgMax", ["x"], axis=axis, keepdims=keep), {"x": f32(*shape)})
    graph = check(node("Softmax", ["x"], axis=axis), {"x": f32(*shape)})
    assert graph is not None and attributes_of(graph)["axis"] == axis % rank


# --- resizing ---


@PROPERTY
@given(st.data())
def test_resizes_have_the_shape_that_runs(data: st.DataObject) -> None:
    shape = [1, 2, data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20))]
    mode = data.draw(st.sampled_from(["nearest", "linear", "cubic"]))
    scale = st.sampled_from([0.3, 0.5, 0.7, 1.0, 1.1, 1.5, 2.0, 2.3, 3.3, 4.0, 1 / 3])
    scales = np.array([1, 1, data.draw(scale), data.draw(scale)], np.float32)
    check(node("Resize", ["x", "", "s"], mode=mode), {"x": f32(*shape)}, {"s": scales})
    check(node("Resize", ["x", "s"], mode="nearest"), {"x": f32(*shape)}, {"s": scales}, opset=10)
    sizes = i64(data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30)))
    policy = data.draw(st.sampled_from(["stretch", "not_larger", "not_smaller"]))
    resize = node("Resize", ["x", "", "", "z"], mode=mode, axes=[2, 3], keep_aspect_ratio_policy=policy)
    check(resize, {"x": f32(*shape)}, {"z": sizes})


# --- contents of shape arithmetic ---

INTEGERS = st.integers(-40, 40)


@PROPERTY
@given(st.lists(INTEGERS, min_size=1, max_size=5), st.data())
def test_integer_arithmetic_on_contents_is_that_of_a_run(values: list[int], data: st.DataObject) -> None:
    a = np.array(values, np.int64)
    b = np.array(data.draw(st.lists(INTEGERS.filter(bool), min_size=len(values), max_size=len(values))), np.int64)
    chains = {
        "Add": ["a", "b"],
        "Sub": ["a", "b"],
        "Mul": ["a", "b"],
        "Div": ["a", "b"],
        "Mod": ["a", "b"],
        "Max": ["a", "b"],
        "Min": ["a", "b"],
        "Neg": ["a"],
        "Abs": ["a"],
        "Sign": ["a"],
        "CumSum": ["a", "zero"],
        "ReduceSum": ["a", "axes"],
        "ReduceMax": ["a", "axes"],
        "ReduceProd": ["a", "axes"],
        "Greater": ["a", "b"],
        "Equal": ["a", "b"],
        "ArgMax": ["a"],
        "Transpose": ["a"],
        "NonZero": ["a"],
    }
    constants = {"a": a, "b": b, "zero": np.array(0, np.int64), "axes": i64(0), "low": i64(0), "high": i64(50)}
    nodes = []
    for op, names in chains.items():
        # A result becomes a shape, and so visible: it is brought into 0..50 and expands a single element to it.
        steps = [("Cast", [f"{op}_r"], {"to": TensorProto.INT64}), ("Clip", None, {}), ("Reshape", None, {})]
        nodes.append(helper.make_node(op, names, [f"{op}_r"]))
        nodes.append(helper.make_node(steps[0][0], steps[0][1], [f"{op}_c"], to=TensorProto.INT64))
        nodes.append(helper.make_node("Max", [f"{op}_c", "low"], [f"{op}_m"]))
        nodes.append(helper.make_node("Min", [f"{op}_m", "high"], [f"{op}_n"]))
        nodes.append(helper.make_node("Reshape", [f"{op}_n", "flat"], [f"{op}_f"]))
        nodes.append(helper.make_node("ReduceMax", [f"{op}_f", "axes"], [f"{op}_x"]))
        nodes.append(helper.make_node("Range", ["start", f"{op}_q", "one"], [f"{op}_s"]))
        nodes.insert(-1, helper.make_node("Squeeze", [f"{op}_x"], [f"{op}_q"]))
    constants |= {"flat": i64(-1), "start": np.array(0, np.int64), "one": np.array(1, np.int64)}
    nodes.append(helper.make_node("Relu", ["x"], ["kept"]))
    check(nodes, {"x": f32(1)}, constants)


# --- com.microsoft and quantized operators ---


def u8(*shape: int) -> Array:
    return np.ones(shape, np.uint8)


def i8(*shape: int) -> Array:
    return np.ones(shape, np.int8)


SCALE = {"s": np.array(0.5, np.float32), "z": np.array(3, np.uint8)}
LSTM = {"W": i8(2, 5, 16), "R": i8(2, 4, 16), "ws": f32(2), "wz": i8(2), "rs": f32(2), "rz": i8(2)}

CASES: dict[str, tuple[onnx.NodeProto, dict[str, Array], dict[str, Array]]] = {
    "QuantizeLinear": (node("QuantizeLinear", ["x", "s", "z"]), {"x": f32(2, 3)}, SCALE),
    "DequantizeLinear": (node("DequantizeLinear", ["x", "s", "z"]), {"x": u8(2, 3)}, SCALE),
    "QuantizeLinear output_dtype": (node("QuantizeLinear", ["x", "s"], output_dtype=3), {"x": f32(2, 3)}, SCALE),
    "DynamicQuantizeLinear": (node("DynamicQuantizeLinear", ["x"], 3), {"x": f32(2, 3)}, {}),
    "QLinearConv": (
        node("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], pads=[1, 1, 1, 1], strides=[2, 2]),
        {"x": u8(1, 3, 9, 8)},
        {"w": u8(4, 3, 3, 3), **SCALE},
    ),
    "QLinearConv channels last": (
        node("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], domain=MICROSOFT, channels_last=1),
        {"x": u8(1, 9, 8, 3)},
        {"w": u8(4, 3, 3, 3), **SCALE},
    ),
    "ConvInteger": (node("ConvInteger", ["x", "w"], pads=[1, 1, 1, 1]), {"x": u8(1, 3, 9, 8)}, {"w": u8(4, 3, 3, 3)}),
    "QLinearMatMul": (
        node("QLinearMatMul", ["a", "s", "z", "b", "s", "z", "s", "z"]),
        {"a": u8(2, 3, 4)},
        {"b": u8(4, 5), **SCALE},
    ),
    "QGemm": (
        node("QGemm", ["a", "s", "z", "b", "s", "z", "", "s", "z"], domain=MICROSOFT, transB=1),
        {"a": u8(3, 4)},
        {"b": u8(5, 4), **SCALE},
    ),
    "QGemm to float": (
        node("QGemm", ["a", "s", "z", "b", "s", "z"], domain=MICROSOFT),
        {"a": u8(3, 4)},
        {"b": u8(4, 5), **SCALE},
    ),
    "MatMulIntegerToFloat": (
        node("MatMulIntegerToFloat", ["a", "b", "s", "s"], domain=MICROSOFT),
        {"a": u8(2, 3, 4)},
        {"b": u8(4, 5), **SCALE},
    ),
    "DynamicQuantizeMatMul": (
        node("DynamicQuantizeMatMul", ["a", "b", "s"], domain=MICROSOFT),
        {"a": f32(2, 3, 4)},
        {"b": u8(4, 5), **SCALE},
    ),
    "QLinearAdd": (
        node("QLinearAdd", ["a", "s", "z", "b", "s", "z", "s", "z"], domain=MICROSOFT),
        {"a": u8(2, 1, 4), "b": u8(3, 1)},
        SCALE,
    ),
    "QLinearMul": (
        node("QLinearMul", ["a", "s", "z", "b", "s", "z", "s", "z"], domain=MICROSOFT),
        {"a": u8(2, 1, 4), "b": u8(3, 1)},
        SCALE,
    ),
    "QLinearConcat": (
        node("QLinearConcat", ["s", "z", "a", "s", "z", "b", "s", "z"], domain=MICROSOFT, axis=-1),
        {"a": u8(2, 3), "b": u8(2, 5)},
        SCALE,
    ),
    "QLinearAveragePool": (
        node(
            "QLinearAveragePool",
            ["x", "s", "z", "s", "z"],
            domain=MICROSOFT,
            kernel_shape=[3, 3],
            strides=[2, 2],
            ceil_mode=1,
        ),
        {"x": u8(1, 2, 8, 9)},
        SCALE,
    ),
    "QLinearGlobalAveragePool": (
        node("QLinearGlobalAveragePool", ["x", "s", "z", "s", "z"], domain=MICROSOFT, channels_last=1),
        {"x": u8(1, 8, 9, 2)},
        SCALE,
    ),
    "QLinearLeakyRelu": (node("QLinearLeakyRelu", ["x", "s", "z", "s", "z"], domain=MICROSOFT), {"x": u8(2, 3)}, SCALE),
    "QLinearSigmoid": (node("QLinearSigmoid", ["x", "s", "z", "s", "z"], domain=MICROSOFT), {"x": u8(2, 3)}, SCALE),
    "QLinearSoftmax": (
        node("QLinearSoftmax", ["x", "s", "z", "s", "z"], domain=MICROSOFT, opset=13),
        {"x": u8(2, 3)},
        SCALE,
    ),
    "QLinearWhere": (
        node("QLinearWhere", ["c", "a", "s", "z", "b", "s", "z", "s", "z"], domain=MICROSOFT),
        {"c": u8(3, 1) > 0, "a": u8(2, 1, 4), "b": u8(1)},
        SCALE,
    ),
    "MatMulNBits": (
        node("MatMulNBits", ["a", "b", "s"], domain=MICROSOFT, K=64, N=6, bits=4, block_size=32),
        {"a": f32(2, 3, 64)},
        {"b": u8(6, 2, 16), "s": f32(12)},
    ),
    "GatherBlockQuantized": (
        node(
            "GatherBlockQuantized",
            ["d", "i", "s"],
            domain=MICROSOFT,
            bits=8,
            block_size=16,
            gather_axis=0,
            quantize_axis=1,
        ),
        {"i": np.zeros((2, 3), np.int64)},
        {"d": u8(7, 32), "s": f32(7, 2)},
    ),
    "DynamicQuantizeLSTM": (
        node(
            "DynamicQuantizeLSTM",
            ["x", "W", "R", "", "", "", "", "", "ws", "wz", "rs", "rz"],
            3,
            domain=MICROSOFT,
            hidden_size=4,
            direction="bidirectional",
        ),
        {"x": f32(6, 2, 5)},
        LSTM,
    ),
    "FusedConv": (
        node("FusedConv", ["x", "w"], domain=MICROSOFT, activation="Relu", auto_pad="SAME_UPPER", strides=[2, 2]),
        {"x": f32(1, 3, 9, 8)},
        {"w": f32(4, 3, 3, 3)},
    ),
    "FusedGemm": (
        node("FusedGemm", ["a", "b"], domain=MICROSOFT, activation="Relu", transA=1),
        {"a": f32(4, 3)},
        {"b": f32(4, 5)},
    ),
    "FusedMatMul with batch transposed": (
        node("FusedMatMul", ["a", "b"], domain=MICROSOFT, transBatchA=1, transB=1),
        {"a": f32(3, 2, 4)},
        {"b": f32(2, 5, 4)},
    ),
    "Attention": (
        node("Attention", ["x", "w", "b", "", "p"], 2, domain=MICROSOFT, num_heads=2, unidirectional=1),
        {"x": f32(2, 3, 8), "p": f32(2, 2, 2, 5, 4)},
        {"w": f32(8, 24), "b": f32(24)},
    ),
    "QAttention": (
        node("QAttention", ["x", "w", "b", "s", "s", "", "z", "z"], domain=MICROSOFT, num_heads=2),
        {"x": u8(2, 3, 8)},
        {"w": u8(8, 24), "b": f32(24), **SCALE},
    ),
    "MultiHeadAttention": (
        node("MultiHeadAttention", ["q", "k", "v"], domain=MICROSOFT, num_heads=2),
        {"q": f32(2, 3, 8), "k": f32(2, 5, 8), "v": f32(2, 5, 6)},
        {},
    ),
    "MultiHeadAttention with past": (
        node("MultiHeadAttention", ["q", "k", "v", "", "", "", "pk", "pv"], 3, domain=MICROSOFT, num_heads=2),
        {"q": f32(2, 3, 8), "k": f32(2, 3, 8), "v": f32(2, 3, 8), "pk": f32(2, 2, 7, 4), "pv": f32(2, 2, 7, 4)},
        {},
    ),
    "GroupQueryAttention": (
        node(
            "GroupQueryAttention",
            ["q", "k", "v", "pk", "pv", "l", "t"],
            3,
            domain=MICROSOFT,
            num_heads=4,
            kv_num_heads=2,
        ),
        {"q": f32(1, 1, 32), "k": f32(1, 1, 16), "v": f32(1, 1, 16), "pk": f32(1, 2, 9, 8), "pv": f32(1, 2, 9, 8)},
        {"l": np.array([9], np.int32), "t": np.array(10, np.int32)},
    ),
    "SkipLayerNormalization": (
        node("SkipLayerNormalization", ["x", "k", "g"], 4, domain=MICROSOFT),
        {"x": f32(2, 3, 8), "k": f32(2, 3, 8)},
        {"g": f32(8)},
    ),
    "SkipSimplifiedLayerNormalization": (
        helper.make_node("SkipSimplifiedLayerNormalization", ["x", "k", "g"], ["y0", "", "", "y3"], domain=MICROSOFT),
        {"x": f32(2, 3, 8), "k": f32(2, 3, 8)},
        {"g": f32(8)},
    ),
    "SimplifiedLayerNormalization": (
        node("SimplifiedLayerNormalization", ["x", "g"], axis=-1),
        {"x": f32(2, 3, 8)},
        {"g": f32(8)},
    ),
    "EmbedLayerNormalization": (
        node("EmbedLayerNormalization", ["i", "i", "w", "p", "t", "g", "g"], 2, domain=MICROSOFT),
        {"i": np.zeros((2, 5), np.int32)},
        {"w": f32(9, 8), "p": f32(6, 8), "t": f32(2, 8), "g": f32(8)},
    ),
    "RotaryEmbedding": (
        node("RotaryEmbedding", ["x", "i", "c", "c"], domain=MICROSOFT),
        {"x": f32(2, 2, 3, 8), "i": np.zeros((2, 3), np.int64)},
        {"c": f32(9, 4)},
    ),
    "BiasGelu": (node("BiasGelu", ["x", "b"], domain=MICROSOFT), {"x": f32(2, 3, 8)}, {"b": f32(8)}),
    "FastGelu": (node("FastGelu", ["x", "b"], domain=MICROSOFT), {"x": f32(2, 3, 8)}, {"b": f32(8)}),
    "QuickGelu": (node("QuickGelu", ["x"], domain=MICROSOFT), {"x": f32(2, 3, 8)}, {}),
    "MoE": (
        node("MoE", ["x", "r", "w", "", "v"], domain=MICROSOFT, k=2, activation_type="relu"),
        {"x": f32(5, 8), "r": f32(5, 4)},
        {"w": f32(4, 16, 8), "v": f32(4, 8, 16)},
    ),
    "ExpandDims": (node("ExpandDims", ["x", "a"], domain=MICROSOFT), {"x": f32(2, 3)}, {"a": np.array(-1, np.int32)}),
    "CDist": (node("CDist", ["a", "b"], domain=MICROSOFT), {"a": f32(3, 4), "b": f32(5, 4)}, {}),
    "CropAndResize": (
        node("CropAndResize", ["x", "r", "b", "z"], domain=MICROSOFT),
        {"x": f32(2, 3, 9, 9), "r": f32(4, 4), "b": np.zeros(4, np.int32)},
        {"z": np.array([5, 6], np.int32)},
    ),
    "Inverse": (node("Inverse", ["x"], domain=MICROSOFT), {"x": np.eye(3, dtype=np.float32)[None]}, {}),
    "NGramRepeatBlock": (
        node("NGramRepeatBlock", ["i", "x"], domain=MICROSOFT, ngram_size=2),
        {"i": np.zeros((2, 5), np.int64), "x": f32(2, 9)},
        {},
    ),
    "GRU": (
        node("GRU", ["x", "W", "R"], 2, hidden_size=4, direction="bidirectional"),
        {"x": f32(6, 2, 5)},
        {"W": f32(2, 12, 5), "R": f32(2, 12, 4)},
    ),
    "LSTM batch first": (
        node("LSTM", ["x", "W", "R"], 3, hidden_size=4, layout=0),
        {"x": f32(2, 6, 5)},
        {"W": f32(1, 16, 5), "R": f32(1, 16, 4)},
    ),
    "DFT one-sided": (node("DFT", ["x"], onesided=1), {"x": f32(2, 9, 1)}, {}),
    "STFT": (node("STFT", ["x", "t", "w"]), {"x": f32(2, 40)}, {"t": np.array(4, np.int64), "w": f32(16)}),
    "MaxUnpool": (
        node("MaxUnpool", ["x", "i"], kernel_shape=[2, 2], strides=[2, 2]),
        {"x": f32(1, 1, 3, 2), "i": np.zeros((1, 1, 3, 2), np.int64)},
        {},
    ),
    "RoiAlign": (
        node("RoiAlign", ["x", "r", "b"], output_height=3, output_width=4),
        {"x": f32(1, 2, 9, 9), "r": f32(5, 4), "b": np.zeros(5, np.int64)},
        {},
    ),
    "Col2Im": (node("Col2Im", ["x", "m", "b"]), {"x": f32(1, 5, 5)}, {"m": i64(5, 5), "b": i64(1, 5)}),
    "GridSample": (node("GridSample", ["x", "g"]), {"x": f32(2, 3, 4, 4), "g": f32(2, 5, 6, 2)}, {}),
    "AffineGrid": (node("AffineGrid", ["t", "z"]), {"t": f32(2, 2, 3)}, {"z": i64(2, 3, 5, 6)}),
    "CenterCropPad": (node("CenterCropPad", ["x", "z"], axes=[1, 2]), {"x": f32(2, 3, 4)}, {"z": i64(5, 2)}),
    "Attention of ai.onnx": (
        node("Attention", ["q", "k", "v", "", "pk", "pv"], 3, q_num_heads=4, kv_num_heads=2),
        {"q": f32(2, 3, 32), "k": f32(2, 5, 16), "v": f32(2, 5, 16), "pk": f32(2, 2, 7, 8), "pv": f32(2, 2, 7, 8)},
        {},
    ),
    "RMSNormalization": (node("RMSNormalization", ["x", "g"]), {"x": f32(2, 3, 8)}, {"g": f32(8)}),
    "LayerNormalization": (node("LayerNormalization", ["x", "g"], 3, axis=1), {"x": f32(2, 3, 8)}, {"g": f32(3, 8)}),
}
"""Opset 21, but for the operators that came later."""
LATER = {"Attention of ai.onnx": 23, "RMSNormalization": 23}


@pytest.mark.parametrize("case", sorted(CASES))
def test_operators_of_one_case_have_the_shape_that_runs(case: str) -> None:
    one, inputs, constants = CASES[case]
    graph = check(one, inputs, constants, LATER.get(case, 21))
    assert graph is not None and graph.op_name(0) != "unknown"


# --- the vocabulary ---

WITHOUT_COUNTERPART = {
    "ImageDecoder": "decodes JPEG and other files; its result depends on the file's bytes",
}


def test_every_standard_operator_has_a_canonical_counterpart() -> None:
    """All of ai.onnx that is not deprecated, but for what is listed with a reason."""
    missing = set()
    for schema in onnx.defs.get_all_schemas():
        if schema.domain != "" or schema.deprecated or schema.name in ("If", "Loop", "Scan", "Constant"):
            continue
        one = helper.make_node(schema.name, ["x"] * max(1, schema.min_input), ["y"])
        # With every shape declared the operator is named without its inference, which would miss attributes here.
        info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 1, 1]) for n in ("x", "y")]
        graph = helper.make_graph([one], "g", info[:1], info[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)], ir_version=10)
        try:
            known = importer.read(model).op_name(0) != "unknown"
        except ShapeError:  # a required attribute is missing: the operator is known
            known = True
        if not known:
            missing.add(schema.name)
    assert missing == set(WITHOUT_COUNTERPART)


def test_views_move_nothing_and_copies_do() -> None:
    x, target, axes = f32(1, 3), i64(3, 1), i64(0)
    expected = {"Reshape": 1, "Squeeze": 1, "Unsqueeze": 1, "Flatten": 1, "Identity": 1, "Transpose": 0, "Relu": 0}
    second = {"Reshape": target, "Squeeze": axes, "Unsqueeze": axes}
    for op, view in expected.items():
        constants = {"c": second[op]} if op in second else {}
        graph = importer.read(model_of([node(op, ["x", *constants])], {"x": x}, constants))
        assert attributes_of(graph)["view"] == view, op


def test_attributes_of_few_bit_weights_and_heads_are_read() -> None:
    one, inputs, constants = CASES["MatMulNBits"]
    found = attributes_of(importer.read(model_of([one], inputs, constants)))
    assert (found["weight_bits"], found["block_size"]) == (4, 32)
    one, inputs, constants = CASES["GroupQueryAttention"]
    found = attributes_of(importer.read(model_of([one], inputs, constants)))
    assert (found["num_heads"], found["num_kv_heads"], found["causal"]) == (4, 2, 1)
    one, inputs, constants = CASES["DynamicQuantizeLSTM"]
    found = attributes_of(importer.read(model_of([one], inputs, constants)))
    assert (found["hidden_size"], found["directions"]) == (4, 2)


# --- whole exports ---


class Windows(torch.nn.Module):
    """Shape arithmetic as exporters write it: padding to a multiple, windows and back, split heads, a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Conv2d(3, 16, 4, stride=4)
        self.token = torch.nn.Parameter(torch.zeros(1, 1, 16))
        self.qkv = torch.nn.Linear(16, 48)
        self.recurrent = torch.nn.LSTM(16, 8, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 3, height, width] to [batch, tokens + 1, 16]."""
        x = self.embed(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        x = torch.nn.functional.pad(x, (0, 0, 0, (4 - w % 4) % 4, 0, (4 - h % 4) % 4))
        h, w = x.shape[1], x.shape[2]
        x = x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(x).reshape(-1, 16, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        x = (torch.softmax(q @ k.transpose(-2, -1) / 2, -1) @ v).transpose(1, 2).reshape(-1, 16, c)
        x = x.view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h * w, c)
        return self.recurrent(torch.cat([self.token.expand(b, -1, -1), x], dim=1))[0]


def exported(batch: int) -> onnx.ModelProto:
    target = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Windows().eval(), (torch.zeros(batch, 3, 40, 56),), target, dynamo=False, opset_version=17)
    model = onnx.load_from_string(target.getvalue())
    del model.graph.value_info[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def test_an_export_without_shapes_is_inferred_as_it_runs() -> None:
    model = exported(2)
    every = onnx.ModelProto()
    every.CopyFrom(model)
    last = model.graph.output[0].name
    names = {n for one in model.graph.node for n in one.output if n and n != last}
    every.graph.output.extend(onnx.ValueInfoProto(name=n) for n in sorted(names))
    results = run(every, {model.graph.input[0].name: f32(2, 3, 40, 56)})
    assert results is not None and len(results) > 60
    COMPARED["runs"] += 1
    found = found_shapes(importer.read(model))
    assert {n: r.shape for n, r in results.items() if n in found} == {n: found[n][0] for n in results if n in found}
    assert found[last][0] == (2, 12 * 16 + 1, 16)


def test_a_rebound_batch_gives_the_shapes_of_an_export_of_that_batch() -> None:
    for file, asked in ((1, 3), (3, 1), (2, 6)):
        expected = found_shapes(importer.read(exported(asked)))
        rebound = found_shapes(importer.read(exported(file), batch=asked))
        last = exported(file).graph.output[0].name
        assert rebound[last] == expected[last] == ((asked, 12 * 16 + 1, 16), "float32")
