"""Pairs of records that differ in one thing, the widths fitted to them, and what their grading found."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("scipy")

from perfpass.predictors.difference.unlike import CAUSES, MEMORY_CAUSES
from perfpass.predictors.difference.widths import half_width
from perfpass.training.difference import others, pairs, widths
from perfpass.training.difference.evaluate import DIVIDED, OURS
from perfpass.training.difference.pairs import DIFFERS, Pairs


def records(count=60, seed=0):
    rng = np.random.default_rng(seed)
    texts = dict.fromkeys((*pairs._CONDITIONS, *pairs._NETWORK), "")
    rows = [
        {
            **texts,
            "source": f"laboratory {rng.integers(2)}",
            "table_model": f"network {rng.integers(3)}",
            "table_size": int(rng.integers(1, 3)),
            "batch": int(2 ** rng.integers(0, 3)),
            "precision_stated": str(rng.choice(["fp16", "fp32"])),
            "asked_runtime": str(rng.choice(["torch", "tensorrt"])),
            "runtime_version": str(rng.choice(["1", "2"])),
            "measured_s": float(rng.uniform(1, 2)),
        }
        for _ in range(count)
    ]
    return pandas.DataFrame(rows)


def test_pairs_differ_in_what_they_are_said_to_differ_in_and_in_nothing_else():
    frame = records()
    found = list(pairs._pairs(frame, 0))
    assert {what for what, *_ in found} == set(DIFFERS)
    for what, a, b in found:
        old, new = frame.loc[a], frame.loc[b]
        assert old[DIFFERS[what][0]] != new[DIFFERS[what][0]]
        same = [c for c in (*pairs._CONDITIONS, *pairs._NETWORK) if c not in DIFFERS[what]]
        assert (old[same] == new[same]).all(), what


def made(count=600, causes=("operators", "batch"), widths_=(0.2, 0.5), sources=10, seed=1):
    """Pairs whose errors are as wide as said: a check of the fit, not of a predictor."""
    rng = np.random.default_rng(seed)
    lacks = rng.uniform(0, 1, (count, len(causes)))
    half = np.sqrt(lacks @ np.square(widths_))
    errors = rng.logistic(0, 1, count) / (2 * math.atanh(0.9)) * half
    name = np.array([f"source:{i % sources}" for i in range(count)], dtype=object)
    flat = np.full(count, np.inf)
    return Pairs(causes, name, name, name, name, errors, np.zeros(count), lacks, flat, flat), half


def test_a_fit_finds_the_widths_of_each_cause_and_both_sides_are_one():
    found, _ = made(3000)
    spread = widths.fit(found, {"operators": 0.3, "batch": 0.3})
    assert np.allclose(spread.high, (0.2, 0.5), rtol=0.3)
    lacks = {"operators": 0.5, "batch": 0.25}
    low, high = spread.bounds(lacks)
    assert (
        half_width(spread, lacks) == pytest.approx(float(high[0]), rel=0.02) == pytest.approx(-float(low[0]), rel=0.02)
    )


def test_what_is_left_out_is_covered_and_never_wider_than_two_figures_that_share_nothing():
    found, true = made()
    fit = partial(widths.fit, prior={"operators": 0.3, "batch": 0.3})
    half = widths.left_out(found, fit)
    assert 0.85 < np.mean(np.abs(found.measured) <= half) < 0.95 and np.median(half / true) == pytest.approx(1, abs=0.2)
    capped = Pairs(*[getattr(found, name) for name in Pairs.__dataclass_fields__ if name != "apart"], true / 2)
    assert (widths.left_out(capped, fit) <= true / 2 + 1e-12).all()


def test_without_a_pair_the_widths_are_those_of_the_prior():
    found, _ = made()
    spread = widths.fit(found.take(np.zeros(len(found), dtype=bool)), {"operators": 0.3, "batch": 0.4})
    assert spread.high == spread.low == (0.3, 0.4) and spread.rows == 0


def test_every_cause_has_a_prior():
    assert set(CAUSES) <= set(widths.PRIOR) and set(MEMORY_CAUSES) == set(widths.PRIOR_OF_MEMORY)


def test_the_stored_grading_covers_nine_in_ten_at_about_half_the_width(root):
    lines = json.loads((root / "data" / "results" / "accuracy" / "difference.json").read_text())["lines"]
    every = {line["method"]: line for line in lines if (line["metric"], line["split"]) == ("latency gpu ratio", "all")}
    ours, divided = (every[method] for method in (OURS, DIVIDED))
    assert 88 <= ours["coverage_pct"] <= 93
    assert math.log(ours["interval_factor"]) <= 0.5 * math.log(divided["interval_factor"])


def test_the_stored_ratios_of_energy_are_of_two_sources_and_known_better_than_two_figures(root):
    lines = json.loads((root / "data" / "results" / "accuracy" / "difference.json").read_text())["lines"]
    energy = [line for line in lines if line["metric"] == "energy ratio"]
    assert {"co2_inference", "zeus"} <= {line["judged_on"] for line in energy}
    ours, divided = (
        next(line for line in energy if (line["split"], line["method"]) == ("all", method))
        for method in (OURS, DIVIDED)
    )
    assert 88 <= ours["coverage_pct"] <= 93
    assert math.log(ours["interval_factor"]) <= 0.5 * math.log(divided["interval_factor"])


def test_joules_are_compared_on_the_same_queries():
    frame = pandas.DataFrame({name: ["one"] * 4 for name in others._ENERGY_CONDITIONS})
    frame["variant"] = ["cats", "cats", "dogs", "prompts"]
    assert others.alike(frame) == [(0, 1)]


def test_a_figure_that_follows_another_may_be_known_better():
    found, _ = made(2000)
    base = widths.fit(found, {"operators": 0.3, "batch": 0.3})
    for factor in (0.5, 2.0):
        scaled = widths.scaled(replace(found, measured=factor * found.measured), base)
        assert np.allclose(np.array(scaled.high) / np.array(base.high), factor, rtol=0.1)
