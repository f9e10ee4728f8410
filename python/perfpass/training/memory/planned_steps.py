"""Memory in use of training steps by the plan of their graph, on a laboratory that no constant of it has seen.

Milabench's steps (NVML), by the share that the other laboratory's steps gave, and by the context of inference. What the
plan lacks is the loss: of BERT's logits it keeps two more copies, under autocast three in fp32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.devices import device
from perfpass.predictors.memory.allocation import weight_copies
from perfpass.predictors.memory.allowance import driver_bytes
from perfpass.predictors.training_step.predictor import state_bytes
from perfpass.predictors.workload import PRECISIONS
from perfpass.records import tables
from perfpass.training.memory import ran_steps, runs
from perfpass.training.memory.runs import MeasuredRuns
from perfpass.training.section import Section

_METRIC = "memory in use, training step (MiB)"
_MIB = 2.0**20
_FP32_BYTES = 4.0
_GRADIENT_TENSORS = 2.0  # as `perfpass.predictors.memory.process.step`


def add(section: Section, measured: MeasuredRuns, root: Path) -> None:
    """A line and a note for every vendor. Raises FileError and FormatError."""
    share = runs.fit_step(measured.take(measured.training)).share
    torch = measured.take(~measured.training & (measured.group == "torch"))
    beside = runs.fit(torch, {}).beside
    steps, known = ran_steps.load(root), tables.load(root / "graphs", "outside")
    found: dict[str, list[tuple[float, ...]]] = {}
    for row in ran_steps.benchmarks(root).itertuples():
        float_as = PRECISIONS[row.precision][0]
        source, model, size = row.key
        saved, largest = steps[source, model, size, int(row.batch), float_as]
        table = known.table(source, model, size, int(row.batch), 32 if float_as == "float32" else 16)
        weights, parameters = table.statics["weight_bytes"], table.statics["parameters"]
        copies, on = weight_copies(row.precision), device(row.device)
        kept = copies * weights + float(state_bytes(row.taken, np.array([parameters]))[0]) * (
            1.0 if copies > 1 else weights / parameters / _FP32_BYTES
        )
        tensors = saved + _GRADIENT_TENSORS * largest
        bounds = (kept + share[i] * tensors + beside[i] + driver_bytes(on) for i in (1, 0, 2))
        found.setdefault(on.vendor, []).append((row.peak_memory_bytes, *bounds))
    for vendor, rows in found.items():
        peak, median, low, high = np.array(rows).T / _MIB
        section.add(_METRIC, "source", "perfpass", f"torch, milabench, {vendor}", median, peak, low, high)
        section.notes.append(
            f"{_METRIC}, torch, milabench, {vendor}, source left out: {100 * float(np.mean(peak > high)):.1f} % of "
            f"{len(peak)} rows above the bound, the bound {float(np.median(high / median)):.2f} of the median."
        )
