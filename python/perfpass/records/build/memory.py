"""Makes data/records/training_memory.parquet and data/graphs/memory_events.parquet.

    python -m perfpass.records.build.memory SHARED_DATA [PROGRAM ...]

With names of benchmarks, only their programs are recorded anew and the others stay: the measured versions of
transformers (4.44 to 4.48) need an environment of their own.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path

from perfpass.records import schema
from perfpass.records.build import memory_benches, memory_events
from perfpass.records.location import data_directory


def same_program(bench: str) -> str:
    """The first benchmark that runs the same program; precision tf32 allocates what fp32 does."""

    def key(name: str) -> tuple[object, ...]:
        b = memory_benches.BENCHES[name]
        precision = "fp32" if b.precision == "tf32" else b.precision
        return (b.model, precision, b.optimizer, b.zero_grad, b.loop, b.copies, b.half_inputs)

    return next(name for name in memory_benches.BENCHES if key(name) == key(bench))


def main(arguments: list[str]) -> None:
    """Read the records, record the programs."""
    from perfpass.records.readers import milabench

    shared, names = Path(arguments[0]), arguments[1:]
    folder = data_directory()
    reading = milabench.read(shared)
    schema.write(folder / "records" / "training_memory.parquet", "training", reading.tables["training"])
    for reason, rows in reading.refused.items():
        print(f"refused {rows}: {reason}")
    path = folder / "graphs" / memory_events.FILE
    programs = memory_events.read(path) if path.is_file() else {}
    wanted = names or sorted({same_program(b) for b in memory_benches.BENCHES})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in wanted:
            programs[name] = memory_events.fit(partial(memory_benches.recorded, name))
            print(f"{name}: {len(programs[name].block)} events")
    memory_events.write(path, dict(sorted(programs.items())))


if __name__ == "__main__":
    main(sys.argv[1:])
