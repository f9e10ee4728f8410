"""`python -m perfpass.records.build.kernels SOURCES [DIR]`: the repository's kernel records, from their sources."""

from __future__ import annotations

import sys
from pathlib import Path

from perfpass.records import corpus, schema
from perfpass.records.location import data_directory
from perfpass.records.readers import aiconfigurator_kernels, neusight, node_collectives

SOURCES = {
    "aiconfigurator_kernels": aiconfigurator_kernels,
    "neusight": neusight,
    "node_collectives": node_collectives,
}

FILES = {
    "gemm": "kernels_gemm",
    "attention": "kernels_attention",
    "moe": "kernels_moe",
    "collective": "kernels_collective",
    "operator": "operators_fp32",
    "network_collective": "collectives_between_nodes",
}


def build(shared: Path, folder: Path) -> None:
    """Read the sources and write one table per kind; refusals are printed. Raises FileError."""
    for name, reader in SOURCES.items():
        reading = reader.read(shared)
        print(corpus.text(name, corpus.summary(reading)))
        for kind, table in reading.tables.items():
            if kind == "operator":
                table = table.sort_values(["operator", "split", "dimensions", "device"], ignore_index=True)
            schema.write(folder / f"{FILES[kind]}.parquet", kind, table)


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else data_directory() / "records")
