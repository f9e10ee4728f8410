"""Grades the phase predictors, quantity by quantity, beside plain baselines."""

from __future__ import annotations

import sys

import numpy as np

from perfpass.training.components.fit import covariance_of
from perfpass.training.components.grade import add_lines, group_split, hold_out, random_split
from perfpass.training.components.train import corpus
from perfpass.training.phases.dataset import load
from perfpass.training.section import Section
from perfpass.training.tasks.simple_baselines import one_factor, trees

INTRO = """
Prefill (all first tokens of a batch) and decode (one step) of models alone on their boards (splitwise-sim, and first
tokens of LLM-Inference-Bench), and on a server of 2023 under closed-loop load (LLM-Pilot): time to the first token, the
wait for other users' steps included, and time between tokens. Encoder-decoders are left out. Random rows keep
repeats together. Bounds (90 % asked) are made from other folds alone; models and devices count alike.
"""
_ROOFLINE = [0, 1, 2]


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade the method on the records of ``folder`` (default: the repository's data)."""
    quantities = load(folder)
    counts = {name: entry["rows"] for name, entry in corpus(quantities).items()}
    section = Section("phases", "Prefill and decode, second sources", INTRO, counts)
    for name, q in quantities.items():
        covariance = covariance_of(q.form, q.rows)
        codes = [np.unique(q.rows.categories[:, c].astype(str), return_inverse=True)[1] for c in range(2)]
        columns = np.concatenate([q.rows.workload, q.rows.traits, np.array(codes, dtype=np.float64).T], axis=1)
        splits = {"random": random_split(q, seed=seed), "model": group_split(q.model), "device": group_split(q.device)}
        for split, folds in splits.items():
            held = hold_out(q, folds, covariance)
            judged_on = f"{len(set(q.model))} models, {len(set(q.device))} devices"
            add_lines(
                section, q, split, held, alike=split != "random", judged_on=judged_on,
                baseline=trees(columns, q.measured, folds, seed),
            )  # fmt: skip
            roofline = one_factor(q.rows.components[:, _ROOFLINE].sum(axis=1), q.measured, folds)
            section.add(name, split, "roofline only", judged_on, roofline, q.measured)
            if split != "random":
                groups = q.model if split == "model" else q.device
                section.add_worst_groups(name, split, split, list(groups), held.predicted, q.measured)
            if split == "model":
                section.add_points(name, q.unit, split, list(q.device), held.predicted, q.measured)
        if not quiet:
            print(f"phases: {name}", file=sys.stderr, flush=True)
    section.notes.append(
        "Refused: 15 rows whose prompt phase is faster than the boards' peak FLOP/s, 7 runs in which over half of the "
        "requests failed; left out: runs with a power cap of unknown height."
    )
    return section
