from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from perfpass.errors import ArgumentError
from perfpass.llm import Serving, language_model
from perfpass.llm.batch import EngineBatch
from perfpass.llm.speculation import METHODS, Speculation
from perfpass.predictors.switches.load import Deployment
from perfpass.predictors.switches.prefixes import share
from perfpass.predictors.switches.speculative import SpeculativeSteps, speculate

SERVING = Serving(1024, 128, 8)
SHARES = st.floats(0.0, 1.0)


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return Deployment(language_model("llama-3.1-8b"), perfpass.device("h100"), SERVING)


def asked(acceptance: float, drafted: int = 4) -> Speculation:
    return Speculation.of("model", draft=language_model("llama-3.2-1b"), drafted=drafted, acceptance=acceptance)


def predicted(**switches):
    return perfpass.predict_llm(
        "llama-3.1-8b", "h100", input_length=1024, output_length=128, concurrency=8,
        switches=perfpass.Switches(**switches),
    )  # fmt: skip


def test_nothing_switched_on_changes_no_figure():
    assert predicted().to_dict() == perfpass.predict_llm(
        "llama-3.1-8b", "h100", input_length=1024, output_length=128, concurrency=8
    ).to_dict()  # fmt: skip


def test_no_draft_token_is_a_plain_step(deployment):
    load = deployment.load()
    steps = SpeculativeSteps(load.steps, None, asked(0.5, drafted=0))
    batch = EngineBatch.of([(300, 20)], [100, 900])
    assert steps.seconds(batch) == pytest.approx(load.steps.seconds(batch), rel=1e-12)
    assert steps.tokens == 1.0


def test_without_acceptance_a_step_is_slower_by_exactly_the_drafts(deployment):
    load, one = deployment.load(), asked(0.0)
    steps = speculate(deployment, load, one).load.steps
    drafter = deployment.steps(one.drafter(deployment.model))
    batch = EngineBatch(decodes=8.0, decode_context=8000.0)
    drafts = 4 * drafter.seconds(batch)
    verified = load.steps.seconds(EngineBatch(decodes=8.0 * 5, decode_context=8000.0))
    assert steps.seconds(batch) == pytest.approx(drafts + verified, rel=1e-12)
    assert steps.tokens == 1.0


def test_with_full_acceptance_a_step_yields_every_draft_and_one_more(deployment):
    load, run = deployment.load(), []
    for acceptance in (0.0, 1.0):
        steps = speculate(deployment, load, asked(acceptance)).load.steps
        run.append(steps.decode_run(8.0, 8000.0, 1.0))
    assert run[0] / run[1] == pytest.approx(5.0, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(SHARES, SHARES)
def test_more_acceptance_never_makes_a_token_slower(one, other):
    deployment = Deployment(language_model("llama-3.1-8b"), perfpass.device("h100"), SERVING)
    low, high = sorted((one, other))
    times = [speculate(deployment, deployment.load(), asked(a)).load.times()[1] for a in (low, high)]
    assert times[1] <= times[0] * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(SHARES, SHARES)
def test_more_prefix_found_never_makes_anything_slower(one, other):
    deployment = Deployment(language_model("llama-3.1-8b"), perfpass.device("h100"), SERVING)
    low, high = sorted((one, other))
    slow, fast = (share(deployment, deployment.load(), hit).load.times() for hit in (low, high))
    assert fast[0] <= slow[0] * (1 + 1e-9)
    assert fast[1] <= slow[1] * (1 + 1e-9)


def test_no_prefix_found_is_the_plain_load_and_all_of_it_is_a_prompt_of_one_token(deployment):
    load = deployment.load()
    assert share(deployment, load, 0.0).load == load
    found = share(deployment, load, 1.0).load
    assert (found.computed, found.cached) == (1.0, 1023.0)


def test_a_cache_on_the_host_is_slower_than_one_on_the_device_and_faster_than_none():
    device, host, none = (
        predicted(**one).ttft_ms.median for one in ({"prefix_hit": 0.8}, {"prefix_hit": 0.8, "from_host": 1.0}, {})
    )
    assert device < host < none


def test_the_result_names_what_is_on_what_it_brings_and_what_was_without():
    plain, found = predicted(), predicted(prefix_hit=0.4, speculation=asked(0.7))
    said = str(found)
    assert "prefix caching, 40% of the prompt found: 614 of 1,024 tokens computed" in said
    assert "llama-3.2-1b, 4 draft tokens, acceptance 0.70: 2.77 tokens a step" in said
    switched = found.to_dict()["switched"]
    assert switched["without"]["tpot_ms"] == plain.tpot_ms.median
    ratio = np.prod([part["tpot_ratio"] for part in switched["parts"]])
    assert found.tpot_ms.median == pytest.approx(plain.tpot_ms.median * ratio)
    assert "switched" not in plain.to_dict()


def test_a_draft_model_is_counted_in_memory_and_leaves_room_for_fewer_requests():
    plain, found = predicted(), predicted(speculation=asked(0.7))
    draft = 2.0 * language_model("llama-3.2-1b").parameters
    assert found.memory.weights_bytes - plain.memory.weights_bytes == pytest.approx(draft, rel=0.01)
    assert found.memory.cache_bytes > plain.memory.cache_bytes
    assert found.memory.most_requests < plain.memory.most_requests


def test_what_no_record_covers_is_said_and_widens():
    plain, found = predicted(), predicted(speculation=asked(0.7))
    assert found.tpot_ms.high / found.tpot_ms.low > plain.tpot_ms.high / plain.tpot_ms.low
    assert found.support.level != "in range"
    assert any("Spec-Bench" in reason for reason in found.support.reasons)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"model", "swift"}))
def test_every_method_answers_for_a_dense_model_and_a_mixture(method):
    for name in ("llama-3.1-8b", "mixtral-8x7b"):
        model = language_model(name)
        deployment = Deployment(model, perfpass.device("h200"), SERVING)
        change = speculate(deployment, deployment.load(), Speculation.of(method))
        assert all(np.isfinite(change.load.times()))
        assert change.beside.weights_bytes >= 0


@pytest.mark.parametrize("wrong", [{"prefix_hit": 1.1}, {"prefix_hit": -0.1}, {"from_host": 0.5}])
def test_shares_out_of_range_are_refused(wrong):
    with pytest.raises(ArgumentError):
        perfpass.Switches(**wrong)
