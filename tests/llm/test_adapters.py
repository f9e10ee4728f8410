from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpass.errors import ArgumentError
from perfpass.llm import language_model
from perfpass.llm.adapters import Adapters
from perfpass.llm.answer_lengths import AnswerLengths


def test_an_adapter_has_the_parameters_that_peft_gives_it():
    """Rank 16 on all seven projections of Llama-3.1-8B: 41,943,040 trainable parameters, as peft prints them."""
    model = language_model("llama-3.1-8b")
    assert Adapters(16).elements(model) == 41_943_040
    assert Adapters(16, targets="attention").elements(model) + Adapters(16, targets="mlp").elements(model) == 41_943_040


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "mixtral-8x7b", "gpt-oss-20b"])
def test_a_split_holds_its_part_and_copies_of_the_narrow_sides(name):
    model = language_model(name)
    whole, half = (Adapters(16).elements(model, tensor) for tensor in (1, 2))
    assert whole / 2 < half < whole


@given(st.integers(1, 64), st.integers(1, 200), st.integers(0, 500))
def test_no_more_adapters_are_read_than_there_are_or_than_requests(rank, count, requests):
    model = language_model("llama-3.2-1b")
    adapters = Adapters(rank, count)
    one = adapters.elements(model) * 2.0
    read = float(adapters.read_bytes(model, requests))
    assert read <= min(count, requests) * one * (1 + 1e-12)
    assert read >= (one if requests else 0.0) * (1 - 1e-12)
    assert float(adapters.read_bytes(model, requests + 1)) >= read


@pytest.mark.parametrize("none", [Adapters(0, 8), Adapters(16, 0)])
def test_no_rank_and_no_adapter_are_nothing(none):
    model = language_model("llama-3.1-8b")
    assert none.elements(model) == none.held_bytes(model) == none.launches(model) == none.swapped_share == 0
    assert float(none.flops(model, 100)) == float(none.read_bytes(model, 10)) == 0


def test_kernels_are_two_for_each_group_of_matrices():
    assert Adapters(16).launches(language_model("llama-3.1-8b")) == 32 * 4 * 2


@pytest.mark.parametrize("wrong", [{"rank": -1}, {"rank": 8, "count": 4, "resident": 5}, {"rank": 8, "targets": "k"}])
def test_adapters_that_cannot_be_are_refused(wrong):
    with pytest.raises(ArgumentError):
        Adapters(**wrong)


def test_equal_answers_are_half_written_on_average_and_have_one_length():
    equal = AnswerLengths(1000, 0.0)
    assert equal.seen == 500
    assert {equal.quantile(percent) for percent in (50, 90, 99)} == {1000.0}


@given(st.floats(0.05, 1.0))
def test_unequal_answers_have_the_mean_and_are_met_as_sampled(variation):
    lengths = AnswerLengths(1000.0, variation)
    rng = np.random.default_rng(0)
    drawn = rng.lognormal(np.log(1000.0) - lengths.sigma**2 / 2, lengths.sigma, 200_000)
    assert drawn.mean() == pytest.approx(1000.0, rel=0.02)
    assert (drawn**2).mean() / (2 * drawn.mean()) == pytest.approx(lengths.seen, rel=0.1)
    assert np.quantile(drawn, 0.9) == pytest.approx(lengths.quantile(90), rel=0.03)


@pytest.mark.parametrize("variation", [-0.1, 11.0, float("nan")])
def test_variations_that_no_answers_have_are_refused(variation):
    with pytest.raises(ArgumentError):
        AnswerLengths(100, variation)
