"""The TraPPM that ships: a pre-trained encoder and a regressor per task, with bounds from what none of them saw."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.errors import UnsupportedError
from perfpass.predictors.learned import arrays as weights
from perfpass.predictors.learned import artefacts
from perfpass.predictors.published.answer import WEIGHTS
from perfpass.predictors.published.run_features import RUN_FEATURES
from perfpass.records import graph_cache
from perfpass.training.graph_networks import held_out
from perfpass.training.graph_networks.fitted import scalings_arrays
from perfpass.training.graph_networks.grading import grade
from perfpass.training.published.trappm import autoencoder
from perfpass.training.published.trappm.network import PUBLISHED_SETTINGS, PUBLISHED_SHAPE, Trappm
from perfpass.training.published.trappm.unlabelled import SCHEMA
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
    """Pre-train the encoder (or take it from the cache), fit a regressor per task and write the artefact.

    The encoder and the regressors of time saw nothing of the networks that are chosen on and graded on (`held_out`).
    ``output``: the folder (default: where `trappm` ships from). ``published``: sizes and settings of the published
    code, many hours on a GPU. An interrupted run goes on from its journals.
    """
    if name != "trappm":
        raise UnsupportedError(f"{name} is a baseline: it is trained within `perfpass evaluate` alone")
    place = artefacts.shipped(name) if output is None else Path(output)
    method = Trappm(name, quiet=quiet)
    if published:
        method = replace(method, shape=PUBLISHED_SHAPE, settings=PUBLISHED_SETTINGS, pretraining=autoencoder.PUBLISHED)
    graphs = Graphs()
    encoder = _rounded(method.encoder(graphs))
    method = replace(method, frozen=encoder)
    stored = {f"encoder.{key}": values.astype(np.float16) for key, values in encoder.weights.items()}
    stored |= {"encoder.nodes.mean": encoder.scaling.mean, "encoder.nodes.factor": encoder.scaling.factor}
    journals = graph_cache.directory().parent / "journals"
    graded: dict[str, Any] = {}
    made: dict[str, Any] = {}
    rows, spec, parameters = 0, {}, int(sum(values.size for values in encoder.weights.values()))
    for task_name in tasks.TASKS:
        task = tasks.load(task_name, records).traced(graphs, quiet=quiet)
        split = held_out.split(task, graphs, seed)
        journal = journals / f"trappm{'-published' if published else ''}-{task_name}-{seed}.safetensors"
        started = time.process_time()
        fitted = replace(method, journal=journal).fit(task, graphs, split, seed)
        seconds = time.process_time() - started
        arrays = {key: values.astype(np.float16) for key, values in fitted.weights.items()}
        fitted = fitted.with_weights({key: values.astype(np.float32) for key, values in arrays.items()})
        stored |= {f"{task_name}.{key}": v for key, v in {**arrays, **scalings_arrays(fitted.scalings)}.items()}
        graded[task_name] = grade(fitted.predict, task, split)
        made[task_name] = {"epochs": len(fitted.history), "processor_seconds": round(seconds)}
        rows, spec, parameters = rows + len(split.train), fitted.network.spec.to_dict(), parameters + fitted.parameters
        journal.unlink(missing_ok=True)
    manifest = {
        "predictor": name,
        "schema": SCHEMA,
        "run_features": list(RUN_FEATURES),
        "encoder": autoencoder.spec(encoder.shape).to_dict(),
        "regressor": spec,
        "parameters": parameters,
        "tasks": graded,
        "made": {
            "seed": seed,
            "encoder": {
                "seed": method.encoder_seed,
                "graphs": encoder.graphs,
                **asdict(encoder.shape),
                "seconds": round(sum(entry["seconds"] for entry in encoder.history)),
                "loss": [round(entry["loss"], 4) for entry in encoder.history],
            },
            "regressors": made,
        },
        "corpus": {"name": f"perfpass records: {', '.join(graded).replace('_', ' ')}", "rows": rows},
    }
    artefacts.write(place, manifest, {WEIGHTS: weights.pack(stored)})
    return place


def _rounded(encoder: autoencoder.Encoder) -> autoencoder.Encoder:
    """As it is stored, so that the regressors learn from the embedding that they will get."""
    return replace(
        encoder,
        weights={key: values.astype(np.float16).astype(np.float32) for key, values in encoder.weights.items()},
    )
