"""kvcache-ai/ktransformers: mixtures of experts with their experts on the host, one request."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

NETWORKS = {
    "DeepSeek-V3": "deepseek-v3",
    "Kimi-K2-Thinking": "kimi-k2",
    "Qwen3-Next-80B-A3B-Instruct": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "Qwen3-Coder-Next": "Qwen/Qwen3-Coder-Next",
}
_DEVICES = {"NVIDIA GeForce RTX 5090 32GB": "NVIDIA GeForce RTX 5090"}
_PRECISIONS = {"int4 (q4km)": "q4_k_m", "int4 native": "int4", "int8 CPU, int4 GPU": "int4"}


def read(shared: Path) -> Reading:
    """Records of kind ``generation``: rate of a prompt, or of output tokens (C11: rounded, few repeats)."""
    reading = Reading("ktransformers")
    table = table_of(shared, "ktransformers", "moe_offload.csv")
    table = reading.keep(table, table.tokens_per_s.notna(), "did not fit").reset_index(drop=True)
    table = reading.keep(table, table.input_length.notna(), "lengths of ShareGPT, not stated").reset_index(drop=True)
    prefill = (table.phase == "prefill").to_numpy()
    host = table.cpu.fillna("processors not stated") + table.pcie.map(lambda p: f", {p}", na_action="ignore").fillna("")
    settings = table.setting.map(lambda s: f"; {s}", na_action="ignore").fillna("")
    rows = table[["model", "device_as_reported"]].assign(
        device=table.device.replace(_DEVICES),
        licence="Apache-2.0",
        run=table.source_file + "@" + table.source_commit + ":" + table.source_line.astype(str) + ":" + table.phase,
        network=table.model.map(NETWORKS),
        n_devices=table.n_gpus,
        tensor_parallel=table.n_gpus,
        pipeline_parallel=1,
        runtime=table.engine.str.lower(),
        variant="experts on the host, " + host + settings,
        precision=table.precision.replace(_PRECISIONS),
        precision_from="stated",
        quantization=table.precision,
        mode=np.where(prefill, "prefill", "decode"),
        batch=1,
        timing=np.where(prefill, "the prompt alone", "output tokens alone"),
        software_year=2025,
        year_from="inferred",
        input_tokens=table.input_length.where(prefill),
        context_tokens=table.input_length.where(~prefill),
        throughput_per_s=table.tokens_per_s,
        throughput_unit=np.where(prefill, "prompt tokens", "output tokens"),
        ttft_ms=np.where(prefill, table.input_length / table.tokens_per_s * 1e3, np.nan),
        tpot_ms=np.where(prefill, np.nan, 1e3 / table.tokens_per_s),
        caveats="experts_on_the_host",
    )
    networks.caveat_where(rows, table.n_gpus.isna(), "number_of_devices_not_stated")
    networks.caveat_where(rows, settings.str.contains("6 experts"), "six_of_eight_experts")
    language_models.add(reading, rows)
    return reading
