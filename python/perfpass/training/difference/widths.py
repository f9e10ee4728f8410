"""Widths of ratios from the errors of pairs: what ships, and what is graded, made without what is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from perfpass.predictors.learned.spread import Spread
from perfpass.training import spread
from perfpass.training.difference.pairs import ACROSS, Pairs
from perfpass.training.spread import Errors

# Log half-widths that fits are drawn to, by hand, and those of what no pair shows.
PRIOR: Mapping[str, float] = {
    "measurement": 0.02,
    "operators": 0.2,
    "kinds": 0.6,
    "host": 0.8,
    "batch": 0.3,
    "precision": 0.4,
    "runtime": 0.5,
    "layout": 0.3,
    "version": 0.15,
}
# Of memory: another precision moves the tensors, and little beside them.
PRIOR_OF_MEMORY: Mapping[str, float] = {"tensors": 0.3, "precision": 0.1, "runtime": 0.3, "version": 0.05}
# Pairs of one source (of timm: one family) that a fit takes, evenly over their errors.
_MOST_ROWS = 150


def fit(found: Pairs, prior: Mapping[str, float] = PRIOR, *, stretched: bool = False) -> Spread:
    """The widths of all pairs, those of the prior where there are none.

    Both sides are the same, since with the two models changed places the ratio is inverted. ``stretched``: so that nine
    in ten errors of what is left out are covered, where few sources vouch for another; the fit alone does so elsewhere.
    """
    kept = _fitted_to(found)
    if not len(kept):
        drawn = tuple(prior[cause] for cause in found.causes)
        return Spread(found.causes, drawn, drawn, spread.TAILS, 0, 0)
    errors = kept.errors.thinned(_MOST_ROWS)
    return spread.fit(errors.mirrored(), prior) if stretched else spread.fit(errors, prior, few=True)


def _fitted_to(found: Pairs) -> Pairs:
    """Without networks that share no more than their board: two intervals that share nothing are narrower there."""
    return found.take(found.what != ACROSS)


def scaled(found: Pairs, base: Spread) -> Spread:
    """``base`` times the one factor that covers nine in ten of the pairs, every name counting alike.

    For a figure that follows another and has few pairs of its own. The factor may be below 1: joules are watts times
    seconds, and a board that waits for longer than is predicted draws less meanwhile.
    """
    low, high = base.bounds(dict(zip(found.causes, found.lacks.T, strict=True)))
    over = np.abs(found.measured - found.predicted) / np.maximum(np.sqrt((low**2 + high**2) / 2.0), 1e-9)
    order = np.argsort(over, kind="stable")
    weight = np.cumsum(found.errors.weight[order])
    at = min(int(np.searchsorted(weight, 1.0 - sum(spread.TAILS) - 1e-12)), len(over) - 1)
    factor = float(over[order][at])
    low_widths, high_widths = (tuple(factor * width for width in side) for side in (base.low, base.high))
    sources = len(np.unique(found.name.astype(str)))
    return Spread(base.causes, low_widths, high_widths, base.tails, sources, len(found))


def left_out(found: Pairs, fitted: Callable[[Pairs], Spread] = fit) -> np.ndarray:
    """[N] log half-widths of each source (or family, or network), ``fitted`` to the others alone."""
    errors = found.errors
    names = errors.source.astype(str)
    half = np.full(len(found), np.nan)
    for part in _parts(errors):
        inside = np.isin(names, part)
        made = fitted(found.take(~inside))
        low, high = made.bounds(dict(zip(errors.causes, errors.lacks[inside].T, strict=True)))
        half[inside] = np.minimum(np.sqrt((np.square(low) + np.square(high)) / 2.0), found.apart[inside])
    return half


def _parts(errors: Errors) -> list[list[str]]:
    """Names that are left out together: each source, and of other kinds `spread.FOLDS` sets."""
    names = sorted(set(errors.source.astype(str)))
    sources = [name for name in names if name.startswith("source:")]
    others = [name for name in names if not name.startswith("source:")]
    sets = [others[i :: spread.FOLDS] for i in range(spread.FOLDS)]
    return [*([name] for name in sources), *(part for part in sets if part)]
