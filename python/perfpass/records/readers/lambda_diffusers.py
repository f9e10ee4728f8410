"""LambdaLabsML/lambda-diffusers: the Stable Diffusion 1 pipeline in eager diffusers, by batch, with memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

_STEPS = 30


def read(shared: Path) -> Reading:
    """Records of kind ``network``.

    Steps are the 30 of the repository's Makefile, not the 50 of the script's default: its page on this table has 1.85
    images a second for 128 on an A100 at 30, which is the table's time. The script divides
    ``torch.cuda.memory_reserved()`` by 10^9 (B10).
    """
    reading = Reading("lambda_diffusers")
    table = table_of(shared, "lambda_diffusers", "sd_v1_benchmark.csv")
    table = reading.keep(table, table.latency_ms.notna(), "did not fit").reset_index(drop=True)
    slices = table.device.str.extract(r"^(?P<board>.*?)(?: MIG (?P<profile>\S+))?$")
    half = table.precision == "half"
    rows = table[["model", "device_as_reported"]].assign(
        device=slices.board,
        mig_profile=slices.profile.fillna(""),
        licence="MIT",
        run=table.repo + ":" + table.source_file + ":" + table.index.astype(str),
        network="stable-diffusion-1.5",
        domain="image generation",
        task="text to image",
        runtime="torch",
        variant="diffusers" + table.xformers.map({True: "; xformers", False: ""}),
        precision=np.where(half, "fp16", "fp32"),
        precision_from="stated",
        batch=table.batch_size,
        img_height=table.image_size,
        img_width=table.image_size,
        steps=_STEPS,
        timing="text encoder, all steps and decoder",
        percentile="reported",
        latency_ms=table.latency_ms,
        peak_memory_bytes=table.memory_as_reported * 1e9,
        memory_kind="reserved",
        software_year=2022,
        year_from="inferred",
        caveats="",
    )
    networks.add(reading, rows)
    return reading
