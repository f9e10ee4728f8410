"""The model of a session, read without its weights, and what it is predicted to cost at given shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfpass.decision import Limits
from perfpass.devices import Device
from perfpass.errors import PerfPassError, ShapeError, UnsupportedError
from perfpass.graph import OpGraph
from perfpass.importers import onnx
from perfpass.prediction import Interval, Prediction
from perfpass.predictors import predict_graph
from perfpass.predictors.assemble import peak_memory
from perfpass.predictors.workload import precision_of

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Input names with their shapes, in the order of the session's inputs."""

_ORT_FORMAT = b"ORTM"  # identifier of the flatbuffer, at byte 4 (onnxruntime/core/flatbuffers/schema/ort.fbs)


@dataclass(frozen=True)
class Forecaster:
    """Predicts one model for one device. ``model``: a path or serialized bytes; ``precision`` None: the graph's own."""

    model: str | bytes
    device: Device
    runtime: str
    batch: int | None
    dims: Mapping[str, int]
    precision: str | None

    def graph(self) -> OpGraph:
        """The file's graph with the given dimensions. Raises what reading raises, ShapeError where some are open."""
        self._refuse_ort_format()
        return onnx.read(self.model, dims=self.dims, batch=self.batch)

    def predict(self, graph: OpGraph, batch: int | None = None, limits: Limits | None = None) -> Prediction:
        """What one run of ``graph`` costs, decided by ``limits``. Raises what `perfpass.predict_graph` raises."""
        return predict_graph(graph, self.device, **self._how(graph, batch), limits=limits)

    def peak(self, graph: OpGraph, batch: int | None = None) -> Interval:
        """The peak memory of that prediction alone, which takes a tenth of the time."""
        return peak_memory(graph, self.device, **self._how(graph, batch))

    def _how(self, graph: OpGraph, batch: int | None) -> dict[str, Any]:
        return {
            "batch": batch or self.batch,
            "precision": precision_of(graph) if self.precision is None else self.precision,
            "runtime": self.runtime,
            "layout": "nchw",
        }

    def at_shapes(self, shapes: Shapes, limits: Limits | None = None) -> Prediction:
        """The prediction for whole input shapes. Raises as `graph` and `predict`."""
        return self.predict(self.graph_at(shapes), leading(shapes), limits)

    def graph_at(self, shapes: Shapes) -> OpGraph:
        """The file's graph for whole input shapes. Raises as `graph`."""
        self._refuse_ort_format()
        return onnx.read(self.model, input_shapes=dict(shapes))

    def peaks(self) -> Callable[[Device | None, int | None], Interval] | None:
        """The peak memory by device and batch (None: as they are), the other dimensions as given; the file is read
        twice. None where it cannot be read.
        """
        from perfpass.predictors.remedies import AtBatch

        try:
            graph = self.graph()
        except PerfPassError:
            return None
        at = AtBatch(graph, lambda batch: onnx.read(self.model, dims=self.dims, batch=batch))

        def peak(device: Device | None, batch: int | None) -> Interval:
            other = self if device is None else replace(self, device=device)
            return other.peak(graph if batch is None else at(batch), batch)

        return peak

    def least_peak(self) -> Interval | None:
        """The peak memory with every open dimension at 1, a lower bound. None where that cannot be had."""
        try:
            least = dict.fromkeys(self.open_dims(), 1)
            return self.peak(onnx.read(self.model, dims={**least, **self.dims}, batch=self.batch)) if least else None
        except PerfPassError:
            return None

    def open_dims(self) -> tuple[str, ...]:
        """The names of dimensions that have no value; none known of a model given as bytes. Raises as `graph`."""
        if isinstance(self.model, bytes):
            return ()
        named = [dim for value in onnx.inputs(self.model) for dim in value.shape or () if isinstance(dim, str)]
        return tuple(dict.fromkeys(dim for dim in named if dim not in self.dims))

    def why_not(self, error: Exception) -> str:
        """A sentence on why there is no prediction."""
        if isinstance(error, ShapeError):
            with contextlib.suppress(PerfPassError):
                if names := self.open_dims():
                    return (
                        f"the model leaves {', '.join(names)} open; give their sizes (batch=, dims=), or see what its "
                        "runs are compared with"
                    )
        return why_not(error)

    def declared(self) -> Shapes | None:
        """The inputs' shapes where the file fixes all of them, else None. Only of a path."""
        if isinstance(self.model, bytes):
            return None
        found: list[tuple[str, tuple[int, ...]]] = []
        for value in onnx.inputs(self.model):
            sizes = tuple(size for size in value.shape or () if isinstance(size, int))
            if value.shape is None or len(sizes) != len(value.shape):
                return None
            found.append((value.name, sizes))
        return tuple(found)

    def _refuse_ort_format(self) -> None:
        model = self.model
        if model[4:8] == _ORT_FORMAT if isinstance(model, bytes) else model.lower().endswith(".ort"):
            raise UnsupportedError("the model is in ORT format, which perfpass does not read; predict its ONNX file")


def why_not(error: Exception) -> str:
    """A sentence on why there is no prediction."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, PerfPassError) else f"internal error of perfpass, {type(error).__name__}: {text}"


def sentence(prediction: Prediction) -> str:
    """Latency and memory of a prediction, for messages and reports."""
    from perfpass.text import digits, size

    time, memory = prediction.latency_ms, prediction.peak_memory_bytes
    w = prediction.workload
    return (
        f"{digits(time.median)} ms ({digits(time.low)} to {digits(time.high)}), {size(memory.median)} "
        f"({size(memory.low)} to {size(memory.high)}) on {w['device']}, batch {w['batch']}, {w['precision']}"
    )


def shapes_of(graph: OpGraph) -> Shapes:
    """The names and shapes of a graph's inputs."""
    return tuple((graph.string(int(graph.tensor_name[t])), graph.shape(int(t))) for t in graph.graph_inputs)


def leading(shapes: Shapes) -> int | None:
    """The leading dimension of the first input that has one: the batch."""
    return next((shape[0] for _, shape in shapes if shape), None)
