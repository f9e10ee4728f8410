"""Operators that exporters write out in parts are one row again, and nothing is lost on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_strategies import graphs, written_out
from perfpass import _core, features
from perfpass.features import OperatorTable
from perfpass.graph import OPERATORS, ROLES, OpGraph, costs
from perfpass.importers import load, torchvision_schemas
from perfpass.predictors.inference.fusion import as_run
from twins import costs as costs_twin
from twins import folding as folding_twin
from twins import fusion as fusion_twin


def tables(graph: OpGraph, runtime: str = "torch", kind: str = "gpu") -> tuple[OperatorTable, OperatorTable]:
    """The table as counted and as run."""
    counted = costs.count(graph)
    table = features.operator_table(graph, counted)
    return table, as_run(graph, counted, runtime, kind)


def kernels(table: OperatorTable) -> Counter[str]:
    """How often each operator is launched."""
    found: Counter[str] = Counter()
    for op, count, view in zip(table.op, table.count, table.view, strict=True):
        if not view:
            found[OPERATORS[op]] += int(count)
    return found


def macs(table: OperatorTable) -> float:
    return float((table.macs * table.count).sum())


def test_an_exported_vision_transformer_runs_the_kernels_of_its_torch_module(examples):
    before, after = tables(load(examples / "vit_base_patch16_224.onnx"))
    found = kernels(after)
    assert found["attention"] == 12 and found["gelu"] == 12 and found["dense"] == 49 and found["layer_norm"] == 25
    assert not {"softmax", "erf", "matmul", "mul", "div"} & set(found)
    assert macs(after) == macs(before)


def test_the_torch_module_and_its_export_give_the_same_kernels(examples):
    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import timm
    import torch

    with torch.device("meta"):
        module = timm.create_model("vit_base_patch16_224").eval()
    traced = kernels(tables(load(module, input_shape=(3, 224, 224), batch=1))[1])
    exported = kernels(tables(load(examples / "vit_base_patch16_224.onnx"))[1])
    for operator in ("conv", "dense", "attention", "gelu", "layer_norm", "add"):
        assert traced[operator] == exported[operator] > 0, operator
    assert abs(sum(traced.values()) - sum(exported.values())) <= 3


def test_layer_norms_and_gelus_of_an_old_exporter_are_found(examples):
    before, after = tables(load(examples / "deberta_v3_large.onnx"))
    found = kernels(after)
    assert found["layer_norm"] == 50 and found["gelu"] == 24 and found["dense"] == 192
    assert macs(after) == macs(before)
    assert sum(found.values()) < 0.4 * sum(kernels(before).values())


def test_attention_and_silu_of_a_decoder_are_found(examples):
    before, after = tables(load(examples / "llama_1b_prefill.onnx"))
    found = kernels(after)
    assert found["attention"] == 16 and found["silu"] == 16
    assert macs(after) == macs(before)


def test_a_convolutional_network_keeps_its_table(examples):
    before, after = tables(load(examples / "resnet50.onnx"))
    assert kernels(after) == kernels(before)
    assert np.array_equal(after.count, before.count)


@pytest.mark.parametrize("written", ["sixth first", "sixth first, scaled", "divided", "of the product", "hard sigmoid"])
def test_every_spelling_of_a_hard_swish_is_one_kernel(written):
    builder = _core.GraphBuilder()
    shape = (1, 8, 4, 4)
    x = builder.add_tensor("x", "float32", shape, "input")
    number = builder.add_tensor("number", "float32", (), "literal")

    def step(operator: str, *read: int) -> int:
        made = builder.add_tensor("", "float32", shape, "activation")
        builder.add_node(operator, operator, "", {}, list(read), [made])
        return made

    if written.startswith("sixth first"):
        out = step("mul", x, step("clip", step("add", step("mul", x, number), number)))
        out = step("mul", out, number) if written.endswith("scaled") else out
    elif written == "divided":
        out = step("mul", step("div", step("clip", step("add", x, number)), number), x)
    elif written == "of the product":
        out = step("div", step("mul", step("clip", step("add", x, number)), x), number)
    else:
        out = step("mul", x, step("hard_sigmoid", x))
    graph = OpGraph(builder.finish([x], [out]))
    behind = {"mul": 1} if written.endswith("scaled") else {}
    assert kernels(tables(graph, "onnxruntime")[1]) == {"hard_swish": 1} | behind
    assert_as_the_twin(graph, "onnxruntime")


@pytest.mark.parametrize("name", ["gelu_new", "gelu_fast", "quick_gelu", "gelu_python", "gelu_pytorch_tanh"])
def test_an_activation_in_parts_is_one_kernel_by_every_route_where_the_runtime_fuses_it(tmp_path, name):
    import torch
    from transformers.activations import ACT2FN

    module, shape = ACT2FN[name].eval(), (2, 4, 8)
    graphs = {"torch": load(module, input_shape=shape[1:], batch=2)}
    ways = {
        "legacy": {"dynamo": False, "opset_version": 17},
        "dynamo": {"dynamo": True, "opset_version": 18, "external_data": False, "verbose": False},
    }
    for way, how in ways.items():
        torch.onnx.export(module, (torch.zeros(shape),), str(tmp_path / "m.onnx"), **how)
        graphs[way] = load(tmp_path / "m.onnx")
    one = {"silu" if name == "quick_gelu" else "gelu": 1}
    for way, graph in graphs.items():
        for runtime in ("torch.compile", "onnxruntime", "tensorrt"):
            assert kernels(tables(graph, runtime)[1]) == one, (way, runtime)
            assert_as_the_twin(graph, runtime)
    parts = kernels(tables(graphs["torch"])[1])
    assert parts == (one if name == "gelu_pytorch_tanh" else kernels(tables(graphs["torch"])[0]))


def test_a_gelu_in_parts_takes_its_eight_kernels_in_pytorch_and_one_elsewhere_by_either_route(tmp_path):
    import torch
    from transformers.activations import ACT2FN

    module = ACT2FN["gelu_new"].eval()
    traced = load(module, input_shape=(4, 8), batch=2)
    torch.onnx.export(module, (torch.zeros((2, 4, 8)),), str(tmp_path / "m.onnx"), dynamo=False, opset_version=17)
    for graph in (traced, load(tmp_path / "m.onnx")):
        assert sum(kernels(tables(graph, "torch")[1]).values()) == 8
        assert sum(kernels(tables(graph, "onnxruntime")[1]).values()) == 1


class Written:
    """A graph of operators one after another, as a source calls them."""

    def __init__(self, prefix: str = "") -> None:
        self.builder, self.prefix = _core.GraphBuilder(), prefix
        self.x = self.builder.add_tensor("x", "float32", (2, 4, 8), "input")
        self.number = self.builder.add_tensor("number", "float32", (), "literal")

    def weight(self, *shape: int) -> int:
        return self.builder.add_tensor("weight", "float32", shape, "weight")

    def step(self, operator: str, *read: int, shape: tuple[int, ...] = (2, 4, 8), source: str = "") -> int:
        made = self.builder.add_tensor("", "float32", shape, "activation")
        self.builder.add_node(operator, source or self.prefix + operator, "", {}, list(read), [made])
        return made

    def kernels(self, out: int, runtime: str = "onnxruntime") -> Counter[str]:
        graph = OpGraph(self.builder.finish([self.x], [out]))
        assert_as_the_twin(graph, runtime)
        return kernels(tables(graph, runtime)[1])


@pytest.mark.parametrize("written", ["root", "reciprocal", "inverse root"])
def test_a_layer_norm_with_its_variance_as_one_operator_is_one_kernel(written):
    g, row = Written(), (2, 4, 1)
    mean = g.step("reduce_mean", g.x, shape=row)
    spread = g.step("add", g.step("reduce_variance", g.x, mean, shape=row), g.number, shape=row)
    centred = g.step("sub", g.x, mean)
    if written == "root":
        out = g.step("div", centred, g.step("sqrt", spread, shape=row))
    elif written == "reciprocal":
        out = g.step("mul", centred, g.step("div", g.number, g.step("sqrt", spread, shape=row), shape=row))
    else:
        out = g.step("mul", centred, g.step("rsqrt", spread, shape=row))
    assert g.kernels(g.step("add", g.step("mul", out, g.weight(8)), g.weight(8))) == {"layer_norm": 1}


def test_a_layer_norm_in_parts_has_the_work_of_one(examples):
    norm = OPERATORS.index("layer_norm")
    for name in ("deberta_v3_large", "vit_base_patch16_224"):  # in parts, and as the operator of ONNX
        table = tables(load(examples / f"{name}.onnx"), "onnxruntime", "cpu")[1]
        rows = table.op == norm
        assert rows.any() and (table.flops[rows] == 7 * table.output_elements[rows]).all()


@pytest.mark.parametrize("weighted", [True, False])
def test_a_layer_norm_of_a_product_and_a_sum_is_one_kernel(weighted):
    g, row = Written(), (2, 4, 1)
    mean = g.step("reduce_mean", g.x, shape=(8,))
    shown = g.step("reshape", mean, shape=row)
    variance = g.step("reduce_mean", g.step("sub", g.x, shown, source="SQUARED_DIFFERENCE"), shape=(8,))
    root = g.step("rsqrt", g.step("add", variance, g.number, shape=(8,)), shape=(8,))
    scale = g.step("reshape", root, shape=row)
    if weighted:
        scale = g.step("mul", scale, g.weight(8))
        moved = g.step("sub", g.weight(8), g.step("mul", shown, scale))
    else:
        moved = g.step("sub", g.number, g.step("mul", root, mean, shape=(8,)), shape=(8,))
        moved = g.step("reshape", moved, shape=row)
    out = g.step("add", g.step("mul", g.x, scale), moved)
    out = out if weighted else g.step("add", g.step("mul", out, g.weight(8)), g.weight(8))
    found = g.kernels(out)
    assert found.pop("reshape") and found == {"layer_norm": 1}


@pytest.mark.parametrize("sixth", ["before", "behind"])
def test_a_hard_sigmoid_that_gates_another_tensor_is_one_kernel(sixth):
    g = Written()
    if sixth == "before":
        gate = g.step("clip", g.step("add", g.step("mul", g.number, g.x), g.number))
    else:
        gate = g.step("mul", g.step("clip", g.step("add", g.x, g.number)), g.number)
    assert g.kernels(g.step("mul", g.step("relu", g.x), gate)) == {"hard_sigmoid": 1, "relu": 1, "mul": 1}


@pytest.mark.parametrize(("bias", "kernel"), [((4, 1), True), ((1, 4, 1), True), ((8,), False), ((2, 4, 8), False)])
def test_a_bias_of_a_convolution_is_written_with_it(bias, kernel):
    g = Written()
    out = g.step("add", g.weight(*bias), g.step("conv", g.x, g.weight(4, 4, 1)))
    assert g.kernels(out) == ({"conv": 1} if kernel else {"conv": 1, "add": 1})


@pytest.mark.parametrize(("source", "pads"), [("PAD", 0), ("MIRROR_PAD", 1)])
def test_zeros_around_what_a_convolution_reads_are_its_own(source, pads):
    g = Written()
    padded = g.step("pad", g.x, shape=(2, 4, 10), source=source)
    assert g.kernels(g.step("conv", padded, g.weight(4, 4, 3), g.weight(4)))["pad"] == pads


@pytest.mark.parametrize(("bias", "kernel"), [((8,), True), ((1, 1, 8), True), ((4, 1), False), ((2, 4, 8), False)])
def test_a_bias_behind_the_reshape_of_a_dense_layer_is_written_with_it(bias, kernel):
    g = Written()
    out = g.step("dense", g.step("reshape", g.x, shape=(8, 8)), g.weight(8, 8), shape=(8, 8))
    out = g.step("add", g.step("reshape", out), g.weight(*bias))
    assert g.kernels(out)["add"] == (0 if kernel else 1)


def _attention_of_three_axes(
    prefix: str = "", split_by_mask: bool = False, runtime: str = "onnxruntime"
) -> Counter[str]:
    g, heads, flat, scores = Written(prefix), (2, 2, 4, 4), (4, 4, 4), (4, 4, 4)

    def split() -> int:
        x = g.step("transpose", g.step("reshape", g.x, shape=(2, 4, 2, 4)), shape=heads)
        return g.step("reshape", g.step("mul", x, g.number, shape=heads), shape=flat)

    key = g.step("transpose", split(), shape=flat)
    p = g.step("matmul", split(), key, shape=scores)
    p = p if split_by_mask else g.step("reshape", p, shape=heads)
    p = g.step("softmax", g.step("add", p, g.number, shape=heads), shape=heads)
    value = g.step("reshape", g.step("transpose", g.x, shape=heads), shape=flat)
    out = g.step("matmul", g.step("reshape", p, shape=scores), value, shape=flat)
    out = g.step("reshape", g.step("reshape", out, shape=heads), shape=heads)
    return g.kernels(g.step("reshape", g.step("transpose", out, shape=(2, 4, 2, 4))), runtime)


def test_attention_of_products_of_three_axes_is_one_kernel():
    assert _attention_of_three_axes() == {"attention": 1, "reshape": 5}  # of heads, and behind it


@pytest.mark.parametrize(("numbers", "left"), [((), 0), ((8,), 2)])
def test_a_scale_before_the_heads_are_split_is_of_the_attention_and_a_weight_is_not(numbers, left):
    g, heads, flat = Written(), (2, 2, 4, 4), (4, 4, 4)

    def split() -> int:
        x = g.step("mul", g.x, g.weight(*numbers) if numbers else g.number, shape=(2, 4, 8))
        x = g.step("transpose", g.step("reshape", x, shape=(2, 4, 2, 4)), shape=heads)
        return g.step("reshape", x, shape=flat)

    p = g.step("reshape", g.step("matmul", split(), split(), shape=flat), shape=heads)
    p = g.step("softmax", g.step("add", p, g.number, shape=heads), shape=heads)
    value = g.step("reshape", g.step("transpose", g.x, shape=heads), shape=flat)
    out = g.step("matmul", g.step("reshape", p, shape=flat), value, shape=flat)
    out = g.step("reshape", g.step("reshape", out, shape=heads), shape=heads)
    found = g.kernels(g.step("reshape", g.step("transpose", out, shape=(2, 4, 2, 4))))
    assert found["attention"] == 1 and found["mul"] == left


def test_a_mask_of_four_axes_stands_for_the_reshape_of_the_scores():
    assert _attention_of_three_axes(split_by_mask=True)["attention"] == 1


def test_what_pytorch_recorded_in_parts_ran_in_parts():
    g = Written("aten.")
    out = g.step("add", g.step("conv", g.x, g.weight(4, 4, 1)), g.weight(4, 1))
    assert g.kernels(out) == {"conv": 1, "add": 1}
    assert _attention_of_three_axes("aten.", runtime="torch")["matmul"] == 2


def test_attention_that_pytorch_recorded_in_parts_is_one_kernel_where_the_runtime_fuses_it():
    for runtime in ("torch.compile", "onnxruntime", "tensorrt"):
        found = _attention_of_three_axes("aten.", runtime=runtime)
        assert found["attention"] == 1 and not found["matmul"], runtime


@pytest.mark.parametrize("dynamo", [False, True])
def test_windows_of_an_image_that_shift_are_the_same_kernels_by_a_trace_and_by_files(tmp_path, dynamo):
    """Swin's: one kernel of attention with or without a mask, one roll however many axes it has."""
    torchvision_schemas.define()
    import torch
    from torchvision.models.swin_transformer import SwinTransformer

    module = SwinTransformer([4, 4], 16, [2, 2], [2, 4], [7, 7], num_classes=8).eval()
    how = {"dynamo": True, "external_data": False, "verbose": False} if dynamo else {"dynamo": False}
    torch.onnx.export(module, (torch.zeros((1, 3, 112, 112)),), str(tmp_path / "m.onnx"), **how)
    found = [
        kernels(tables(graph, "onnxruntime")[1])
        for graph in (load(module, input_shape=(3, 112, 112), batch=1), load(tmp_path / "m.onnx"))
    ]
    for one in found:
        one["transpose"] += one.pop("copy", 0)  # PyTorch copies what it shows by strides
    assert found[0]["attention"] == 4 and found[0]["roll"] == 4
    for name in ("attention", "roll", "concat", "dense", "matmul", "softmax", "layer_norm", "gelu", "add", "transpose"):
        assert found[0][name] == found[1][name], name


@pytest.mark.parametrize(("runtime", "kernel"), [("torch", 1), ("torch.compile", 0), ("onnxruntime", 0)])
def test_whole_numbers_that_shapes_decide_are_a_compilers_own(runtime, kernel):
    builder = _core.GraphBuilder()
    x = builder.add_tensor("x", "float32", (64, 8), "input")
    index, made = (builder.add_tensor("", "int64", (64,), "activation") for _ in range(2))
    one = builder.add_tensor("one", "int64", (), "literal")
    out = builder.add_tensor("", "float32", (64, 8), "activation")
    builder.add_node("range", "Range", "", {}, [], [index])
    builder.add_node("add", "Add", "", {}, [index, one], [made])
    builder.add_node("gather", "Gather", "", {}, [x, made], [out])
    graph = OpGraph(builder.finish([x], [out]))
    assert kernels(tables(graph, runtime)[1])["add"] == kernel
    assert_as_the_twin(graph, runtime)


@pytest.mark.parametrize(
    ("runtime", "kind", "splits"), [("torch", "cpu", 0), ("onnxruntime", "gpu", 0), ("onnxruntime", "cpu", 12)]
)
def test_what_moves_nothing_in_what_was_learned_moves_nothing_in_a_file(examples, runtime, kind, splits):
    found = kernels(tables(load(examples / "vit_base_patch16_224.onnx"), runtime, kind)[1])
    assert found["split"] == splits and (splits or not found["transpose"])


def test_a_constant_that_is_read_twice_is_not_what_a_hard_swish_is_of():
    builder = _core.GraphBuilder()
    shape = (1, 8, 4, 4)
    x = builder.add_tensor("x", "float32", shape, "input")
    number = builder.add_tensor("number", "float32", (), "literal")
    made = [builder.add_tensor("", "float32", shape, "activation") for _ in range(3)]
    for op, read, out in (("add", [number, x], 0), ("clip", [made[0]], 1), ("mul", [number, made[1]], 2)):
        builder.add_node(op, op, "", {}, read, [made[out]])
    graph = OpGraph(builder.finish([x], [made[2]]))
    assert kernels(tables(graph, "onnxruntime")[1]) == {"hard_sigmoid": 1}
    assert_as_the_twin(graph, "onnxruntime")


def _file(*steps: tuple[str, tuple[int, ...]], index: bool = False) -> OpGraph:
    """A chain of operators by their results' shapes."""
    builder = _core.GraphBuilder()
    x = first = builder.add_tensor("x", "float32", (2, 12, 4, 8), "input")
    for number, (op, shape) in enumerate(steps):
        made = builder.add_tensor(f"y{number}", "float32", shape, "activation")
        operands = [x, builder.add_tensor("i", "int64", (), "literal" if index else "input")] if op == "gather" else [x]
        builder.add_node(op, op, "", {}, operands, [made])
        x = made
    return OpGraph(builder.finish([first], [x]))


@pytest.mark.parametrize(
    ("joined", "copies"), [((2, 4, 96), 1), ((8, 12, 8), 1), ((1, 2, 4, 12, 8), 0), ((2, 2, 2, 12, 8), 0)]
)
def test_a_transpose_is_copied_where_its_axes_are_joined_next(joined, copies):
    graph = _file(("transpose", (2, 4, 12, 8)), ("reshape", joined))
    assert kernels(tables(graph)[1])["transpose"] == copies
    assert_as_the_twin(graph, "torch")


@pytest.mark.parametrize(("shown", "copies"), [((), 0), (("reshape",), 0), (("relu",), 1)])
def test_a_transpose_behind_an_attention_of_a_file_moves_nothing(shown, copies):
    g = Written()
    x = g.step("attention", g.x, g.x, g.x)
    for operator in shown:
        x = g.step(operator, x)
    x = g.step("transpose", x, shape=(4, 2, 8))
    assert g.kernels(g.step("reshape", x, shape=(8, 8)))["transpose"] == copies


@pytest.mark.parametrize(
    ("source", "joined", "written", "runtime", "copies"),
    [
        ("aten.clone", False, False, "onnxruntime", 0),
        ("aten.contiguous", False, False, "tensorrt", 0),
        ("aten.clone", False, False, "torch", 1),
        ("aten.clone", False, False, "torch.compile", 1),
        ("aten.copy_", False, False, "onnxruntime", 1),
        ("DeepCopy", False, False, "onnxruntime", 1),
        ("aten.clone", True, False, "onnxruntime", 1),
        ("aten.clone", False, True, "onnxruntime", 1),
    ],
)
def test_a_copy_that_pytorch_makes_for_itself_is_none_of_what_it_exports(source, joined, written, runtime, copies):
    g = Written("aten.")
    x = g.step("transpose", g.x, shape=(4, 2, 8))
    x = g.step("copy", x, shape=(4, 2, 8), source=source)
    if written:
        g.step("identity", x, g.step("fill", x, shape=(4, 2, 8)), shape=(4, 2, 8), source="alias_after_write")
    out = g.step("reshape", x, shape=(8, 8)) if joined else g.step("relu", x, shape=(4, 2, 8))
    assert g.kernels(out, runtime)["copy"] == copies


@pytest.fixture(scope="module")
def turned(tmp_path_factory) -> tuple[OpGraph, OpGraph]:
    """A network that turns, splits, joins and shows what it reads: its trace, and its file."""
    torchvision_schemas.define()
    import torch
    from torch import nn

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(48), nn.Linear(48, 144), nn.Linear(48, 48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.norm(x.permute(0, 2, 3, 1)).flatten(1, 2)
            q, k, v = self.qkv(x).view(1, 40, 3, 4, 12).permute(2, 0, 3, 1, 4).unbind(0)
            scores = (q @ k.transpose(-2, -1)) * 0.3
            x = (torch.relu(scores) @ v).transpose(1, 2).reshape(1, 40, 48)  # a copy of the trace, none of the file
            first, second = self.out(x).split(24, dim=-1)
            return (first * second)[:, 1:]

    module, sample = Turned().eval(), torch.zeros(1, 48, 5, 8)
    path = tmp_path_factory.mktemp("turned") / "m.onnx"
    torch.onnx.export(module, sample, str(path), opset_version=17, dynamo=False)
    return load(module, input_shape=(48, 5, 8), batch=1), load(path)


@pytest.mark.parametrize("runtime", ["onnxruntime", "tvm"])
def test_what_pytorch_shows_by_strides_costs_a_cpu_what_the_operators_of_its_file_do(turned, runtime):
    found = []
    for graph in turned:
        table = tables(graph, runtime, "cpu")[1]
        moves = {OPERATORS.index(name) for name in ("transpose", "split", "slice", "copy", "gather")}
        rows = [
            (OPERATORS[op], int(count), int(read), int(written))
            for op, view, count, read, written in zip(
                table.op, table.view, table.count, table.bytes_read, table.bytes_written, strict=True
            )
            if op in moves and not view
        ]
        found.append(sorted(rows))
        assert_as_the_twin(graph, runtime)
    x = 40 * 48 * 4  # bytes
    assert [row for row in found[0] if row[0] in ("transpose", "split")] == [
        ("split", 1, x, x),
        ("split", 1, 3 * x, 3 * x),
        ("transpose", 1, 3 * x, 3 * x),
        ("transpose", 2, x, x),
    ]
    assert [row[:2] + row[3:] for row in found[0]] == [row[:2] + row[3:] for row in found[1]]  # files read indices too


def test_eager_pytorch_moves_nothing_of_it_but_a_copy(turned):
    found = kernels(tables(turned[0], "torch", "cpu")[1])
    assert (found["transpose"], found["split"], found["slice"], found["copy"]) == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("read", "made", "reader", "copies"),
    [
        ((1, 4, 8), (4, 1, 8), "relu", 0),
        ((1, 4, 4), (4, 1, 4), "relu", 1),
        ((2, 4, 8), (2, 8, 4), "matmul", 0),
        ((2, 4, 8), (2, 8, 4), "relu", 1),
        ((2, 4, 8), (4, 2, 8), "matmul", 1),
    ],
)
def test_a_cpu_turns_nothing_for_a_product_and_no_axis_of_one_element(read, made, reader, copies):
    builder = _core.GraphBuilder()
    x, y = (builder.add_tensor("", "float32", read, "input") for _ in range(2))
    turned, out = (builder.add_tensor("", "float32", made, "activation") for _ in range(2))
    builder.add_node("transpose", "Transpose", "", {}, [x], [turned])
    builder.add_node(reader, reader, "", {}, [turned, y] if reader == "matmul" else [turned], [out])
    graph = OpGraph(builder.finish([x, y], [out]))
    assert kernels(tables(graph, "onnxruntime", "cpu")[1])["transpose"] == copies
    assert_as_the_twin(graph, "onnxruntime")


@pytest.mark.parametrize(("source", "prefix"), [("zeros", ""), ("zeros", "aten."), ("parameter", "aten.")])
def test_a_mask_that_no_weight_decides_is_no_kernel_of_compiled_code(source, prefix):
    """Nor is one that a file begins with a constant; what a parameter decides runs, since it may be trained."""
    g = Written(prefix)
    mask = g.weight(4, 8) if source == "parameter" else g.step("fill", shape=(4, 8))
    mask = g.step("compare", mask, g.number, shape=(4, 8))
    out = g.step("where", mask, g.x, g.number)
    assert g.kernels(out, "torch.compile")["compare"] == (source == "parameter")
    g = Written(prefix)
    mask = g.step("scatter", g.weight(4, 8), g.number, g.number, shape=(4, 8))
    assert not g.kernels(g.step("where", mask, g.x, g.number), "torch.compile")["scatter"]


@pytest.mark.parametrize("index", [True, False])
def test_a_fixed_index_is_a_view_and_one_that_is_given_is_not(index):
    graph = _file(("gather", (12, 4, 8)), index=index)
    assert kernels(tables(graph)[1])["gather"] == (0 if index else 1)


@pytest.mark.parametrize(("prefix", "copies"), [("", 0), ("aten.", 1)])
def test_an_index_that_follows_from_shapes_is_fixed_in_files(prefix, copies):
    g = Written(prefix)
    sizes = g.step("shape_of", g.x, shape=(3,))
    index = g.step("reduce_min", g.step("where", sizes, sizes, shape=(3,)), shape=())
    assert g.kernels(g.step("gather", g.x, index, shape=(4, 8)))["gather"] == copies


@pytest.mark.parametrize(
    ("source", "compared"), [("aten.new_zeros", 0), ("aten.zeros_like", 0), ("aten.fill", 1), ("FILL", 1)]
)
def test_a_tensor_made_like_another_one_takes_its_shape_alone(source, compared):
    g = Written("aten.")
    mask = g.step("compare", g.step("fill", g.x, source=source), g.number)
    assert g.kernels(g.step("where", mask, g.x, g.number))["compare"] == compared


@settings(max_examples=200)
@given(st.one_of(graphs(), written_out()))
def test_what_no_input_decides_is_what_the_plain_twin_finds(graph):
    for found, on_load in ((_core.fixed_nodes(graph.core), False), (_core.folded_nodes(graph.core), True)):
        assert np.array_equal(found.astype(bool), folding_twin.fixed(graph, on_load))


@settings(max_examples=100)
@given(st.one_of(graphs(), written_out()))
def test_what_a_runtime_folds_no_input_decides(graph):
    fixed, folded = _core.fixed_nodes(graph.core), _core.folded_nodes(graph.core)
    assert (folded <= fixed).all()
    reads_input = [
        any(graph.tensor_role[t] == ROLES.index("input") for t in graph.node_inputs(n) if t >= 0)
        for n in range(graph.node_count)
    ]
    named = [graph.op_name(n) == "shape_of" for n in range(graph.node_count)]
    assert not (fixed.astype(bool) & reads_input & ~np.array(named)).any()


EXPORTS = ("legacy", "unfolded", "opset 14", "dynamo")


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
def test_every_export_of_an_encoder_runs_the_kernels_of_its_module(tmp_path, runtime):
    import torch
    import transformers

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = transformers.BertModel(config, add_pooling_layer=False)

        def forward(self, input_ids):
            return self.module(input_ids)[0]

    config = transformers.BertConfig(num_hidden_layers=1, return_dict=False, hidden_size=64, num_attention_heads=4)
    module = First().eval()
    tokens = {"input_ids": ((32,), "int64")}
    wanted = kernels(tables(load(module, input_shape=tokens, batch=1), runtime)[1])
    wanted["gather"] += wanted.pop("embedding")
    sample = (torch.zeros((1, 32), dtype=torch.int64),)
    ways = {
        "legacy": {"dynamo": False, "opset_version": 17},
        "unfolded": {"dynamo": False, "opset_version": 17, "do_constant_folding": False},
        "opset 14": {"dynamo": False, "opset_version": 14},
        "dynamo": {"dynamo": True, "external_data": False, "verbose": False},
    }
    ways["unfolded"]["training"] = torch.onnx.TrainingMode.PRESERVE
    for name in EXPORTS:
        torch.onnx.export(module, sample, str(tmp_path / "m.onnx"), input_names=["input_ids"], **ways[name])
        found = kernels(tables(load(tmp_path / "m.onnx"), runtime)[1])
        assert +found == +wanted, name


def assert_as_the_twin(graph: OpGraph, runtime: str) -> None:
    counted, plain_costs, table = costs.count(graph), costs_twin.count(graph), features.operator_table(graph)
    for kind in ("gpu", "cpu"):
        found = as_run(graph, counted, runtime, kind)
        plain = fusion_twin.as_run(graph, plain_costs, table, runtime, kind)
        for field in fields(OperatorTable):
            a, b = np.asarray(getattr(found, field.name)), np.asarray(getattr(plain, field.name))
            assert a.shape == b.shape and (a == b).all(), (kind, field.name)


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
@pytest.mark.parametrize("name", ["resnet50", "vit_base_patch16_224", "deberta_v3_large", "llama_1b_prefill"])
def test_exported_models_have_the_same_table_as_in_the_plain_twin(examples, name, runtime):
    assert_as_the_twin(load(examples / f"{name}.onnx"), runtime)


@settings(max_examples=150)
@given(written_out(), st.sampled_from(["torch", "torch.compile", "tvm"]))
def test_written_out_patterns_and_what_resembles_them_have_the_same_table_as_in_the_plain_twin(graph, runtime):
    assert_as_the_twin(graph, runtime)


@settings(max_examples=150)
@given(graphs(), st.sampled_from(["torch", "tvm"]))
def test_random_graphs_have_the_same_table_as_in_the_plain_twin(graph, runtime):
    assert_as_the_twin(graph, runtime)


@settings(max_examples=150)
@given(graphs(), st.sampled_from(["torch", "tvm"]))
def test_no_work_appears_or_vanishes_in_any_graph(graph, runtime):
    before, after = tables(graph, runtime)
    assert macs(after) == macs(before)
    assert (after.count > 0).all()
    moved = [
        float(((t.bytes_read + t.bytes_written) * t.count)[np.asarray(t.view) == 0].sum()) for t in (before, after)
    ]
    assert moved[1] <= moved[0]
