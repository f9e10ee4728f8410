"""LiteRT (TensorFlow Lite) on the CPU: `.tflite` files through the interpreter and its XNNPACK kernels."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from perfpass.errors import FileError, FormatError
from perfpass.importers.model_sources import is_out_of_memory
from perfpass.measure.configuration import Configuration
from perfpass.measure.runners.prepared import input_sizes, random_input


class LiteRtSession:
    """One file in LiteRT's interpreter."""

    def __init__(self, configuration: Configuration) -> None:
        path = Path(configuration.name)
        if not path.is_file():
            raise FileError(f"{path}: no such file")
        threads = configuration.threads or len(os.sched_getaffinity(0))
        try:
            self._interpreter: Any = Interpreter(model_path=str(path), num_threads=threads)
            for value in self._interpreter.get_input_details():
                declared = [int(size) if size > 0 else None for size in value["shape_signature"]]
                sizes = input_sizes(value["name"], declared, configuration)
                if sizes != [int(size) for size in value["shape"]]:
                    self._interpreter.resize_tensor_input(value["index"], sizes, strict=True)
            self._interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            raise FormatError(f"{path.name}: LiteRT cannot load it: {' '.join(str(error).split())}") from error
        for value in self._interpreter.get_input_details():
            made = random_input([int(size) for size in value["shape"]], np.dtype(value["dtype"]).name)
            self._interpreter.set_tensor(value["index"], made)
        self.facts = {"threads": configuration.threads}

    def lap(self) -> float:
        """One `invoke`; by the monotonic clock, in ms."""
        start = time.perf_counter_ns()
        self._interpreter.invoke()
        return (time.perf_counter_ns() - start) / 1e6

    def reset_memory(self) -> None:
        """LiteRT keeps no peak that Python can read."""

    def memory(self) -> dict[str, int]:
        """Nothing; the peak resident size of the process tells."""
        return {}

    def kernels(self) -> list[dict[str, Any]]:
        """Nothing: kernels are measured in TVM alone."""
        return []

    def close(self) -> None:
        """Frees the interpreter."""
        self._interpreter = None
