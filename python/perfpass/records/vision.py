"""Measured latencies of vision models: two public tables read as records of kind `vision` (docs/reference/records.md).

`read_timm` and `read_torchvision` read the source tables, `load` gives the rows that the repository keeps.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.bounded_file import exists
from perfpass.devices import device
from perfpass.errors import DeviceError, FileError, FormatError
from perfpass.records.build.vision_models import REPARAMETERIZED, architectures
from perfpass.records.location import data_directory
from perfpass.records.parquet import read_frame
from perfpass.records.schema import Reading, columns_of, read

if TYPE_CHECKING:
    import pandas

_REQUIRED_TIMM = "model device torch_version cuda_version precision layout compiled img_size batch_size samples_per_sec step_time_ms param_count_m source_file"  # noqa: E501
_REQUIRED_TORCHVISION = "device n_gpus run timing cuda_version model mode precision batch_size latency_median_ms latency_p10_ms latency_p90_ms n_samples"  # noqa: E501

# batch / throughput and step time agree within 6 % in every row of the source (its note T1); more is a broken row.
_CONSISTENCY = 0.10
# Parameter counts in the source are in millions with two decimals; definitions that differ by under 2 % (a classifier's
# bias, say) are the same network for our purpose.
_ROUNDING = 0.0051
_SAME_NETWORK = 0.02


def read_timm(shared: Path | str, parameters: Mapping[str, tuple[int, int | None]]) -> Reading:
    """Timm's tables below ``shared``; rows that cannot be trusted are refused, with the reason.

    ``parameters``: timm model -> its parameters as built, and with its branches folded (None: nothing folds), by
    `vision_models.parameter_counts`. A row's own parameter count tells which of the two was measured; a row that fits
    neither was measured on another network of the same name.

    Raises FileError for a missing table, FormatError for missing columns.
    """
    reading = Reading("timm")
    root = Path(shared) / "timm"
    for name, mode in (("infer.parquet", "inference"), ("train.csv", "training")):
        table = _timm(_table(root / name, _REQUIRED_TIMM), mode, parameters, reading)
        reading.add("vision", _with_groups(table, "timm"))
    return reading


def read_torchvision(shared: Path | str) -> Reading:
    """The table of pytorch-gpu-benchmark below ``shared``; refusals and errors as of `read_timm`."""
    reading = Reading("torchvision")
    path = Path(shared) / "pytorch_gpu_benchmark" / "torchvision_latency.csv"
    reading.add("vision", _with_groups(_torchvision(_table(path, _REQUIRED_TORCHVISION), reading), "torchvision"))
    return reading


def _with_groups(table: pandas.DataFrame, source: str) -> pandas.DataFrame:
    """The columns of the schema, with the groups that splits keep together."""
    named = architectures((source, model) for model in table.model.unique())
    table = table.assign(
        architecture=[named[source, m][0] for m in table.model], family=[named[source, m][1] for m in table.model]
    )
    return table[[c.name for c in columns_of("vision") if c.name in table.columns]]


def timm_models(shared: Path | str) -> list[str]:
    """The models that timm's tables name."""
    root = Path(shared) / "timm"
    tables = [_table(root / name, "model") for name in ("infer.parquet", "train.csv")]
    return sorted({model for table in tables for model in table.model})


def load(path: Path | str | None = None) -> pandas.DataFrame:
    """The rows that the repository keeps (data/records/vision.parquet). Raises FileError, FormatError."""
    return read(Path(path) if path else data_directory() / "records" / "vision.parquet", "vision")


def _table(path: Path, required: str) -> pandas.DataFrame:
    if not exists(path):
        raise FileError(f"{path}: no such table; see docs/reference/records.md for where the records come from")
    table = read_frame(path, "a table of timm")
    missing = sorted(set(required.split()) - set(table.columns))
    if missing:
        raise FormatError(f"{path}: the table lacks the columns {', '.join(missing)}")
    return table


def _known_devices(table: pandas.DataFrame, reading: Reading) -> pandas.DataFrame:
    """Keep the rows whose device the catalogue knows."""
    known = []
    for name in table.device.unique():
        with contextlib.suppress(DeviceError):
            device(name)
            known.append(name)
    return reading.keep(table, table.device.isin(known), "device is not in the catalogue")


def _measured_networks(
    table: pandas.DataFrame, parameters: Mapping[str, tuple[int, int | None]], reading: Reading
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
    return reading.keep(table, known, "measured network differs from the installed definition")


def _timm(
    table: pandas.DataFrame,
    mode: str,
    parameters: Mapping[str, tuple[int, int | None]],
    reading: Reading,
) -> pandas.DataFrame:
    table = _known_devices(table, reading)
    measured = (
        np.isfinite(table.step_time_ms) & (table.step_time_ms > 0) & (table.batch_size > 0) & (table.img_size > 0)
    )
    table = reading.keep(table, measured, "no positive step time, batch or image size")
    by_rate = table.batch_size / table.samples_per_sec * 1000
    agrees = (by_rate / table.step_time_ms - 1).abs() <= _CONSISTENCY
    table = reading.keep(table, agrees, "step time and throughput contradict each other")
    table = _measured_networks(table, parameters, reading)
    return table.assign(
        licence="Apache-2.0",
        batch=table.batch_size.astype("int32"),
        mode=mode,
        runtime=np.where(table.compiled.astype(bool), "torch.compile", "torch"),
        n_devices=1,
        # Its benchmark's own default (benchmark.py --opt), which none of the files says to have changed.
        optimizer="sgd" if mode == "training" else "",
        runtime_version=table.torch_version,
        timing="device_only",  # timm's benchmark reuses one input that is on the device already
        latency_ms=table.step_time_ms,
        run=table.source_file,
    )


def _torchvision(table: pandas.DataFrame, reading: Reading) -> pandas.DataFrame:
    table = _known_devices(table, reading)
    table = reading.keep(table, table.n_gpus == 1, "more than one GPU (DataParallel)")
    measured = np.isfinite(table.latency_median_ms) & (table.latency_median_ms > 0) & (table.batch_size > 0)
    table = reading.keep(table, measured, "no positive latency or batch size")
    return table.assign(
        licence="MIT",
        img_size=224,
        batch=table.batch_size.astype("int32"),
        layout="nchw",
        mode=table["mode"].map({"infer": "inference", "train": "training"}),
        runtime="torch",
        n_devices=1,
        latency_ms=table.latency_median_ms,
    )
