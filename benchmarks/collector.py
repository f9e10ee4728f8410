"""How far the collector can be trusted: against other ways of measuring, its own overhead, and under kills.

    python benchmarks/collector.py [--json FILE] [--kills N]

Per model, the collector's median latency beside torch.utils.benchmark (blocked_autorange) or onnxruntime's own profile
of the same session type, in alternating runs of the same process state; the peak resident memory beside GNU time's
(`/usr/bin/time -v`) of a plain script; and N real campaigns killed with SIGKILL at random moments, then completed. Run
it on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

from report import figure, publish, table

MODELS = ("timm:resnet18", "timm:mobilenetv2_100", "timm:vit_tiny_patch16_224", "timm:efficientnet_b0", "hf:bert-small")
ROUNDS = 4
THREADS = os.cpu_count() or 1
PACKAGES = ("torch", "timm", "transformers", "onnxruntime")

# Each program runs in a fresh process and prints one number; the collector is one of them, so that all are equal.
COLLECTOR = """
    import sys
    from perfpass.measure.collector import Collector
    from perfpass.measure.configuration import Configuration, Protocol
    configuration = Configuration(model=sys.argv[1], runtime=sys.argv[2])
    record = Collector("cpu").measure(configuration, Protocol(measure_min_s=1.0, measure_max_s=4.0))
    assert record["status"] == "ok", record
    print(record["latency_ms"]["median"], record["overhead_share"], record["memory"]["host_peak_rss_bytes"])
"""
TORCH = """
    import sys, torch
    from torch.utils.benchmark import Timer
    from perfpass.measure.configuration import Configuration
    from perfpass.measure.models import build
    torch.set_num_threads(THREADS)
    configuration = Configuration(model=sys.argv[1])
    built = build(configuration, "cpu")
    inputs = built.inputs(configuration, "cpu")
    module = built.module.eval().requires_grad_(False)
    with torch.no_grad():
        call = (lambda: module(inputs["x"])) if "x" in inputs else (lambda: module(**inputs))
        for _ in range(10):
            call()
        timer = Timer("call()", globals={"call": call}, num_threads=THREADS)
        print(timer.blocked_autorange(min_run_time=2.0).median * 1e3)
"""
ONNXRUNTIME = """
    import json, sys, tempfile, os
    from pathlib import Path
    import statistics
    import onnxruntime
    from perfpass.measure.configuration import Configuration
    from perfpass.measure.models import build
    from perfpass.measure.runners.onnxruntime import export
    configuration = Configuration(model=sys.argv[1], runtime="onnxruntime")
    built = build(configuration, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        export(built, configuration, Path("model.onnx"))
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        session = onnxruntime.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
        feed = {name: x.numpy() for name, x in built.inputs(configuration, "cpu").items()}
        for _ in range(60):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text())
        runs = [e["dur"] / 1e3 for e in events if e.get("name") == "model_run"]
        print(statistics.median(runs[20:]))
"""
# What the collector measures, without the collector: the peak of the whole process is GNU time's to read.
PLAIN = """
    import sys, torch
    from perfpass.measure.local import preload
    preload()
    from perfpass.measure.configuration import Configuration
    from perfpass.measure.models import build
    torch.set_num_threads(THREADS)
    configuration = Configuration(model=sys.argv[1])
    built = build(configuration, "cpu")
    inputs = built.inputs(configuration, "cpu")
    with torch.no_grad():
        for _ in range(20):
            built.module(inputs["x"]) if "x" in inputs else built.module(**inputs)
"""
CAMPAIGN = """
name = "kills"
[protocol]
warmup_max_s = 0.2
measure_min_s = 0.05
measure_max_s = 0.2
[[sweep]]
model = ["unet:temperature-downscaling", "hf:bert-tiny"]
batch = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
threads = [1, 2]
"""


def numbers(program: str, *arguments: str) -> list[float]:
    text = textwrap.dedent(program).replace("THREADS", str(THREADS))
    done = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, check=True)
    return [float(value) for value in done.stdout.split()]


def agreement(model: str, runtime: str, peer: str) -> dict[str, Any]:
    """Medians of alternating fresh processes, so that a slow moment of the machine meets both."""
    ours, theirs, overhead = [], [], []
    for _ in range(ROUNDS):
        latency, share, _ = numbers(COLLECTOR, model, runtime)
        ours.append(latency)
        overhead.append(share)
        theirs += numbers(peer, model)
    mine, other = statistics.median(ours), statistics.median(theirs)
    return {
        "model": model,
        "runtime": runtime,
        "collector_ms": mine,
        "collector_spread": max(ours) / min(ours) - 1,
        "peer_ms": other,
        "peer_spread": max(theirs) / min(theirs) - 1,
        "difference": mine / other - 1,
        "overhead_share": statistics.median(overhead),
    }


def resident(model: str) -> dict[str, Any]:
    text = textwrap.dedent(PLAIN).replace("THREADS", str(THREADS))
    command = ["/usr/bin/time", "-v", sys.executable, "-c", text, model]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peer = int(re.search(r"Maximum resident set size \(kbytes\): (\d+)", done.stderr)[1]) * 1024
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "perfpass", "measure", model, "-o", folder], check=True, stdout=subprocess.DEVNULL
        )
        record = _records(Path(folder))[0]
    mine = record["memory"]["host_peak_rss_bytes"]
    return {"model": model, "collector_mb": mine / 1e6, "gnu_time_mb": peer / 1e6, "difference": mine / peer - 1}


def _records(folder: Path) -> list[dict[str, Any]]:
    from perfpass.measure.journal import read

    path = folder / "records.jsonl"
    return read(path).records if path.exists() else []


def kills(count: int) -> dict[str, Any]:
    """``count`` campaigns killed at random moments of one journal's life, each read after the kill; then one to the
    end.
    """
    generator = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        campaign = Path(folder) / "kills.toml"
        campaign.write_text(CAMPAIGN)
        command = [sys.executable, "-m", "perfpass", "measure", "--campaign", str(campaign), "-o", folder]
        seen = []
        for _ in range(count):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(generator.uniform(0.5, 12.0))
            process.kill()
            process.wait()
            keys = [record["key"] for record in _records(Path(folder))]
            assert len(keys) == len(set(keys)), "a configuration was recorded twice"
            assert keys[: len(seen)] == seen, "a record was lost"
            seen = keys
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        records = _records(Path(folder))
        assert len(records) == len({record["key"] for record in records}) == 60
        assert all(record["status"] == "ok" for record in records)
        return {"kills": count, "records_before_last_run": len(seen), "records": len(records), "doubled": 0, "lost": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="campaigns to kill (default: 20)")
    options = parser.parse_args()

    rows = [agreement(model, "torch", TORCH) for model in MODELS]
    rows += [agreement(model, "onnxruntime", ONNXRUNTIME) for model in MODELS]
    header = [
        "model",
        "runtime",
        "collector, ms",
        "spread",
        "other way, ms",
        "spread",
        "difference",
        "between iterations",
    ]
    shown = [
        [
            *(row["model"], row["runtime"]),
            *(figure(row["collector_ms"]), f"{row['collector_spread']:.1%}"),
            *(figure(row["peer_ms"]), f"{row['peer_spread']:.1%}"),
            *(f"{row['difference']:+.1%}", f"{row['overhead_share']:.2%}"),
        ]
        for row in rows
    ]
    print(f"medians of {ROUNDS} processes each; the other way: torch.utils.benchmark, onnxruntime's profile\n")
    print(table(header, shown) + "\n")
    peaks = [resident(model) for model in MODELS]
    shown = [
        [p["model"], f"{p['collector_mb']:.0f}", f"{p['gnu_time_mb']:.0f}", f"{p['difference']:+.1%}"] for p in peaks
    ]
    print(table(["model", "collector, peak MB", "GNU time, peak MB", "difference"], shown) + "\n")
    killed = kills(options.kills)
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in killed.items()) + "\n")
    publish("collector", {"rounds": ROUNDS, "latency": rows, "memory": peaks, "kills": killed}, PACKAGES, options.json)


if __name__ == "__main__":
    main()
