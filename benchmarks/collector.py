"""How far the collector can be trusted: against other ways of measuring, its own overhead, and under kills.

    python benchmarks/collector.py [--json FILE] [--kills N]

Per model, the collector's latency beside torch.utils.benchmark (blocks of both in turn) and beside onnxruntime's own
profile of the very same runs; the peak resident memory beside GNU time's (`/usr/bin/time -v`) of a plain script; and N
real campaigns killed with SIGKILL at random moments, then completed. Run it on an idle machine.
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
BLOCKS = 12
THREADS = os.cpu_count() or 1
PACKAGES = ("torch", "timm", "transformers", "onnxruntime")

# Each program runs in a fresh process and prints the collector's median, the other way's, and their own spreads.
# torch: blocks of both in turn, so that a slow moment of the machine meets both.
TORCH = """
    import statistics, sys, time, torch
    from torch.utils.benchmark import Timer
    from perfpass.measure.configuration import Configuration
    from perfpass.measure.models import build
    from perfpass.measure.runners.torch import TorchSession
    torch.set_num_threads(THREADS)
    configuration = Configuration(model=sys.argv[1])
    built = build(configuration, "cpu")
    session = TorchSession(configuration, built)
    inputs = built.inputs(configuration, "cpu")
    module = built.module
    call = (lambda: module(inputs["x"])) if "x" in inputs else (lambda: module(**inputs))
    ours, theirs = [], []
    with torch.no_grad():
        timer = Timer("call()", globals={"call": call}, num_threads=THREADS)
        for _ in range(20):
            session.lap()
        for _ in range(BLOCKS):
            ours.append(statistics.median(session.lap() for _ in range(15)))
            theirs.append(statistics.median(timer.timeit(1).median * 1e3 for _ in range(15)))
    print(*ours)
    print(*theirs)
"""
# onnxruntime: the profile of the very runs that the collector timed.
ONNXRUNTIME = """
    import json, os, statistics, sys, tempfile
    import onnxruntime
    from perfpass.measure.configuration import Configuration
    from perfpass.measure.models import build
    from perfpass.measure.runners import open_session
    plain, opened, made = onnxruntime.SessionOptions, onnxruntime.InferenceSession, []
    def profiled():
        options = plain()
        options.enable_profiling = True
        return options
    def kept(*arguments, **named):
        made.append(opened(*arguments, **named))
        return made[-1]
    onnxruntime.SessionOptions, onnxruntime.InferenceSession = profiled, kept
    configuration = Configuration(model=sys.argv[1], runtime="onnxruntime")
    built = build(configuration, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        session = open_session(configuration, built)
        laps = [session.lap() for _ in range(20 + 15 * BLOCKS)][20:]
        with open(made[0].end_profiling()) as file:
            events = json.load(file)
    runs = [event["dur"] / 1e3 for event in events if event.get("name") == "model_run"][20:]
    blocks = range(0, len(laps), 15)
    print(*(statistics.median(laps[i : i + 15]) for i in blocks))
    print(*(statistics.median(runs[i : i + 15]) for i in blocks))
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
IMPORTS = """
    from perfpass.measure.local import preload
    preload()
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


def agreement(model: str, runtime: str, program: str) -> dict[str, Any]:
    """Medians over blocks of fifteen iterations; the difference is the median of the blocks' own differences."""
    text = textwrap.dedent(program).replace("THREADS", str(THREADS)).replace("BLOCKS", str(BLOCKS))
    done = subprocess.run([sys.executable, "-c", text, model], capture_output=True, text=True, check=True)
    ours, theirs = ([float(value) for value in line.split()] for line in done.stdout.splitlines()[-2:])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "perfpass", "measure", model, "--runtime", runtime, "-o", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        record = _records(Path(folder))[0]
    return {
        "model": model,
        "runtime": runtime,
        "collector_ms": statistics.median(ours),
        "collector_spread": max(ours) / min(ours) - 1,
        "peer_ms": statistics.median(theirs),
        "peer_spread": max(theirs) / min(theirs) - 1,
        "difference": statistics.median(a / b for a, b in zip(ours, theirs, strict=True)) - 1,
        "overhead_share": record["overhead_share"],
    }


def gnu_time_peak_bytes(program: str, *arguments: str) -> int:
    text = textwrap.dedent(program).replace("THREADS", str(THREADS))
    command = ["/usr/bin/time", "-v", sys.executable, "-c", text, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Maximum resident set size \(kbytes\): (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1]) * 1024


def resident(model: str, imports_bytes: int) -> dict[str, Any]:
    """The model's own peak: over the collector's baseline, and over that of a process that only imports."""
    peer = gnu_time_peak_bytes(PLAIN, model) - imports_bytes
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "perfpass", "measure", model, "-o", folder], check=True, stdout=subprocess.DEVNULL
        )
        memory = _records(Path(folder))[0]["memory"]
    mine = memory["host_peak_rss_bytes"] - memory["host_baseline_rss_bytes"]
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
    print(f"medians of {BLOCKS} blocks; the other way: torch.utils.benchmark, onnxruntime's profile\n")
    print(table(header, shown) + "\n")
    imports_bytes = gnu_time_peak_bytes(IMPORTS)
    peaks = [resident(model, imports_bytes) for model in MODELS]
    shown = [
        [p["model"], f"{p['collector_mb']:.0f}", f"{p['gnu_time_mb']:.0f}", f"{p['difference']:+.1%}"] for p in peaks
    ]
    print(table(["model", "collector, MB over imports", "GNU time, MB over imports", "difference"], shown) + "\n")
    killed = kills(options.kills)
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in killed.items()) + "\n")
    publish("collector", {"blocks": BLOCKS, "latency": rows, "memory": peaks, "kills": killed}, PACKAGES, options.json)


if __name__ == "__main__":
    main()
