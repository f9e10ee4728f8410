"""A graph's shapes hold one batch: another that is asked is refused, by every call that takes a graph."""

import pytest

import perfpass
from perfpass.errors import ArgumentError
from perfpass.graph.held_batch import check_held
from perfpass.predictors.assemble import peak_memory, predict_graph
from perfpass.search import Candidate, Scorer


@pytest.fixture(scope="module")
def graph():
    return perfpass.load("resnet18", batch=8)


CALLS = {
    "load": lambda graph, batch: perfpass.load(graph, batch=batch),
    "predict": lambda graph, batch: perfpass.predict(graph, "t4", batch=batch),
    "training": lambda graph, batch: perfpass.predict(graph, "t4", batch=batch, mode="training"),
    "predict_graph": lambda graph, batch: predict_graph(graph, "t4", batch=batch),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("batch", [1, 4, 16, 512])
def test_another_batch_is_refused(graph, name, batch):
    with pytest.raises(
        ArgumentError, match=rf"batch={batch}, but .*\[8, 3, 224, 224\].*perfpass.load\(model, batch={batch}\)"
    ):
        CALLS[name](graph, batch)


def test_a_scorer_reports_it(graph):
    scores = Scorer("t4").score([Candidate(graph, batch=16), Candidate(graph, batch=8)])
    assert [type(error) for error in scores.problems] == [ArgumentError, type(None)]


def test_the_batch_that_it_holds_is_taken(graph):
    assert perfpass.predict(graph, "t4", batch=8).latency_ms == perfpass.predict(graph, "t4").latency_ms
    assert peak_memory(graph, "t4", batch=8) == peak_memory(graph, "t4")


@pytest.mark.parametrize("batch", [0, -1, True, 2.0, "8"])
def test_what_is_no_batch_is_refused(graph, batch):
    with pytest.raises(ArgumentError, match="batch must be"):
        check_held(graph, batch)


def test_samples_in_one_dimension_hold_any_batch_that_divides_it():
    # 16 samples of 128 tokens in one row, as packed sequences are.
    tokens = perfpass.load(
        {
            "model_type": "bert",
            "vocab_size": 100,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        },
        batch=16,
    )
    check_held(tokens, 4)
    with pytest.raises(ArgumentError):
        check_held(tokens, 48)
