"""`perfpass llm` needs a model and a device; what it assumes beside is said, in the table and in JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import perfpass
from perfpass.cli import main
from perfpass.errors import ArgumentError
from perfpass.importers.model_sources import CONFIGURATIONS
from perfpass.llm import language_model
from perfpass.llm.costs import Quantization

SAID = ("--input-length", "1024", "--output-length", "128", "--concurrency", "1", "--runtime", "vllm")


def printed(capsys, *arguments: str) -> str:
    assert main(["llm", *arguments]) == 0
    return capsys.readouterr().out


def of_json(capsys, *arguments: str) -> dict:
    return json.loads(printed(capsys, *arguments, "--json"))


@pytest.mark.parametrize("road", [(), ("--offline",)])
def test_what_is_assumed_is_printed_as_the_options_that_would_say_it(road, capsys):
    text = printed(capsys, "llama-3.1-8b", "--device", "h100", *road)
    line = next(line for line in text.splitlines() if line.startswith("assumed: "))
    options = line.removeprefix("assumed: ").split()
    assert options[:8] == list(SAID) and options[8] == "--precision" and options[10:] == ["--tp", "1"]
    # Saying it gives the same answer, with nothing assumed.
    again = printed(capsys, "llama-3.1-8b", "--device", "h100", *road, *options)
    assert "assumed" not in again and again.splitlines()[1:] == [x for x in text.splitlines()[1:] if x != line]


@pytest.mark.parametrize("road", [(), ("--offline",)])
def test_what_is_assumed_is_in_the_json_and_what_is_said_is_not(road, capsys):
    found = of_json(capsys, "llama-3.1-8b", "--device", "h100", "--input-length", "512", "--tp", "2", *road)
    assert set(found["assumed"]) == {"output_length", "concurrency", "runtime", "precision"}
    assert found["assumed"]["output_length"] == 128 and found["assumed"]["runtime"] == "vllm"


def test_the_fewest_gpus_that_hold_the_model_are_assumed(capsys):
    for model, device, ranks in (
        ("llama-3.1-8b", "h100", 1), ("llama-3.1-8b", "t4", 2),
        ("llama-3.1-70b", "h100", 2),  # since vLLM's sampler sorts nothing (0.17)
        ("llama-3.1-70b", "h200", 2),  # on one it fits with settings chosen by hand alone
        ("llama-3.1-70b", "apple-m2-ultra", 1),  # which has no link to another
    ):  # fmt: skip
        assert of_json(capsys, model, "--device", device)["assumed"]["tp"] == ranks, (model, device)
    # A slice has no link to another; a model too large for eight is shown on eight.
    assert of_json(capsys, "llama-3.1-70b", "--device", "h100:3g.40gb")["assumed"]["tp"] == 1
    assert of_json(capsys, "deepseek-v3", "--device", "h100")["assumed"]["tp"] == 8


def test_a_model_of_few_positions_gets_a_load_that_it_can_hold(capsys):
    found = of_json(capsys, "gpt2", "--device", "h100")
    assert (found["assumed"]["input_length"], found["assumed"]["output_length"]) == (896, 128)
    found = of_json(capsys, "gpt2", "--device", "h100", "--input-length", "1000")
    assert found["assumed"]["output_length"] == 24
    assert main(["llm", "gpt2", "--device", "h100", "--input-length", "1024"]) == 2
    assert "1024 positions of gpt2" in capsys.readouterr().err


def test_python_assumes_the_same_and_the_fewest_gpus_that_hold_it():
    found = perfpass.predict_llm("llama-3.1-8b", "h100")
    given = {"input_length": 1024, "output_length": 128, "concurrency": 1, "runtime": "vllm", "precision": "bf16"}
    assert found.assumed == {**given, "tp": 1}
    said = perfpass.predict_llm("llama-3.1-8b", "h100", **given, tp=1)
    assert said.assumed == {} and said.to_dict() == {**found.to_dict(), "assumed": {}}
    assert perfpass.predict_llm("llama-3.1-70b", "h200").assumed["tp"] == 2


def test_a_cache_is_what_the_engine_takes_by_itself_and_is_told_beside_narrow_weights():
    llama = language_model("llama-3.1-8b")
    calibrated = replace(llama, stored_as="fp8", experts_stored_as="fp8", cache_stored_as="fp8")
    for model, asked, cache in (
        (llama, {"precision": "fp8"}, "bf16"),
        (llama, {"precision": "fp8", "runtime": "trtllm"}, "fp8"),  # one of modelopt's checkpoints
        (llama, {"precision": "fp8_block", "runtime": "trtllm"}, "bf16"),
        (calibrated, {}, "fp8"),
        (calibrated, {"precision": "fp8"}, "fp8"),  # the checkpoint by the name of its precision
        (calibrated, {"precision": "bf16"}, "bf16"),
    ):
        found = perfpass.predict_llm(model, "h100", **asked)
        assert found.serving.quantization.kv_cache == cache
        assert found.assumed.get("kv_precision") == (None if asked.get("precision") == "bf16" else cache)
        settings = {"runtime": "vllm", **asked}
        assert perfpass.fit(model, "h100", **settings).settings["kv_cache"] == cache
    assert perfpass.predict_llm(calibrated, "a100-80gb").serving.quantization.kv_cache == "bf16"  # no fp8 arithmetic
    stated = Quantization("fp8", "fp8", "fp8")
    for asked in ({"precision": "fp8", "kv_precision": "fp8"}, {"precision": stated}):
        assert "kv_precision" not in perfpass.predict_llm("llama-3.1-8b", "h100", **asked).assumed


@pytest.mark.parametrize("road", [(), ("--offline",)])
@pytest.mark.parametrize(("quantization", "name"), [
    ({"quant_method": "awq", "bits": 4}, "int4"), ({"quant_method": "fbgemm_fp8"}, "fp8"), (None, None),
])  # fmt: skip
def test_a_quantised_checkpoint_is_served_as_it_is_stored(road, quantization, name, tmp_path, capsys):
    content = json.loads((CONFIGURATIONS / "llama-3.1-8b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**content, "quantization_config": quantization}))
    assumed = of_json(capsys, str(tmp_path), "--device", "h100", *road)["assumed"]["precision"]
    assert assumed == name or (name is None and assumed in ("bf16", "fp16"))


def test_mxfp4_is_of_the_experts_and_runs_where_bf16_does(capsys):
    stored, asked = (of_json(capsys, "gpt-oss-20b", "--device", "a10", *p) for p in ((), ("--precision", "mxfp4")))
    assert stored["memory"] == asked["memory"] and stored["assumed"]["precision"] == "mxfp4"
    assert main(["llm", "gpt-oss-20b", "--device", "t4"]) == 9
    assert "no bf16 arithmetic, which precision 'mxfp4' needs by vllm" in capsys.readouterr().err
    assert main(["llm", "llama-3.1-8b", "--device", "t4", "--precision", "fp8_block"]) == 9
    assert "no fp8 arithmetic, which precision 'fp8_block' needs" in capsys.readouterr().err


def test_llama_cpp_reads_its_prompt_as_it_does_by_itself_and_needs_as_many_boards_as_hold_it(capsys):
    road = ("--device", "rtx-4090", "--offline", "--runtime", "llama.cpp", "--precision", "q4_k_m")
    assumed = of_json(capsys, "llama-3.1-8b", *road)["assumed"]
    assert assumed["concurrency"] == 512 and assumed["tp"] == 1
    large = of_json(capsys, "llama-3.1-70b", *road)
    assert large["assumed"]["tp"] == 2 and large["memory"]["fits"]
    assert main(["llm", "llama-3.1-70b", *road, "--tp", "1"]) == 2
    said = capsys.readouterr().err
    assert "DOES NOT FIT: it needs 40." in said and "there are 24 GiB usable" in said
    assert "layers to the host (-ngl " in said and "take 2 devices (--tp 2)" in said


def test_heads_are_not_asked_of_a_runtime_that_splits_layers(capsys):
    """Qwen2-7B has 28 heads: 8 tensor ranks do not divide them, 8 pipeline stages take its 28 layers."""
    road = ("--device", "gtx-1660", "--offline", "--precision", "fp32", "--runtime")
    assert of_json(capsys, "qwen2-7b", *road, "llama.cpp")["assumed"]["tp"] == 8
    main(["llm", "qwen2-7b", *road, "vllm"])
    assert "--tp 8" not in capsys.readouterr().err


@pytest.mark.parametrize("runtime", ["llama.cpp", "transformers"])
def test_a_runtime_that_has_no_server_here_is_asked_alone_without_being_told_so(runtime, capsys):
    asked = ("llama-3.1-8b", "--device", "rtx-4090", "--runtime", runtime)
    assert printed(capsys, *asked) == printed(capsys, *asked, "--offline")
    assert main(["llm", *asked, "--dp", "2"]) == 2
    assert f"{runtime} predicts one batch without a server: leave out --dp" in capsys.readouterr().err
    assert main(["llm", *asked, "--decode-batch", "0"]) == 2  # given, though it is nothing
    assert f"{runtime} predicts one batch without a server: leave out --decode-batch" in capsys.readouterr().err
    assert main(["llm", *asked, "--decode-batch", "2"]) == 2
    assert f"{runtime} predicts one batch without a server: leave out --decode-batch" in capsys.readouterr().err
    assert main(["llm", *asked, "--equal-answers"]) == 2
    assert f"{runtime} predicts one batch without a server: leave out --equal-answers" in capsys.readouterr().err
    assert main(["llm", *asked, "--rate", "1"]) == 2
    assert f"{runtime} predicts one batch without a server: leave out --rate" in capsys.readouterr().err


def test_python_asks_a_batch_without_a_server_as_the_command_does(capsys):
    asked = ("llama-3.1-8b", "--device", "rtx-4090", "--runtime", "llama.cpp", "--precision", "q4_k_m")
    found = perfpass.predict_offline("llama-3.1-8b", "rtx-4090", runtime="llama.cpp", precision="q4_k_m")
    assert json.loads(json.dumps(found.to_dict())) == of_json(capsys, *asked)
    with pytest.raises(ArgumentError, match=r"ask perfpass\.predict_offline"):
        perfpass.predict_llm("llama-3.1-8b", "rtx-4090", runtime="llama.cpp")
