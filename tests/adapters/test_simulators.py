"""What simulators of serving are given: every way in says the same times as the steps themselves."""

from __future__ import annotations

import csv
import io
import json
import math
import pickle
from dataclasses import dataclass, field

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpass import PerfPassError, predict_llm
from perfpass.cli import main
from perfpass.llm import EngineBatch
from perfpass.simulators import SIMULATORS, Deployed, InferTime, files
from perfpass.simulators.sglang import FEATURES


@dataclass
class Request:
    """As the simulator's ScheduleRequest."""

    extend_length: int
    past_kv_length: int


@dataclass
class Batch:
    """As the simulator's ScheduleBatch."""

    reqs: list[Request] = field(default_factory=list)


def deployed(model="llama-3.1-8b", **asked) -> Deployed:
    options = {"input_length": 1024, "output_length": 128, "concurrency": 32, **asked}
    found = predict_llm(model, "h100", **options).asked
    return Deployed(found.model, found.device, found.serving)


ONE = deployed()


def features(requests: list[tuple[int, int]]) -> list[float]:
    """The simulator's 18 features of a batch, written out from their names."""
    new, past = zip(*requests, strict=True)
    attended = sum(e * (p + e / 2) for e, p in requests)
    return [
        *(len(new), sum(new), max(new), min(new), sum(past), max(past), min(past)),
        *(sum(e * p for e, p in requests), sum(e * e for e in new), sum(p * p for p in past), attended),
        *(sum(new) * max(past), math.log1p(sum(past)), math.log1p(attended), len(new) * sum(new)),
        *(max(past) - min(past), int(all(e == 1 for e in new)), int(any(e > 1 for e in new))),
    ]


def test_sglangs_predictor_prices_a_batch_as_the_steps_do():
    predictor = InferTime(ONE.steps)
    mixed = Batch([Request(512, 256), Request(1, 1024), Request(1, 2048)])
    expected = float(ONE.steps.seconds(EngineBatch.of([(512, 256)], [1024, 2048]))[0])
    assert predictor.predict_infer_time(mixed) == pytest.approx(expected)
    assert predictor.predict_infer_time(Batch()) == 0.0
    with pytest.raises(PerfPassError, match="at least one new token"):
        predictor.predict_infer_time(Batch([Request(0, 5)]))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 30_000), max_size=20),
    st.integers(2, 8192),
    st.lists(st.integers(0, 30_000), max_size=5),
)
def test_sglangs_features_hold_the_sums_of_prompts_of_one_length_and_of_decodes(contexts, chunk, pasts):
    requests = [(chunk, past) for past in pasts] + [(1, context) for context in contexts]
    if not requests:
        return
    regressor = pickle.loads(files(ONE, "sglang")["steps.pkl"])["model"]
    expected = ONE.steps.seconds(EngineBatch.of([r for r in requests if r[0] > 1], contexts))
    assert regressor.predict([features(requests)]) == pytest.approx(expected, rel=1e-6)


def test_sglangs_bundle_keeps_the_simulators_contract():
    made = files(ONE, "sglang")
    bundle = pickle.loads(made["steps.pkl"])
    assert set(bundle) == {"model", "features"} and bundle["features"] == list(FEATURES) and len(FEATURES) == 18
    assert json.loads(made["simulator.json"])["predictor"] == {"name": "ml", "database_path": "steps.pkl"}
    with pytest.raises(PerfPassError, match="18 features"):
        bundle["model"].predict([[1.0, 2.0]])


def test_dynamos_table_holds_the_steps_where_it_has_points():
    table = np.load(io.BytesIO(files(ONE, "dynamo")["steps.npz"]))
    cached, contexts, itl = (table[n] for n in ("decode_active_kv_tokens", "decode_context_length", "decode_itl"))
    assert itl.shape == (len(cached), len(contexts)) and (np.diff(cached) > 0).all() and (np.diff(contexts) > 0).all()
    row, column = int(np.flatnonzero(cached == 32 * 1024)[0]), int(np.flatnonzero(contexts == 1024)[0])
    step = float(ONE.steps.seconds(EngineBatch.of([], [1024] * 32))[0])
    assert itl[row, column] == pytest.approx(1e3 * step)
    prompt = float(ONE.steps.seconds(EngineBatch.of([(2048, 0)]))[0])
    assert table["prefill_ttft_ms"][table["prefill_isl"] == 2048] == pytest.approx(1e3 * prompt)
    assert (np.diff(itl, axis=0) >= 0).all() and (np.diff(table["prefill_ttft_ms"]) > 0).all()


def test_vidurs_tables_have_its_columns_and_times_that_rise():
    made = files(ONE, "vidur")
    tables = {name.rpartition("/")[2]: list(csv.DictReader(io.StringIO(text))) for name, text in made.items()}
    assert set(tables) == {"mlp.csv", "attention.csv", "allreduce.csv", "send_recv.csv"}
    layer = [row for row in tables["mlp.csv"] if row["num_tensor_parallel_workers"] == "1"]
    assert {row["n_embd"] for row in layer} == {"4096"} and {row["n_expanded_embd"] for row in layer} == {"14336"}
    for operator in ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj", "mlp_act", "input_layernorm",
                     "post_attention_layernorm", "attn_rope", "add"):  # fmt: skip
        times = [float(row[f"time_stats.{operator}.median"]) for row in layer]
        assert min(times) > 0 and times[-1] >= times[0]
    for row in tables["attention.csv"]:
        decode = row["prefill_chunk_size"] == "0"
        assert (row["time_stats.attn_decode.median"] != "") == decode
        assert (row["time_stats.attn_prefill.median"] == "") == decode
    assert {row["num_workers"] for row in tables["allreduce.csv"]} == {"2", "4", "8"}


def test_llm_ds_fields_are_durations_of_go_and_a_factor_of_one_or_more():
    fields = yaml.safe_load(files(ONE, "llm-d")["config.yaml"])
    assert all(
        fields[n].endswith("ns") and int(fields[n][:-2]) >= 0 for n in fields if n.startswith(("prefill", "inter"))
    )
    assert fields["max-num-seqs"] == 32 and fields["time-factor-under-load"] > 1.0
    prompt = int(fields["prefill-overhead"][:-2]) + 1024 * int(fields["prefill-time-per-token"][:-2])
    assert prompt * 1e-9 == pytest.approx(float(ONE.prompt_s(np.array([1024.0]))[0]), rel=0.05)


def test_bliss_hardware_gives_back_our_prefill_and_decode():
    (entry,) = json.loads(files(ONE, "blis")["hardware_config.json"]).values()
    assert set(entry) == {"TFlopsPeak", "BwPeakTBs", "mfuPrefill", "mfuDecode", "MemoryGiB"}
    assert 0 < entry["mfuPrefill"] <= 1 and entry["BwPeakTBs"] < ONE.device.memory_bandwidth_bytes_s / 1e12


def test_what_a_simulator_cannot_be_told_is_refused():
    with pytest.raises(PerfPassError, match="equal layers"):
        files(deployed("deepseek-ai/DeepSeek-V3", tp=8, ep=8), "vidur")
    with pytest.raises(PerfPassError, match="allowed are"):
        files(ONE, "sim")
    from perfpass.llm import Parallelism

    apart = deployed(prefill=Parallelism.of(1), prefill_workers=1)
    assert set(files(apart, "dynamo")) == {"steps.npz"}
    with pytest.raises(PerfPassError, match="one kind of replica"):
        files(apart, "sglang")


@pytest.mark.parametrize("simulator", sorted(SIMULATORS))
def test_the_command_writes_the_files_of_every_simulator(simulator, tmp_path, capsys):
    command = ["llm", "llama-3.1-8b", "--device", "h100", "--simulator", simulator, "--out", str(tmp_path), "--json"]
    assert main(command) == 0
    written = json.loads(capsys.readouterr().out)["files"]
    assert sorted(str(path) for path in tmp_path.rglob("*") if path.is_file()) == sorted(written)


def test_the_commands_simulators_are_those_that_there_are():
    from perfpass.cli.llm_seams import SIMULATORS as NAMED

    assert set(NAMED) == set(SIMULATORS)
