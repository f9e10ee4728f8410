"""StableHLO: text of both forms, exports of JAX; parameters told from inputs; hostile and damaged text refused."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass import _core
from perfpass.errors import ArgumentError, FormatError, LimitError, PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import OpGraph, costs
from perfpass.importers.formats import Content, mlir_content, recognised, stablehlo

FILES = Path(__file__).parent / "files"
CONVOLUTIONAL = FILES / "convolutional.mlir"
# Flax's own parameters: 432 + 4 x 16, 144 + 16, 128 + 8, 2 x 8.
PARAMETERS = 808


def names(graph: OpGraph) -> list[str]:
    return [graph.op_name(node) for node in range(graph.node_count)]


def module(body: str, arguments: str = "%x: tensor<4x8xf32>", result: str = "tensor<4x8xf32>") -> bytes:
    return f"module @m {{\nfunc.func public @main({arguments}) -> {result} {{\n{body}\n}}\n}}".encode()


def read(text: bytes) -> OpGraph:
    return OpGraph(_core.read_stablehlo(text))


@pytest.mark.parametrize("name", ["convolutional.mlir", "convolutional.generic.mlir"])
def test_both_forms_of_a_network_give_its_layers(name: str) -> None:
    graph = perfpass.load(str(FILES / name))
    assert names(graph) == (
        [
            "conv",
            "batch_norm",
            "relu",
            "conv",
            "max_pool",
            "avg_pool",
            "global_avg_pool",
            "dense",
            "layer_norm",
            "gelu",
            "softmax",
        ]
    )
    counted = costs.count(graph)
    assert counted.totals["parameters"] == PARAMETERS
    # 2 x 16 x 16 x 16 x 27, 2 x 16 x 16 x 16 x 9 and 2 x 16 x 8.
    assert counted.totals["macs"] == 221_184 + 73_728 + 256 and not graph.unknown_operators


def test_what_changes_nothing_is_left_out_as_the_compiler_leaves_it_out() -> None:
    body = """
    %one = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
    %zeros = stablehlo.constant dense<0.000000e+00> : tensor<4x8xf32>
    %a = stablehlo.multiply %ones, %x : tensor<4x8xf32>
    %b = stablehlo.add %a, %zeros : tensor<4x8xf32>
    %c = stablehlo.transpose %b, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %d = stablehlo.transpose %c, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
    %e = stablehlo.tanh %d : tensor<4x8xf32>
    return %e : tensor<4x8xf32>"""
    assert names(read(module(body))) == ["tanh"]
    assert names(read(module(body.replace("1.000000e+00", "1.500000e+00")))) == ["mul", "tanh"]


def test_a_linear_layer_of_pytorch_has_its_bias() -> None:
    graph = read(
        module(
            """
    %one = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %wide = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %all = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
    %t = stablehlo.transpose %w, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %s = stablehlo.multiply %bias, %wide : tensor<8xf32>
    %p = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %q = stablehlo.multiply %all, %p : tensor<4x8xf32>
    %u = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
    %y = stablehlo.add %u, %q : tensor<4x8xf32>
    return %y : tensor<4x8xf32>""",
            "%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %bias: tensor<8xf32>",
        )
    )
    assert [name for name in names(graph) if name != "transpose"] == ["dense"]
    assert costs.count(graph).totals["parameters"] == 72


@pytest.mark.parametrize(("six", "kind"), [("6.0", "hard_swish"), ("5.0", "div")])
def test_a_hard_swish_of_pytorch_is_one_operator(six: str, kind: str) -> None:
    body = f"""
    %three = stablehlo.constant dense<3.0> : tensor<4x8xf32>
    %six = stablehlo.constant dense<{six}> : tensor<4x8xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<4x8xf32>
    %a = stablehlo.add %x, %three : tensor<4x8xf32>
    %b = stablehlo.maximum %zero, %a : tensor<4x8xf32>
    %c = stablehlo.minimum %six, %b : tensor<4x8xf32>
    %d = stablehlo.multiply %x, %c : tensor<4x8xf32>
    %y = stablehlo.divide %d, %six : tensor<4x8xf32>
    return %y : tensor<4x8xf32>"""
    assert names(read(module(body)))[-1] == kind


def test_a_hard_sigmoid_that_gates_another_tensor_is_one_operator() -> None:
    body = """
    %three = stablehlo.constant dense<3.0> : tensor<4x8xf32>
    %six = stablehlo.constant dense<6.0> : tensor<4x8xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<4x8xf32>
    %a = stablehlo.add %x, %three : tensor<4x8xf32>
    %b = stablehlo.maximum %a, %zero : tensor<4x8xf32>
    %c = stablehlo.minimum %six, %b : tensor<4x8xf32>
    %d = stablehlo.divide %c, %six : tensor<4x8xf32>
    %e = stablehlo.tanh %x : tensor<4x8xf32>
    %y = stablehlo.multiply %d, %e : tensor<4x8xf32>
    return %y : tensor<4x8xf32>"""
    assert names(read(module(body))) == ["hard_sigmoid", "tanh", "mul"]


def interpolated(weight: str = "5", broadcast: str = "[3]", last: str = "%x") -> bytes:
    """As PyTorch takes upsample_bilinear2d apart, by torchax: four gathers, mixed along rows and columns."""
    image, points, wide = "tensor<2x3x4x4xf32>", "tensor<5x5x2xi32>", "tensor<2x3x5x5xf32>"
    gather = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [2, 3], "
        "start_index_map = [2, 3], index_vector_dim = 2>, slice_sizes = array<i64: 2, 3, 1, 1>"
    )
    lines = [
        f'%g{i} = "stablehlo.gather"({last if i == 3 else "%x"}, %at) <{{{gather}}}> : ({image}, {points}) -> {wide}'
        for i in range(4)
    ]
    lines.append(f"%u = stablehlo.broadcast_in_dim %w, dims = {broadcast} : (tensor<{weight}xf32>) -> {wide}")
    lines.append(f"%v = stablehlo.broadcast_in_dim %h, dims = [2] : (tensor<5xf32>) -> {wide}")
    for made, first, second, by in (("r", "g0", "g1", "u"), ("s", "g2", "g3", "u"), ("y", "r", "s", "v")):
        lines.append(f"%d{made} = stablehlo.subtract %{second}, %{first} : {wide}")
        lines.append(f"%m{made} = stablehlo.multiply %d{made}, %{by} : {wide}")
        lines.append(f"%{made} = stablehlo.add %{first}, %m{made} : {wide}")
    lines.append(f"return %y : {wide}")
    given = f"%x: {image}, %z: {image}, %at: {points}, %w: tensor<{weight}xf32>, %h: tensor<5xf32>"
    return module("\n".join(lines), given, wide)


def test_pixels_that_are_mixed_along_rows_and_columns_are_one_resize() -> None:
    graph = read(interpolated())
    assert names(graph) == ["resize"]
    assert graph.shape(graph.node_inputs(0)[0]) == (2, 3, 4, 4)
    assert graph.shape(graph.node_outputs(0)[0]) == (2, 3, 5, 5)


@pytest.mark.parametrize(
    "text",
    [
        interpolated("2x1x5x5", "[0, 1, 2, 3]"),  # a weight for every point: a sampling grid
        interpolated(last="%z"),  # pixels of two images
        interpolated("3", "[1]"),  # a weight for every channel
        interpolated("2", "[0]"),  # a weight for every sample
    ],
)
def test_what_is_mixed_otherwise_stays_as_it_is(text: bytes) -> None:
    found = names(read(text))
    assert "resize" not in found and found.count("gather") == 4


@pytest.mark.parametrize(("bound", "kept"), [("0xFF800000", False), ("-1.0", True)])
def test_rows_that_a_mask_empties_belong_to_the_softmax(bound: str, kept: bool) -> None:
    body = f"""
    %low = stablehlo.constant dense<{bound}> : tensor<4x8xf32>
    %no = stablehlo.constant dense<false> : tensor<i1>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %zeros = stablehlo.constant dense<0.0> : tensor<4x8xf32>
    %seen = stablehlo.compare NE, %x, %low, FLOAT : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xi1>
    %any = stablehlo.reduce(%seen init: %no) applies stablehlo.or across dimensions = [1]
      : (tensor<4x8xi1>, tensor<i1>) -> tensor<4xi1>
    %none = stablehlo.not %any : tensor<4xi1>
    %rows = stablehlo.broadcast_in_dim %none, dims = [0] : (tensor<4xi1>) -> tensor<4x8xi1>
    %m = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
    %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
    %d = stablehlo.subtract %x, %mb : tensor<4x8xf32>
    %e = stablehlo.exponential %d : tensor<4x8xf32>
    %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
    %tb = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
    %p = stablehlo.divide %e, %tb : tensor<4x8xf32>
    %y = stablehlo.select %rows, %zeros, %p : tensor<4x8xi1>, tensor<4x8xf32>
    return %y : tensor<4x8xf32>"""
    found = names(read(module(body)))
    assert "softmax" in found and ("where" in found) == kept


def test_open_sizes_have_the_names_that_jax_gave_them_and_are_set_by_batch_or_dims() -> None:
    path = str(FILES / "convolutional.open.mlir")
    (only,) = stablehlo.inputs(Path(path))
    assert only.shape == ("b", 32, 32, 3)
    whole = costs.count(perfpass.load(path, batch=2)).totals
    assert whole["macs"] == costs.count(perfpass.load(path, dims={"b": 2})).totals["macs"]
    fixed = costs.count(perfpass.load(str(CONVOLUTIONAL))).totals
    assert whole["macs"] == fixed["macs"] and whole["parameters"] == fixed["parameters"]
    with pytest.raises(ShapeError, match="--dim b=N"):
        perfpass.load(path)
    with pytest.raises(ArgumentError, match="'b'"):
        perfpass.load(path, dims={"c": 2})


def test_a_batch_that_the_text_fixes_can_be_another() -> None:
    at_two, at_six = (costs.count(perfpass.load(str(CONVOLUTIONAL), batch=b)).totals for b in (2, 6))
    assert at_six["macs"] == 3 * at_two["macs"] and at_six["parameters"] == at_two["parameters"]


def test_an_encoder_has_its_attention_normalisations_and_gelus_again() -> None:
    graph = perfpass.load(str(FILES / "encoder.mlir"))
    found = names(graph)
    assert [found.count(n) for n in ("layer_norm", "gelu", "softmax", "embedding", "dense")] == [5, 2, 2, 2, 13]
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    two = costs.count(perfpass.load(torch.nn.Sequential(layer, layer), input_shape=(16, 32), batch=2)).totals
    counted = costs.count(graph).totals
    assert counted["macs"] == two["macs"] + 2 * 32 * 32
    # Per layer 4 (32 x 32 + 32), 32 x 64 + 64, 64 x 32 + 32 and 2 x 64; two tables, their norm, the pooler.
    assert counted["parameters"] == 2 * (4 * 1056 + 2112 + 2080 + 128) + 164 * 32 + 64 + 1056


def test_loops_count_their_passes_and_branches_their_heavier_part() -> None:
    graph = perfpass.load(str(FILES / "control.mlir"))
    products = [n for n, op in enumerate(names(graph)) if op == "dense"]
    assert sorted(graph.repeat[n] for n in products) == [1.0, 5.0]
    assert ["passes only values decide" in note for note in graph.counted_once] == [True]
    assert any("of a branch" in note for note in graph.notes)


@pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="jaxlib reads MLIR bytecode")
def test_an_export_of_jax_is_read_as_its_text() -> None:
    graph = perfpass.load(str(FILES / "convolutional.jax"), batch=2)
    assert costs.count(graph).totals == costs.count(perfpass.load(str(CONVOLUTIONAL))).totals


def test_without_jaxlib_bytecode_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    path = FILES / "convolutional.jax"
    found = recognised(Content.of(path))
    assert found is not None and found.name == "mlir_bytecode"
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UnsupportedError, match=r"perfpass\[jax\]"):
        perfpass.load(str(path))
    with pytest.raises(UnsupportedError, match="from a path alone"):
        perfpass.load(path.read_bytes())


@pytest.mark.skipif(importlib.util.find_spec("jaxlib") is None, reason="jaxlib reads MLIR bytecode")
def test_bytecode_whose_text_is_over_its_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = stablehlo._LIMITED.replace(f"= {stablehlo._MOST_TEXT_BYTES},", "= 1000,")
    monkeypatch.setattr(stablehlo, "_LIMITED", limited)
    with pytest.raises(LimitError, match="whose text is over"):
        perfpass.load(str(FILES / "convolutional.jax"), batch=2)


@pytest.mark.parametrize(
    "head",
    [
        b" " * 4096,
        b"\n \t" * 1365,
        b"// a\n" * 819,
        b"//\n \n" * 819,
        b"// // " * 682,
        b"/" * 4096,
        b"#" + b"a." * 2047,
        b"#a" + b" " * 4094,
        b"#a =" + b" " * 4092,
        b"#a = " + b"b" * 4091,
        b"// a\n" * 700 + b"#a = " + b"b" * 500,
        b"!" + b"$" * 4095,
        b"module" + b" " * 4090,
        b"module " + b"\n" * 2000 + b"attribute" + b" " * 2000,
        b'"builtin.modul' + b"e" * 4000,
        b"# a comment = loc(\nkey: value\n",
        b"#!/bin/sh\n",
        b"#define module(x)\n",
        b"#include <module>\n",
        b'module "network" {\n  source = "./network"\n}\n',
        b"module Foo (input a);\nendmodule\n",
        b"module Main where\n",
        b"module Foo { header }\n",
        b"modules {\n",
        b"!include = other.yaml"[:9],
        b"func.function {",
        b"[model]\nname = x\n",
        b'{"module": {}}',
    ],
)
def test_what_only_begins_like_a_module_is_none(head: bytes) -> None:
    """A search that goes back over its own steps would not end on the long ones."""
    content = Content(Path("model"), head[:4096])
    assert not mlir_content.is_text(content) and not mlir_content.is_bytecode(content)


@given(st.lists(st.integers(0, 70), max_size=40), st.binary(max_size=200))
def test_any_head_is_that_of_a_module_or_none(small: list[int], rest: bytes) -> None:
    """Small numbers in front are what offsets of a FlatBuffer are."""
    for head in (struct.pack(f"<{len(small)}I", *small) + rest, struct.pack(f"<{len(small)}H", *small) + rest, rest):
        content = Content(Path("model"), head)
        if mlir_content.is_text(content):
            assert head.split()[0].startswith((b"//", b"module", b"builtin", b"func", b"#", b"!", b'"'))
        place = mlir_content.module_at(head)
        assert place is None or place > 4


def test_bytes_of_text_are_read_like_the_file() -> None:
    graph = perfpass.load(CONVOLUTIONAL.read_bytes())
    assert names(graph) == names(perfpass.load(str(CONVOLUTIONAL)))


def test_products_of_any_order_have_their_multiply_accumulates() -> None:
    text = module(
        "%0 = stablehlo.dot_general %x, %y, batching_dims = [2] x [0], contracting_dims = [0, 3] x [3, 1] : "
        "(tensor<3x4x5x6xf32>, tensor<5x6x7x3xf32>) -> tensor<5x4x7xf32>\nreturn %0 : tensor<5x4x7xf32>",
        "%x: tensor<3x4x5x6xf32>, %y: tensor<5x6x7x3xf32>",
        "tensor<5x4x7xf32>",
    )
    assert costs.count(read(text)).totals["macs"] == 5 * 4 * 7 * 3 * 6


def test_unknown_operators_stay_and_are_named() -> None:
    line = "%0 = stablehlo.custom_call @secret(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>"
    text = module(line + "\nreturn %0 : tensor<4x8xf32>")
    graph = read(text)
    assert names(graph) == ["unknown"] and list(graph.unknown_operators) == ["secret"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%0 = linalg.matmul ins(%x) : tensor<4x8xf32>", "dialect linalg"),
        ("%0 = torch.aten.relu %x : !torch.vtensor -> !torch.vtensor", "dialect torch"),
        ("%0 = tosa.add %x, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>", "dialect tosa"),
        ("%0 = vhlo.add_v1 %x, %x : tensor<4x8xf32>", "dialect vhlo"),
    ],
)
def test_other_dialects_are_refused_by_their_name(line: str, says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        read(module(line + "\nreturn %0 : tensor<4x8xf32>"))


def test_nesting_without_end_is_refused() -> None:
    inner = '%0 = "stablehlo.case"(%x) ({\n' * 5000
    with pytest.raises(LimitError, match="deep"):
        read(module(inner))
    with pytest.raises(PerfPassError):
        read(module("%0 = stablehlo.add " + "(" * 200_000))
    with pytest.raises(PerfPassError):
        read(b"module { " * 100_000)


def test_calls_that_multiply_without_end_are_refused() -> None:
    """Each function calls the next one twice: 2^40 calls without one operator."""
    functions = [
        f"func.func private @f{i}(%a: tensor<f32>) -> tensor<f32> {{\n%0 = call @f{i + 1}(%a) : (tensor<f32>) -> "
        f"tensor<f32>\n%1 = call @f{i + 1}(%0) : (tensor<f32>) -> tensor<f32>\nreturn %1 : tensor<f32>\n}}"
        for i in range(40)
    ]
    last = "func.func private @f40(%a: tensor<f32>) -> tensor<f32> {\nreturn %a : tensor<f32>\n}"
    main = (
        "func.func public @main(%a: tensor<f32>) -> tensor<f32> {\n%0 = call @f0(%a) : (tensor<f32>) -> tensor<f32>\n"
        "return %0 : tensor<f32>\n}"
    )
    with pytest.raises(LimitError, match="inlined"):
        read("\n".join(["module {", *functions, last, main, "}"]).encode())


def test_a_function_that_calls_itself_is_refused() -> None:
    text = module("%0 = call @main(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>\nreturn %0 : tensor<4x8xf32>")
    with pytest.raises(UnsupportedError, match="calls itself"):
        read(text)


def test_operators_of_more_results_than_a_module_has_are_refused() -> None:
    line = "%{}:100000 = stablehlo.abs %x : tensor<4x8xf32>\n"
    with pytest.raises(LimitError, match="values"):
        read(module("".join(line.format(i) for i in range(170)) + "return %x : tensor<4x8xf32>"))


def test_a_name_of_an_operation_that_is_no_text_is_refused_by_name() -> None:
    body = '%0 = "stablehlo.cas\u00e9"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>\nreturn %0 : tensor<4x8xf32>'
    for text in (module(body), module(body).replace("\u00e9".encode(), b"\xe5")):
        with pytest.raises(FormatError, match=r"an operation 'stablehlo.cas.*letters, digits"):
            read(text)


def test_a_call_of_a_library_keeps_a_name_that_is_no_text_with_its_bytes_escaped() -> None:
    body = (
        '%0 = stablehlo.custom_call @"made\u00e9"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>\n'
        "return %0 : tensor<4x8xf32>"
    )
    graph = read(module(body).replace("\u00e9".encode(), b"\xe5"))
    assert graph.source_op_name(graph.node_count - 1) == r"made\xe5"


def test_an_operator_without_its_result_is_refused() -> None:
    with pytest.raises(FormatError, match="has no result"):
        read(module("stablehlo.constant dense<1> : tensor<i32>\nreturn %x : tensor<4x8xf32>"))


def test_what_is_recognised_is_looked_for_within_bounds() -> None:
    """A maximum of itself 60 times over: 2^60 ways to what is below; and 200,000 activations on one another."""
    same = "tensor<4x8xf32>"
    doubled = "".join(f"%m{i + 1} = stablehlo.maximum %m{i}, %m{i} : {same}\n" for i in range(60))
    softmax = (
        f"%m0 = stablehlo.tanh %x : {same}\n{doubled}%s = stablehlo.subtract %x, %m60 : {same}\n"
        f"%e = stablehlo.exponential %s : {same}\n%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
        f"%r = stablehlo.reduce(%e init: %c) applies stablehlo.add across dimensions = [1] : ({same}, tensor<f32>) -> "
        f"tensor<4xf32>\n%b = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<4xf32>) -> {same}\n"
        f"%d = stablehlo.divide %e, %b : {same}\nreturn %d : {same}"
    )
    assert names(read(module(softmax)))[-2:] == ["sub", "softmax"]
    clipped = "".join(f"%{i + 1} = stablehlo.maximum %{i}, %c : {same}\n" for i in range(200_000))
    text = (
        f"%c = stablehlo.constant dense<0.0> : {same}\n%0 = stablehlo.tanh %x : {same}\n{clipped}"
        f"%k = stablehlo.constant dense<1.0> : {same}\n%a = stablehlo.add %200000, %k : {same}\n"
        f"%r = stablehlo.rsqrt %a : {same}\nreturn %r : {same}"
    )
    assert names(read(module(text)))[-3:] == ["relu", "add", "rsqrt"]


def test_a_transposed_weight_of_another_rank_is_read_as_it_is_declared() -> None:
    text = module(
        "%w = stablehlo.constant dense_resource<w> : tensor<8x3xf32>\n"
        "%t = stablehlo.transpose %w, dims = [1, 0] : (tensor<8x3xf32>) -> tensor<3x8x5xf32>\n"
        "%0 = stablehlo.dot_general %x, %t, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<3x8x5xf32>) -> "
        "tensor<4x3x5xf32>\nreturn %0 : tensor<4x3x5xf32>",
        result="tensor<4x3x5xf32>",
    )
    assert costs.count(read(text)).totals["macs"] == 4 * 3 * 5 * 8


@pytest.mark.parametrize("type_", ["tensor<281474976710657xf32>", "tensor<" + "1x" * 40 + "f32>", "tensor<*xf32>"])
def test_tensors_past_the_bounds_are_refused(type_: str) -> None:
    text = module(f"%0 = stablehlo.abs %x : {type_}\nreturn %0 : {type_}", f"%x: {type_}", type_)
    with pytest.raises((LimitError, UnsupportedError)):
        read(text)


def test_a_value_that_is_not_there_is_one_error() -> None:
    with pytest.raises(FormatError, match="before it is defined"):
        read(module("return %y : tensor<4x8xf32>"))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_text_is_a_graph_or_one_error(data: st.DataObject) -> None:
    text = bytearray((FILES / data.draw(st.sampled_from(["control.mlir", "convolutional.mlir"]))).read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        size = data.draw(st.integers(0, 40))
        text[at : at + size] = data.draw(
            st.binary(max_size=12) | st.sampled_from([b"", b"(", b"%0", b"9" * 30, b'"', b"?"])
        )
    try:
        costs.count(read(bytes(text)))
    except PerfPassError as error:
        assert str(error)
