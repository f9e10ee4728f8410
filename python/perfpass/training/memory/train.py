"""Fitting what ships: `perfpass train --area memory`. Seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.predictors.learned import artefacts
from perfpass.training.memory import runs, steps
from perfpass.training.memory.dataset import load
from perfpass.training.memory.evaluate import by_family
from perfpass.training.memory.fit import Contexts, bound_groups, bounds, fit, nvidia_contexts


def train(folder: Path | None = None, output: Path | None = None, *, seed: int = 0, quiet: bool = False) -> None:
    """Fit the constants to all recorded programs, their bounds to families held out, and write the artefact."""
    rows, _ = load(folder)
    constants = fit(rows)
    predicted, planned = by_family(rows)
    of = bound_groups(rows)
    found = {}
    for name in map(str, np.unique(of)):
        here = np.flatnonzero(of == name)
        for kind in map(str, np.unique(rows.kind[here])):
            found[kind] = bounds(predicted[here], planned[here], rows.take(here))
    measured = runs.load(folder)
    contexts = nvidia_contexts(rows, constants)
    manifest = {
        "runtime_bytes": constants.runtime,
        "unseen_runtime_bytes": {vendor: value for vendor, (value, _) in constants.unseen.items()},
        "unseen_device_bytes": {vendor: spread for vendor, (_, spread) in constants.unseen.items()},
        "workspace_share": constants.share,
        "bounds": found,
        "inference": {
            of: runs.fit(measured.take(measured.group == of), contexts if of == "torch" else Contexts()).to_dict()
            for of in map(str, np.unique(measured.group))
        },
        "step": {"spread": steps.fit(steps.load(folder)).to_dict()},
        "context_bytes": runs.context_bytes(measured, contexts.plain, constants.unseen["amd"][0]),
        "corpus": {
            "name": "training_memory",
            "rows": len(rows),
            "programs": len(np.unique(rows.bench)),
            "families": sorted(map(str, np.unique(rows.family))),
            "devices": sorted(map(str, np.unique(rows.device))),
            "sources": "milabench (MIT), peak by NVML",
            "inference_rows": len(measured),
            "inference_sources": sorted(map(str, np.unique(measured.source))),
        },
    }
    artefacts.write(Path(output) if output else artefacts.shipped("memory"), manifest, {})
    if not quiet:
        print(f"memory: {len(rows)} rows of {len(np.unique(rows.family))} networks")
