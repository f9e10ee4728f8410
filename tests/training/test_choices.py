"""Grading of choices: what counts as the best, near it, missed and regretted, of ways that were measured."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.predictors.learned import lattice
from perfpass.training.decisions.offers import Method, Offers, Question, chosen, graded, questions

USD = np.array([1.0, 2.0, 3.0, 4.0])
MEASURED = {"latency": np.array([30.0, 12.0, 9.0, 5.0])}


@pytest.fixture()
def offers():
    return Offers(np.array(["a"] * 4), np.array(["a"] * 4), MEASURED, lambda ms: USD)


def line(offers, method, limit=10.0):
    asked = questions(offers, np.ones(4, dtype=bool), [{"latency": limit}])
    return next(graded(offers, [method], asked, "split", "all"))


def test_who_knows_what_was_measured_takes_the_best(offers):
    found = line(offers, Method("oracle", MEASURED))
    assert found["best_pct"] == found["near_best_pct"] == 100.0
    assert found["missed_pct"] == found["regret_median_pct"] == 0.0


def test_too_bold_misses_and_too_careful_pays_more(offers):
    bold = line(offers, Method("bold", {"latency": MEASURED["latency"] / 2}))
    assert bold["missed_pct"] == 100.0 and bold["best_pct"] == 0.0 and bold["regret_median_pct"] is None
    careful = line(offers, Method("careful", {"latency": MEASURED["latency"] * 1.5}))
    assert careful["missed_pct"] == 0.0 and careful["regret_median_pct"] == pytest.approx(100 / 3)


def test_a_model_that_is_asked_often_counts_as_often_in_all_and_once_where_models_count_alike():
    times = {"latency": np.concatenate([MEASURED["latency"]] * 2)}
    model = np.repeat(["right", "wrong"], 4)
    offers = Offers(model, model, times, lambda ms: np.concatenate([USD, USD]))
    asked = [Question(np.arange(4), {"latency": 10.0}), *[Question(np.arange(4, 8), {"latency": 10.0})] * 3]
    told = {"latency": times["latency"] * np.repeat([1.0, 0.5], 4)}
    found = next(graded(offers, [Method("half of one", told)], asked, "split", "all"))
    assert (found["chosen"], found["models"], found["missed_pct"], found["missed_models_alike_pct"]) == (4, 2, 75, 50)


def test_none_is_chosen_where_none_is_thought_to_keep_the_limit(offers):
    found = line(offers, Method("shy", {"latency": MEASURED["latency"] * 10}))
    assert found["chosen"] == 0 and found["questions"] == 1
    assert found["missed_pct"] is None and found["missed_models_alike_pct"] is None and found["models"] == 0


def test_more_confidence_never_takes_a_cheaper_way(offers):
    wide = (np.full(4, -0.8), np.full(4, 0.8))
    method = Method("wide", MEASURED, {"latency": wide})
    asked = Question(np.arange(4), {"latency": 20.0})
    taken = [chosen(offers, method, asked, confidence) for confidence in (0.5, 0.8, 0.9, 0.95, 0.99)]
    prices = [np.inf if row is None else USD[row] for row in taken]
    assert prices == sorted(prices) and prices[0] == 2.0


def test_a_question_is_one_only_where_some_ways_keep_it_and_some_do_not(offers):
    everything = np.ones(4, dtype=bool)
    assert not questions(offers, everything, [{"latency": 100.0}, {"latency": 1.0}])
    assert not questions(offers, np.array([True, True, False, False]), [{"latency": 20.0}])


def test_many_places_of_a_lattice_are_read_as_each():
    rng = np.random.default_rng(0)
    values, rungs = rng.normal(size=(4, 5)), ((1, 2, 8, 64), (1, 3, 9, 27, 100))
    sizes = np.exp(rng.uniform(-1, 6, size=(2, 50)))
    found = lattice.read(values, rungs, list(sizes))
    assert found.tolist() == [lattice.between(values, rungs, pair) for pair in sizes.T.tolist()]


def test_ways_of_other_laboratories_are_compared_under_one_load_and_at_the_devices_peaks():
    from perfpass.llm.costs import Parallelism
    from perfpass.llm.serving import Serving
    from perfpass.training.decisions import elsewhere
    from perfpass.training.serving.outside import Asked

    def way(device, tensor, source="argonne", batch=16.0):
        split = Parallelism.of(tensor)
        serving = Serving(128, 128, batch, "vllm", parallelism=split)
        label = f"source:{source}, without a server/vllm"
        return Asked(label, "tpot", 0.02, "llama-2-7b", device, serving, "bf16", None, False, False)

    ways = [way("h100", 1), way("h100", 4), way("a100-80gb", 1)]
    assert len({elsewhere._group(one) for one in ways}) == 1
    assert elsewhere._group(way("h100", 1, batch=8.0)) != elsewhere._group(ways[0])
    assert elsewhere._publisher(ways[0].source) == "argonne"
    least = elsewhere._roofline(ways)
    assert least[1] < least[0] < least[2]
