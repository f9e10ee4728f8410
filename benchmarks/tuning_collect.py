"""Measures the pool of other workloads that warms the cost model up: one MetaSchedule database per workload.

Half of the candidates of a workload are random, half chosen by TVM's own model, so that the pool has seen what good
schedules look like. A workload whose database is there already is left alone.

    python benchmarks/tuning_collect.py DIR [--trials 64] [--graded]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from pathlib import Path

os.environ["TOPHUB_LOCATION"] = "NONE"
os.environ["TVM_NUM_THREADS"] = "1"

import tuning_measure
import tuning_workloads
import tvm
from tvm import meta_schedule as ms


def collect(name: str, folder: Path, trials: int, seed: int) -> None:
    """Tunes one workload into ``folder`` and measures it unscheduled."""
    target = tuning_measure.one_core_target()
    function = tuning_workloads.function(name)
    runner = tuning_measure.ForkRunner()
    started = time.monotonic()
    ms.tir_integration.tune_tir(
        function,
        target,
        str(folder),
        max_trials_global=trials,
        num_trials_per_iter=16,
        builder=tuning_measure.KeepModule(),
        runner=runner,
        measure_callbacks=tuning_measure.callbacks(),
        cost_model=ms.cost_model.XGBModel(num_warmup_samples=trials // 2, num_tuning_cores=1),
        strategy=ms.search_strategy.EvolutionarySearch(population_size=64, init_min_unmeasured=32, genetic_num_iters=2),
        num_tuning_cores=1,
        seed=seed,
    )
    mod = tvm.IRModule({"main": function})
    inputs = tuning_measure.arguments(mod)
    untuned, problem = tuning_measure.in_child(
        lambda: tuning_measure.seconds(tvm.build(mod, target=target), inputs, 3, 5)
    )
    facts = {"workload": name, "target": str(target), "untuned_s": untuned, "problem": problem}
    facts["wall_s"] = round(time.monotonic() - started, 1)
    (folder / "facts.json").write_text(json.dumps(facts) + "\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--graded", action="store_true", help="the graded workloads, for an offline replay")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    names = tuning_workloads.GRADED if options.graded else tuning_workloads.OTHERS
    for seed, name in enumerate(names, 1):
        folder = options.folder / name
        if (folder / "facts.json").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob("database_*.json"):
            leftover.unlink()
        collect(name, folder, options.trials, seed)
        print(name, (folder / "facts.json").read_text().strip(), flush=True)


if __name__ == "__main__":
    main()
