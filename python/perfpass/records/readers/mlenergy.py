"""ml-energy/leaderboard-v2: energy of language and diffusion models, read with Zeus; and its first edition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfpass.records.schema import Reading
from perfpass.records.sources import add_caveat, table_of

if TYPE_CHECKING:
    import pandas

FOLDER = "mlenergy_leaderboard_v2"
LICENCE = "Apache-2.0"


def read(shared: Path) -> Reading:
    """Records of kind ``generation``: serving under load, diffusion pipelines, and batch 1 in eager PyTorch."""
    reading = Reading("mlenergy")
    reading.add("generation", _serving(table_of(shared, FOLDER, "llm.csv")))
    reading.add("generation", _diffusion(table_of(shared, FOLDER, "diffusion.csv")))
    reading.add("generation", _batch1(table_of(shared, FOLDER, "legacy_llm_batch1.csv")))
    return reading


def _serving(table: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    rows = pandas.DataFrame(
        {
            "licence": LICENCE,
            "run": "llm",
            "device": table.device,
            "n_devices": table.tensor_parallel * table.pipeline_parallel,
            "runtime": "vllm",
            "precision": "bf16",
            "mode": "serving",
            "batch": table.max_batch_size,
            "timing": "under load",
            "model": table.model,
            "family": table.model.str.split("/").str[0],
            "task": table.task,
            "output_tokens": table.avg_output_tokens.round().astype(int),
            "tensor_parallel": table.tensor_parallel,
            "pipeline_parallel": table.pipeline_parallel,
            "mean_batch": table.avg_batch_size,
            "throughput_per_s": table.throughput_tok_s,
            "tpot_ms": table.avg_tpot_s * 1e3,
            "power_w": table.avg_power_w,
            "energy_j": table.energy_per_request_j,
            "caveats": "prompt_length_not_stated",
        }
    )
    # M1: sixteen GPUs in two stages.
    rows["caveats"] = add_caveat(rows.caveats, (table.pipeline_parallel > 1).to_numpy(), "pipeline_over_two_nodes")
    return rows


def _diffusion(table: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    per_sample = table.energy_per_image_j.fillna(table.energy_per_video_j)
    return pandas.DataFrame(
        {
            "licence": LICENCE,
            "run": "diffusion",
            "device": table.device,
            "n_devices": 1,
            "runtime": "torch",
            "precision": "fp16",
            "mode": "inference",
            "batch": table.batch_size,
            "timing": "whole batch",
            "model": table.model,
            "family": table.model.str.split("/").str[0],
            "task": table.task,
            "resolution": table.resolution,
            "steps": table.denoising_steps,
            "frames": table.frames.fillna(-1).astype(int),
            "latency_ms": table.batch_latency_s * 1e3,
            "throughput_per_s": table.batch_size / table.batch_latency_s,
            "power_w": table.avg_power_w,
            "energy_j": per_sample * table.batch_size,
        }
    )


def _batch1(table: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame(
        {
            "licence": LICENCE,
            "run": "legacy_llm_batch1",
            "device": table.device,
            "n_devices": 1,
            "runtime": "torch",
            "precision": "fp16",
            "mode": "inference",
            "batch": 1,
            "timing": "one response",
            "model": table.model,
            "family": table.model.str.split("/").str[0],
            "task": table.task,
            "output_tokens": table.avg_response_tokens.round().astype(int),
            "tensor_parallel": 1,
            "pipeline_parallel": 1,
            "mean_batch": 1.0,
            "latency_ms": table.avg_latency_s * 1e3,
            "throughput_per_s": table.throughput_tok_s,
            "power_w": table.avg_power_w,
            "energy_j": table.avg_energy_per_response_j,
            # M2: averages of tokens, latency and tokens per second do not go together.
            "caveats": "averages_do_not_agree,prompt_length_not_stated",
        }
    )
