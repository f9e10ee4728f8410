"""ParvaGPU (SC24): inference in MIG instances of an A100 80 GB, shared by 1 to 5 MPS processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

FOLDER = "parvagpu"
_ROUNDING_S = 0.0005  # the source's latency has whole milliseconds
_SLACK = 0.1
# The names of torchvision; BERT is BERT-large at 128 tokens.
MODELS = {"inceptionv3": "inception_v3", "mobilenetv2": "mobilenet_v2", "bert": "bert-large"}


def read(shared: Path) -> Reading:
    """Every row as a record of kind ``mig``; ``latency_ms`` is batch over the throughput of one process.

    Rows that did not run (V1) say so and have no metric. The throughput is finer than the latency's milliseconds (V3);
    rows in which the two contradict each other by more than that rounding and a tenth are refused.
    """
    reading = Reading("parvagpu")
    table = table_of(shared, FOLDER, "mig_inference.csv")
    ran = table.ran.to_numpy(bool)
    seconds = np.where(ran, table.batch_size / table.throughput_per_process_samples_s.where(ran, 1.0), np.nan)
    off = np.abs(seconds - table.latency_s) > _ROUNDING_S + _SLACK * table.latency_s
    rows = table.assign(
        licence="MIT",
        run="prof_data",
        device="A100-SXM4-80GB",
        n_devices=1,
        runtime="torch",
        precision="fp32",
        mode="inference",
        batch=table.batch_size,
        timing="includes_h2d_copy",
        caveats="unsynchronised,precision_not_stated,form_factor_not_stated",
        latency_ms=seconds * 1e3,
        throughput_per_s=np.where(ran, table.throughput_per_process_samples_s * table.n_mps_processes, np.nan),
        model=table.model.replace(MODELS),
        processes=table.n_mps_processes,
        fits=ran,
    )
    columns = (
        *("licence", "run", "device", "n_devices", "mig_profile", "runtime", "precision", "mode", "batch", "timing"),
        *("caveats", "latency_ms", "throughput_per_s", "model", "processes", "fits"),
    )
    rows = reading.keep(rows, ~(ran & off), "throughput and latency contradict each other")
    reading.add("mig", rows[list(columns)])
    return reading
