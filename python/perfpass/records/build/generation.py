"""python -m perfpass.records.build.generation SOURCES: the tables of generation, training power and server power.

Writes data/records/generation.parquet (argonne, mlenergy, splitwise), training_power.parquet (zeus),
serving_load.parquet (ibm_llm_pilot) and server_power.parquet (mlperf, rows with power); and of laboratories that
nothing is trained on, generation_outside.parquet and serving_outside.parquet; speculation.parquet (spec_bench); and
llm_training.parquet, language models trained on one to many devices.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

from perfpass.records import corpus, schema
from perfpass.records.location import data_directory

OUTSIDE = (
    "strix_halo",
    "exllama",
    "tensorrt_llm",
    "lmdeploy",
    "ktransformers",
    "serving_misc",
    "optimum_benchmark",
    "qualcomm_ai_hub",
    "fastertransformer",
    "megatron_lm",
)
TRAINING = (
    "megatron_training",
    "megatron_bridge",
    "nemo",
    "internevo",
    "bigscience",
    "tpu_training",
    "training_pages",
)
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "generation": ("generation", ("argonne", "mlenergy", "splitwise")),
    "training_power": ("training", ("zeus",)),
    "serving_load": ("serving", ("ibm_llm_pilot",)),
    "server_power": ("system", ("mlperf",)),
    "generation_outside": ("generation", OUTSIDE),
    "serving_outside": ("serving", ("tensorrt_llm",)),
    "speculation": ("speculation", ("spec_bench",)),
    "llm_training": ("llm_training", TRAINING),
}


def build(sources: Path | str, folder: Path | None = None, only: Collection[str] | None = None) -> list[Path]:
    """Read the public tables below ``sources`` and write the distilled ones to ``folder`` (default: data/records).

    ``only``: names of TABLES, else all.
    """
    import pandas

    target = folder or data_directory() / "records"
    written = []
    for name, (kind, readers) in TABLES.items():
        if only is not None and name not in only:
            continue
        tables = [reading.tables[kind] for _, reading in corpus.read(sources, readers)]
        table = schema.with_all_columns(kind, pandas.concat(tables, ignore_index=True))
        if name == "server_power":
            table = table[table.power_w.notna() | table.energy_j.notna()].reset_index(drop=True)
        path = target / f"{name}.parquet"
        schema.write(path, kind, table)
        written.append(path)
        print(f"{path.name}: {len(table):,} records, {path.stat().st_size:,} bytes")
    return written


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m perfpass.records.build.generation SOURCES [TABLE ...]")
    build(sys.argv[1], only=sys.argv[2:] or None)
