"""The training records of vision models as arrays: one derived step, one time and the group keys per measurement."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from perfpass.devices import device
from perfpass.graph import OPERATORS
from perfpass.graph import step as backward
from perfpass.graph.step import StepColumns, StepOptions, Steps, StepTable
from perfpass.graph.table import OperatorColumns, Tables
from perfpass.predictors.inference.operators import OperatorTimes
from perfpass.predictors.learned.ratios import RatioFeatures, Sums
from perfpass.predictors.roofline import software_index
from perfpass.predictors.training_step.features import RATIOS, step_sums
from perfpass.training import ratio_trees
from perfpass.training.ratio_trees import bits_of, byte_scale_of, way_of

# Records of inference that the portable model learns from too; more made no difference.
INFERENCE_ROWS = 3000


class Dataset(ratio_trees.Dataset):
    """N records of training."""

    mode: ClassVar[str] = "training"
    ratios: ClassVar[RatioFeatures] = RATIOS

    @cached_property
    def steps(self) -> list[StepTable]:
        """[N] derived steps; records of one table at one batch share them."""
        seen: dict[tuple[int, str, str], StepTable] = {}
        out = []
        for row, table in zip(self.rows.itertuples(), self.tables, strict=True):
            key = (id(table), row.source, row.precision)
            if key not in seen:
                chosen = options(row.source, row.precision)
                elements = table.statics["input_elements_per_sample"] * row.batch
                seen[key] = step_of(table, chosen, elements, bits_of(row.precision))
            out.append(seen[key])
        return out

    @cached_property
    def sums(self) -> Sums:
        """What no efficiency changes, stacked [N]; the features of any efficiencies follow in a second."""
        rows = zip(
            map(Steps.one, self.steps), self.rows.batch.to_numpy()[:, None], self.ways, self.byte_scale, strict=True
        )
        return Sums.stacked([step_sums(*row).take(0) for row in rows])


load = Dataset.load


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


@dataclass(frozen=True)
class Inference:
    """M records of eager inference, as steps that end with the forward pass; ``base_s`` [M] by operators."""

    sums: Sums
    software: np.ndarray
    measured_s: np.ndarray
    base_s: np.ndarray
    device: np.ndarray

    def __len__(self) -> int:
        return len(self.measured_s)


def inference(folder: Path | str | None = None, size: int = INFERENCE_ROWS) -> Inference:
    """``size`` records of inference, evenly over all in a fixed order: what devices are good at.

    Raises FileError, ArtefactError.
    """
    rows, known, _ = ratio_trees.recorded(folder, "inference")
    rows = rows[rows.runtime == "torch"]
    rows = rows.sort_values(["device", "precision", "layout", "runtime_version", "model", "img_size", "batch", "run"])
    rows = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, min(size, len(rows))).astype(int))].reset_index(drop=True)
    asked = [known.table(r.source, r.model, r.img_size, r.batch, bits_of(r.precision)) for r in rows.itertuples()]
    ways = [way_of(row, table, device(row.device)) for row, table in zip(rows.itertuples(), asked, strict=True)]
    batch, elements = rows.batch.to_numpy(), [table.statics["input_elements_per_sample"] for table in asked]
    times, parts, order, base = OperatorTimes.load(), [], [], np.empty(len(rows))
    for some in ratio_trees.in_one_way(ways, rows.precision):
        tables, way, precision = Tables.joined([asked[i] for i in some]), ways[some[0]], rows.precision.iloc[some[0]]
        scale, at = byte_scale_of(precision), batch[some]
        early = str(way.torch_version).startswith(("0", "1"))
        chosen = StepOptions("none", autocast=precision.startswith("amp"), separate_attention=early)
        taken = np.array([elements[i] for i in some]) * at
        steps = backward.derive_many(tables, chosen, input_elements=taken, width=bits_of(precision) / 8)
        parts.append(step_sums(_forward_alone(steps), at, way, scale))
        base[some] = times.seconds(_at_width(tables, scale), way).total
        order += some
    sums = parts[0].beside(*parts[1:]).take(np.argsort(order))
    measured_s = rows.latency_ms.to_numpy(np.float64) * 1e-3
    return Inference(sums, np.array([software_index(way) for way in ways]), measured_s, base, rows.device.to_numpy())


def _at_width(tables: Tables, byte_scale: float) -> Tables:
    table = tables.table
    scaled = {name: getattr(table, name) * byte_scale for name in ("bytes_read", "bytes_written")}
    return Tables(replace(table, **scaled), tables.offset)


def _forward_alone(steps: Steps) -> Steps:
    """The rows of the forward pass, without the loss."""
    table = steps.columns
    loss = (table.source < 0) & (np.asarray(table.op) == OPERATORS.index("loss"))
    at = np.flatnonzero((table.part == backward.FORWARD) & ~loss)
    columns = StepColumns(**{f.name: getattr(table, f.name)[at] for f in fields(StepColumns)})
    return Steps(Tables(columns, np.searchsorted(at, steps.tables.offset)), steps.parameters, steps.tensors)
