"""Allocations of recorded programs as functions of the batch size: data/graphs/memory_events.parquet.

Every size in a recording is affine in the batch, and the order of events does not depend on it, so one table serves all
batch sizes. Columns: ``program``, ``block``, ``use`` (index into `perfpass.graph.allocators.USES`), ``bytes`` at
batch 0 (-1 where the event frees) and ``bytes_per_sample``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.errors import FormatError, UnsupportedError
from perfpass.graph.allocators import FREE, Events
from perfpass.records.parquet import read_frame
from perfpass.whole_file import replacing

if TYPE_CHECKING:
    from perfpass.importers.torch_memory import Recorded

FILE = "memory_events.parquet"
# Batch sizes that are traced: two give the lines, the third checks them.
_BATCHES = (4, 6, 9)


@dataclass(frozen=True, eq=False)
class Program:
    """A recorded program: [E] columns, sizes as ``bytes + bytes_per_sample * batch``."""

    block: np.ndarray
    use: np.ndarray
    bytes: np.ndarray
    bytes_per_sample: np.ndarray

    def at(self, batch: int) -> Events:
        """Its events at a batch size."""
        size = np.where(self.bytes == FREE, FREE, self.bytes + self.bytes_per_sample * batch)
        return Events(self.block, size, self.use)


def fit(run: Callable[[int], Recorded]) -> Program:
    """The program that ``run`` records at a batch size.

    Raises UnsupportedError where the order of events or a size is not what a line through two batch sizes says.
    """
    first, second, check = (run(batch).events for batch in _BATCHES)
    if not (np.array_equal(first.block, second.block) and np.array_equal(first.block, check.block)):
        raise UnsupportedError("the order of allocations depends on the batch size")
    makes = first.bytes != FREE
    slope = np.where(makes, (second.bytes - first.bytes) // (_BATCHES[1] - _BATCHES[0]), 0)
    intercept = np.where(makes, first.bytes - slope * _BATCHES[0], FREE)
    # A size below 0 at batch 0 would read as a free; no recorded size falls below what two samples take.
    program = Program(first.block, first.use, intercept, slope)
    if (intercept[makes] < 0).any() or not np.array_equal(program.at(_BATCHES[2]).bytes, check.bytes):
        raise UnsupportedError("a size is no line in the batch size")
    return program


def write(path: Path, programs: Mapping[str, Program]) -> None:
    """Write the table. Blocks stand as differences, which compress well."""
    import pandas

    tables = [
        pandas.DataFrame(
            {
                "program": name,
                "block": np.diff(p.block, prepend=0).astype(np.int32),
                "use": p.use,
                "bytes": p.bytes,
                "bytes_per_sample": p.bytes_per_sample,
            }
        )
        for name, p in programs.items()
    ]
    with replacing(path) as file:
        pandas.concat(tables).to_parquet(file, index=False, compression="zstd", compression_level=19)


def read(path: Path) -> dict[str, Program]:
    """All programs of a table. Raises FormatError for another file."""
    try:
        table = read_frame(path, "a table of recorded allocations")
        return {
            str(name): Program(
                np.cumsum(part.block.to_numpy(), dtype=np.int32),
                part.use.to_numpy(np.uint8),
                part.bytes.to_numpy(np.int64),
                part.bytes_per_sample.to_numpy(np.int64),
            )
            for name, part in table.groupby("program", sort=True)
        }
    except (OSError, ValueError, AttributeError) as error:
        raise FormatError(f"{path}: no table of recorded allocations ({str(error).splitlines()[0]})") from error
