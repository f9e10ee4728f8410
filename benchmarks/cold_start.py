"""Cold start of the command line, process included: `perfpass predict` on a model of 300 nodes, beside its parts.

    python benchmarks/cold_start.py [--json FILE] [--runs N]

Each run is a new process started by exec, wall time from start to exit; the file system's cache is warm. The rounds go
over all commands in turn, so that a slow moment of the machine hits them alike. Beside it the time of the processor,
over that of `import numpy` in the same rounds. Then a prediction in a loop: a file of some 500 nodes, read and
predicted anew each time in one process.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from graphs import onnx_decoder, onnx_decoder_macs
from report import figure, publish, summary, table

import perfpass

LAYERS = 5  # 9 + 60 * 5 = 309 nodes
LOOP_LAYERS = 8  # 489 nodes
DEVICE = "a100-80gb"
NUMPY = "python -c 'import numpy'"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--runs", type=int, default=15, help="processes started per command (default 15)")
    options = parser.parse_args()

    perfpass = str(Path(sys.executable).with_name("perfpass"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.onnx"
        model = onnx_decoder(LAYERS)
        onnx.save(model, path)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            NUMPY: [sys.executable, "-c", "import numpy"],
            "python -c 'import perfpass'": [sys.executable, "-c", "import perfpass"],
            "perfpass --help": [perfpass, "--help"],
            "perfpass devices": [perfpass, "devices"],
            f"perfpass predict ({len(model.graph.node)} nodes)": [
                *(perfpass, "predict", str(path), "--device", DEVICE, "--json"),
            ],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        busy: dict[str, list[float]] = {name: [] for name in commands}
        printed = ""
        for _ in range(options.runs + 1):
            for name, command in commands.items():
                start, used = time.perf_counter(), _processor_s()
                run = subprocess.run(command, check=True, capture_output=True, text=True)
                times[name].append(1e3 * (time.perf_counter() - start))
                busy[name].append(1e3 * (_processor_s() - used))
                printed = run.stdout
    prediction = json.loads(printed)  # the last command is the prediction
    macs = prediction["provenance"]["graph"]["macs"]
    if macs != onnx_decoder_macs(LAYERS):
        sys.exit(f"wrong result, timings are void: {macs} MACs, {onnx_decoder_macs(LAYERS)} by hand")
    rows = [
        {"command": name, "wall": summary(values[1:]), "processor": summary(busy[name][1:])}
        for name, values in times.items()
    ]
    numpy_ms = statistics.median(busy[NUMPY][1:])
    print(
        table(
            ["command", "median ms", "10th to 90th percentile", "processor ms", "over import numpy", "runs"],
            [
                [
                    row["command"],
                    figure(row["wall"].median_ms),
                    f"{figure(row['wall'].low_ms)} to {figure(row['wall'].high_ms)}",
                    figure(row["processor"].median_ms),
                    f"{row['processor'].median_ms / numpy_ms:.2f}",
                    str(row["wall"].runs),
                ]
                for row in rows
            ],
        )
    )
    looped = summary(_loop(20 * options.runs))
    print(
        f"predict in a loop, {len(onnx_decoder(LOOP_LAYERS).graph.node)} nodes: {figure(looped.median_ms)} ms of the "
        f"processor a call ({figure(looped.low_ms)} to {figure(looped.high_ms)}, {looped.runs} calls)"
    )
    publish("cold_start", {"nodes": len(model.graph.node), "rows": rows, "loop": looped}, ("numpy",), options.json)


def _processor_s() -> float:
    """Seconds that all processes started so far have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _loop(calls: int) -> list[float]:
    """Milliseconds of the processor of each call, after those in which caches fill."""
    device, found = perfpass.device(DEVICE), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.onnx"
        onnx.save(onnx_decoder(LOOP_LAYERS), path)
        for call in range(80 + calls):
            begin = time.process_time()
            prediction = perfpass.predict(path, device)
            if call >= 80:
                found.append(1e3 * (time.process_time() - begin))
    if prediction.provenance["graph"]["macs"] != onnx_decoder_macs(LOOP_LAYERS):
        sys.exit("wrong result in the loop, timings are void")
    return found


if __name__ == "__main__":
    main()
