"""The training records of vision models as arrays: one derived step, one time and the group keys per measurement."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.devices import Device, device
from perfpass.graph import OPERATORS
from perfpass.graph import step as backward
from perfpass.graph.step import StepOptions, StepTable
from perfpass.graph.table import OperatorColumns
from perfpass.predictors.inference.features import fingerprint
from perfpass.predictors.roofline import Workload
from perfpass.predictors.training_step.features import StepSums, features, software_index, step_sums

# torchvision's runs do not state their torch; the sources' dates say 1.0 to 1.7.
_UNSTATED_TORCH = "1.7"
# Records of inference that the portable model learns from too; more made no difference.
INFERENCE_ROWS = 3000


@dataclass(frozen=True)
class Dataset:
    """N records. ``rows`` is the pandas table, ``step_s`` [N] measured, ``fingerprints`` [N, P]."""

    rows: Any
    forward: list[Any]
    steps: list[StepTable]
    workloads: list[Workload]
    devices: dict[str, Device]
    step_s: np.ndarray
    fingerprints: np.ndarray
    byte_scale: np.ndarray
    missing: int

    def __len__(self) -> int:
        return len(self.step_s)

    @cached_property
    def sums(self) -> StepSums:
        """What no efficiency changes, stacked [N]."""
        rows = zip(self.steps, self.workloads, self.rows.device, self.byte_scale, strict=True)
        return StepSums.stacked([step_sums(t, self.devices[d], w, scale) for t, w, d, scale in rows])

    @cached_property
    def software(self) -> np.ndarray:
        """[N] row of SOFTWARE that applies."""
        names = zip(self.rows.device, self.workloads, strict=True)
        return np.array([software_index(self.devices[name], workload) for name, workload in names])

    def features(self, efficiency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[N, F] float32 and the roofline time with learned efficiencies, [N] seconds."""
        return features(self.sums, efficiency[self.software])


def options(source: str, precision: str, optimizer: str | None = None) -> StepOptions:
    """How the steps of a source of vision records ran: both before torch 2.0, without foreach.

    timm: SGD with momentum (its benchmark's default), autocast without a gradient scaler. torchvision: no optimizer.
    """
    found = optimizer or ("momentum" if source == "timm" else "none")
    return StepOptions(
        optimizer=found,
        foreach=False,
        autocast=precision.startswith("amp"),
        zero_fill=True,
        separate_attention=True,
    )


def step_of(table: OperatorColumns, chosen: StepOptions, input_elements: float, bits: int) -> StepTable:
    """The derived step of a recorded table."""
    return backward.derive(table, chosen, input_elements=input_elements, width=bits / 8)


def load(folder: Path | str | None = None) -> Dataset:
    """The training records on one device that have an operator table (data/records, data/graphs). Raises FileError."""
    from perfpass.records import tables, vision

    root = Path(folder) if folder else None
    rows = vision.load(root / "records" / "vision.parquet" if root else None)
    known = tables.load(root / "graphs" if root else None)
    rows = rows[(rows["mode"] == "training") & (rows.n_devices == 1)]
    has_table = np.array([key in known for key in zip(rows.source, rows.model, rows.img_size, strict=True)])
    missing = int((~has_table).sum())
    rows = rows[has_table].reset_index(drop=True)
    forward, steps, workloads, prints, scale = [], [], [], [], []
    seen: dict[tuple[Any, ...], tuple[Any, StepTable, np.ndarray]] = {}
    for row in rows.itertuples():
        bits = 32 if row.precision in ("fp32", "fp64") else 16
        autocast = row.precision.startswith("amp")
        key = (row.source, row.model, row.img_size, row.batch, bits, autocast)
        if key not in seen:
            table = known.table(row.source, row.model, row.img_size, row.batch, bits)
            elements = table.statics["input_elements_per_sample"] * row.batch
            step = step_of(table, options(row.source, row.precision), elements, bits)
            seen[key] = table, step, fingerprint(table, row.batch)
        table, step, print_ = seen[key]
        forward.append(table)
        steps.append(step)
        prints.append(print_)
        scale.append(2.0 if row.precision == "fp64" else 1.0)
        width = {"fp64": 8, "fp32": 4}.get(row.precision, 2)
        copied = table.statics["input_elements_per_sample"] * row.batch * width * (row.timing != "device_only")
        workloads.append(Workload(row.batch, row.precision, row.runtime, row.layout, _UNSTATED_TORCH, copied))
    return Dataset(
        rows,
        forward,
        steps,
        workloads,
        {name: device(name) for name in rows.device.unique()},
        rows.latency_ms.to_numpy(np.float64) * 1e-3,
        np.stack(prints),
        np.array(scale),
        missing,
    )


@dataclass(frozen=True)
class Inference:
    """M records of eager inference on GPUs, as steps that end with the forward pass."""

    sums: StepSums
    software: np.ndarray
    latency_s: np.ndarray
    device: np.ndarray

    def __len__(self) -> int:
        return len(self.latency_s)


def inference(folder: Path | str | None = None, size: int = INFERENCE_ROWS) -> Inference:
    """``size`` records of inference, evenly over all in a fixed order: what devices are good at. Raises FileError."""
    from perfpass.records import tables, vision

    root = Path(folder) if folder else None
    rows = vision.load(root / "records" / "vision.parquet" if root else None)
    known = tables.load(root / "graphs" if root else None)
    rows = rows[(rows["mode"] == "inference") & (rows.runtime == "torch") & (rows.n_devices == 1)]
    rows = rows[[key in known for key in zip(rows.source, rows.model, rows.img_size, strict=True)]]
    rows = rows.sort_values(["device", "precision", "layout", "runtime_version", "model", "img_size", "batch", "run"])
    rows = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, min(size, len(rows))).astype(int))].reset_index(drop=True)
    sums, software = [], []
    for row in rows.itertuples():
        bits = 32 if row.precision in ("fp32", "fp64") else 16
        table = known.table(row.source, row.model, row.img_size, row.batch, bits)
        elements = table.statics["input_elements_per_sample"] * row.batch
        version = row.runtime_version or _UNSTATED_TORCH
        chosen = StepOptions(
            "none", autocast=row.precision.startswith("amp"), separate_attention=version.startswith(("0", "1"))
        )
        width = {"fp64": 8, "fp32": 4}.get(row.precision, 2)
        workload = Workload(
            row.batch, row.precision, row.runtime, row.layout, version, elements * width * (row.timing != "device_only")
        )
        scale = 2.0 if row.precision == "fp64" else 1.0
        target = device(row.device)
        sums.append(step_sums(_forward_alone(step_of(table, chosen, elements, bits)), target, workload, scale))
        software.append(software_index(target, workload))
    latency = rows.latency_ms.to_numpy(np.float64) * 1e-3
    return Inference(StepSums.stacked(sums), np.array(software), latency, rows.device.to_numpy())


def _forward_alone(step: StepTable) -> StepTable:
    """The rows of the forward pass, without the loss."""
    loss = (step.source < 0) & (np.asarray(step.op) == OPERATORS.index("loss"))
    kept = (step.part == backward.FORWARD) & ~loss
    columns = {f.name: getattr(step, f.name) for f in fields(step)}
    return StepTable(**{n: c[kept] if isinstance(c, np.ndarray) else c for n, c in columns.items()})
