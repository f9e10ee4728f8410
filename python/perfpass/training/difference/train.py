"""Fitting of the widths of ratios (`perfpass.predictors.difference.widths`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfpass.predictors.difference.widths import NAME
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.training.difference import others, pairs, widths
from perfpass.training.difference.pairs import Pairs

# Figures of which few laboratories have pairs.
STRETCHED = ("memory", "energy")


def by_figure(folder: Path | None = None, *, seed: int = 0, quiet: bool = True) -> dict[str, Pairs]:
    """All pairs: of latency by kind of device, of memory, of energy."""

    def say(text: str) -> None:
        if not quiet:
            print(f"difference: {text}", file=sys.stderr, flush=True)

    time = pairs.latency(folder, seed=seed, say=say)
    found = {f"latency {kind}": time.take(time.kind == kind) for kind in sorted(set(time.kind))}
    return {**found, "memory": others.memory(folder, seed=seed), "energy": others.energy(folder)}


def prior_of(figure: str, found: Mapping[str, Spread]) -> dict[str, float]:
    """What a fit is drawn to: that of energy, and of times on CPUs, to the widths of times on GPUs."""
    known = found.get("latency gpu")
    if figure == "memory":
        return dict(widths.PRIOR_OF_MEMORY)
    if known is None or figure == "latency gpu":
        return dict(widths.PRIOR)
    return {**widths.PRIOR, **dict(zip(known.causes, known.high, strict=True))}


def order(found: Mapping[str, Any]) -> list[str]:
    """The figures, that of times on GPUs first: others are drawn to it."""
    return sorted(found, key=lambda name: (name != "latency gpu", name))


def train(folder: str | None = None, output: str | None = None, *, seed: int = 0, quiet: bool = False) -> Path:
    """Fit the widths on all pairs and write them. Returns the folder. Raises FileError."""
    place = Path(output) if output else artefacts.shipped(NAME)
    found = by_figure(Path(folder) if folder else None, seed=seed, quiet=quiet)
    fitted: dict[str, Spread] = {}
    for figure in order(found):
        if len(found[figure]):
            fitted[figure] = widths.fit(found[figure], prior_of(figure, fitted), stretched=figure in STRETCHED)
    manifest = {
        "predictor": NAME,
        "spread": {figure: spread.to_dict() for figure, spread in fitted.items()},
        "corpus": {figure: {"pairs": len(p), "sources": sorted(set(p.source))} for figure, p in found.items()},
    }
    artefacts.write(place, manifest, {})
    if not quiet:
        print(f"wrote {place}", file=sys.stderr, flush=True)
    return place
