"""Fitting `perfpass.predictors.learned.components`: factors of physical terms, then the process on what they miss."""

from __future__ import annotations

import numpy as np

from perfpass.predictors.learned.adapt import non_negative
from perfpass.predictors.learned.components import Fitted, Form, Known, Rows, kernel, key_of, scaled

# Of a measured value, what components without a given factor make at least. By hand.
_LEAST_LEFT = 0.05


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
            groups[str(key)] = _factors(form, rows.components[inside], measured[inside], prior)
        out.append(groups)
    return tuple(out)


def _factors(form: Form, components: np.ndarray, measured: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
    """Factors [K] of a group, of which a form may give some: the others are fitted on what these leave."""
    if not form.given:
        return non_negative(components, measured, prior)
    given = np.array([dict(form.given).get(name, np.nan) for name in form.components])
    free = np.isnan(given)
    left = np.maximum(measured - components[:, ~free] @ given[~free], _LEAST_LEFT * measured)
    given[free] = non_negative(components[:, free], left, None if prior is None else prior[free])
    return given


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
