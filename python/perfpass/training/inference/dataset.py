"""The vision records as arrays: one feature row, one time and the group keys per measurement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import Device, device
from perfpass.predictors.inference.features import GraphSums, features, fingerprint, graph_sums
from perfpass.predictors.roofline import Workload, software_index

if TYPE_CHECKING:
    from perfpass.records.tables import RecordedTable

# torchvision's runs do not state their torch; the sources' dates say 1.0 to 1.7.
_UNSTATED_TORCH = "1.7"


@dataclass(frozen=True)
class Dataset:
    """N records. ``rows`` is the pandas table, ``latency_s`` [N] measured, ``fingerprints`` [N, P]."""

    rows: Any
    tables: list[Any]
    workloads: list[Workload]
    devices: dict[str, Device]
    latency_s: np.ndarray
    fingerprints: np.ndarray
    byte_scale: np.ndarray
    missing: int

    def __len__(self) -> int:
        return len(self.latency_s)

    @cached_property
    def sums(self) -> GraphSums:
        """What no efficiency changes, stacked [N]; the features of any efficiencies follow in a second."""
        rows = zip(self.tables, self.workloads, self.rows.device, self.byte_scale, strict=True)
        return GraphSums.stacked([graph_sums(t, self.devices[d], w, scale) for t, w, d, scale in rows])

    @cached_property
    def software(self) -> np.ndarray:
        """[N] row of SOFTWARE that applies."""
        names = zip(self.rows.device, self.workloads, strict=True)
        return np.array([software_index(self.devices[name], workload) for name, workload in names])

    def features(self, efficiency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[N, F] float32 and the roofline time with learned efficiencies, [N] seconds."""
        return features(self.sums, efficiency[self.software])


def _copied_bytes(row: Any, table: RecordedTable) -> float:
    """Bytes of the input, in the network's own type, that the timed region copies from the host."""
    width = {"fp64": 8, "fp32": 4}.get(row.precision, 2)
    copied = row.timing != "device_only"
    return table.statics["input_elements_per_sample"] * row.batch * width if copied else 0.0


def load(folder: Path | str | None = None) -> Dataset:
    """The inference records on one device that have an operator table (data/records, data/graphs). Raises FileError."""
    from perfpass.records import tables, vision

    root = Path(folder) if folder else None
    rows = vision.load(root / "records" / "vision.parquet" if root else None)
    known = tables.load(root / "graphs" if root else None)
    rows = rows[(rows["mode"] == "inference") & (rows.n_devices == 1)]
    has_table = np.array([key in known for key in zip(rows.source, rows.model, rows.img_size, strict=True)])
    missing = int((~has_table).sum())
    rows = rows[has_table].reset_index(drop=True)
    found, workloads, prints, scale = [], [], [], []
    seen: dict[tuple[Any, ...], tuple[Any, np.ndarray]] = {}
    for row in rows.itertuples():
        bits = 32 if row.precision in ("fp32", "fp64") else 16
        key = (row.source, row.model, row.img_size, row.batch, bits)
        if key not in seen:
            table = known.table(row.source, row.model, row.img_size, row.batch, bits)
            seen[key] = table, fingerprint(table, row.batch)
        found.append(seen[key][0])
        prints.append(seen[key][1])
        scale.append(2.0 if row.precision == "fp64" else 1.0)
        workloads.append(
            Workload(
                row.batch,
                row.precision,
                row.runtime,
                row.layout,
                row.runtime_version or _UNSTATED_TORCH,
                _copied_bytes(row, seen[key][0]),
            )
        )
    return Dataset(
        rows,
        found,
        workloads,
        {name: device(name) for name in rows.device.unique()},
        rows.latency_ms.to_numpy(np.float64) * 1e-3,
        np.stack(prints),
        np.array(scale),
        missing,
    )
