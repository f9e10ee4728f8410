"""The DIPPM that ships: one network for time, memory and energy, with bounds from what it did not learn from."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.predictors import artefacts, weights
from perfpass.predictors.intervals import quantiles
from perfpass.predictors.run_features import RUN_FEATURES
from perfpass.records import graph_cache
from perfpass.training import metrics
from perfpass.training.comparison import tasks
from perfpass.training.comparison.graphs import Graphs
from perfpass.training.comparison.tasks import Split, Task
from perfpass.training.dippm.network import (
    OUTPUT_OF,
    OUTPUTS,
    PUBLISHED_SETTINGS,
    PUBLISHED_SHAPE,
    SCHEMA,
    Dippm,
    FittedNetwork,
    scalings_arrays,
)

# Memory and energy were measured of so few networks that none can be spared: rows are set aside there, not networks.
_BY_NETWORK = ("latency", "training_step")


def train(
    name: str,
    records: str | None = None,
    output: str | None = None,
    *,
    seed: int = 0,
    quiet: bool = False,
    published: bool = False,
) -> Path:
    """Fit ``name`` (one of KINDS) on the records of all tasks and write its artefact.

    Networks of the comparison's architecture split stay out: a tenth to choose on, a fifth to grade on. ``output``: the
    folder (default: where `dippm` ships from). ``published``: sizes and settings of the published code, hours on a GPU.
    An interrupted run goes on from its journal.
    """
    place = artefacts.shipped(name) if output is None else Path(output)
    variant = f"{name}-published" if published else name
    journal = graph_cache.directory().parent / "journals" / f"{variant}-{seed}.safetensors"
    method = Dippm(name, journal=journal, quiet=quiet)
    if published:
        method = replace(method, shape=PUBLISHED_SHAPE, settings=PUBLISHED_SETTINGS)
    graphs = Graphs()
    parts = {task: _parts(tasks.load(task, records).traced(graphs, quiet=quiet), seed) for task in tasks.TASKS}
    started = time.process_time()
    fitted = method.learn(
        [task.subset(split.train) for task, split in parts.values()],
        [task.subset(split.valid) for task, split in parts.values()],
        graphs,
        seed,
    )
    seconds = time.process_time() - started
    stored = {key: values.astype(np.float16) for key, values in fitted.weights.items()}
    fitted = fitted.with_weights({key: values.astype(np.float32) for key, values in stored.items()})
    manifest = {
        "predictor": name,
        "spec": fitted.network.spec.to_dict(),
        "schema": SCHEMA,
        "run_features": list(RUN_FEATURES),
        "outputs": list(OUTPUTS),
        "parameters": fitted.parameters,
        "tasks": {task: _grade(task, fitted, *part) for task, part in parts.items()},
        "made": {
            "seed": seed,
            "epochs": len(fitted.history),
            "seconds": round(sum(entry["seconds"] for entry in fitted.history)),
            "processor_seconds": round(seconds),
            "settings": asdict(method.settings),
            "history": [[round(entry["loss"], 4), round(entry["valid"], 4)] for entry in fitted.history],
        },
        "corpus": {
            "name": "perfpass records: latency, training steps, memory, energy",
            "rows": sum(len(split.train) for _, split in parts.values()),
        },
    }
    files = {
        "weights.safetensors": weights.pack({**stored, **scalings_arrays(fitted.scalings)}),
    }
    artefacts.write(place, manifest, files)
    if journal.is_file():
        os.unlink(journal)
    return place


def _parts(task: Task, seed: int) -> tuple[Task, Split]:
    wanted = "architecture" if task.name in _BY_NETWORK else "random"
    if task.name == "training_step":
        # The networks of the latency split, so that no network is held out of one and learned in the other.
        latency = tasks.load("latency")
        split = next(s for s in latency.splits(seed) if s.name == wanted)
        held = {part: set(latency.rows.architecture.iloc[getattr(split, part)]) for part in ("valid", "test")}
        at = {part: task.rows.architecture.isin(names).to_numpy() for part, names in held.items()}
        rest = ~at["valid"] & ~at["test"]
        return task, Split(wanted, np.flatnonzero(rest), np.flatnonzero(at["valid"]), np.flatnonzero(at["test"]))
    return task, next(s for s in task.splits(seed) if s.name == wanted)


def _grade(name: str, fitted: FittedNetwork, task: Task, split: Split) -> dict[str, Any]:
    """Bounds of log(measured / predicted) on ``split.valid``, errors on ``split.test``, and what was learned from."""
    on = fitted.on(task)
    low, high = quantiles(np.log(task.value[split.valid] / on.predict(split.valid)), 0.9)
    predicted, measured = on.predict(split.test), task.value[split.test]
    errors = metrics.absolute_percentage_errors(predicted, measured)
    inside = (measured >= predicted * np.exp(low)) & (measured <= predicted * np.exp(high))
    rows = task.rows.iloc[split.train]
    software = rows.groupby(["device", "precision", "runtime", "layout"]).batch.agg(["min", "max", "size"])
    return {
        "output": OUTPUTS[OUTPUT_OF[name]],
        "low": round(min(low, -0.01), 4),
        "high": round(max(high, 0.01), 4),
        "held_out": "networks" if split.name == "architecture" else "rows",
        "measured": [
            [*map(str, key), int(low_), int(high_), int(n)]
            for key, (low_, high_, n) in zip(software.index, software.to_numpy(), strict=True)
        ],
        "networks": sorted(set(rows.architecture)) if split.name == "random" else [],
        "test": {
            "rows": len(split.test),
            "mape": round(float(errors.mean()), 4),
            "median_ape": round(float(np.median(errors)), 4),
            "within_10_percent": round(float((errors <= 0.1).mean()), 4),
            "rmse": float(np.sqrt(np.mean((predicted - measured) ** 2))),
            "kendall_tau": round(metrics.kendall_tau(predicted, measured), 4),
            "covered": round(float(inside.mean()), 4),
        },
    }
