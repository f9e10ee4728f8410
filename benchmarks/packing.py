"""Packing of models onto GPUs: the least cost on fleets small enough to try every packing, time and gap on large ones.

    python benchmarks/packing.py [--json FILE] [--small N] [--skip-large]

Small: up to three models on up to two GPUs of two types, N fleets (default 300); `pack` must find and prove what
trying finds. Large: 200 models on four types of GPU within 60 s, and 10,000 models on about 2,000 GPUs within 10
minutes; every packing is counted anew.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from packing_cases import least_by_trying, problem, reduced
from report import publish, table

from perfpass.deploy.pack.problem import fault
from perfpass.deploy.pack.solving import solve

_LARGE: tuple[dict[str, Any], ...] = (
    {"models": 200, "gpus": (200, 200, 200, 200), "load": (-1.0, 3.0), "limit_s": 60.0},
    {
        "models": 10_000,
        "gpus": (1300, 500, 200),
        "load": (-4.0, 0.0),
        "limit_s": 600.0,
        "memory": (-1.0, 3.5),
        "copies": (1,),
    },
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    parser.add_argument("--small", type=int, default=300, metavar="N", help="small fleets (default 300)")
    parser.add_argument("--skip-large", action="store_true", help="small fleets only")
    options = parser.parse_args()
    small = _small(options.small)
    print(f"{small['fleets']} small fleets: {small['proven']} proven, {small['unsatisfiable']} without any,")
    print(f"{small['wrong']} other than by trying; {small['seconds']:.1f} s for pack, {small['trying_s']:.1f} s for it")
    if small["wrong"]:
        sys.exit("a packing is not the best one: the rest is void")
    rows = [] if options.skip_large else [_large(**one) for one in _LARGE]
    head = ["models", "GPUs that there are", "GPUs used", "cost", "bound", "gap %", "seconds", "limit s"]
    print(table(head, [[f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]))
    publish("packing", {"small": small, "rows": rows}, ("ortools", "numpy"), options.json)


def _small(count: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "fleets": count,
        "proven": 0,
        "unsatisfiable": 0,
        "wrong": 0,
        "seconds": 0.0,
        "trying_s": 0.0,
    }
    for seed in range(count):
        gpus = ((1, 0, 1), (2, 0, 0), (1, 1, 0), (0, 0, 1))[seed % 4]
        one = reduced(problem(1 + seed % 3, gpus, seed, load=(-2.0, 1.5), by_price=seed % 2 == 0))
        start = time.perf_counter()
        packed = solve(one, 30.0)
        middle = time.perf_counter()
        least = least_by_trying(one)
        found["seconds"] += middle - start
        found["trying_s"] += time.perf_counter() - middle
        if least is None:
            found["unsatisfiable"] += 1
            found["wrong"] += packed.status != "unsatisfiable"
        else:
            found["proven"] += packed.status == "optimal"
            found["wrong"] += packed.status != "optimal" or packed.cost != least or bool(fault(one, packed))
    return found


def _large(models: int, gpus: tuple[int, ...], limit_s: float, **drawn: Any) -> dict[str, Any]:
    one = reduced(problem(models, gpus, 1, **drawn))
    start = time.perf_counter()
    packed = solve(one, limit_s)
    seconds = time.perf_counter() - start
    if wrong := fault(one, packed):
        sys.exit(f"wrong result, timings are void: {wrong}")
    return {
        "models": models,
        "gpus": sum(gpus),
        "used": sum(packed.gpus.values()),
        "cost": packed.cost,
        "bound": packed.bound,
        "gap_pct": 100 * packed.gap,
        "seconds": seconds,
        "limit_s": limit_s,
    }


if __name__ == "__main__":
    main()
