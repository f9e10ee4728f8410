"""Training what ships: both models of every operator, their widths, and power."""

from __future__ import annotations

import sys
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.predictors.kernels.predictor import FEATURE_VERSION, OPERATORS
from perfpass.predictors.learned import artefacts, packed_trees
from perfpass.training.kernels import experiments, power, widths
from perfpass.training.kernels.data import SHAPES, Data, load, software
from perfpass.training.kernels.fit import fit

_SOURCES = {"aiconfigurator": "Apache-2.0", "NeuSight": "MIT"}


def train(
    folder: Path | str | None = None, output: Path | str | None = None, *, seed: int = 0, quiet: bool = False
) -> Path:
    """Fits all operators from the records of ``folder`` and writes the artefact to ``output``; returns its place."""
    target = Path(output) if output else artefacts.shipped("kernels")
    files: dict[str, bytes] = {}
    sections: dict[str, Any] = {}
    corpus: dict[str, Any] = {"sources": _SOURCES, "rows": {}}
    powered: list[tuple[np.ndarray, np.ndarray]] = []
    for operator in OPERATORS:
        if not quiet:
            print(f"kernels: {operator}", file=sys.stderr)
        data = load(operator, folder)
        found = experiments.run(data, seed=seed)
        fitted = fit(data, seed=seed)
        for kind in ("portable", "known"):
            model = bytes(getattr(fitted, kind).save_raw("json"))
            files[f"{operator}-{kind}.trees"] = packed_trees.pack([model])
        sections[operator] = {
            "efficiencies": fitted.efficiencies.to_dict(),
            "spread": widths.learn(found).to_dict(),
            "software": [list(astuple(s)) for s in software(data)],
            "ranges": ranges(data),
        }
        corpus["rows"][operator] = len(data)
        powered.append(power.rows(data, fitted)[:2])
    x, share = (np.concatenate(parts) for parts in zip(*powered, strict=True))
    files["power.trees"] = packed_trees.pack([bytes(power.model(x, share, seed).save_raw("json"))])
    manifest = {"predictor": "kernels", "feature_version": FEATURE_VERSION, "operators": sections, "corpus": corpus}
    artefacts.write(target, manifest, files)
    return target


def ranges(data: Data) -> dict[str, list[float]]:
    """Least and largest measured value of every size."""
    texts = ("distribution", "operation", "window", "operator", "dimensions")
    return {n: [float(data.rows[n].min()), float(data.rows[n].max())] for n in SHAPES[data.operator] if n not in texts}
