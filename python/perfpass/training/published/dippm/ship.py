"""The DIPPM that ships: one network for time, memory and energy, with bounds from what it did not learn from."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from perfpass.predictors.learned import arrays as weights
from perfpass.predictors.learned import artefacts
from perfpass.predictors.published.run_features import RUN_FEATURES
from perfpass.records import graph_cache
from perfpass.training.graph_networks import held_out
from perfpass.training.graph_networks.fitted import scalings_arrays
from perfpass.training.graph_networks.grading import grade
from perfpass.training.published.dippm.network import (
    OUTPUT_OF,
    OUTPUTS,
    PUBLISHED_SETTINGS,
    PUBLISHED_SHAPE,
    SCHEMA,
    Dippm,
)
from perfpass.training.tasks import tasks
from perfpass.training.tasks.graphs import Graphs


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
    known = [tasks.load(task, records).traced(graphs, quiet=quiet) for task in tasks.TASKS]
    parts = {task.name: (task, held_out.split(task, graphs, seed)) for task in known}
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
        "tasks": {
            name_: {
                "output": OUTPUTS[OUTPUT_OF[name_]],
                **grade(fitted.on(task, OUTPUT_OF[name_]).predict, task, split),
            }
            for name_, (task, split) in parts.items()
        },
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
