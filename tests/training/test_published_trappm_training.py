"""TraPPM learns: the loss on classes is the graph's own, its methods beat a constant, nothing held out is seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass import features
from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.predictors.published.graph_classes import classes, partition, union, whole
from traced_records import by_rows, training_steps
from traced_records import graphs as graphs_of_records

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def resnet():
    return perfpass.load(EXAMPLES / "resnet50.onnx")


def test_the_list_of_unlabelled_graphs_is_long_and_without_doubles():
    import pandas

    listed = pandas.read_parquet(EXAMPLES.parent / "data" / "unlabelled" / "graphs.parquet")
    assert len(listed) >= 25_000
    assert not listed.duplicated(["library", "network", "size", "batch"]).any()
    assert (listed.nodes >= listed.classes).all() and listed.groupby(["library", "network", "size"]).size().min() == 24


@st.composite
def graphs(draw):
    """Nodes of few kinds in layers that repeat, so that classes have several members."""
    kinds, repeats = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    block = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6))
    nodes = np.tile(np.eye(4, 5, dtype=np.float32)[:kinds], (repeats, 1))
    pairs = [(a % kinds + r * kinds, b % kinds + r * kinds) for r in range(repeats) for a, b in block]
    pairs = [(a, b) for a, b in pairs if a != b]
    return nodes, np.array(sorted(set(pairs)), dtype=np.int64).reshape(-1, 2).T


@given(several=st.lists(graphs(), min_size=1, max_size=3), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_edges_and_pairs_without_one_weigh_on_classes_what_they_weigh_on_nodes(several, seed):
    from perfpass.training.published.trappm.autoencoder import edges, non_edges

    rounds, offset = 3, 0
    on = union([classes(nodes, edge_index, rounds) for nodes, edge_index in several])
    linked, apart = edges(on), non_edges(on, 20, np.random.default_rng(seed))
    counted: dict[tuple[int, int], float] = {}
    for first, second, weight in zip(linked.first, linked.second, linked.weight, strict=True):
        counted[first, second] = counted.get((first, second), 0.0) + weight
    expected: dict[tuple[int, int], float] = {}
    free: dict[tuple[int, int], list[float]] = {}
    for nodes, edge_index in several:
        member = partition(nodes, edge_index, rounds - 1).member + offset
        present = set(zip(*edge_index.tolist(), strict=True)) if edge_index.size else set()
        for u in range(len(nodes)):
            for v in range(len(nodes)):
                pair = (member[u], member[v])
                if (u, v) in present:
                    expected[pair] = expected.get(pair, 0.0) + 1.0
                free.setdefault(pair, []).append(float(u != v and (u, v) not in present))
        offset = member.max() + 1
    assert counted == expected
    per_graph = apart.weight.reshape(len(several), -1)
    for graph, (_, edge_index) in enumerate(several):
        share = edge_index.shape[1] / 20
        pairs = zip(
            apart.first.reshape(len(several), -1)[graph], apart.second.reshape(len(several), -1)[graph], strict=True
        )
        np.testing.assert_allclose(per_graph[graph], [np.mean(free[p]) * share for p in pairs], atol=1e-6)


def test_the_loss_of_edges_is_that_of_the_whole_graph(resnet):
    import torch

    from perfpass.training.graph_networks.modules import ClassTensors, Network
    from perfpass.training.published.trappm import autoencoder

    torch.manual_seed(0)
    network = Network(autoencoder.spec(autoencoder.Pretraining(latent=8))).double().eval()
    found = features.extract(resnet, "trappm")
    nodes = np.log1p(np.abs(found.nodes))
    none = autoencoder.Pairs(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(1))
    losses = []
    for on in (f(nodes, found.edge_index, autoencoder.ROUNDS) for f in (classes, whole)):
        with torch.no_grad():
            embedding = network.embed(ClassTensors.of(on, dtype=torch.float64))
            losses.append(float(autoencoder.loss(embedding, autoencoder.edges(on), none)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.fixture(scope="module")
def small():
    """Six networks on six devices, a graph for each, and an encoder that learned from these graphs alone."""
    from perfpass.training.published.trappm.autoencoder import ROUNDS, Pretraining, pretrain
    from perfpass.training.published.trappm.unlabelled import Unlabelled

    task, graphs = training_steps(), graphs_of_records()
    unlabelled = Unlabelled(graphs, set(task.keys), ROUNDS, (1, 8, 64))
    encoder = pretrain(unlabelled, Pretraining(latent=8, epochs=60, graphs_per_step=2, pairs=64, learning_rate=1e-2))
    return task, graphs, unlabelled, encoder


@pytest.mark.slow
def test_as_many_epochs_as_batch_sizes_see_every_graph_once(small):
    _, _, unlabelled, _ = small
    assert len(unlabelled) == len(unlabelled.keys) * 3
    seen = [tuple(c.nodes.sum(axis=0)) for epoch in range(3) for step in unlabelled.epoch(0, epoch, 4) for c in step]
    every = [tuple(unlabelled.at(i, b).nodes.sum(axis=0)) for i in range(len(unlabelled.keys)) for b in range(3)]
    assert sorted(seen) == sorted(every)


@pytest.mark.slow
def test_the_autoencoder_learns_to_tell_edges_from_pairs_without_one(small, tmp_path):
    from perfpass.training.published.trappm.autoencoder import Encoder

    encoder = small[3]
    # Embeddings of 0 say nothing, and cost 2 log 2.
    losses = [entry["loss"] for entry in encoder.history]
    assert np.mean(losses[-10:]) < 2 * np.log(2) - 0.03
    assert encoder.graphs == len(small[2])
    encoder.write(tmp_path / "encoder.safetensors")
    again = Encoder.read(tmp_path / "encoder.safetensors")
    assert again.shape == encoder.shape and again.history == encoder.history
    for name, values in encoder.weights.items():
        np.testing.assert_array_equal(again.weights[name], values)


def quick(name: str, encoder):
    from perfpass.training.graph_networks.fit import Settings
    from perfpass.training.published.trappm.network import KINDS, Shape, method

    found = method(name)
    if name not in KINDS:
        return found
    settings_ = Settings(learning_rate=5e-3, epochs=40, graphs_per_step=2, half=False)
    return found.with_options(frozen=encoder, pretraining=encoder.shape, shape=Shape(hidden=24), settings=settings_)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trappm", "trappm-nnlqp", "trappm-mlp", "trappm-boosting"])
def test_every_method_beats_a_constant_on_real_records_and_adapts(small, name):
    task, graphs, _, encoder = small
    split = by_rows(task)
    fitted = quick(name, encoder).fit(task, graphs, split)
    measured = task.value[split.test]
    error = np.abs(np.log(fitted.predict(split.test) / measured)).mean()
    constant = np.abs(np.log(np.exp(np.log(task.value[split.train]).mean()) / measured)).mean()
    assert error < 0.75 * constant and fitted.parameters > 500
    more = split.test[::2]
    adapted = fitted.adapted(more, seed=1)
    after = np.abs(np.log(adapted.predict(more) / task.value[more])).mean()
    assert after < np.abs(np.log(fitted.predict(more) / task.value[more])).mean()
    assert fitted.adapted(more[:0]) is fitted


@pytest.mark.slow
def test_a_random_encoder_is_as_large_and_learned_nothing(small):
    from perfpass.training.published.trappm.autoencoder import random_encoder
    from perfpass.training.published.trappm.network import EncodedPool, plain_pool

    task, graphs, unlabelled, encoder = small
    random = random_encoder(unlabelled, encoder.shape, seed=3)
    assert not random.history and random.graphs == 0
    assert {k: v.shape for k, v in random.weights.items()} == {k: v.shape for k, v in encoder.weights.items()}
    plain = plain_pool(graphs, "trappm", 4)
    sums = [EncodedPool(plain, e).embedding(task.keys[0], 8) for e in (encoder, random)]
    assert not np.allclose(*sums) and (np.array(sums) >= 0).all()


def test_the_published_configuration_is_the_published_one():
    from perfpass.training.published.trappm import autoencoder, network, ship

    sizes = [layer["outputs"] for layer in autoencoder.spec(autoencoder.PUBLISHED).graph if layer["kind"] == "sage"]
    assert sizes == [1024, 512, 512, 512]
    regressor = network.spec("trappm", network.PUBLISHED_SHAPE, autoencoder.PUBLISHED.latent)
    assert [layer["outputs"] for layer in regressor.graph if layer["kind"] == "sage"] == [512, 512]
    assert regressor.head[0]["inputs"] == 512 + 512 + 6 + 17
    with pytest.raises(UnsupportedError, match="trained within `perfpass evaluate` alone"):
        ship.train("trappm-mlp")
    with pytest.raises(ArgumentError, match="unknown predictor 'trapm'"):
        network.method("trapm")


def test_networks_are_held_out_of_every_task_alike():
    from perfpass.training.graph_networks import held_out
    from perfpass.training.tasks.tasks import load

    graphs = graphs_of_records()
    with pytest.MonkeyPatch.context() as patch:
        # Which networks can be traced does not matter here.
        patch.setattr(type(load("latency")), "traced", lambda self, graphs, quiet=False: self)
        parts = {}
        for name in held_out.BY_NETWORK:
            whole_task = load(name)
            split = held_out.split(whole_task, graphs)
            parts[name] = {
                p: set(whole_task.rows.architecture.iloc[getattr(split, p)]) for p in ("train", "valid", "test")
            }
    held_out.architectures.cache_clear()
    assert parts["training_step"]["test"] <= parts["latency"]["test"]
    assert parts["training_step"]["valid"] <= parts["latency"]["valid"]
    for part in parts.values():
        assert part["train"].isdisjoint(part["valid"] | part["test"])
