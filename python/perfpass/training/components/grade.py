"""Held-out predictions of component predictors: what ships as bounds, and what `perfpass evaluate` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfpass.predictors.learned.adapt import adapt
from perfpass.predictors.learned.components import Form, Rows
from perfpass.training.components.fit import covariance_of, fit
from perfpass.training.section import Section
from perfpass.training.tasks.simple_baselines import trees
from perfpass.training.tasks.splits import Fold, groups_into_folds, random_folds

if TYPE_CHECKING:
    import pandas

# Bounds of all rows, [N] each, in the unit of the quantity.
Edges = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Quantity:
    """One quantity of N records: ``measured`` [N], and the keys that splits hold out together.

    ``configuration``: equal for repeats; ``model``: equal for models of one architecture; ``device``; ``others``: more
    group keys by the name of their split.
    """

    name: str
    unit: str
    form: Form
    rows: Rows
    measured: np.ndarray
    configuration: np.ndarray
    model: np.ndarray
    device: np.ndarray
    others: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.rows)


def configurations(table: pandas.DataFrame) -> np.ndarray:
    """[N] texts of N rows, equal where all columns are: row by row pandas takes twenty times as long."""
    columns = table.astype(str)
    return np.array(["|".join(row) for row in zip(*(columns[name] for name in columns), strict=True)], dtype=object)


@dataclass(frozen=True)
class Held:
    """Predictions of one split's held-out rows, [N] each; NaN, 0, -1 and "" where a row was never held out."""

    predicted: np.ndarray
    spread: np.ndarray
    fold: np.ndarray
    evidence: np.ndarray
    base: np.ndarray


def random_split(q: Quantity, folds: int = 5, seed: int = 0) -> list[Fold]:
    """Folds of configurations: repeats of one stay together."""
    _, inverse = np.unique(q.configuration, return_inverse=True)
    return _folds(random_folds(int(inverse.max()) + 1, folds, seed)[inverse])


def group_split(keys: np.ndarray, folds: int | None = None, seed: int = 0) -> list[Fold]:
    """Each group (or ``folds`` sets of groups) held out in turn."""
    names = np.unique(keys.astype(str))
    if folds is None or folds >= len(names):
        return [Fold(np.flatnonzero(keys != n), np.flatnonzero(keys == n), str(n)) for n in names]
    return _folds(groups_into_folds(list(keys), folds, seed))


def both_split(q: Quantity, seed: int = 0) -> list[Fold]:
    """Each device held out together with half of the models: neither is known."""
    half = groups_into_folds(list(q.model), 2, seed)
    found = []
    for number, name in enumerate(np.unique(q.device.astype(str))):
        hidden = half == number % 2
        test = np.flatnonzero((q.device == name) & hidden)
        if len(test) and ((q.device != name) & ~hidden).any():
            found.append(Fold(np.flatnonzero((q.device != name) & ~hidden), test, f"{name}/and half of the models"))
    return found


def _folds(number: np.ndarray) -> list[Fold]:
    return [
        Fold(np.flatnonzero(number != i), np.flatnonzero(number == i), f"fold {i + 1}") for i in range(number.max() + 1)
    ]


def hold_out(q: Quantity, folds: Iterable[Fold], covariance: np.ndarray | None = None) -> Held:
    """Fits on each fold's training rows and predicts its held-out ones."""
    covariance = covariance_of(q.form, q.rows) if covariance is None else covariance
    n = len(q)
    held = Held(np.full(n, np.nan), np.zeros(n), np.full(n, -1), np.full(n, "", dtype=object), np.full(n, np.nan))
    for number, fold in enumerate(folds):
        fitted = fit(
            q.form, q.rows.take(fold.train), q.measured[fold.train], covariance[np.ix_(fold.train, fold.train)]
        )
        rows = q.rows.take(fold.test)
        held.predicted[fold.test], held.spread[fold.test] = fitted.predict(rows)
        held.evidence[fold.test] = fitted.evidence(rows)
        base, finest = fitted.base(rows)
        held.base[fold.test] = base[np.arange(len(rows)), finest]
        held.fold[fold.test] = number
    return held


def adapted(
    q: Quantity, folds: Iterable[Fold], counts: Iterable[int], covariance: np.ndarray, seed: int = 0
) -> dict[int, Held]:
    """Held-out devices again, after ``counts`` of their own records, drawn at random (those are not judged)."""
    out = {k: Held(*(a.copy() for a in _empty(len(q)))) for k in counts}
    for number, fold in enumerate(folds):
        fitted = fit(
            q.form, q.rows.take(fold.train), q.measured[fold.train], covariance[np.ix_(fold.train, fold.train)]
        )
        order = np.random.default_rng(seed + number).permutation(fold.test)
        for count, held in out.items():
            if len(order) < 2 * count:
                continue
            shown, rest = order[:count], order[count:]
            correction = adapt(fitted, q.rows.take(shown), q.measured[shown])
            held.predicted[rest] = correction.predict(fitted, q.rows.take(rest))
            held.spread[rest], held.fold[rest] = fitted.predict(q.rows.take(rest))[1], number
    return out


def _empty(n: int) -> tuple[np.ndarray, ...]:
    return np.full(n, np.nan), np.zeros(n), np.full(n, -1), np.full(n, "", dtype=object), np.full(n, np.nan)


def ship(q: Quantity) -> tuple[dict[str, object], dict[str, bytes]]:
    """The manifest's entry and the files of the artefact."""
    return fit(q.form, q.rows, q.measured).files(q.name)


def usual_splits(q: Quantity, seed: int) -> dict[str, list[Fold]]:
    """Random rows, every model and every device held out."""
    return {"random": random_split(q, seed=seed), "model": group_split(q.model), "device": group_split(q.device)}


def of_sources(q: Quantity) -> dict[str, list[Fold]]:
    """The split that leaves each source out, where there are two or more."""
    source = q.others.get("source", np.array([]))
    return {"source": group_split(source)} if len(np.unique(source.astype(str))) > 1 else {}


def plain_columns(q: Quantity) -> np.ndarray:
    """[N, F] the numbers of workload and model, and the first two categories as codes; for the tree baseline."""
    codes = [np.unique(q.rows.categories[:, c].astype(str), return_inverse=True)[1] for c in range(2)]
    return np.concatenate([q.rows.workload, q.rows.traits, np.array(codes, dtype=np.float64).T], axis=1)


def add_quantity(
    section: Section, q: Quantity, seed: int, *, judged_on: str, names: Mapping[str, str] | None = None,
    aims: Mapping[str, float] | None = None, more: Callable[[str, str, Held, list[Fold]], None] | None = None,
    splits: Mapping[str, list[Fold]], widths: Callable[[str, Mapping[str, Held]], Edges],
) -> None:  # fmt: skip
    """All lines of a quantity on ``splits``, its worst models and devices, the points of the picture.

    ``names``: of splits, in the table, where they differ; ``aims`` by split. ``more`` adds what an area has to say of
    a split (its own name, the one shown, what was held out, the folds). ``widths`` gives the bounds of a split from
    what all of them held out.
    """
    covariance, columns = covariance_of(q.form, q.rows), plain_columns(q)
    found = {split: hold_out(q, folds, covariance) for split, folds in splits.items()}
    for split, folds in splits.items():
        held = found[split]
        shown = (names or {}).get(split, split)
        add_lines(
            section, q, shown, held, judged_on=judged_on, aim_pct=(aims or {}).get(split),
            baseline=trees(columns, q.measured, folds, seed), edges=widths(split, found),
        )  # fmt: skip
        if more:
            more(split, shown, held, folds)
        if split != "random":
            rows = np.isfinite(held.predicted)
            groups = (q.model if split == "model" else q.device)[rows]
            section.add_worst_groups(q.name, shown, split, list(groups), held.predicted[rows], q.measured[rows])
        if split == "model":
            section.add_points(q.name, q.unit, shown, list(q.device), held.predicted, q.measured)


def add_lines(
    section: Section, q: Quantity, split: str, held: Held, *, judged_on: str, edges: Edges,
    aim_pct: float | None = None, method: str = "perfpass", baseline: np.ndarray | None = None,
) -> None:  # fmt: skip
    """The predictor's line of one split, and those of the physics alone and of a baseline on the same rows."""
    rows = np.isfinite(held.predicted)
    low, high = edges
    section.add(
        q.name, split, method, judged_on, held.predicted[rows], q.measured[rows], low[rows], high[rows], aim_pct=aim_pct
    )
    if np.isfinite(held.base[rows]).all():
        section.add(q.name, split, "components only", judged_on, held.base[rows], q.measured[rows])
    if baseline is not None:
        section.add(q.name, split, "trees on the table's columns", judged_on, baseline[rows], q.measured[rows])
