"""Grades the energy and power predictors, quantity by quantity, beside plain baselines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import numpy as np

from perfpass.predictors.energy.predictor import AT_RATE, EnergyPredictor
from perfpass.training import spread
from perfpass.training.components.grade import Held, Quantity, add_quantity, both_split, of_sources, usual_splits
from perfpass.training.components.train import corpus
from perfpass.training.energy import outside, widths
from perfpass.training.energy.dataset import load
from perfpass.training.section import Section
from perfpass.training.spread import Errors
from perfpass.training.tasks.splits import Fold

INTRO = """
Energy and power that were measured, each learned by itself. serving_energy: joules per output token of all GPUs under
load, prompts included (ML.ENERGY leaderboard v2); serving_energy_at_rate: the same with the measured tokens per second
given. Its "source": batches of other laboratories in vLLM and TensorRT-LLM, which no fit of energy has seen, each left
out of the widths in turn. batch1_energy: joules per response, eager PyTorch (first edition). diffusion_energy: joules
per picture or video. offline_power: watts while a batch of requests runs (LLM-Inference-Bench, splitwise-sim).
training_power: watts by network, batch size and power limit (Zeus). server_power: watts at the wall (MLPerf Inference).
A model is held out with all models of its architecture, random rows with their repeats; "device and model": a board
with half of the models.
Bounds (90 % asked) are widths by causes, fitted on what other folds of all splits held out. A user's laboratory is
another than that of the records, which adds a width that lines other than "source" do not have.
"""
AIMS = {"serving_energy": {"model": 10.0}, "batch1_energy": {"model": 10.0}}
_WHAT = {"training_power": "network", "server_power": "benchmark"}


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade the method on the records of ``folder`` (default: the repository's data)."""
    quantities = load(folder)
    found = corpus(quantities)
    section = Section("energy", "Energy and power", INTRO, {name: entry["rows"] for name, entry in found.items()})
    for name, q in quantities.items():
        names = {"model": _WHAT[name]} if name in _WHAT else {}
        splits = {**usual_splits(q, seed), "device and model": both_split(q, seed), **of_sources(q)}
        judged_on = f"{len(set(q.device))} devices, {q.unit}"
        others = _sources(section, folder, widths.held_out(q, splits)) if name == AT_RATE else []
        add_quantity(
            section, q, seed, judged_on=judged_on, names=names, aims=AIMS.get(name, {}), more=_by_source(section, q),
            splits=splits, widths=partial(widths.edges, q, splits, outside=others),
        )  # fmt: skip
        if not quiet:
            print(f"energy: {name}", file=sys.stderr, flush=True)
    section.notes.append(
        "Not measured anywhere here, so physics and flagged as such: energy and power of vision inference. "
        "Encoder-decoders and RWKV of the batch-1 records are left out: no configuration of theirs is read."
    )
    return section


def _sources(section: Section, folder: str | None, own: list[Errors]) -> list[Errors]:
    """Adds other laboratories at the rates that they measured, each left out of the widths in turn; gives the errors.

    ``own``: held out of the records.
    """
    asked = outside.load(folder)
    medians, errors = outside.answers(EnergyPredictor.load(), asked)
    low, high = (medians * np.exp(b) for b in spread.of_each_source(errors, own, widths.fit))
    measured, source = np.array([a.measured_j for a in asked]), errors.source.astype(str)
    for name in ("", *np.unique(source)):
        rows = np.char.startswith(source, name)
        shown = name.removeprefix("source:").replace("/", ", ") or "all"
        section.add(AT_RATE, "source", "perfpass", shown, medians[rows], measured[rows], low[rows], high[rows])
    return [errors]


def _by_source(section: Section, q: Quantity) -> Callable[[str, str, Held, list[Fold]], None]:
    """Adds the lines of each source, and the worst rows where a model is held out."""

    def add(split: str, shown: str, held: Held, folds: list[Fold]) -> None:
        for source in sorted(set(q.others.get("source", ()))):
            rows = (q.others["source"] == source) & np.isfinite(held.predicted)
            if rows.any():
                section.add(q.name, shown, "perfpass", f"rows of {source}", held.predicted[rows], q.measured[rows])
        if split == "model":
            section.add_worst_cases(q.name, q.unit, shown, list(q.configuration), held.predicted, q.measured)

    return add
