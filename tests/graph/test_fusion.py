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
from perfpass.graph import OPERATORS, OpGraph, costs
from perfpass.importers import load
from perfpass.predictors.inference.fusion import as_run
from twins import costs as costs_twin
from twins import fusion as fusion_twin


def tables(graph: OpGraph, runtime: str = "torch") -> tuple[OperatorTable, OperatorTable]:
    """The table as counted and as run."""
    counted = costs.count(graph)
    table = features.operator_table(graph, counted)
    return table, as_run(graph, counted, runtime)


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


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
def test_transposes_are_strides_in_torch_and_copies_elsewhere(examples, runtime):
    found = kernels(tables(load(examples / "vit_base_patch16_224.onnx"), runtime)[1])
    assert found["split"] == (0 if runtime == "torch" else 12)


def assert_as_the_twin(graph: OpGraph, runtime: str) -> None:
    counted = costs.count(graph)
    found = as_run(graph, counted, runtime)
    plain = fusion_twin.as_run(graph, costs_twin.count(graph), features.operator_table(graph, counted), runtime)
    for field in fields(OperatorTable):
        a, b = np.asarray(getattr(found, field.name)), np.asarray(getattr(plain, field.name))
        assert a.shape == b.shape and (a == b).all(), field.name


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
@pytest.mark.parametrize("name", ["resnet50", "vit_base_patch16_224", "deberta_v3_large", "llama_1b_prefill"])
def test_exported_models_have_the_same_table_as_in_the_plain_twin(examples, name, runtime):
    assert_as_the_twin(load(examples / f"{name}.onnx"), runtime)


@settings(max_examples=150)
@given(written_out(), st.sampled_from(["torch", "tvm"]))
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
