"""How good the nearest measured relative is, copied and scaled by physics, beside the predictors on the same rows.

The plain baseline that every learned part must beat (`perfpass.predictors.relative`). Nothing is fitted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfpass import evidence
from perfpass.predictors.relative.nearest import LEAVE_OUT, QUANTITIES, copies, nearest
from perfpass.predictors.relative.question import Question
from perfpass.predictors.relative.relatives import Relatives
from perfpass.training.inference import operators
from perfpass.training.section import Section
from perfpass.training.tasks import named

__all__ = ["COPY", "copied", "evaluate"]

COPY = "nearest relative, copied and scaled"
_OURS, _PEAK = "perfpass", "FLOPs at the peak"
# Records drawn of each quantity and kind, where there are more.
_DRAWN = 250
_LEAST = 10
_INTRO = """The nearest measured record of the evidence that ships, copied and scaled by the ratio of least times (of
bytes, for memory). By quantity: a sample of the records themselves; "random": the record itself is no relative,
"model", "device", "source": nor is any of its model, device or laboratory. "latency ms" by source: networks of other
laboratories, their own source left out, beside what the shipped predictors say of the same rows and beside their FLOPs
at the peak. Copies that are further than the evidence calls near count as well."""


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Lines by quantity and what is left out, and by source beside the predictors. Raises FileError."""
    relatives = evidence.load()
    section = Section("relative", "The nearest measured relative", _INTRO, {"records": len(relatives)})

    def say(text: str) -> None:
        if not quiet:
            print(f"evaluate relative: {text}", file=sys.stderr, flush=True)

    generator = np.random.default_rng(seed)
    kinds, boards = _texts(relatives, "kind"), relatives.texts["device"]
    listed = np.array([relatives.device(name) is not None for name in boards.values])[boards.code]
    for name, quantity in QUANTITIES.items():
        figure, work = relatives.numbers[quantity.figure], relatives.numbers[quantity.work]
        for kind in np.unique(kinds):
            rows = np.flatnonzero((kinds == kind) & (figure > 0) & (work > 0) & listed)
            rows = np.sort(generator.permutation(rows)[:_DRAWN])
            if len(rows) < _LEAST:
                continue
            for left in ("random", *LEAVE_OUT):
                copied, _ = copies(relatives, name, rows, leave_out=() if left == "random" else (left,))
                _add(section, f"{name} ({quantity.unit})", left, COPY, kind, copied, figure[rows])
            say(f"{name}, {kind}")
    _beside(section, relatives, Path(folder) if folder else None)
    return section


def copied(questions: Sequence[Question], quantity: str, sources: Sequence[str]) -> np.ndarray:
    """[N] the nearest record that is not of a question's own source, copied and scaled; NaN where none is left.

    ``quantity``: one of `QUANTITIES`, in its unit.
    """
    relatives, out = evidence.load(), np.full(len(questions), np.nan)
    for i, (question, source) in enumerate(zip(questions, sources, strict=True)):
        found = nearest(question, relatives, quantity, limit=None, leave_out={"source": {source}}).copied
        if np.isfinite(found).any():
            out[i] = found[np.isfinite(found)][0]
    return out


def _beside(section: Section, relatives: Relatives, folder: Path | None) -> None:
    """Networks of other laboratories: the copy, the predictors and the peak on the same rows."""
    asked, _ = named.residuals(folder, operators.left_out(folder))
    asked = asked[~asked.above_peak]
    rows = places(relatives, asked)
    asked, rows = asked[rows >= 0], rows[rows >= 0]
    kind = np.where(asked["mode"] == "training", "step", "inference")
    copied, _ = copies(relatives, "time", rows, leave_out=("source",))
    measured = 1e3 * asked.measured_s.to_numpy()
    found = np.isfinite(copied)
    for of in ("inference", "step"):
        metric = "latency ms" if of == "inference" else "step ms"
        for source in ("all", *sorted(asked.source.unique())):
            m = found & (kind == of) & ((asked.source == source).to_numpy() | (source == "all"))
            if m.sum() < _LEAST:
                continue
            values = {_OURS: asked.median_s, COPY: copied * 1e-3, _PEAK: asked.roofline_s}
            for method, seconds in values.items():
                _add(section, metric, "source", method, source, 1e3 * np.asarray(seconds)[m], measured[m])


def places(relatives: Relatives, asked: Any) -> np.ndarray:
    """[N] which of the relatives each of N rows of `named.residuals` is; -1 where none."""
    place: dict[tuple[str, ...], int] = {}
    texts, numbers = relatives.texts, relatives.numbers
    for row in np.flatnonzero(np.isin(_texts(relatives, "source"), asked.source.unique())).tolist():
        key = (texts["kind"][row], texts["source"][row], texts["model"][row], numbers["batch"][row])
        place.setdefault((*map(str, key), f"{numbers['time_ms'][row]:.4g}"), row)
    kind = np.where(asked["mode"] == "training", "step", "inference")
    keys = zip(kind, asked.source, asked.model, asked.batch, asked.measured_s, strict=True)
    return np.array([place.get((k, s, m, str(float(b)), f"{1e3 * t:.4g}"), -1) for k, s, m, b, t in keys], dtype=int)


def _texts(relatives: Relatives, name: str) -> np.ndarray:
    """[N] a column of texts."""
    column = relatives.texts[name]
    return np.array(column.values)[column.code]


def _add(
    section: Section, metric: str, split: str, method: str, judged_on: str, found: np.ndarray, measured: np.ndarray
) -> None:  # fmt: skip
    kept = np.isfinite(found) & (found > 0)
    if kept.sum() >= _LEAST:
        section.add(metric, split, method, judged_on, found[kept], measured[kept])
