"""Products with weights in 8 bits beside those in fp32, in ONNX Runtime on this CPU: what their rate is learned from.

    python benchmarks/quantized_products.py data/records/measured/onnxruntime-8-bits/products.parquet   # some minutes

Each is a model of one MatMul, and the same after `onnxruntime.quantization.quantize_dynamic`. The two run in turn with
one thread; times are those of the processor, the medians of all runs.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

ROWS = (1, 4, 16, 64, 128, 197, 512)
SIZES = ((64, 192), (192, 192), (192, 768), (256, 1024), (384, 384), (512, 2048), (768, 768), (768, 3072), (1024, 4096),
         (3072, 768), (1024, 256), (300, 500), (2048, 1000))  # fmt: skip
SECONDS = 1.0  # of a pair


def product(path: Path, m: int, k: int, n: int) -> None:
    """Writes a model of [m, k] x [k, n]."""
    weights = np.random.default_rng(0).standard_normal((k, n)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [m, k]), ("y", [m, n]))
    ]
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


def session(path: Path) -> Any:
    """With one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def measured(m: int, k: int, n: int, folder: Path) -> dict[str, float]:
    """Medians of both, in microseconds."""
    wide, narrow = folder / "wide.onnx", folder / "narrow.onnx"
    product(wide, m, k, n)
    quantize_dynamic(str(wide), str(narrow), weight_type=QuantType.QInt8)
    sessions = {"fp32_us": session(wide), "int8_us": session(narrow)}
    feed = {"x": np.random.default_rng(1).standard_normal((m, k)).astype(np.float32)}
    found: dict[str, list[float]] = {name: [] for name in sessions}
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or len(found["int8_us"]) < 5:
        for name, each in sessions.items():
            start = time.process_time_ns()
            each.run(None, feed)
            found[name].append((time.process_time_ns() - start) / 1e3)
    return {"m": m, "k": k, "n": n, **{name: float(np.median(laps)) for name, laps in found.items()},
            "runs": len(found["int8_us"])}  # fmt: skip


def main() -> None:
    """Measures all and writes the table."""
    with TemporaryDirectory() as folder:
        rows = [measured(m, k, n, Path(folder)) for m in ROWS for k, n in SIZES]
    frame = pandas.DataFrame(rows)
    print((frame.int8_us / frame.fp32_us).describe(), file=sys.stderr)
    Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(sys.argv[1], compression="zstd", index=False)


if __name__ == "__main__":
    main()
