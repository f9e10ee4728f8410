"""Steps of a laboratory from which nothing is learned, asked as a user would: torchtitan on its own pages."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from perfpass.devices import device as find_device
from perfpass.errors import ArgumentError
from perfpass.llm.configuration import language_model
from perfpass.llm.recipe import Kernels, Layout, Recipe
from perfpass.predictors.llm_training.predict import run
from perfpass.training.llm_training import questions

if TYPE_CHECKING:
    import pandas

    from perfpass.devices import Device
    from perfpass.interval import Interval
    from perfpass.training.section import Section

LABORATORY = "torchtitan"
_SPLIT = re.compile(r"FSDP=(\d+), TP=(\d+)")
# Of torchtitan's own pages: 96 GB of HBM2e with 2.4 TB/s, 500 W.
_H100: dict[str, Any] = {
    "id": "h100-96gb-hbm2e",
    "memory_bytes": 96 * 2**30,
    "memory_bandwidth_bytes_s": 2.4e12,
    "power_limit_w": 500.0,
}
_OTHER_TABLE = re.compile(r"\*\*Table")


def rows(table: pandas.DataFrame) -> pandas.DataFrame:
    """Those of its pages."""
    return table[table.variant.str.startswith(LABORATORY) & table.throughput_per_s.notna()]


def grade(section: Section, table: pandas.DataFrame) -> list[str]:
    """Adds lines of the split "outside"; why rows are not asked."""
    found = rows(table)
    asked, why = questions.each(found, _step)
    stated = np.array([one is not None for one in asked])
    kept, steps = found[stated], [one for one in asked if one]
    measured = np.array([one.tokens for one in steps]) / kept.throughput_per_s.to_numpy()
    by_row = kept.variant.str.contains("float8 rowwise").to_numpy()
    middle, low, high = (np.array([getattr(one.step_s, end) for one in steps]) for end in ("median", "low", "high"))
    for words, here in ((LABORATORY, np.ones(len(steps), bool)), (f"{LABORATORY}, scales by row", by_row)):
        bounds = (middle[here], measured[here], low[here], high[here])
        section.add("step s", "outside", "perfpass", words, *bounds, aim_pct=20.0)
    return [reason for reason in why if reason]


@dataclasses.dataclass(frozen=True)
class _Step:
    """What a row asks: the predicted ``step_s``, and the ``tokens`` that all devices take in it."""

    step_s: Interval
    tokens: float


def _step(row: Any) -> _Step:
    model, device, layout, recipe = _question(row)
    products = "fp8" if row.precision == "fp8" else ""
    found = run(model, device, layout, recipe, framework="torch", product_precision=products)
    return _Step(found.step_s, float(layout.data * recipe.micro_batch * recipe.sequence))


def _question(row: Any) -> tuple[Any, Device, Layout, Recipe]:
    if _OTHER_TABLE.search(row.variant):
        raise ArgumentError("the words beside it are of another table of the page")
    device = find_device("h100-sxm5-80gb" if "96GB" in row.device else row.device)
    device = dataclasses.replace(device, **_H100) if "96GB" in row.device else device
    split = _SPLIT.search(row.variant)
    shards, tensor = (int(split[1]), int(split[2])) if split else (int(row.n_devices), 1)
    if shards * tensor != row.n_devices:
        raise ArgumentError("the layout does not divide the devices")
    layout = Layout(tensor=tensor, data=shards, sharding="zero3", sequence_parallel=tensor > 1)
    # Its selective recomputation is of some products of a layer: none is counted.
    recipe = Recipe(
        int(row.micro_batch),
        int(row.sequence),
        precision="fp8" if row.precision == "fp8" else "amp",
        recompute="full" if "full AC" in row.variant else "none",
        kernels=Kernels(fused_norms=False, fused_gates=False),
        loss="eager",
        foreach=True,
        gradient_buffers=False,
    )
    return language_model(row.network), device, layout, recipe
