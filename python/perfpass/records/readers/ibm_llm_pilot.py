"""IBM/LLM-performance-prediction: an inference server under closed-loop load of 1 to 128 users."""

from __future__ import annotations

from pathlib import Path

from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of

# The source's GPU table: the A100 is the 40 GB card, the V100 has 16 GB.
DEVICES = {"A10": "a10", "A100": "a100-sxm4-40gb", "T4": "t4", "V100": "v100-sxm2-16gb"}


def read(shared: Path) -> Reading:
    """Records of kind ``serving``: median time to the first token and between tokens, tokens per second."""
    import pandas

    reading = Reading("ibm_llm_pilot")
    table = table_of(shared, "ibm_llm_pilot", "runs.csv")
    rows = pandas.DataFrame(
        {
            "licence": "CDLA-Permissive-2.0",
            "run": table.source_file,
            "device": table.gpu.map(DEVICES),
            "n_devices": table.n_gpus,
            "runtime": "tgis",
            "precision": "fp16",
            "mode": "serving",
            "batch": -1,
            "timing": "median over the requests of 120 s",
            "model": table.model,
            "family": table.model.str.split("/").str[0],
            "input_tokens": table.n_input_tokens_mean.round().astype(int),
            "output_tokens": table.n_output_tokens_mean.round().astype(int),
            "concurrency": table.num_users,
            "tensor_parallel": table.n_gpus,
            "pipeline_parallel": 1,
            "queue_ms": table.queue_p50_ms,
            "latency_ms": table.latency_p50_ms,
            "latency_p90_ms": table.latency_p90_ms,
            "ttft_ms": table.ttft_p50_ms,
            "tpot_ms": table.itl_p50_ms,
            "throughput_per_s": table.throughput_tok_s,
            "n_samples": table.n_ok,
            "caveats": "precision_not_stated",
        }
    )
    # I1: only successful requests are aggregated, and TTFT leaves the queue out.
    rows["caveats"] = add_caveat(rows.caveats, (table.n_ok < table.n_requests).to_numpy(), "some_requests_failed")
    lost = (table.n_ok < 0.5 * table.n_requests).to_numpy()
    rows = reading.keep(rows, ~lost, "more than half of the requests failed")
    reading.add("serving", rows)
    return reading
