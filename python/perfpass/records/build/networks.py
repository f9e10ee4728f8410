"""python -m perfpass.records.build.networks SOURCES: whole networks of other laboratories.

Writes data/records/networks.parquet, the records of kind ``network`` of `READERS`, and prints what each refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from perfpass.records import corpus, schema
from perfpass.records.location import data_directory
from perfpass.records.networks import KIND

READERS = (
    "demobert",
    "fastertransformer",
    "deeplearningexamples",
    "bytetransformer",
    "kernl",
    "lightseq",
    "optimum_benchmark",
    "ort_stable_diffusion",
    "paddle_zoo",
    "mmdeploy",
    "openmmlab",
    "detectron2",
    "vision_pages",
    "co2_inference",
    "lambda_diffusers",
    "sd_benchmark",
    "qualcomm_ai_hub",
    "mlperf_tiny",
    "llm_training",
)


def build(sources: Path | str, folder: Path | None = None) -> Path:
    """Read the public tables below ``sources`` and write the table to ``folder`` (default: data/records)."""
    import pandas

    tables = []
    for name, reading in corpus.read(sources, READERS):
        tables.append(reading.tables[KIND])
        print(corpus.text(name, corpus.summary(reading)))
    table = schema.with_all_columns(KIND, pandas.concat(tables, ignore_index=True))
    path = (folder or data_directory() / "records") / "networks.parquet"
    schema.write(path, KIND, table)
    print(f"{path.name}: {len(table):,} records, {path.stat().st_size:,} bytes")
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m perfpass.records.build.networks SOURCES")
    build(sys.argv[1])
