"""Prefill, decode and loaded servers of second sources: near what was measured, flagged, and part of every answer."""

from __future__ import annotations

import json

import numpy as np
import pytest

import perfpass
from offline_batches import predict_batch
from perfpass.cli import main
from perfpass.devices import device
from perfpass.errors import ArgumentError
from perfpass.llm.configuration import language_model
from perfpass.predictors.generation.phase_features import Phase
from perfpass.predictors.generation.phases import QUANTITIES, PhasePredictor
from perfpass.records import schema
from perfpass.records.location import data_directory
from perfpass.training.components.grade import group_split, hold_out
from perfpass.training.generation.phases import load


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
    assert predictor.predict("prefill", _phase()).value.median == pytest.approx(0.127, rel=0.1)
    found = predictor.predict("decode", _phase())
    assert found.value.median == pytest.approx(0.045, rel=0.05) and found.support.level == "in range"


def test_longer_prompts_and_more_users_take_longer(predictor):
    prompts = [predictor.predict("prefill", _phase(tokens=n)).value.median for n in (256, 1024, 4096)]
    assert prompts == sorted(prompts)
    users = [
        predictor.predict(
            "loaded_between_tokens",
            Phase(language_model("llama-2-13b"), device("a100"), 2, "tgis", n, 120, 20),
        ).value.median
        for n in (1, 16, 128)
    ]
    assert users == sorted(users)


def test_unknown_boards_are_said_and_wider(predictor):
    seen, unseen = (predictor.predict("decode", _phase(name=n)) for n in ("a100-80gb", "h200"))
    assert unseen.support.level == "near" and "device unseen" in unseen.support.reasons[0]
    assert unseen.value.high / unseen.value.low > 1.2 * seen.value.high / seen.value.low
    with pytest.raises(ArgumentError, match="allowed are"):
        predictor.predict("training", _phase())
    with pytest.raises(ArgumentError, match="batch"):
        _phase(batch=0)


def test_a_board_held_out_is_predicted_by_the_others():
    quantities = load()
    assert set(quantities) == set(QUANTITIES)
    q = quantities["prefill"].quantity
    fold = next(f for f in group_split(q.device) if f.held_out == "h100-sxm5-80gb")
    held = hold_out(q, [fold])
    off = np.abs(held.predicted[fold.test] / q.measured[fold.test] - 1)
    assert np.median(off) < 0.15


def test_a_batch_says_when_its_first_tokens_are_there_and_how_long_a_token_takes():
    run = {"devices": 4, "batch": 16, "input_tokens": 512, "output_tokens": 512}
    found = predict_batch("llama-2-70b", "h100", **run)
    # Each is put in order over sizes and devices by itself.
    assert found.prompt_s.median + 511 * found.token_s.median == pytest.approx(found.latency_s.median, rel=0.02)
    longer = predict_batch("llama-2-70b", "h100", **{**run, "input_tokens": 2048})
    assert longer.prompt_s.median > 2 * found.prompt_s.median
    shown = found.to_dict()
    assert shown["prompt_s"]["unit"] == "s" and shown["provenance"]["prompt"]["level"] == "in range"
    assert "time to first token" in str(found) and "time per output token" in str(found)
    assert predict_batch("llama-2-70b", "h100", **{**run, "output_tokens": 1}).token_s is None
    eight = predict_batch("llama-2-70b", "h100", **run, precision="fp8")
    assert eight.prompt_s is None and "time to first token" not in str(eight)


def test_a_board_that_only_the_second_source_has_takes_its_tokens(predictor):
    found = predict_batch("llama-2-70b", "a100-80gb", devices=4, batch=8, input_tokens=512, output_tokens=128)
    alone = predictor.predict("decode", _phase(batch=8))
    for part in ("median", "low", "high"):
        assert getattr(found.token_s, part) == pytest.approx(getattr(alone.value, part))
    table = schema.read(data_directory() / "records" / "generation.parquet", "generation")
    rows = table[(table.source == "splitwise") & (table.device == "a100-sxm4-80gb") & (table.n_devices == 4)]
    rows = rows[
        (rows.model == "llama2-70b")
        & (rows.batch == 8)
        & (rows.input_tokens == 512)
        & ~rows.caveats.str.contains("capped")
    ]
    assert found.token_s.median == pytest.approx(float(rows.tpot_ms.median()) / 1e3, rel=0.1)


def test_a_server_that_the_serving_records_lack_is_answered_from_the_second_source():
    load = {"input_length": 120, "output_length": 20, "concurrency": 16, "tp": 2, "precision": "fp16"}
    found = perfpass.predict_llm("llama-2-13b", "a100-40gb", runtime="tgis", **load)
    table = schema.read(data_directory() / "records" / "serving_load.parquet", "serving")
    rows = table[(table.model == "llama-13b") & (table.device == "a100-sxm4-40gb") & (table.n_devices == 2)]
    measured = rows[rows.concurrency == 16].iloc[0]
    assert found.ttft_ms.median == pytest.approx(measured.ttft_ms, rel=0.3)
    assert found.tpot_ms.median == pytest.approx(measured.tpot_ms, rel=0.2)
    assert found.provenance["evidence"] == "seen" and found.energy_per_token_j is not None
    json.dumps(found.to_dict(), allow_nan=False)
    far = perfpass.predict_llm("llama-2-13b", "a100-40gb", runtime="tgis", **{**load, "precision": "int8"})
    assert far.support.level == "outside" and any("16-bit" in reason for reason in far.support.reasons)
    unlike = perfpass.predict_llm("qwen3-8b", "h200", runtime="tgis", **{**load, "input_length": 8000})
    assert unlike.support.level == "outside" and any("device unseen" in reason for reason in unlike.support.reasons)
    assert unlike.ttft_ms.high / unlike.ttft_ms.low > 5 * found.ttft_ms.high / found.ttft_ms.low
    with pytest.raises(ArgumentError, match="no prefill workers"):
        perfpass.predict_llm(
            "llama-2-13b",
            "a100-40gb",
            runtime="tgis",
            prefill=perfpass.llm.Parallelism.of(1),
            prefill_workers=1,
            **load,
        )


def test_a_device_without_a_stated_link_is_served_too():
    found = perfpass.predict_llm("llama-2-7b", "sn40l", input_length=512, output_length=64, concurrency=8, tp=8)
    assert found.support.level == "outside" and found.ttft_ms.median > 0


def test_the_command_line_answers_a_batch_without_a_server(capsys):
    load = ["--input-length", "256", "--output-length", "256", "--concurrency", "16"]
    assert main(["llm", "mistral-7b", "--device", "mi300x", "--offline", *load, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt_s"]["median"] < found["latency_s"]["median"] and found["workload"]["devices"] == 1
    assert main(["llm", "mistral-7b", "--device", "a100-40gb", "--offline", "--runtime", "llama.cpp", *load]) == 0
    assert "one sequence runs, its prompt in pieces of 16 tokens" in capsys.readouterr().out
    assert main(["llm", "mistral-7b", "--device", "h100", "--offline", "--dp", "2", *load]) != 0
    assert "--offline predicts one batch without a server: leave out --dp" in capsys.readouterr().err
