"""ONNX Runtime on an exported model or a file, with the CPU or the CUDA execution provider."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from perfpass.errors import FormatError, UnsupportedError
from perfpass.importers.model_sources import is_out_of_memory
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners.exported import facts, model_file
from perfpass.measure.runners.prepared import Prepared, input_sizes

_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
}


class OnnxRuntimeSession:
    """One configuration in ONNX Runtime; inputs are in host memory and the copy to a device is part of a lap."""

    def __init__(self, configuration: Configuration, built: Built | None, prepared: Prepared | None = None) -> None:
        provider = "CPUExecutionProvider" if configuration.device == "cpu" else "CUDAExecutionProvider"
        if provider not in onnxruntime.get_available_providers():
            raise UnsupportedError(f"onnxruntime {onnxruntime.__version__} has no {provider} here")
        with model_file(configuration, built, prepared) as path:
            self._session: Any = self._open(path, configuration, provider)
        self._feed = {value.name: _array(value, configuration) for value in self._session.get_inputs()}
        self.facts = facts(configuration, built) if prepared is None else prepared.facts

    @staticmethod
    def _open(path: Path, configuration: Configuration, provider: str) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if configuration.threads is not None:
            options.intra_op_num_threads = configuration.threads
        try:
            return onnxruntime.InferenceSession(str(path), options, providers=[provider])
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise FormatError(f"{path.name}: onnxruntime cannot load it: {error}") from error

    def lap(self) -> float:
        """One `run`, outputs in host memory; by the monotonic clock, in ms."""
        start = time.perf_counter_ns()
        self._session.run(None, self._feed)
        return (time.perf_counter_ns() - start) / 1e6

    def reset_memory(self) -> None:
        """ONNX Runtime's arena keeps no peak that Python can read."""

    def memory(self) -> dict[str, int]:
        """Nothing; the peak resident size of the process tells."""
        return {}

    def kernels(self) -> list[dict[str, Any]]:
        """Nothing: kernels are measured in TVM alone."""
        return []

    def close(self) -> None:
        """Frees the session."""
        self._session, self._feed = None, {}


def _array(value: Any, configuration: Configuration) -> np.ndarray:
    """A random input: standard normal, or whole numbers of 0 and 1. The first open dimension is the batch."""
    if value.type not in _DTYPES:
        raise UnsupportedError(f"input {value.name} has type {value.type}; only tensors of numbers can be made up")
    declared = [dim if isinstance(dim, int) and dim > 0 else None for dim in value.shape]
    dims = input_sizes(value.name, declared, configuration)
    generator = np.random.default_rng(0)
    dtype = np.dtype(_DTYPES[value.type])
    if dtype.kind == "f":
        return generator.standard_normal(dims, np.float32).astype(dtype)
    return generator.integers(0, 2, dims).astype(dtype)
