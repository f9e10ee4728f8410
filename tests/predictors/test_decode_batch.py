"""How many requests decode workers run at most, by their settings: who finds no place waits for a first token."""

import re
from dataclasses import replace

import pytest

from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.llm import Parallelism, Serving, language_model
from perfpass.predictors.engine.deployment import Deployment
from perfpass.predictors.engine.settings import settings_of
from perfpass.predictors.serving.predictor import predict_llm

MODEL = "deepseek-ai/DeepSeek-R1"
REQUESTS, ANSWER, RANKS = 192, 1024, 8
APART = {"prefill": Parallelism.of(1, 1, 4), "prefill_workers": 2, "dp": RANKS, "ep": RANKS}
LOAD = {"input_length": 1024, "output_length": ANSWER, "concurrency": REQUESTS}


def asked(places: int = 0):
    return predict_llm(MODEL, "b200", runtime="trtllm", precision="nvfp4", **LOAD, **APART, decode_batch=places)


def test_places_for_all_change_nothing():
    without, enough = asked(), asked(8 * REQUESTS // RANKS)
    for name in ("ttft_ms", "tpot_ms", "energy_per_token_j", "memory"):
        assert getattr(enough, name) == getattr(without, name), name


def test_who_finds_no_place_waits_as_little_s_law_says():
    found = {places: asked(places) for places in (0, 16, 8, 4)}
    ttft, tpot = ([getattr(one, name).median for one in found.values()] for name in ("ttft_ms", "tpot_ms"))
    assert ttft == sorted(ttft) and tpot == sorted(tpot, reverse=True)
    for places in (16, 8, 4):
        one = found[places]
        waits = (REQUESTS / (places * RANKS) - 1) * ANSWER * one.tpot_ms.median
        assert 0.5 < one.ttft_ms.median / waits < 1.6, places
        assert one.ttft_ms.low < waits < one.ttft_ms.high
        assert one.memory.cache_bytes < found[0].memory.cache_bytes
        assert one.breakdown["base_queue_ms"] > 0


def test_the_answer_says_the_setting():
    found = asked(16)
    assert "at most 16 on a decode rank" in str(found).splitlines()[0]
    assert found.to_dict()["serving"]["decode_batch"] == 16
    assert "decode rank" not in str(asked()) and asked().to_dict()["serving"]["decode_batch"] == 0


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (-1, "decode_batch must be a whole number from 1 to 1,000,000 (0: as many as fit), got -1"),
        (True, "got True"),
        (2.0, "got 2.0"),
        (10**7, "got 10000000"),
    ],
)
def test_no_number_of_places_is_refused(places, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        asked(places)


@pytest.mark.parametrize("kind", ["workers", "prefill_workers"])
def test_workers_without_end_are_refused(kind):
    with pytest.raises(ArgumentError, match="1000000000000000000000 workers of a kind; at most 1,000,000"):
        predict_llm(MODEL, "b200", precision="nvfp4", **LOAD, **APART | {kind: 10**21})


def test_without_prefill_workers_it_has_no_meaning():
    with pytest.raises(ArgumentError, match=r"decode_batch 8 is of decode workers .*--prefill-workers.*--decode-batch"):
        predict_llm("llama-3.1-8b", "h100", decode_batch=8)


def test_requests_that_arrive_meet_the_same_places():
    model, board = language_model("llama-3.1-8b"), device("h100-sxm5-80gb")
    serving = Serving(512, 64, 32, mode="disagg", prefill=Parallelism.of(1), prefill_workers=1)
    settings = settings_of(board, serving)
    few = Deployment.of(model, board, replace(serving, decode_batch=4), settings)
    assert few.pool.settings.max_sequences == 4
    assert few.prefill is not None and few.prefill.settings == settings
    assert Deployment.of(model, board, serving, settings).pool.settings == settings
