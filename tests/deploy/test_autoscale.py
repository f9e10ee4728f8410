"""Promises of autoscaling: enough replicas when they are there in time, none paid for before they are asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfpass.deploy.autoscale import _steps, autoscale
from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.llm.configuration import language_model
from perfpass.predictors.engine.queueing import most_rate
from perfpass.predictors.engine.requests import Requests
from perfpass.predictors.serving.predictor import predict_llm

BOARD, MODEL = "h100-sxm5-80gb", "llama-3.1-8b"


def test_a_reactive_scaler_is_late_and_one_ahead_is_not():
    needed = np.array([1, 3, 3, 1])
    assert _steps(needed, 100.0, 30.0, "reactive") == ((0.0, 1, 1), (200.0, 1, 3), (230.0, 3, 3))
    assert _steps(needed, 100.0, 30.0, "ahead") == ((0.0, 1, 1), (70.0, 1, 3), (100.0, 3, 3), (300.0, 1, 1))
    assert _steps(needed, 100.0, 0.0, "ahead") == ((0.0, 1, 1), (100.0, 3, 3), (300.0, 1, 1))


TARGETS = {"ttft_target_ms": 200.0, "tpot_target_ms": 9.0}


def two_rates() -> Requests:
    """A third of what one replica takes, two and a half times as much, a third."""
    model, board = language_model(MODEL), device(BOARD)
    serving = predict_llm(model, board, input_length=400, output_length=40).serving
    each = most_rate(model, board, serving, 0.2, 0.009)
    rates = np.repeat([each / 3, 2.5 * each, each / 3], 8)
    times = np.concatenate([i + np.arange(int(rate)) / rate for i, rate in enumerate(rates)])
    return Requests(times, np.full(len(times), 400), np.full(len(times), 40))


@pytest.fixture(scope="module")
def scaled():
    options = {"trace": two_rates(), **TARGETS, "stretch_s": 2.0}
    return {
        policy: autoscale(MODEL, BOARD, policy=policy, scale_up_s=2.0, **options) for policy in ("reactive", "ahead")
    }


def test_replicas_follow_the_load_and_cost_less_than_the_most_all_the_time(scaled):
    ahead = scaled["ahead"]
    most = max(serving for _, serving, _ in ahead.steps)
    assert most == ahead.fixed_replicas > 1 and ahead.steps[0][1] == 1
    assert ahead.replica_hours < ahead.fixed_hours and ahead.usd < ahead.fixed_usd
    assert all(paid >= serving for _, serving, paid in ahead.steps)


def test_those_ahead_keep_more_targets_than_those_that_react(scaled):
    shares = {policy: found.scaled.goodput.share.median for policy, found in scaled.items()}
    assert shares["reactive"] < shares["ahead"] <= scaled["ahead"].fixed.goodput.share.median + 0.02


def test_a_scaling_is_strict_json_and_a_table(scaled):
    found = json.loads(json.dumps(scaled["ahead"].to_dict(), allow_nan=False))
    assert found["steps"][0] == {"from_s": 0.0, "serving": 1, "paid": 1}
    assert "scaled, ahead" in str(scaled["ahead"])
    assert max(map(len, str(scaled["ahead"]).splitlines())) <= 100


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs a trace, or rates over a day"),
        ({"rates": (1.0,), "policy": "never"}, "unknown policy 'never'"),
        ({"rates": (1.0,), "ttft_target_ms": None}, "follows from targets"),
        ({"rates": (1.0,), "scale_up_s": -1.0}, "a time to scale up"),
        ({"rates": (-1.0,)}, "rates are 1 to 10,000"),
        ({"rates": (1.0,), "workers": 3}, "leave out workers"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said):
    with pytest.raises(ArgumentError, match=said):
        autoscale(MODEL, BOARD, **{"ttft_target_ms": 200.0, **options})
