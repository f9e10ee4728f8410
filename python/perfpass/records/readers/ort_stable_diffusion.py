"""microsoft/onnxruntime: the Stable Diffusion 1.5 pipeline in ONNX Runtime, PyTorch and TensorRT, with memory."""

from __future__ import annotations

from pathlib import Path

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of


def read(shared: Path) -> Reading:
    """Records of kind ``network``: the whole pipeline of 50 steps; memory in use in the second run (S2).

    Diffusers takes PyTorch's fused attention from PyTorch 2 on.
    """
    reading = Reading("ort_stable_diffusion")
    table = table_of(shared, "onnxruntime", "stable_diffusion_v1_5.csv")
    compiled = table.provider.str.lower().str.contains("compile") & (table.runtime == "torch")
    fused = (table.runtime == "torch") & table.runtime_version.str.startswith("2.")
    years = [networks.year_of(r, v) for r, v in zip(table.runtime, table.runtime_version, strict=True)]
    rows = table[["model", "device", "device_as_reported", "runtime_version"]].assign(
        licence="MIT",
        run=table.source_file + "@" + table.commit + ":" + table.index.astype(str),
        network="stable-diffusion-1.5",
        domain="image generation",
        task="text to image",
        runtime=table.runtime.mask(compiled, "torch.compile"),
        variant=table.provider + fused.map({True: "; sdp", False: ""}),
        precision=table.precision,
        precision_from="inferred",
        batch=table.batch_size,
        img_height=table.image_size,
        img_width=table.image_size,
        steps=table.denoising_steps,
        timing="text encoder, all steps and decoder; mean of five batches",
        percentile="mean",
        latency_ms=table.latency_ms,
        throughput_per_s=table.images_per_s,
        throughput_unit="images",
        peak_memory_bytes=table.second_run_memory_mib * 2.0**20,
        memory_kind="in_use",
        first_run_bytes=table.first_run_memory_mib * 2.0**20,
        software_year=years,
        year_from=["inferred" if year > 0 else "unknown" for year in years],
        caveats="resolution_of_100_ms,typed_in_by_hand",
    )
    networks.caveat_where(rows, table.device_as_reported.str.contains("locked"), "clock_locked_at_990_mhz")
    networks.add(reading, rows)
    return reading
