"""Networks on this CPU in ONNX Runtime, OpenVINO and LiteRT: predicted beside measured, before and after `calibrate`.

    python benchmarks/cpu_runtimes.py MODELS RECORDS [--threads N] [--json FILE]

MODELS is a folder of NAME.onnx, NAME.xml (with NAME.bin) and NAME.tflite (benchmarks/cpu_runtimes_models.py writes it).
Measures what RECORDS does not hold yet, some 5 s a file: run it on an idle machine. Every run is predicted from its own
file, by an ONNX file's graph where a format is not read. Ten networks, every third in the order of their names,
calibrate each runtime; errors, coverage and widths before and after are of the others.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from report import publish, table

from perfpass import calibrate as calibration
from perfpass.devices import device as find_device
from perfpass.errors import PerfPassError
from perfpass.importers import load
from perfpass.measure.campaign import run
from perfpass.measure.campaign_file import campaign
from perfpass.measure.journal import read
from perfpass.measure.local import LocalPool
from perfpass.predictors import predict_graph

RUNTIMES = {"onnxruntime": ("onnx", ".onnx"), "openvino": ("file", ".xml"), "litert": ("file", ".tflite")}
LEARNED = 10
_PROTOCOL = {"warmup_max_s": 1.0, "measure_min_s": 0.3, "measure_max_s": 1.5}
_LARGEST_SPREAD = 1.5  # p90 over median of a measurement that is used: beyond, something else ran beside it


@dataclass(frozen=True)
class Beside:
    """One measurement, and what was predicted of it."""

    name: str
    measured_ms: float
    before: Any
    after: Any = None


def measure(models: Path, records: Path, runtime: str, names: list[str], threads: int | None) -> None:
    """Measures the files of a runtime into ``records``; what is there is kept."""
    source, suffix = RUNTIMES[runtime]
    files = [f"{source}:{path}" for name in names if (path := models / f"{name}{suffix}").is_file()]
    sweep: dict[str, Any] = {"model": files, "runtime": [runtime]} | ({"threads": [threads]} if threads else {})
    wanted = campaign({"name": f"cpu-{runtime}", "protocol": _PROTOCOL, "sweep": [sweep]}, device="cpu")
    print(run(wanted, records, lambda log: LocalPool(["cpu"], log)), flush=True)


def part(journal: Path, names: list[str]) -> list[str]:
    """The lines of a journal without the records of other networks."""
    lines = journal.read_text().splitlines(keepends=True)
    return [
        line
        for line in lines
        if (model := json.loads(line).get("configuration", {}).get("model")) is None or Path(model).stem in names
    ]


def graph_of(models: Path, name: str, suffix: str) -> Any:
    """The graph of a network's own file, or of its ONNX file where that format is not read."""
    try:
        return load(models / f"{name}{suffix}", batch=1)
    except PerfPassError as error:
        print(f"{name}{suffix}: by its ONNX file ({' '.join(str(error).split())[:120]})")
        return load(models / f"{name}.onnx", batch=1)


def beside(models: Path, records: Path, runtime: str, device: Any, learned: Any, without: list[str]) -> list[Beside]:
    """Every usable record of a folder with its predictions, those of the networks ``without`` left out."""
    found = []
    for record in read(records / "records.jsonl").records:
        configuration, latency = record["configuration"], record.get("latency_ms")
        path = Path(configuration["model"].partition(":")[2])
        if path.stem in without:
            continue
        if record["status"] != "ok" or latency["p90"] > _LARGEST_SPREAD * latency["median"]:
            print(f"left out: {configuration['model']} ({record['status']})")
            continue
        graph = graph_of(models, path.stem, path.suffix)
        how: dict[str, Any] = {"batch": 1, "runtime": runtime}
        before = predict_graph(graph, device, calibration=False, **how).latency_ms
        after = predict_graph(graph, device, calibration=learned, **how).latency_ms if learned else None
        found.append(Beside(path.stem, latency["median"], before, after))
    return found


def figures(rows: list[Beside], which: str) -> dict[str, float]:
    """Errors in percent, share within the interval, and the interval's upper bound over its lower."""
    intervals = [getattr(row, which) for row in rows]
    measured = np.array([row.measured_ms for row in rows])
    median, low, high = (np.array([getattr(i, part) for i in intervals]) for part in ("median", "low", "high"))
    error = 100 * np.abs(median / measured - 1)
    return {
        "mape_pct": round(float(error.mean()), 1),
        "median_error_pct": round(float(np.median(error)), 1),
        "coverage_pct": round(100 * float(((low <= measured) & (measured <= high)).mean()), 1),
        "width": round(float(np.median(high / low)), 2),
        "ratio": round(float(np.median(median / measured)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("records", type=Path)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = sorted(path.stem for path in options.models.glob("*.onnx"))
    first = names[::3][:LEARNED]
    device, lines, kept = find_device("host-cpu"), [], {}
    for runtime in RUNTIMES:
        folder = options.records / runtime
        measure(options.models, folder, runtime, names, options.threads)
        learning = folder / "calibrating.jsonl"
        learning.write_text("".join(part(folder / "records.jsonl", first)))
        try:
            outcome = calibration.calibrate(device, learning, folder / "learned")
        except PerfPassError as error:
            print(f"{runtime} is not calibrated: {error}")
            continue
        rows = beside(options.models, folder, runtime, device, outcome.calibration, first)
        kept[runtime] = {which: figures(rows, which) for which in ("before", "after")} | {
            "networks": len(rows),
            "calibrating": outcome.points,
            "rows": {r.name: [round(ms, 4) for ms in (r.measured_ms, r.before.median, r.after.median)] for r in rows},
        }
        for which in ("before", "after"):
            lines.append([runtime, which, str(len(rows)), *map(str, kept[runtime][which].values())])
    head = [
        "runtime",
        "calibration",
        "networks",
        "MAPE, %",
        "median, %",
        "coverage, %",
        "high/low",
        "predicted/measured",
    ]
    print(table(head, lines))
    publish("cpu_runtimes", kept, ("torch", "onnxruntime", "openvino", "ai-edge-litert"), options.json)


if __name__ == "__main__":
    main()
