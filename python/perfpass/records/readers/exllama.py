"""turboderp's exllama and exllamav2: GPTQ and EXL2 weights on consumer boards, one sequence."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import language_models, networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

# The first Llama has the layers of the second at 7 and 13 x 10^9 parameters.
NETWORKS = {
    "Llama 7B": "llama-2-7b",
    "Llama2 7B": "llama-2-7b",
    "Llama 13B": "llama-2-13b",
    "Koala 13B": "llama-2-13b",
    "Llama 33B": "huggyllama/llama-30b",
    "WizardLM 33B": "huggyllama/llama-30b",
    "Llama 65B": "huggyllama/llama-65b",
    "Llama-2 70B": "llama-2-70b",
    "Llama2 70B": "llama-2-70b",
    "OpenLlama 3B": "openlm-research/open_llama_3b",
    "CodeLlama 34B": "codellama-34b",
    "TinyLlama 1.1B": "tinyllama-1.1b",
}
# exllamav2 does not say the bits of its GPTQ files; the older page's are 4.
_NO_BITS = "GPTQ g128"


def read(shared: Path) -> Reading:
    """Records of kind ``generation``: rate of a prompt, of tokens after a short one and after a full context."""
    reading = Reading("exllama")
    table = table_of(shared, "exllama", "consumer_decode.csv")
    prefill = (table.phase == "prefill").to_numpy()
    exl2 = table.quantisation.str.startswith("EXL2")
    full = table.phase.str.contains("full context")
    short = table.phase.str.contains("short context")
    rows = table[["model", "device"]].assign(
        device_as_reported=table.device,
        licence="MIT",
        run=table.repo + ":" + table.source_file + ":" + table.index.astype(str),
        network=table.model.map(NETWORKS),
        n_devices=table.n_gpus,
        runtime=table.framework,
        precision="int4",
        precision_from=np.where(table.quantisation == _NO_BITS, "inferred", "stated"),
        quantization=table.quantisation + table.act_order.map({"yes": ", act-order"}).fillna(""),
        mode=np.where(prefill, "prefill", "decode"),
        batch=1,
        timing=np.where(prefill, "the prompt alone", "output tokens alone"),
        variant=table.phase.where(~prefill, ""),
        software_year=2023,
        year_from="inferred",
        input_tokens=table.context_tokens.where(prefill),
        context_tokens=table.context_tokens.where(full).fillna(-1).mask(short, 0),
        tensor_parallel=1,
        pipeline_parallel=table.n_gpus,
        throughput_per_s=table.throughput_tok_per_s,
        throughput_unit=np.where(prefill, "prompt tokens", "output tokens"),
        tpot_ms=np.where(prefill, np.nan, 1e3 / table.throughput_tok_per_s),
        peak_memory_bytes=table.memory_mib * 2.0**20,
        memory_kind=np.where(table.memory_mib.notna(), "reported", ""),
        caveats="",
    )
    rows["precision"] = rows.precision.mask(exl2, "exl2-" + table.quantisation.str.extract(r" ([\d.]+) bpw")[0])
    networks.caveat_where(rows, prefill | full, "prompt_may_be_shorter_than_the_context")
    networks.caveat_where(rows, ~prefill & ~full & ~short, "context_not_stated")
    networks.caveat_where(rows, table.n_gpus > 1, "two_kinds_of_device,memory_of_all_devices")
    language_models.add(reading, rows)
    return reading
