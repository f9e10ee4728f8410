"""LambdaLabsML/lambda-diffusers: the Stable Diffusion 1 pipeline in eager diffusers, by batch, with memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of


def read(shared: Path) -> Reading:
    """Records of kind ``network``; what of the memory is reported, the source does not say (B10)."""
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
        steps=table.denoising_steps,
        timing="text encoder, all steps and decoder",
        percentile="reported",
        latency_ms=table.latency_ms,
        peak_memory_bytes=table.memory_mib * 2.0**20,
        memory_kind="reported",
        software_year=2022,
        year_from="inferred",
        caveats="steps_of_the_script,unit_of_gb_not_stated",
    )
    networks.add(reading, rows)
    return reading
