"""The trees that ship: fitted on all records, with bounds from held-out folds, models and devices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.llm import table as llm_table
from perfpass.predictors.learned import artefacts, packed_trees
from perfpass.predictors.learned.intervals import pooled_width, quantiles
from perfpass.predictors.published.llm_trees import columns
from perfpass.training.generation import dataset
from perfpass.training.generation.train import ranges
from perfpass.training.published.llm_trees.evaluate import by_device, by_model, stratified
from perfpass.training.published.llm_trees.table import batches
from perfpass.training.published.llm_trees.trees import Trees
from perfpass.training.tasks.graphs import Graphs
from perfpass.training.tasks.tasks import LANGUAGE_TASK, Split, Task, load

_COVERAGE = 0.9


def train(records: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit on the records of ``records`` (default: the repository's) and write the artefact; returns its folder."""
    task, graphs, method = load(LANGUAGE_TASK, records), Graphs(), Trees(traced=False)
    splits = {
        "seen": stratified(task, seed=seed),
        "model unseen": by_model(task, seed),
        "device unseen": by_device(task, seed),
    }
    bounds, errors = {}, {}
    for evidence, found in splits.items():
        parts = [np.log(task.value[s.test] / method.fit(task, graphs, s, seed).predict(s.test)) for s in found]
        bounds[evidence] = _bounds(parts, evidence)
        errors[evidence] = round(float(np.mean(np.abs(np.expm1(-np.concatenate(parts))))) * 100, 1)
        if not quiet:
            print(f"llm-trees, {evidence}: MAPE {errors[evidence]} %", file=sys.stderr)
    everything = np.arange(len(task))
    fitted = method.fit(task, graphs, Split("all", everything, everything[:0], everything), seed)
    content = packed_trees.pack([bytes(fitted.booster.save_raw("json"))])
    manifest = {
        "predictor": "llm-trees",
        "columns": list(columns()),
        "table_version": llm_table.VERSION,
        "bounds": bounds,
        "held_out_mape_pct": errors,
        "measured": _measured(task),
        "ranges": ranges(dataset.load(str(records) if records else None)),
        "corpus": {"name": "LLM-Inference-Bench (Argonne), BSD-3-Clause", "rows": len(task)},
    }
    place = Path(output) if output else artefacts.shipped("llm-trees")
    artefacts.write(place, manifest, {"latency.trees": content})
    if not quiet:
        print(f"wrote {place}: {len(content) / 1e6:.2f} MB", file=sys.stderr)
    return place


def _bounds(parts: list[np.ndarray], evidence: str) -> list[float]:
    """Log bounds; devices count alike, and a handful says little about the next, as of the generation predictor."""
    low, high = quantiles(np.concatenate(parts), _COVERAGE)
    if evidence == "device unseen":
        width = pooled_width(parts, _COVERAGE) * (1.0 + 1.0 / len(parts))
        low, high = min(low, -width), max(high, width)
    return [round(float(min(low, 0.0)), 4), round(float(max(high, 0.0)), 4)]


def _measured(task: Task) -> dict[str, Any]:
    runs = batches(task)
    return {
        "devices": sorted({b.device.id for b in runs}),
        "runtimes": [list(p) for p in sorted({(b.device.id, b.runtime) for b in runs})],
        "parameters": sorted({b.model.parameters for b in runs}),
    }
