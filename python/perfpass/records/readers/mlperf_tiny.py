"""MLCommons' Tiny benchmark 1.2: four small networks on microcontrollers, one inference at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.records import networks
from perfpass.records.schema import Reading
from perfpass.records.sources import table_of

_TASKS = {
    "ad": ("science", "anomaly detection"),
    "ic": ("vision", "image classification"),
    "kws": ("speech", "keyword spotting"),
    "vww": ("vision", "person detection"),
}
_PIXELS = {"ic": 32, "vww": 96}


def read(shared: Path) -> Reading:
    """Records of kind ``network``: time of one inference, its energy where the submitter measured it."""
    reading = Reading("mlperf_tiny")
    table = table_of(shared, "mlperf_tiny_v1_2", "results.csv")
    side = table.task.map(_PIXELS).fillna(-1)
    number = table.device.str.extract(r"\b(int8|float)\b")[0]
    rows = table[["model", "device", "device_as_reported"]].assign(
        licence="Apache-2.0",
        run=table.repo + ":" + table.source_file,
        network="mlperf-tiny-" + table.task,
        domain=table.task.map(lambda t: _TASKS[t][0]),
        task=table.task.map(lambda t: _TASKS[t][1]),
        runtime="of the submitter",
        variant=table.submitter,
        precision=number.map({"int8": "int8", "float": "fp32"}).fillna(""),
        precision_from=np.where(number.isna(), "unknown", "inferred"),
        batch=1,
        img_height=side,
        img_width=side,
        timing="one inference, median of the windows",
        percentile="over_throughput",
        latency_ms=table.latency_ms,
        throughput_per_s=table.throughput_samples_per_s,
        throughput_unit="samples",
        energy_j=table.energy_j,
        power_w=table.power_w,
        software_year=2024,
        year_from="inferred",
        caveats="",
    )
    networks.caveat_where(rows, table.energy_j.notna(), "energy_of_another_run")
    networks.add(reading, rows)
    return reading
