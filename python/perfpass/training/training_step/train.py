"""Fit the training-step predictor on all records and write its artefact."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from perfpass.predictors.learned.spread import Spread
from perfpass.predictors.training_step.power import StepPower
from perfpass.predictors.training_step.predictor import StepPredictor
from perfpass.training import ratio_trees, time_widths
from perfpass.training.training_step import calibrate, model, operators, outside, power, widths
from perfpass.training.training_step.questions import OWN

SEEDS = 2
CALIBRATION_FOLDS = 4
_NEWEST_TORCH = "1.12"


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit on the records in ``folder`` (default: the repository's data), write to ``output``, return that folder.

    ``output`` defaults to the place of the shipped artefact. Raises FileError, FormatError.
    """

    def say(text: str) -> None:
        if not quiet:
            print(f"train steps: {text}", file=sys.stderr, flush=True)

    corpus = model.Corpus.load(folder)
    dataset, others = corpus.dataset, corpus.others
    say(f"{len(dataset)} records of {dataset.rows.model.nunique()} models on {len(dataset.devices)} devices")
    times, everything = corpus.times(), np.arange(len(dataset))
    levels = times.levels["gpu"]
    steps = model.Rows.of(dataset, corpus.vision.seconds(levels), everything)
    joint = model.portable_rows(corpus, levels, everything, np.ones(len(others), dtype=bool))
    boosters, efficiency = {}, {}
    for name, rows in (("known", steps), ("portable", joint)):
        fitted = [model.fit(rows, portable=name == "portable", seed=seed + i) for i in range(SEEDS)]
        boosters[name] = [m.trees.booster for m in fitted]
        efficiency[name] = ratio_trees.rounded(fitted[0].efficiency)
        say(f"trees {name}")
    networks = [
        calibrate.of_networks(
            dataset, calibrate.unseen_networks(corpus, split, CALIBRATION_FOLDS, seed=seed + 100).residuals, split
        )
        for split in calibrate.NETWORK_SPLITS
    ]
    say("held-out networks for the intervals")
    experiments = calibrate.unseen_devices(corpus, seed=seed, say=say)
    parts = [*networks, *(e.errors for e in experiments)]
    least = operators.least_widths(levels)

    def write(gpu: Spread, cpu: Spread, watts: StepPower) -> tuple[Path, int]:
        return ratio_trees.write(
            StepPredictor.settings, dataset, boosters, output,
            {
                "efficiency": efficiency,
                "operators": times.to_dict(),
                "spread": {"gpu": gpu.to_dict(), "cpu": cpu.to_dict()},
                "step_power": watts.to_dict(),
                "machines": sorted({q.way.device.name for q in corpus.questions if q.source == OWN}),
            },
            support={"newest_torch": _NEWEST_TORCH},
            corpus={
                "name": "vision training: timm benchmarks and torchvision on pytorch-gpu-benchmark",
                "rows_of_inference": len(others),
                "rows_on_cpus": len(corpus.cpu),
            },
        )  # fmt: skip

    # What is off on other sources is known once there is a predictor to ask.
    place, _ = write(widths.fit(parts, least), time_widths.fit([]), StepPower(1.0, 0.0, 0.5, 2.0))
    apart = outside.outside(corpus, StepPredictor(place))
    say(f"{sum(map(len, apart))} steps of other sources")
    gpu = widths.fit([*parts, *outside.of_gpus(apart)], least)
    place, size = write(gpu, outside.of_cpus(apart), power.fit(outside.of_power(apart)))
    say(f"wrote {place}: {size / 1e6:.1f} MB")
    return place
