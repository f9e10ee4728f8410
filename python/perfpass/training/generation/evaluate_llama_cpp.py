"""Grades what is counted of llama.cpp: models, devices, backends and laboratories left out in turn."""

from __future__ import annotations

import numpy as np

from perfpass.training.generation.llama_cpp import CAUSES, Held, held_out, load, reached_by_others, widths
from perfpass.training.section import Section

_KINDS = ("token", "prompt")


def add_llama_cpp(section: Section, folder: str | None = None) -> None:
    """Append lines of both kinds of time. Bounds are made without the laboratory that is judged.

    Where only one laboratory timed prompts, those of it have no bounds.
    """
    runs, others = load(folder), reached_by_others(folder)
    held = held_out(runs, others)
    spreads = {}
    for source in sorted({r.source for r in runs}):
        kept = [r for r in runs if r.source != source]
        rest = held_out(kept, others)
        for kind in _KINDS:
            if any(r.kind == kind for r in kept):
                spreads[source, kind] = widths(rest, kind)
    for kind in _KINDS:
        own = [h for h in held if h[0].kind == kind]
        for split in ("model", "device", "backend", "source"):
            rows = [h for h in own if h[3].startswith(f"{split}:")]
            for backend in sorted({h[0].backend for h in rows}):
                part = [h for h in rows if h[0].backend == backend]
                predicted, measured = (np.array(v) for v in zip(*((h[1], h[0].seconds) for h in part), strict=True))
                edges = _edges(part, spreads, kind) if split == "source" else (None, None)
                section.add(f"llama.cpp, {kind}", split, "perfpass", backend, predicted, measured, *edges)


def _edges(part: list[Held], spreads: dict, kind: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    spread = spreads.get((part[0][0].source, kind))
    if spread is None:
        return None, None
    low, high = spread.bounds({cause: np.array([h[2][cause] for h in part]) for cause in CAUSES})
    predicted = np.array([h[1] for h in part])
    return predicted * np.exp(low), predicted * np.exp(high)
