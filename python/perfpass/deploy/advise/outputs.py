"""Whether a rewritten model computes the same: both run in ONNX Runtime on the CPU, on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.deploy.advise.rewrites import session, short
from perfpass.errors import UnsupportedError

# Largest relative error of a rewrite that is to change rounding alone: sums of fp32 in another order.
ROUNDING = 1e-3
_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
_SEED = 0


@dataclass(frozen=True)
class Sizes:
    """What open dimensions of the inputs are: as `perfpass.load` takes them."""

    batch: int
    dims: Mapping[str, int]
    shapes: Mapping[str, Sequence[int]]


def inputs(path: Path, sizes: Sizes) -> dict[str, np.ndarray]:
    """Inputs by name: floating ones standard normal, whole ones 0 or 1, of masks 1.

    Raises UnsupportedError for a dimension without a size and for what is no tensor of numbers.
    """
    generator = np.random.default_rng(_SEED)
    found = {}
    for value in session(path, "basic").get_inputs():
        if value.type not in _DTYPES:
            raise UnsupportedError(f"input {value.name} is a {value.type}; only tensors of numbers can be made up")
        dtype = np.dtype(_DTYPES[value.type])
        shape = _shape(value, sizes)
        if dtype.kind == "f":
            found[value.name] = generator.standard_normal(shape).astype(dtype)
        elif "mask" in value.name:
            found[value.name] = np.ones(shape, dtype)
        else:
            found[value.name] = generator.integers(0, 2, shape).astype(dtype)
    return found


def _shape(value: Any, sizes: Sizes) -> list[int]:
    if value.name in sizes.shapes:
        return list(sizes.shapes[value.name])
    shape = []
    for axis, dim in enumerate(value.shape):
        known = dim if isinstance(dim, int) else sizes.dims.get(dim, sizes.dims.get(f"{value.name}:{axis}"))
        known = sizes.batch if axis == 0 and not isinstance(dim, int) and known is None else known
        if known is None:
            raise UnsupportedError(f"axis {axis} of input {value.name} has no size; give it by --dim or --input-shape")
        shape.append(int(known))
    return shape


def outputs(path: Path, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs. Raises UnsupportedError where the model does not run."""
    try:
        return [np.asarray(value) for value in session(path).run(None, dict(given))]
    except MemoryError:
        raise
    except UnsupportedError:
        raise
    except Exception as error:  # of onnxruntime's own kinds
        raise UnsupportedError(f"onnxruntime does not run the file: {short(error)}") from error


def error_of(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest relative error of an output: the root mean square of what it is off by over that of ``wanted``.

    Infinite where shapes differ, or what is no number; of whole numbers, the share that differs.
    """
    if [a.shape for a in found] != [b.shape for b in wanted]:
        return float("inf")
    return max((_error(a, b) for a, b in zip(found, wanted, strict=True)), default=0.0)


def _error(found: np.ndarray, wanted: np.ndarray) -> float:
    if wanted.size == 0:
        return 0.0
    if wanted.dtype.kind != "f":
        return float(np.mean(found != wanted))
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    off, scale = (float(np.sqrt(np.mean(v[finite] ** 2))) if finite.any() else 0.0 for v in (a - b, b))
    return off / scale if scale > 0 else (0.0 if off == 0 else float("inf"))
