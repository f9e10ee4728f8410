from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.errors import ArgumentError
from perfpass.llm import language_model
from perfpass.llm.speculation import METHODS, Speculation, acceptance_of, tokens_per_step


def kept(acceptance: float, drafted: int) -> float:
    """Tokens of a step, by the chance that exactly so many drafts are kept before one is not."""
    chances = [acceptance**k * (1 - acceptance) for k in range(drafted)] + [acceptance**drafted]
    return sum(chance * (k + 1) for k, chance in enumerate(chances))


@given(st.floats(0.0, 1.0), st.integers(0, 40))
def test_tokens_of_a_step_are_the_mean_of_what_is_kept(acceptance, drafted):
    assert tokens_per_step(acceptance, drafted) == pytest.approx(kept(acceptance, drafted), rel=1e-6)


@given(st.integers(1, 30), st.floats(0.0, 1.0))
def test_an_acceptance_is_found_again_from_its_tokens(drafted, acceptance):
    tokens = tokens_per_step(acceptance, drafted)
    assert tokens_per_step(acceptance_of(tokens, drafted), drafted) == pytest.approx(tokens, rel=1e-9)


def test_limits_of_acceptance_are_one_token_and_all_of_them():
    assert tokens_per_step(0.0, 7) == 1.0
    assert tokens_per_step(1.0, 7) == 8.0


@settings(max_examples=30)
@given(st.sampled_from(sorted(set(METHODS) - {"model", "swift"})))
def test_a_method_without_more_is_as_it_was_measured(method):
    found = Speculation.of(method)
    assert found.assumed
    assert found.drafted == METHODS[method].depth
    assert found.tokens == pytest.approx(METHODS[method].tokens, rel=1e-6)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"method": "eagel"}, "eagle"),
        ({"method": "swift"}, "no acceptance of"),
        ({"method": "eagle", "acceptance": 1.2}, "from 0 to 1"),
        ({"method": "eagle", "acceptance": math.nan}, "from 0 to 1"),
        ({"method": "eagle", "drafted": -1}, "whole number"),
        ({"method": "eagle", "drafted": 4, "verified": 2}, "are verified"),
        ({"method": "eagle", "drafted": 4, "tokens": 6.0}, "1 to 5 tokens"),
        ({"method": "eagle", "tokens": 2.0, "acceptance": 0.5}, "one of them"),
        ({"method": "model", "acceptance": 0.5}, "belongs to"),
    ],
)
def test_what_cannot_be_drafted_is_refused_with_what_can(asked, said):
    with pytest.raises(ArgumentError, match=said):
        Speculation.of(**asked)


def test_a_draft_model_needs_the_vocabulary_of_the_model():
    asked = Speculation.of("model", draft=language_model("opt-125m"))
    with pytest.raises(ArgumentError, match="same vocabulary"):
        asked.drafter(language_model("llama-3.1-8b"))


def test_drafters_have_the_published_sizes():
    """EAGLE-Vicuna-7B is stated with 0.24 B and Medusa's heads of Vicuna-7B with 5 x (h^2 + hV) parameters."""
    vicuna = language_model("llama-2-7b")
    layer = Speculation.of("eagle").drafter(vicuna)
    tables = 2 * vicuna.vocabulary * vicuna.hidden
    assert layer.parameters - tables == pytest.approx(0.24e9, rel=0.03)
    heads = Speculation.of("medusa", drafted=5, tokens=2.3).drafter(vicuna)
    assert heads.parameters == pytest.approx(5 * (4096**2 + 4096 * 32000), rel=1e-3)


def test_the_prediction_module_of_deepseek_v3_has_its_published_size():
    """14 B parameters, embedding and head apart: 11.5 B without what it shares (README_WEIGHTS of the checkpoint)."""
    model = language_model("deepseek-v3")
    layer = Speculation.of("mtp").drafter(model)
    tables = 2 * model.vocabulary * model.hidden
    assert layer.parameters - tables == pytest.approx(11.5e9, rel=0.03)


def test_searching_text_drafts_without_a_model():
    for method in ("ngram", "lookahead", "recycling", "rest"):
        asked = Speculation.of(method)
        assert asked.drafter(language_model("llama-2-7b")) is None
        assert not asked.own_weights
