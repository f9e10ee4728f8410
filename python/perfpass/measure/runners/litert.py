"""LiteRT (TensorFlow Lite) on the CPU: `.tflite` files through the interpreter and its XNNPACK kernels."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from perfpass.measure.configuration import Configuration
from perfpass.measure.runners.exported import facts, model_file
from perfpass.measure.runners.on_host import HostSession, loading
from perfpass.measure.runners.prepared import input_sizes, random_input


def opened(configuration: Configuration) -> HostSession:
    """One file in LiteRT's interpreter; a lap is one `invoke`."""
    threads = configuration.threads or len(os.sched_getaffinity(0))
    with model_file(configuration, None, None) as path, loading(path, "LiteRT", (RuntimeError, ValueError)):
        interpreter: Any = Interpreter(model_path=str(path), num_threads=threads)
        for value in interpreter.get_input_details():
            declared = [int(size) if size > 0 else None for size in value["shape_signature"]]
            sizes = input_sizes(value["name"], declared, configuration)
            if sizes != [int(size) for size in value["shape"]]:
                interpreter.resize_tensor_input(value["index"], sizes, strict=True)
        interpreter.allocate_tensors()
    for value in interpreter.get_input_details():
        made = random_input([int(size) for size in value["shape"]], np.dtype(value["dtype"]).name)
        interpreter.set_tensor(value["index"], made)
    return HostSession(interpreter.invoke, facts(configuration, None))
