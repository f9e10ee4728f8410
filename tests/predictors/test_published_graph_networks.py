"""Graph networks on classes of nodes: equal to PyTorch Geometric on whole graphs, and to themselves in NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass import features, load
from perfpass.errors import ArtefactError
from perfpass.predictors.published.graph_classes import Classes, classes, partition, union, whole
from perfpass.predictors.published.graph_network import GraphNetwork, Spec
from perfpass.training.graph_networks import modules

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WIDTH = 12


def layers(kind: str, inputs: int, aggregation: str = "mean") -> list[dict]:
    """One layer of each kind that a published network has, the statistics of batch norm included."""
    out = [{"kind": kind, "inputs": inputs, "outputs": WIDTH}]
    if kind == "sage":
        out = [{**out[0], "aggregation": aggregation}, {"kind": "unit"}]
    if kind == "gat":
        out = [{**out[0], "heads": 2}]
    return [*out, {"kind": "batch_norm", "inputs": WIDTH}, {"kind": "relu"}, {"kind": "dropout", "p": 0.1}]


def network(kind: str, inputs: int, depth: int, readout: str = "sum", aggregation: str = "mean", seed: int = 0):
    """A torch network with random weights and statistics."""
    torch.manual_seed(seed)
    graph = [part for i in range(depth) for part in layers(kind, inputs if i == 0 else WIDTH, aggregation)]
    head = [{"kind": "dense", "inputs": WIDTH + 3, "outputs": 8}, {"kind": "relu"}]
    found = modules.Network(Spec(tuple(graph), readout, (*head, {"kind": "dense", "inputs": 8, "outputs": 2})))
    for part in found.graph:
        if isinstance(part, modules.BatchNorm):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2.0)
    return found.eval()


@st.composite
def graphs(draw):
    """Repetitive acyclic graphs: few kinds of nodes, several edges between two nodes, nodes without neighbours."""
    size = draw(st.integers(1, 40))
    kinds = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nodes = rng.normal(size=(kinds, 5)).astype(np.float32)[rng.integers(0, kinds, size)]
    pairs = rng.integers(0, size, (2, draw(st.integers(0, 2 * size))))
    pairs = np.sort(pairs[:, pairs[0] != pairs[1]], axis=0)
    return nodes, pairs.astype(np.int32)


def close(found, expected):
    scale = np.abs(expected).max() + 1e-6
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * scale)


def pyg_layers(found):
    """PyTorch Geometric's layers with the weights of a network, in order."""
    for layer, module in zip(found.spec.graph, found.graph, strict=True):
        kind = layer["kind"]
        if kind == "sage":
            other = pyg.SAGEConv(layer["inputs"], layer["outputs"], aggr=layer["aggregation"])
        elif kind == "gcn":
            other = pyg.GCNConv(layer["inputs"], layer["outputs"])
        elif kind == "gat":
            other = pyg.GATConv(layer["inputs"], layer["outputs"] // layer["heads"], heads=layer["heads"])
        elif kind == "gin":
            other = pyg.GINConv(pyg.MLP([layer["inputs"], layer["outputs"], layer["outputs"]], norm=None))
            module = {f"nn.{name}": values for name, values in module.state_dict().items()}
        elif kind == "batch_norm":
            other = torch.nn.BatchNorm1d(layer["inputs"])
        else:
            yield lambda h, _, module=module: module(h)
            continue
        state = module if isinstance(module, dict) else module.state_dict()
        missing, extra = other.load_state_dict(state, strict=False)
        assert not extra and set(missing) <= {"eps", "nn.eps", "num_batches_tracked"}
        other.eval()
        yield (lambda h, _, other=other: other(h)) if kind == "batch_norm" else other


def pyg_embedding(found, nodes, edge_index):
    h, edges = torch.from_numpy(nodes), torch.from_numpy(edge_index.astype(np.int64))
    with torch.no_grad():
        for layer in pyg_layers(found):
            h = layer(h, edges)
    return h.numpy()


CASES = [("sage", "mean"), ("sage", "sum"), ("sage", "max"), ("gat", ""), ("gcn", ""), ("gin", "")]


@pytest.mark.parametrize(("kind", "aggregation"), CASES)
@given(graph=graphs(), depth=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_classes_give_what_pytorch_geometric_gives_on_the_whole_graph(kind, aggregation, graph, depth, seed):
    nodes, edge_index = graph
    found = network(kind, nodes.shape[1], depth, aggregation=aggregation, seed=seed)
    expected = pyg_embedding(found, nodes, edge_index)
    plain = GraphNetwork(found.spec, found.weights())
    parts = partition(nodes, edge_index, found.spec.rounds)
    on = parts.classes(nodes)
    close(plain.embed(on)[parts.member], expected)
    close(plain.embed(whole(nodes, edge_index, found.spec.rounds)), expected)


@pytest.mark.parametrize(("kind", "aggregation"), CASES)
@pytest.mark.parametrize("readout", ["sum", "mean", "max", "log_sum"])
@given(several=st.lists(graphs(), min_size=1, max_size=4), seed=st.integers(0, 1000))
@settings(max_examples=6)
def test_torch_and_numpy_agree_on_unions_of_graphs(kind, aggregation, readout, several, seed):
    found = network(kind, 5, 3, readout, aggregation, seed)
    plain = GraphNetwork(found.spec, found.weights())
    parts = [classes(nodes, edges, found.spec.rounds) for nodes, edges in several]
    rows = np.arange(len(parts)).repeat(2)
    statics = np.random.default_rng(seed).normal(size=(len(rows), 3)).astype(np.float32)
    joined = union(parts)
    with torch.no_grad():
        expected = found(modules.ClassTensors.of(joined), torch.from_numpy(rows), torch.from_numpy(statics)).numpy()
    close(plain.head(plain.readout(joined)[rows], statics), expected)
    alone = np.concatenate([plain.readout(whole(nodes, edges, found.spec.rounds)) for nodes, edges in several])
    close(plain.head(alone[rows], statics), expected)


@pytest.mark.parametrize("kind", ["sage", "gat", "gcn", "gin"])
@given(graph=graphs())
@settings(max_examples=10)
def test_gradients_and_batch_statistics_on_classes_are_those_of_the_whole_graph(kind, graph):
    nodes, edge_index = graph
    gradients, statistics = [], []
    found = network(kind, nodes.shape[1], 2).double().train()
    before = {name: values.clone() for name, values in found.state_dict().items()}
    for part in found.graph:
        if isinstance(part, modules.Plain) and isinstance(part.how, torch.nn.Dropout):
            part.how.p = 0.0
    for on in (make(nodes, edge_index, found.spec.rounds) for make in (classes, whole)):
        found.load_state_dict(before)
        found.zero_grad()
        tensors = modules.ClassTensors.of(on, dtype=torch.float64)
        modules.read_out("sum", found.embed(tensors), tensors).square().sum().backward()
        gradients.append([p.grad.numpy().copy() for p in found.graph.parameters()])
        statistics.append([b.numpy().copy() for b in found.graph.buffers()])
    largest = max(np.abs(g).max() for g in gradients[1])
    for one, other in zip(*gradients, strict=True):
        # Nodes that are all alike have no variance: what is left of their gradients is rounding, times 300.
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 + 1e-6 * largest)
    for one, other in zip(*statistics, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["resnet50", "vit_base_patch16_224", "llama_1b_prefill", "deberta_v3_large"])
@pytest.mark.parametrize("kind", ["sage", "gcn"])
def test_real_graphs_shrink_and_keep_their_output(name, kind):
    found = features.extract(load(EXAMPLES / f"{name}.onnx"), "dippm")
    nodes = np.log1p(np.abs(found.nodes))
    model = network(kind, nodes.shape[1], 3, "mean")
    plain = GraphNetwork(model.spec, model.weights())
    parts = partition(nodes, found.edge_index, model.spec.rounds)
    assert len(parts.levels[-1]) < len(nodes) * (0.8 if name == "resnet50" else 0.25)
    expected = pyg_embedding(model, nodes, found.edge_index)
    close(plain.embed(parts.classes(nodes))[parts.member], expected)
    close(plain.readout(parts.classes(nodes)), expected.mean(axis=0, keepdims=True))


def test_classes_tell_apart_what_one_more_hop_tells_apart():
    # Two chains a-b-c and d-b-c: their last nodes differ two hops away.
    nodes = np.float32([[1], [2], [3], [4], [2], [3]])
    edges = np.array([[0, 1, 3, 4], [1, 2, 4, 5]])
    assert [len(classes(nodes, edges, rounds)) for rounds in (0, 1, 2)] == [4, 5, 6]
    twice: Classes = classes(np.tile(nodes, (2, 1)), np.hstack([edges, edges + 6]), 2)
    assert len(twice) == 6 and set(twice.count) == {2.0}


def test_a_network_with_weights_missing_or_not_finite_is_refused():
    found = network("sage", 5, 1)
    weights = found.weights()
    with pytest.raises(ArtefactError, match=r"graph\.0\.lin_l\.weight is missing"):
        GraphNetwork(found.spec, {k: v for k, v in weights.items() if k != "graph.0.lin_l.weight"})
    with pytest.raises(ArtefactError, match="not finite"):
        GraphNetwork(found.spec, {**weights, "head.0.bias": np.full(8, np.nan, np.float32)})
    with pytest.raises(ArtefactError, match="'transformer'"):
        GraphNetwork(Spec(({"kind": "transformer"},), "sum", ()), weights)
