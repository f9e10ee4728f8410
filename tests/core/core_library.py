"""The installed libperfpass_core through its C header: what the tests of it ask."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

PREFIX = Path(__file__).parents[2] / "build" / "library" / "prefix"
SHARED = PREFIX / "lib" / "libperfpass_core.so"
NAMES = ("latency_ms", "throughput_per_s", "power_w", "energy_j", "alive", "reserved", "peak_memory_bytes")
LEVELS = ("in range", "near", "outside")


class Bounds(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("median", "low", "high")]


class Prediction(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("batch", ctypes.c_int64),
        *((name, Bounds) for name in NAMES),
        ("support", ctypes.c_int32),
        ("reasons", ctypes.c_char * 1024),
    ]


class Error(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("status", ctypes.c_int32), ("message", ctypes.c_char * 1024)]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("batch", ctypes.c_int64),
        ("detections", ctypes.c_int64),
        ("dims", ctypes.c_void_p),
        ("dim_count", ctypes.c_size_t),
        ("input_shapes", ctypes.c_void_p),
        ("input_shape_count", ctypes.c_size_t),
        ("most_file_bytes", ctypes.c_uint64),
        ("most_nodes", ctypes.c_uint64),
    ]


class Refused(Exception):
    """A status other than PERFPASS_OK, and its message."""


def sized(structure: type[Any]) -> Any:
    """A structure that says its size."""
    return structure(struct_size=ctypes.sizeof(structure))


class Library:
    """Its functions; each raises Refused where the library gives an error."""

    def __init__(self) -> None:
        self.functions = ctypes.CDLL(str(SHARED))

    def call(self, name: str, *arguments: Any) -> None:
        error = sized(Error)
        status = getattr(self.functions, name)(*arguments, ctypes.byref(error))
        if status:
            raise Refused(status, error.message.decode())

    def made(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """What a function that makes a handle gives in its last argument."""
        handle = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def graph(self, model: bytes, batch: int | None) -> ctypes.c_void_p:
        options = sized(Options)
        options.batch = batch or 0
        size = ctypes.c_size_t(len(model))
        return self.made("perfpass_read_onnx_bytes", model, size, ctypes.byref(options))

    def predict(self, bundle: bytes, model: bytes, batch: int | None = None) -> Prediction:
        predictor = self.made("perfpass_predictor_read_bytes", bundle, ctypes.c_size_t(len(bundle)))
        graph = self.graph(model, batch)
        found = sized(Prediction)
        try:
            self.call("perfpass_predict", predictor, graph, ctypes.c_int64(0), ctypes.byref(found))
        finally:
            self.functions.perfpass_graph_free(graph)
            self.functions.perfpass_predictor_free(predictor)
        return found
