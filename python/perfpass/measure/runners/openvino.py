"""OpenVINO on the CPU: models by name through an ONNX file, and ONNX and OpenVINO files as they are."""

from __future__ import annotations

import time
from typing import Any

import openvino

from perfpass.errors import FormatError
from perfpass.importers.model_sources import is_out_of_memory
from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners.exported import facts, model_file
from perfpass.measure.runners.prepared import Prepared, input_sizes, random_input


class OpenVinoSession:
    """One configuration in OpenVINO's CPU plug-in, compiled for latency and computed in fp32."""

    def __init__(self, configuration: Configuration, built: Built | None, prepared: Prepared | None = None) -> None:
        settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        if configuration.threads is not None:
            settings["INFERENCE_NUM_THREADS"] = configuration.threads
        with model_file(configuration, built, prepared) as path:
            try:
                model = openvino.Core().read_model(path)
                inputs = {value: _sizes(value, configuration) for value in model.inputs}
                if any(value.get_partial_shape().is_dynamic for value in inputs):
                    model.reshape(inputs)
                self._request: Any = openvino.compile_model(model, "CPU", settings).create_infer_request()
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                raise FormatError(f"{path.name}: OpenVINO cannot load it: {' '.join(str(error).split())}") from error
        for value in self._request.model_inputs:
            dtype = value.get_element_type().to_dtype().name
            shape = [int(size) for size in value.get_shape()]
            self._request.set_tensor(value, openvino.Tensor(random_input(shape, dtype)))
        self.facts = facts(configuration, built) if prepared is None else prepared.facts

    def lap(self) -> float:
        """One `infer`, outputs in host memory; by the monotonic clock, in ms."""
        start = time.perf_counter_ns()
        self._request.infer()
        return (time.perf_counter_ns() - start) / 1e6

    def reset_memory(self) -> None:
        """OpenVINO keeps no peak that Python can read."""

    def memory(self) -> dict[str, int]:
        """Nothing; the peak resident size of the process tells."""
        return {}

    def kernels(self) -> list[dict[str, Any]]:
        """Nothing: kernels are measured in TVM alone."""
        return []

    def close(self) -> None:
        """Frees the compiled model."""
        self._request = None


def _sizes(value: Any, configuration: Configuration) -> list[int]:
    shape = value.get_partial_shape()
    return input_sizes(value.get_any_name(), [d.get_length() if d.is_static else None for d in shape], configuration)
