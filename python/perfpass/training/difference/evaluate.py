"""Grading of ratios: `perfpass evaluate --area difference`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfpass.predictors.learned.spread import Spread
from perfpass.training.difference import widths
from perfpass.training.difference.pairs import Pairs
from perfpass.training.difference.train import by_figure, fitter, order
from perfpass.training.section import Section

OURS, DIVIDED = "perfpass diff", "two intervals divided"
_INTRO = """Ratios of two measured runs that differ in one thing (the split), as `perfpass diff` predicts them: the same
board, laboratory and conditions otherwise. Predictions know no record of the source (of timm: none of the family), and
widths come from the other sources or families. "two intervals divided": the same ratio between
the low end of one shipped interval over the high end of the other, and the reverse, which is what the two predictions
say without knowing that they share a laboratory, a host, a board and software. Energy has
two sources (queries of networks, training steps), and its widths are those of times on GPUs times one factor, which is
the other source's; memory has three."""


def evaluate(folder: str | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """Coverage and width of the ratio's interval, by what differs and by source."""
    found = by_figure(Path(folder) if folder else None, seed=seed, quiet=quiet)
    section = Section("difference", "Ratios of two runs", _INTRO)
    section.corpus = {f"pairs of {figure}": len(p) for figure, p in found.items()}
    fitted: dict[str, Spread] = {}
    for figure in order(found):
        if not len(found[figure]):
            continue
        fit = fitter(figure, fitted)
        half = widths.left_out(found[figure], fit)
        fitted[figure] = fit(found[figure])
        _grade(section, figure, found[figure], half)
    return section


def _grade(section: Section, figure: str, found: Pairs, half: np.ndarray) -> None:
    metric = f"{figure} ratio"
    everything = np.ones(len(found), dtype=bool)
    splits = [("all", everything), *((str(what), found.what == what) for what in sorted(set(found.what)))]
    for split, mask in splits:
        _add(section, metric, split, "all", found, half, mask)
        for source in sorted(set(found.source[mask])) if split != "all" else []:
            _add(section, metric, split, str(source), found, half, mask & (found.source == source))
    ratio = half / found.divided
    known = np.isfinite(ratio)
    section.notes.append(
        f"{metric}: the median width, in logarithms, is {100 * float(np.median(ratio[known])):.0f} % of that of two "
        f"intervals divided; {100 * float(np.mean(ratio[known] <= 0.5)):.0f} % of the pairs have at most half of it."
    )


def _add(
    section: Section, metric: str, split: str, judged_on: str, found: Pairs, half: np.ndarray, mask: np.ndarray
) -> None:  # fmt: skip
    predicted, measured = np.exp(found.predicted[mask]), np.exp(found.measured[mask])
    for method, width in ((OURS, half[mask]), (DIVIDED, found.divided[mask])):
        known = np.isfinite(width)
        if known.any():
            bounds = (predicted[known] * np.exp(sign * width[known]) for sign in (-1.0, 1.0))
            section.add(metric, split, method, judged_on, predicted[known], measured[known], *bounds)
