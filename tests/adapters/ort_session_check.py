"""Run by test_ort_observer.py in processes of their own, with another release of onnxruntime in front of the path.

``python ort_session_check.py MODEL...`` observes every model and prints one JSON line for each: the release, and
whether outputs are bit-identical and the graph equals what the file reader makes of the model that onnxruntime saved.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from ort_extension import observer
from perfpass.graph import OpGraph
from perfpass.importers import onnx as importer

# What sessions are told of open dimensions, by model.
FREE = {"gpt2-dynamic": {"batch": 2, "length": 8}}
ARRAYS = ("op", "attributes", "repeat", "inputs", "input_offset", "outputs", "output_offset")
ARRAYS += ("dims", "shape_offset", "tensor_dtype", "tensor_role", "producer", "edge_index", "edge_tensor")


def options_for(name: str, *, saved: Path | None = None, everything: bool = False) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if everything else level.ORT_ENABLE_BASIC
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    for symbol, size in FREE.get(name, {}).items():
        options.add_free_dimension_override_by_name(symbol, size)
    return options


def feeds(session: Any) -> dict[str, np.ndarray]:
    """Random inputs of the shapes that a session asks for."""
    random = np.random.default_rng(7)
    made: dict[str, np.ndarray] = {}
    for node in session.get_inputs():
        if node.type == "tensor(int64)":
            made[node.name] = np.asarray(random.integers(1, 8, size=node.shape), dtype=np.int64)
        else:
            dtype = np.float16 if node.type == "tensor(float16)" else np.float32
            made[node.name] = random.normal(size=node.shape).astype(dtype)
    return made


def same_bits(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(first, second, strict=True)
    )


def differences(seen: OpGraph, read: OpGraph) -> list[str]:
    """The arrays in which two graphs differ, names of nodes and tensors among them."""
    if (seen.node_count, seen.tensor_count) != (read.node_count, read.tensor_count):
        return [f"{seen} and {read}"]
    found = [name for name in ARRAYS if not np.array_equal(getattr(seen, name), getattr(read, name))]
    nodes = [[(g.source_op_name(i), g.label(i)) for i in range(g.node_count)] for g in (seen, read)]
    tensors = [[g.core.string(int(i)) for i in g.tensor_name] for g in (seen, read)]
    return found + ["node names"] * (nodes[0] != nodes[1]) + ["tensor names"] * (tensors[0] != tensors[1])


def outputs(model: Path, *, observed: bool) -> tuple[list[np.ndarray], observer.Observation | None]:
    """Of a session with every optimisation."""
    options = options_for(model.stem, everything=True)
    observation = observer.observe(options) if observed else None
    session = ort.InferenceSession(str(model), options)
    return session.run(None, feeds(session)), observation


def observed_and_saved(model: Path) -> tuple[observer.Observation, OpGraph]:
    """A session's observation, and the graph of the file that the session saved after the same optimisations."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "optimized.onnx"
        options = options_for(model.stem, saved=saved)
        observation = observer.observe(options)
        ort.InferenceSession(str(model), options)
        return observation, importer.read(saved)


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        observation, read = observed_and_saved(path)
        seen = observation.graph
        plain, _ = outputs(path, observed=False)
        with_observer, second = outputs(path, observed=True)
        result = {
            "release": ort.__version__,
            "problem": observation.problem,
            "differences": ["no graph"] if seen is None else differences(seen, read),
            "same_bits": same_bits(plain, with_observer),
            "runs": -1 if second is None else len(second.drain_runs()),
        }
        print(json.dumps(result))
