"""Prefill and decode from second sources: near what was measured, monotone, flagged, refused where impossible."""

from __future__ import annotations

import numpy as np
import pytest

from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.llm.configuration import language_model
from perfpass.predictors.generation.phase_features import Phase
from perfpass.predictors.generation.phases import QUANTITIES, PhasePredictor
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.components.grade import group_split, hold_out
from perfpass.training.phases.dataset import load


@pytest.fixture(scope="module")
def predictor():
    return PhasePredictor.load()


def _phase(batch: int = 1, tokens: int = 512, name: str = "a100-80gb", model: str = "llama-2-70b") -> Phase:
    return Phase(language_model(model), device(name), 4, "vllm", batch, tokens)


def test_prompts_faster_than_peak_flops_are_not_among_the_records():
    table = schema.read(data_directory() / "records" / "generation.parquet", "generation")
    rows = table[(table.source == "splitwise") & (table.batch == 64) & (table.n_devices == 2)]
    assert rows.empty


def test_known_points_are_near_what_was_measured(predictor):
    # Medians of the five repeats in splitwise-sim: 127 ms of prompt, 45.0 ms a token.
    assert predictor.predict("prefill", _phase()).latency_ms.median == pytest.approx(127, rel=0.1)
    found = predictor.predict("decode", _phase())
    assert found.latency_ms.median == pytest.approx(45.0, rel=0.05) and found.support.level == "in range"


def test_longer_prompts_and_more_users_take_longer(predictor):
    prompts = [predictor.predict("prefill", _phase(tokens=n)).latency_ms.median for n in (256, 1024, 4096)]
    assert prompts == sorted(prompts)
    users = [
        predictor.predict(
            "loaded_between_tokens",
            Phase(language_model("llama-2-13b"), device("a100"), 2, "tgis", n, 120, 20),
        ).latency_ms.median
        for n in (1, 16, 128)
    ]
    assert users == sorted(users)


def test_unknown_boards_are_said_and_wider(predictor):
    seen, unseen = (predictor.predict("decode", _phase(name=n)) for n in ("a100-80gb", "h200"))
    assert unseen.support.level == "near" and "device unseen" in unseen.support.reasons[0]
    assert unseen.latency_ms.high / unseen.latency_ms.low > 2 * seen.latency_ms.high / seen.latency_ms.low
    with pytest.raises(ArgumentError, match="allowed are"):
        predictor.predict("training", _phase())
    with pytest.raises(ArgumentError, match="batch"):
        _phase(batch=0)


def test_a_board_held_out_is_predicted_by_the_others():
    quantities = load()
    assert set(quantities) == set(QUANTITIES)
    q = quantities["prefill"]
    fold = next(f for f in group_split(q.device) if f.held_out == "h100-sxm5-80gb")
    held = hold_out(q, [fold])
    off = np.abs(held.predicted[fold.test] / q.measured[fold.test] - 1)
    assert np.median(off) < 0.15
