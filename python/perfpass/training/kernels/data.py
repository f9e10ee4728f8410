"""Kernel records as columns that the predictor's physics and trees take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfpass.devices import device as find_device
from perfpass.predictors.kernels import physics as kernel_physics
from perfpass.predictors.kernels.efficiency import level_keys
from perfpass.predictors.kernels.model import Software
from perfpass.predictors.kernels.physics import COLLECTIVES, Figures, Terms
from perfpass.predictors.kernels.software import (
    FAMILIES,
    family,
    generation,
    precision_code,
    runtime_code,
    version_number,
)
from perfpass.records import schema
from perfpass.records.location import data_directory

if TYPE_CHECKING:
    import pandas

# Which table and mode each operator's records are in, which columns make its shape, and which of them a user's sizes
# are checked against.
FILES = {
    "gemm": ("kernels_gemm", "gemm", "kernel"),
    "prefill_attention": ("kernels_attention", "attention", "prefill"),
    "decode_attention": ("kernels_attention", "attention", "decode"),
    "moe": ("kernels_moe", "moe", "kernel"),
    "collective": ("kernels_collective", "collective", "kernel"),
    "torch": ("operators_fp32", "operator", "kernel"),
}
SHAPES = {
    "gemm": ("m", "n", "k"),
    "prefill_attention": ("batch", "tokens", "heads", "kv_heads", "head_dim", "window"),
    "decode_attention": ("batch", "tokens", "heads", "kv_heads", "head_dim", "window"),
    "moe": (
        *("tokens", "hidden", "intermediate", "experts", "active_experts", "moe_tensor_parallel"),
        *("moe_expert_parallel", "distribution"),
    ),
    "collective": ("operation", "n_devices", "elements"),
    "torch": ("operator", "dimensions"),
}


@dataclass(frozen=True, eq=False)
class Data:
    """N measured kernels of one operator. ``shape_key`` names the shape alone, ``row_key`` shape and software."""

    operator: str
    rows: pandas.DataFrame
    terms: Terms
    figures: Figures
    software: np.ndarray
    keys: np.ndarray
    precision: np.ndarray
    device: np.ndarray
    release: np.ndarray
    shape_key: np.ndarray
    seconds: np.ndarray
    host_bound: np.ndarray

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: np.ndarray) -> Data:
        """The given rows."""
        terms = Terms(*(getattr(self.terms, n)[rows] for n in ("ramp", "work_s", "features", "compute_s", "memory_s")))
        figures = Figures(*(getattr(self.figures, n)[rows] for n in self.figures.__dataclass_fields__))
        names = ("software", "keys", "precision", "device", "release", "shape_key", "seconds", "host_bound")
        return Data(
            self.operator, self.rows.iloc[rows], terms, figures, **{name: getattr(self, name)[rows] for name in names}
        )


def software(data: Data) -> list[Software]:
    """Each measured combination of device and software."""
    rows = data.rows.assign(
        precision_key=data.precision,
        family=data.rows["operator"] if data.operator == "torch" else data.rows["kernel"].map(family),
        host_bound=data.host_bound,
    )
    groups = rows.groupby(["device", "runtime", "precision_key", "runtime_version", "family"], sort=True)
    return [
        Software(
            *(name, generation(find_device(name)), runtime, precision, version, kind, len(group)),
            bool(group["host_bound"].mean() > 0.5),
        )
        for (name, runtime, precision, version, kind), group in groups
    ]


def load(operator: str, folder: Path | str | None = None) -> Data:
    """Records of one operator below ``folder`` (default: those of the repository). Raises FileError, FormatError."""
    name, kind, mode = FILES[operator]
    root = (Path(folder) if folder else data_directory()) / "records"
    rows = schema.read(root / f"{name}.parquet", kind)
    return prepare(operator, rows[rows["mode"] == mode].reset_index(drop=True))


def prepare(operator: str, rows: pandas.DataFrame) -> Data:
    """The columns of admitted records of one operator."""
    if operator.endswith("attention"):
        rows = rows.assign(tokens=rows["context_tokens"])
    names = sorted(rows["device"].unique())
    devices = [find_device(n) for n in names]
    index = rows["device"].map({n: i for i, n in enumerate(names)}).to_numpy()
    figures = Figures.of(devices, index)
    kinds = rows["operator"] if operator == "torch" else rows["kernel"].map(family)
    precision = rows["precision"].copy()
    if "kv_precision" in rows:
        precision = precision + "/" + rows["kv_precision"]
    capability = rows["device"].map({d.id: generation(d) for d in devices})
    columns = (precision, rows["runtime"], kinds, capability, rows["device"], rows["runtime_version"])
    text = columns[0].str.cat(columns[1:], sep="\x1f")
    codes, unique = text.factorize()
    keys = level_keys(*zip(*(u.split("\x1f") for u in unique), strict=True))[codes]
    software = np.column_stack(
        [
            rows["runtime"].map(runtime_code),
            rows["runtime_version"].map(version_number),
            kinds.map(FAMILIES.index),
            rows["precision"].map(precision_code),
            rows["kv_precision"].map(precision_code) if "kv_precision" in rows else np.full(len(rows), -1),
        ]
    ).astype(np.float32)
    shape = rows[list(SHAPES[operator])].astype(str)
    return Data(
        operator=operator,
        rows=rows,
        terms=_terms(operator, figures, rows, kinds),
        figures=figures,
        software=software,
        keys=keys,
        precision=precision.to_numpy(),
        device=rows["device"].to_numpy(),
        release=(rows["runtime"] + " " + rows["runtime_version"]).to_numpy(),
        shape_key=shape.iloc[:, 0].str.cat(shape.iloc[:, 1:], sep="x").to_numpy(),
        seconds=rows["latency_ms"].to_numpy(np.float64) * 1e-3,
        host_bound=rows["caveats"].str.contains("issued by the host").to_numpy(),
    )


def _terms(operator: str, figures: Figures, rows: pandas.DataFrame, kinds: pandas.Series) -> Terms:
    def column(name: str) -> np.ndarray:
        return rows[name].to_numpy(np.float64)

    codes = rows["precision"].map(precision_code).to_numpy()
    if operator == "gemm":
        return kernel_physics.gemm(figures, column("m"), column("n"), column("k"), codes)
    if operator.endswith("attention"):
        columns = [column(n) for n in SHAPES[operator]]
        columns += [codes, rows["kv_precision"].map(precision_code).to_numpy()]
        return kernel_physics.attention(figures, *columns, decode=operator.startswith("decode"))
    if operator == "moe":
        columns = [column(n) for n in SHAPES["moe"][:-1]]
        exponent = {t: 0.0 if t == "balanced" else float(t.split("_")[-1]) for t in rows["distribution"].unique()}
        gated = (kinds != "nongated").to_numpy()
        columns += [rows["distribution"].map(exponent).to_numpy(), codes, gated]
        return kernel_physics.moe(figures, *columns)
    if operator == "torch":
        return _torch_terms(figures, rows)
    kind = rows["operation"].map(COLLECTIVES.index).to_numpy()
    width = rows["precision"].map(kernel_physics.element_bytes).to_numpy()
    return kernel_physics.collective(figures, kind, column("n_devices"), column("elements") * width)


def _torch_terms(figures: Figures, rows: pandas.DataFrame) -> Terms:
    """Each operator has its own sizes; the parts are put back into the order of the rows."""
    names = rows["operator"].to_numpy()
    parts, places = [], []
    for name in np.unique(names):
        at = np.flatnonzero(names == name)
        sizes = np.array([text.split(",") for text in rows["dimensions"].iloc[at]], dtype=np.float64)
        own = Figures(*(getattr(figures, n)[at] for n in figures.__dataclass_fields__))
        parts.append(kernel_physics.torch_operator(own, str(name), sizes))
        places.append(at)
    order = np.argsort(np.concatenate(places))
    columns = ("ramp", "work_s", "features", "compute_s", "memory_s")
    return Terms(*(np.concatenate([getattr(p, n) for p in parts])[order] for n in columns))
