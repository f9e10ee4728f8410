"""MetaSchedule on one core of this CPU, with equal trials: our cost model, TVM's own XGBoost model, random scores.

Every run (workload, seed, model) tunes in a process of its own; models take turns within a workload and seed, and the
search is the same for all. TVM's model is allowed to speak after the first batch (its default, 100 measured candidates,
would leave it random here). Runs are appended to a journal: an interrupted study goes on with --resume. At the end the
best schedules of all runs are timed again, together in one process, in turns; latencies in the results are those.

    taskset -c 1 python benchmarks/tuning.py --journal tuning.jsonl --json benchmarks/results/tuning.json --resume
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["TOPHUB_LOCATION"] = "NONE"
os.environ["TVM_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import report
import tuning_measure
import tuning_summary
import tuning_workloads
import tvm
from tvm import meta_schedule as ms

from tvm_perfpass.cost_model import cost_model

MODELS = ("perfpass", "xgboost", "random")
TRIALS, BATCH = 32, 8
NETWORK_TRIALS, NETWORK_BATCH = 48, 4
ROUNDS = 3


def search() -> Any:
    """The search, the same for all models."""
    return ms.search_strategy.EvolutionarySearch(population_size=64, init_min_unmeasured=32, genetic_num_iters=2)


def model_of(name: str, seed: int, target: Any) -> Any:
    """A fresh cost model."""
    if name == "perfpass":
        return cost_model(target=target, seed=seed)
    if name == "xgboost":
        config = ms.cost_model.xgb_model.XGBConfig(seed=seed)
        return ms.cost_model.XGBModel(config=config, num_warmup_samples=BATCH, num_tuning_cores=1)
    return ms.cost_model.RandomModel(seed=seed)


def run(workload: str, name: str, seed: int, modules: Path) -> dict[str, Any]:
    """One tuning run: what was measured in order, and where the time went. The best modules go to ``modules``."""
    np.random.seed(seed)  # noqa: NPY002 - TVM's model draws its warm-up scores from here
    target = tuning_measure.one_core_target()
    runner = tuning_measure.ForkRunner()
    settings: dict[str, Any] = {
        "builder": tuning_measure.KeepModule(),
        "runner": runner,
        "measure_callbacks": tuning_measure.callbacks(),
    }
    started = time.monotonic()
    network = workload == tuning_workloads.NETWORK
    with tempfile.TemporaryDirectory() as folder, ms.Profiler() as profiler:
        chosen = model_of(name, seed, target)
        ready = time.monotonic()
        if network:
            mod, params = tuning_workloads.network()
            tasks, weights = ms.relay_integration.extracted_tasks_to_tune_contexts(
                ms.relay_integration.extract_tasks(mod, target, params),
                folder,
                strategy=search(),
                seed=seed,
                num_tuning_cores=1,
            )
            database = ms.tune_tasks(
                tasks=tasks,
                task_weights=weights,
                work_dir=folder,
                max_trials_global=NETWORK_TRIALS,
                num_trials_per_iter=NETWORK_BATCH,
                cost_model=chosen,
                **settings,
            )
        else:
            ms.tir_integration.tune_tir(
                tuning_workloads.function(workload),
                target,
                folder,
                max_trials_global=TRIALS,
                num_trials_per_iter=BATCH,
                cost_model=chosen,
                strategy=search(),
                num_tuning_cores=1,
                seed=seed,
                **settings,
            )
        wall = time.monotonic() - started
        key = f"{workload}-{name}-{seed}"
        row: dict[str, Any] = {"workload": workload, "model": name, "seed": seed}
        if network:
            row["latency_s"] = network_seconds(mod, params, target, database)
        else:
            for count in (TRIALS // 2, TRIALS):
                best = runner.best(count)
                if best is not None:
                    (modules / f"{key}-{count}.json").write_text(tvm.ir.save_json(best))
        spent = {str(part): float(seconds) for part, seconds in profiler.get().items()}
    return row | {
        "measured_s": [round(s, 9) if np.isfinite(s) else None for s in runner.seconds],
        "wall_s": round(wall, 2),
        "start_s": round(ready - started, 2),
        "measuring_s": round(runner.spent_s, 2),
        "predict_s": round(spent.get("EvoSearch/Evolve/PredictNormalizedScore", 0.0), 2),
        "update_s": round(spent.get("MeasureCallback/UpdateCostModel", 0.0), 2),
    }


def network_seconds(mod: Any, params: Any, target: Any, database: Any) -> float:
    """The whole network, built with what was found, in the graph executor: median of 7 timings."""
    from tvm.contrib import graph_executor

    library = ms.relay_integration.compile_relay(database, mod, target, params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    shape = executor.get_input(0).shape
    executor.set_input(0, tvm.nd.array(np.random.default_rng(0).random(shape, dtype=np.float32)))
    return float(np.median(executor.module.time_evaluator("run", tvm.cpu(), repeat=7, min_repeat_ms=20)().results))


def in_child(work: Any) -> dict[str, Any]:
    """``work()`` in a fork, so that no run leaves anything behind for the next."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            answer = work()
        except BaseException as error:
            answer = {"problem": " ".join(str(error).split())[-300:]}
        with os.fdopen(write, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"problem": "crashed"}


def time_again(rows: list[dict[str, Any]], modules: Path) -> list[dict[str, Any]]:
    """The best schedules after half and all of the trials, timed in turns: medians of ROUNDS, in seconds."""
    target = tuning_measure.one_core_target()
    again: list[dict[str, Any]] = []
    for workload in tuning_workloads.GRADED:
        libraries = []
        for row in rows:
            for count in (TRIALS // 2, TRIALS):
                path = modules / f"{workload}-{row['model']}-{row['seed']}-{count}.json"
                if row["workload"] == workload and path.exists():
                    mod = tvm.ir.load_json(path.read_text())
                    place = {"workload": workload, "model": row["model"], "seed": row["seed"], "trials": count}
                    libraries.append((place, tvm.build(mod, target=target)))
        if not libraries:
            continue
        inputs = tuning_measure.arguments(tvm.IRModule({"main": tuning_workloads.function(workload)}))
        check = outputs_agree(workload, [library for _, library in libraries], inputs)
        times: list[list[float]] = [[] for _ in libraries]
        for _ in range(ROUNDS):
            for i, (_, library) in enumerate(libraries):
                times[i] += tuning_measure.seconds(library, inputs, 1, 10)
        for (place, _), values in zip(libraries, times, strict=True):
            again.append({**place, "seconds": statistics.median(values)})
        print(f"{workload}: {len(libraries)} schedules timed again, outputs agree within {check:.1e}", flush=True)
    return again


def outputs_agree(workload: str, libraries: list[Any], inputs: list[Any]) -> float:
    """Largest relative difference of the outputs from the unscheduled program's; fails beyond rounding."""
    plain = tvm.build(tvm.IRModule({"main": tuning_workloads.function(workload)}), target="llvm")
    plain["main"](*inputs)
    expected, worst = inputs[-1].numpy().copy(), 0.0
    for library in libraries:
        library["main"](*inputs)
        worst = max(worst, float(np.abs(inputs[-1].numpy() - expected).max() / np.abs(expected).max()))
    if worst > 1e-4:
        raise SystemExit(f"{workload}: a schedule computes something else (relative difference {worst:.1e})")
    return worst


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--resume", action="store_true", help="go on with a journal that is there")
    parser.add_argument("--seeds", type=int, default=5, help="the last seed; see --first-seed")
    parser.add_argument("--first-seed", type=int, default=1, help="to share the seeds between processes and cores")
    parser.add_argument("--workloads", nargs="*", default=[*tuning_workloads.GRADED, tuning_workloads.NETWORK])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--until", help="HH:MM after which no new run is started")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.journal.exists() and not options.resume:
        sys.exit(f"{options.journal} is there; go on with --resume, or name another")
    modules = options.journal.with_suffix(".modules")
    modules.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in options.journal.read_text().splitlines()] if options.journal.exists() else []
    done = {(row["workload"], row["model"], row["seed"]) for row in rows}
    for seed in range(options.first_seed, options.seeds + 1):
        for place, workload in enumerate(options.workloads):
            turn = (seed + place) % len(options.models)
            for name in options.models[turn:] + options.models[:turn]:
                late = options.until and time.strftime("%H:%M") >= options.until
                if (workload, name, seed) in done or late:
                    continue
                row = in_child(lambda w=workload, n=name, s=seed: run(w, n, s, modules))
                row = {"workload": workload, "model": name, "seed": seed} | row
                rows.append(row)
                with options.journal.open("a") as journal:
                    journal.write(json.dumps(row) + "\n")
                best = min((s for s in row.get("measured_s", []) if s), default=float("nan"))
                problem = row.get("problem", "")
                print(
                    f"{workload} seed {seed} {name}: {best * 1e3:.4f} ms, {row.get('wall_s')} s {problem}", flush=True
                )
    if options.json:
        usable = [row for row in rows if not row.get("problem")]
        summary = tuning_summary.summarise(usable, time_again(usable, modules), TRIALS)
        settings = {"trials": TRIALS, "batch": BATCH, "network_trials": NETWORK_TRIALS, "network_batch": NETWORK_BATCH}
        failed = [row for row in rows if row.get("problem")]
        results = {"settings": settings, **summary, "failed_runs": failed}
        report.publish("tuning", results, ("xtc-tvm-python-bindings", "xgboost-cpu", "numpy"), options.json)
        print(tuning_summary.table(summary))
        if options.picture:
            tuning_summary.picture(summary, options.picture)


if __name__ == "__main__":
    main()
