"""How well medians repeat: configurations that the journals hold more than once, and the collector's own share of time.

    python benchmarks/repeatability.py [RECORDS ...] [--json FILE]

A repetition is the same configuration in another process, minutes apart, among other models. The deviation of a
repetition is its median over the median of all repetitions of its configuration, minus one.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from report import publish, table

from perfpass.records import measured

_SAME = [
    *("environment", "model", "mode", "batch", "precision", "layout", "runtime", "image_size", "sequence_length"),
    *("optimizer", "threads"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=Path, metavar="RECORDS", help="journals of `perfpass measure`")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args()

    rows = measured.load(options.records or None)
    rows = rows[rows.status == "ok"]
    lines: list[dict[str, Any]] = []
    for _, same in rows.groupby(_SAME, dropna=False):
        if len(same) < 2:
            continue
        deviation = same.latency_ms / same.latency_ms.median() - 1.0
        lines.append(
            {
                "model": same.model.iloc[0],
                "runtime": same.runtime.iloc[0],
                "repetitions": len(same),
                "median_ms": float(same.latency_ms.median()),
                "gemm_slowdown": _largest(same.gemm_slowdown),
                "copy_slowdown": _largest(same.copy_slowdown),
                "largest_deviation": float(deviation.abs().max()),
                "median_deviation": float(deviation.abs().median()),
                "flags": " ".join(sorted(set(" ".join(same["flags"]).split()))),
            }
        )
    if not lines:
        raise SystemExit("no configuration was measured more than once")
    header = [
        "model",
        "runtime",
        "repetitions",
        "median ms",
        "median deviation",
        "largest deviation",
        "GEMM, copy",
        "flags",
    ]
    shown = [
        [
            *(row["model"], row["runtime"], str(row["repetitions"]), f"{row['median_ms']:.2f}"),
            *(
                f"{row['median_deviation']:.1%}",
                f"{row['largest_deviation']:.1%}",
                _slowdowns(row),
                row["flags"],
            ),
        ]
        for row in lines
    ]
    print(table(header, shown) + "\n")
    within = float(np.mean([row["median_deviation"] <= 0.03 for row in lines]))
    overhead = rows.overhead_share.to_numpy(float)
    flags = rows["flags"].str.split().explode().value_counts()
    results = {
        "records": len(rows),
        "configurations_repeated": len(lines),
        "median_deviation": float(np.median([row["median_deviation"] for row in lines])),
        "share_within_3_percent": within,
        "overhead_share_median": float(np.median(overhead)),
        "overhead_share_p99": float(np.quantile(overhead, 0.99)),
        "overhead_under_1_percent": float(np.mean(overhead < 0.01)),
        "flags": {str(name): int(count) for name, count in flags.items()},
    }
    print("\n".join(f"{name}: {value}" for name, value in results.items()) + "\n")
    publish("repeatability", {**results, "lines": lines}, ("torch", "timm", "onnxruntime"), options.json)


def _largest(values: Any) -> float | None:
    return None if values.isna().all() else round(float(values.max()), 3)


def _slowdowns(row: dict[str, Any]) -> str:
    pair = (row["gemm_slowdown"], row["copy_slowdown"])
    return "" if None in pair else f"{pair[0]:.2f}, {pair[1]:.2f}"


if __name__ == "__main__":
    main()
