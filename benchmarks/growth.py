"""Time and memory of a file's way to a prediction, from 1,000 to 1,000,000 nodes, and of many files in one process.

    python benchmarks/growth.py [--json FILE] [--most N] [--models N]

A chain of Add and Relu, written as an ONNX file. Each size is read, counted, planned and predicted in a process of its
own, whose peak of resident memory is its own; times are of processor, the least of three, since other processes of the
machine count into the wall's. Beside them stands a walk over the same bytes, mapped from the file.
"""

from __future__ import annotations

import argparse
import json
import mmap
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (1_000, 10_000, 100_000, 1_000_000)
STAGES = ("walk", "read", "count", "plan", "table", "predict")
DEVICE = "a100-80gb"
EXAMPLE = Path(__file__).parent.parent / "examples" / "resnet50.onnx"


def write_chain(path: Path, nodes: int) -> None:
    """Add and Relu in turn over 64 x 1024 floats."""
    import onnx
    from onnx import TensorProto, helper

    made, last = [], "x"
    for i in range(nodes):
        kind, inputs = ("Relu", [last]) if i % 2 else ("Add", [last, "x"])
        made.append(helper.make_node(kind, inputs, [f"t{i}"], name=f"n{i}"))
        last = f"t{i}"
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 1024]) for name in ("x", last)]
    onnx.save(helper.make_model(helper.make_graph(made, "chain", value[:1], value[1:])), path)


def walk(path: str) -> int:
    """Reads every byte of a mapped file."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return int(np.frombuffer(mapped[:], dtype=np.uint8).sum())


def peak_mib() -> float:
    """Most that was resident of this process; getrusage's figure begins with that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure(path: str) -> dict[str, Any]:
    """Milliseconds of each stage and MiB at the peak."""
    from perfpass import load
    from perfpass.graph import costs, liveness
    from perfpass.predictors import predict_graph
    from perfpass.predictors.inference.fusion import as_run

    predict_graph(load(EXAMPLE), DEVICE)  # what is read once
    before = peak_mib()
    graph = load(path)
    counted = costs.count(graph)
    stages = {
        "walk": lambda: walk(path),
        "read": lambda: load(path),
        "count": lambda: costs.count(graph),
        "plan": lambda: liveness.plan(graph),
        "table": lambda: as_run(graph, counted, "torch", "cpu"),
        "predict": lambda: predict_graph(graph, DEVICE),
    }
    found = {}
    for name, run in stages.items():
        times = []
        for _ in range(3):
            start = time.process_time()
            run()
            times.append(1e3 * (time.process_time() - start))
        found[name] = min(times)
    return {
        "nodes": int(graph.node_count),
        "file_mib": Path(path).stat().st_size / 2**20,
        "ms": found,
        "mib": peak_mib() - before,
    }


def many(models: int) -> list[tuple[int, float]]:
    """MiB resident after so many predictions of one process, at eleven moments."""
    from perfpass import predict

    page, found = resource.getpagesize(), []
    for i in range(models + 1):
        if i % max(models // 10, 1) == 0:
            found.append((i, int(Path("/proc/self/statm").read_text().split()[1]) * page / 2**20))
        predict(EXAMPLE, DEVICE, batch=1 + i % 64)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="nodes of the largest graph (default a million)")
    parser.add_argument("--models", type=int, default=10_000, help="predictions of one process (default 10,000)")
    parser.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (n for n in SIZES if n <= options.most):
            path = Path(folder) / f"{size}.onnx"
            write_chain(path, size)
            command = [sys.executable, __file__, "--measure", str(path)]
            rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            if rows[-1]["nodes"] != size:
                sys.exit(f"wrong result, timings are void: {rows[-1]['nodes']} nodes of {size}")
    print(f"{'nodes':>9}  {'file MiB':>8}  " + "  ".join(f"{stage:>9}" for stage in STAGES) + f"  {'MiB':>8}")
    for row in rows:
        times = "  ".join(f"{row['ms'][stage]:>6.2f} ms" for stage in STAGES)
        print(f"{row['nodes']:>9}  {row['file_mib']:>8.2f}  {times}  {row['mib']:>8.1f}", flush=True)
    kept = many(options.models)
    print("\npredictions  MiB resident\n" + "\n".join(f"{count:>11}  {mib:>12.1f}" for count, mib in kept))
    if options.json:
        options.json.write_text(json.dumps({"growth": rows, "resident": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
