"""The rate of products with weights in 8 bits in ONNX Runtime on a CPU, from pairs of products measured in turn.

`benchmarks/quantized_products.py` measured them: how long a product takes in 8 bits over fp32, on one core, in runs
that took turns, so that what else the machine did is in both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.graph import OPERATORS
from perfpass.graph.table import OperatorColumns, Tables
from perfpass.predictors.inference.cpu_operators import FAMILY, NAMES, RUNTIMES, CpuTimes
from perfpass.predictors.way import Way
from perfpass.records import parquet
from perfpass.records.location import data_directory

DATA = Path("records") / "measured" / "onnxruntime-8-bits" / "products.parquet"
# A call of one product from Python, which the laps have and no network has as often: that of the smallest, by hand.
_CALL_S = 6e-6
_RATES = np.arange(0.0, 2.5, 0.01)


def with_8_bits(times: CpuTimes, way: Way, folder: Path | None = None) -> CpuTimes:
    """``times`` with the family "dense_8bit" of ONNX Runtime from the measured pairs, that of others as their "dense".

    The rate has the least median of absolute errors of the ratios, in logarithms. Raises FileError, FormatError.
    """
    frame = parquet.read_frame((folder or data_directory()) / DATA, "products in 8 bits")
    m, k, n = (frame[name].to_numpy(np.int64) for name in "mkn")
    measured = np.log(frame.int8_us.to_numpy() / frame.fp32_us.to_numpy())
    dense = {runtime: values[FAMILY["dense"]] for runtime, values in times.constants.items()}

    def seconds(rate: float, width: int) -> np.ndarray:
        constants = np.where(np.arange(len(NAMES)) == FAMILY["dense_8bit"], rate, times.constants["onnxruntime"])
        found = CpuTimes({**times.constants, "onnxruntime": constants})
        return _CALL_S + found.rows(products(m, k, n, width), np.ones(len(m), dtype=np.int64), way)[0]

    wide = seconds(0.0, 4)
    errors = [float(np.median(np.abs(measured - np.log(seconds(rate, 1) / wide)))) for rate in _RATES]
    best = {**dense, "onnxruntime": float(_RATES[int(np.argmin(errors))])}
    family = np.arange(len(NAMES)) == FAMILY["dense_8bit"]
    return CpuTimes({r: np.where(family, best[r], times.constants[r]) for r in RUNTIMES})


def products(m: np.ndarray, k: np.ndarray, n: np.ndarray, width: int) -> Tables:
    """A graph each of one product [m, k] x [k, n], its weights of ``width`` bytes: 4, or 1 with inputs in fp32."""
    zero, one = np.zeros(len(m), dtype=np.int64), np.ones(len(m), dtype=np.int64)
    kind = "dense" if width == 4 else "quantized_matmul"
    columns = dict.fromkeys((*OperatorColumns.__dataclass_fields__,), zero) | {
        "op": np.full(len(m), OPERATORS.index(kind)),
        "count": one,
        "macs": m * k * n,
        "flops": 2 * m * k * n,
        "bytes_read": 4 * m * k + width * k * n,
        "bytes_written": 4 * m * n,
        "weight_bytes": width * k * n,
        "input_elements": m * k,
        "output_elements": m * n,
        "b": one,
        "m": m,
        "n": n,
        "k": k,
    }
    return Tables(OperatorColumns(**columns), np.arange(len(m) + 1))
