"""Ranking of measured candidates of the graded workloads when 0, 8, 16 and 32 of them are known: no search or timing.

Our model (with and without the shipped pool), TVM's XGBModel as it comes, and TVM's XGBModel trained on the same pool
as ours before the task begins. The candidates are those of benchmarks/tuning_collect.py (POOL, and GRADED with
--graded); which of them are known is drawn anew for each of three seeds, the others are ranked.

    python benchmarks/tuning_replay.py POOL GRADED --json benchmarks/results/tuning_replay.json
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import Any

os.environ["TOPHUB_LOCATION"] = "NONE"

import numpy as np
import report
import tuning_workloads
from tvm import meta_schedule as ms
from tvm import tir

from tvm_perfpass.cost_model.features import candidate_features, total_flops
from tvm_perfpass.cost_model.hardware import detect
from tvm_perfpass.cost_model.ranking import Ranker, shipped
from tvm_perfpass.cost_model.records import seconds_of

KNOWN = (0, 8, 16, 32)
SEEDS = 3
# Pairs nearer than this are not told apart by the measurement.
_APART = 0.05


def rows_of(folder: Path) -> tuple[list[np.ndarray], np.ndarray, float]:
    """TVM's counts of every candidate in a database, their seconds, and the operations of the workload itself."""
    cache = folder / "rows.npz"
    if not cache.exists():
        records = ms.database.JSONDatabase(work_dir=str(folder)).get_all_tuning_records()
        candidates = [record.as_measure_candidate() for record in records]
        mod = records[0].workload.mod
        candidates.append(ms.MeasureCandidate(tir.Schedule(mod), []))
        context = ms.TuneContext(mod=mod, target=records[0].target, num_threads=1)
        rows = [row.numpy() for row in ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)]
        seconds = [seconds_of(record) for record in records]
        np.savez(cache, rows=np.concatenate(rows), counts=[len(row) for row in rows], seconds=seconds)
    with np.load(cache) as file:
        rows = np.split(file["rows"], np.cumsum(file["counts"])[:-1])
        return rows[:-1], file["seconds"], total_flops(rows[-1])


def tvm_model(groups: list[tuple[list[np.ndarray], np.ndarray]], seed: int) -> Any:
    """TVM's XGBModel trained on groups of rows and seconds."""
    config = ms.cost_model.xgb_model.XGBConfig(seed=seed)
    model = ms.cost_model.XGBModel(config=config, num_warmup_samples=1, num_tuning_cores=1)
    inner = model._inst if hasattr(model, "_inst") else model
    costs = [np.where(np.isfinite(seconds), seconds, 1e10).astype("float32") for _, seconds in groups]
    inner._train(
        xs=[row.astype("float32") for rows, _ in groups for row in rows],
        ys=np.concatenate([cost.min() / cost for cost in costs]),
    )
    return inner


def quality(score: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Share of pairs ranked right, and speed of the best of the eight ranked first over the best of all."""
    speed = np.log(1.0 / np.where(np.isfinite(seconds), seconds, 1e3))
    i, j = np.triu_indices(len(speed), 1)
    apart = np.abs(speed[i] - speed[j]) > _APART
    right = np.sign(score[i] - score[j]) == np.sign(speed[i] - speed[j])
    first = np.argsort(-score, kind="stable")[:8]
    return float(right[apart].mean()), float(np.exp(speed[first].max() - speed.max()))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pool", type=Path)
    parser.add_argument("graded", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    hardware = detect(1)
    pool = []
    for name in tuning_workloads.OTHERS:
        rows, seconds, _ = rows_of(options.pool / name)
        if len(rows) > 1:
            pool.append((rows, seconds))
    general = tvm_model(pool, 0)
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for name in tuning_workloads.GRADED:
        rows, seconds, flops = rows_of(options.graded / name)
        features, _ = candidate_features(rows, hardware, flops)
        for seed in range(SEEDS):
            order = np.random.default_rng(seed).permutation(len(rows))
            rest = order[max(KNOWN) :]
            for known in KNOWN:
                mine, unknown = order[:known], [rows[i].astype("float32") for i in rest]
                task = ([rows[i] for i in mine], seconds[mine])
                scores = {}
                for label, earlier in (("perfpass", shipped()), ("perfpass, no pool", None)):
                    ranker = Ranker(hardware, earlier, seed=seed)
                    ranker.learn(name, features[mine], seconds[mine].copy(), mine.tolist())
                    scores[label] = ranker.score(features[rest])
                if known:
                    scores["XGBModel"] = tvm_model([task], seed)._predict(unknown)
                    scores["XGBModel with the pool"] = tvm_model([*pool, task], seed)._predict(unknown)
                else:
                    scores["XGBModel"] = np.random.default_rng(seed).random(len(rest))
                    scores["XGBModel with the pool"] = general._predict(unknown)
                for label, score in scores.items():
                    found.setdefault(label, {}).setdefault(known, []).append(quality(score, seconds[rest]))
        print(name, flush=True)
    results = {
        label: [
            {
                "known": known,
                "pairs_right": round(float(np.mean([pair for pair, _ in values])), 3),
                "best_of_eight": round(float(np.mean([best for _, best in values])), 3),
            }
            for known, values in by_known.items()
        ]
        for label, by_known in found.items()
    }
    header = ["pairs ranked right (best of eight)", *(f"{known} known" for known in KNOWN)]
    lines = [
        [label, *(f"{100 * e['pairs_right']:.0f} % ({100 * e['best_of_eight']:.0f} %)" for e in entries)]
        for label, entries in results.items()
    ]
    print(report.table(header, lines))
    document = {"seeds": SEEDS, "workloads": list(tuning_workloads.GRADED), "models": results}
    report.publish("tuning_replay", document, ("xtc-tvm-python-bindings", "xgboost-cpu", "numpy"), options.json)


if __name__ == "__main__":
    main()
