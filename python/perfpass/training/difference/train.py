"""Fitting of the widths of ratios (`perfpass.predictors.difference.widths`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from perfpass.predictors.difference.widths import NAME
from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.training.difference import others, pairs, steps, widths
from perfpass.training.difference.pairs import Pairs


def by_figure(folder: Path | None = None, *, seed: int = 0, quiet: bool = True) -> dict[str, Pairs]:
    """All pairs: of latency by kind of device, of memory, of energy."""

    def say(text: str) -> None:
        if not quiet:
            print(f"difference: {text}", file=sys.stderr, flush=True)

    time = pairs.latency(folder, seed=seed, say=say)
    found = {f"latency {kind}": time.take(time.kind == kind) for kind in sorted(set(time.kind))}
    joules = Pairs.joined([others.energy(folder), steps.energy(folder)])
    return {**found, "memory": others.memory(folder, seed=seed), "energy": joules}


def fitter(figure: str, known: Mapping[str, Spread]) -> Callable[[Pairs], Spread]:
    """How the widths of a figure are fitted, given those of times on GPUs.

    Times on CPUs are drawn to them, and energy follows time: its few pairs, of two laboratories, say one factor.
    """
    if figure == "latency gpu":
        return widths.fit
    if figure == "memory":
        return partial(widths.fit, prior=widths.PRIOR_OF_MEMORY, stretched=True)
    times = known["latency gpu"]
    if figure == "energy":
        return partial(widths.scaled, base=times)
    return partial(widths.fit, prior=dict(zip(times.causes, times.high, strict=True)))


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
            fitted[figure] = fitter(figure, fitted)(found[figure])
    manifest = {
        "predictor": NAME,
        "spread": {figure: spread.to_dict() for figure, spread in fitted.items()},
        "corpus": {figure: {"pairs": len(p), "sources": sorted(set(p.source))} for figure, p in found.items()},
    }
    artefacts.write(place, manifest, {})
    if not quiet:
        print(f"wrote {place}", file=sys.stderr, flush=True)
    return place
