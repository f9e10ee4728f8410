"""ONNX Runtime on an exported model or a file, with the CPU or the CUDA execution provider."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from perfpass.errors import UnsupportedError
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners.exported import facts, model_file
from perfpass.measure.runners.on_host import HostSession, loading
from perfpass.measure.runners.prepared import Prepared, input_sizes, random_input

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
}


def opened(configuration: Configuration, built: Built | None, prepared: Prepared | None = None) -> HostSession:
    """One configuration in ONNX Runtime; inputs are in host memory and the copies to a device and back are part of a
    lap, one `run`.
    """
    provider = "CPUExecutionProvider" if configuration.device == "cpu" else "CUDAExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise UnsupportedError(f"onnxruntime {onnxruntime.__version__} has no {provider} here")
    with model_file(configuration, built, prepared) as path:
        session = _session(path, configuration, provider)
    feed = {value.name: _array(value, configuration) for value in session.get_inputs()}
    known = facts(configuration, built) if prepared is None else prepared.facts
    return HostSession(partial(session.run, None, feed), known)


def _session(path: Path, configuration: Configuration, provider: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if configuration.threads is not None:
        options.intra_op_num_threads = configuration.threads
    with loading(path, "onnxruntime", (Exception,)):
        return onnxruntime.InferenceSession(str(path), options, providers=[provider])


def _array(value: Any, configuration: Configuration) -> np.ndarray:
    """A random input; the first open dimension is the batch."""
    if value.type not in _DTYPES:
        raise UnsupportedError(f"input {value.name} has type {value.type}; only tensors of numbers can be made up")
    declared = [dim if isinstance(dim, int) and dim > 0 else None for dim in value.shape]
    return random_input(input_sizes(value.name, declared, configuration), _DTYPES[value.type])
