"""What the readers of whole networks share: devices and precisions as stated or inferred, repeats, years.

Records of kind ``network``. A reader fills a table with `add`: it names the devices, says what was inferred, and
refuses rows that only repeat another at another place of the source.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from perfpass.records.sources import add_caveat

if TYPE_CHECKING:
    import pandas

    from perfpass.records.schema import Reading

KIND = "network"
# A source's name of a device: our reading of it, and the doubt that the reading leaves.
READINGS: dict[str, tuple[str, str]] = {
    "NVIDIA A100-40GB (form not stated)": ("A100-SXM4-40GB", "form_factor_not_stated"),
    "NVIDIA A100 (memory size not stated)": ("A100-SXM4-40GB", "memory_size_not_stated"),
    "NVIDIA A100": ("A100-SXM4-40GB", "variant_not_stated"),
    "NVIDIA Tesla V100-16GB (form not stated)": ("V100-SXM2-16GB", "form_factor_not_stated"),
    "NVIDIA Tesla V100-32GB (form not stated)": ("V100-SXM2-32GB", "form_factor_not_stated"),
    "NVIDIA Tesla V100-SXM2 (memory size not stated)": ("V100-SXM2-16GB", "memory_size_not_stated"),
    "NVIDIA Tesla V100 (variant not stated)": ("V100-SXM2-16GB", "variant_not_stated"),
    "NVIDIA V100": ("V100-SXM2-16GB", "variant_not_stated"),
    "NVIDIA V100 (not stated on the page)": ("V100-SXM2-16GB", "device_not_on_the_page"),
    "NVIDIA Tesla V100-SXM3-32GB (DGX-2H)": ("V100-SXM3-32GB", "dgx_2h_power_limit"),
    "NVIDIA T4 (column says FPS)": ("T4", "device_not_on_the_page"),
}
_PRECISIONS = {
    "float16": "fp16",
    "fp16 (AMP)": "amp",
    "fp32 (not stated)": "fp32",
    "fp16 (see README)": "fp16",
    "fp16 (script default; not stated in the README)": "fp16",
}
_INFERRED_PRECISIONS = frozenset(name for name in _PRECISIONS if "(" in name) - {"fp16 (AMP)"}
# Boards whose frameworks may run products of fp32 in TF32.
_TF32 = re.compile(r"\b(A100|A30|A40|A10|L4|L40S|RTX 30\d\d|RTX 40\d\d)\b")
_TF32_RUNTIMES = ("torch", "torchscript", "tensorflow", "tensorrt", "mxnet", "paddle", "onnxruntime")
# First release of a version, by major and minor number.
_YEARS = {
    "torch": {"1.13": 2022, "2.0": 2023, "2.1": 2023},
    "onnxruntime": {"1.14": 2023, "1.15": 2023, "1.16": 2023},
    "tensorrt": {"8.6": 2023},
}


def precisions(stated: pandas.Series) -> tuple[pandas.Series, pandas.Series]:
    """The schema's precision, and whether it was stated, inferred or is unknown."""
    known = stated.notna() & (stated != "")
    origin = stated.isin(_INFERRED_PRECISIONS).map({True: "inferred", False: "stated"})
    return stated.replace(_PRECISIONS).fillna(""), origin.where(known, "unknown")


def year_of(runtime: str, version: str) -> int:
    """The year in which this version was released; -1 where it is not known here."""
    found = re.match(r"(\d+\.\d+)", version)
    return _YEARS.get(runtime, {}).get(found[1], -1) if found else -1


def container_year(texts: pandas.Series) -> pandas.Series:
    """The year of the NVIDIA container ("22.11-py3") that a text names; -1 where it names none."""
    found = texts.fillna("").str.extract(r"\b(1[89]|2[0-4])\.(?:0[1-9]|1[0-2])\b")[0]
    return found.map(lambda year: 2000 + int(year), na_action="ignore").fillna(-1).astype(int)


def pixels(texts: pandas.Series) -> tuple[pandas.Series, pandas.Series]:
    """Height and width of "224", "512x1024" or "1x3x512x1024" (the last two of four); -1 where there are none."""
    numbers = texts.fillna("").astype(str).str.replace(r"\.0$", "", regex=True).str.findall(r"\d+")
    height = numbers.map(lambda n: int(n[-2]) if len(n) in (2, 4) else int(n[0]) if len(n) == 1 else -1)
    width = numbers.map(lambda n: int(n[-1]) if len(n) in (1, 2, 4) else -1)
    return height, width


def with_devices_read(rows: pandas.DataFrame) -> pandas.DataFrame:
    """``rows`` with the names of `READINGS` as the catalogue has them, ``device_from`` inferred and a caveat."""
    rows = rows.reset_index(drop=True)
    defaults = {"caveats": "", "device_from": "stated"}
    rows = rows.assign(**{name: value for name, value in defaults.items() if name not in rows.columns})
    if "device_as_reported" not in rows.columns:
        rows["device_as_reported"] = rows.device
    for name, (read_as, caveat) in READINGS.items():
        here = (rows.device == name).to_numpy()
        rows["caveats"] = add_caveat(rows.caveats, here, caveat)
        rows.loc[here, "device_from"] = "inferred"
        rows.loc[here, "device"] = read_as
    return rows


def add(reading: Reading, rows: pandas.DataFrame) -> None:
    """Keep ``rows`` of kind ``network``; ``device`` holds the source's names.

    Names of `READINGS` become those of the catalogue, with ``device_from`` inferred and a caveat. Rows that are equal
    to another but for their place in the source are refused.
    """
    defaults = {"n_devices": 1, "mode": "inference", "year_from": "unknown"}
    rows = rows.assign(**{name: value for name, value in defaults.items() if name not in rows.columns})
    rows = with_devices_read(rows)
    tensor_cores = rows.device.str.contains(_TF32.pattern.replace("(", "(?:", 1)).to_numpy(bool)
    unsure = tensor_cores & (rows.precision == "fp32").to_numpy() & rows.runtime.isin(_TF32_RUNTIMES).to_numpy()
    rows["caveats"] = add_caveat(rows.caveats, unsure, "fp32_products_may_run_in_tf32")
    place = [c for c in rows.columns if c != "run"]
    rows = reading.keep(rows, ~rows.duplicated(place), "repeats another row but for its place")
    reading.add(KIND, rows)


def caveat_where(rows: pandas.DataFrame, where: pandas.Series | np.ndarray, caveat: str) -> None:
    """Adds a caveat to the rows ``where``, in place."""
    rows["caveats"] = add_caveat(rows.caveats, np.asarray(where, dtype=bool), caveat)
