"""Grading of steps learned from own ones: what is drawn is not asked, and what ships is what the results say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfpass.predictors.calibration import steps as learned
from perfpass.training.areas import module
from perfpass.training.calibration import steps

ROOT = Path(__file__).resolve().parents[2]


def unit(name="lab, board", laboratory="lab", count=24):
    names = ("products", "attention")
    shares = [{"products": 1 - i / count, "attention": i / count} for i in range(count)]
    measured = np.exp(np.random.default_rng(len(name)).normal(0.3, 0.1, count))
    model = np.array([f"model {i % 3}" for i in range(count)], dtype=object)
    same = np.array([f"row {i // 2}" for i in range(count)])
    return steps.Unit(name, laboratory, np.ones(count), measured, learned.traits(names, shares), model, same)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_repeats_of_what_was_drawn_are_not_asked(size):
    one = unit()
    prior = learned.prior_of("llm_training", "step_s")
    for found in steps.draws(one, prior, size, seed=0):
        assert len(found.asked) <= 24 - size and len(set(found.asked)) == len(found.asked)
        pairs = set(one.same[found.asked])
        assert all(
            np.count_nonzero(one.same[found.asked] == row) == 2 for row in pairs
        )  # a half was drawn: none is left
        assert found.error == pytest.approx(one.log_ratio[found.asked] - found.mean)


def test_more_own_records_err_less():
    one, prior = unit(count=40), learned.prior_of("llm_training", "step_s")
    errors = [
        np.mean([np.abs(d.error).mean() for d in steps.draws(one, prior, size, seed=0)]) for size in steps.sizes_of(one)
    ]
    assert errors[-1] < errors[0] < np.abs(one.log_ratio).mean()


def test_sizes_leave_enough_to_ask():
    assert steps.sizes_of(unit(count=24)) == (1, 2, 4, 8, 16)
    assert steps.sizes_of(unit(count=10)) == (1, 2)


def test_the_shipped_bounds_are_those_of_the_results():
    results = json.loads((ROOT / "data" / "results" / "accuracy" / "step_calibration.json").read_text())
    found = {(row[0], row[1]): row[2] for row in results["tables"][-1]["rows"]}
    for (predictor, metric), bound in learned._BOUNDS.items():
        told = found[f"{predictor}, {metric}", "laboratory"]
        assert told - 0.3 <= bound <= told + 0.3


def test_what_is_planned_for_is_bounded_by_the_laboratory_that_asks_for_most():
    prior = learned.prior_of("llm_training", "memory_bytes")
    calm, wild = (replace(unit(count=24), name=name, laboratory=name) for name in ("calm", "wild"))
    spoilt = wild.measured * np.exp(np.random.default_rng(5).normal(0, 0.6, 24))
    units = [calm, replace(calm, name="calm, too"), replace(wild, measured=spoilt)]
    drawn = {u.name: {4: list(steps.draws(u, prior, 4, seed=0))} for u in units}
    alone = {name: steps.bound_of([u for u in units if u.laboratory == name], drawn) for name in ("calm", "wild")}
    assert steps.bound_of(units, drawn, planned=True) == max(alone.values()) == alone["wild"]
    assert alone["calm"] < steps.bound_of(units, drawn) < alone["wild"]


def test_the_area_is_known():
    assert module("step_calibration") is steps
