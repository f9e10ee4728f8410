"""ONNX Runtime on an exported model or a file, with the CPU or the CUDA execution provider."""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from perfpass.errors import ArgumentError, FileError, FormatError, UnsupportedError
from perfpass.importers.model_sources import is_out_of_memory
from perfpass.measure.configuration import DEFAULT_SEQUENCE_LENGTH, Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners.prepared import Prepared

_OPSET = 17
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
        with contextlib.ExitStack() as stack:
            if built is None:
                path = Path(configuration.name if prepared is None else prepared.path)
                if not path.is_file():
                    raise FileError(f"{path}: no such file")
            else:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="perfpass-export-"))
                path = Path(folder) / "model.onnx"
                export(built, configuration, path)
            self._session: Any = self._open(path, configuration, provider)
        self._feed = {value.name: _array(value, configuration) for value in self._session.get_inputs()}
        self.facts = _facts(configuration, built) if prepared is None else prepared.facts

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


def prepare(configuration: Configuration, built: Built, folder: str) -> Prepared:
    """The model as an ONNX file in ``folder``."""
    path = Path(folder) / "model.onnx"
    export(built, configuration, path)
    return Prepared(str(path), [], _facts(configuration, built) | {"model_file_bytes": path.stat().st_size})


def _facts(configuration: Configuration, built: Built | None) -> dict[str, Any]:
    known = {} if built is None else built.facts(configuration) | {"opset": _OPSET}
    return known | {"threads": configuration.threads}


def export(built: Built, configuration: Configuration, path: Path) -> None:
    """Writes the model as ONNX with PyTorch's TorchScript exporter, at the configuration's batch.

    Raises UnsupportedError where the exporter cannot.
    """
    import torch

    built.module.eval().float()
    _fill_zeros(built.module)
    inputs = built.inputs(configuration, "cpu")
    built.module.cpu()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                built.positional(tuple(inputs)),
                tuple(inputs.values()),
                str(path),
                input_names=list(inputs),
                opset_version=_OPSET,
                dynamo=False,
            )
    except MemoryError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(
            f"{configuration.model} cannot be exported to ONNX: {' '.join(str(error).split())[:300]}"
        ) from error


def _fill_zeros(module: Any) -> None:
    """Gives parameters that are zero throughout small random values, as training would.

    A last normalization that starts at zero makes the folded weights of its convolution zero, and the exporter stores
    equal tensors once: the file would lack up to half of a trained network's bytes.
    """
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() > 1 and not parameter.any():
                parameter.normal_(std=0.02)


def _array(value: Any, configuration: Configuration) -> np.ndarray:
    """A random input: standard normal, or whole numbers of 0 and 1. The first open dimension is the batch."""
    if value.type not in _DTYPES:
        raise UnsupportedError(f"input {value.name} has type {value.type}; only tensors of numbers can be made up")
    given = dict(configuration.input_shapes or ()).get(value.name)
    dims = _dims(value, configuration) if given is None else list(given)
    generator = np.random.default_rng(0)
    dtype = np.dtype(_DTYPES[value.type])
    if dtype.kind == "f":
        return generator.standard_normal(dims, np.float32).astype(dtype)
    return generator.integers(0, 2, dims).astype(dtype)


def _dims(value: Any, configuration: Configuration) -> list[int]:
    dims: list[int] = []
    for position, dim in enumerate(value.shape):
        if isinstance(dim, int) and dim > 0:
            dims.append(dim)
        elif position == 0:
            dims.append(configuration.batch)
        else:
            dims.append(configuration.image_size or configuration.sequence_length or DEFAULT_SEQUENCE_LENGTH)
    if dims and isinstance(value.shape[0], int) and value.shape[0] != configuration.batch:
        raise ArgumentError(f"input {value.name} has a fixed batch of {value.shape[0]}, not {configuration.batch}")
    return dims
