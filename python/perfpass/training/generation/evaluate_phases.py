"""Grades the phases, quantity by quantity, beside plain baselines and beside what else could answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from perfpass.errors import ArgumentError, UnsupportedError
from perfpass.llm.costs import Parallelism, Quantization
from perfpass.llm.serving import Serving
from perfpass.predictors.generation.features import Batch, rows_of
from perfpass.predictors.generation.phase_features import at_peak
from perfpass.predictors.generation.predictor import QUANTITY, GenerationPredictor
from perfpass.predictors.serving.predictor import ServingPredictor
from perfpass.training import spread
from perfpass.training.components.grade import Held, Quantity, add_quantity, of_sources, usual_splits
from perfpass.training.generation import widths
from perfpass.training.generation.phases import Phases, load
from perfpass.training.section import Section
from perfpass.training.tasks.simple_baselines import one_factor
from perfpass.training.tasks.splits import Fold


def add_phases(section: Section, folder: str | None, seed: int, *, quiet: bool) -> None:
    """Append the lines of every phase on the records of ``folder`` (default: the repository's data).

    "latency split up" and "serving predictor" are what ships for a batch and for a server; neither learned from these
    rows.
    """
    for name, data in load(folder).items():
        q = data.quantity
        splits = usual_splits(q, seed) | of_sources(q)
        add_quantity(
            section, q, seed, judged_on=_judged_on(q), splits=splits, widths=partial(_edges, q, splits),
            more=_beside(section, q, _roofline(name, data), _others(name, data)),
        )  # fmt: skip
        if not quiet:
            print(f"generation: {name}", file=sys.stderr, flush=True)
    section.notes.append(
        "Phases: refused were 15 rows whose prompt phase is faster than the boards' peak FLOP/s, 7 runs in which over "
        "half of the requests failed; left out: runs with a power cap of unknown height."
    )


def _edges(
    q: Quantity, splits: Mapping[str, list[Fold]], split: str, held: Mapping[str, Held]
) -> tuple[np.ndarray, np.ndarray]:
    errors = {name: widths.held_out_errors(q, found, splits[name], name) for name, found in held.items()}
    low, high = spread.graded(errors, [], split, len(q), partial(widths.fit, quantity=q.name))
    return held[split].predicted * np.exp(low), held[split].predicted * np.exp(high)


def _beside(
    section: Section, q: Quantity, least_s: np.ndarray, others: dict[str, np.ndarray]
) -> Callable[[str, str, Held, list[Fold]], None]:
    """Adds the lines of the plain roofline and of what else could answer."""

    def add(split: str, shown: str, held: Held, folds: list[Fold]) -> None:
        roofline = one_factor(least_s, q.measured, folds)
        section.add(q.name, shown, "roofline only", _judged_on(q), roofline, q.measured)
        for method, predicted in others.items() if split != "random" else ():
            rows = np.isfinite(predicted)
            section.add(q.name, shown, method, f"{rows.sum()} rows", predicted[rows], q.measured[rows])

    return add


def _roofline(name: str, data: Phases) -> np.ndarray:
    return np.array([at_peak(p, prompt=name in ("prefill", "loaded_first_token")) for p in data.phases])


def _judged_on(q: Quantity) -> str:
    return f"{len(set(q.model))} models, {len(set(q.device))} devices"


def _others(name: str, data: Phases) -> dict[str, np.ndarray]:
    """[N] seconds that the predictors of batches and of servers give for the rows; NaN where one does not answer."""
    out = {"serving predictor": _served(name, data)}
    if not name.startswith("loaded"):
        out["latency split up"] = _split_up(name, data)
    return out


def _served(name: str, data: Phases) -> np.ndarray:
    predictor, found = ServingPredictor.load(), []
    for p in data.phases:
        try:
            serving = Serving(
                p.tokens,
                p.output_tokens,
                p.batch,
                runtime=p.runtime if p.runtime == "trtllm" else "vllm",
                parallelism=Parallelism.of(p.devices),
                quantization=Quantization("fp16", "fp16"),
            )
            times = predictor.predict(p.model, p.device, serving)
        except (ArgumentError, UnsupportedError):
            found.append(np.nan)
            continue
        first = name in ("prefill", "loaded_first_token")
        found.append((times.ttft_ms if first else times.tpot_ms).median / 1e3)
    return np.array(found)


def _split_up(name: str, data: Phases) -> np.ndarray:
    """The batch's latency with one output token, and what each more takes."""
    fitted = GenerationPredictor.load().fitted[QUANTITY]
    whole = [Batch(p.model, p.device, p.runtime, p.devices, p.batch, p.tokens, p.output_tokens) for p in data.phases]
    first = fitted.predict(rows_of([replace(b, output_tokens=1) for b in whole]))[0]
    if name == "prefill":
        return first
    steps = np.array([max(b.output_tokens - 1, 1) for b in whole])
    return np.asarray((fitted.predict(rows_of(whole))[0] - first) / steps)
