"""The torch importer: what a trace promises about the graph, and about the module that it was given."""

from __future__ import annotations

import json
import pickle
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.errors import ArgumentError, FormatError, ShapeError, UnsupportedError
from perfpass.graph import ATTRIBUTES, OPERATORS, OpGraph, at_batch, costs
from perfpass.importers import huggingface, load, torchvision_schemas
from perfpass.importers.torch import trace

torchvision_schemas.define()
nn = torch.nn
VIEW, IN_PLACE = ATTRIBUTES.index("view"), ATTRIBUTES.index("in_place")


def kinds(graph: OpGraph) -> Counter[str]:
    return Counter(graph.op_name(n) for n in range(graph.node_count))


def node(graph: OpGraph, kind: str) -> int:
    return next(n for n in range(graph.node_count) if graph.op_name(n) == kind)


def attribute(graph: OpGraph, n: int, name: str) -> int:
    return int(graph.attributes[n, ATTRIBUTES.index(name)])


def producers(graph: OpGraph, n: int) -> set[str]:
    return {graph.op_name(p) for p, c in graph.edge_index.T.tolist() if c == n}


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1, dilation=1)
        self.norm = nn.BatchNorm2d(8)
        self.side = nn.Conv2d(3, 8, 1, stride=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)))
        y = y + self.side(x)
        return self.head(y.mean((2, 3)))


def test_edges_are_the_data_flow_and_not_a_chain():
    graph = trace(Residual(), (3, 32, 32), batch=4)
    assert graph.unknown_operators == {}
    assert producers(graph, node(graph, "add")) == {"relu", "conv"}
    assert producers(graph, node(graph, "dense")) == {"reduce_mean"}
    first, side = (n for n in range(graph.node_count) if graph.op_name(n) == "conv")
    assert producers(graph, first) == producers(graph, side) == set()
    assert [graph.shape(int(t)) for t in graph.graph_inputs] == [(4, 3, 32, 32)]
    assert [graph.shape(int(t)) for t in graph.graph_outputs] == [(4, 5)]


def test_convolutions_carry_their_attributes_and_modules_name_their_nodes():
    graph = trace(nn.Sequential(nn.Conv2d(8, 16, (3, 5), (2, 1), (1, 2), groups=4)), (8, 20, 20))
    n = node(graph, "conv")
    wanted = {"kernel_0": 3, "kernel_1": 5, "stride_0": 2, "stride_1": 1, "pad_begin_0": 1, "pad_end_1": 2}
    wanted |= {"dilation_0": 1, "spatial_rank": 2, "groups": 4, "weight_layout": 0}
    assert {name: attribute(graph, n, name) for name in wanted} == wanted
    assert graph.label(n) == "0.aten.convolution"
    transposed = trace(nn.ConvTranspose2d(8, 6, 2, stride=2), (8, 5, 5))
    assert attribute(transposed, node(transposed, "conv_transpose"), "weight_layout") == 2


def test_parameters_are_weights_once_and_counters_are_literals():
    model = Residual()
    graph = trace(model, (3, 32, 32))
    weights = [t for t in range(graph.tensor_count) if graph.tensor_role[t] == 2]
    floats = [t for t in [*model.parameters(), *model.buffers()] if t.is_floating_point() and t.dim()]
    assert sum(int(np.prod(graph.shape(t))) for t in weights) == sum(t.numel() for t in floats)


def test_a_linear_layer_reads_its_weight_without_a_transpose_node():
    graph = trace(nn.Linear(6, 3), (6,), batch=2)
    assert kinds(graph) == {"dense": 1}
    assert attribute(graph, 0, "transpose_b") == 1
    assert [graph.shape(int(t)) for t in graph.node_inputs(0)] == [(2, 6), (3, 6), (3,)]


def test_the_module_is_left_as_it_was():
    class Caching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.drop = nn.Dropout()
            self.register_buffer("steps", torch.zeros(4))
            self.cache = None

        def forward(self, x):
            self.cache = torch.ones(4, device=x.device)
            self.steps += 1
            return self.drop(self.linear(x)) + self.cache + self.steps

    model = Caching().train()
    model.drop.eval()
    before = {name: (t, t.clone()) for name, t in model.state_dict(keep_vars=True).items()}
    hooks = dict(torch.nn.modules.module._global_forward_hooks)
    trace(model, (4,))
    assert model.training and model.linear.training and not model.drop.training and model.cache is None
    after = model.state_dict(keep_vars=True)
    assert all(after[name] is tensor and torch.equal(tensor, value) for name, (tensor, value) in before.items())
    assert all(t.device.type == "cpu" and t.requires_grad == (name != "steps") for name, t in after.items())
    assert hooks == dict(torch.nn.modules.module._global_forward_hooks)


def test_no_weight_is_allocated_for_a_model_on_the_meta_device():
    with torch.device("meta"):
        model = nn.Linear(1_000_000, 1_000_000)  # 4 TB
    graph = trace(model, (1_000_000,))
    assert graph.shape(int(graph.node_inputs(0)[1])) == (1_000_000, 1_000_000)


def test_attention_stays_one_node_with_its_heads():
    class Attend(nn.Module):
        def forward(self, x):
            q = x.reshape(x.shape[0], 10, 8, 4).transpose(1, 2)
            k = q[:, :2]
            out = nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
            return out.transpose(1, 2).reshape(x.shape)

    graph = trace(Attend(), (10, 32), batch=3)
    n = node(graph, "attention")
    assert kinds(graph)["matmul"] == kinds(graph)["softmax"] == kinds(graph)["copy"] == 0
    assert [attribute(graph, n, a) for a in ("num_heads", "num_kv_heads", "causal")] == [8, 2, 1]
    assert graph.shape(int(graph.node_outputs(n)[0])) == (3, 8, 10, 4)


@pytest.mark.parametrize(("layer", "kind"), [(nn.LSTM, "lstm"), (nn.GRU, "gru"), (nn.RNN, "rnn")])
def test_a_recurrent_layer_is_one_node_per_layer(layer, kind):
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(6, 7, num_layers=2, bidirectional=True, batch_first=True)
            self.head = nn.Linear(14, 2)

        def forward(self, x):
            out, state = self.layer(x)
            state = state[0] if isinstance(state, tuple) else state
            return self.head(out[:, -1]), state.sum()

    graph = trace(Last(), (5, 6), batch=3)
    rows = [n for n in range(graph.node_count) if graph.op_name(n) == kind]
    assert len(rows) == 2 and producers(graph, rows[1]) >= {kind}
    assert [graph.shape(int(graph.node_outputs(n)[0])) for n in rows] == [(3, 5, 14)] * 2
    assert [attribute(graph, rows[0], a) for a in ("hidden_size", "directions")] == [7, 2]
    assert kind in producers(graph, node(graph, "reduce_sum"))


def test_views_move_nothing_and_in_place_writes_are_marked():
    class Steps(nn.Module):
        def forward(self, x):
            y = x.permute(0, 2, 1).reshape(x.shape[0], -1) * 2
            return y.relu_().chunk(2, dim=1)

    graph = trace(Steps(), (4, 6))
    flags = {
        graph.op_name(n): (graph.attributes[n, VIEW], graph.attributes[n, IN_PLACE]) for n in range(graph.node_count)
    }
    assert flags["transpose"] == (1, 0) and flags["split"] == (1, 0)
    assert flags["copy"] == (0, 0) and flags["relu"] == (0, 1)


def test_reading_memory_after_a_write_through_another_view_depends_on_that_write():
    class Write(nn.Module):
        def forward(self, x):
            y = x * 1.0
            y[:, :2].sigmoid_()
            return y.exp()

    graph = trace(Write(), (6,))
    reached, frontier = set(), [node(graph, "exp")]
    while frontier:
        n = frontier.pop()
        reached.add(graph.op_name(n))
        frontier += [p for p, c in graph.edge_index.T.tolist() if c == n]
    assert reached == {"exp", "identity", "sigmoid", "slice", "mul"}


def test_unknown_operators_are_kept_with_their_shapes():
    library = torch.library.Library("perfpass_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x.new_empty((*x.shape[:-1], 2 * x.shape[-1])), "Meta")

    class Foreign(nn.Module):
        def forward(self, x):
            return torch.ops.perfpass_test.twice(x) + 1

    graph = trace(Foreign(), (4,), batch=2)
    assert graph.unknown_operators == {"perfpass_test.twice": 1}
    assert graph.shape(int(graph.node_outputs(0)[0])) == (2, 8)
    assert producers(graph, 1) == {"unknown"}


def test_a_forward_that_needs_values_is_refused_with_operator_and_module():
    class Inner(nn.Module):
        def forward(self, x):
            return x[x > 0]

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filter = Inner()

        def forward(self, x):
            return self.filter(x)

    with pytest.raises(UnsupportedError, match=r"module 'filter'.*values"):
        trace(Outer(), (4,))

    class Item(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    with pytest.raises(UnsupportedError, match="_local_scalar_dense in the model's own forward"):
        trace(Item(), (4,))


def test_a_question_about_a_mask_is_answered_as_without_padding_and_noted():
    class Masked(nn.Module):
        def forward(self, x, mask):
            return x.exp() if mask.all() else x.log()

    graph = trace(Masked(), ((4,), ((4,), "bool")))
    assert kinds(graph)["exp"] == 1 and kinds(graph)["log"] == 0
    assert any("nothing is padded" in note for note in graph.notes)


def test_a_refused_input_names_the_module_and_the_shape():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(5, 1)))
    with pytest.raises(ShapeError, match=r"\(1, 4\) in module '1\.0'"):
        trace(model, (4,))


@pytest.mark.parametrize(
    ("model", "shape", "options", "message"),
    [
        ("resnet18", (4,), {}, "torch.nn.Module, got str"),
        (nn.Identity(), (4,), {}, "ran no operator"),
        (nn.ReLU(), (4,), {"batch": 0}, "at least 1, got 0"),
        (nn.ReLU(), (4,), {"batch": 2.0}, "whole number"),
        (nn.ReLU(), (4,), {"dtype": "float31"}, "float31"),
        (nn.ReLU(), (4, -1), {}, "whole numbers"),
        (nn.ReLU(), "3x4", {}, "input_shape must be"),
        (nn.ReLU(), {}, {}, "empty mapping"),
    ],
)
def test_bad_arguments_say_what_is_allowed(model, shape, options, message):
    with pytest.raises(ArgumentError, match=message):
        trace(model, shape, **options)


def test_inputs_by_position_by_name_and_with_types():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4)

        def forward(self, ids, scale):
            return self.table(ids) * scale

    by_name = trace(Two(), {"scale": (7, 4), "ids": ((7,), "int64")}, batch=2)
    by_position = trace(Two(), (((7,), "int64"), (7, 4)), batch=2)
    assert kinds(by_name) == kinds(by_position) == {"embedding": 1, "mul": 1}
    assert {by_name.shape(int(t)) for t in by_name.graph_inputs} == {(2, 7), (2, 7, 4)}


def test_constants_made_on_the_host_become_literals():
    class Table(nn.Module):
        def forward(self, x):
            scale = torch.tensor([1.0, 2.0, 3.0]).cumsum(0)
            assert scale[-1].item() == 6.0  # host values stay readable
            return x * scale

    graph = trace(Table(), (3,))
    assert kinds(graph) == {"mul": 1}
    assert graph.tensor_role[graph.node_inputs(0)[1]] == 3


TIMM = ["resnet18", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "convnext_atto", "xcit_nano_12_p16_224"]


@pytest.mark.parametrize("name", TIMM)
def test_two_traces_give_every_batch_size_exactly(name):
    import timm

    with torch.device("meta"):
        model = timm.create_model(name)
    second, third, eighth = (trace(model, (3, 224, 224), batch=b) for b in (2, 3, 8))
    derived = at_batch(second, third, (2, 3), 8)
    assert np.array_equal(derived.dims, eighth.dims)
    assert np.array_equal(derived.op, eighth.op) and np.array_equal(derived.edge_index, eighth.edge_index)
    assert eighth.unknown_operators == {}


@settings(max_examples=20)
@given(batch=st.integers(1, 300), width=st.integers(1, 9), heads=st.sampled_from([1, 2, 4]))
def test_at_batch_equals_a_trace_at_that_batch(batch, width, heads):
    model = nn.TransformerEncoderLayer(8 * heads, heads, 16, batch_first=True).eval()
    low, high, wanted = (trace(model, (width + 1, 8 * heads), batch=b) for b in (2, 3, batch + 1))
    assert np.array_equal(at_batch(low, high, (2, 3), batch + 1).dims, wanted.dims)


def test_traces_of_different_structure_are_not_mixed():
    low, high = trace(nn.ReLU(), (4,), batch=2), trace(nn.Sequential(nn.ReLU(), nn.Tanh()), (4,), batch=3)
    with pytest.raises(ArgumentError, match="differ in structure"):
        at_batch(low, high, (2, 3), 8)


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


def test_a_configuration_is_traced_without_weights(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    prefill = load(file, batch=2, dims={"sequence_length": 24})
    decode = huggingface.trace_config(file, batch=2, sequence_length=24, mode="decode")
    assert kinds(prefill)["attention"] == kinds(decode)["attention"] == 2
    assert prefill.shape(int(prefill.node_outputs(node(prefill, "attention"))[0])) == (2, 4, 24, 16)
    past = [decode.shape(int(t)) for t in decode.graph_inputs[1:]]
    assert decode.shape(int(decode.graph_inputs[0])) == (2, 1) and past == [(2, 2, 24, 16)] * 4
    keys = int(decode.node_inputs(node(decode, "attention"))[1])
    assert decode.shape(keys)[2] == 25


def test_recurrences_that_are_written_out_say_whose_kernels_run_them():
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 64}
    recurrent = {"model_type": "mamba2", **sizes, "num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1}
    (said,) = load(recurrent, batch=1, dims={"sequence_length": 16}).counted_once
    assert "mamba_ssm" in said and "upper figures" in said
    attending = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 64}
    assert not load(attending, batch=1, dims={"sequence_length": 16}).counted_once


def test_configurations_that_cannot_be_built_say_why(tmp_path):
    with pytest.raises(UnsupportedError, match="auto_map"):
        huggingface.trace_config(LLAMA | {"auto_map": {"AutoModel": "modeling.Evil"}})
    with pytest.raises(UnsupportedError, match="'newest'"):
        huggingface.trace_config({"model_type": "newest"})
    with pytest.raises(ArgumentError, match="decode"):
        huggingface.trace_config({"model_type": "vit", "num_hidden_layers": 1}, mode="decode")
    (tmp_path / "config.json").write_text("{]")
    with pytest.raises(FormatError, match="not JSON"):
        huggingface.trace_config(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(FormatError, match="model_type"):
        load(tmp_path)


class _Bomb:
    def __reduce__(self):
        return (sys.exit, (99,))


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".pkl", ".ckpt"])
def test_pickles_are_never_opened(tmp_path, suffix):
    file = tmp_path / f"model{suffix}"
    file.write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(UnsupportedError, match=r"never unpickled.*torch\.onnx\.export"):
        load(file)


def test_load_chooses_by_type_and_names_what_it_cannot_read(tmp_path):
    graph = load(nn.ReLU(), input_shape=(4,), batch=3)
    assert graph.shape(int(graph.graph_inputs[0])) == (3, 4) and load(graph) is graph
    with pytest.raises(ArgumentError, match="input_shape"):
        load(nn.ReLU())
    with pytest.raises(ArgumentError, match=r"builtins\.int"):
        load(7)
    with pytest.raises(UnsupportedError, match="weights without the operators"):
        load(tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedError, match="TensorRT"):
        load(tmp_path / "model.engine")
    with pytest.raises(FormatError, match=r"config\.json"):
        load(tmp_path)


def test_a_dimension_that_a_configuration_does_not_have_is_an_error(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    both = [load(file, dims={name: 24}) for name in ("sequence", "sequence_length")]
    assert all(g.shape(int(g.graph_inputs[0])) == (1, 24) for g in both)
    for refused, says in (
        ({"dims": {"nonsense": 7}}, "has no dimension 'nonsense'; allowed are sequence_length"),
        ({"dims": {"batch": 8}}, "no dimension 'batch'; .* batch and --batch set the batch"),
        ({"dims": {"sequence": 8, "sequence_length": 9}}, "are one dimension, and have two values"),
        ({"dims": {"sequence": 0}}, "sequence = 0; it must be a whole number"),
        ({"dims": {"sequence": 2.5}}, "sequence = 2.5"),
        ({"dims": {"sequence": True}}, "sequence = True"),
        ({"dims": {"image_size": 64}}, "llama has no image_size"),
        ({"dims": {"height": 64}}, "height: a picture has an image_size, or a height and a width"),
        ({"input_shape": {"input_ids": (1, 9)}}, "input_shape=.* has no meaning for config.json"),
    ):
        for mode in ("inference", "training"):
            with pytest.raises(ArgumentError, match=says):
                load(file, mode=mode, **refused)
    file.write_text(json.dumps({"model_type": "vit", "num_hidden_layers": 1, "hidden_size": 48, "image_size": 32}))
    load(file, batch=2)
    for mode in ("inference", "training"):
        with pytest.raises(ArgumentError, match="vit has no sequence_length"):
            load(file, mode=mode, dims={"sequence": 2048})


def test_pictures_of_a_configuration_have_the_size_that_is_asked_for():
    vit = {"model_type": "vit", "num_hidden_layers": 1, "hidden_size": 48, "num_attention_heads": 2, "image_size": 32}
    for dims, picture in (
        (None, (32, 32)),
        ({"image_size": 64}, (64, 64)),
        ({"height": 32, "width": 64}, (32, 64)),
    ):
        graph = load(vit, dims=dims)
        assert graph.shape(int(graph.graph_inputs[0])) == (1, 3, *picture) and not graph.unasked


def test_a_detector_reads_pictures_as_large_as_its_image_processor_makes_them():
    """Its configuration states no size: transformers resizes COCO's 640 x 480 to a shortest side of 800."""
    graph = load("facebook/detr-resnet-50")
    assert graph.shape(int(graph.graph_inputs[0])) == (1, 3, 800, 1066) and graph.unasked == ("image_size",)


def test_sizes_that_would_change_nothing_are_errors():
    with pytest.raises(ArgumentError, match=r"dims=.* has no meaning for a torch module"):
        load(nn.Linear(4, 4), input_shape=(4,), dims={"sequence": 8})
    graph = load(nn.Linear(4, 4), input_shape=(4,))
    for unused in ({"dims": {"sequence": 8}}, {"input_shape": (4,)}):
        with pytest.raises(ArgumentError, match="has no meaning for an OpGraph"):
            load(graph, **unused)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("batch", [1, 2, 16])
def test_a_weight_that_is_broadcast_over_the_batch_is_read_once(batch, heads):
    """Torch's MultiheadAttention of an odd number of heads multiplies by an expanded weight from a batch of 2 on."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(64, heads, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    graph = load(Block().eval(), batch=batch, input_shape=(10, 64))
    counted = costs.count(graph)
    weights = 4 * (64 * 64 + 64) * 4
    assert counted.totals["weight_bytes"] == weights
    products = np.isin(graph.op, [OPERATORS.index(name) for name in ("matmul", "dense")])
    activations = batch * 10 * 64 * 4
    # Every product reads its activations and its own weight: never a copy of the weight for each sample.
    assert int(counted.bytes_read[products].sum()) <= weights + 12 * activations


def test_a_repeated_product_of_a_view_stays_a_view():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(3))

        def forward(self, x):
            x = x.permute(0, 2, 1)  # the product of such a tensor ends in a view that its schema does not name
            for layer in self.layers:
                x = layer(x)
            return x

    graph = trace(Twice(), (8, 4), batch=2)
    written = np.asarray(costs.count(graph).bytes_written)
    reshapes = [n for n in range(graph.node_count) if graph.op_name(n) == "reshape"]
    plain = trace(Twice().layers[0], (4, 8), batch=2)
    assert not written[reshapes].any()
    assert kinds(graph)["gemm"] == 3 * kinds(plain)["gemm"]


def test_a_mask_that_a_constructor_makes_needs_no_type_of_torch():
    from perfpass.importers.model_sources import huggingface as build

    tiny = {"model_type": "gpt_neo", "hidden_size": 8, "num_heads": 2, "num_layers": 1, "vocab_size": 16}
    kept = {"attention_types": [[["global"], 1]], "max_position_embeddings": 32}
    assert build({**tiny, **kept}, dtype="float32", causal=True).config.model_type == "gpt_neo"


@pytest.mark.parametrize("given", [{"enabled": False}, {"dtype": torch.float32}])
def test_a_region_without_autocast_is_traced_and_the_class_stays_as_it_was(given):
    class Rotary(nn.Module):
        def forward(self, x):
            with torch.autocast(x.device.type, **given):
                return torch.sin(x.float()) + self.angles(x)

        def angles(self, x, scale=2.0, *, shift=1.0):
            with torch.amp.autocast(device_type=x.device.type, **given):
                return x * scale + shift

    module = nn.Sequential(Rotary())
    forward = Rotary.forward
    assert kinds(trace(module, (4,))) == {"trigonometric": 1, "mul": 1, "add": 2}
    assert Rotary.forward is forward and "forward" not in vars(module[0])


def test_a_region_that_casts_is_refused_with_the_device_that_knows_no_autocast():
    class Casting(nn.Module):
        def forward(self, x):
            with torch.autocast(x.device.type, torch.bfloat16):
                return x @ x.T

    with pytest.raises(ShapeError, match="autocast device_type 'meta'"):
        trace(Casting(), (4,))
