"""The rows that memory is learned from and judged on, with the simulated allocator beside each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.graph import allocators
from perfpass.predictors.memory import predictor
from perfpass.predictors.memory.predictor import kind
from perfpass.records import schema
from perfpass.records.build import memory_benches, memory_events
from perfpass.records.build.memory import same_program
from perfpass.records.location import data_directory

if TYPE_CHECKING:
    from perfpass.devices import Device

# Convolutions and other products with weights of each network, as its modules are counted (`recorded.recorded`).
LAYERS = {
    "resnet50": (53, 1),
    "resnet152": (155, 1),
    "convnext_large": (40, 73),
    "regnet_y_128gf": (140, 1),
    "focalnet_base_lrf": (196, 1),
    "bert": (0, 74),
    "t5": (0, 97),
    "reformer": (0, 34),
    "whisper": (2, 26),
}


def convolves(network: str, on: Device) -> bool:
    """Whether a network of `LAYERS` is one of convolutions on a device, by the rule of predictions."""
    return predictor.convolves(on, *LAYERS[network])


@dataclass(frozen=True, eq=False)
class Rows:
    """[N] columns; bytes. ``by_use`` [N, 6]: live at the allocated peak."""

    bench: np.ndarray
    family: np.ndarray
    device: np.ndarray
    kind: np.ndarray
    batch: np.ndarray
    measured: np.ndarray
    reserved: np.ndarray
    allocated: np.ndarray
    by_use: np.ndarray
    inferred: np.ndarray

    def __len__(self) -> int:
        return len(self.measured)

    @property
    def activations(self) -> np.ndarray:
        """[N] bytes live at the peak."""
        return np.asarray(self.by_use[:, allocators.USES.index("activations")])

    def take(self, index: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def bench_of(model: str, precision: str) -> str:
    """The benchmark of a record."""
    named = f"{model}-{'fp16' if precision == 'amp' else precision}"
    return named if named in memory_benches.BENCHES else model


def load(folder: Path | None = None) -> tuple[Rows, Rows]:
    """Rows of benchmarks whose program is recorded, and of the others (no simulation: ``reserved`` is 0)."""
    base = Path(folder) if folder else data_directory()
    table = schema.read(base / "records" / "training_memory.parquet", "training")
    table = table[table.listed & table.peak_memory_bytes.notna()].reset_index(drop=True)
    programs = memory_events.read(base / "graphs" / memory_events.FILE)
    bench = np.array([bench_of(m, p) for m, p in zip(table.model, table.precision, strict=True)], dtype=object)
    known = np.array([b in memory_benches.BENCHES for b in bench])
    reports: dict[tuple[str, int], allocators.Report] = {}
    columns: dict[str, list[object]] = {name: [] for name in Rows.__dataclass_fields__}
    for i, name in enumerate(bench):
        batch = int(table.batch[i])
        on = device(table.device[i])
        family, inferred, report = name, False, None
        convolutional = False
        if known[i]:
            program = same_program(name)
            if (program, batch) not in reports:
                reports[program, batch] = allocators.caching(programs[program].at(batch))
            report = reports[program, batch]
            family, inferred = memory_benches.family(name), bool(memory_benches.BENCHES[name].inferred)
            convolutional = convolves(family, on)
        values = (
            name,
            family,
            on.id,
            kind(on, convolutional),
            batch,
            float(table.peak_memory_bytes[i]),
            float(report.peak_reserved if report else 0),
            float(report.peak_allocated if report else 0),
            list(report.by_use.values()) if report else [0] * len(allocators.USES),
            inferred,
        )
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    rows = Rows(*(np.array(v) for v in columns.values()))
    return rows.take(np.flatnonzero(known)), rows.take(np.flatnonzero(~known))
