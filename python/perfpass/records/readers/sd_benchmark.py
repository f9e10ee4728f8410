"""vladmandic/sd-extension-system-info: Stable Diffusion as users run it, 20 steps at 512 pixels, on 100 boards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

if TYPE_CHECKING:
    import pandas

_STEPS = 20
_UNNAMED = ("AMD Radeon Graphics", "NVIDIA Graphics Device", "AMD Radeon RX Vega")
_FAMILIES = {"sd1.5 or unknown": "stable-diffusion-1.5", "sd2 (by name)": "stable-diffusion-2"}
_POINT = ("device", "version", "precision", "autocast", "attention_and_optimisations", "model_family", "batch_size")
# One name, boards of two sizes of memory: least gigabytes of the larger, its name and the smaller's.
_SIZES = {"NVIDIA GeForce RTX 3060": (10, "rtx-3060-12gb", "rtx-3060-8gb")}


def read(shared: Path) -> Reading:
    """Records of kind ``network``: the median over the users' runs of a point, with 10th and 90th percentile (B1)."""
    reading = Reading("sd_benchmark")
    table = table_of(shared, "vladmandic_sd_benchmark", "sd_benchmark_2023_02_to_04.parquet")
    table = reading.keep(table, table.throughput_its_per_s.notna(), "ended with an error, or without a rate")
    table = reading.keep(table, ~table.device.isin(_UNNAMED), "the board is not named")
    late = table.model_family.str.startswith("sdxl")
    table = reading.keep(table, ~late, "named after a network that was not yet released").reset_index(drop=True)
    version = table.torch_version.str.extract(r"^(\d+\.\d+)")[0]
    table = table.assign(
        version=version.fillna(""),
        precision=table.precision.fillna(""),
        device=_sized(table),
        latency_ms=_STEPS * table.latency_per_step_ms,
    )
    groups = table.groupby(list(_POINT), sort=True)
    points = groups.agg(
        latency=("latency_ms", "median"),
        low=("latency_ms", lambda v: v.quantile(0.1)),
        high=("latency_ms", lambda v: v.quantile(0.9)),
        n=("latency_ms", "size"),
        reported=("device_as_reported", "first"),
        source_file=("source_file", "first"),
    ).reset_index()
    reading.refused["repeats a measurement; the median is kept"] += len(table) - len(points)
    full = (points.precision == "fp32").to_numpy()
    several = (points.n > 1).to_numpy()
    rows = points[["device"]].assign(
        model=points.model_family,
        device_as_reported=points.reported,
        licence="MIT",
        run=points.source_file + ":" + points.index.astype(str),
        network=points.model_family.map(_FAMILIES),
        domain="image generation",
        task="text to image",
        runtime="torch",
        runtime_version=points.version,
        variant=points.attention_and_optimisations,
        precision=points.precision.mask(full & points.autocast.to_numpy(bool), "amp"),
        precision_from=np.where(points.precision == "", "unknown", "stated"),
        batch=points.batch_size,
        img_height=512,
        img_width=512,
        steps=_STEPS,
        timing="text encoder, all steps and decoder, in a user's application",
        percentile="over_throughput",
        latency_ms=points.latency,
        latency_p10_ms=points.low.where(several),
        latency_p90_ms=points.high.where(several),
        n_samples=points.n,
        throughput_per_s=points.batch_size / points.latency * 1e3,
        throughput_unit="images",
        software_year=2023,
        year_from="stated",
        caveats="reported_by_users,network_by_its_file_name",
    )
    networks.caveat_where(rows, ~several, "one_user")
    networks.caveat_where(rows, rows.variant.str.contains("medvram|lowvram"), "parts_moved_to_the_host")
    networks.add(reading, rows)
    return reading


def _sized(table: pandas.DataFrame) -> pandas.Series:
    """Names of boards that were sold with two sizes of memory, by the size that the user's driver reports."""
    gigabytes = table.vram_gb.astype(float)
    device = table.device
    for name, (least, large, small) in _SIZES.items():
        here = table.device == name
        device = device.mask(here & (gigabytes >= least), large).mask(here & (gigabytes < least), small)
    return device
