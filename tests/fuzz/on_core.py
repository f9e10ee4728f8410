"""Models' files that the compiled core reads, given to `perfpass.load`.

libFuzzer looks for what the core does with them under the sanitizers (libfuzzer.py); what it finds is kept here, and so
is replayed by both.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import hostile_files as onnx_file

from .containers import BINARY, Tokens, Wire
from .on_formats import of_files, target
from .target import ROOT, Target

_LARGEST_SEED = 120_000  # bytes; larger ones are slow, and of the same operators


def onnx_files() -> list[bytes]:
    """Small ones, and those of the examples that are not large."""
    made = [onnx_file.plain(), _network()]
    examples = (path.read_bytes() for path in sorted((ROOT / "examples").glob("*.onnx")))
    return [*made, *(data for data in examples if len(data) <= _LARGEST_SEED)]


@cache
def ort_files() -> list[bytes]:
    """What ONNX Runtime itself stores of some of them; none where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return []
    found = []
    with TemporaryDirectory() as folder:
        stored = Path(folder) / "model.ort"
        for data in (onnx_file.plain(), _network()):
            options = onnxruntime.SessionOptions()
            options.optimized_model_filepath = str(stored)
            options.log_severity_level = 4
            options.add_session_config_entry("session.save_model_format", "ORT")
            onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            found.append(stored.read_bytes())
    return found


def _network() -> bytes:
    """A network whose weights are there: convolution, pooling, shape arithmetic that is folded, a product."""
    weights = [
        onnx_file.tensor("w", [6, 4, 3, 3], values=[0.5] * 216),
        onnx_file.tensor("m", [6, 5], values=[0.5] * 30),
        onnx_file.tensor("to", [2], onnx_file.INT64, [0, -1]),
    ]
    nodes = [
        onnx_file.node("Conv", ["x", "w"], ["a"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        onnx_file.node("Relu", ["a"], ["b"], "relu"),
        onnx_file.node("GlobalAveragePool", ["b"], ["c"], "pool"),
        onnx_file.node("Reshape", ["c", "to"], ["d"], "flat"),
        onnx_file.node("MatMul", ["d", "m"], ["e"], "product"),
        onnx_file.node("Softmax", ["e"], ["y"], "softmax", axis=1),
    ]
    return onnx_file.model(onnx_file.graph(nodes, [onnx_file.X], [onnx_file.value("y", [1, 5])], weights))


def flatbuffer_files() -> list[bytes]:
    """Of the three formats."""
    return [*of_files("*.tflite", "*.pte")(), *ort_files()]


TARGETS: tuple[Target, ...] = (
    target("onnx", onnx_files, Wire(), ("python/perfpass/importers/onnx.py",), "onnx"),
    target(
        "flatbuffers",
        flatbuffer_files,
        BINARY,
        tuple(
            f"python/perfpass/importers/formats/{name}.py"
            for name in ("tflite", "ort_format", "executorch", "flatbuffers")
        ),
        "tflite",
    ),
    target("stablehlo", of_files("*.mlir"), Tokens(), ("python/perfpass/importers/formats/stablehlo.py",), "mlir"),
)
