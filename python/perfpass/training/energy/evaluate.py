"""Grades the energy and power predictors, quantity by quantity, beside plain baselines."""

from __future__ import annotations

import sys

import numpy as np

from perfpass.training.components.fit import covariance_of
from perfpass.training.components.grade import Quantity, add_lines, group_split, hold_out, random_split
from perfpass.training.components.train import corpus
from perfpass.training.energy.dataset import load
from perfpass.training.section import Section
from perfpass.training.tasks.simple_baselines import trees
from perfpass.training.tasks.splits import Fold

INTRO = """
Energy and power that were measured, each learned by itself. serving_energy: joules per output token of all GPUs under
load, prompts included (ML.ENERGY leaderboard v2); serving_energy_at_rate: the same with the measured tokens per second
given. batch1_energy: joules per response, eager PyTorch (first edition). diffusion_energy: joules per picture or video.
offline_power: watts while a batch of requests runs (LLM-Inference-Bench, splitwise-sim). training_power: watts by
network, batch size and power limit (Zeus). server_power: watts at the wall (MLPerf Inference). A model is held out with
all models of its architecture, random rows with their repeats. Bounds (90 % asked) are made from other folds alone;
where few models or devices vouch for another, each counts alike.
"""
AIMS = {("serving_energy", "model"): 10.0, ("batch1_energy", "model"): 10.0}
_WHAT = {"training_power": "network", "server_power": "benchmark"}


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade the method on the records of ``folder`` (default: the repository's data)."""
    quantities = load(folder)
    found = corpus(quantities)
    section = Section("energy", "Energy and power", INTRO, {name: entry["rows"] for name, entry in found.items()})
    for name, q in quantities.items():
        covariance = covariance_of(q.form, q.rows)
        columns = _columns(q)
        for split, folds in _splits(q, seed).items():
            held = hold_out(q, folds, covariance)
            label = _WHAT.get(name, split) if split == "model" else split
            add_lines(
                section, q, label, held, alike=split != "random", judged_on=f"{len(set(q.device))} devices, {q.unit}",
                aim_pct=AIMS.get((name, split)), baseline=trees(columns, q.measured, folds, seed),
            )  # fmt: skip
            for source in sorted(set(q.others.get("source", ()))):
                rows = q.others["source"] == source
                section.add(name, label, "perfpass", f"rows of {source}", held.predicted[rows], q.measured[rows])
            if split != "random":
                groups = q.model if split == "model" else q.device
                section.add_worst_groups(name, label, split, list(groups), held.predicted, q.measured)
            if split == "model":
                section.add_worst_cases(name, q.unit, label, list(q.configuration), held.predicted, q.measured)
                section.add_points(name, q.unit, label, list(q.device), held.predicted, q.measured)
        if not quiet:
            print(f"energy: {name}", file=sys.stderr, flush=True)
    section.notes.append(
        "Not measured anywhere here, so physics and flagged as such: energy and power of vision inference. "
        "Encoder-decoders and RWKV of the batch-1 records are left out: no configuration of theirs is read."
    )
    return section


def _splits(q: Quantity, seed: int) -> dict[str, list[Fold]]:
    return {"random": random_split(q, seed=seed), "model": group_split(q.model), "device": group_split(q.device)}


def _columns(q: Quantity) -> np.ndarray:
    """[N, F] the numbers of model and workload, and which device and task; for the tree baseline."""
    codes = [np.unique(q.rows.categories[:, c].astype(str), return_inverse=True)[1] for c in range(2)]
    return np.concatenate([q.rows.workload, q.rows.traits, np.array(codes, dtype=np.float64).T], axis=1)
