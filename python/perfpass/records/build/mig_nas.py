"""Makes data/records/mig.parquet and data/records/nas.parquet from the public tables:

python -m perfpass.records.build.mig_nas SOURCES [--data data]
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from perfpass.records import corpus, schema
from perfpass.records.readers import help_nas, parvagpu

# Networks of each search space that are kept, those of least SHA-256; all devices and batch sizes of each.
KEPT = 300


def main() -> None:
    """Writes both tables and prints what was read and refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, help="folder that holds the sources' folders")
    parser.add_argument("--data", type=Path, default=Path("data"), help="where to write (default: data)")
    options = parser.parse_args()
    mig, nas = parvagpu.read(options.sources), help_nas.read(options.sources)
    for name, reading in (("parvagpu", mig), ("help_nas", nas)):
        print(corpus.text(name, corpus.summary(reading)))
    folder = options.data / "records"
    schema.write(folder / "mig.parquet", "mig", mig.tables["mig"])
    table = nas.tables["nas"]
    kept = []
    for space in sorted(table.space.unique()):
        names = table.model[table.space == space].unique()
        ordered = sorted(names, key=lambda n: hashlib.sha256(f"{space} {n}".encode()).hexdigest())
        kept.append(table[(table.space == space) & table.model.isin(ordered[:KEPT])])
    import pandas

    sample = pandas.concat(kept, ignore_index=True)
    schema.write(folder / "nas.parquet", "nas", sample)
    print(f"kept {len(sample):,} records of {KEPT} networks of each space")


if __name__ == "__main__":
    main()
