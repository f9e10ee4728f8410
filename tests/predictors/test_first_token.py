"""The time to the first token of closed loops: what a burst waits, what it grows with, and which records tell it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass.devices import device
from perfpass.llm.configuration import language_model
from perfpass.llm.costs import Parallelism
from perfpass.llm.serving import Serving
from perfpass.predictors.serving import first_token
from perfpass.predictors.serving.base import (
    KINDS,
    RUNTIMES,
    Sizes,
    bounded,
    first_parts,
    first_token_bounds,
    kept_tokens,
    prior,
    terms,
    times,
)
from perfpass.predictors.serving.first_token import in_turn
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.training.serving import dataset
from perfpass.training.serving.fit import CARRIED, constants_of
from served_records import served

CONSTANTS = bounded(prior())


@pytest.fixture(scope="module")
def records():
    return served()


def mean_wait(requests: int, per_chunk: int, chunk_s: float) -> float:
    """Of requests that come together: chunk after chunk, each first token at the end of its own."""
    ends = [chunk_s * (1 + i // per_chunk) for i in range(requests)]
    return sum(ends) / requests


@given(chunks=st.integers(1, 40), per_chunk=st.integers(1, 16), load=st.sampled_from(["llama-3.1-8b", "qwen3-32b"]))
@settings(max_examples=25, deadline=None)
def test_a_burst_waits_as_long_as_its_chunks_one_after_another(chunks, per_chunk, load):
    requests, length = chunks * per_chunk, first_token.CHUNK_TOKENS / per_chunk
    serving = Serving(round(length), 128, float(requests), "vllm", parallelism=Parallelism.of(8))
    sizes = Sizes(np.array([length]), np.array([128.0]), np.array([float(requests)]))
    t = terms(language_model(load), device("h200"), serving, sizes)
    t = replace(t, prompts=np.array([float(requests)]))
    # All of the run is its opening, and no chunk costs more than its kernels.
    c = CONSTANTS | {f"first.agg.{name}.{r}": v for name, v in (("burst", 1.0), ("layer_s", 0.0)) for r in RUNTIMES}
    found = first_parts(t, c, split=False, tpot=np.array([0.01]))
    one = first_parts(replace(t, prefill=t.chunk, per_chunk=np.ones(1), prompts=np.ones(1)), c, False, np.array([0.01]))
    assert found["opening burst"][0] == pytest.approx(mean_wait(requests, per_chunk, one["opening burst"][0]), rel=1e-6)


@given(
    prompt=st.floats(1, 60_000),
    load=st.floats(1, 4000),
    more=st.floats(1.0, 8.0),
    runtime=st.sampled_from(RUNTIMES),
    apart=st.booleans(),
    ranks=st.sampled_from([1, 8]),
    looks=st.sampled_from([1, 30]),
)
@settings(max_examples=60, deadline=None)
def test_no_first_token_comes_sooner_with_a_longer_prompt_or_more_load(
    prompt, load, more, runtime, apart, ranks, looks
):
    split = {"mode": "disagg", "prefill": Parallelism.of(4), "prefill_workers": 2} if apart else {}
    serving = Serving(1, 256, 1.0, runtime, parallelism=Parallelism.of(8 // ranks, 1, ranks, 1), **split)
    sizes = Sizes(np.array([prompt, prompt * more, prompt]), np.full(3, 256.0), np.array([load, load, load * more]))
    t = terms(language_model("qwen3-235b-a22b"), device("h200"), serving, sizes, looks=looks)
    first = times(t, CONSTANTS)["ttft"]
    assert first[1] >= first[0] * (1 - 1e-9)
    assert first[2] >= first[0] * (1 - 1e-9)


@given(load=st.integers(2, 512), looks=st.integers(2, 64), drafts=st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_requests_wait_in_whole_steps_for_a_scheduler_that_seldom_looks(load, looks, drafts):
    serving = Serving(1024, 1024, float(load), "sglang", parallelism=Parallelism.of(8))
    often, seldom, drafting = (
        terms(language_model("deepseek-v3"), device("b200"), serving, looks=look, drafts=draft)
        for look, draft in ((1, 0), (looks, 0), (looks, drafts))
    )
    token_s = np.array([0.01])
    waits = [first_parts(t, CONSTANTS, split=False, tpot=token_s)["scheduler"][0] for t in (often, seldom, drafting)]
    missed = CONSTANTS["first.agg.look"] * (looks - 1) / CONSTANTS["first.agg.steps.sglang"]
    assert waits[1] == pytest.approx(waits[0] * (1 + missed))
    # A step that keeps several tokens lasts as long as they do.
    assert waits[2] == pytest.approx(waits[1] * kept_tokens(drafting.drafts, CONSTANTS["step.acceptance"])[0])


@given(
    load=st.integers(2, 512),
    prompt=st.integers(64, 8192),
    answer=st.integers(100, 2000),
    ranks=st.sampled_from([1, 8]),
)
@settings(max_examples=20, deadline=None)
def test_half_of_a_waves_prompts_come_before_a_first_token_and_half_after(load, prompt, answer, ranks):
    split = Parallelism.of(8 // ranks, 1, ranks)
    serving = Serving(prompt, answer, float(load), "sglang", parallelism=split)
    plain, waves = (
        times(terms(language_model("qwen3-32b"), device("h100"), replace(serving, equal_answers=w)), CONSTANTS)
        for w in (False, True)
    )
    # Prompts that others wait for between two tokens: all but one's own, or half of these.
    assert waves["tpot"] - waves["step"] == pytest.approx((plain["tpot"] - plain["step"]) / 2)
    t = terms(language_model("qwen3-32b"), device("h100"), replace(serving, equal_answers=True))
    found = first_parts(t, CONSTANTS, split=False, tpot=waves["tpot"])
    assert found["prompts"] == 0 and found["scheduler"] == 0
    every = {**CONSTANTS, "first.agg.burst.sglang": 1.0}
    opening = first_parts(replace(t, waves=np.array([False])), every, split=False, tpot=waves["tpot"])
    assert found["opening burst"] == pytest.approx(opening["opening burst"])


@pytest.mark.parametrize(
    ("equal", "runtime", "split"),
    [
        (False, "sglang", {}),
        (True, "vllm", {}),
        (True, "trtllm", {}),
        (True, "sglang", {"mode": "disagg", "prefill": Parallelism(), "prefill_workers": 1}),
    ],
)
def test_waves_need_equal_answers_and_a_server_whose_prompts_go_first(equal, runtime, split):
    assert not Serving(1024, 256, 64.0, runtime, equal_answers=equal, **split).waves
    assert Serving(1024, 256, 64.0, "sglang", equal_answers=True).waves


def test_who_is_alone_is_no_wave():
    serving = Serving(1024, 256, 1.0, "sglang", parallelism=Parallelism.of(8))
    plain, waves = (
        times(terms(language_model("qwen3-32b"), device("h100"), replace(serving, equal_answers=w)), CONSTANTS)
        for w in (False, True)
    )
    assert plain["tpot"] == waves["tpot"] and plain["ttft"] == waves["ttft"]


def test_records_come_in_waves_where_prompts_go_first_and_answers_have_one_length(records):
    rows, waves = records.rows, records.workloads.terms.waves.astype(bool)
    assert set(rows[waves].runtime_version) == {"0.5.1.post1"} and waves.sum() == 78
    # What waits for all prompts of a wave, half before its first token and half after it, is half of them in either.
    own = rows[waves & (rows.concurrency > 16)]
    base = times(records.workloads.take(own.index.to_numpy()).terms, CONSTANTS)
    others = base["prompt"] * (own.concurrency - 1)
    before = (own.ttft_ms / 1e3 - base["prompt"]) / others
    after = (own.tpot_ms / 1e3 - base["step"]) * own.output_tokens / others
    assert 0.7 < (before / after).median() < 1.8


@given(load=st.integers(1, 512), drafts=st.integers(0, 3), runtime=st.sampled_from(RUNTIMES))
@settings(max_examples=20, deadline=None)
def test_beside_prefill_replicas_a_first_token_waits_for_steps_of_its_decoder(load, drafts, runtime):
    split = Parallelism.of(8)
    serving = Serving(1024, 1024, float(load), runtime, mode="disagg", prefill=split, prefill_workers=1)
    t = terms(language_model("deepseek-v3"), device("b200"), replace(serving, parallelism=split), drafts=drafts)
    quick, slow = (first_parts(t, CONSTANTS, split=True, tpot=np.array([s])) for s in (0.01, 0.03))
    kept = kept_tokens(t.drafts, CONSTANTS["step.acceptance"])[0]
    assert quick["scheduler"][0] == pytest.approx(CONSTANTS[f"first.disagg.steps.{runtime}"] * 0.01 * kept)
    assert slow["scheduler"][0] == pytest.approx(3 * quick["scheduler"][0])
    # A request that comes alone waits for them too.
    steady = [times(t, {**CONSTANTS, f"first.disagg.steps.{runtime}": n})["steady"][0] for n in (1.0, 11.0)]
    assert steady[1] - steady[0] == pytest.approx(10 * times(t, CONSTANTS)["step"][0] * kept)


def test_an_engine_not_measured_beside_prefill_replicas_starts_from_its_other_servers(records):
    rows = records.rows
    own = np.flatnonzero((rows.runtime == "sglang") & ~rows.disaggregated & (rows.family == "deepseek-v3"))[::4]
    others = np.flatnonzero((rows.runtime == "trtllm") & rows.disaggregated & (rows.family == "deepseek-v3"))[::10]
    few = np.concatenate([own, others])
    w, warm = records.workloads.take(few), ~(records.cold | records.queued)[few]
    found = constants_of(w.terms, records.tpot_s[few], records.ttft_s[few], records.weight[few], warm)
    for name in CARRIED:
        assert found[f"first.disagg.{name}.sglang"] == pytest.approx(found[f"first.agg.{name}.sglang"], rel=1e-3)
    assert found["first.disagg.steps.trtllm"] != pytest.approx(found["first.agg.steps.trtllm"], rel=1e-3)


def test_unstated_prefill_replicas_are_as_many_as_keep_up():
    serving = Serving(
        8192, 64, 512.0, "trtllm", mode="disagg", parallelism=Parallelism.of(8), workers=4,
        prefill=Parallelism.of(4), prefill_workers=1,
    )  # fmt: skip
    model, board = language_model("qwen3-235b-a22b"), device("b200")
    stated, guessed = (times(terms(model, board, serving, unstated=u), CONSTANTS)["ttft"][0] for u in (False, True))
    assert guessed < stated / 4
    alone = replace(serving, concurrency=1.0)
    stated, guessed = (times(terms(model, board, alone, unstated=u), CONSTANTS)["ttft"][0] for u in (False, True))
    assert guessed == pytest.approx(stated)


def test_parts_of_a_first_token_are_named_and_add_up():
    t = terms(language_model("llama-3.1-8b"), device("h100"), Serving(1024, 128, 32.0, "sglang"))
    base = times(t, CONSTANTS)
    parts = first_parts(t, CONSTANTS, split=False, tpot=base["tpot"])
    assert tuple(parts) == first_token.PARTS
    assert sum(float(v[0]) for v in parts.values()) + base["queue"][0] == pytest.approx(base["ttft"][0])
    assert len(KINDS) * 2 + 3 == t.chunk.shape[1]


def test_no_record_had_fewer_gpus_than_its_prompts_need(records):
    assert (dataset.busy(records.workloads.terms, records.tpot_s, records.ttft_s) <= 1).all()
    assert 3400 < len(records) < 3482


def test_a_cold_start_is_slower_than_the_same_deployment_under_more_load(records):
    assert 20 < records.cold.sum() < 150
    rows = records.rows
    run = np.flatnonzero(records.cold & ~records.queued)[0]
    alike = rows[(rows.device == rows.device[run]) & (rows.family == rows.family[run])]
    assert (alike[alike.concurrency >= rows.concurrency[run]].ttft_ms < rows.ttft_ms[run] / 3).any()


@given(st.integers(1, 64), st.floats(1.0, 8.0), st.integers(100, 2000))
@settings(max_examples=25, deadline=None)
def test_beyond_the_places_of_a_decode_worker_requests_wait_as_little_s_law_has_it(places, over, answer):
    """What is not decoding is prefilled or waits: requests / places - 1 of an answer's time, but for those that open a
    run.
    """
    split, count = Parallelism.of(8), places * over
    serving = Serving(256, answer, count, "trtllm", mode="disagg", parallelism=split, prefill=split, prefill_workers=64)
    model, board = language_model("deepseek-v3"), device("b200")
    free, held = (times(terms(model, board, replace(serving, decode_batch=most)), CONSTANTS) for most in (0, places))
    wait = (over - 1) * answer * held["tpot"][0] * (1 - 1 / first_token.ROUNDS)
    assert held["tpot"][0] <= free["tpot"][0] * (1 + 1e-9)
    assert max(wait, free["ttft"][0] * 0.99) <= held["ttft"][0] <= (wait + free["ttft"][0]) * 1.001


def test_a_server_that_began_cold_for_every_load_is_told_by_another_release_of_the_same_deployment(records):
    rows = records.rows
    same = ~rows.disaggregated & (rows.family == "deepseek-v3") & (rows.device == "b200-sxm-180gb")
    same &= (rows.runtime == "sglang") & (rows.gemm_quantization == "nvfp4") & (rows.n_devices == 4)
    same &= (rows.input_tokens == 1024) & (rows.output_tokens == 1024) & (rows.concurrency == 64)
    slow, warm = same & (rows.runtime_version == ""), same & (rows.runtime_version == "0.5.9")
    assert (rows.ttft_ms[slow] > 7000).all() and (rows.ttft_ms[warm] < 700).all() and slow.any() and warm.any()
    assert records.cold[slow].all() and not records.cold[warm].any()
    assert records.cold.mean() < 0.03


def test_prompts_of_one_length_wait_for_half_of_the_one_in_progress():
    prompt, rest, requests = np.array([1.0]), np.array([20.0]), np.arange(1.0, 200.0)
    fixed, drawn = (in_turn(prompt, rest, requests, variation) for variation in (0.0, 1.0))
    assert fixed[0] == pytest.approx(1.0) == pytest.approx(drawn[0])  # alone: its own prompt
    assert (np.diff(fixed) > 0).all() and (fixed <= drawn).all()
    assert (fixed[1:4] - 1) / (drawn[1:4] - 1) == pytest.approx(0.5, abs=0.05)
    # Full: as many as do not decode wait, whatever their lengths.
    assert fixed[-1] == pytest.approx(requests[-1] - rest[0], rel=0.01)
    assert drawn[-1] == pytest.approx(requests[-1] - rest[0], rel=0.01)


def asked(concurrency, **options):
    """Log bounds of first tokens of Qwen3-32B on two H100 by the base, where prompts take e^-0.3 to e^0.3 of it."""
    model, board = language_model("qwen3-32b"), device("h100-sxm5-80gb")
    load = {"input_length": 4096, "output_length": 512, "parallelism": Parallelism.of(2), **options}
    found = terms(model, board, Serving(concurrency=concurrency, **load))
    low, high = first_token_bounds(found, ServingPredictor.load().constants, np.array([-0.3]), np.array([0.3]))
    return float(low[0]), float(high[0])


def test_near_saturation_the_error_of_a_prompt_is_a_larger_one_of_the_wait():
    apart = {"mode": "disagg", "prefill": Parallelism.of(2), "prefill_workers": 1, "workers": 4}
    assert asked(1.0, **apart) == pytest.approx((-0.3, 0.3))
    widest = max(asked(float(n), **apart)[1] for n in (16, 32, 48, 64, 96, 128))
    assert widest > 0.6
    # Whoever waits in a queue that is full anyhow waits for its rate again.
    low, high = asked(4096.0, **apart, decode_batch=1024)
    assert -0.5 < low <= -0.3 and 0.3 <= high < 0.5


def test_who_may_find_no_room_may_wait():
    """Two H100 hold 70 to 79 such requests by default, of 0.92 of their memory."""
    assert asked(8.0) == pytest.approx((-0.3, 0.3))
    low, high = asked(74.0)
    assert low == pytest.approx(-0.3) and high > 0.6  # the cache may be smaller: then some wait
    low, high = asked(84.0)
    assert low < -0.6  # and larger: then none does
