"""NVIDIA/TensorRT-LLM's own tables: static batches of 2023 and 2024, all requests at once, and requests at a rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of

if TYPE_CHECKING:
    import pandas

# Names that leave the version open: the one whose layers these are.
NETWORKS = {
    "LLaMA 7B": "llama-2-7b",
    "llama_13b": "llama-2-13b",
    "LLaMA 70B": "llama-2-70b",
    "llama_70b": "llama-2-70b",
    "GPT-J 6B": "gpt-j-6b",
    "Mistral 7B": "mistral-7b",
    "Mixtral 8x7B": "mixtral-8x7b",
    "LLaMA v3.1 8B": "llama-3.1-8b",
    "Llama 3.1 8B": "llama-3.1-8b",
    "LLaMA 3.1 8B": "llama-3.1-8b",
    "LLaMA v3.1 70B": "llama-3.1-70b",
    "LLaMA 3.1 70B": "llama-3.1-70b",
    "Llama 3.3 70B": "llama-3.1-70b",
    "LLaMA v3.1 405B": "llama-3.1-405b",
    "Llama 3.1 405B": "llama-3.1-405b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "Llama 4 Scout": "llama-4-scout",
    "Llama 4 Maverick": "llama-4-maverick",
}
FOLDER = "tensorrt_llm"
_YEARS = {"0.5": 2023, "0.6.1": 2023, "0.8.0": 2024, "0.9.0": 2024, "0.14.0": 2024, "0.17": 2025, "1.0": 2025}
_RELEASED_0_5 = "0.5"
# 52 sequences of 2,176 tokens of LLaMA 7B in fp16 take 73 GB: the boards of these pages have 80.
_A100 = ("NVIDIA A100", "NVIDIA A100 (memory size not stated)")
_LEAST_RATE = 0.9


def read(shared: Path) -> Reading:
    """Records of kinds ``generation`` (static batches, all requests at once) and ``serving`` (requests at a rate)."""
    reading = Reading("tensorrt_llm")
    older = table_of(shared, "tensorrt_llm_docs", "performance_v0_6_1.csv")
    rows = _static(older, older.output_tokens_per_s, older.first_token_latency_ms, older.runtime_version.astype(str))
    rows["run"] = older.source_file + "@" + older.commit + ":" + older.index.astype(str)
    rows["caveats"] = add_caveat(rows.caveats, np.ones(len(rows), bool), "typed_in_by_hand")
    language_models.add(reading, rows)

    later = table_of(shared, FOLDER, "static_batch_v05_to_v09.csv")
    # Columns are as their heads say: read per device, five figures of the first page (four boards) beat the roofline.
    each = later.throughput_unit.fillna("").str.contains("/GPU")
    version = later.engine_version_as_stated.fillna(_RELEASED_0_5)
    rows = _static(later, later.throughput_as_reported * later.tp.where(each, 1), later.ttft_ms, version)
    rows["run"] = later.source_file + "@" + later.source_commit + ":" + later.source_line.astype(str)
    rows["tensor_parallel"] = rows["n_devices"] = later.tp.to_numpy()
    networks.caveat_where(rows, later.engine_version_as_stated.isna(), "version_not_stated")
    language_models.add(reading, rows, ("run", "runtime_version", "software_year", "caveats"))

    blogs = table_of(shared, FOLDER, "blog_tables.csv")
    rows = _static(blogs, blogs.output_tokens_per_s_per_gpu * blogs.tp, blogs.ttft_ms, _as(blogs, _RELEASED_0_5))
    rows["run"] = blogs.source_file + "@" + blogs.source_commit + ":" + blogs.source_line.astype(str)
    rows["tensor_parallel"] = rows["n_devices"] = blogs.tp.to_numpy()
    language_models.add(reading, rows)

    language_models.add(reading, _at_once(table_of(shared, FOLDER, "offline_throughput.csv")))
    online = table_of(shared, FOLDER, "online_serving.csv")
    online = reading.keep(online, np.isfinite(online.request_rate), "all requests at once: the load is not steady")
    held = (online.achieved_requests_per_s >= _LEAST_RATE * online.request_rate).to_numpy()
    online = reading.keep(online, held, "more requests than are answered: the queue grows")
    reading.add("serving", _at_a_rate(online.reset_index(drop=True)))
    return reading


def _as(table: pandas.DataFrame, value: str) -> pandas.Series:
    return table.device.map(lambda _: value)


def _precision(stated: pandas.Series) -> pandas.Series:
    return stated.replace({"fp4": "nvfp4"})


def _static(
    table: pandas.DataFrame, rate: pandas.Series, ttft_ms: pandas.Series, version: pandas.Series
) -> pandas.DataFrame:
    a100 = table.device.isin(_A100).to_numpy()
    ranks = table.tensor_parallel if "tensor_parallel" in table.columns else table.tp
    rows = table[["model"]].assign(
        device=table.device.mask(a100, "A100-SXM4-80GB"),
        device_from=np.where(a100, "inferred", "stated"),
        device_as_reported=table.device_as_reported,
        licence="Apache-2.0",
        network=table.model.map(NETWORKS),
        n_devices=ranks,
        tensor_parallel=ranks,
        pipeline_parallel=1,
        runtime="trtllm",
        runtime_version=version,
        precision=table.precision,
        precision_from="stated",
        batch=table.batch_size,
        timing=np.where(rate.notna(), "one static batch, all tokens", "one prompt and its first token"),
        mode=np.where(rate.notna(), "inference", "prefill"),
        software_year=version.map(_YEARS),
        year_from="inferred",
        input_tokens=table.input_length,
        output_tokens=table.output_length.fillna(1),
        throughput_per_s=rate,
        throughput_unit=np.where(rate.notna(), "output tokens", ""),
        ttft_ms=ttft_ms,
        caveats="",
    )
    networks.caveat_where(rows, a100, "form_factor_not_stated")
    networks.caveat_where(rows, table.output_length.isna() & rate.notna(), "output_length_not_stated")
    rows["output_tokens"] = rows.output_tokens.mask(table.output_length.isna() & rate.notna(), -1)
    networks.caveat_where(rows, rows.model.str.lower().str.startswith("llama"), "version_of_llama_not_stated")
    return rows


def _at_once(table: pandas.DataFrame) -> pandas.DataFrame:
    """All requests are sent at once; the engine runs as many together as fit (C8)."""
    version = table.engine_version.astype(str)
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run=table.source_file + "@" + table.source_commit + ":" + table.index.astype(str),
        network=table.model.map(NETWORKS),
        n_devices=table.n_gpus,
        tensor_parallel=table.tp,
        pipeline_parallel=table.pp,
        runtime="trtllm",
        runtime_version=version,
        variant=table.harness,
        precision=_precision(table.precision),
        precision_from="stated",
        batch=table.n_requests,
        timing="all requests at once, until the last has its last token",
        software_year=version.map(_YEARS),
        year_from="inferred",
        input_tokens=table.input_length,
        output_tokens=table.output_length,
        throughput_per_s=table.tokens_per_s,
        throughput_unit="output tokens",
        caveats="requests_wait_for_each_other,typed_in_by_hand",
    )
    experts = rows.model.str.contains("8x|Scout|Maverick|A22B")
    networks.caveat_where(rows, experts, "expert_parallelism_not_stated")
    return rows


def _at_a_rate(table: pandas.DataFrame) -> pandas.DataFrame:
    """Mean requests in flight are their rate times the mean time that each takes (Little's law): inferred."""
    whole_ms = table.ttft_ms + (table.output_length - 1) * table.itl_ms
    in_flight = table.achieved_requests_per_s * whole_ms / 1e3
    return table[["model", "device", "device_as_reported", "request_rate"]].assign(
        licence="Apache-2.0",
        run=table.source_file + "@" + table.source_commit + ":" + table.index.astype(str),
        network=table.model.map(NETWORKS),
        family=table.model.map(NETWORKS),
        n_devices=table.n_gpus,
        runtime="trtllm",
        runtime_version=table.engine_version,
        variant=table.frontend,
        precision="bf16",
        gemm_quantization="bf16",
        mode="serving",
        timing="means over 500 requests at a rate",
        tensor_parallel=table.tp,
        pipeline_parallel=1,
        input_tokens=table.input_length,
        output_tokens=table.output_length,
        concurrency=in_flight.round().clip(lower=1).astype(int),
        ttft_ms=table.ttft_ms,
        tpot_ms=table.itl_ms,
        throughput_per_s=table.output_tokens_per_s,
        caveats="concurrency_by_littles_law,lengths_are_means,typed_in_by_hand",
    )
