"""Scoring for architecture search: configurations a second from features, and unseen files a second to all metrics.

    python benchmarks/search.py [--json FILE] [--files N] [--peer-files N] [--rows N] [--repeats N]

The files are distinct networks of about 500 nodes (search_models.py), read for the first time in every timing: nothing
is kept between calls. "cold" files were dropped from the page cache before. The peers are a loop over
`perfpass.predict`, and `onnx.load` with a plain Python featurization (no prediction). Scores are checked against
`perfpass.predict`, and those from features against those from files.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from peers import onnx_featurized
from report import figure, publish, summary, table
from search_models import write_files

import perfpass
from perfpass.importers import torchvision_schemas
from perfpass.search import Scorer, Scores

DEVICE = "a100-80gb"
METRICS = ("latency_ms", "throughput_per_s", "peak_memory_bytes", "energy_j", "power_w")


def check(condition: bool, what: str) -> None:
    """Ends the benchmark when what it timed is wrong; not an assert, which -O removes."""
    if not condition:
        sys.exit(f"wrong result, timings are void: {what}")


def seconds(call: Any) -> tuple[Any, float]:
    """The result and its wall time."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def drop_from_cache(paths: list[Path]) -> None:
    """Asks the kernel to forget the files' pages."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def rates(count: int, walls: list[float]) -> dict[str, Any]:
    """Per second: by the median, the slowest and the fastest pass."""
    return {
        "per_s": count / float(np.median(walls)),
        "low": count / max(walls),
        "high": count / min(walls),
        "passes": len(walls),
    }


def check_scores(paths: list[Path], scores: Scores) -> None:
    """Some files, all metrics and bounds."""
    check(bool(scores.ok.all()), f"{[p for p in scores.problems if p][:1]}")
    figures = np.stack([getattr(scores, metric).median for metric in METRICS], axis=1)
    check(len(np.unique(figures, axis=0)) == len(paths), "files are not distinct")
    for i in range(0, len(paths), max(1, len(paths) // 12)):
        plain = perfpass.predict(paths[i], DEVICE)
        for metric in METRICS:
            one, many = getattr(plain, metric), getattr(scores, metric)
            same = (one.median, one.low, one.high) == (many.median[i], many.low[i], many.high[i])
            check(same, f"{metric} of {paths[i].name} is not what predict says")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--files", type=int, default=1024, help="distinct files (default 1024)")
    parser.add_argument("--peer-files", type=int, default=64, help="files that the peers read (default 64)")
    parser.add_argument("--rows", type=int, default=100_000, help="configurations given as features (default 100000)")
    parser.add_argument("--repeats", type=int, default=5, help="passes over each (default 5)")
    options = parser.parse_args()
    torchvision_schemas.define()

    results: dict[str, Any] = {"device": DEVICE, "files": options.files, "rows": options.rows}
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), options.files)
        nodes = [perfpass.load(path).node_count for path in paths[:: max(1, len(paths) // 64)]]
        results["nodes"] = {"median": float(np.median(nodes)), "low": min(nodes), "high": max(nodes)}
        results["mean_file_kb"] = float(np.mean([path.stat().st_size for path in paths])) / 1e3
        scorers = {threads: Scorer(DEVICE, threads=threads) for threads in (1, 2)}
        check_scores(paths, scorers[2].score(paths))

        rows = []
        for threads, scorer in scorers.items():
            for cache in ("warm", "cold"):
                walls = []
                for _ in range(options.repeats):
                    if cache == "cold":
                        drop_from_cache(paths)
                    walls.append(seconds(lambda s=scorer: s.score(paths))[1])
                rows.append({"what": "files to all metrics", "threads": threads, "cache": cache})
                rows[-1] |= rates(len(paths), walls)
        found = scorers[2].features(paths)
        given = found.values[np.random.default_rng(0).integers(0, len(paths), options.rows)]
        for threads, scorer in scorers.items():
            scorer.score_features(given[:1000])
            walls = [seconds(lambda s=scorer: s.score_features(given))[1] for _ in range(options.repeats)]
            rows.append({"what": "columns with their times to all metrics", "threads": threads, "cache": ""})
            rows[-1] |= rates(options.rows, walls)
        again = scorers[1].score_features(found.values)
        check(
            np.array_equal(again.latency_ms.high, scorers[1].score(paths).latency_ms.high), "features score otherwise"
        )

        some = paths[:: max(1, len(paths) // options.peer_files)][: options.peer_files]
        predicted = [seconds(lambda p=path: perfpass.predict(p, DEVICE))[1] for path in some]
        plain = [seconds(lambda p=path: onnx_featurized(p, {}, True))[1] for path in some]
        peers = {"for path in paths: perfpass.predict(path)": predicted, "onnx.load + Python, few features": plain}
        for name, walls in peers.items():
            rows.append({"what": name, "threads": 1, "cache": "warm", "per_s": len(walls) / sum(walls)})
            rows[-1]["ms_per_file"] = summary([1e3 * wall for wall in walls])
    results["rows_measured"] = rows
    shown = [
        [
            row["what"],
            str(row["threads"]),
            row["cache"],
            figure(row["per_s"]),
            f"{figure(row['low'])} to {figure(row['high'])}" if "low" in row else str(row["ms_per_file"]) + " ms",
        ]
        for row in rows
    ]
    print(table(["what", "threads", "page cache", "per second", "slowest to fastest pass"], shown))
    publish("search", results, ("numpy", "onnx", "timm", "torch"), options.json)


if __name__ == "__main__":
    main()
