"""`perfpass train`: the priors and bounds of calibrations, from devices left out."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from perfpass.predictors.calibration.posterior import TRAITS
from perfpass.predictors.learned import artefacts
from perfpass.training.calibration.experiments import DRAWS, OTHER, SIZES, prior_of, standard_of, unseen_devices
from perfpass.training.inference.dataset import load


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Find the bounds on the records in ``folder`` (default: the repository's) and write them to ``output``.

    ``output`` defaults to the place of the shipped artefact. Returns the folder. Raises FileError.
    """

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    place = Path(output) if output else artefacts.shipped("calibration")
    dataset = load(folder)
    standard = standard_of(dataset)
    devices = unseen_devices(dataset, standard, seed=seed, say=say)
    priors = {kind: prior_of(devices, kind) for kind in ("cpu", "gpu")} | {"other": OTHER}
    manifest = {
        "predictor": "calibration",
        "traits": list(TRAITS),
        "mean": [round(float(v), 6) for v in standard.mean],
        "deviation": [round(float(v), 6) for v in standard.deviation],
        "priors": {kind: {**asdict(prior), "bound": round(prior.bound, 4)} for kind, prior in priors.items()},
        "corpus": {
            "devices": [d.device for d in devices],
            "records_drawn": list(SIZES),
            "draws": DRAWS,
            "source": "vision inference records, each device left out of the predictor",
        },
    }
    artefacts.write(place, manifest, {})
    say(f"wrote {place}: " + ", ".join(f"{kind} {prior}" for kind, prior in priors.items()))
    return place
