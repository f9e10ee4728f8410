"""Cold start of the command line, process included: `perfpass predict` on a model of 300 nodes, beside its parts.

    python benchmarks/cold_start.py [--json FILE] [--runs N]

Each run is a new process started by exec, wall time from start to exit; the file system's cache is warm. The rounds go
over all commands in turn, so that a slow moment of the machine hits them alike.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from graphs import onnx_decoder, onnx_decoder_macs
from report import figure, publish, summary, table

LAYERS = 5  # 9 + 60 * 5 = 309 nodes
DEVICE = "a100-80gb"


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
            "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
            "python -c 'import perfpass'": [sys.executable, "-c", "import perfpass"],
            "perfpass --help": [perfpass, "--help"],
            "perfpass devices": [perfpass, "devices"],
            f"perfpass predict ({len(model.graph.node)} nodes)": [
                *(perfpass, "predict", str(path), "--device", DEVICE, "--json"),
            ],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        printed = ""
        for _ in range(options.runs + 1):
            for name, command in commands.items():
                start = time.perf_counter()
                run = subprocess.run(command, check=True, capture_output=True, text=True)
                times[name].append(1e3 * (time.perf_counter() - start))
                printed = run.stdout
    prediction = json.loads(printed)  # the last command is the prediction
    macs = prediction["provenance"]["graph"]["macs"]
    if macs != onnx_decoder_macs(LAYERS):
        sys.exit(f"wrong result, timings are void: {macs} MACs, {onnx_decoder_macs(LAYERS)} by hand")
    rows = [{"command": name, "wall": summary(values[1:])} for name, values in times.items()]
    print(
        table(
            ["command", "median ms", "10th to 90th percentile", "runs"],
            [
                [
                    row["command"],
                    figure(row["wall"].median_ms),
                    f"{figure(row['wall'].low_ms)} to {figure(row['wall'].high_ms)}",
                    str(row["wall"].runs),
                ]
                for row in rows
            ],
        )
    )
    publish("cold_start", {"nodes": len(model.graph.node), "rows": rows}, ("numpy",), options.json)


if __name__ == "__main__":
    main()
