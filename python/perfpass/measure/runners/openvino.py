"""OpenVINO on the CPU: models by name through an ONNX file, and ONNX and OpenVINO files as they are."""

from __future__ import annotations

from typing import Any

import openvino

from perfpass.measure.configuration import Configuration
from perfpass.measure.models import Built
from perfpass.measure.runners.exported import facts, model_file
from perfpass.measure.runners.on_host import HostSession, loading
from perfpass.measure.runners.prepared import Prepared, input_sizes, random_input


def opened(configuration: Configuration, built: Built | None, prepared: Prepared | None = None) -> HostSession:
    """One configuration in OpenVINO's CPU plug-in, compiled for latency and computed in fp32; a lap is one `infer`,
    outputs in host memory.
    """
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    if configuration.threads is not None:
        settings["INFERENCE_NUM_THREADS"] = configuration.threads
    with model_file(configuration, built, prepared) as path, loading(path, "OpenVINO", (RuntimeError,)):
        model = openvino.Core().read_model(path)
        inputs = {value: _sizes(value, configuration) for value in model.inputs}
        if any(value.get_partial_shape().is_dynamic for value in inputs):
            model.reshape(inputs)
        request: Any = openvino.compile_model(model, "CPU", settings).create_infer_request()
    for value in request.model_inputs:
        dtype = value.get_element_type().to_dtype().name
        shape = [int(size) for size in value.get_shape()]
        request.set_tensor(value, openvino.Tensor(random_input(shape, dtype)))
    return HostSession(request.infer, facts(configuration, built) if prepared is None else prepared.facts)


def _sizes(value: Any, configuration: Configuration) -> list[int]:
    shape = value.get_partial_shape()
    return input_sizes(value.get_any_name(), [d.get_length() if d.is_static else None for d in shape], configuration)
