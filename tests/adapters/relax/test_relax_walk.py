"""The native Relax walk and its plain twin give the same graph, and that graph is the module's."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from relax_modules import Maker, both, module, sources, tensor
from tvm import relax, tirx

from perfpass import _core
from perfpass.errors import ArgumentError, GraphError, LimitError, ShapeError, UnsupportedError
from perfpass.graph import costs
from tvm_perfpass.relax import load
from tvm_perfpass.relax import walk as walks
from tvm_perfpass.relax.operators import RULES
from tvm_perfpass.relax.walk import walk, walk_plain
from tvm_perfpass.rules import FORMS, READS


def var(name: str, shape, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, tensor(shape, dtype))


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_the_walks_agree_on_random_modules(seed, steps):
    mod = Maker(Random(seed)).grow(steps)
    symbolic = {v.name for v in relax.analysis.defined_symbolic_vars(mod["main"])}
    assert both(mod, {"n": 5} if symbolic else None).graph.node_count > 0


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(2, 10))
def test_the_walks_agree_on_lowered_modules_and_no_product_is_lost(seed, steps):
    mod = relax.transform.DeadCodeElimination()(Maker(Random(seed)).grow(steps))  # FuseTIR does it, too
    bindings = {"n": 5} if relax.analysis.defined_symbolic_vars(mod["main"]) else None
    macs = costs.count(both(mod, bindings).graph).totals["macs"]
    for lowering in ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
        mod = getattr(relax.transform, lowering)()(mod)
        assert costs.count(both(mod, bindings).graph).totals["macs"] == macs, lowering


def test_every_operator_of_the_release_is_in_the_table():
    known = {str(name) for name in tvm.ir.Op.list_op_names() if str(name).startswith("relax.")}
    assert known == set(RULES)
    stems = {name.removesuffix("_0") for name in _core.ATTRIBUTES} | {"pad"}
    for name, rule in RULES.items():
        assert rule.op in _core.OPERATORS, name
        assert rule.form in FORMS, name
        for _, how, column in rule.reads:
            assert how in READS, name
            assert column in stems, name
    unknown = {name for name, rule in RULES.items() if rule.op == "unknown" and not rule.form}
    assert unknown == {
        "relax.ccl.allgather",
        "relax.ccl.allreduce",
        "relax.ccl.broadcast_from_worker0",
        "relax.ccl.scatter_from_worker0",
        "relax.dist.redistribute",
    }


def test_attributes_that_the_table_reads_exist():
    """By the operator's registered attributes, where it has registered them."""
    from tvm_ffi import core

    checked = 0
    for name, rule in RULES.items():
        key = tvm.ir.Op.get(name).attrs_type_key
        try:
            fields = {field.name for field in core._lookup_or_register_type_info_from_type_key(key).fields}
        except (TypeError, ValueError):
            continue
        for attribute, _, _ in rule.reads:
            assert attribute in fields, (name, attribute)
            checked += 1
    assert checked > 70


def test_symbolic_sizes_are_bound_at_call_time():
    n, m = (tirx.Var(name, "int64") for name in "nm")
    x, y = var("x", (n, 4)), var("y", (m, 4))
    mod = module(
        [x, y], lambda b, x, y: relax.op.concat([relax.op.reshape(x, (n * 2, 2)), relax.op.reshape(y, (m * 2, 2))])
    )
    graph = both(mod, {"n": 3, "m": 5}).graph
    assert graph.shape(int(graph.graph_outputs[0])) == (16, 2)
    with pytest.raises(ShapeError, match=r"'x'.*symbolic size n at axis 0.*\{'m': 8, 'n': 8\}"):
        load(mod)
    with pytest.raises(ShapeError, match=r"'y'.*symbolic size m.*\{'m': 8\}"):
        load(mod, {"n": 3})
    with pytest.raises(ArgumentError, match="bindings name q; the symbolic sizes of main are m, n"):
        load(mod, {"q": 3})
    with pytest.raises(ArgumentError, match="whole number"):
        load(mod, {"n": -1, "m": 2})
    with pytest.raises(LimitError):
        load(mod, {"n": 2**47, "m": 2})


def test_conv_attributes_and_roles():
    x, w = var("x", (2, 8, 16, 16)), var("w", (12, 4, 3, 5))
    conv = lambda b, x, w: relax.op.nn.conv2d(x, w, strides=(2, 1), padding=(1, 2, 3, 4), dilation=(1, 2), groups=2)  # noqa: E731
    graph = both(module([x, w], conv), params=["w"]).graph
    columns = dict(zip(_core.ATTRIBUTES, graph.attributes[0].tolist(), strict=True))
    expected = {
        "kernel_0": 3, "kernel_1": 5, "stride_0": 2, "stride_1": 1, "pad_begin_0": 1, "pad_begin_1": 2, "pad_end_0": 3,
        "pad_end_1": 4, "dilation_0": 1, "dilation_1": 2, "groups": 2, "spatial_rank": 2, "channels_last": 0,
        "weight_layout": 0,
    }  # fmt: skip
    assert {name: columns[name] for name in expected} == expected
    assert graph.tensor_role.tolist() == [1, 2, 0]


def test_attention_counts_its_heads():
    q, k, v = var("q", (2, 7, 4, 8)), var("k", (2, 9, 4, 8)), var("v", (2, 9, 4, 8))
    graph = both(module([q, k, v], lambda b, q, k, v: relax.op.nn.attention(q, k, v, causal_mask="TopLeft"))).graph
    assert costs.count(graph).totals["macs"] == 2 * 4 * 7 * 9 * 16
    columns = dict(zip(_core.ATTRIBUTES, graph.attributes[0].tolist(), strict=True))
    assert (columns["num_heads"], columns["num_kv_heads"], columns["causal"]) == (4, 4, 1)


def test_lowered_attention_and_transposed_convolutions_keep_their_work():
    q, k, v = (var(name, (2, length, 4, 8)) for name, length in (("q", 7), ("k", 9), ("v", 9)))
    x, w = var("x", (2, 8, 6, 6)), var("w", (8, 5, 3, 3))
    modules = [
        module([q, k, v], lambda b, q, k, v: relax.op.nn.attention(q, k, v)),
        module([x, w], lambda b, x, w: relax.op.nn.conv2d_transpose(x, w, strides=2)),
        module([x, var("d", (8, 1, 3, 3))], lambda b, x, d: relax.op.nn.conv2d(x, d, groups=8)),
        module([x, var("o", (4, 8, 1, 1))], lambda b, x, o: relax.op.nn.conv2d(x, o, strides=2)),
        module([var("a", (3, 4, 5)), var("b", (3, 5, 6))], lambda _, a, b: relax.op.einsum((a, b), "bij,bjk->bik")),
    ]
    for mod in modules:
        before, after = (costs.count(both(m).graph).totals["macs"] for m in (mod, relax.transform.LegalizeOps()(mod)))
        assert before == after > 0, mod


def test_einsum_contracts():
    a, b = var("a", (3, 4, 5)), var("b", (3, 5, 6))
    graph = both(module([a, b], lambda _, a, b: relax.op.einsum((a, b), "bij,bjk->bik"))).graph
    assert costs.count(graph).totals["macs"] == 3 * 4 * 5 * 6


def test_a_transposed_constant_is_read_as_it_lies():
    x, w = var("x", (2, 4)), relax.const(np.zeros((3, 4), "float32"))
    graph = both(module([x], lambda b, x: relax.op.matmul(x, b.emit(relax.op.permute_dims(w))))).graph
    assert graph.node_count == 1
    assert costs.count(graph).totals["macs"] == 24
    assert costs.count(graph).totals["parameters"] == 12
    shared = module(
        [x], lambda b, x: relax.op.add(relax.op.matmul(x, t := b.emit(relax.op.permute_dims(w))), relax.op.sum(t))
    )
    assert both(shared).graph.node_count == 4
    inputs = module([x, var("w", (3, 4))], lambda b, x, w: relax.op.matmul(x, relax.op.permute_dims(w)))
    assert both(inputs, params=["w"]).graph.node_count == 2  # an input may change from run to run


def test_functions_and_closures_are_inlined():
    n = tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    a = var("a", (n, 4))
    with builder.function("twice", [a]):
        builder.emit_func_output(builder.emit(relax.op.add(a, a)))
    twice = builder.get().get_global_var("twice")
    x = var("x", (3, 4))
    with builder.function("main", [x]):
        y = builder.emit(relax.Call(twice, [x]))
        z = builder.emit(relax.Call(twice, [relax.Tuple([y])[0]]))
        builder.emit_func_output(builder.emit(relax.op.exp(z)))
    walked = both(builder.get())
    assert sources(walked) == ["relax.add", "relax.add", "relax.exp"]
    assert walked.graph.shape(int(walked.graph.graph_outputs[0])) == (3, 4)


def test_the_heavier_branch_of_an_if_counts():
    x, flag = var("x", (4, 8)), var("flag", (), "bool")
    heavy = relax.op.matmul(x, relax.const(np.zeros((8, 8), "float32")))
    inner = relax.If(flag, relax.op.exp(x), relax.op.tanh(relax.op.exp(relax.op.sigmoid(x))))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, flag]):
        builder.emit_func_output(builder.emit(relax.If(flag, inner, heavy)))
    walked = both(builder.get())
    assert sources(walked)[:5] == ["relax.exp", "relax.sigmoid", "relax.exp", "relax.tanh", "If"]
    assert walked.graph.repeat.tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_a_thousand_ifs_within_one_another():
    x, flag = var("x", (4,)), var("flag", (), "bool")
    seq = relax.SeqExpr([], x)
    for _ in range(1000):
        value = relax.If(flag, seq, relax.SeqExpr([], x))
        value = relax.If(value.cond, value.true_branch, value.false_branch)
        out = relax.Var("y", tensor((4,)))
        _typed(value, tensor((4,)))
        seq = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(out, value)])], out)
    main = relax.Function([x, flag], seq, tensor((4,)))
    graph = walk(tvm.IRModule({"main": main})).graph
    assert graph.node_count == 1000


def _typed(expression: relax.Expr, kind: relax.TensorType) -> None:
    from tvm.relax.expr import _update_type

    _update_type(expression, kind)


def test_what_cannot_be_counted_is_said():
    builder = relax.BlockBuilder()
    loop = relax.GlobalVar("loop")
    x = var("x", (2,))
    _typed(loop, relax.FuncType([tensor((2,))], tensor((2,))))
    call = relax.Call(loop, [x])
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    y = relax.Var("y", tensor((2,)))
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, call)])], y)
    function = relax.Function([x], body, tensor((2,)))
    for call_walk in (walk, walk_plain):
        with pytest.raises(UnsupportedError, match="calls itself"):
            call_walk(tvm.IRModule({"main": function, loop: function}))
        with pytest.raises(ShapeError, match="depends on data"):
            call_walk(module([var("z", (4,))], lambda b, z: relax.op.nonzero(z)))
        planned = module([x], lambda b, x: relax.op.builtin.alloc_tensor(relax.ShapeExpr([2]), "float32", 0))
        with pytest.raises(UnsupportedError, match=r"relax.builtin.alloc_tensor.*memory planning"):
            call_walk(planned)
        with pytest.raises(GraphError, match="no function 'main'; it has other"):
            call_walk(module([x], lambda b, x: relax.op.exp(x), "other"))
        with pytest.raises(UnsupportedError, match="dtype float32x4"):
            call_walk(module([var("v", (2,), "float32x4")], lambda b, v: relax.op.nn.relu(v)))
    with pytest.raises(ArgumentError, match="IRModule"):
        load("model.onnx")
    with pytest.raises(ArgumentError, match="a list of names"):
        load(module([x], lambda b, x: relax.op.exp(x)), params="x")


def test_names_that_another_release_has_changed_are_named(monkeypatch):
    walker = walks._native()
    assert walker.offset_of("ir.Call", "args") > 0
    with pytest.raises(walks._relax.AbiError, match=r"ir.Call has no field 'arguments'"):
        walker.offset_of("ir.Call", "arguments")
    with pytest.raises(walks._relax.AbiError, match=r"no class relax.expr.Call"):
        walker.offset_of("relax.expr.Call", "args")
    mod = module([var("x", (2,))], lambda b, x: relax.op.nn.softmax(x))
    broken = {
        **RULES,
        "relax.nn.softmax": walks.RULES["relax.nn.leakyrelu"].__class__("softmax", (("axes", "axis", "axis"),)),
    }
    monkeypatch.setattr("tvm_perfpass.relax.walk_plain.RULES", broken)
    with pytest.raises(UnsupportedError, match=rf"TVM {tvm.__version__}.*axes.*apache-tvm 0.27"):
        walk_plain(mod)


def test_relay_is_said_to_be_elsewhere():
    import tvm_perfpass

    with pytest.raises(UnsupportedError, match=r"lacks Relay.*TVM 0.19"):
        tvm_perfpass.PredictPerformance  # noqa: B018
