"""Measured latencies of vision models: two public tables read into one schema (docs/records.md).

`read` distils the source tables, `load` gives the distilled rows that the repository keeps.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device
from perfpass.errors import DeviceError, FileError, FormatError
from perfpass.records.location import data_directory
from perfpass.records.vision_models import REPARAMETERIZED, architectures

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1
COLUMNS = (
    "source",  # timm or torchvision: who named the model and measured it
    "licence",
    "model",  # by the source's name
    "architecture",  # rows of one architecture share it, whatever the weights' name
    "family",  # the source's module that defines the model
    "img_size",  # pixels, square
    "batch",
    "precision",  # fp32, fp16, fp64, bf16, amp (autocast to fp16), amp_bf16
    "layout",  # nchw, nhwc
    "mode",  # inference, training
    "runtime",  # torch, torch.compile
    "device",  # catalogue id
    "n_gpus",
    "torch_version",
    "cuda_version",
    "timing",  # device_only, includes_h2d_copy, unknown
    "latency_ms",  # one batch
    "latency_p10_ms",
    "latency_p90_ms",
    "n_samples",
    "run",  # the source's file or run
)
_REQUIRED_TIMM = "model device torch_version cuda_version precision layout compiled img_size batch_size samples_per_sec step_time_ms param_count_m source_file"  # noqa: E501
_REQUIRED_TORCHVISION = "device n_gpus run timing cuda_version model mode precision batch_size latency_median_ms latency_p10_ms latency_p90_ms n_samples"  # noqa: E501

# batch / throughput and step time agree within 6 % in every row of the source (its note T1); more is a broken row.
_CONSISTENCY = 0.10
# Parameter counts in the source are in millions with two decimals; definitions that differ by under 2 % (a classifier's
# bias, say) are the same network for our purpose.
_ROUNDING = 0.0051
_SAME_NETWORK = 0.02


@dataclass(frozen=True)
class Distilled:
    """Accepted rows (columns `COLUMNS`) and how many were refused, by source and reason."""

    rows: pandas.DataFrame
    refused: dict[str, int]


def read(shared: Path | str, parameters: Mapping[str, tuple[int, int | None]]) -> Distilled:
    """Read the timm and torchvision tables below ``shared``; refuse rows that cannot be trusted, with the reason.

    ``parameters``: timm model -> its parameters as built, and with its branches folded (None: nothing folds), by
    `vision_models.parameter_counts`. A row's own parameter count tells which of the two was measured; a row that fits
    neither was measured on another network of the same name.

    Raises FileError for a missing table, FormatError for missing columns.
    """
    import pandas

    root = Path(shared)
    refused: Counter[str] = Counter()
    parts = [
        _timm(_table(root / "timm" / "infer.parquet", _REQUIRED_TIMM), "inference", parameters, refused),
        _timm(_table(root / "timm" / "train.csv", _REQUIRED_TIMM), "training", parameters, refused),
        _torchvision(
            _table(root / "pytorch_gpu_benchmark" / "torchvision_latency.csv", _REQUIRED_TORCHVISION), refused
        ),
    ]
    rows = pandas.concat(parts, ignore_index=True)
    named = architectures(rows[["source", "model"]].drop_duplicates().itertuples(index=False, name=None))
    keys = list(zip(rows.source, rows.model, strict=True))
    rows["architecture"] = [named[k][0] for k in keys]
    rows["family"] = [named[k][1] for k in keys]
    rows = rows[list(COLUMNS)]
    repeated = rows.duplicated()
    if repeated.any():
        refused["repeats another row exactly"] += int(repeated.sum())
    return Distilled(rows[~repeated].reset_index(drop=True), dict(refused))


def timm_models(shared: Path | str) -> list[str]:
    """The models that timm's tables name."""
    root = Path(shared) / "timm"
    tables = [_table(root / name, "model") for name in ("infer.parquet", "train.csv")]
    return sorted({model for table in tables for model in table.model})


def load(path: Path | str | None = None) -> pandas.DataFrame:
    """The distilled rows that the repository keeps (data/records/vision.parquet). Raises FileError, FormatError."""
    return _table(Path(path) if path else data_directory() / "records" / "vision.parquet", " ".join(COLUMNS))


def _table(path: Path, required: str) -> pandas.DataFrame:
    import pandas

    if not path.is_file():
        raise FileError(f"{path}: no such table; see docs/records.md for where the records come from")
    table = pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    missing = sorted(set(required.split()) - set(table.columns))
    if missing:
        raise FormatError(f"{path}: the table lacks the columns {', '.join(missing)}")
    return table


def _keep(table: pandas.DataFrame, good: pandas.Series, reason: str, refused: Counter[str]) -> pandas.DataFrame:
    if not good.all():
        refused[reason] += int((~good).sum())
    return table[good]


def _known_devices(table: pandas.DataFrame, refused: Counter[str]) -> pandas.DataFrame:
    """Keep the rows whose device the catalogue knows, under its id there."""
    ids: dict[str, str] = {}
    for name in table.device.unique():
        with contextlib.suppress(DeviceError):
            ids[name] = device(name).id
    table = _keep(table, table.device.isin(list(ids)), "device is not in the catalogue", refused)
    return table.assign(device=table.device.map(ids))


def _text(column: pandas.Series) -> pandas.Series:
    return column.map(lambda v: "" if v is None or v != v else str(v))


def _measured_networks(
    table: pandas.DataFrame, parameters: Mapping[str, tuple[int, int | None]], refused: Counter[str]
) -> pandas.DataFrame:
    """Mark the rows whose model was measured folded, and refuse those measured on another network of that name."""
    import pandas

    table = table.reset_index(drop=True)
    millions = table.param_count_m.to_numpy(np.float64)
    count = [parameters.get(m, (math.nan, None)) for m in table.model]
    plain = np.array([c[0] for c in count], np.float64) / 1e6
    folded = np.array([math.nan if c[1] is None else c[1] for c in count], np.float64) / 1e6

    def near(expected: np.ndarray) -> np.ndarray:
        return np.abs(millions - expected) <= np.maximum(_SAME_NETWORK * expected, _ROUNDING)

    # Folding often changes less than the rounding of one row shows, but a file was measured in one way.
    says_folded = (np.abs(millions - folded) <= _ROUNDING) & (np.abs(millions - plain) > _ROUNDING)
    in_folded_file = pandas.Series(says_folded).groupby(table.source_file).transform("any").to_numpy()
    is_folded = in_folded_file & near(folded)
    known = near(plain) | is_folded | np.isnan(plain)  # an unknown model has no graph, and is reported as such
    table = table.assign(model=table.model.where(~is_folded, table.model + REPARAMETERIZED))
    return _keep(table, pandas.Series(known), "measured network differs from the installed definition", refused)


def _timm(
    table: pandas.DataFrame,
    mode: str,
    parameters: Mapping[str, tuple[int, int | None]],
    refused: Counter[str],
) -> pandas.DataFrame:
    table = _known_devices(table, refused)
    measured = (
        np.isfinite(table.step_time_ms) & (table.step_time_ms > 0) & (table.batch_size > 0) & (table.img_size > 0)
    )
    table = _keep(table, measured, "no positive step time, batch or image size", refused)
    by_rate = table.batch_size / table.samples_per_sec * 1000
    agrees = (by_rate / table.step_time_ms - 1).abs() <= _CONSISTENCY
    table = _keep(table, agrees, "step time and throughput contradict each other", refused)
    table = _measured_networks(table, parameters, refused)
    return table.assign(
        source="timm",
        licence="Apache-2.0",
        batch=table.batch_size.astype("int32"),
        mode=mode,
        runtime=np.where(table.compiled.astype(bool), "torch.compile", "torch"),
        n_gpus=1,
        torch_version=_text(table.torch_version),
        cuda_version=_text(table.cuda_version),
        timing="device_only",  # timm's benchmark reuses one input that is on the device already
        latency_ms=table.step_time_ms,
        latency_p10_ms=np.nan,
        latency_p90_ms=np.nan,
        n_samples=0,
        run=table.source_file,
    )


def _torchvision(table: pandas.DataFrame, refused: Counter[str]) -> pandas.DataFrame:
    table = _known_devices(table, refused)
    table = _keep(table, table.n_gpus == 1, "more than one GPU (DataParallel)", refused)
    measured = np.isfinite(table.latency_median_ms) & (table.latency_median_ms > 0) & (table.batch_size > 0)
    table = _keep(table, measured, "no positive latency or batch size", refused)
    return table.assign(
        source="torchvision",
        licence="MIT",
        img_size=224,
        batch=table.batch_size.astype("int32"),
        layout="nchw",
        mode=table["mode"].map({"infer": "inference", "train": "training"}),
        runtime="torch",
        torch_version="",  # not stated
        cuda_version=_text(table.cuda_version),
        latency_ms=table.latency_median_ms,
    )
