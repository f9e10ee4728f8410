"""Message passing on the quotient gives what message passing on the whole graph gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.errors import ArgumentError
from perfpass.features import extract
from perfpass.features.classes import classes
from perfpass.graph.quotient import Edges, Round, refine
from twins import quotient as twin

RELATIVE = 1e-5


@st.composite
def multigraphs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Edges [2, E] with repeats and loops, and few distinct features [N, 2], over nodes of which some stand alone."""
    nodes = draw(st.integers(1, 24))
    node = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=40))
    kinds = draw(st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T, np.array([[k, k % 2] for k in kinds], dtype=np.float32)


@settings(max_examples=200)
@given(multigraphs(), st.sampled_from(["producers", "consumers", "both"]), st.booleans())
def test_classes_are_those_of_the_plain_twin(graph, directions, counted):
    edges, features = graph
    found = refine(edges, features, rounds=4, directions=directions, multiplicity=counted)
    plain = twin.classes(
        [tuple(e) for e in edges.T.tolist()],
        [f.tobytes() for f in features],
        4,
        directions != "consumers",
        directions != "producers",
        counted,
    )
    assert [r.class_of.tolist() for r in found] == plain
    for before, now in pairwise(found):
        assert now.multiplicity.tolist() == np.bincount(now.class_of).tolist()
        assert np.array_equal(now.class_of[now.representative], np.arange(len(now)))
        assert np.array_equal(now.previous[now.class_of], before.class_of)


# Layers on a whole graph: `x` [N, F], messages from `source` to `target`.
def _gathered(x, source, target, nodes, kind):
    if kind == "max":
        out = np.full((nodes, x.shape[1]), -np.inf)
        np.maximum.at(out, target, x[source])
        return np.where(np.isneginf(out), 0.0, out)
    out = np.zeros((nodes, x.shape[1]))
    np.add.at(out, target, x[source])
    return out / np.maximum(np.bincount(target, minlength=nodes), 1)[:, None] if kind == "mean" else out


def _attended(x, source, target, nodes, a, weight):
    """Softmax over the messages to each node, ``weight`` times each."""
    score = np.exp(np.tanh(x[source] @ a + x[target] @ a[::-1])) * weight
    total = np.bincount(target, score, nodes)
    out = np.zeros((nodes, x.shape[1]))
    np.add.at(out, target, x[source] * (score / total[target])[:, None])
    return out


def whole(x, edges, layers, kind):
    """The embeddings of all nodes: own and both directions' messages, mixed by random weights."""
    nodes = len(x)
    for own, one, two, a in layers:
        if kind == "attention":
            messages = [_attended(x, s, t, nodes, a, np.ones(len(s))) for s, t in (edges, edges[::-1])]
        else:
            messages = [_gathered(x, s, t, nodes, kind) for s, t in (edges, edges[::-1])]
        x = np.tanh(x @ own + messages[0] @ one + messages[1] @ two)
    return x


def _on_classes(x: np.ndarray, before: np.ndarray, made: Edges, classes: int, a: np.ndarray, kind: str) -> np.ndarray:
    """Messages to the classes of a round from those of the one before, whose embeddings are ``before``."""
    values, owner, count = before[made.neighbour], made.owner, made.count.astype(float)
    out = np.zeros((classes, before.shape[1]))
    if kind == "max":
        out[:] = -np.inf
        np.maximum.at(out, owner, values)
        return np.where(np.isneginf(out), 0.0, out)
    if kind == "attention":
        count = count * np.exp(np.tanh(values @ a + x[owner] @ a[::-1]))
    np.add.at(out, owner, values * count[:, None])
    total = np.bincount(owner, count, classes)
    return out if kind == "sum" else out / np.where(total > 0, total, 1.0)[:, None]


def on_quotient(features: np.ndarray, rounds: tuple[Round, ...], layers, kind: str) -> np.ndarray:
    """The embeddings of the last round's classes."""
    x = features[rounds[0].representative].astype(float)
    for (own, one, two, a), now in zip(layers, rounds[1:], strict=True):
        mine = x[now.previous]
        messages = [_on_classes(mine, x, made, len(now), a, kind) for made in (now.producers, now.consumers)]
        x = np.tanh(mine @ own + messages[0] @ one + messages[1] @ two)
    return x


def assert_the_same_output(edges, features, kind, width=8, layers=3):
    generator = np.random.default_rng(5)
    weights, size = [], features.shape[1]
    for _ in range(layers):
        weights.append([generator.normal(size=(size, width)) / np.sqrt(size) for _ in range(3)])
        weights[-1].append(generator.normal(size=size))
        size = width
    rounds = refine(edges, features, rounds=layers, multiplicity=kind != "max")
    full = whole(features.astype(float), edges, weights, kind)
    found = on_quotient(features, rounds, weights, kind)
    last = rounds[-1]
    np.testing.assert_allclose(found[last.class_of], full, rtol=RELATIVE, atol=1e-9)
    np.testing.assert_allclose(last.multiplicity @ found, full.sum(axis=0), rtol=RELATIVE, atol=1e-7)
    np.testing.assert_allclose(last.multiplicity @ found / len(full), full.mean(axis=0), rtol=RELATIVE, atol=1e-9)
    np.testing.assert_allclose(found.max(axis=0), full.max(axis=0), rtol=RELATIVE, atol=1e-9)
    return rounds


@settings(max_examples=150)
@given(multigraphs(), st.sampled_from(["sum", "mean", "max", "attention"]))
def test_layers_on_the_quotient_of_random_graphs_give_the_same_output(graph, kind):
    assert_the_same_output(*graph, kind)


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "attention"])
@pytest.mark.parametrize("name", ["resnet50", "vit_base_patch16_224", "llama_1b_prefill"])
def test_layers_on_the_quotient_of_real_graphs_give_the_same_output(examples, name, kind):
    found = extract(perfpass.load(examples / f"{name}.onnx"), "dippm")
    features = np.tanh(found.nodes / (1.0 + np.abs(found.nodes).max(axis=0))).astype(np.float32)
    rounds = assert_the_same_output(found.edge_index, features, kind)
    assert len(rounds[0]) <= len(rounds[1]) <= len(rounds[3]) < len(features)


def test_degrees_among_the_features_make_gcn_exact():
    """Its messages are divided by the roots of both ends' degrees."""
    generator = np.random.default_rng(2)
    edges = generator.integers(0, 40, (2, 90))
    degree = np.bincount(edges[1], minlength=40) + 1.0
    features = np.column_stack([generator.integers(0, 2, 40), degree])
    (first, second) = refine(edges, features, rounds=1, directions="producers")
    x = features[:, :1]
    full = np.zeros((40, 1))
    np.add.at(full, edges[1], x[edges[0]] / np.sqrt(degree[edges[0]] * degree[edges[1]])[:, None])
    made, d = second.producers, features[:, 1]
    value = (x / np.sqrt(d)[:, None])[first.representative][made.neighbour] * made.count[:, None]
    out = np.zeros((len(second), 1))
    np.add.at(out, made.owner, value)
    out /= np.sqrt(d[second.representative])[:, None]
    np.testing.assert_allclose(out[second.class_of], full, rtol=1e-12)


@pytest.mark.parametrize("schema", ["dippm", "trappm", "nnlqp"])
def test_a_repeated_encoder_collapses(examples, schema):
    graph = perfpass.load(examples / "deberta_v3_large.onnx")
    rounds = classes(graph, schema, rounds=3)
    assert len(rounds[3]) < graph.node_count / 20


@pytest.mark.parametrize(
    ("edges", "features", "options"),
    [
        ([[0], [3]], np.zeros((3, 1)), {}),
        ([[-1], [0]], np.zeros((3, 1)), {}),
        ([0, 1], np.zeros((3, 1)), {}),
        ([[0], [1]], np.zeros(3), {}),
        ([[0], [1]], np.zeros((3, 1)), {"rounds": 65}),
        ([[0], [1]], np.zeros((3, 1)), {"rounds": -1}),
        ([[0], [1]], np.zeros((3, 1)), {"directions": "sideways"}),
        ([[0], [1]], np.array([[None], [1], [2]]), {}),
    ],
)
def test_what_is_no_graph_is_refused(edges, features, options):
    with pytest.raises(ArgumentError):
        refine(np.array(edges), features, **options)


def test_graphs_without_edges_or_features_are_allowed():
    assert [len(r) for r in refine(np.empty((2, 0), int), np.zeros((4, 1)), rounds=2)] == [1, 1, 1]
    assert [len(r) for r in refine(np.array([[0, 1], [1, 2]]), np.zeros((3, 0)), rounds=2)] == [1, 3, 3]
