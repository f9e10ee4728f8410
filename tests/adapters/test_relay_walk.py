"""The native Relay walk and its plain twin give the same graph, and that graph is the module's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
import tvm

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from graphs import relay_decoder, relay_decoder_macs
from tvm import relay
from tvm.relay import testing

from perfpass import _core
from perfpass.errors import ArgumentError, GraphError, LimitError, ShapeError, UnsupportedError
from perfpass.graph import costs
from tvm_perfpass.relay import module_walk as walks
from tvm_perfpass.relay import walk_plain as plain
from tvm_perfpass.relay.operators import RULES
from tvm_perfpass.relay.walk_plain import walk_plain
from tvm_perfpass.rules import FORMS, READS

ARRAYS = [name for name in dir(_core.Graph) if isinstance(getattr(_core.Graph, name), property)]
ARRAYS = [name for name in ARRAYS if name not in ("notes", "string_count", "node_name", "tensor_name")]


def module(*outputs: relay.Expr) -> tvm.IRModule:
    body = outputs[0] if len(outputs) == 1 else relay.Tuple(list(outputs))
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def both(mod: tvm.IRModule, params=None) -> walks.Walk:
    """The native walk, after checking it node by node against the plain one."""
    native = walks.walk(mod, params)
    names = None if params is None else list(params)
    plain = walk_plain(walks.typed(mod), names)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(native.graph, name), getattr(plain.graph, name), err_msg=name)
    for node in range(native.graph.node_count):
        assert native.graph.source_op_name(node) == plain.graph.source_op_name(node)
    for tensor in range(native.graph.tensor_count):
        assert native.graph.string(int(native.graph.tensor_name[tensor])) == plain.graph.string(
            int(plain.graph.tensor_name[tensor])
        )
    np.testing.assert_array_equal(native.kernel_group, plain.kernel_group)
    assert native.graph.notes == plain.graph.notes
    return native


def _rotary_embedding() -> tvm.IRModule:
    """Tokens to rotated keys, repeated for groups of queries: takes, splits and concatenations."""
    tokens = relay.var("tokens", shape=(1, 16), dtype="int32")
    x = relay.take(relay.var("embedding", shape=(100, 64)), tokens, axis=0)
    heads = relay.transpose(relay.reshape(x, (1, 16, 2, 32)), (0, 2, 1, 3))
    first, second = relay.split(heads, 2, axis=-1)
    cos, sin = (relay.const(np.zeros((1, 1, 16, 16), "float32")) for _ in range(2))
    turned = [first * cos - second * sin, first * sin + second * cos]
    return module(relay.reshape(relay.repeat(relay.concatenate(turned, axis=-1), 4, axis=1), (-1, 16, 32)))


NETWORKS = {
    "resnet": lambda: testing.resnet.get_workload(1, num_layers=18),
    "mobilenet": lambda: testing.mobilenet.get_workload(2),
    "densenet": lambda: testing.densenet.get_workload(densenet_size=121),
    "inception": lambda: testing.inception_v3.get_workload(),
    "vgg": lambda: (tvm.IRModule.from_expr(testing.vgg.get_net(1, (3, 224, 224), 1000, "float32", 11)), None),
    "squeezenet": lambda: testing.squeezenet.get_workload(),
    "lstm": lambda: testing.lstm.get_workload(iterations=4, num_hidden=32),
    "dcgan": lambda: testing.dcgan.get_workload(1),
    "dqn": lambda: testing.dqn.get_workload(1),
    "mlp": lambda: testing.mlp.get_workload(1),
    "resnet3d": lambda: testing.resnet_3d.get_workload(1, num_layers=18),
    "decoder": lambda: (relay_decoder(2), None),
    "rotary": lambda: (_rotary_embedding(), None),
}


def test_macs_of_a_decoder_are_those_of_its_closed_form():
    graph = walks.walk(relay_decoder(3, batch=2, length=16)).graph
    assert costs.count(graph).totals["macs"] == relay_decoder_macs(3, batch=2, length=16)


@pytest.mark.parametrize("name", NETWORKS)
def test_native_walk_equals_its_twin(name):
    mod, params = NETWORKS[name]()
    walk = both(mod, params)
    assert isinstance(walk.graph.core, _core.Graph)
    assert not walk.graph.unknown_operators
    assert walk.graph.node_count > 3


def test_what_most_of_a_walk_reads_is_read_in_place():
    walker = walks._native()
    assert walker is not None
    fields = {"relay.Call.op", "relay.Call.args", "relay.TensorType.shape", "Array.items", "runtime.String.data"}
    assert fields <= set(walker.calibrated)


def test_names_of_any_length_and_script_reach_the_graph():
    names = ["x", "layers.0.attention.query.weight" * 20, "Gewichtsmaß/重み"]
    variables = [relay.var(name, shape=(2, 3)) for name in names]
    mod = tvm.IRModule.from_expr(relay.Function(variables, relay.Tuple([relay.exp(var) for var in variables])))
    graph = both(mod).graph
    assert [graph.string(int(graph.tensor_name[t])) for t in graph.graph_inputs] == names


def test_reflection_alone_gives_the_same_graph():
    mod, params = testing.resnet.get_workload(1, num_layers=18)
    fast = walks.walk(mod, params)
    walker = walks._native()
    walker.forget_layout()
    try:
        assert walker.calibrated == []
        slow = both(mod, params)
    finally:
        walks._native.cache_clear()
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(fast.graph, name), getattr(slow.graph, name))


def test_the_table_names_only_operators_columns_and_forms_that_exist():
    known = {str(name) for name in tvm.ir.Op.list_op_names()}
    stems = {name.removesuffix("_0") for name in _core.ATTRIBUTES} | {"pad"}
    for name, rule in RULES.items():
        assert name in known, name
        assert rule.op in _core.OPERATORS, name
        assert rule.form in FORMS, name
        for _, how, column in rule.reads:
            assert how in READS, name
            assert column in stems, name


def test_a_chain_of_30000_calls():
    x = relay.var("x", shape=(1, 4))
    y = x
    for _ in range(30_000):
        y = relay.Call(relay.op.get("nn.relu"), [y])
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    graph = walks.import_module(mod)  # the twin agrees, in a quarter of a minute
    assert graph.node_count == 30_000
    np.testing.assert_array_equal(graph.edge_producer, np.arange(29_999))


def test_conv_attributes_and_roles():
    x = relay.var("x", shape=(2, 8, 16, 16))
    w = relay.var("w", shape=(12, 4, 3, 5))
    y = relay.nn.conv2d(x, w, strides=(2, 1), padding=(1, 2, 3, 4), dilation=(1, 2), groups=2, kernel_size=(3, 5))
    graph = both(module(relay.nn.relu(y)), ["w"]).graph
    columns = dict(zip(_core.ATTRIBUTES, graph.attributes[0].tolist(), strict=True))
    expected = {
        "kernel_0": 3, "kernel_1": 5, "stride_0": 2, "stride_1": 1, "pad_begin_0": 1, "pad_begin_1": 2, "pad_end_0": 3,
        "pad_end_1": 4, "dilation_0": 1, "dilation_1": 2, "groups": 2, "spatial_rank": 2, "channels_last": 0,
        "weight_layout": 0,
    }  # fmt: skip
    assert {name: columns[name] for name in expected} == expected
    assert graph.tensor_role.tolist() == [1, 2, 0, 0]


def test_weight_slots_are_recognised_without_names_and_said():
    mod, params = testing.resnet.get_workload(1, num_layers=18)
    named, inferred = both(mod, params).graph, both(mod).graph
    np.testing.assert_array_equal(named.tensor_role, inferred.tensor_role)
    assert any("weight slots" in note for note in inferred.notes)


@pytest.mark.parametrize(("layout", "kernel", "weight_layout"), [("NHWC", "HWIO", 1), ("NHWC", "OHWI", 0)])
def test_layouts(layout, kernel, weight_layout):
    sizes = {"O": 12, "I": 8, "H": 3, "W": 3}
    x = relay.var("x", shape=(2, 16, 16, 8))
    w = relay.var("w", shape=tuple(sizes[c] for c in kernel))
    y = relay.nn.conv2d(x, w, padding=1, channels=12, kernel_size=(3, 3), data_layout=layout, kernel_layout=kernel)
    graph = both(module(y), ["w"]).graph
    columns = dict(zip(_core.ATTRIBUTES, graph.attributes[0].tolist(), strict=True))
    assert columns["channels_last"] == 1
    assert columns["weight_layout"] == weight_layout


def test_blocked_layouts_are_shown_by_their_logical_shape():
    mod, params = testing.resnet.get_workload(1, num_layers=18)
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    with tvm.target.Target("llvm -mcpu=x86-64-v3"), tvm.transform.PassContext(opt_level=3):
        passes = [relay.transform.SimplifyInference(), relay.transform.CanonicalizeOps()]
        altered = tvm.transform.Sequential([*passes, relay.transform.AlterOpLayout()])(relay.transform.InferType()(mod))
    graph = both(altered).graph
    convs = [n for n in range(graph.node_count) if graph.source_op_name(n) == "nn.contrib_conv2d_NCHWc"]
    assert len(convs) > 10
    for node in convs:
        data, weight = (graph.shape(int(t)) for t in graph.node_inputs(node)[:2])
        result = graph.shape(int(graph.node_outputs(node)[0]))
        assert len(data) == len(weight) == len(result) == 4
        assert weight[0] == result[1]
        assert weight[1] == data[1]


def test_fused_functions_are_groups_and_their_members_nodes():
    mod, params = testing.resnet.get_workload(1, num_layers=18)
    with tvm.transform.PassContext(opt_level=3):
        simple = relay.transform.InferType()(relay.transform.SimplifyInference()(mod))
        fused = relay.transform.InferType()(relay.transform.FuseOps(fuse_opt_level=2)(simple))
    walk, plain = both(fused, params), both(simple, params)
    assert sorted(plain.graph.op.tolist()) == sorted(walk.graph.op.tolist())
    assert (plain.kernel_group == -1).all()
    assert (walk.kernel_group >= 0).all()
    assert 0 < walk.kernel_group.max() < walk.graph.node_count - 1


def test_functions_lets_tuples_and_closures_are_inlined():
    x = relay.var("x", shape=(3, 4))
    p, q, f = relay.var("p", shape=(3, 4)), relay.var("q", shape=(3, 4)), relay.var("f")
    twice = relay.GlobalVar("twice")
    mod = tvm.IRModule()
    mod[twice] = relay.Function([p], relay.add(p, relay.tanh(p)))
    closure = relay.Function([q], relay.multiply(q, x))  # x is free in it
    body = relay.Let(f, closure, relay.Tuple([relay.Call(f, [relay.Call(twice, [x])]), relay.Call(twice, [x])]))
    mod["main"] = relay.Function([x], relay.TupleGetItem(relay.Tuple([body]), 0))
    graph = both(relay.transform.InferType()(mod)).graph
    assert [graph.source_op_name(n) for n in range(graph.node_count)] == ["tanh", "add", "multiply", "tanh", "add"]
    assert len(graph.graph_outputs) == 2


def test_the_heavier_branch_of_an_if_counts():
    x, flag = relay.var("x", shape=(4, 8)), relay.var("flag", shape=(), dtype="bool")
    heavy = relay.nn.dense(x, relay.const(np.zeros((8, 8), "float32")))
    inner = relay.If(flag, relay.exp(x), relay.tanh(relay.exp(relay.sigmoid(x))))
    mod = tvm.IRModule.from_expr(relay.Function([x, flag], relay.If(flag, inner, heavy)))
    graph = both(mod).graph
    names = [graph.source_op_name(n) for n in range(graph.node_count)]
    assert names == ["exp", "sigmoid", "exp", "tanh", "If", "nn.dense", "If"]
    assert graph.repeat.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert len(graph.notes) == 2


def test_what_cannot_be_counted_is_said():
    x, n = relay.var("x", shape=(2,)), relay.var("n", shape=(), dtype="bool")
    loop = relay.GlobalVar("loop")
    recursive = tvm.IRModule()
    kind = relay.TensorType((2,))
    recursive[loop] = relay.Function([x, n], relay.If(n, relay.Call(loop, [relay.exp(x), n]), x), kind)
    y, m = relay.var("y", shape=(2,)), relay.var("m", shape=(), dtype="bool")
    recursive["main"] = relay.Function([y, m], relay.Call(loop, [y, m]), kind)
    with pytest.raises(UnsupportedError, match="calls itself"):
        walks.walk(relay.transform.InferType()(recursive))
    with pytest.raises(ShapeError, match=r"'d'.*axis 0.*static"):
        walks.walk(module(relay.exp(relay.var("d", shape=(relay.Any(), 3)))))
    with pytest.raises(UnsupportedError, match="reference"):
        walks.walk(
            relay.transform.InferType()(module(relay.RefRead(relay.RefCreate(relay.exp(relay.var("r", shape=(2,)))))))
        )
    with pytest.raises(GraphError, match="main"):
        walks.walk(tvm.IRModule())


def test_functions_too_deep_are_an_error_of_their_own():
    mod, callee = tvm.IRModule(), None
    for i in range(140):
        x = relay.var("x", shape=(2,))
        body = relay.exp(x) if callee is None else relay.Call(callee, [x])
        callee = relay.GlobalVar(f"f{i}")
        mod[callee] = relay.Function([x], body, relay.TensorType((2,)))
    y = relay.var("y", shape=(2,))
    mod["main"] = relay.Function([y], relay.Call(callee, [y]))
    with pytest.raises(LimitError, match="128"):
        walks.walk(relay.transform.InferType()(mod))


def test_quantized_weights_are_parameters_by_every_way_of_naming_them():
    def network(weight, bias):
        data = relay.var("data", shape=(1, 3, 8, 8), dtype="uint8")
        zero, scale = relay.const(0), relay.const(0.1)
        out = relay.qnn.op.conv2d(data, weight, zero, zero, scale, scale, kernel_size=(3, 3), channels=16)
        return module(relay.nn.bias_add(out, bias))

    weight = relay.var("weight", shape=(16, 3, 3, 3), dtype="int8")
    bias = relay.var("bias", shape=(16,), dtype="int32")
    constants = [relay.const(np.zeros((16, 3, 3, 3), "int8")), relay.const(np.zeros((16,), "int32"))]
    for mod, params, expected in (
        (network(weight, bias), ["weight", "bias"], 16 * 27 + 16),
        (network(*constants), None, 16 * 27 + 16),
        (network(weight, bias), None, 16 * 27),  # a bias of integers may be any input
    ):
        assert costs.count(both(mod, params).graph).totals["parameters"] == expected


def test_masks_and_shapes_are_no_parameters():
    mask = relay.const(np.zeros((4, 4), "bool"))
    data = relay.var("data", shape=(4, 4))
    mod = module(relay.where(mask, data, relay.cast(relay.const(np.zeros((4, 4), "int32")), "float32")))
    assert costs.count(both(mod).graph).totals["parameters"] == 0


def test_a_product_of_quantized_activations_has_no_weight():
    a, b = (relay.var(name, shape=(2, 4, 8), dtype="int8") for name in "ab")
    zero, scale = relay.const(0), relay.const(0.1)
    graph = both(module(relay.qnn.op.batch_matmul(a, b, zero, zero, scale, scale))).graph
    assert costs.count(graph).totals["parameters"] == 0
    assert len(graph.graph_inputs) == 2


@pytest.mark.parametrize("dtype", ["int7", "float32x4"])
def test_a_dtype_of_unknown_size_is_an_error_that_names_it(dtype):
    x = relay.var("x", shape=(4,), dtype=dtype)
    mod = module(relay.nn.relu(x))
    for walk in (walks.walk, lambda m: walk_plain(walks.typed(m), None)):
        with pytest.raises(UnsupportedError, match=f"input 'x': it has dtype {dtype}"):
            walk(mod)


def test_functions_that_double_their_calls_end_in_an_error(monkeypatch):
    mod = tvm.IRModule()
    inner = None
    for i in range(30):
        argument = relay.var("a", shape=(4,))
        body = argument if inner is None else inner(inner(argument))
        inner = relay.GlobalVar(f"f{i}")
        mod[inner] = relay.Function([argument], body, relay.TensorType((4,)))
    x = relay.var("x", shape=(4,))
    mod["main"] = relay.Function([x], relay.exp(inner(x)))
    with pytest.raises(LimitError, match="called more than 1048576 times"):
        walks.walk(mod)
    monkeypatch.setattr(plain, "MAX_INLINED", 1000)  # the twin takes a minute for a million
    with pytest.raises(LimitError, match="called more than 1000 times"):
        walk_plain(walks.typed(mod), None)


@pytest.mark.parametrize(
    ("make", "operators"),
    [
        (lambda x: _closure_that_is_returned(x), ["add"]),
        (lambda x: _closure_that_is_an_argument(x), ["exp", "exp"]),
        (lambda x: relay.exp(relay.TupleGetItem(relay.TupleGetItem(_nested(x), 1), 1)), ["split", "exp"]),
    ],
    ids=["returned closure", "function argument", "chain of tuple fields"],
)
def test_values_reach_their_readers(make, operators):
    x = relay.var("x", shape=(12, 8))
    graph = both(tvm.IRModule.from_expr(relay.Function([x], make(x)))).graph
    assert [graph.source_op_name(node) for node in range(graph.node_count)] == operators


def _nested(x):
    parts = relay.split(x, 3, axis=0)
    return relay.Tuple([parts[0], relay.Tuple([parts[1], parts[2]])])


def _closure_that_is_returned(x):
    a, b = (relay.var(name, shape=(12, 8)) for name in "ab")
    return relay.Call(relay.Call(relay.Function([a], relay.Function([b], relay.add(a, b))), [x]), [x])


def _closure_that_is_an_argument(x):
    kind = relay.TensorType((12, 8))
    function, a, b = relay.Var("f", relay.FuncType([kind], kind)), relay.var("a", kind), relay.var("b", kind)
    twice = relay.Function([function, a], function(function(a)))
    return twice(relay.Function([b], relay.exp(b)), x)


@pytest.mark.parametrize("body", [relay.Tuple([]), relay.const(1.0), relay.var("x", shape=(3,))])
def test_a_module_without_operators_is_an_error(body):
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    with pytest.raises(GraphError, match="no operator"):
        walks.walk(mod)


@pytest.mark.parametrize("shape", [(), (0, 8), (1, 0, 4)])
def test_scalars_and_empty_tensors_are_counted(shape):
    x = relay.var("x", shape=shape)
    graph = both(module(relay.exp(x))).graph
    assert costs.count(graph).totals["bytes_read"] == 4 * int(np.prod(shape))


def test_one_name_in_place_of_a_list_is_an_error():
    x = relay.var("x", shape=(4,))
    with pytest.raises(ArgumentError, match="a list of names"):
        walks.walk(module(relay.exp(x)), "x")


def test_an_input_that_is_picked_from_is_no_weight():
    data = relay.var("data", shape=(8, 16))
    picked = relay.take(data, relay.const(np.arange(4, dtype="int32")), axis=0)
    gathered = relay.gather_nd(data, relay.var("indices", shape=(1, 3), dtype="int32"))
    graph = both(module(picked, gathered)).graph
    assert costs.count(graph).totals["parameters"] == 0
    assert len(graph.graph_inputs) == 2


def test_a_table_that_tokens_look_up_is_a_weight():
    table, tokens = relay.var("table", shape=(100, 16)), relay.var("tokens", shape=(1, 8), dtype="int32")
    assert costs.count(both(module(relay.take(table, tokens, axis=0))).graph).totals["parameters"] == 1600
