"""Shapes of ONNX operators agree with ONNX Runtime, over drawn sizes and attributes, and on whole exports."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_runs import (
    COMPARED,
    MICROSOFT,
    PROPERTY,
    attributes_of,
    check,
    f32,
    found_shapes,
    i64,
    node,
    run,
    something_was_compared,  # noqa: F401  # applies to every test here
)

from perfpass.importers import onnx as importer

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
