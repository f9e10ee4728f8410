"""Flags that are proposed: an engine has them, they keep what is asked, and what they bring is the difference."""

from __future__ import annotations

import json
import math

import pytest

from deploy.engine_command import refused
from perfpass import PerfPassError, predict_llm
from perfpass.cli import main
from perfpass.deploy.tune import ENGINES, tune, tune_slots
from perfpass.devices import device
from perfpass.llm import Parallelism


def asked(model="llama-3.1-8b", on="h100", **options):
    load = {"input_length": 1024, "output_length": 256, "concurrency": 128, **options}
    return predict_llm(model, on, **load)


@pytest.fixture(scope="module")
def proposed():
    return tune(asked(), "vllm", ttft_ms=3000, tpot_ms=60)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_has_every_flag_that_is_proposed(engine):
    found = tune(asked(runtime=engine), engine)
    refused(engine, found.command)
    assert found.command[: 1 + (engine == "vllm")] == {"vllm": ["vllm", "serve"], "sglang": ["python"],
                                                       "trtllm": ["trtllm-serve"]}[engine]  # fmt: skip


def test_a_mixtures_split_uses_the_gpus_that_were_asked_for_with_flags_of_the_engine():
    of = asked("mistralai/Mixtral-8x7B-v0.1", tp=2)
    found = tune(of, "sglang")
    refused("sglang", found.command)
    assert found.settings.split.gpus * found.settings.workers == of.serving.gpus == 2


def test_what_is_proposed_is_no_worse_than_what_the_engine_does_by_itself(proposed):
    assert proposed.kept and proposed.probability >= 0.9
    assert proposed.found.output_tokens_per_s.median >= 0.98 * proposed.plain.output_tokens_per_s.median
    for one in proposed.brought:
        if one.without is not None and one.without.fits:
            assert proposed.found.output_tokens_per_s.median >= 0.95 * one.without.output_tokens_per_s.median


def test_everything_that_runs_has_room(proposed):
    found = proposed.found
    assert 1 <= found.running <= found.room
    need = found.memory.weights_bytes + found.memory.cache_per_sequence_bytes * found.running
    assert need + found.memory.workspace_bytes + found.memory.runtime_bytes <= found.memory.usable_bytes * 1.0001


def test_a_tighter_target_runs_fewer_requests_at_once_and_a_longer_first_token_waits():
    of = asked(concurrency=256)
    free, tight = tune(of, "vllm"), tune(of, "vllm", tpot_ms=of.tpot_ms.median / 2)
    assert tight.settings.sequences < free.settings.sequences
    assert tight.found.tpot_ms.median < free.found.tpot_ms.median
    assert tight.found.ttft_ms.median > free.found.ttft_ms.median


def test_short_steps_shorten_the_longest_gap(proposed):
    (flag,) = (one for one in proposed.brought if one.name == "batched tokens")
    assert flag.without is None or flag.without.longest_gap_ms >= proposed.found.longest_gap_ms


def test_a_target_that_nothing_keeps_is_said(proposed):
    found = tune(asked(), "vllm", tpot_ms=0.5)
    assert not found.kept and "NOT KEPT" in str(found)


def test_a_cache_that_was_asked_for_stays():
    found = tune(asked(kv_precision="bf16"), "vllm", kv_precision="bf16")
    assert found.settings.kv == "bf16" and found.command[found.command.index("--kv-cache-dtype") + 1] == "auto"
    assert tune(asked(on="a100-80gb"), "vllm").settings.kv != "fp8"


@pytest.mark.parametrize(
    ("engine", "options", "said"),
    [
        ("triton", {}, "allowed are"),
        ("vllm", {"ttft_ms": -1.0}, "above 0 milliseconds"),
        ("vllm", {"tpot_ms": math.nan}, "above 0 milliseconds"),
        ("vllm", {"confidence": 1.0}, "below 1"),
    ],
)
def test_what_makes_no_sense_is_refused(engine, options, said):
    with pytest.raises(PerfPassError, match=said):
        tune(asked(), engine, **options)


def test_replicas_that_only_prefill_are_refused():
    with pytest.raises(PerfPassError, match="leave out --prefill-workers"):
        tune(asked(prefill=Parallelism.of(1), prefill_workers=1), "vllm")


def test_a_model_that_no_setting_lets_run_is_refused():
    with pytest.raises(PerfPassError, match="no split lets a request run"):
        tune(asked("llama-3.1-70b", tp=1), "vllm")


def test_the_command_prints_the_proposal_and_its_json(capsys):
    command = ["llm", "llama-3.1-8b", "--device", "h100", "--concurrency", "64", "--tune", "sglang", "--tpot", "50"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "sglang.launch_server --model-path llama-3.1-8b" in text and "expected beside without" in text
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    refused("sglang", found["command"])
    assert found["kept"] and found["expected"]["tpot_ms"]["median"] < 50
    assert main([*command[:6], "--tpot", "50"]) == 2
    assert "give --tune too" in capsys.readouterr().err


def test_llama_cpps_slots_fit_with_flags_that_it_has():
    found = tune_slots("llama-3.1-8b", device("rtx4090"), input_length=2048, concurrency=4, precision="q4_k_m")
    refused("llama.cpp", found.command)
    assert found.slots == 4 and found.memory.answer == "yes" and "-ctk" not in found.command
    assert found.command[found.command.index("-c") + 1] == str(4 * (2048 + 128))
    (context,) = (flag for flag in found.flags if flag.name.startswith("context"))
    assert context.without.needed.median > found.memory.needed.median  # the model's own 131,072 tokens


def test_llama_cpp_takes_a_narrow_cache_then_fewer_slots_then_fewer_layers():
    options = {"input_length": 7_900, "output_length": 100, "precision": "q4_k_m"}
    narrow = tune_slots("llama-3.1-8b", device("rtx4090"), concurrency=20, **options)
    assert narrow.slots == 20 and narrow.command[-6:] == ["-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"]
    fewer = tune_slots("llama-3.1-8b", device("rtx4090"), concurrency=500, **options)
    assert 20 <= fewer.slots < 500 and "asked for" in str(fewer)
    offloaded = tune_slots("llama-3.1-70b", device("rtx4090"), **options)
    layers = int(offloaded.command[offloaded.command.index("-ngl") + 1])
    assert 0 < layers < 80 and offloaded.memory.answer == "yes" and offloaded.times is None
    for one in (narrow, fewer, offloaded):
        refused("llama.cpp", one.command)


def test_the_command_tunes_llama_cpp(capsys):
    command = ["llm", "llama-3.1-8b", "--device", "rtx4090", "--precision", "q4_k_m", "--tune", "llama.cpp"]
    assert main([*command, "--json"]) == 0
    refused("llama.cpp", json.loads(capsys.readouterr().out)["command"])
    assert main([*command, "--tpot", "20"]) == 2
    assert "leave out --tpot" in capsys.readouterr().err
