"""Grades what is counted of engines without a server: rows, models, devices, sources and engines left out in turn."""

from __future__ import annotations

import sys

import numpy as np

from perfpass.predictors.generation.engines import ENGINES
from perfpass.training import spread
from perfpass.training.generation.engine_runs import load
from perfpass.training.generation.engines import KINDS, WIDTHS, Held, errors_of, held_out
from perfpass.training.relative import COPY
from perfpass.training.section import Section

# Splits as they are shown, and what they are called in `engines.held_out`.
_SPLITS = {"random": "known", "model": "model", "device": "device", "source": "source", "runtime": "engine"}


def add_engines(section: Section, folder: str | None = None, *, quiet: bool = False) -> None:
    """Append lines of both kinds of time. Bounds are made without what is judged; a user's laboratory is another."""
    held = held_out(load(folder))
    for kind in KINDS:
        own = [h for h in held if h.run.kind == kind]
        low, high = spread.left_out(errors_of(own, kind), WIDTHS)
        for split, name in _SPLITS.items():
            rows = np.array([h.left.startswith(f"{name}:") for h in own])
            engines = np.array([h.run.engine for h in own])
            _add(section, kind, split, "all engines", own, rows, low, high)
            for engine in sorted(set(engines[rows])):
                _add(section, kind, split, ENGINES[engine].shown, own, rows & (engines == engine), low, high)
        if not quiet:
            print(f"generation: engines, {kind}", file=sys.stderr, flush=True)


def _add(
    section: Section, kind: str, split: str, shown: str, held: list[Held], rows: np.ndarray, low: np.ndarray,
    high: np.ndarray,
) -> None:  # fmt: skip
    own = [h for h, kept in zip(held, rows, strict=True) if kept]
    measured, predicted = np.array([h.run.seconds for h in own]), np.array([h.seconds for h in own])
    edges = predicted * np.exp(low[rows]), predicted * np.exp(high[rows])
    section.add(f"engines, {kind}", split, "perfpass", shown, predicted, measured, *edges)
    for method, values in (("roofline only", [h.roofline_s for h in own]), (COPY, [h.copied_s for h in own])):
        section.add(f"engines, {kind}", split, method, shown, np.array(values), measured)
