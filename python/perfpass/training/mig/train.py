"""Fitting of latency in MIG slices shared by processes (`perfpass.predictors.mig.latency`)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from perfpass.predictors.learned import artefacts
from perfpass.predictors.roofline import GROUPS
from perfpass.training.mig import widths
from perfpass.training.mig.dataset import LANGUAGE_MODEL, load
from perfpass.training.mig.fit import fit


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit the model on the networks of the MIG records and write it. Returns the folder. Raises FileError."""
    place = Path(output) if output else artefacts.shipped("mig")
    data = load(folder)
    networks = np.flatnonzero(data.model != LANGUAGE_MODEL)
    model = fit(data.work.take(networks), data.latency_s[networks])
    spread = widths.fit([held.errors for held in widths.hold_out(data, seed).values()])
    artefacts.write(
        place,
        {
            "predictor": "mig",
            "groups": list(GROUPS),
            "parameters": model.parameters,
            "efficiency": [round(float(v), 5) for v in model.efficiency],
            "spread": spread.to_dict(),
            "networks": [[name, [round(float(v), 4) for v in shares]] for name, shares in widths.networks(data)],
            "corpus": {
                "name": "ParvaGPU, MIG slices of an A100 80 GB, eager PyTorch fp32",
                "rows": len(networks),
                "models": sorted(set(data.model[networks])),
                "devices": sorted(set(data.rows.device)),
                "most_processes": int(data.rows.processes.max()),
                "source": "MunQ-Lee/ParvaGPU_SC24, MIT",
            },
        },
        {},
    )
    if not quiet:
        print(f"wrote {place}: {model.parameters}, widths {spread.high}", file=sys.stderr, flush=True)
    return place
