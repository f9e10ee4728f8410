"""The section of the area: every decision that records can grade adds its part."""

from __future__ import annotations

from pathlib import Path

from perfpass.training.decisions import fit
from perfpass.training.section import Section

INTRO = """
Decisions made from predictions, graded on records that the predictions have not seen.

`perfpass fit` says P(fits). Of every run whose memory a laboratory measured, the figure of memory with that laboratory
left out (of language models that answer: from constants that no record has set; of those that train, as `perfpass
train-cost` tells it) is asked whether it stays within the memory of each GPU and each MIG slice of the catalogue from
half to twice the predicted median; the answer is whether the measured figure does. Limits are chosen by the prediction,
never by the measurement. Brier score: mean squared difference between P and what came (0 is perfect; "median alone"
says 0 or 1 by the median). A run counts once, whatever the number of limits. With a confidence of 90 %: how often
"fits" and "does not fit" were wrong, and how often nothing could be said. A laboratory is off as a whole, so that what
it adds to a tenth of P comes or does not come together: beside what came stands how many lines are behind it, how much
of it the largest is, and what came of the others. "Where each line lies" counts every laboratory once: P(fits) of a
memory of just what was measured is as likely to be anything from 0 to 1 if P is honest, so the middle runs of all lines
are to lie near an even spread.
"""


def evaluate(folder: Path | None = None, seed: int = 0, *, quiet: bool = False) -> Section:
    """All parts of the area."""
    section = Section("decisions", "Decisions", INTRO)
    fit.add(section, folder)
    return section
