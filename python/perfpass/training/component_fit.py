"""Fitting of `perfpass.predictors.components`: factors of the physical terms, then the process on what they miss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfpass.predictors.components import Adaptation, Fitted, Form, Known, Rows, Term, kernel, key_of, scaled

# How strongly a group's factors are drawn to the coarser group's, as a share of the rows.
PULL = 3e-3
_FREE_PULL = 1e-3  # to one, where there is no coarser group
_ROUNDS = 6
# Rows off by more than this ratio (in logarithms) count less, as one part in (1 + off / OUTLIER).
OUTLIER = 0.2


# Before any measurement on the device, of the logarithm: one factor for all, one per runtime, and how they differ
# between workloads and models. Chosen on devices set aside (docs/prediction-generation.md), from few candidates.
ADAPTATION = (
    Term(0.3, workload=False, traits=False),
    Term(0.3, ("runtime",), workload=False, traits=False),
    Term(0.15, ("runtime",)),
    Term(0.1, ("runtime",), traits=False),
    Term(0.1, ("runtime",), workload=False),
)
ADAPTATION_NOISE = 0.01
# So many measurements of one group fit factors of its own, drawn to the scaled old ones as by so many rows.
ENOUGH_FOR_FACTORS = 8
# They are fitted where what is known elsewhere is off by more than this (in logarithms, in the middle); a few runs of
# some models know less of others than factors that fit already. Chosen on draws other than the comparison's.
OFF_FOR_FACTORS = 0.1
_ADAPTATION_ROWS = 0.5


def adapt(fitted: Fitted, rows: Rows, measured: np.ndarray) -> Adaptation:
    """The correction that N measurements [N] of a new device suggest for all its other workloads. N of at least 1.

    The form needs a category ``runtime``.
    """
    columns = {name: i for i, name in enumerate(fitted.form.categories)}
    groups = np.array(fitted.groups(rows), dtype=object)
    # One group may hold several runtimes where none of them was measured; a factor for all would be wrong for each.
    off = np.abs(np.log(measured / fitted.predict(rows)[0]))
    factors: dict[str, np.ndarray] = {}
    for group in set(groups):
        inside = groups == group
        alone = len(set(rows.categories[inside, columns["runtime"]])) == 1
        enough = int(inside.sum()) >= ENOUGH_FOR_FACTORS
        if alone and enough and float(np.median(off[inside])) > OFF_FOR_FACTORS:
            level, key = group.split(":", 1)
            prior = fitted.factors[int(level)][key]
            components, seconds = rows.components[inside], measured[inside]
            prior = prior * float(np.median(seconds / np.maximum(components @ prior, 1e-30)))
            factors[group] = _non_negative(components, seconds, prior, _ADAPTATION_ROWS)
    form = replace(fitted.form, terms=ADAPTATION, noise=ADAPTATION_NOISE)
    numbers = scaled(form, rows, fitted.names)
    covariance = kernel(form, numbers, numbers) + form.noise * np.eye(len(rows))
    residual = np.log(measured / Adaptation.start(fitted, rows, factors))
    return Adaptation(form, fitted.names, numbers, np.linalg.solve(covariance, residual), factors)


def covariance_of(form: Form, rows: Rows) -> np.ndarray:
    """[N, N] covariance of all rows; what folds share (`fit`)."""
    numbers = scaled(form, rows, _names(form, rows))
    return kernel(form, numbers, numbers)


def _names(form: Form, rows: Rows) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(sorted(set(rows.categories[:, c]))) for c in range(len(form.categories)))


def fit(form: Form, rows: Rows, measured: np.ndarray, covariance: np.ndarray | None = None) -> Fitted:
    """The predictor of ``measured`` [N] > 0 from N rows. ``covariance`` [N, N] of the rows where it is at hand; it is
    overwritten.
    """
    from scipy.linalg import cho_factor, cho_solve

    factors = fit_factors(form, rows, measured)
    names = _names(form, rows)
    numbers = scaled(form, rows, names)
    empty = Known(*numbers, np.zeros((len(rows), len(form.levels))))
    base, _ = Fitted(form, factors, names, empty).base(rows)
    # A level without a group for a row (a runtime apart) takes the next finer one's base.
    for level in range(len(form.levels) - 2, -1, -1):
        missing = ~np.isfinite(base[:, level])
        base[missing, level] = base[missing, level + 1]
    target = np.log(measured[:, None] / np.maximum(base, 1e-30))
    if covariance is None:
        covariance = kernel(form, numbers, numbers)
    covariance[np.diag_indices(len(covariance))] += form.noise
    factor = cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)
    return Fitted(form, factors, names, Known(*numbers, np.asarray(cho_solve(factor, target))))


def fit_factors(form: Form, rows: Rows, measured: np.ndarray) -> tuple[dict[str, np.ndarray], ...]:
    """Per level the factors [K] of each group. Rows ``apart`` teach only levels that tell them from the others."""
    columns = {name: i for i, name in enumerate(form.categories)}
    out: list[dict[str, np.ndarray]] = []
    for number, level in enumerate(form.levels):
        index = [columns[name] for name in level]
        keys = np.array([key_of(row) for row in rows.categories[:, index]]) if level else np.full(len(rows), "")
        groups: dict[str, np.ndarray] = {}
        for key in np.unique(keys):
            inside = keys == key
            if rows.apart[inside].any() and not rows.apart[inside].all():
                inside = inside & ~rows.apart
            elif number == 0 and rows.apart[inside].all() and not rows.apart.all():
                continue
            prior = _coarser(out, form.levels[:number], level, rows.categories[np.argmax(inside)], columns)
            groups[str(key)] = _non_negative(rows.components[inside], measured[inside], prior)
        out.append(groups)
    return tuple(out)


def _coarser(
    fitted: list[dict[str, np.ndarray]],
    levels: tuple[tuple[str, ...], ...],
    level: tuple[str, ...],
    categories: np.ndarray,
    columns: dict[str, int],
) -> np.ndarray | None:
    for groups, coarser in zip(reversed(fitted), reversed(levels), strict=True):
        if set(coarser) <= set(level):
            key = key_of([categories[columns[name]] for name in coarser])
            if key in groups:
                return groups[key]
    return None


def _non_negative(
    components: np.ndarray, measured: np.ndarray, prior: np.ndarray | None, pulling_rows: float | None = None
) -> np.ndarray:
    """Factors that minimise the robust relative error, drawn to ``prior`` as by ``pulling_rows`` rows."""
    from scipy.optimize import nnls

    relative = components / measured[:, None]
    if pulling_rows is None:
        pulling_rows = (_FREE_PULL if prior is None else PULL) * len(measured)
    pull = np.sqrt(pulling_rows) * relative.mean(axis=0)
    aim = np.ones(len(pull)) if prior is None else prior
    weight = np.ones(len(measured))
    factors = aim
    for _ in range(_ROUNDS):
        matrix = np.concatenate([relative * weight[:, None], np.diag(pull)])
        factors = nnls(matrix, np.concatenate([weight, pull * aim]))[0]
        ratio = np.maximum(relative @ factors, 1e-6)
        # Relative errors of a ratio far above 1 would outweigh those far below it.
        weight = 1.0 / np.sqrt(np.maximum(ratio, 0.2)) / np.sqrt(1.0 + np.abs(np.log(ratio)) / OUTLIER)
    return np.asarray(factors)
