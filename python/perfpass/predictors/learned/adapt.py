"""A fitted sum of components, adapted to a device by some of its own measurements; needs SciPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfpass.predictors.learned.components import Adaptation, Fitted, Rows, Term, kernel, scaled

# How strongly a group's factors are drawn to the coarser group's, as a share of the rows.
PULL = 3e-3
_FREE_PULL = 1e-3  # to one, where there is no coarser group
_ROUNDS = 6
# Rows off by more than this ratio (in logarithms) count less, as one part in (1 + off / OUTLIER).
OUTLIER = 0.2
# Before any measurement on the device, of the logarithm: one factor for all, one per runtime, and how they differ
# between workloads and models. Chosen on devices set aside (docs/predictors/generation.md), from few candidates.
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
            factors[group] = non_negative(components, seconds, prior, _ADAPTATION_ROWS)
    form = replace(fitted.form, terms=ADAPTATION, noise=ADAPTATION_NOISE)
    numbers = scaled(form, rows, fitted.names)
    covariance = kernel(form, numbers, numbers) + form.noise * np.eye(len(rows))
    residual = np.log(measured / Adaptation.start(fitted, rows, factors))
    return Adaptation(form, fitted.names, numbers, np.linalg.solve(covariance, residual), factors)


def non_negative(
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
