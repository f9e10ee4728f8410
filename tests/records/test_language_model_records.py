"""Records of language models of other laboratories: what each reader keeps, infers, marks and refuses."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from network_sources import NONE, written
from perfpass.records import language_models, schema
from perfpass.records.build.generation import OUTSIDE, TABLES
from perfpass.records.location import data_directory
from perfpass.records.readers import exllama, ktransformers, lmdeploy, serving_misc, strix_halo, tensorrt_llm

ROWS = {
    "strix_halo": 4619,
    "exllama": 58,
    "tensorrt_llm": 883,
    "lmdeploy": 60,
    "ktransformers": 66,
    "serving_misc": 15,
    "optimum_benchmark": 135,
    "qualcomm_ai_hub": 45,
    "fastertransformer": 346,
    "megatron_lm": 20,
}


@pytest.fixture(scope="module")
def stored():
    return schema.read(data_directory() / "records" / "generation_outside.parquet", "generation")


def rows_of(reading, kind="generation"):
    return reading.tables[kind].reset_index(drop=True)


def test_the_stored_rows_are_those_that_the_documents_state(stored):
    assert dict(stored.source.value_counts()) == ROWS and tuple(ROWS) == OUTSIDE
    assert not set(OUTSIDE) & set(TABLES["generation"][1])
    assert len(schema.read(data_directory() / "records" / "serving_outside.parquet", "serving")) == 30


def test_every_stored_row_says_what_was_counted_and_what_was_inferred(stored):
    assert set(stored.precision_from) <= {"stated", "inferred", "unknown"}
    assert ((stored.precision == "") == (stored.precision_from == "unknown")).all()
    assert ((stored.throughput_unit != "") <= stored.throughput_per_s.notna()).all()
    assert ((stored.memory_kind == "") == stored.peak_memory_bytes.isna()).all()
    assert (stored.batch >= 1).all()
    assert (stored.tpot_ms.notna() | stored.ttft_ms.notna() | stored.throughput_per_s.notna()).all()


def test_no_stored_row_beats_its_device(stored):
    assert not stored.caveats.str.contains(language_models.FASTER_THAN_DEVICE).any()


def test_a_row_that_beats_its_device_is_marked():
    rows = pandas.DataFrame(
        {
            "network": ["llama-2-7b", "llama-2-7b", "no such model"],
            "device": "t4",
            "precision": "fp16",
            "mode": "decode",
            "n_devices": 1,
            "batch": 1,
            "input_tokens": -1,
            "output_tokens": -1,
            "context_tokens": 0,
            "tpot_ms": [10.0, 50.0, 10.0],  # 13.2 GB of weights at 320 GB/s take 41 ms
        }
    )
    assert language_models.faster_than_device(rows).tolist() == [True, False, False]


def test_what_a_prompt_or_an_answer_counts_is_told_apart(tmp_path):
    bench = {
        "model": ["llama-2-7b.Q4_0", "gpt-oss-20b-F16"],
        "model_type": ["llama 7B Q4_0", "gpt-oss 20B F16"],
        "model_bytes": 1,
        "device": "AMD Ryzen AI Max+ 395 (Radeon 8060S)",
        "device_as_reported": "AMD Radeon Graphics",
        "source_file": "results.jsonl",
        "build_number": 6077,
        "framework": ["llama.cpp ROCm", "llama.cpp Vulkan"],
        "build": ["llama.cpp-rocwmma", "llama.cpp-vulkan"],
        "hipblaslt": ["1", None],
        "flash_attn": ["True", "False"],
        "n_batch": 2048,
        "n_ubatch": 512,
        "phase": ["prefill", "decode"],
        "n_prompt": [512, 0],
        "n_gen": [0, 128],
        "n_depth": 0,
        "latency_ms": [400.0, 6400.0],
        "throughput_tok_per_s": [1280.0, 20.0],
        "memory_mib": [4000.0, NONE],
        "avg_power_w": [50.0, 90.0],
    }
    rows = rows_of(strix_halo.read(written(tmp_path, "lhl_strix_halo/llama_bench.parquet", **bench)))
    assert list(rows.ttft_ms.fillna(0)) == [400, 0] and list(rows.tpot_ms.fillna(0)) == [0, 50]
    assert list(rows.throughput_unit) == ["prompt tokens", "output tokens"]
    assert list(rows.precision) == ["q4_0", "mxfp4"] and list(rows.precision_from) == ["stated", "inferred"]
    assert list(rows.memory_kind) == ["in_use", ""] and list(rows.power_w.fillna(0)) == [0, 90]
    assert rows.variant[0] == "ROCm; rocwmma; hipBLASLt; FlashAttention; -b 2048 -ub 512"


def test_two_kinds_of_board_stay_under_the_sources_name(tmp_path):
    pair = "NVIDIA GeForce RTX 4090 + RTX 3090 Ti"
    table = {
        "repo": "turboderp/exllama@0",
        "source_file": "README.md",
        "framework": "exllama",
        "model": "Llama 7B",
        "quantisation": ["GPTQ 4bit g128", "EXL2 2.5 bpw"],
        "act_order": "no",
        "device": [pair, "NVIDIA GeForce RTX 4090"],
        "n_gpus": [2, 1],
        "context_tokens": [2048.0, NONE],
        "memory_mib": [9000.0, NONE],
        "phase": ["decode, full context (worst)", "decode"],
        "throughput_tok_per_s": [20.0, 100.0],
    }
    rows = rows_of(exllama.read(written(tmp_path, "exllama/consumer_decode.csv", **table)))
    assert list(rows.device) == [pair, "rtx-4090"] and list(rows.listed) == [False, True]
    assert list(rows.precision) == ["int4", "exl2-2.5"] and list(rows.context_tokens) == [2048, -1]
    assert "two_kinds_of_device" in rows.caveats[0] and "context_not_stated" in rows.caveats[1]


def tensorrt_llm_tables(root):
    none = {"device_as_reported": "A100", "model": "LLaMA 70B", "precision": "fp16", "input_length": 128}
    older = {
        "device": ["NVIDIA L40S"],
        "source_file": "p",
        "commit": "c",
        "tensor_parallel": 1,
        "runtime_version": "0.5",
    }
    older |= {"batch_size": 1, "output_length": 1, "output_tokens_per_s": NONE, "first_token_latency_ms": 10.0}
    written(root, "tensorrt_llm_docs/performance_v0_6_1.csv", **none | older | {"model": "GPT-J 6B"})
    static = {"device": "NVIDIA A100", "tp": 4.0, "engine_version_as_stated": [None, "0.8.0"], "source_file": "p"}
    static |= {"source_commit": "c", "source_line": [1, 2], "batch_size": 64.0, "output_length": 128.0, "ttft_ms": NONE}
    static |= {"throughput_as_reported": [1237.0, 565.0]}
    static |= {"throughput_unit": ["Throughput (out tok/s)", "Throughput (out tok/s/GPU)"]}
    written(root, "tensorrt_llm/static_batch_v05_to_v09.csv", **none | static)
    blog = {"device": ["NVIDIA H200"], "tp": 1.0, "source_file": "b", "source_commit": "c", "source_line": 1}
    blog |= {"batch_size": 64.0, "output_length": 128.0, "output_tokens_per_s_per_gpu": 100.0, "ttft_ms": NONE}
    written(root, "tensorrt_llm/blog_tables.csv", **none | blog)
    offline = {"device": ["NVIDIA B200"], "engine_version": 1.0, "source_file": "o", "source_commit": "c", "n_gpus": 2}
    offline |= {
        "tp": 1,
        "pp": 2,
        "harness": "trtllm-bench",
        "precision": "fp4",
        "n_requests": 1000,
        "output_length": 128,
    }
    offline |= {"tokens_per_s": 5000.0, "model": "Llama 4 Scout"}
    written(root, "tensorrt_llm/offline_throughput.csv", **none | offline)
    online = {"device": "NVIDIA H200", "engine_version": "0.14.0", "frontend": "Triton", "source_file": "o", "tp": 4}
    online |= {"source_commit": "c", "n_gpus": 4, "output_length": 256, "request_rate": [2.0, 8.0, np.inf]}
    online |= {
        "achieved_requests_per_s": [2.0, 6.0, 9.0],
        "ttft_ms": 60.0,
        "itl_ms": 20.0,
        "output_tokens_per_s": 498.0,
    }
    return written(root, "tensorrt_llm/online_serving.csv", **none | online | {"model": "LLaMA 3.1 70B"})


def test_rates_per_device_are_those_whose_column_says_so(tmp_path):
    rows = rows_of(tensorrt_llm.read(tensorrt_llm_tables(tmp_path)))
    static = rows[rows.device == "a100-sxm4-80gb"]
    assert list(static.throughput_per_s) == [1237, 4 * 565] and set(static.device_from) == {"inferred"}
    assert list(static.runtime_version) == ["0.5", "0.8.0"] and "version_not_stated" in static.caveats.iloc[0]
    at_once = rows[rows.precision == "nvfp4"].iloc[0]
    assert (at_once.batch, at_once.pipeline_parallel, at_once.n_devices) == (1000, 2, 2)


def test_requests_in_flight_follow_from_a_steady_rate_alone(tmp_path):
    reading = tensorrt_llm.read(tensorrt_llm_tables(tmp_path))
    rows = rows_of(reading, "serving")
    assert list(rows.concurrency) == [10]  # 2 a second, each 60 + 255 x 20 ms
    assert "concurrency_by_littles_law" in rows.caveats[0]
    assert dict(reading.refused) == {
        "all requests at once: the load is not steady": 1,
        "more requests than are answered: the queue grows": 1,
    }


def test_a_page_in_three_versions_counts_once(tmp_path):
    table = {
        "device": "NVIDIA A100 80GB",
        "device_as_reported": "A100",
        "model": "llama2-7b",
        "engine_version": ["0.2.0", "0.1.0", None],
        "n_gpus": 1.0,
        "tp": 1.0,
        "precision": "fp16",
        "batch_size": 64.0,
        "input_length": [128.0, 128.0, NONE],
        "output_length": 128.0,
        "output_tokens_per_s": 3000.0,
        "ttft_avg_ms": 400.0,
        "token_latency_p50_ms": 14.0,
        "memory_gb_as_reported": 77.0,
        "source_file": "a",
        "source_commit": "c",
        "source_line": [1, 2, 3],
    }
    reading = lmdeploy.read(written(tmp_path, "lmdeploy/a100_fp16.csv", **table))
    rows = rows_of(reading)
    assert list(rows.runtime_version) == ["0.1.0"] and "requests_wait_for_each_other" in rows.caveats[0]
    refused = {"lengths of ShareGPT, not stated": 1, "repeats another row but for its place": 1}
    assert dict(reading.refused) == refused


def test_weights_off_the_device_are_said(tmp_path):
    offload = {
        "engine": ["Petals", "FlexLLMGen with Compression", "SGLang"],
        "model": "OPT-6.7B",
        "mode": ["offline, offloading", "offline, offloading", "serve"],
        "device": "NVIDIA T4",
        "device_as_reported": "T4",
        "n_gpus": 1,
        "precision": "fp16",
        "batch_size": 2.0,
        "offload_to": ["GPU", None, None],
        "input_length": 512.0,
        "output_length": 32.0,
        "output_tokens_per_s": [8.0, 30.0, 5.0],
        "source_file": "README.md",
        "source_commit": "c",
        "source_line": 1.0,
    }
    reading = serving_misc.read(written(tmp_path, "serving_misc/serving.csv", **offload))
    rows = rows_of(reading)
    assert list(rows.n_devices) == [-1, 1] and list(rows.precision) == ["fp16", "int4"]
    assert list(rows.caveats) == ["several_devices_not_counted", "weights_off_the_device"]
    assert dict(reading.refused) == {"served at a rate, requests in flight not stated": 1}


def test_experts_on_the_host_are_said(tmp_path):
    experts = {
        "engine": "KTransformers",
        "model": "DeepSeek-V3",
        "device": "NVIDIA GeForce RTX 4090",
        "device_as_reported": "4090",
        "n_gpus": [1.0, NONE, 4.0],
        "precision": "int4 (q4km)",
        "phase": ["prefill", "decode", "throughput, ShareGPT"],
        "input_length": [1000.0, 1000.0, NONE],
        "tokens_per_s": [100.0, 10.0, 50.0],
        "cpu": "2 x Xeon",
        "pcie": None,
        "setting": ["8 experts V0.2.1", "6 experts V0.2.1", None],
        "source_file": "a",
        "source_commit": "c",
        "source_line": 1,
    }
    rows = rows_of(ktransformers.read(written(tmp_path, "ktransformers/moe_offload.csv", **experts)))
    assert list(rows.ttft_ms.fillna(0)) == [10_000, 0] and list(rows.tpot_ms.fillna(0)) == [0, 100]
    assert list(rows.context_tokens) == [-1, 1000] and "six_of_eight_experts" in rows.caveats[1]
    assert rows.precision[0] == "q4_k_m" and "2 x Xeon" in rows.variant[0]
