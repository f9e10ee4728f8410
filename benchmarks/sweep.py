"""How many points a second a sweep gives, of a network and of a served language model, against one prediction each.

    python benchmarks/sweep.py [--runs 3]

A network: 10,240 points (10 devices x 4 precisions x 2 runtimes x 128 batches) of an ONNX file. A language model:
11,520 points (8 devices x 2 precisions x 3 runtimes x 4 splits x 6 lengths x 10 loads). Both start cold inside a warm
process: artefacts are read, nothing of the model is known. The peer is our own one-question road on points of the
same sweep, so the ratio says what is lifted out of the points. Seconds are of the processor, since machines are shared.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perfpass
from perfpass.deploy.sweep import Sweep, sweep
from perfpass.predictors.inference.predictor import InferencePredictor
from perfpass.predictors.serving import predictor

RESULTS = Path(__file__).parent / "results" / "sweep.json"
MODEL = str(Path(__file__).resolve().parents[1] / "examples" / "resnet50.onnx")
BOARDS = ["h100", "h200", "a100-80gb", "l4", "l40s", "b200", "a10", "t4"]
_ONE_BY_ONE = 24


def network() -> Sweep:
    """The points of a network."""
    InferencePredictor.load()._distances.clear()
    return sweep(
        MODEL, [*BOARDS, "h100-pcie", "a40"], precisions=["fp32", "amp", "fp16", "bf16"],
        runtimes=["torch", "torch.compile"], batches=list(range(1, 129)),
    )  # fmt: skip


def served() -> Sweep:
    """The points of a language model."""
    predictor._in_order.cache_clear()
    return sweep(
        "llama-3.1-8b", BOARDS, precisions=["bf16", "fp8"], runtimes=["vllm", "trtllm", "sglang"],
        tensor_parallel=[1, 2, 4, 8], input_lengths=[256, 1024, 4096], output_lengths=[128, 512],
        concurrencies=[1, 2, 4, 8, 16, 24, 32, 64, 128, 256],
    )  # fmt: skip


def _one_network(point: dict[str, Any]) -> tuple[float, float]:
    how = {name: point[name] for name in ("precision", "runtime", "batch")}
    return perfpass.predict(MODEL, point["device"], **how).latency_ms.median, point["latency_ms"]


def _one_served(point: dict[str, Any]) -> tuple[float, float]:
    how = {name: point[name] for name in ("precision", "runtime", "input_length", "output_length", "concurrency")}
    found = perfpass.predict_llm("llama-3.1-8b", point["device"], tp=point["tensor_parallel"], **how)
    return found.tpot_ms.median, point["tpot_ms"]


def measured(
    name: str, points: Callable[[], Sweep], one: Callable[[dict[str, Any]], tuple[float, float]], runs: int
) -> dict[str, Any]:
    """Seconds of a sweep, median and spread of ``runs``, and of one question at a time; both must say the same."""
    found, seconds = points(), []
    for _ in range(runs):
        started = time.process_time()
        found = points()
        seconds.append(time.process_time() - started)
    rows = [row for row in found.rows() if not row["problem"]]
    some = rows[:: max(len(rows) // _ONE_BY_ONE, 1)]
    started = time.process_time()
    for row in some:
        alone, swept = one(row)
        if abs(alone / swept - 1) > 1e-6:
            raise SystemExit(f"{name}: a sweep says {swept}, one question {alone}")
    each = (time.process_time() - started) / len(some)
    median = statistics.median(seconds)
    return {
        "points": len(found),
        "with_figures": len(rows),
        "cpu_s": round(median, 2),
        "spread_s": round(max(seconds) - min(seconds), 2),
        "points_per_s": round(len(found) / median),
        "one_by_one_s_per_point": round(each, 4),
        "times_faster": round(each * len(found) / median, 1),
    }


def main() -> None:
    """Prints and stores both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    result = {
        "machine": f"{platform.machine()}, {platform.processor() or 'processor not named'}, Python "
        f"{platform.python_version()}",
        "runs": runs,
        "network": measured("network", network, _one_network, runs),
        "served": measured("served", served, _one_served, runs),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
