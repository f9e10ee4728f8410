"""How InferenceX started its servers: drafts, looks at the queue and caches, where its scripts tell them."""

from __future__ import annotations

import pytest

from perfpass.records.readers import inferencex_servers

RUN = {
    "family": "deepseek-v3", "device": "b200-sxm-180gb", "runtime": "sglang", "runtime_version": "0.5.9",
    "precision": "fp8", "input_tokens": 1024, "output_tokens": 1024, "requests": 8, "disaggregated": False,
    "tensor_parallel": 8, "moe_expert_parallel": 1, "data_parallel": 1, "day": "2026-03-25", "measurement": "a",
    "tpot_ms": 10.0, "inferencex": True,
}  # fmt: skip


def table(*runs: dict):
    import pandas

    return pandas.DataFrame([{**RUN, **run} for run in runs])


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({}, 10),
        ({"requests": 16}, 30),
        ({"requests": 32, "tensor_parallel": 4}, 10),
        ({"family": "qwen3.5-397b-a17b", "precision": "nvfp4"}, 30),
        ({"family": "qwen3.5-397b-a17b", "device": "b300-sxm-288gb", "runtime_version": "0.5.10", "requests": 64}, 10),
        ({"device": "h200-sxm-141gb", "requests": 64}, 1),
        ({"family": "glm-5", "requests": 64}, 1),
        ({"inferencex": False}, -1),
        ({"runtime": "vllm"}, -1),
        ({"disaggregated": True}, -1),
    ],
)
def test_a_scheduler_looks_at_its_queue_as_often_as_its_script_says(change, steps):
    assert inferencex_servers.looks(table(change)).tolist() == [steps]


def test_of_two_measurements_of_a_point_listed_with_and_without_drafts_the_faster_drafts_and_says_so():
    drafts, by_times = inferencex_servers.drafts(table({}, {"measurement": "b", "tpot_ms": 6.0}))
    assert drafts.tolist() == [0, 2] and by_times.all()


@pytest.mark.parametrize(
    ("change", "drafts"),
    [
        ({}, -1),
        ({"requests": 128}, 2),
        ({"input_tokens": 8192}, 2),
        ({"input_tokens": 8192, "requests": 4}, -1),
        ({"family": "qwen3.5-397b-a17b", "tensor_parallel": 4}, 3),
        ({"runtime": "trtllm", "runtime_version": "1.2.0rc6.post3"}, 3),
        ({"runtime": "trtllm", "runtime_version": "1.2.0rc6.post3", "data_parallel": 8}, 1),
        ({"requests": 128, "inferencex": False}, -1),
    ],
)
def test_a_single_measurement_drafts_where_the_list_has_nothing_else(change, drafts):
    found, by_times = inferencex_servers.drafts(table(change))
    assert found.tolist() == [drafts] and not by_times.any()


@pytest.mark.parametrize(
    ("change", "cache"),
    [
        ({"family": "gpt-oss-120b", "runtime": "vllm"}, "fp8"),
        ({"family": "gpt-oss-120b", "runtime": "trtllm", "device": "h200-sxm-141gb"}, "bf16"),
        ({"family": "gpt-oss-120b", "runtime": "trtllm", "device": "gb200-186gb"}, ""),
        ({"precision": "nvfp4"}, "fp8"),
        ({"device": "h200-sxm-141gb"}, "bf16"),
        ({"family": "glm-5", "device": "h200-sxm-141gb"}, "bf16"),
        ({"family": "qwen3.5-397b-a17b", "precision": "bf16"}, "bf16"),
        ({"family": "qwen3.5-397b-a17b", "precision": "fp8", "device": "h200-sxm-141gb"}, "fp8"),
        ({"family": "qwen3.5-397b-a17b", "precision": "nvfp4"}, ""),
        ({"runtime": "trtllm"}, ""),
        ({"inferencex": False}, ""),
        ({"disaggregated": True}, ""),
    ],
)
def test_a_cache_is_as_wide_as_its_script_asks_for(change, cache):
    assert inferencex_servers.caches(table(change)).tolist() == [cache]
