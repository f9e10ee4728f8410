"""argonne-lcf/LLM-Inference-Bench: one batch of equal requests, offline, on nine accelerators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of

if TYPE_CHECKING:
    import pandas

FOLDER = "argonne_llm_inference_bench"
RUNTIMES = {
    "vLLM": "vllm",
    "TensorRT-LLM": "trtllm",
    "Deepspeed-MII": "deepspeed-mii",
    "Deepspeed": "deepspeed",
    "llama.cpp": "llama.cpp",
    "sambaflow": "sambaflow",
}
# No run reads its weights and its cache faster than memory gives them. Well below that time, tokens were not generated.
CUT_SHORT_SHARE = 0.9
NAMES_OF_MAX_1550 = ("Intel Max 1550", "Intel PVC GPU")
# Its "MI250 GPU" is the module of two dies, not a die as programs see it: Mixtral 8x7B in fp16 (93 GB) runs on one and
# Llama 2 70B (138 GB) on two, where a die has 64 GiB.
MODULES = {"AMD MI250 GPU": "mi250-module"}


def read(shared: Path) -> Reading:
    """Every run as a record of kind ``generation``: batch latency, or mean power, or time to the first token."""
    reading = Reading("argonne")
    table = table_of(shared, FOLDER, "all_results.csv")
    rows = _rows(table, table.input_output_length, table.input_output_length).assign(
        latency_ms=table.latency_s * 1e3, run="all_results"
    )
    # L1: llama.cpp times one sequence, and its batch is the number of prompt tokens processed at a time (llama-bench
    # -b): latency falls as it grows, and at 1 is twice the decode time. A total that multiplies by it is wrong.
    single = (table.framework == "llama.cpp").to_numpy()
    rows["throughput_per_s"] = np.where(single, 1, table.batch_size) * 2 * table.input_output_length / table.latency_s
    rows["caveats"] = add_caveat(rows.caveats, single, "batch_is_prompt_chunk")
    rows = reading.keep(rows, ~_cut_short(rows), "faster than weights and cache can be read: generation was cut short")
    again = rows.duplicated([*_WORKLOAD], keep=False)
    rows["caveats"] = add_caveat(rows.caveats, again.to_numpy(), "repeats_with_another_result")
    reading.add("generation", rows)

    power = table_of(shared, FOLDER, "power_results.csv")
    rows = _rows(power, power.input_output_length, power.input_output_length)
    latency_s = power.latency_s
    rows = rows.assign(
        run="power_results",
        latency_ms=latency_s * 1e3,
        power_w=power.avg_power_w,
        energy_j=power.avg_power_w * latency_s,
        throughput_per_s=power.batch_size * 2 * power.input_output_length / latency_s,
    )
    rows["caveats"] = add_caveat(rows.caveats, np.ones(len(rows), bool), "latency_repeats_all_results")
    reading.add("generation", rows)

    first = table_of(shared, FOLDER, "ttft_itl.csv")
    rows = _rows(first, first.input_length, first.output_length).assign(
        run="ttft_itl", ttft_ms=first.ttft_latency_s * 1e3
    )
    reading.add("generation", rows)
    return reading


_WORKLOAD = ("device", "n_devices", "runtime", "runtime_version", "model", "input_tokens", "batch")


def _rows(table: pandas.DataFrame, inputs: pandas.Series, outputs: pandas.Series) -> pandas.DataFrame:
    import pandas

    rows = pandas.DataFrame(
        {
            "device": table.device.replace(MODULES),
            "n_devices": table.num_devices,
            "runtime": table.framework.map(RUNTIMES),
            "runtime_version": "",
            "precision": "fp16",
            "mode": "inference",
            "batch": table.batch_size,
            "timing": "whole batch, all tokens",
            "licence": "BSD-3-Clause",
            "model": table.model,
            "family": table.model.str.split("/").str[0],
            "task": "text generation",
            "input_tokens": inputs,
            "output_tokens": outputs,
            "tensor_parallel": np.where(table.framework == "llama.cpp", 1, table.num_devices),
            "pipeline_parallel": np.where(table.framework == "llama.cpp", table.num_devices, 1),
            "caveats": "",
        }
    )
    # L2: one product under two names whose times differ ninefold: two stacks of software, told apart by the name.
    renamed = table.device.isin(NAMES_OF_MAX_1550)
    rows.loc[renamed, "runtime_version"] = "listed as " + table.device[renamed]
    rows["caveats"] = add_caveat(rows.caveats, renamed.to_numpy(), "two_stacks_by_device_name")
    return rows


def _cut_short(rows: pandas.DataFrame) -> np.ndarray:
    """Runs that end before weights and cache can have been read once per output token."""
    from perfpass.llm.configuration import language_model

    models = {name: language_model(name) for name in rows.model.unique()}
    devices = {name: device(name) for name in rows.device.unique()}
    out = []
    for r in rows.itertuples():
        model = models[r.model]
        sequences = 1 if r.runtime == "llama.cpp" else r.batch
        weights = 2.0 * (model.active_parameters if model.is_mixture else model.parameters)
        cache = 2.0 * model.cache_elements(r.input_tokens + r.output_tokens / 2, sequences)
        bandwidth = devices[r.device].memory_bandwidth_bytes_s * r.n_devices
        least_s = (weights + cache) * r.output_tokens / bandwidth
        out.append(r.latency_ms / 1e3 < CUT_SHORT_SHARE * least_s)
    return np.array(out)
