"""lhl/strix-halo-testing: llama-bench of seventeen models on a Ryzen AI Max+ 395, prompts and answers apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

# The source's file, our name of its definition; a name that no definition has yet is kept as a repository's.
NETWORKS = {
    "llama-2-7b": "llama-2-7b",
    "Llama-3.2-1B": "llama-3.2-1b",
    "shisa-v2-llama3.1-8b": "llama-3.1-8b",
    "Llama-4-Scout": "llama-4-scout",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "gpt-oss-20b": "gpt-oss-20b",
    "gpt-oss-120b": "gpt-oss-120b",
    "Mistral-Small-3.1-24B": "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
    "Hunyuan-A13B": "tencent/Hunyuan-A13B-Instruct",
    "GLM-4.5-Air": "zai-org/GLM-4.5-Air",
    "gemma-3-27b": "google/gemma-3-27b-it",
    "shisa-v2-unphi4-14b": "microsoft/phi-4",
}
# The file's type, as llama.cpp prints it. gpt-oss keeps its experts in mxfp4; the rest of the file is 16 bits wide.
_TYPES = {
    "Q4_K - Medium": "q4_k_m",
    "Q3_K - Medium": "q3_k_m",
    "Q4_0": "q4_0",
    "Q6_K": "q6_k",
    "IQ3_S mix - 3.66 bpw": "iq3_m",
    "F16": "mxfp4",
}
# llama-bench repeats a test so often unless told otherwise; the table does not say.
_REPETITIONS = 5
# Of a shorter run the mean power is that of loading the model.
_LONG_RUN_S = 30.0


def read(shared: Path) -> Reading:
    """Records of kind ``generation``: time of a prompt alone, or of output tokens alone; memory in use; power (B3).

    Memory lies up to a tenth below the file's size: the input table stays on the host, where this board has it too.
    """
    reading = Reading("strix_halo")
    table = table_of(shared, "lhl_strix_halo", "llama_bench.parquet")
    prefill = (table.phase == "prefill").to_numpy()
    kind = table.model_type.str.extract("(" + "|".join(re.escape(name) for name in _TYPES) + ")$")[0]
    long = (table.latency_ms * _REPETITIONS / 1e3 >= _LONG_RUN_S).to_numpy()
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run=table.source_file + ":" + table.index.astype(str),
        network=_network(table.model),
        runtime="llama.cpp",
        runtime_version="b" + table.build_number.astype(str),
        precision=kind.map(_TYPES),
        precision_from=np.where(kind == "F16", "inferred", "stated"),
        quantization=table.model_type,
        mode=np.where(prefill, "prefill", "decode"),
        batch=1,
        timing=np.where(prefill, "the prompt alone", "the output tokens alone"),
        variant=_variant(table),
        software_year=2025,
        year_from="inferred",
        input_tokens=table.n_prompt,
        output_tokens=table.n_gen,
        context_tokens=table.n_depth,
        tensor_parallel=1,
        pipeline_parallel=1,
        latency_ms=table.latency_ms,
        ttft_ms=np.where(prefill, table.latency_ms, np.nan),
        tpot_ms=np.where(prefill, np.nan, table.latency_ms / table.n_gen.where(~prefill, 1)),
        throughput_per_s=table.throughput_tok_per_s,
        throughput_unit=np.where(prefill, "prompt tokens", "output tokens"),
        peak_memory_bytes=table.memory_mib * 2.0**20,
        memory_kind=np.where(table.memory_mib.notna(), "in_use", ""),
        power_w=table.avg_power_w.where(long),
        caveats="",
    )
    networks.caveat_where(rows, rows.power_w.notna(), "power_includes_loading")
    counted = np.where(prefill, table.n_prompt, table.n_gen)
    apart = np.abs(table.throughput_tok_per_s * table.latency_ms / 1e3 / counted - 1) > 0.02
    networks.caveat_where(rows, apart, "mean_rate_and_mean_time_differ")
    language_models.add(reading, rows)
    return reading


def _network(models: pandas.Series) -> pandas.Series:
    known = {m: next((n for start, n in NETWORKS.items() if m.startswith(start)), "") for m in models.unique()}
    return models.map(known)


def _variant(table: pandas.DataFrame) -> pandas.Series:
    """Backend, driver or kernels, attention, and the tokens of one step of the prompt."""
    parts = [
        table.framework.str.removeprefix("llama.cpp "),
        table.build.fillna("").str.removeprefix("llama.cpp-").replace({"hip": "", "vulkan": ""}),
        table.hipblaslt.astype(str).map(lambda v: "hipBLASLt" if v in ("1", "1.0") else ""),
        table.flash_attn.astype(str).map({"True": "FlashAttention", "False": ""}),
        "-b " + table.n_batch.astype(str) + " -ub " + table.n_ubatch.astype(str),
    ]
    out = parts[0]
    for part in parts[1:]:
        out = out + part.map(lambda text: f"; {text}" if text else "")
    return out
