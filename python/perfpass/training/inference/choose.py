"""Which settings `fit` and the predictor use, chosen on families that `evaluate` never reports.

    python -m perfpass.training.inference.choose [--json FILE]

Every setting is fitted twice, efficiencies included: without the set-aside families (`splits.set_aside`), and without
half of their architectures; it is graded on what was left out, on the timm GPUs. The least mean of the two errors
wins. The distances between which the trees fade are chosen afterwards in the same way, for GPUs and for CPUs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from perfpass.predictors.learned.ratio_trees import fade as faded
from perfpass.training.inference import model
from perfpass.training.inference.dataset import Dataset, load
from perfpass.training.inference.model import ROUNDS, TREES, TREES_FADE
from perfpass.training.tasks.splits import groups_into_folds, set_aside
from perfpass.whole_file import write_whole

# Nothing deeper or longer than depth 8 and 600 rounds: two seeds of two ensembles must fit into 8 MB.
GRID: tuple[dict[str, Any], ...] = (
    {"max_depth": 6, "colsample_bytree": 0.3, "rounds": 600},
    {"max_depth": 6, "colsample_bytree": 0.6, "rounds": 600},
    {"max_depth": 7, "colsample_bytree": 0.3, "rounds": 600},
    {"max_depth": 8, "colsample_bytree": 0.3, "rounds": 300},
    {"max_depth": 8, "colsample_bytree": 0.15, "rounds": 600},
    {"max_depth": 8, "colsample_bytree": 0.3, "rounds": 600},
    {"max_depth": 8, "colsample_bytree": 0.6, "rounds": 600},
)
FADES: tuple[tuple[float, float], ...] = ((0.05, 0.2), (0.1, 0.35), (0.2, 0.5), (0.35, 0.6), (0.6, 1.0), (8.0, 9.0))


def choose(dataset: Dataset, grid: Sequence[dict[str, Any]] = GRID, seed: int = 0) -> dict[str, Any]:
    """Errors (MAPE, %) of every setting and every fade, and the best of each. Strict JSON."""
    rows = dataset.rows
    aside = set_aside(rows.family)
    half = aside & (groups_into_folds(rows.architecture, 2, seed) == 0)
    timm, cpu = (rows.source == "timm").to_numpy(), dataset.software == model.CPU
    parts = {}
    for task, out in (("family", aside), ("architecture", half)):
        train, test = np.flatnonzero(~out), np.flatnonzero(out & timm)
        parts[task] = train, test, model.arrays(dataset, model.efficiency_of(dataset, train), train)
    found: list[dict[str, Any]] = []
    corrections: list[dict[str, np.ndarray]] = []
    for setting in grid:
        line: dict[str, Any] = {"setting": setting}
        corrections.append({})
        for task, (train, test, data) in parts.items():
            trees = model.fit(data, train, portable=False, seed=seed, **setting)
            corrections[-1][task] = correction = trees.predict(data.x[test])
            line[task] = _mape(data, test, correction, ~cpu[test])
        line["mean"] = (line["family"] + line["architecture"]) / 2
        print({k: v if k == "setting" else round(v, 2) for k, v in line.items()}, file=sys.stderr, flush=True)
        found.append(line)
    best = min(range(len(found)), key=lambda i: found[i]["mean"])
    fades: dict[str, list[dict[str, Any]]] = {}
    for kind, judged in (("gpu", ~cpu), ("cpu", cpu)):
        if (half & timm & judged).any():
            fades[kind] = []
    for fade in FADES:
        for kind, lines in fades.items():
            line = {"fade": fade}
            for task, (train, test, data) in parts.items():
                weight = faded(dataset.distances(train, test), fade)
                line[task] = _mape(data, test, corrections[best][task] * weight, cpu[test] == (kind == "cpu"))
            lines.append({**line, "mean": (line["family"] + line["architecture"]) / 2})
    return {
        "set_aside": {
            "families": sorted(set(rows.family[aside])),
            "architectures": int(rows.architecture[aside].nunique()),
            "rows": int(aside.sum()),
        },
        "settings": found,
        "best": found[best]["setting"],
        "used": {**{k: TREES[k] for k in ("max_depth", "colsample_bytree")}, "rounds": ROUNDS},
        "fades": fades,
        "best_fade": {kind: min(lines, key=lambda line: line["mean"])["fade"] for kind, lines in fades.items()},
        "used_fade": TREES_FADE,
    }


def _mape(data: model.Arrays, test: np.ndarray, correction: np.ndarray, judged: np.ndarray) -> float:
    error = np.abs(data.base_s[test] * np.exp(correction) / data.dataset.measured_s[test] - 1)
    return 100 * float(error[judged].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", metavar="DIR", help="folder of records (default: those of this repository)")
    parser.add_argument("--json", metavar="FILE", help="write the result there")
    options = parser.parse_args()
    text = json.dumps(choose(load(options.records)), indent=1, allow_nan=False)
    if options.json:
        write_whole(options.json, text + "\n")
    print(text)


if __name__ == "__main__":
    main()
