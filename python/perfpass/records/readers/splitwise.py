"""Mutinifni/splitwise-sim: prompt and token phases of two large models on DGX-A100 and DGX-H100."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.llm.configuration import language_model
from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of

if TYPE_CHECKING:
    import pandas

# The source's names; pcap is the same board with its power capped, which the catalogue does not know as a device.
DEVICES = {"a100-80gb": "a100-sxm4-80gb", "h100-80gb": "h100-sxm5-80gb", "h100-80gb-pcap": "h100-sxm5-80gb"}


def read(shared: Path) -> Reading:
    """Records of kind ``generation``: time to the first token, time per token, and power as a share of the limit."""
    import pandas

    reading = Reading("splitwise")
    table = table_of(shared, "splitwise", "perf_model.csv")
    devices = table.device.map(DEVICES)
    limit = devices.map({name: device(name).power_limit_w for name in set(DEVICES.values())})
    rows = pandas.DataFrame(
        {
            "licence": "MIT",
            "run": "perf_model",
            "device": devices,
            "n_devices": table.tensor_parallel,
            "runtime": "vllm",
            "precision": "fp16",
            "mode": "inference",
            "batch": table.batch_size,
            "timing": "prompt phase, then mean of the token phase",
            "model": table.model,
            "family": table.model.str.split("-").str[0],
            "task": "text generation",
            "input_tokens": table.prompt_size,
            "output_tokens": table.token_size,
            "tensor_parallel": table.tensor_parallel,
            "pipeline_parallel": 1,
            "ttft_ms": table.prompt_time_ms,
            "tpot_ms": table.token_time_ms,
            "power_w": table.average_power_fraction_of_tdp * limit * table.tensor_parallel,
            "caveats": "",
        }
    )
    capped = (table.device == "h100-80gb-pcap").to_numpy()
    rows["caveats"] = add_caveat(rows.caveats, capped, "power_capped")
    rows["caveats"] = add_caveat(rows.caveats, rows.power_w.notna().to_numpy(), "power_normalised_to_limit")
    # W2: the whole request's time contradicts its phases, so it is not read.
    expected = table.prompt_time_ms + table.token_size * table.token_time_ms
    off = np.abs(np.log(table.e2e_time_ms / expected)) > np.log(1.5)
    rows["caveats"] = add_caveat(rows.caveats, off.to_numpy(), "whole_time_contradicts_phases")
    possible = rows.ttft_ms.to_numpy() / 1e3 >= _least_prompt_s(rows)
    rows = reading.keep(rows, possible, "prompt phase faster than the boards' peak FLOP/s: it cannot have run whole")
    reading.add("generation", rows)
    return reading


def _least_prompt_s(rows: pandas.DataFrame) -> np.ndarray:
    """Seconds that the matrix products of all prompts take at peak; the models are dense."""
    models = {name: language_model(name) for name in rows.model.unique()}
    layers = rows.model.map({name: m.active_parameters - m.hidden * m.vocabulary for name, m in models.items()})
    peak = rows.device.map({name: device(name).peak("fp16") for name in rows.device.unique()})
    return np.asarray(2.0 * layers * rows.batch * rows.input_tokens / (peak * rows.n_devices))
