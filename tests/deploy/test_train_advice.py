"""`perfpass train-cost --advise`: what takes less memory, what it costs in time, and what fits."""

from __future__ import annotations

import json

import pytest

from perfpass.cli import main
from perfpass.deploy.train_advice import train_advice
from perfpass.errors import ArgumentError

LARGE = {"framework": "torch", "precision": "bf16_true", "sequence": 2048, "micro_batch": 4}


@pytest.fixture(scope="module")
def advised():
    return train_advice("llama-3.1-8b", "h100", gpus=8, sequence=8192, global_batch=64, micro_batch=2)


def test_every_change_takes_less_memory_and_those_that_fit_come_first(advised):
    fits = [one.fits for one in advised.changes]
    assert any(fits) and fits == sorted(fits, reverse=True) and not advised.asked.predicted.fits
    same = [one.time for one in advised.changes if one.fits and one.same_training]
    assert same == sorted(same)
    for one in advised.changes:
        assert one.memory < 0
        assert one.memory == one.found.predicted.in_use.median / advised.asked.predicted.in_use.median - 1
        assert one.found.tokens_per_step == advised.asked.tokens_per_step


def test_what_is_computed_or_moved_again_takes_longer_and_what_is_not_trained_does_not(advised):
    times = {one.words: one.time for one in advised.changes}
    assert 0.2 < times["recompute full"] < 0.4 and times["offload states"] > 0
    assert times["LoRA of rank 16"] < 0
    trained = {one.words: one.same_training for one in advised.changes}
    assert trained["recompute full"] and trained["sharding zero3"] and not trained["LoRA of rank 16"]


def test_states_alone_are_offloaded_where_the_framework_does_that():
    asked = {"gpus": 8, "global_batch": 64, "framework": "torch"}
    words = {one.words for one in train_advice("llama-3.1-8b", "h100", **asked).changes}
    assert "offload optimizer" in words and "offload states" not in words


def test_what_two_layouts_cannot_be_told_apart_by_is_said(advised):
    bounds = {one.words: (one.time_low, one.time_high) for one in advised.changes}
    assert bounds["recompute full"][0] > 0 > bounds["sharding zero3"][0]
    assert bounds["sharding zero3"][1] > 0
    for one in advised.changes:
        assert one.time_low < one.time < one.time_high
        assert (1 + one.time_high) / (1 + one.time) == pytest.approx((1 + one.time) / (1 + one.time_low))


def test_where_nothing_fits_alone_two_or_three_together_are_tried():
    found = train_advice("llama-3.1-8b", "rtx-4090", **LARGE)
    together = [one for one in found.changes if one.fits]
    assert together and all("," in one.words for one in together)
    assert all(one.found.predicted.fits_probability >= 0.9 for one in together)


def test_nothing_is_advised_that_is_on_already():
    asked = {"recompute": "offloaded", "offload": "parameters", "loss": "fused", "lora_rank": 8, "frozen": "nf4"}
    found = train_advice("llama-3.1-8b", "rtx-4090", framework="torch", precision="bf16_true", **asked)
    assert not {name for one in found.changes for name in one.changes} & set(asked)


def test_the_command_advises_where_it_does_not_fit_or_is_asked_to(capsys):
    model = ["train-cost", "llama-3.1-8b", "--device", "h100"]
    fits = [*model, "--gpus", "8", "--sharding", "zero3"]
    assert main(fits) == 0 and "switch on" not in capsys.readouterr().out
    assert main([*fits, "--advise"]) == 0 and "switch on" in capsys.readouterr().out
    assert main([*model, "--json"]) == 1
    changes = json.loads(capsys.readouterr().out)["advice"]
    assert changes and all(one["memory"] < 0 for one in changes)


def test_what_cannot_be_asked_is_refused_as_it_is_without_advice():
    with pytest.raises(ArgumentError, match="do not divide"):
        train_advice("llama-3.1-8b", "h100", gpus=6, tensor=4)
