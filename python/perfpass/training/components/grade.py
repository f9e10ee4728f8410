"""Held-out predictions of component predictors: what ships as bounds, and what `perfpass evaluate` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from perfpass.predictors.learned.adapt import adapt
from perfpass.predictors.learned.component_widths import lacks
from perfpass.predictors.learned.components import Bounds, Fitted, Form, Rows
from perfpass.predictors.learned.intervals import pooled_width, quantiles
from perfpass.training.components.fit import covariance_of, fit
from perfpass.training.section import Section
from perfpass.training.spread import Errors
from perfpass.training.tasks.simple_baselines import trees
from perfpass.training.tasks.splits import Fold, groups_into_folds, random_folds

COVERAGE = 0.9
# Kinds of source by the names of splits.
_KINDS = {"random rows": "random", "device and model": "both"}
# Bounds of all rows, [N] each, in the unit of the quantity.
Edges = tuple[np.ndarray, np.ndarray]
# Bounds never narrow below this: repeats of one configuration differ as much.
LEAST_BOUND = 0.25


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


@dataclass(frozen=True)
class Held:
    """Predictions of one split's held-out rows, [N] each; NaN, 0, -1 and "" where a row was never held out."""

    predicted: np.ndarray
    spread: np.ndarray
    fold: np.ndarray
    evidence: np.ndarray
    base: np.ndarray

    def residual(self, measured: np.ndarray) -> np.ndarray:
        """log(measured / predicted) over the spread, [N]."""
        return np.asarray(np.log(measured / self.predicted) / np.where(self.spread > 0, self.spread, 1.0))


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
            found.append(Fold(np.flatnonzero((q.device != name) & ~hidden), test, f"{name} and half of the models"))
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


def bounds_from(
    residual: np.ndarray, evidence: np.ndarray, group: np.ndarray, alike: bool
) -> dict[str, tuple[float, float]]:
    """Bounds in units of spread by evidence. ``alike``: every group counts the same (devices, models), or every row, if
    that is wider.

    A handful of devices says little about the next one: their pooled width grows by one over their number. By hand; the
    exact rank of a group among so few would ask for no bound at all.
    """
    out = {}
    for name in sorted(set(evidence)):
        inside = evidence == name
        low, high = quantiles(residual[inside], COVERAGE)
        if alike:
            parts = [residual[inside & (group == g)] for g in np.unique(group[inside])]
            width = pooled_width(parts, COVERAGE) * (1.0 + 1.0 / len(parts))
            low, high = min(low, -width), max(high, width)
        out[name] = (min(low, -LEAST_BOUND), max(high, LEAST_BOUND))
    return out


def graded(q: Quantity, held: Held, alike: bool) -> tuple[np.ndarray, np.ndarray]:
    """Bounds [N] of held-out rows, made as those that ship but from the other folds alone."""
    low, high = np.full(len(q), np.nan), np.full(len(q), np.nan)
    residual = held.residual(q.measured)
    for number in np.unique(held.fold[held.fold >= 0]):
        inside, others = held.fold == number, (held.fold >= 0) & (held.fold != number)
        found = bounds_from(residual[others], held.evidence[others], held.fold[others], alike)
        bounds = Bounds(found)
        for name in sorted(set(held.evidence[inside])):
            rows = inside & (held.evidence == name)
            a, b = bounds.find(name)
            low[rows] = held.predicted[rows] * np.exp(a * held.spread[rows])
            high[rows] = held.predicted[rows] * np.exp(np.minimum(b * held.spread[rows], 50.0))
    return low, high


def calibrate(q: Quantity, splits: Mapping[str, tuple[list[Fold], bool]], say: Callable[[str], None]) -> Bounds:
    """The bounds that ship. ``splits``: per name the folds, and whether groups count alike; the first one that shows an
    evidence vouches for it.
    """
    covariance = covariance_of(q.form, q.rows)
    out: dict[str, tuple[float, float]] = {}
    for name, (folds, alike) in splits.items():
        held = hold_out(q, folds, covariance)
        rows = held.fold >= 0
        found = bounds_from(held.residual(q.measured)[rows], held.evidence[rows], held.fold[rows], alike)
        out |= {key: value for key, value in found.items() if key not in out}
        say(f"{q.name}: held out by {name}")
    return Bounds({key: (round(low, 4), round(high, 4)) for key, (low, high) in out.items()})


def ship(q: Quantity, bounds: Bounds | None) -> tuple[dict[str, object], dict[str, bytes], Fitted]:
    """The manifest's entry (with the bounds, if any), the files of the artefact, and the predictor."""
    fitted = fit(q.form, q.rows, q.measured)
    entry, files = fitted.files(q.name)
    return {**entry, **({"bounds": {k: list(v) for k, v in bounds.of.items()}} if bounds else {})}, files, fitted


def held_out_errors(q: Quantity, held: Held, folds: list[Fold], split: str) -> tuple[Errors, np.ndarray]:
    """Errors of a split's held-out rows, and which rows [M] they are of. That of sources is of other laboratories."""
    rows = np.flatnonzero(held.fold >= 0)
    found = lacks(q.form, held.evidence[rows], held.spread[rows]) | {"laboratory": float(split == "source")}
    kind = _KINDS.get(split, split)
    names = np.array([f"{kind}:{folds[i].held_out}" for i in held.fold[rows]], dtype=object)
    return Errors.of(np.log(q.measured[rows] / held.predicted[rows]), found, names), rows


def usual_splits(q: Quantity, seed: int) -> dict[str, list[Fold]]:
    """Random rows, every model and every device held out."""
    return {"random": random_split(q, seed=seed), "model": group_split(q.model), "device": group_split(q.device)}


def plain_columns(q: Quantity) -> np.ndarray:
    """[N, F] the numbers of workload and model, and the first two categories as codes; for the tree baseline."""
    codes = [np.unique(q.rows.categories[:, c].astype(str), return_inverse=True)[1] for c in range(2)]
    return np.concatenate([q.rows.workload, q.rows.traits, np.array(codes, dtype=np.float64).T], axis=1)


def add_quantity(
    section: Section, q: Quantity, seed: int, *, judged_on: str, names: Mapping[str, str] | None = None,
    aims: Mapping[str, float] | None = None, more: Callable[[str, str, Held, list[Fold]], None] | None = None,
    splits: Mapping[str, list[Fold]] | None = None, widths: Callable[[str, Mapping[str, Held]], Edges] | None = None,
) -> None:  # fmt: skip
    """All lines of a quantity on ``splits`` (`usual_splits`), its worst models and devices, the points of the picture.

    ``names``: of splits, in the table, where they differ; ``aims`` by split. ``more`` adds what an area has to say of
    a split (its own name, the one shown, what was held out, the folds). ``widths`` gives the bounds of a split from
    what all of them held out (default: `graded`).
    """
    covariance, columns = covariance_of(q.form, q.rows), plain_columns(q)
    parts = splits or usual_splits(q, seed)
    found = {split: hold_out(q, folds, covariance) for split, folds in parts.items()}
    for split, folds in parts.items():
        held = found[split]
        shown = (names or {}).get(split, split)
        add_lines(
            section, q, shown, held, alike=split != "random", judged_on=judged_on, aim_pct=(aims or {}).get(split),
            baseline=trees(columns, q.measured, folds, seed), edges=widths(split, found) if widths else None,
        )  # fmt: skip
        if more:
            more(split, shown, held, folds)
        if split != "random":
            groups = q.model if split == "model" else q.device
            section.add_worst_groups(q.name, shown, split, list(groups), held.predicted, q.measured)
        if split == "model":
            section.add_points(q.name, q.unit, shown, list(q.device), held.predicted, q.measured)


def add_lines(
    section: Section, q: Quantity, split: str, held: Held, *, alike: bool, judged_on: str, aim_pct: float | None = None,
    method: str = "perfpass", baseline: np.ndarray | None = None, edges: Edges | None = None,
) -> None:  # fmt: skip
    """The predictor's line of one split, and those of the physics alone and of a baseline on the same rows."""
    rows = np.isfinite(held.predicted)
    low, high = edges or graded(q, held, alike)
    section.add(
        q.name, split, method, judged_on, held.predicted[rows], q.measured[rows], low[rows], high[rows], aim_pct=aim_pct
    )
    if np.isfinite(held.base[rows]).all():
        section.add(q.name, split, "components only", judged_on, held.base[rows], q.measured[rows])
    if baseline is not None:
        section.add(q.name, split, "trees on the table's columns", judged_on, baseline[rows], q.measured[rows])
