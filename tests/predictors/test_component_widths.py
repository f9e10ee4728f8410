"""Widths of quantities of fitted components: they grow with what is not known, smoothly in the sizes."""

import itertools

import numpy as np
import pytest

from offline_batches import predict_batch
from perfpass.predictors.generation.predictor import QUANTITY, GenerationPredictor, batch_of
from perfpass.predictors.learned.component_widths import CAUSES, lacks

RUN = {"batch": 16, "input_tokens": 512, "output_tokens": 512}


def lacking(**options):
    batch = batch_of(**{"model": "llama-2-7b", "device": "a100-40gb", **RUN, **options})
    found = GenerationPredictor.load().lacks_of(batch)
    return {cause: float(np.ravel(value)[0]) for cause, value in found.items()}


def test_what_was_measured_lacks_nothing_but_another_laboratory():
    found = lacking()
    assert found["laboratory"] == found["measurement"] == 1.0 and 0 <= found["unlike"] < 0.2
    assert not any(found[c] for c in CAUSES if c not in ("laboratory", "measurement", "unlike"))


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"device": "t4"}, "device"),
        ({"device": "mi300x", "runtime": "deepspeed-mii"}, "vendor"),
        ({"model": "qwen2.5-14b"}, "model"),
        ({"precision": "int8"}, "precision"),
        ({"batch": 8192}, "load"),
        ({"input_tokens": 4096}, "long prompts"),
        ({"output_tokens": 2048}, "long answers"),
        ({"runtime": "llama.cpp", "precision": "q4_k_m"}, "llama.cpp's file types"),
        ({"runtime": "llama.cpp", "input_tokens": 4096}, "llama.cpp's prompts"),
    ],
)
def test_each_cause_is_seen(options, cause):
    assert lacking(**options)[cause] > 0 == lacking()[cause]


def test_a_board_is_vouched_for_by_its_vendor_s_others_wholly_on_nvidia_s_alone():
    assert lacking(device="t4")["vendor"] == 0.0 == lacking(device="mi300x")["vendor"]
    assert 0 < lacking(device="mi210")["vendor"] < lacking(device="mi300x", runtime="deepspeed-mii")["vendor"] == 1.0


def test_a_longer_prompt_lacks_as_much_as_is_counted_of_its_time():
    shares = [lacking(input_tokens=n, output_tokens=m)["long prompts"] for n, m in ((512, 512), (1024, 512), (2048, 1))]
    assert shares[0] == 0.0 < shares[1] < 0.5 < shares[2] < 1.0


def test_evidence_of_no_kind_lacks_device_and_runtime():
    form = GenerationPredictor.load().fitted[QUANTITY].form
    found = lacks(form, np.array(["something else"]), np.array([0.1]))
    assert found["device"] == found["runtime"] == 1.0


def test_one_more_token_moves_no_bound_by_much():
    for name, at in itertools.product(("input_tokens", "output_tokens"), (511, 512, 2048)):
        one, other = (predict_batch("llama-2-7b", "a100-40gb", **{**RUN, name: n}).latency_s for n in (at, at + 1))
        for part in ("low", "median", "high"):
            assert getattr(other, part) == pytest.approx(getattr(one, part), rel=0.02), (name, at, part)


def test_support_agrees_with_the_width():
    for device in ("a100-40gb", "h100", "h200", "t4"):
        found = predict_batch("llama-2-7b", device, **RUN)
        width = found.latency_s.high / found.latency_s.low
        assert found.support.level == "outside" or width <= 2.5
        assert found.support.level != "in range" or width <= 1.5
