"""How soon `ort_extension.InferenceSession` refuses a model that does not fit, and what it adds to sessions that do.

    python benchmarks/ort_refusal.py [--json FILE] [--runs N] [--gigabytes N]

Refusal: models with gigabytes of weights in an external file (absent, or sparse) against a budget of half of that, in a
process that has done its imports, and in a fresh one. What the process read meanwhile is checked (/proc/self/io: less
than the model's file and 1 MiB), so that no weight can have been. The peer is onnxruntime alone on a quarter of the
weights, sparse, which it has to load to know what it needs: time and resident memory; and on the whole model in a
process whose data segment is limited to the budget: what it says.

Creation: the time of the constructor outside onnxruntime's own, and the native walk within it, on real exports with
random weights, warm; processor time of the calling thread, which neighbours on the machine disturb less. Run: a session
of one tiny operator and onnxruntime's own in turns, blocks of 200 runs; the difference of the blocks' medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from graphs import onnx_decoder
from report import figure, publish, summary, table

import ort_extension

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CPU = ["CPUExecutionProvider"]
DEVICE = "h100"
DECODER_LAYERS = 167  # 60 nodes each: a little over 10,000
READ_BESIDE_BYTES = 1 << 20  # the catalogue, modules not yet imported
BLOCK_RUNS, BLOCKS = 200, 60


def check(condition: bool, what: str) -> None:
    """Ends the benchmark when what it timed is wrong; not an assert, which -O removes."""
    if not condition:
        sys.exit(f"wrong result, timings are void: {what}")


def outside(model: onnx.ModelProto, path: Path, weights: str) -> int:
    """Saves the model with every weight as external data that is not written; how many bytes it would be."""
    total = 0
    for tensor in model.graph.initializer:
        size = int(np.prod(tensor.dims)) * 4
        if tensor.data_type != onnx.TensorProto.FLOAT or size < 4096:
            continue
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", weights), ("offset", total), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        total += size
    onnx.save(model, path)
    return total


def products(gigabytes: int, layers: int = 8) -> onnx.ModelProto:
    """A chain of square products whose weights are so many gigabytes."""
    side = int((gigabytes * 1e9 / 4 / layers) ** 0.5)
    helper = onnx.helper
    weights = [onnx.TensorProto(name=f"w{i}", data_type=1, dims=[side, side]) for i in range(layers)]
    nodes = [helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"]) for i in range(layers)]
    ends = [helper.make_tensor_value_info(name, 1, [1, side]) for name in ("t0", f"t{layers}")]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


def refuse(path: Path, budget: int) -> float:
    """Milliseconds until the session is refused."""
    before, start = bytes_read(), time.perf_counter()
    try:
        ort_extension.InferenceSession(
            str(path), providers=CPU, device=DEVICE, memory_budget_bytes=budget, policy="raise"
        )
    except ort_extension.DoesNotFitError as error:
        elapsed = 1e3 * (time.perf_counter() - start)
        check(error.verdict.memory is not None and error.verdict.memory.median > budget, f"{path.name}: wrong figure")
    else:
        sys.exit(f"wrong result, timings are void: {path.name} was not refused")
    check(bytes_read() - before < path.stat().st_size + READ_BESIDE_BYTES, f"{path.name}: more was read than the file")
    return elapsed


_COLD = """
import json, sys, time
start = time.perf_counter()
import onnxruntime
imported = time.perf_counter()
import ort_extension
try:
    ort_extension.InferenceSession(
        sys.argv[1], providers=["CPUExecutionProvider"], device=sys.argv[2], memory_budget_bytes=int(sys.argv[3]),
        policy="raise",
    )
except ort_extension.DoesNotFitError:
    print(json.dumps([1e3 * (imported - start), 1e3 * (time.perf_counter() - imported)]))
"""
_ALONE = """
import json, re, resource, sys, time
import onnxruntime
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]),) * 2)
start, said = time.perf_counter(), "nothing"
try:
    onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
except Exception as error:
    said = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
elapsed = 1e3 * (time.perf_counter() - start)
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
print(json.dumps({"ms": elapsed, "said": said, "resident_gb": int(peak) * 1024 / 1e9}))
"""


def sparse(path: Path, size: int) -> None:
    """A file of so many zeros that take no disk."""
    with path.open("wb") as file:
        file.truncate(size)


def run_python(program: str, *arguments: Any) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def refusals(folder: Path, gigabytes: int, runs: int) -> list[dict[str, Any]]:
    """Warm and cold refusals of both models, and what onnxruntime alone does."""
    rows = []
    for name, model in (
        (f"{gigabytes} GB in 8 products", products(gigabytes)),
        (f"decoder of {DECODER_LAYERS} layers", onnx_decoder(DECODER_LAYERS)),
    ):
        path = folder / f"{len(rows)}.onnx"
        size = outside(model, path, f"{len(rows)}.bin")
        budget = size // 2
        refuse(path, budget)
        warm = summary([refuse(path, budget) for _ in range(runs)])
        cold = [json.loads(run_python(_COLD, path, DEVICE, budget)) for _ in range(5)]
        row: dict[str, Any] = {
            "model": name,
            "nodes": len(model.graph.node),
            "weights_gb": size / 1e9,
            "budget_gb": budget / 1e9,
            "warm": warm,
            "cold": summary([ours for _, ours in cold]),
            "import_onnxruntime": summary([theirs for theirs, _ in cold]),
        }
        if not rows:
            sparse(folder / "0.bin", size)
            row["warm_sparse"] = summary([refuse(path, budget) for _ in range(runs)])
            row["onnxruntime_limited"] = json.loads(run_python(_ALONE, path, budget))
            quarter = folder / "quarter.onnx"
            sparse(folder / "quarter.bin", outside(products(gigabytes // 4), quarter, "quarter.bin"))
            row["onnxruntime_alone"] = json.loads(run_python(_ALONE, quarter))
            check(row["onnxruntime_alone"]["said"] == "nothing", "onnxruntime could not load a quarter of the model")
        print(f"{name}: refused in {warm} ms warm, {row['cold']} ms cold", flush=True)
        rows.append(row)
    return rows


def exports(folder: Path) -> dict[str, Path]:
    """Real models with random weights, by name: small, medium, large, and one of nearly 9,000 nodes."""
    import torch

    from perfpass.importers import torchvision_schemas

    torchvision_schemas.define()
    import timm

    sys.path.append(str(EXAMPLES))
    import export

    found = {}
    for name in ("mobilenetv3_small_100", "resnet50", "vit_base_patch16_224"):
        found[name] = folder / f"{name}.onnx"
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            module = timm.create_model(name, exportable=True).eval()
            torch.onnx.export(module, (torch.zeros(1, 3, 224, 224),), str(found[name]), opset_version=17, dynamo=False)
    found["deberta, 256 wide"] = folder / "deberta.onnx"
    export.export_with_weights(export.deberta_v3(hidden_size=256, heads=4), found["deberta, 256 wide"])
    return found


class Stopwatch:
    """Times onnxruntime's own constructor while another is being timed around it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._theirs = onnxruntime.InferenceSession.__init__

    def __enter__(self) -> Stopwatch:
        watch, theirs = self, self._theirs

        def timed(session: Any, *arguments: Any, **keywords: Any) -> None:
            start = time.thread_time()
            theirs(session, *arguments, **keywords)
            watch.seconds = time.thread_time() - start

        onnxruntime.InferenceSession.__init__ = timed
        return self

    def __exit__(self, *_: object) -> None:
        onnxruntime.InferenceSession.__init__ = self._theirs


def created(path: Path, **keywords: Any) -> tuple[float, float, float]:
    """Milliseconds of a session's constructor: onnxruntime's part, ours around it, and the native walk within it."""
    with Stopwatch() as watch:
        start = time.thread_time()
        session = ort_extension.InferenceSession(str(path), providers=CPU, **keywords)
        total = time.thread_time() - start
    observation = session.perfpass.observation
    walk_us = observation.walk_us if observation is not None else 0.0
    return 1e3 * watch.seconds, 1e3 * (total - watch.seconds), walk_us / 1e3


def creations(paths: dict[str, Path], runs: int) -> list[dict[str, Any]]:
    """What is added to the creation of sessions."""
    rows = []
    for name, path in paths.items():
        dims = {"batch": 1, "sequence": 128} if name.startswith("deberta") else {}
        row: dict[str, Any] = {"model": name, "nodes": len(onnx.load(path, load_external_data=False).graph.node)}
        for label, keywords in (
            ("native", {}),
            ("file", {"reader": "file"}),
            ("target", {"reader": "file", "latency_target_ms": 1e9}),
            ("ignore", {"reader": "file", "policy": "ignore"}),
        ):
            created(path, dims=dims, **keywords)
            times = [created(path, dims=dims, **keywords) for _ in range(runs)]
            row["onnxruntime"] = summary([theirs for theirs, _, _ in times])
            row[label] = summary([ours + walk for _, ours, walk in times])
        print(f"{name}: {row['onnxruntime']} ms and {row['native']} ms more", flush=True)
        rows.append(row)
    return rows


def run_costs(folder: Path) -> list[dict[str, Any]]:
    """Microseconds that a run takes longer than onnxruntime's own."""
    helper, rows = onnx.helper, []
    for shapes, batch in (("fixed", 2), ("open", "batch")):
        ends = [helper.make_tensor_value_info(name, 1, [batch, 3]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", ends[:1], ends[1:])
        path = folder / f"tiny_{shapes}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        feed = {"x": np.ones((2, 3), np.float32)}
        sessions: dict[str, Any] = {"onnxruntime": onnxruntime.InferenceSession(str(path), providers=CPU)}
        for reader in ("auto", "file"):
            sessions[reader] = ort_extension.InferenceSession(str(path), providers=CPU, reader=reader, drift=False)
        times: dict[str, list[float]] = {name: [] for name in sessions}
        for _ in range(BLOCKS):
            for name, session in sessions.items():
                start = time.perf_counter()
                for _ in range(BLOCK_RUNS):
                    session.run(None, feed)
                times[name].append(1e6 * (time.perf_counter() - start) / BLOCK_RUNS)
        differences = {
            name: summary([ours - theirs for ours, theirs in zip(times[name], times["onnxruntime"], strict=True)])
            for name in ("auto", "file")
        }
        # The fields of a Timing are named for milliseconds; these are microseconds.
        added = {
            name: {"median_us": t.median_ms, "low_us": t.low_ms, "high_us": t.high_ms}
            for name, t in differences.items()
        }
        rows.append({"shapes": shapes, "onnxruntime_us": summary(times["onnxruntime"]).median_ms, **added})
    return rows


def alone(found: dict[str, Any] | None) -> str:
    """What onnxruntime took, as a cell of a table."""
    return "" if found is None else f"{figure(found['ms'])} ms, {figure(found['resident_gb'])} GB resident"


def main() -> None:
    """Runs everything, prints tables, writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--gigabytes", type=int, default=8)
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.simplefilter("ignore", ort_extension.PredictionWarning)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        refused = refusals(folder, options.gigabytes, options.runs)
        costs = run_costs(folder)
        created_rows = creations(exports(folder), options.runs)
    header = [
        "model",
        "nodes",
        "weights GB",
        "refused, ms",
        "first in a process, ms",
        "onnxruntime alone, a quarter of it",
    ]
    print(
        table(
            header,
            [
                [
                    row["model"],
                    f"{row['nodes']:,}",
                    figure(row["weights_gb"]),
                    str(row["warm"]),
                    str(row["cold"]),
                    alone(row.get("onnxruntime_alone")),
                ]
                for row in refused
            ],
        )
    )
    labels = ("native", "file", "target", "ignore")
    print(
        table(
            ["model", "nodes", "onnxruntime, ms", *(f"{label}, ms more" for label in labels)],
            [
                [row["model"], f"{row['nodes']:,}", str(row["onnxruntime"]), *(str(row[label]) for label in labels)]
                for row in created_rows
            ],
        )
    )
    for row in costs:
        print(f"{row['shapes']} shapes: {row}")
    publish(
        "ort_refusal",
        {"refusals": refused, "creations": created_rows, "runs": costs},
        ("onnxruntime", "onnx", "numpy"),
        options.json,
    )


if __name__ == "__main__":
    main()
