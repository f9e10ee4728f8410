"""Grades the energy and power predictors, quantity by quantity, beside plain baselines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from perfpass.predictors.energy.predictor import AT_RATE, EnergyPredictor
from perfpass.training import spread
from perfpass.training.components.grade import Edges, Held, Quantity, add_quantity, held_out_errors, usual_splits
from perfpass.training.components.train import corpus
from perfpass.training.energy import widths
from perfpass.training.energy.dataset import load
from perfpass.training.energy.train import held_out
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
A model is held out with all models of its architecture, random rows with their repeats. Bounds (90 % asked) are made
from other folds alone; where few models or devices vouch for another, each counts alike.
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
        judged_on = f"{len(set(q.device))} devices, {q.unit}"
        edges = None
        if name == AT_RATE:
            asked = widths.load(folder)
            medians, outside = widths.answers(EnergyPredictor.load(), asked)
            own = held_out(q, seed)
            _sources(section, asked, medians, outside, own)
            edges = partial(_edges, q, outside, seed)
        add_quantity(
            section, q, seed, judged_on=judged_on, names=names, aims=AIMS.get(name, {}), more=_by_source(section, q),
            widths=edges,
        )  # fmt: skip
        if not quiet:
            print(f"energy: {name}", file=sys.stderr, flush=True)
    section.notes.append(
        "Not measured anywhere here, so physics and flagged as such: energy and power of vision inference. "
        "Encoder-decoders and RWKV of the batch-1 records are left out: no configuration of theirs is read."
    )
    return section


def _sources(
    section: Section, asked: list[widths.Asked], medians: np.ndarray, outside: Errors, own: list[Errors]
) -> None:
    """Other laboratories at the rates that they measured, each left out of the widths in turn."""
    low, high = (medians * np.exp(b) for b in spread.of_each_source(outside, own, widths.fit))
    measured, source = np.array([a.measured_j for a in asked]), outside.source.astype(str)
    for name in ("", *np.unique(source)):
        rows = np.char.startswith(source, name)
        shown = name.removeprefix("source:").replace("/", ", ") or "all"
        section.add(AT_RATE, "source", "perfpass", shown, medians[rows], measured[rows], low[rows], high[rows])


def _edges(q: Quantity, outside: Errors, seed: int, split: str, held: Mapping[str, Held]) -> Edges:
    """Bounds of a split's held-out rows, from errors on none of them and of other laboratories."""
    folds = usual_splits(q, seed)
    errors = {name: held_out_errors(q, found, folds[name], name) for name, found in held.items()}
    low, high = spread.graded(errors, [outside], split, len(q), widths.fit)
    return held[split].predicted * np.exp(low), held[split].predicted * np.exp(high)


def _by_source(section: Section, q: Quantity) -> Callable[[str, str, Held, list[Fold]], None]:
    """Adds the lines of each source, and the worst rows where a model is held out."""

    def add(split: str, shown: str, held: Held, folds: list[Fold]) -> None:
        for source in sorted(set(q.others.get("source", ()))):
            rows = q.others["source"] == source
            section.add(q.name, shown, "perfpass", f"rows of {source}", held.predicted[rows], q.measured[rows])
        if split == "model":
            section.add_worst_cases(q.name, q.unit, shown, list(q.configuration), held.predicted, q.measured)

    return add
