"""Training of artefacts that hold quantities of fitted components: energy, generation with its phases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfpass.predictors.learned import artefacts
from perfpass.predictors.learned.spread import Spread
from perfpass.training.components.grade import Quantity, both_split, group_split, of_sources, random_split, ship
from perfpass.training.tasks.splits import Fold

Splits = Mapping[str, list[Fold]]


@dataclass(frozen=True)
class Lesson:
    """What is fitted beside a quantity itself: ``splits`` that vouch for its widths, ``ranges``, ``corpus``."""

    splits: Splits
    ranges: Any
    corpus: dict[str, Any]


def lesson(q: Quantity, seed: int) -> Lesson:
    """The usual one: random rows, models, devices, both, and sources where there are several."""
    splits = {
        "random rows": random_split(q, seed=seed),
        "model": group_split(q.model),
        "device": group_split(q.device),
        "device and model": both_split(q, seed),
        **of_sources(q),
    }
    return Lesson(splits, ranges(q), corpus({q.name: q})[q.name])


def train_quantities(
    area: str,
    quantities: Mapping[str, Quantity],
    output: str | None,
    *,
    seed: int,
    quiet: bool,
    widths: Callable[[Quantity, Splits], Spread],
    lessons: Mapping[str, Lesson] | None = None,
) -> Path:
    """Fit every quantity with its widths and write the artefact of ``area``; returns its folder.

    ``widths``: fits the widths by causes of a quantity. ``lessons``: of the quantities that have one of their own.
    """

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    manifest: dict[str, Any] = {"predictor": area, "ranges": {}, "corpus": {}}
    files: dict[str, bytes] = {}
    for name, q in quantities.items():
        own = (lessons or {}).get(name) or lesson(q, seed)
        manifest[name], made = ship(q)
        manifest[name]["spread"] = widths(q, own.splits).to_dict()
        say(f"{name}: widths")
        manifest["ranges"][name], manifest["corpus"][name] = own.ranges, own.corpus
        files |= made
    place = Path(output) if output else artefacts.shipped(area)
    artefacts.write(place, manifest, files)
    say(f"wrote {place}: {sum(map(len, files.values())) / 1e6:.2f} MB")
    return place


def corpus(quantities: Mapping[str, Quantity]) -> dict[str, Any]:
    """What stands behind each quantity."""
    return {
        name: {"rows": len(q), "models": len(set(q.model)), "devices": sorted(set(q.device)), "unit": q.unit}
        for name, q in quantities.items()
    }


def ranges(q: Quantity) -> list[list[float]]:
    """Least and largest of every workload and trait number."""
    values = np.concatenate([q.rows.workload, q.rows.traits], axis=1)
    return [[float(low), float(high)] for low, high in zip(values.min(axis=0), values.max(axis=0), strict=True)]
