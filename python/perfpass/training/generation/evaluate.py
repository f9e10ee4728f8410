"""Grades the generation predictor: held-out rows, models, devices and runtimes, beside plain baselines."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from perfpass.prediction import SUPPORT_LEVELS
from perfpass.predictors.generation.features import facts
from perfpass.predictors.generation.predictor import GenerationPredictor
from perfpass.predictors.learned.width_words import NEAR_FROM, OUTSIDE_FROM
from perfpass.predictors.relative.question import of_batch
from perfpass.training import spread
from perfpass.training.components.fit import covariance_of
from perfpass.training.components.grade import (
    Held,
    Quantity,
    adapted,
    add_lines,
    both_split,
    group_split,
    hold_out,
    random_split,
)
from perfpass.training.generation import widths
from perfpass.training.generation.dataset import Dataset, corpus, load
from perfpass.training.generation.evaluate_engines import add_engines
from perfpass.training.generation.evaluate_phases import add_phases
from perfpass.training.generation.train import MODEL_FOLDS
from perfpass.training.relative import COPY, copied
from perfpass.training.section import Section
from perfpass.training.spread import Errors
from perfpass.training.tasks.simple_baselines import one_factor, trees
from perfpass.training.tasks.splits import Fold

INTRO = """
One batch of equal requests without a server, its phases, and a server that only a second source has.

*latency*: first prompt token to last output token of the batch (LLM-Inference-Bench); throughput is tokens over it, so
both have the same errors in percent. A model is held out with all models of the same architecture, a device with both
of its software stacks, random rows with their repeats. Bounds (90 % asked) are made from other folds alone. Length
scales and amplitudes were chosen on the set-aside models (every fourth by hash of its name), which the model split
shows apart. "source": other laboratories, each left out of the widths in turn; nothing else was fitted to them.

*prefill* (all first tokens of a batch) and *decode* (one step): models alone on their boards (splitwise-sim, and first
tokens of LLM-Inference-Bench). *loaded_first_token* and *loaded_between_tokens*: a server of 2023 under closed-loop
load (LLM-Pilot), the wait for other users' steps included. Encoder-decoders are left out. In their bounds models and
devices count alike. Beside them, on the same rows: the latency above split into prompt and tokens, and the serving
predictor, which learned from none of these rows.

*engine_token* and *engine_prompt*: engines without a server, counted, with habits fitted without the rows, model,
device, source or whole engine ("runtime") that is judged. Beside them, on the same rows: the roofline times one factor,
and the most alike run that is known, scaled by the rooflines.
"""


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Grade the method on the records of ``folder`` (default: the repository's data)."""

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    data = load(folder)
    q = data.quantity
    covariance = covariance_of(q.form, q.rows)
    found = corpus(data)
    section = Section(
        "generation",
        "Generation without a server, and its phases",
        INTRO,
        {
            "rows": len(q),
            "models": len(set(q.model)),
            "devices": len(found["devices"]),
            "runtimes": len(found["runtimes"]),
        },
    )
    folds = {
        "random": random_split(q, seed=seed),
        "model": group_split(q.model, MODEL_FOLDS, seed),
        "device": group_split(q.device),
        "runtime": group_split(q.others["runtime"]),
    }
    columns = table_columns(data)
    out = {split: hold_out(q, parts, covariance) for split, parts in folds.items()}
    errors = {split: widths.held_out_errors(q, out[split], parts, split) for split, parts in folds.items()}
    # Of no line, but of the widths that ship.
    both = both_split(q, seed)
    errors["device and model"] = widths.held_out_errors(q, hold_out(q, both, covariance), both, "device and model")
    asked, left = widths.load(folder)
    seconds, outside = widths.answers(GenerationPredictor.load(), asked)
    _sources(section, q.name, asked, seconds, outside, [found for found, _ in errors.values()])
    for split, parts in folds.items():
        held = out[split]
        alike = split in ("device", "runtime")
        low, high = spread.graded(errors, [outside], split, len(q), partial(widths.fit, quantity=q.name))
        add_lines(
            section, q, split, held, judged_on="all devices", aim_pct={"model": 12.0}.get(split),
            baseline=trees(columns, q.measured, parts, seed),
            edges=(held.predicted * np.exp(low), held.predicted * np.exp(high)),
        )  # fmt: skip
        rows = np.isfinite(held.predicted)
        roofline = one_factor(q.rows.components[:, [0, 1, 2, 4]].sum(axis=1), q.measured, parts)
        section.add(q.name, split, "roofline only", "all devices", roofline[rows], q.measured[rows])
        if split == "model":
            _by_choice(section, q, held)
        if alike:
            _by_group(section, q, split, held)
        groups = {"device": q.device, "runtime": q.others["runtime"]}.get(split, q.model)
        section.add_worst_groups(
            q.name, split, "model" if groups is q.model else split, list(groups), held.predicted, q.measured
        )
        if split == "model":
            section.add_worst_cases(q.name, "s", split, list(q.configuration), held.predicted, q.measured)
            section.add_points(q.name, "s", split, list(q.device), held.predicted, q.measured)
        say(f"generation: {split}")
    _few_records(section, q, folds["device"], covariance, seed)
    section.notes.append(
        "Refused: 33 rows that end before weights and cache can have been read. llama.cpp rows time one sequence, "
        "whatever their batch (docs/reference/records.md)."
    )
    section.notes.append(
        "Rows of other laboratories that ask another question are left out: "
        + ", ".join(f"{count} ({reason})" for reason, count in left.most_common())
        + "."
    )
    add_phases(section, folder, seed, quiet=quiet)
    add_engines(section, folder, quiet=quiet)
    return section


def _sources(
    section: Section, name: str, asked: list[widths.Asked], seconds: np.ndarray, outside: Errors, others: list[Errors]
) -> None:
    """Other laboratories, each left out of the widths in turn: by source, and by level of support."""
    bounds = spread.of_each_source(outside, others, partial(widths.fit, quantity=name))
    low, high = (seconds * np.exp(b) for b in bounds)
    measured = np.array([a.measured_s for a in asked])
    source = outside.source.astype(str)
    shown = GenerationPredictor.load().spread[name].bounds(dict(zip(outside.causes, outside.lacks.T, strict=True)))
    width = np.exp(shown[1] - shown[0])
    level = np.where(width > OUTSIDE_FROM, "outside", np.where(width > NEAR_FROM, "near", "in range"))

    publishers = [one.removeprefix("source:").split("/")[0] for one in source]
    copies = 1e-3 * copied([of_batch(a.batch) for a in asked], "time", publishers)

    def add(judged_on: str, rows: np.ndarray) -> None:
        if rows.any():
            section.add(name, "source", "perfpass", judged_on, seconds[rows], measured[rows], low[rows], high[rows])
        if "by width" not in judged_on and (rows := rows & np.isfinite(copies)).any():
            section.add(name, "source", COPY, judged_on, copies[rows], measured[rows])

    add("all", np.ones(len(asked), dtype=bool))
    for one in np.unique(source):
        add(one.removeprefix("source:").replace("/", ", "), source == one)
    for one in SUPPORT_LEVELS:
        add(f"{one} by width", level == one)


def table_columns(data: Dataset) -> np.ndarray:
    """[N, F] what a plain table of model, workload and device says; for the tree baseline."""
    kinds = sorted({b.runtime for b in data.batches})
    out = []
    for b in data.batches:
        f = facts(b.model)
        numbers = [f.parameters, f.body, f.layers, f.hidden, f.expert_count, b.model.kv_heads, b.model.vocabulary]
        numbers += [b.devices, b.batch, b.input_tokens, b.output_tokens]
        numbers += [b.device.memory_bandwidth_bytes_s, b.device.memory_bytes, max(b.device.peak_flops.values())]
        out.append([*numbers, *(float(b.runtime == k) for k in kinds)])
    return np.array(out, dtype=np.float64)


def _by_choice(section: Section, q: Quantity, held: Held) -> None:
    from perfpass.training.tasks.splits import set_aside

    chosen = set_aside(list(q.model))
    for rows, text in ((chosen, "set-aside models (settings chosen on them)"), (~chosen, "all other models")):
        section.add(q.name, "model", "perfpass", text, held.predicted[rows], q.measured[rows])


def _by_group(section: Section, q: Quantity, split: str, held: Held) -> None:
    for evidence in sorted(set(held.evidence)):
        rows = held.evidence == evidence
        section.add(q.name, split, "perfpass", f"rows with {evidence}", held.predicted[rows], q.measured[rows])


def _few_records(section: Section, q: Quantity, folds: list[Fold], covariance: np.ndarray, seed: int) -> None:
    for count, held in adapted(q, folds, (10, 32), covariance, seed).items():
        rows = np.isfinite(held.predicted)
        section.add(
            q.name, "device", f"perfpass, {count} records", "all devices", held.predicted[rows], q.measured[rows]
        )
