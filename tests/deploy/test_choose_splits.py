"""Splits of a replica: what is tried of itself can be run and held, and what no record has is said and wider."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfpass
from deploy.engine_command import refused
from perfpass.deploy.choose import choose
from perfpass.deploy.sweep import sweep
from perfpass.deploy.sweep.splits import Split, sensible
from perfpass.deploy.tune import split_words
from perfpass.devices import device
from perfpass.errors import ArgumentError, PerfPassError
from perfpass.llm import language_model
from perfpass.llm.costs import Parallelism
from perfpass.llm.memory import served
from perfpass.llm.precision import quantization
from perfpass.llm.serving import Serving, check_split
from perfpass.predictors.step_time.setup import hop_bytes_s, joined_gpus, messages_bytes_s

MODELS = ["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "deepseek-v3", "qwen2.5-0.5b"]
BOARDS = ["h100", "h200", "l4", "gb200", "a100-80gb:2g.20gb"]


@cache
def tried(model, board, runtime="vllm", length=2000):
    read, target = language_model(model), device(board)
    plain = Serving(length, 1, 1.0, runtime, quantization=quantization(read, None, None, target, runtime)[0])
    return read, target, plain, tuple(sensible(read, target, plain))


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(MODELS), st.sampled_from(BOARDS))
def test_what_is_tried_can_be_run_and_is_held_or_says_why_not(model, board):
    from dataclasses import replace

    read, target, plain, found = tried(model, board)
    assert found and len(set(found)) == len(found) <= 24
    for one in found:
        split = one.parallelism(read)
        check_split(read, split.tensor, split.pipeline)
        assert split.gpus == one.gpus and one.tensor <= joined_gpus(target)
        experts = [layer.experts.count for _, layer in read.layers if layer.experts]
        assert all(count % one.expert == 0 for count in experts)
        assert len(found) == 1 or served(read, target, replace(plain, parallelism=split)).fits
    if board.partition(":")[2]:
        assert [one.gpus for one in found] == [1]


def test_pipelines_are_tried_where_ranks_do_not_divide_where_no_nvlink_joins_and_beyond_a_node():
    assert all(one.pipeline == 1 for one in tried("llama-3.1-70b", "h100")[3])
    assert any(one.pipeline > 1 for one in tried("llama-3.1-70b", "l4")[3])
    undivided = tried("qwen2.5-0.5b", "h100")[3]  # 14 heads
    assert any(one.pipeline > 1 and one.gpus == 4 for one in undivided) and all(one.tensor <= 2 for one in undivided)
    beyond = tried("deepseek-v3", "h100")[3]
    assert beyond and all(one.gpus > 8 for one in beyond) and Split(8, 2) in beyond


def test_experts_and_ranks_of_attention_are_of_mixtures():
    assert all(one.data == one.expert == 1 for one in tried("llama-3.1-70b", "h200")[3])
    latent = tried("deepseek-v3", "h200")[3]  # a cache that tensor ranks would hold again and again
    assert Split(1, data=8, expert=8) in latent and Split(8, expert=8) in latent
    assert all(one.data == 1 for one in tried("deepseek-v3", "h200", "trtllm")[3])
    assert any(one.gpus > 8 for one in tried("deepseek-v3", "gb200")[3])  # a rack is one domain


def test_points_of_every_way_are_what_each_prediction_says():
    found = sweep(
        "deepseek-v3", ["h200", "h100"], tensor_parallel=[1, 8], pipeline_parallel=[1, 2], data_parallel=[1, 8],
        expert_parallel=[1, 8], concurrencies=[64],
    ).rows()  # fmt: skip
    assert len(found) == 2 * 2 * 2 * 2 * 2
    answered = 0
    for point in found:
        ranks = {name: point[f"{long}_parallel"] for name, long in
                 (("tp", "tensor"), ("pp", "pipeline"), ("dp", "data"), ("ep", "expert"))}  # fmt: skip
        try:
            one = perfpass.predict_llm("deepseek-v3", point["device"], concurrency=64, **ranks)
        except PerfPassError:
            assert point["problem"]
            continue
        if point["problem"]:
            assert not one.memory.fits
            continue
        answered += 1
        assert point["tpot_ms"] == pytest.approx(one.tpot_ms.median, rel=1e-9)
        assert point["tpot_ms_high"] == pytest.approx(one.tpot_ms.high, rel=1e-9)
        if point["usd_per_hour"]:
            whole = sweep("deepseek-v3", [point["device"]], tensor_parallel=[1]).rows()[0]["usd_per_hour"]
            assert point["usd_per_hour"] == pytest.approx(whole * one.serving.gpus)
    assert answered >= 6


def test_a_pipeline_has_no_record_and_says_so_and_is_wider():
    plain, piped = (perfpass.predict_llm("llama-3.1-8b", "h100", tp=2 // pp, pp=pp, concurrency=8) for pp in (1, 2))
    assert any("pipeline" in reason for reason in piped.support.reasons) and piped.support.level == "outside"
    assert piped.tpot_ms.high / piped.tpot_ms.median > plain.tpot_ms.high / plain.tpot_ms.median


def test_a_model_of_more_than_a_node_is_chosen_with_its_split_and_its_engines_words():
    found = choose("deepseek-v3", ["h100"], rate=0.5, input_length=512, output_length=64, confidence=0.6)
    first = found.options[0]
    assert found.exit_code == 0 and first.devices > 8 and first.devices % 8 == 0
    split = first.split
    assert split["tp"] * split["pp"] * split["dp"] == first.devices
    refused("vllm", ["vllm", "serve", "m", *first.flags])
    shown = json.loads(json.dumps(found.to_dict(), allow_nan=False))["options"][0]
    assert shown["split"] == split and shown["flags"] == list(first.flags)
    text = str(found)
    assert first.split_as_text in text and "vllm is told --tensor-parallel-size" in text
    assert any(note.startswith("h100-sxm5-80gb, outside: ") for note in found.notes)


def test_given_ranks_are_the_only_ones():
    found = choose("mixtral-8x7b", ["h100"], rate=1.0, pipeline_parallel=[2], tensor_parallel=[2])
    assert {(o.split["tp"], o.split["pp"]) for o in found.options} == {(2, 2)}
    in_a_file = choose("mixtral-8x7b", ["h100"], runtimes=["trtllm"], tensor_parallel=[4], data_parallel=[2])
    assert any("enable_attention_dp" in note for note in in_a_file.notes)
    with pytest.raises(ArgumentError, match="--pp is of a served language model"):
        choose("resnet50", ["l4"], pipeline_parallel=[2], batches=[1])
    no_experts = sweep("llama-3.1-8b", ["h100"], tensor_parallel=[2], expert_parallel=[2]).rows()
    assert "has no experts" in no_experts[0]["problem"]


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 8]), st.booleans())
def test_every_engine_takes_the_words_of_every_split(tensor, pipeline, data, experts):
    split = Parallelism.of(tensor, pipeline, data, tensor * data if experts else 1)
    for engine, start in (("vllm", ["vllm", "serve"]), ("sglang", ["python", "-m", "sglang.launch_server"]),
                          ("trtllm", ["trtllm-serve"])):  # fmt: skip
        words = split_words(engine, split)
        refused(engine, [*start, *([] if engine == "sglang" else ["m"]), *words])
        assert (str(pipeline) in words) or pipeline == 1


def test_only_what_leaves_a_node_goes_over_the_network():
    h100 = device("h100")
    inside, over = Parallelism.of(8, 2), Parallelism.of(16)
    assert messages_bytes_s(h100, inside) == h100.nvlink_bandwidth_bytes_s / 2 > messages_bytes_s(h100, over)
    # All-reduces go by every card of a node, what one stage hands to the next by one.
    assert hop_bytes_s(h100, inside) == messages_bytes_s(h100, over) / 8
